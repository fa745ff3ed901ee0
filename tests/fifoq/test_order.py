"""Nobody gets a record while an older one lies there: random lives of one queue, checked exactly.

Callers of every kind come and leave at any moment while commits are slow, records are on disk only,
levels change and the disk is full at times. The moment in which a record leaves its place, and the
one in which it is back, are seen in the queue itself, so that order is judged in that very step
and nothing has to be forgiven because of callers that overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from typing import Any, Final

import pytest

import fifoq
from actors.testing import VirtualTimeLoop
from fifoq import DiskFull, Queue, QueueEmpty, QueueFull
from fifoq.runs import Returned
from tests.fifoq.support import PATH, SmallDisk
from tests.support.figures import record
from tests.support.runners import SlowRunner

SEED: Final = int(os.environ.get("FIFOQ_SEED", "20261117"))
LIVES: Final = int(os.environ.get("FIFOQ_ORDER_LIVES", "45"))
CALLERS: Final = 6
CALLS: Final = 12
LEVELS: Final = ("memory", "memory", "os", "sync")
JOB_SECONDS: Final = (0.0, 0.0, 0.0001, 0.001, 0.01)
PAUSE_SECONDS: Final = (0.0001, 0.001, 0.01)
DEPTH_MAX: Final = 24


class Order:
    """What is at its place, what is out, and what is on its way back."""

    def __init__(self) -> None:
        self.frontier = 1
        """Every counter below was at the head once, or belongs to no record."""
        self.back: set[int] = set()
        self.out: set[int] = set()
        self.returning: set[int] = set()
        self.skipped: set[int] = set()
        self.holders: dict[int, asyncio.Task[Any] | None] = {}
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def claimed(self, counter: int) -> None:
        """The record leaves its place, in the step of the task that runs."""
        self.counts["claims"] += 1
        self.holders[counter] = asyncio.current_task()
        self.out.add(counter)
        older = min(self.back | self.returning, default=counter)
        if older < counter:
            self.wrong.append(f"{counter} was handed out while {older} was back or coming back")
        if counter in self.back:
            self.back.remove(counter)
        elif counter < self.frontier:
            self.wrong.append(f"{counter} was handed out behind {self.frontier - 1}, or twice")
        else:
            self.skipped.update(range(self.frontier, counter))
            self.frontier = counter + 1

    def gave_back(self, counter: int) -> None:
        self.counts["back"] += 1
        self.holders.pop(counter, None)
        self.out.discard(counter)
        self.returning.discard(counter)
        self.back.add(counter)

    def reopened(self, gone: set[int]) -> None:
        self.back |= self.out - gone
        self.out.clear()
        self.returning.clear()

    def comes_back(self, counters: list[int]) -> None:
        """Whoever has these leaves, or gives them back: until they are back nobody may pass."""
        self.returning.update(counters)


class Life:
    """Callers on one queue until each has made its calls."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.order = Order()
        self.disk = SmallDisk()
        self.is_full = False
        self.puts: dict[int, bytes] = {}
        self.taken: list[tuple[list[int], list[bytes]]] = []
        self.gone: set[int] = set()
        self.queue: Queue[bytes]
        self.next_item = 0
        self.restores: list[asyncio.Task[None]] = []
        self.fills_up = self.random.random() < 0.25

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See every record that leaves its place or is back there."""
        claim_head, give_back, order = Queue.claim_head, Queue.give_back, self.order

        def claim(line: Queue[bytes]) -> Returned:
            found = claim_head(line)
            order.claimed(found.counter)
            return found

        def give(line: Queue[bytes], returned: Returned) -> None:
            give_back(line, returned)
            order.gave_back(returned.counter)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Queue, "claim_head", claim)
            patch.setattr(Queue, "give_back", give)
            # Small, so that records that are only on disk are as common as the others.
            patch.setattr("fifoq.line.CACHE_BYTES_MAX", self.random.choice((300, 2000, 1 << 20)))
            patch.setattr("fifoq.jobs.READ_RECORDS", self.random.choice((1, 3, 100)))
            # What is said of a full disk holds its error, and that the whole life.
            patch.setattr(logging.getLogger("store"), "disabled", True)
            yield

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        def runner(*arguments: Any) -> SlowRunner:
            made = SlowRunner(*arguments)
            made.delay = lambda: self.random.choice(JOB_SECONDS)
            return made

        random = self.random
        self.queue = await fifoq.open(
            PATH,
            files=self.disk.files,
            runner=runner,
            durability=random.choice(LEVELS),
            maxsize=DEPTH_MAX,
            max_retries=None,
            overflow=random.choice(("block", "block", "drop-oldest")),
            segment_records=20,
        )
        # A lease ends with the store, and everything is at its place again.
        self.order.reopened(self.gone)
        queue, order = self.queue, self.order

        class Watched(deque[bytes]):
            def popleft(self) -> bytes:
                # Whoever takes in an open window has moved the head on before, and notes it later.
                if queue.head > queue.taken_from:
                    order.claimed(queue.head - 1)
                return super().popleft()

        queue.ready = Watched(queue.ready)
        try:
            yield
        finally:
            self._fill(full=False)
            self.order.counts["refused"] += queue.stats().errors
            await queue.close()

    async def live(self) -> None:
        for _ in range(2):
            async with self.opened():
                callers = [asyncio.ensure_future(self._caller()) for _ in range(CALLERS)]
                for outcome in await asyncio.gather(*callers, return_exceptions=True):
                    if outcome is not None:
                        raise outcome
                self._fill(full=False)
                await asyncio.gather(*self.restores)
        async with self.opened():
            await self._drain()

    async def _caller(self) -> None:
        calls: tuple[tuple[Callable[[], Awaitable[None]], float], ...] = (
            (self._put, 5),
            (self._put_many, 2),
            (self._put_nowait, 2),
            (self._take, 4),
            (self._take_nowait, 2),
            (self._take_many, 2),
            (self._lease, 4),
            (self._mix, 3),
            (self._restore, 1),
            (self._flush, 1),
            (self._change, 0.3),
        )
        actions, weights = zip(*calls, strict=True)
        for action in self.random.choices(actions, weights, k=CALLS):
            await self._make(action)
            if self.random.random() < 0.4:
                await self._pause()

    async def _pause(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            await asyncio.sleep(0)
        if self.random.random() < 0.3:
            await asyncio.sleep(self.random.choice(PAUSE_SECONDS))

    async def _make(self, action: Callable[[], Awaitable[None]]) -> None:
        """Make a call in a task of its own, which may have to leave."""
        self.order.counts["calls"] += 1
        task = asyncio.ensure_future(self._call(action))
        if self.random.random() < 0.4:
            await self._pause()
            task.cancel()
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(self.random.choice((0.05, 0.2)), task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    async def _call(self, action: Callable[[], Awaitable[None]]) -> None:
        """What a call claimed and did not keep comes back."""
        try:
            await action()
        except (DiskFull, QueueFull):
            self._leave()
        except asyncio.CancelledError:
            self.order.counts["left"] += 1
            self._leave()
            raise

    def _claims(self) -> list[int]:
        """What this task has claimed since, and nobody has put back."""
        me, holders = asyncio.current_task(), self.order.holders
        mine = [counter for counter, holder in holders.items() if holder is me]
        for counter in mine:
            del holders[counter]
        return mine

    def _leave(self) -> None:
        self.order.comes_back(self._claims())

    def _items(self, count: int) -> list[bytes]:
        first, self.next_item = self.next_item, self.next_item + count
        # Only a large one does not fit into what a segment has of a disk that is full.
        sizes = (0, 30, 200, 50_000) if self.fills_up else (0, 30, 200)
        padding = b"." * self.random.choice(sizes)
        return [b"%d%s" % (number, padding) for number in range(first, first + count)]

    # Calls. What one claims and what it got are told in the step in which it ends.

    async def _put(self) -> None:
        (item,) = self._items(1)
        options: dict[str, Any] = {}
        if self.random.random() < 0.3:
            options["durability"] = self.random.choice(LEVELS)
        if self.random.random() < 0.1:
            options["headers"] = {"a": "b"}
        with self._dropping():
            level = options.get("durability", self.queue.durability)
            key = await self.queue.put(item, **options)
            self.puts[key.counter] = item
            if level != "memory" and not self.queue._state.genesis.next_counter > key.counter:
                self.order.wrong.append(f"{key.counter} was confirmed and is in no frame")

    async def _put_many(self) -> None:
        items = self._items(self.random.randint(1, 6))
        with self._dropping():
            for key, item in zip(await self.queue.put_many(items), items, strict=True):
                self.puts[key.counter] = item

    async def _put_nowait(self) -> None:
        with self._dropping():
            for item in self._items(self.random.randint(1, 6)):
                self.puts[self.queue.put_nowait(item).counter] = item

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """A put may drop the oldest for good, also one that then fails."""
        try:
            yield
        finally:
            self.gone.update(self._claims())

    async def _take(self) -> None:
        for _ in range(self.random.choice((1, 1, 4))):
            self._took([await self.queue.take()])

    async def _take_nowait(self) -> None:
        with suppress(QueueEmpty):
            for _ in range(self.random.randint(1, 5)):
                self._took([self.queue.take_nowait()])

    async def _take_many(self) -> None:
        self._took(await self.queue.take_many(self.random.randint(1, 8)))

    def _took(self, items: list[bytes]) -> None:
        claims = self._claims()
        self.gone.update(claims)
        self.taken.append((claims, items))

    async def _lease(self) -> None:
        random = self.random
        drops = random.random() < 0.2
        for _ in range(random.choice((1, 1, 4))):
            delivery = await self._leased(0.01 if drops else None)
            if drops:
                self.order.counts["dropped"] += 1
                continue
            await self._end_lease(delivery, delivery.key.counter)

    async def _leased(self, seconds: float | None = None) -> fifoq.Delivery[bytes]:
        delivery = await self.queue.lease(seconds=seconds)
        counter = delivery.key.counter
        claims = self._claims()
        if not claims:
            # Passed on in an open window, where nobody looks.
            self.order.claimed(counter)
            claims = self._claims()
        assert claims == [counter]
        return delivery

    async def _mix(self) -> None:
        """Lease, give back and take, if it can be without a turn of the loop in between."""
        held = []
        try:
            for _ in range(self.random.randint(2, 10)):
                choice = self.random.random()
                if choice < 0.3:
                    held.append(await self._leased())
                elif choice < 0.5 and held:
                    self._nack(held.pop(self.random.randrange(len(held))))
                elif choice < 0.6:
                    await self._put_nowait()
                else:
                    await self._take_nowait()
        finally:
            for delivery in held:
                self._nack(delivery)

    def _nack(self, delivery: fifoq.Delivery[bytes]) -> None:
        delivery.nack(delay=0)
        assert delivery.key.counter in self.order.back

    async def _end_lease(self, delivery: fifoq.Delivery[bytes], counter: int) -> None:
        try:
            if self.random.random() < 0.5:
                await self._pause()
        except asyncio.CancelledError:
            self._nack(delivery)
            raise
        if self.random.random() < 0.5:
            self._nack(delivery)
        else:
            self.gone.add(counter)
            self.taken.append(([counter], [delivery.item]))
            while True:
                # Once asked for it is done, sooner or later: whoever left asks again.
                with suppress(DiskFull):
                    await delivery.ack()
                    return

    async def _restore(self) -> None:
        """Take as the blocking API does, for somebody who has gone meanwhile."""
        records = await self.queue.take_records(self.random.randint(1, 3))
        counters = self._claims()
        assert counters == [returned.counter for returned in records]

        async def restore() -> None:
            self.order.comes_back(counters)
            # A full disk refuses to have them back, takers have them all the same.
            with suppress(DiskFull):
                await self.queue.restore(records)

        self.restores.append(asyncio.ensure_future(restore()))
        await asyncio.shield(self.restores[-1])

    async def _flush(self) -> None:
        if self.fills_up:
            self._fill(full=not self.is_full)
        await self.queue.flush()

    def _fill(self, *, full: bool) -> None:
        if full != self.is_full:
            (self.disk.fill if full else self.disk.empty)()
            self.is_full = full

    async def _change(self) -> None:
        self.queue.configure(durability=self.random.choice(LEVELS))

    async def _drain(self) -> None:
        while len(self.queue):
            if self.random.random() < 0.3:
                self._took(await self.queue.take_many(5))
            else:
                self._took([await self.queue.take()])

    # The end.

    def check(self) -> None:
        order = self.order
        assert order.wrong == []
        assert not order.back
        assert not order.returning
        assert not order.skipped & self.puts.keys()
        for counters, items in self.taken:
            known = {c: item for c, item in zip(counters, items, strict=True) if c in self.puts}
            assert known == {c: self.puts[c] for c in known}
        assert self.puts.keys() <= self.gone | {0}


def test_no_record_is_passed_by_a_later_one() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEED, SEED + LIVES):
        life = Life(seed)
        with life.watched(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(life.live())
                life.check()
            except Exception as error:
                error.add_note(f"seed {seed}: {life.order.wrong[:3]}")
                raise
        counts += life.order.counts
    record("order of records, exactly", seed=SEED, lives=LIVES, **counts)
    assert counts["left"] > LIVES
    assert counts["back"] > LIVES
