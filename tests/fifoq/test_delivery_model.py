"""Long random lives of queues against the model of what they promise.

Delays, times to live, lanes and their shares, ordering keys, ids of puts, leases and what ends
them, dead letters and what becomes of them, transactions, cursors, removals, cancelled callers,
clocks that are set, full disks, closed stores, dead processes and lost power. A difference says the
seed of its life.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from actors.testing import VirtualTimeLoop
from fifoq.options import Durability
from tests.fifoq.support import set_time
from tests.support.delivery_life import LEVELS, WALL
from tests.support.delivery_life_more import FullLife

STEPS = 60
RUNS = 84
"""Of each kind at each level; the long programme has the many."""
DEEP_RUNS = 2500
KINDS = ("plain", "strict", "keyed", "lanes")


def assert_like_the_model(seed: int, kind: str, level: Durability, steps: int = STEPS) -> None:
    life = FullLife(seed, kind, level)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            runner.run(life.live(steps))
        except BaseException as error:
            life_of = f"{seed}, {kind!r}, {level!r}"
            error.add_note(f"assert_like_the_model({life_of}): {' '.join(life.log[-30:])}")
            raise


class Certain:
    """Chance that always says the same: a backoff is as long as it can be."""

    @staticmethod
    def random() -> float:
        return 1.0


@pytest.fixture(autouse=True)
def _own_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    set_time(monkeypatch, WALL.read)
    monkeypatch.setattr("fifoq.held.random", Certain)
    # A life is short and leaves all of itself behind: looking for garbage within is in vain.
    before = gc.get_threshold()
    gc.set_threshold(20_000)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_life_of_a_queue_is_the_one_of_the_model(kind: str, level: Durability) -> None:
    for seed in range(RUNS):
        assert_like_the_model(seed, kind, level)


@pytest.mark.deep
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_lives_are_those_of_the_model(kind: str, level: Durability) -> None:
    for seed in range(RUNS, RUNS + DEEP_RUNS):
        assert_like_the_model(seed, kind, level)
