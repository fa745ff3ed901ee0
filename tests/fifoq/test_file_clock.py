"""When a write is sure to leave a file's time as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fifoq import file_clock
from fifoq.file_clock import FileClock

TICK = 4_000_000
FILE, OTHER = object(), object()


class Clocks:
    """The time, and the time of the last tick, as the test says."""

    def __init__(self) -> None:
        self.now = self.tick = 0

    def show(self, number: int, since: int, late: int = 0) -> None:
        """It is so long since that tick, which came late."""
        self.tick = number * TICK
        self.now = self.tick + late + since

    def clock_gettime_ns(self, clock: int) -> int:
        return self.tick

    def time_ns(self) -> int:
        return self.now


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(file_clock, "time", clocks)
    monkeypatch.setattr(file_clock, "TICK_NS", TICK)
    return clocks


def learnt(clocks: Clocks, *, late: int = 0) -> FileClock:
    """One that has seen ticks to their ends; the last was number 20."""
    clock = FileClock()
    for number in range(1, 21):
        for since in range(0, TICK, TICK // 20):
            clocks.show(number, since, late)
            clock.stands_still(FILE)
    return clock


@pytest.mark.parametrize("late", [0, 1_000_000, 3_900_000])
def test_it_stands_still_behind_a_write_of_the_same_tick(clocks: Clocks, late: int) -> None:
    """The clock shows a tick late: by a millisecond here, and a quarter of all writes was slow."""
    clock = learnt(clocks, late=late)
    answers = []
    for since in (0, 1, TICK // 2, TICK * 13 // 16, TICK * 15 // 16, TICK - 1):
        clocks.show(21, since, late)
        answers.append(clock.stands_still(FILE))
    assert answers == [False, True, True, True, False, False]


def test_a_new_tick_is_a_new_time(clocks: Clocks) -> None:
    clock = learnt(clocks)
    for number in range(21, 30):
        clocks.show(number, 5)
        assert not clock.stands_still(FILE)


def test_another_file_has_another_time(clocks: Clocks) -> None:
    clock = learnt(clocks)
    clocks.show(21, 5)
    clock.stands_still(FILE)
    assert not clock.stands_still(OTHER)
    assert clock.stands_still(OTHER)
    assert not clock.stands_still(FILE)


def test_who_never_saw_a_tick_grow_old_trusts_none(clocks: Clocks) -> None:
    """Writes in step with the ticks say nothing of when the next one comes."""
    clock = FileClock()
    for number in range(1, 100):
        for since in (TICK * 3 // 4, TICK * 3 // 4 + 1000):
            clocks.show(number, since)
            assert not clock.stands_still(FILE)
    clocks.show(100, TICK * 3 // 4)
    clock.stands_still(FILE)
    clocks.show(100, TICK - 1)
    assert not clock.stands_still(FILE)


def test_whoever_looks_between_writes_sees_how_old_ticks_become(clocks: Clocks) -> None:
    """One write a tick says nothing of its end."""
    for looks, still in ((False, False), (True, True)):
        clock = FileClock()
        for number in range(1, 21):
            clocks.show(number, 0)
            clock.stands_still(FILE)
            clocks.show(number, TICK - 1)
            if looks:
                clock.observe()
        clocks.show(21, 0)
        clock.stands_still(FILE)
        clocks.show(21, TICK * 15 // 16 - file_clock.CLOSE_NS)
        assert clock.stands_still(FILE) is still


def test_who_is_interrupted_between_the_clocks_takes_a_tick_for_younger(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for older, the next one would be thought to come later than it does."""
    clock = learnt(clocks)

    def interrupted(now: Callable[[], int]) -> Callable[..., int]:
        def asked(*_: object) -> int:
            found = now()
            clocks.show(clocks.tick // TICK + 1, TICK - 1)
            return found

        return asked

    clocks.show(21, 0)
    with monkeypatch.context() as patch:
        patch.setattr(clocks, "time_ns", interrupted(lambda: clocks.now))
        patch.setattr(clocks, "clock_gettime_ns", interrupted(lambda: clocks.tick))
        clock.observe()
    clocks.show(30, 0)
    clock.stands_still(FILE)
    clocks.show(30, TICK - 1)
    assert not clock.stands_still(FILE)


def test_ticks_that_come_earlier_are_found_out(clocks: Clocks) -> None:
    clock = learnt(clocks, late=2_000_000)
    for number in range(21, 121):
        clocks.show(number, 0)
        clock.stands_still(FILE)
    clocks.show(121, 0)
    clock.stands_still(FILE)
    clocks.show(121, TICK - 1)
    assert not clock.stands_still(FILE)
