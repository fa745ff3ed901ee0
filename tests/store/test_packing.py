"""Removed counters in a checkpoint: few as a list, many packed, never more than what is held."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log, LogOptions, open_log, upkeep
from store.blocks import ACKED, records_weight
from store.draft import Draft
from store.errors import DamageError
from store.keys import COUNTER_MAX
from store.packing import (
    BITMAP_BYTES,
    CHUNK_COUNTERS,
    READABLE_RANGES,
    RUN_BYTES,
    Pieces,
    json_bytes_max,
    pack,
    unpack,
)
from store.ranges import RangeSet
from tests.support.clock import ManualClock


def every_second(count: int, base: int = 0) -> RangeSet:
    return RangeSet((base + 2 * at, base + 2 * at) for at in range(1, count + 1))


def packed_bytes(removed: RangeSet) -> int:
    return len(msgspec.json.encode(pack(removed)))


def test_few_ranges_stay_a_list_that_people_can_read() -> None:
    removed = every_second(READABLE_RANGES)
    assert pack(removed) == (list(removed), [])
    removed.add(1000, 1000)
    listed, pieces = pack(removed)
    assert listed == []
    assert [(chunk, len(piece)) for chunk, piece in pieces] == [(0, RUN_BYTES * len(removed))]


def test_a_piece_is_runs_until_a_bitmap_is_smaller() -> None:
    fewer = every_second(BITMAP_BYTES // RUN_BYTES - 1)
    more = every_second(BITMAP_BYTES // RUN_BYTES)
    assert [len(piece) for _, piece in pack(fewer)[1]] == [BITMAP_BYTES - RUN_BYTES]
    assert [len(piece) for _, piece in pack(more)[1]] == [BITMAP_BYTES]
    for removed in (fewer, more):
        assert list(unpack(*pack(removed))) == list(removed)


def test_ranges_that_reach_the_end_of_their_chunk_are_in_the_list() -> None:
    removed = every_second(READABLE_RANGES)
    end = CHUNK_COUNTERS - 1
    removed.add(end - 3, end)
    removed.add(3 * CHUNK_COUNTERS - 5, 9 * CHUNK_COUNTERS)
    listed, pieces = pack(removed)
    assert listed == [(end - 3, end), (3 * CHUNK_COUNTERS - 5, 9 * CHUNK_COUNTERS)]
    assert [chunk for chunk, _ in pieces] == [0]


@pytest.mark.parametrize("seed", range(6))
def test_any_set_comes_back_and_is_packed_anew_where_it_changed(seed: int) -> None:
    random = Random(seed)
    base = random.choice([1, 40_000, COUNTER_MAX - 4 * CHUNK_COUNTERS])
    removed = RangeSet()
    for step in range(900):
        first = base + random.randrange(3 * CHUNK_COUNTERS)
        last = first + random.choice([0, 0, 0, 1, 5, 9000 if step % 90 == 0 else 2])
        choice = random.random()
        if choice < 0.8:
            removed.add(first, last)
        elif choice < 0.99:
            removed.remove(first, last)
        else:
            removed.pop_through(base + random.randrange(1000))
        if step % 9 == 0:
            assert list(unpack(*pack(removed))) == list(removed)
    assert len(pack(removed)[1]) > 1
    removed.add(base, base + 20 * CHUNK_COUNTERS if base < 10**9 else COUNTER_MAX - 1)
    assert not removed.packed
    assert pack(removed)[1] == []


def test_a_long_range_leaves_the_pieces_of_other_chunks_as_they_are() -> None:
    removed = every_second(READABLE_RANGES + 1)
    pack(removed)
    assert set(removed.packed) == {0}
    removed.add(2 * CHUNK_COUNTERS, 40 * CHUNK_COUNTERS)
    assert set(removed.packed) == {0}
    removed.add(1000, 40 * CHUNK_COUNTERS)
    assert not removed.packed


BROKEN: list[tuple[list[tuple[int, int]], Pieces, str]] = [
    ([], [(-1, bytes([1, 0, 1, 0]))], "there is no chunk -1 of counters"),
    ([], [(1 << 47, bytes([1, 0, 1, 0]))], "there is no chunk 140737488355328 of counters"),
    ([], [(0, b"123")], "a piece of 3 bytes is neither runs nor a bitmap"),
    ([], [(0, bytes(BITMAP_BYTES + 4))], "a piece of 8196 bytes is neither runs nor a bitmap"),
    ([], [(0, bytes(4))], "removed counters 0 to 0 are out of order"),
    ([], [(0, bytes([5, 0, 4, 0]))], "removed counters 5 to 4 are out of order"),
    ([], [(0, bytes([5, 0, 5, 0])), (0, bytes([6, 0, 6, 0]))], "6 to 6 are out of order"),
    ([(4, 9)], [(0, bytes([5, 0, 5, 0]))], "removed counters 5 to 5 are out of order"),
    ([(1, 2**63)], [], "removed counters 1 to 9223372036854775808 are out of order"),
]


@pytest.mark.parametrize(("listed", "pieces", "reason"), BROKEN)
def test_what_is_no_set_of_counters_is_damage(
    listed: list[tuple[int, int]], pieces: Pieces, reason: str
) -> None:
    with pytest.raises(DamageError, match=reason):
        unpack(listed, pieces)


# The bound.


@pytest.mark.parametrize("base", [1, CHUNK_COUNTERS - 7, COUNTER_MAX - 2 * CHUNK_COUNTERS])
@pytest.mark.parametrize("step", [1, 2, 3, 700])
def test_no_order_of_removals_needs_more_than_was_held(base: int, step: int) -> None:
    """Live are every so many counters; some order of removals is the worst."""
    random = Random(step)
    count = 6000 if step < 700 else 150
    live = list(range(base, base + count * step, step))
    for order in ("alternating", "random", "rising"):
        removed = RangeSet()
        for before, after in pairwise(live):
            if after > before + 1:
                removed.add(before + 1, after - 1)
        floor, following = base - 1, live[-1] + 1
        held = json_bytes_max(removed, len(live), floor, following)
        turns = live[1::2] + live[::2] if order == "alternating" else live[:]
        if order == "random":
            random.shuffle(turns)
        for at, counter in enumerate(turns):
            removed.add(counter, counter)
            floor = removed.pop_through(floor)
            if at % 97 == 0:
                assert packed_bytes(removed) <= held + 8
                left = json_bytes_max(removed, len(live) - at - 1, floor, following)
                assert left <= held
    assert json_bytes_max(RangeSet(), 0, 5, 6) == 0


def test_a_dense_queue_needs_one_bit_for_a_record_and_a_hole_needs_nothing() -> None:
    count = 1 << 20
    assert (
        json_bytes_max(RangeSet(), count, 0, count + 1)
        < (count + CHUNK_COUNTERS) / 8 * 4 / 3 + 4000
    )
    hole = RangeSet([(2, 10**12)])
    assert json_bytes_max(hole, 2, 0, 10**12 + 2) < 500


def test_what_is_held_is_enough_for_everything_that_commits_may_add() -> None:
    """The estimate of each draft is checked against what a checkpoint may need after it."""
    random = Random(5)
    files = SimFiles(capacity=64 << 20)
    options = LogOptions(fill_bytes=512, reserve_bytes=512, segment_bytes=64 << 10)
    with open_log("/s", files=files, clock=ManualClock(), options=options) as log:
        for _ in range(500):
            draft = log.draft()
            name = random.choice("abcdef")
            queue = log.queue(name)
            live = [c for c in range(1, queue.genesis.next_counter) if queue.is_live(c)]
            choice = random.random()
            if choice < 0.4 or not live:
                skip = random.choice([0, 0, 1, 3])
                first = queue.genesis.next_counter + skip
                draft.put(queue, [b"x" * 200] * random.randint(1, 60), first=first)
            elif choice < 0.7:
                for counter in random.sample(live, min(len(live), 20)):
                    weight = records_weight(200, 1)
                    draft.remove(queue, [(counter, counter, weight)], reason=ACKED)
            elif choice < 0.8:
                draft.lease(queue, random.sample(live, 1), [2**32 - 1], 2**62)
            elif choice < 0.9:
                gone = [c for c in range(1, queue.genesis.next_counter) if not queue.is_live(c)]
                for counter in random.sample(gone, min(len(gone), 1)):
                    draft.move(queue, [counter], [1], [b"y" * 200])
            else:
                draft.set_states([(f"\x01{random.randrange(40)}", b"v")])
                draft.configure(queue, b"\x02" * random.randrange(90))
            assert_enough_is_held(log, draft)
            if random.random() < 0.1:
                log.compact(max_bytes=4000)


def assert_enough_is_held(log: Log, draft: Draft) -> None:
    before = upkeep.needed_bytes(log, 1) - 1
    segments = len(log.state.segments)
    log.commit(draft, sync=False)
    after = upkeep.needed_bytes(log)
    # A rotation adds a segment, and writes checkpoints that hold room for that.
    if len(log.state.segments) <= segments:
        assert after <= before + draft.growth
    assert upkeep.checkpoint_bytes(log) <= after


# Cost.


def test_one_more_removal_packs_only_what_it_changed() -> None:
    removed = RangeSet()
    for chunk in range(6):
        for counter in range(1, 9000, 2):
            removed.add(chunk * CHUNK_COUNTERS + counter, chunk * CHUNK_COUNTERS + counter)
    pack(removed)
    before = dict(removed.packed)
    assert len(before) == 6
    removed.add(2 * CHUNK_COUNTERS + 20_001, 2 * CHUNK_COUNTERS + 20_001)
    assert len(removed.packed) == 5
    _, pieces = pack(removed)
    assert [chunk for chunk, piece in pieces if piece is not before[chunk]] == [2]
