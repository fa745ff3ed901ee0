"""Traffic: producers and consumers of many queues in one process, who say all they do.

What they say is sent before anything they did can reach the disk: the buffer of events is written
out ahead of every `pwrite`. So whatever a crash leaves behind was announced. A call that changes
memory alone may be lost with its process, and nobody needs to know of it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final, Literal, TypeVar
from zlib import crc32

import msgspec

import fifoq
from fifoq import Delivery, Queue, QueueClosed, QueueEmpty, Store, uring
from fifoq.options import LEVELS
from fifoq.ring_writer import WRITER_VARIABLE
from fifoq.uring import Ring
from store.files import Handle
from store.osfiles import OsFiles

R = TypeVar("R")

SEGMENT_BYTES: Final = 64 << 10
DEPTH_MAX: Final = 60
EVENTS_MAX: Final = 512
SIZES: Final = (0, 0, 20, 90, 400, 3000)
PAUSE_TURNS_MAX: Final = 12
WAIT_SECONDS: Final = 0.5
DROPPED_SECONDS: Final = 0.25
"""Leases that nobody ends."""
HELD_SECONDS: Final = 3600.0
"""Leases that end before a process does, also where one who acks is made to leave."""

QUEUES: Final[dict[str, tuple[fifoq.options.Durability, bool]]] = {
    "orders": ("sync", True),
    "calm": ("sync", False),
    "mail": ("os", True),
    "post": ("os", False),
    "fast": ("memory", True),
    "quick": ("memory", False),
}
"""Each queue's level, and whether its callers are cancelled now and then."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`operations` ends the traffic by a clean close; 0 lets it go on until it is killed."""

    path: str
    seed: int
    operations: int = 0
    first_item: int = 1
    mutant: Literal["", "datasync"] = ""
    loop: Literal["asyncio", "uvloop"] = "asyncio"
    writer: Literal["io_uring", "thread"] = "thread"


Event = list[Any]
"""("c", number, kind, queue, level, items, count), ("r", number, items, first counter),
("l" or "e", number), ("f", reason), ("d", {queue: [(counter, item)]}), ("w",) when a ring writes,
("z",) at a clean end."""


class Teller:
    """Sends events; from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._events: list[Event] = []
        self._lock = threading.RLock()
        self._encode = msgspec.msgpack.Encoder().encode

    def say(self, *event: object) -> None:
        # Without the lock an event could go into the list that another thread has just sent.
        with self._lock:
            self._events.append(list(event))
            if len(self._events) >= EVENTS_MAX:
                self.send()

    def send(self) -> None:
        with self._lock:
            events, self._events = self._events, []
            if not events:
                return
            encoded = self._encode(events)
            data = memoryview(len(encoded).to_bytes(4, "big") + encoded)
            while data:
                data = data[os.write(self._descriptor, data) :]


def tell_first(teller: Teller, mutant: str) -> None:
    """Have every write of this process preceded by what led to it; the mutant syncs nothing."""
    pwrite, write = OsFiles.pwrite, Ring.write

    def telling_pwrite(
        files: OsFiles, handle: Handle, data: bytes | bytearray | memoryview, offset: int
    ) -> int:
        teller.send()
        return pwrite(files, handle, data, offset)

    told: list[None] = []

    def telling_write(ring: Ring, *request: int, durably: bool, at_once: bool) -> None:
        if not told:
            told.append(None)
            teller.say("w")
        teller.send()
        write(ring, *request, durably=durably, at_once=at_once)

    OsFiles.pwrite = telling_pwrite  # type: ignore[method-assign, assignment]
    Ring.write = telling_write  # type: ignore[method-assign, assignment]
    if mutant == "datasync":
        OsFiles.datasync = lambda *_: None  # type: ignore[method-assign]
        uring._RWF_DSYNC = 0  # type: ignore[misc]


def payload_of(item: int, random: Random) -> bytes:
    body = item.to_bytes(8, "big") + random.randbytes(random.choice(SIZES))
    return body + crc32(body).to_bytes(4, "big")


def item_of(payload: bytes) -> int:
    """The item's number. ValueError if a byte of it was altered."""
    if len(payload) < 12 or crc32(payload[:-4]) != int.from_bytes(payload[-4:], "big"):
        raise ValueError("altered: the bytes of a record are not those that were put")
    return int.from_bytes(payload[:8], "big")


class Traffic:
    """The tasks of one process on one store."""

    def __init__(self, job: Job, say: Callable[..., None]) -> None:
        self._job = job
        self._say = say
        self._random = Random(job.seed)
        self._next_item = job.first_item
        self._number = 0

    async def run(self, store: Store) -> None:
        queues = {
            name: await store.queue(name, durability=level, maxsize=DEPTH_MAX, max_retries=None)
            for name, (level, _) in QUEUES.items()
        }
        found = {
            name: [(r.key.counter, item_of(r.item)) async for r in queue.browse()]
            for name, queue in queues.items()
        }
        for name, queue in queues.items():
            assert len(queue) == len(found[name]), f"{name} says that it holds {len(queue)}"
        self._say("d", found)
        roles = (self._produce, self._produce, self._consume, self._consume)
        tasks = [asyncio.ensure_future(role(queue)) for queue in queues.values() for role in roles]
        tasks.append(asyncio.ensure_future(self._flush(queues["quick"])))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # At the end of the job, or because one of them failed.
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _goes_on(self) -> bool:
        return not self._job.operations or self._number < self._job.operations

    # Roles.

    async def _produce(self, queue: Queue[bytes]) -> None:
        while self._goes_on():
            await self._rest()
            choice = self._random.random()
            try:
                if choice < 0.70:
                    await self._put(queue)
                elif choice < 0.85:
                    await self._put_many(queue)
                else:
                    self._put_nowait(queue)
            except QueueClosed:
                return

    async def _consume(self, queue: Queue[bytes]) -> None:
        steps: tuple[tuple[Callable[[Queue[bytes]], Awaitable[object]], float], ...] = (
            (self._take, 0.5),
            (self._take_many, 0.2),
            (self._take_nowait, 0.1),
            (self._lease, 0.2),
        )
        actions, weights = zip(*steps, strict=True)
        while self._goes_on():
            await self._rest()
            (action,) = self._random.choices(actions, weights)
            await action(queue)

    async def _flush(self, queue: Queue[bytes]) -> None:
        while self._goes_on():
            number = self._call("flush", queue, 2)
            await queue.flush()
            self._say("r", number, (), 0)
            # In between others commit at their own levels.
            await asyncio.sleep(0.005)

    async def _rest(self) -> None:
        if self._random.random() < 0.2:
            await asyncio.sleep(0)

    # Calls.

    async def _put(self, queue: Queue[bytes]) -> None:
        level = self._random.choice(list(LEVELS)) if self._random.random() < 0.1 else None
        (item,) = items = self._items(1)
        number = self._call("put", queue, LEVELS[level or queue.durability], items)

        async def put() -> None:
            key = await queue.put(self._payload(item), durability=level)
            self._say("r", number, (), key.counter)

        await self._perhaps(queue, number, put())

    async def _put_many(self, queue: Queue[bytes]) -> None:
        items = self._items(self._random.randint(2, 9))
        number = self._call("put", queue, LEVELS[queue.durability], items)
        payloads = [self._payload(item) for item in items]

        async def put_many() -> None:
            keys = await queue.put_many(payloads)
            self._say("r", number, (), keys[0].counter)

        await self._perhaps(queue, number, put_many())

    def _put_nowait(self, queue: Queue[bytes]) -> None:
        (item,) = items = self._items(1)
        number = self._call("put", queue, 0, items)
        try:
            key = queue.put_nowait(self._payload(item))
        except fifoq.QueueFull:
            self._say("n", number)
        else:
            self._say("r", number, (), key.counter)

    async def _take(self, queue: Queue[bytes]) -> None:
        number = self._call("take", queue, LEVELS[queue.durability])
        timeout = self._random.choice((WAIT_SECONDS, 0.02)) if self._goes_on() else 0.02

        async def take() -> None:
            taken = await queue.take(timeout=timeout)
            self._say("r", number, (item_of(taken),), 0)

        await self._perhaps(queue, number, take())

    async def _take_many(self, queue: Queue[bytes]) -> None:
        count = self._random.randint(2, 12)
        number = self._call("take", queue, LEVELS[queue.durability], (), count)

        async def take_many() -> None:
            async with asyncio.timeout(WAIT_SECONDS):
                taken = await queue.take_many(count)
            self._say("r", number, [item_of(payload) for payload in taken], 0)

        await self._perhaps(queue, number, take_many())

    async def _take_nowait(self, queue: Queue[bytes]) -> None:
        number = self._call("take", queue, 0)
        try:
            taken = queue.take_nowait()
        except QueueEmpty:
            self._say("e", number)
        else:
            self._say("r", number, (item_of(taken),), 0)

    async def _lease(self, queue: Queue[bytes]) -> None:
        number = self._call("lease", queue, 0)
        dropped = self._random.random() < 0.05
        seconds = DROPPED_SECONDS if dropped else HELD_SECONDS
        leasing = queue.lease(seconds=seconds, timeout=WAIT_SECONDS)

        async def lease() -> Delivery[bytes]:
            delivery = await leasing
            items = (item_of(delivery.item),)
            self._say("r", number, items, 0)
            if dropped:
                self._say("r", self._call("drop", queue, 0, items), (), 0)
            return delivery

        delivery = await self._perhaps(queue, number, lease())
        if delivery is not None and not dropped:
            await self._end_lease(queue, delivery)

    async def _end_lease(self, queue: Queue[bytes], delivery: Delivery[bytes]) -> None:
        items = (item_of(delivery.item),)
        for _ in range(self._random.randint(0, 3)):
            await asyncio.sleep(0)
        if self._random.random() < 0.3:
            number = self._call("nack", queue, 0, items)
            delivery.nack(delay=0)
            self._say("r", number, (), 0)
            return
        number = self._call("ack", queue, LEVELS[queue.durability], items)

        async def ack() -> None:
            await delivery.ack()
            self._say("r", number, (), 0)

        await self._perhaps(queue, number, ack())

    async def _perhaps(
        self, queue: Queue[bytes], number: int, call: Coroutine[Any, Any, R]
    ) -> R | None:
        """Make the call, or make it leave after some turns; None if it left or waited too long.

        A call tells its outcome itself, in the step in which it ends. Were it told by whoever waits
        for the call, he could be made to leave in between, and what was taken would be untold.
        """
        try:
            if not QUEUES[queue.name][1] or self._random.random() > 0.15:
                return await call
            task = asyncio.ensure_future(call)
            try:
                for _ in range(self._random.randint(0, PAUSE_TURNS_MAX)):
                    if not task.done():
                        await asyncio.sleep(0)
            finally:
                task.cancel()
                if not task.done():
                    await asyncio.wait([task])
            if not task.cancelled():
                return task.result()
        except TimeoutError:
            # It may have left while its removal was under way, as if it had been cancelled.
            pass
        self._say("l", number)
        return None

    def _call(
        self,
        kind: str,
        queue: Queue[bytes],
        level: int,
        items: tuple[int, ...] = (),
        count: int = 1,
    ) -> int:
        self._number += 1
        self._say("c", self._number, kind, queue.name, level, items, count)
        return self._number

    def _items(self, count: int) -> tuple[int, ...]:
        first, self._next_item = self._next_item, self._next_item + count
        return tuple(range(first, first + count))

    def _payload(self, item: int) -> bytes:
        return payload_of(item, self._random)


async def _main(job: Job, teller: Teller) -> None:
    traffic = Traffic(job, teller.say)
    tell_first(teller, job.mutant)
    async with fifoq.open_store(job.path, segment_bytes=SEGMENT_BYTES) as store:
        await traffic.run(store)


def run(job: Job, descriptor: int) -> None:
    """Do the job in this process; whatever is raised is an event."""
    teller = Teller(descriptor)
    os.environ[WRITER_VARIABLE] = job.writer
    try:
        if job.loop == "uvloop":
            import uvloop

            uvloop.run(_main(job, teller))
        else:
            asyncio.run(_main(job, teller))
        teller.say("z")
    except BaseException as error:
        text = "".join(traceback.format_exception(error)[-12:])
        teller.say("f", f"{type(error).__name__}: {text}")
    teller.send()
