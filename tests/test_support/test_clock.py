"""ManualClock: time moves only when told."""

from __future__ import annotations

import pytest

from store.files import Clock
from tests.support.clock import NANOSECONDS, ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock: Clock = ManualClock()
    assert (clock.monotonic(), clock.wall()) == (clock.monotonic(), clock.wall())


def test_advance_and_sleep_move_both_clocks() -> None:
    clock = ManualClock(wall=0)
    clock.advance(seconds=1.5)
    clock.sleep(2)
    assert clock.monotonic() == 3.5
    assert clock.wall() == 3.5 * NANOSECONDS
    assert clock.naps == [2]


def test_the_wall_clock_can_be_set_back_and_the_monotonic_one_not() -> None:
    clock = ManualClock()
    clock.advance(seconds=5)
    clock.set_wall(7)
    assert (clock.wall(), clock.monotonic()) == (7, 5.0)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(seconds=-1)


def test_tokens_follow_the_seed() -> None:
    first, again, other = ManualClock(seed=1), ManualClock(seed=1), ManualClock(seed=2)
    tokens = [first.token(8), first.token(8)]
    assert tokens == [again.token(8), again.token(8)]
    assert tokens[0] != tokens[1]
    assert tokens[0] != other.token(8)
