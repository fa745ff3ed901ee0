"""Random lives of two queues between which records move: each record is in one place, always.

Takes, puts, transactions, rejects and replays run side by side; callers leave at any step, blocks
raise, the disk is full for a while, and now and then the process dies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import pytest

from actors.testing import settle
from fifoq import Delivery, FifoqError, Queue, Store
from fifoq.options import Durability
from fifoq.testing.crashes import after_process_crash
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import SmallDisk

pytestmark = pytest.mark.anyio

STEPS = 40
SEEDS = 12
DEEP_SEEDS = 500
NAMES = ("one", "two")
LEVELS: Final[tuple[Durability, ...]] = ("memory", "os", "sync")


class NoLuck(Exception):
    """What a block raises."""


class Life:
    """One store, what callers were told of it, and what may be in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SmallDisk()
        self.disk.files = SimFiles(capacity=16 << 20)
        self.full = False
        self.number = 0
        self.sure: set[bytes] = set()
        """Records that must be somewhere."""
        self.unsure: set[bytes] = set()
        """Records that may be somewhere: their put or take was not confirmed."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.store: Store
        self.queues: dict[str, Queue[bytes]] = {}

    async def open(self) -> None:
        self.store = await self.disk.open_store(segment_records=40)
        for name in NAMES:
            self.queues[name] = await self.store.queue(
                name, durability=self.level, max_retries=2, retry_backoff=0
            )

    @property
    def level(self) -> Durability:
        return self.random.choice(LEVELS)

    def any_queue(self) -> Queue[bytes]:
        return self.queues[self.random.choice(NAMES)]

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.append(asyncio.ensure_future(self._run(work)))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (FifoqError, NoLuck, TimeoutError):
            pass

    # What callers do.

    async def put(self) -> None:
        size = self.random.choice((1, 1, 60_000))
        self.number += 1
        item = b"%d " % self.number * size
        self.unsure.add(item)
        await self.any_queue().put(item)
        self.unsure.discard(item)
        self.sure.add(item)

    async def take(self) -> None:
        item = await self.any_queue().take(timeout=1)
        # Nobody runs between the take and this.
        self.sure.discard(item)
        self.unsure.discard(item)

    async def move(self) -> None:
        source, target = self.any_queue(), self.any_queue()
        async with self.store.transaction() as tx:
            for _ in range(self.random.randint(1, 3)):
                delivery = await tx.lease(source, timeout=1)
                tx.put(target, delivery.item)
                tx.ack(delivery)
            if self.random.random() < 0.2:
                raise NoLuck

    async def fail(self) -> None:
        delivery: Delivery[bytes] = await self.any_queue().lease(seconds=2, timeout=1)
        end = self.random.randrange(4)
        if end == 0:
            delivery.nack()
        elif end == 1:
            await delivery.reject("bad")
        elif end == 2:
            async with self.store.transaction() as tx:
                tx.reject(delivery, "worse")
                if self.random.random() < 0.3:
                    raise NoLuck

    async def replay(self) -> None:
        letters = await self.store.dead_letters(self.random.choice(NAMES))
        listed = [letter.key.counter for letter in await letters.list(count=5)]
        if listed:
            chosen = self.random.sample(listed, self.random.randint(1, len(listed)))
            await letters.replay(*chosen)

    # What happens to them.

    def turn_disk(self) -> None:
        (self.disk.empty if self.full else self.disk.fill)()
        self.full = not self.full

    async def step(self) -> None:
        random = self.random
        works = (self.put, self.put, self.put, self.take, self.move, self.move, self.fail)
        for _ in range(random.randint(1, 4)):
            self.start(random.choice((*works, self.replay)))
        if random.random() < 0.5:
            self.disk.runner.hold()
            for _ in range(random.randint(0, 6)):
                await asyncio.sleep(0)
                if random.random() < 0.4:
                    self.disk.runner.step()
        for task in random.sample(self.tasks, len(self.tasks) // 3):
            task.cancel()
        if random.random() < 0.15:
            self.turn_disk()
        for _ in range(random.randint(0, 4)):
            await asyncio.sleep(0)
        self.disk.runner.let_go()
        if random.random() < 0.3:
            await asyncio.sleep(random.choice((0.1, 3)))

    async def rest(self) -> None:
        """Let everybody come to an end."""
        if self.full:
            self.turn_disk()
        self.disk.runner.let_go()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        await asyncio.sleep(5)
        await settle()
        await self.store.flush()

    async def check(self, store: Store) -> None:
        """Every record is in one place."""
        found: Counter[bytes] = Counter()
        for name in store.queues():
            queue = await store.queue(name)
            items = [record.item async for record in queue.browse()]
            assert len(queue) == len(items), name
            found.update(items)
        assert [item[:9] for item, count in found.items() if count > 1] == []
        there = set(found)
        assert self.sure <= there
        assert there <= self.sure | self.unsure


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_each_record_is_in_one_place(seed: int) -> None:
    await assert_each_is_in_one_place(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(SEEDS, DEEP_SEEDS))
async def test_each_record_of_many_lives_is_in_one_place(seed: int) -> None:
    await assert_each_is_in_one_place(seed)


async def assert_each_is_in_one_place(seed: int) -> None:
    life = Life(seed)
    await life.open()
    for number in range(STEPS):
        await life.step()
        if number % 10 == 9:
            await life.rest()
            await life.check(life.store)
            twin = SmallDisk()
            twin.files = after_process_crash(life.disk.files)
            async with twin.open_store() as again:
                await life.check(again)
    await life.rest()
    await life.store.close()
    async with life.disk.open_store() as store:
        await life.check(store)
