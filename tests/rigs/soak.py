"""Long work with queues that measures its own process: `python -m tests.rigs.soak WHAT PATH N`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

import fifoq
from fifoq import Delivery, Queue

MIB: Final = 1 << 20
SEGMENT_BYTES: Final = 1 * MIB
SAMPLE_SECONDS: Final = 0.25
DEPTH: Final = 2000
HELD_LEASES: Final = 50
BATCH: Final = 1000
PAYLOAD: Final = bytes(100)


class Sample(msgspec.Struct):
    taken: int
    memory_bytes: int
    disk_bytes: int
    descriptors: int
    threads: int


class Backlog(msgspec.Struct):
    records: int
    growth_bytes: int
    reopened_growth_bytes: int
    seconds: float


def memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(path: str) -> int:
    total = 0
    for entry in os.scandir(path):
        try:
            total += entry.stat().st_blocks * 512
        except FileNotFoundError:
            # It was reclaimed since the directory was listed.
            continue
    return total


class Steady:
    """Producers as fast as a bounded queue lets them, a slow consumer, leases that are held."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.taken = 0

    async def run(self, seconds: float) -> list[Sample]:
        samples = []
        async with fifoq.open_store(self._path, segment_bytes=SEGMENT_BYTES) as store:
            names: tuple[tuple[str, Any], ...] = (("a", "sync"), ("b", "os"), ("c", "memory"))
            tasks = []
            for name, level in names:
                queue = await store.queue(name, durability=level, maxsize=DEPTH, max_retries=None)
                for role in (self._produce, self._produce, self._consume, self._hold):
                    tasks.append(asyncio.ensure_future(role(queue)))
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                await asyncio.sleep(SAMPLE_SECONDS)
                samples.append(self._sample())
                failed = [task for task in tasks if task.done()]
                assert not failed, failed
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return samples

    def _sample(self) -> Sample:
        return Sample(
            self.taken,
            memory_bytes(),
            disk_bytes(self._path),
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
        )

    async def _produce(self, queue: Queue[bytes]) -> None:
        while True:
            await queue.put(PAYLOAD)
            await queue.put_many([PAYLOAD] * 10)
            await asyncio.sleep(0)

    async def _consume(self, queue: Queue[bytes]) -> None:
        while True:
            count = len(await queue.take_many(40))
            # Not before it is there: others count meanwhile.
            self.taken += count
            # Paced, as one who handles what it took; the soak is over by the real clock.
            await asyncio.sleep(0.002)

    async def _hold(self, queue: Queue[bytes]) -> None:
        held: list[Delivery[bytes]] = []
        while True:
            held.append(await queue.lease(seconds=600))
            if len(held) > HELD_LEASES:
                await held.pop(0).ack()
                held.pop(len(held) // 2).nack(delay=0)
                self.taken += 1
            await asyncio.sleep(0.002)


async def backlog(path: str, count: int) -> Backlog:
    """Put that many records, nobody takes them; then open them anew."""
    started = time.monotonic()
    async with fifoq.open(path, durability="memory") as queue:
        batch = [PAYLOAD] * BATCH
        for _ in range(50):
            await queue.put_many(batch)
        await queue.flush()
        before = memory_bytes()
        for _ in range(count // BATCH - 50):
            await queue.put_many(batch)
        await queue.flush()
        growth = memory_bytes() - before
    gc.collect()
    before = memory_bytes()
    async with fifoq.open(path) as queue:
        found = len(queue)
        assert await queue.take(timeout=10) == PAYLOAD
        reopened = memory_bytes() - before
    return Backlog(found, growth, reopened, time.monotonic() - started)


def main(what: str, path: str, number: str) -> None:
    result: object
    if what == "steady":
        result = asyncio.run(Steady(path).run(float(number)))
    else:
        result = asyncio.run(backlog(path, int(number)))
    sys.stdout.write(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
