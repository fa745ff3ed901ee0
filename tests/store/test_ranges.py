"""RangeSet against a plain set of counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.ranges import RangeSet

HIGHEST = 40
ranges = st.tuples(st.integers(1, HIGHEST), st.integers(0, 12)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
changes = st.lists(st.tuples(st.sampled_from(["add", "remove"]), ranges), max_size=30)


def counters(first: int, last: int) -> set[int]:
    return set(range(first, last + 1))


def pieces(numbers: set[int]) -> list[tuple[int, int]]:
    """Sorted, disjoint, non-touching inclusive ranges of the numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def built(steps: list[tuple[str, tuple[int, int]]]) -> tuple[RangeSet, set[int]]:
    found, model = RangeSet(), set[int]()
    for what, (first, last) in steps:
        if what == "add":
            assert found.add(first, last) == len(counters(first, last) - model)
            model |= counters(first, last)
        else:
            found.remove(first, last)
            model -= counters(first, last)
        assert list(found) == pieces(model)
    return found, model


@given(changes, ranges)
def test_a_range_set_behaves_as_a_set(
    steps: list[tuple[str, tuple[int, int]]], probe: tuple[int, int]
) -> None:
    found, model = built(steps)
    first, last = probe
    assert found.count(first, last) == len(model & counters(first, last))
    assert found.missing(first, last) == pieces(counters(first, last) - model)
    assert found.missing(last + 1, last) == []
    assert bool(found) == bool(model)
    assert len(found) == len(pieces(model))
    for counter in range(HIGHEST + 15):
        assert (counter in found) == (counter in model)
        ends = [b for a, b in pieces(model) if a <= counter <= b]
        assert found.end_of(counter) == (ends[0] if ends else None)
    assert list(RangeSet(pieces(model))) == list(found)


@given(changes, st.integers(0, HIGHEST))
def test_a_floor_is_pushed_past_everything_it_touches(
    steps: list[tuple[str, tuple[int, int]]], floor: int
) -> None:
    found, model = built(steps)
    expected = floor
    while expected + 1 in model:
        expected += 1
    assert found.pop_through(floor) == expected
    assert list(found) == pieces({counter for counter in model if counter > expected})
