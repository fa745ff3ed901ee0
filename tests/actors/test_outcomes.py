"""By chance: whatever fails, leaves or stops, every message has exactly one outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from actors import (
    Actor,
    ActorError,
    ActorSystem,
    Batch,
    BatchOptions,
    Context,
    MailboxOptions,
    Overflow,
    Strategy,
    Supervision,
)

pytestmark = pytest.mark.anyio

OVERFLOWS: tuple[Overflow, ...] = ("block", "fail", "drop-oldest", "drop-newest")
STRATEGIES: tuple[Strategy, ...] = ("restart", "resume", "stop")
MESSAGES = 60


class Chance(Actor[int]):
    """Handles at its own pace, and fails at times."""

    def __init__(self, random: Random, seen: Counter[int]) -> None:
        self.random, self.seen = random, seen

    async def receive(self, message: int, ctx: Context[int]) -> None:
        self.seen[message] += 1
        await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.2)))
        if self.random.random() < 0.1:
            raise ValueError(message)
        ctx.reply(message)


class ChanceBatches(Chance):
    """The same in batches."""

    async def on_batch(self, batch: Batch[int], ctx: Context[int]) -> None:
        self.seen.update(batch)
        await asyncio.sleep(self.random.choice((0, 0.01, 0.2)))
        if self.random.random() < 0.1:
            raise ValueError(len(batch))
        for index, message in enumerate(batch):
            batch.reply(index, message)


@pytest.mark.parametrize("seed", range(60))
async def test_every_message_has_one_outcome_and_every_count_agrees(seed: int) -> None:
    random = Random(seed)
    kind = random.choice((Chance, ChanceBatches))
    batch = BatchOptions(count_max=random.randint(1, 8), linger_seconds=random.choice((0, 0.05)))
    options = MailboxOptions(
        size_max=random.randint(1, 20), overflow=random.choice(OVERFLOWS), batch=batch
    )
    rules = Supervision(strategy=random.choice(STRATEGIES), max_restarts=1000, within_seconds=1)
    seen: Counter[int] = Counter()

    async def send(message: int) -> str:
        await asyncio.sleep(random.random() * 2)
        try:
            if message % 2:
                await ref.tell(message)
                return "told"
            timeout = random.choice((0.05, 10))
            assert await ref.ask(message, timeout=timeout) == message
            return "replied"
        except (ActorError, ValueError) as error:
            return type(error).__name__

    system = await ActorSystem(seed=seed).start()
    ref = await system.spawn(kind, random, seen, mailbox=options, supervision=rules)
    senders = [asyncio.create_task(send(message)) for message in range(MESSAGES)]
    for sender in random.sample(senders, 5):
        asyncio.get_running_loop().call_later(random.random() * 2, sender.cancel)
    await asyncio.sleep(random.random() * 3)
    left = await ref.stop(timeout=random.choice((0, 0.1, 5)))
    outcomes = await asyncio.gather(*senders, return_exceptions=True)
    await system.stop()

    stats = ref.stats()
    assert max(seen.values(), default=0) <= 1, "no message is handled twice"
    assert (stats.depth, stats.undelivered) == (0, left)
    for message, outcome in enumerate(outcomes):
        assert isinstance(outcome, str | asyncio.CancelledError)
        if outcome == "replied":
            assert seen[message] == 1
        if outcome == "MailboxFull":
            assert seen[message] == 0
    told = sum(outcome == "told" for outcome in outcomes)
    handled_told = sum(count for message, count in seen.items() if message % 2)
    assert handled_told <= told + sum(isinstance(o, BaseException) for o in outcomes)
    assert told <= handled_told + left + stats.dropped
