"""A supervised actor that fails at random handles every message once, by its own durable state."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import msgspec
import pytest

from actors import Supervision
from fifoq import Actor, ActorSystem, Context
from fifoq.durable.options import DurableMailbox
from fifoq.testing import Machine
from tests.rigs.actor_process import Fold
from tests.support.figures import record

FAILS = 0.2
SEED = 20251117
BATCH = 100
"""Messages that are told side by side, in order."""


class Number(msgspec.Struct, frozen=True, tag=True):
    """The one after the last."""

    number: int


class Copy(msgspec.Struct, frozen=True, tag=True):
    """What the copyist is told of each."""

    number: int


class BadLuck(Exception):
    """What the actor raises."""


class Failing(Actor[Number]):
    """Fails before, in the middle of or after what it does, and tells the copyist of the rest."""

    state: Fold

    def __init__(self, random: Random, failures: list[int]) -> None:
        self.random = random
        self.failures = failures

    async def receive(self, message: Number, ctx: Context[Number]) -> None:
        fails_at = self.random.randrange(3) if self.random.random() < FAILS else None
        self.fail_if(fails_at == 0, message)
        self.state.add(message.number)
        self.fail_if(fails_at == 1, message)
        ctx.tell("copyist", Copy(message.number))
        self.fail_if(fails_at == 2, message)

    def fail_if(self, fails: bool, message: Number) -> None:
        if fails:
            self.failures.append(message.number)
            raise BadLuck


class Copyist(Actor[Copy]):
    """Folds what it is told."""

    state: Fold

    def __init__(self, finished: asyncio.Event, last: int) -> None:
        self.finished = finished
        self.last = last

    async def receive(self, message: Copy, ctx: Context[Copy]) -> None:
        self.state.add(message.number)
        if message.number == self.last:
            self.finished.set()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(5_000, id="suite"),
        pytest.param(100_000, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(3600)]),
    ],
)
def test_none_is_lost_and_none_is_handled_twice(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("actors"), "disabled", True)
    failures: list[int] = []
    found: dict[str, Fold] = {}

    class Kept(Failing):
        async def on_stop(self, ctx: Context[Number]) -> None:
            found["failing"] = self.state

    class KeptCopyist(Copyist):
        async def on_stop(self, ctx: Context[Copy]) -> None:
            found["copyist"] = self.state

    async def main() -> None:
        finished = asyncio.Event()
        for_ever = Supervision(max_restarts=10 * count, backoff_seconds=0)
        async with ActorSystem("data", segment_bytes=1 << 20) as system:
            await system.spawn(KeptCopyist, finished, count, name="copyist", durable=True)
            ref = await system.spawn(
                Kept,
                Random(SEED),
                failures,
                name="failing",
                durable=True,
                mailbox=DurableMailbox(max_retries=None),
                supervision=for_ever,
            )
            for first in range(1, count + 1, BATCH):
                tells = (ref.tell(Number(first + index)) for index in range(BATCH))
                await asyncio.gather(*tells)
            await finished.wait()

    Machine().run(main())
    expected = Fold()
    for number in range(1, count + 1):
        expected.add(number)
    assert found == {"failing": expected, "copyist": expected}
    assert 0.2 * count < len(failures) < 0.3 * count
    record("failing actor", messages=count, failures=len(failures), lost=0, twice=0, seed=SEED)
