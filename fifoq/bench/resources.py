"""Rows about what a queue costs beside time: bytes on the disk, and wake-ups while idle."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple

import fifoq
from fifoq.bench.machine import wake_ups
from fifoq.bench.measure import (
    BATCH,
    BATCH_RECORDS,
    PAYLOAD_BYTES,
    Absent,
    Row,
    Setting,
    open_queue,
)

SPACE_BATCHES = 2000
IDLE_SECONDS = 1.0
SETTLE_SECONDS = 0.5
"""How long the queue is left alone before the watch begins: the last frame is sealed by then."""
WAKE_UPS_MAX = 5.0
CPU_MILLISECONDS_MAX = 5.0


def segment_bytes(path: Path) -> int:
    """Bytes of the segments and their indexes; not of the checkpoints, whose size is fixed."""
    return sum(file.stat().st_size for file in path.iterdir() if file.suffix in (".log", ".idx"))


def space_row(name: str, path: Path, record_count: int) -> Row:
    """How many bytes the store at `path` takes for so many records."""
    size = segment_bytes(path)
    return Row(
        name,
        size / (record_count * PAYLOAD_BYTES),
        "×",
        1.1,
        False,
        figures={"bytes": size, "records": record_count},
    )


async def disk_bytes(setting: Setting) -> list[Row | Absent]:
    """What lies on the disk after a close, for each byte that was put."""
    count = setting.count(SPACE_BATCHES)
    with setting.fresh("queue") as path:
        async with fifoq.open(str(path), durability="os") as queue:
            for _ in range(count):
                await queue.put_many(BATCH)
        return [space_row("disk bytes per payload byte, put_many", path, count * BATCH_RECORDS)]


class Used(NamedTuple):
    """What the process used while nothing happened."""

    wake_ups: int
    cpu_seconds: float


async def idle(setting: Setting) -> list[Row | Absent]:
    """A consumer that waits at an empty queue for a second, against one at an `asyncio.Queue`."""
    ours: list[Used] = []
    yardstick: list[Used] = []
    for _ in range(setting.rounds):
        ours.append(await _idle_ours(setting))
        yardstick.append(await _idle_while(setting, asyncio.Queue[bytes]().get()))
    more = statistics.median(
        mine.wake_ups - theirs.wake_ups for mine, theirs in zip(ours, yardstick, strict=True)
    )
    cpu = statistics.median(used.cpu_seconds for used in ours)
    bare = statistics.median(used.cpu_seconds for used in yardstick)
    return [
        Row(
            "idle queue: wake-ups in a second",
            more,
            "more",
            WAKE_UPS_MAX,
            False,
            "than asyncio.Queue, a consumer waiting at each",
            {"wake_ups": statistics.median(used.wake_ups for used in ours)},
        ),
        Row(
            "  CPU in a second",
            cpu * 1e3,
            "ms",
            CPU_MILLISECONDS_MAX,
            False,
            f"against {bare * 1e3:.2g} ms (asyncio.Queue)",
            {"cpu_seconds": cpu, "yardstick_cpu_seconds": bare},
        ),
    ]


async def _idle_ours(setting: Setting) -> Used:
    async with open_queue(setting, "sync") as queue:
        # A queue that has worked: its thread runs, its last commit is sealed.
        await queue.put(BATCH[0])
        await queue.take()
        await asyncio.sleep(SETTLE_SECONDS / (10 if setting.quick else 1))
        return await _idle_while(setting, queue.take())


async def _idle_while(setting: Setting, waiting: Awaitable[object]) -> Used:
    consumer = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    count, cpu = wake_ups(), time.process_time()
    await asyncio.sleep(IDLE_SECONDS / (20 if setting.quick else 1))
    used = Used(wake_ups() - count, time.process_time() - cpu)
    consumer.cancel()
    await asyncio.wait([consumer])
    return used
