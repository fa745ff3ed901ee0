"""Rows at durability `os` and `sync`, against bare file calls and SQLite."""

from __future__ import annotations

import asyncio
import statistics
import time

from fifoq.bench.measure import (
    BATCH,
    BATCH_BYTES,
    BATCH_RECORDS,
    Absent,
    BytesQueue,
    Compared,
    Row,
    Setting,
    alternate,
    duration,
    in_turns,
    open_queue,
    percentile,
    ratio_row,
    records,
    timed,
)
from fifoq.bench.yardsticks import SqliteQueue, bare_append

OS_TASKS = 8
OS_BATCHES = 4000
SYNC_BATCHES = 400
SYNC_PUTS = 1000
PRODUCERS = 64
PUTS_EACH = 200
BUSY_PUTS = 300
BUSY_SECONDS_MAX = 10.0
"""A queue that starves behind a busy loop is stopped here; by then the row has missed anyway."""
BUSY_TURNS = (0.0002, 0.001)


async def put_many_os(setting: Setting) -> list[Row | Absent]:
    """`put_many` of 100 from 8 tasks at `os`, against bare writes of the same bytes."""
    each = setting.count(OS_BATCHES) // OS_TASKS
    count = each * OS_TASKS

    async def ours() -> float:
        async with open_queue(setting, "os") as queue:
            return await timed(
                asyncio.gather(*(_put_batches(queue, each) for _ in range(OS_TASKS)))
            )

    async def yardstick() -> float:
        return sum(_bare(setting, BATCH_BYTES, count, sync=False))

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "put_many of 100 from 8 tasks, os",
            compared,
            count=count * BATCH_RECORDS,
            target=0.2,
            yardstick="bare write in 10 kB pieces",
        )
    ]


async def put_many_sync(setting: Setting) -> list[Row | Absent]:
    """`put_many` of 100 at `sync`, against append + fdatasync of the same bytes."""
    count = setting.count(SYNC_BATCHES)

    async def ours() -> float:
        async with open_queue(setting, "sync") as queue:
            await queue.put_many(BATCH)
            return await timed(_put_batches(queue, count))

    async def yardstick() -> float:
        return sum(_bare(setting, BATCH_BYTES, count, sync=True))

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "put_many of 100, sync",
            compared,
            count=count * BATCH_RECORDS,
            target=0.75,
            yardstick="bare append + fdatasync",
        )
    ]


async def one_sync(setting: Setting) -> list[Row | Absent]:
    """One producer that awaits each sync put: throughput, and the median of single puts."""
    count = setting.count(SYNC_PUTS)
    (payload,) = records(1)
    ours_each: list[float] = []
    bare_each: list[float] = []

    async def ours() -> float:
        async with open_queue(setting, "sync") as queue:
            await queue.put(payload)
            each = await _latencies(queue, payload, count)
        ours_each.append(statistics.median(each))
        return sum(each)

    async def yardstick() -> float:
        each = _bare(setting, payload, count, sync=True)
        bare_each.append(statistics.median(each))
        return sum(each)

    compared = await alternate(setting, ours, yardstick)
    middle, bare = statistics.median(ours_each), statistics.median(bare_each)
    return [
        ratio_row(
            "one producer, sync",
            compared,
            count=count,
            target=0.7,
            yardstick="bare append + fdatasync",
        ),
        Row(
            "  p50 of one put",
            # The inverse of a speed: of two medians, the slower over the faster.
            1 / Compared(ours_each, bare_each).ratio,
            "×",
            1.4,
            False,
            f"{duration(middle)} against {duration(bare)} (bare append + fdatasync)",
            {"p50_seconds": middle, "yardstick_p50_seconds": bare},
        ),
    ]


async def many_sync(setting: Setting) -> list[Row | Absent]:
    """64 producers that each await their sync puts."""
    each = max(setting.count(PUTS_EACH * PRODUCERS) // PRODUCERS, 2)
    payloads = records(each)
    together = b"".join(records(PRODUCERS))

    async def ours() -> float:
        async with open_queue(setting, "sync") as queue:
            await queue.put(payloads[0])
            return await timed(
                asyncio.gather(*(_put_all(queue, payloads) for _ in range(PRODUCERS)))
            )

    async def sqlite() -> float:
        with setting.fresh("sqlite") as directory:
            directory.mkdir()
            queue = SqliteQueue(directory / "queue.db")
            await queue.put(payloads[0])
            seconds = await timed(
                asyncio.gather(*(_put_all_sqlite(queue, payloads) for _ in range(PRODUCERS)))
            )
            await queue.close()
        return seconds

    async def limit() -> float:
        return sum(_bare(setting, together, each, sync=True))

    found = await in_turns(setting, ours, sqlite, limit)
    count = each * PRODUCERS
    return [
        ratio_row(
            "64 producers, sync",
            Compared(found[0], found[1]),
            count=count,
            target=1.4,
            yardstick="SQLite WAL FULL, group commit",
        ),
        ratio_row(
            "  of the limit",
            Compared(found[0], found[2]),
            count=count,
            target=0.5,
            yardstick="bare append of 64 + fdatasync",
        ),
    ]


async def busy_loop(setting: Setting) -> list[Row | Absent]:
    """Sync puts while another task keeps the loop fully busy, in turns of a given length."""
    rows: list[Row | Absent] = []
    for turn in BUSY_TURNS:
        each: list[float] = []
        for _ in range(setting.rounds):
            each += await _busy_latencies(setting, turn)
        worst = percentile(each, 99)
        middle = percentile(each, 50)
        rows.append(
            Row(
                f"sync put, loop busy in turns of {turn * 1e3:g} ms: p99",
                worst * 1e3,
                "ms",
                20.0,
                False,
                f"p50 {duration(middle)}, longest {duration(max(each))}, {len(each)} puts",
                {"p50_seconds": middle, "p99_seconds": worst, "max_seconds": max(each)},
            )
        )
    return rows


async def _busy_latencies(setting: Setting, turn: float) -> list[float]:
    (payload,) = records(1)
    async with open_queue(setting, "sync") as queue:
        await queue.put(payload)
        busy = asyncio.create_task(_keep_busy(turn))
        limit = BUSY_SECONDS_MAX / (100 if setting.quick else 1)
        each = await _latencies(queue, payload, setting.count(BUSY_PUTS), seconds_max=limit)
        busy.cancel()
        await asyncio.wait([busy])
    return each


async def _keep_busy(turn: float) -> None:
    while True:
        end = time.perf_counter() + turn
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def _latencies(
    queue: BytesQueue, payload: bytes, count: int, *, seconds_max: float = float("inf")
) -> list[float]:
    """Seconds of each of so many puts, one after the other; fewer if they take too long."""
    each: list[float] = []
    begin = time.perf_counter()
    for _ in range(count):
        start = time.perf_counter()
        await queue.put(payload)
        end = time.perf_counter()
        each.append(end - start)
        if end - begin > seconds_max:
            break
    return each


async def _put_all(queue: BytesQueue, payloads: list[bytes]) -> None:
    for payload in payloads:
        await queue.put(payload)


async def _put_all_sqlite(queue: SqliteQueue, payloads: list[bytes]) -> None:
    for payload in payloads:
        await queue.put(payload)


async def _put_batches(queue: BytesQueue, count: int) -> None:
    for _ in range(count):
        await queue.put_many(BATCH)


def _bare(setting: Setting, data: bytes, count: int, *, sync: bool) -> list[float]:
    with setting.fresh("bare") as path:
        return bare_append(path, data, count, sync=sync)
