"""Rows at durability `memory`, against `asyncio.Queue` with the same records."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

import msgspec

from fifoq.bench.measure import (
    BATCH,
    BATCH_RECORDS,
    Absent,
    BytesQueue,
    Row,
    Setting,
    alternate,
    in_turns,
    open_queue,
    rate,
    ratio_row,
    records,
    timed,
)
from fifoq.bench.yardsticks import (
    asyncio_get_all,
    asyncio_put_all,
    asyncio_put_all_nowait,
    asyncio_work_off,
)

RECORDS = 200_000
NOWAIT_RECORDS = 100_000
"""As many as may wait to be written: `put_nowait` in a loop leaves the disk no turn."""
PIPE_RECORDS = 100_000
PIPE_MAXSIZE = 1000
"""A bound, as users set one: without it the producer would finish before the consumer starts."""
BATCHES = 4000
YARDSTICK = "asyncio.Queue"
LEDGERQ = "LedgerQ, buffered, measured once: 2.9 M/s"


async def put(setting: Setting) -> list[Row | Absent]:
    """`await put` in a loop."""
    payloads = records(setting.count(RECORDS))
    flushed = []

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            seconds = await timed(_put_all(queue, payloads))
            flushed.append(seconds + await timed(queue.flush()))
            return seconds

    async def yardstick() -> float:
        return await timed(asyncio_put_all(asyncio.Queue(), payloads))

    compared = await alternate(setting, ours, yardstick)
    row = ratio_row(
        "put, memory", compared, count=len(payloads), target=0.8, yardstick=f"{YARDSTICK}.put"
    )
    # The writing goes on behind the puts; with a flush at the end nothing of it is left out.
    whole = len(payloads) / statistics.median(flushed)
    return [
        msgspec.structs.replace(
            row,
            detail=f"{row.detail}; {rate(whole)} with a flush at the end",
            figures={**row.figures, "flushed_per_second": whole},
        )
    ]


async def take(setting: Setting) -> list[Row | Absent]:
    """`await take` in a loop, of records that lie ready and are flushed."""
    payloads = records(setting.count(RECORDS))

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            await _put_all(queue, payloads)
            await queue.flush()
            return await timed(_take_all(queue, len(payloads)))

    async def yardstick() -> float:
        source: asyncio.Queue[bytes] = asyncio.Queue()
        asyncio_put_all_nowait(source, payloads)
        return await timed(asyncio_get_all(source, len(payloads)))

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "take of a backlog, memory",
            compared,
            count=len(payloads),
            target=1.0,
            yardstick=f"{YARDSTICK}.get",
        )
    ]


async def put_then_take(setting: Setting) -> list[Row | Absent]:
    """All puts and then all takes, timed as one."""
    payloads = records(setting.count(RECORDS))

    async def both(queue: BytesQueue) -> None:
        await _put_all(queue, payloads)
        await _take_all(queue, len(payloads))

    async def both_asyncio(queue: asyncio.Queue[bytes]) -> None:
        await asyncio_put_all(queue, payloads)
        await asyncio_get_all(queue, len(payloads))

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            return await timed(both(queue))

    async def yardstick() -> float:
        return await timed(both_asyncio(asyncio.Queue()))

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "all puts, then all takes, memory",
            compared,
            count=len(payloads),
            target=1.0,
            yardstick=YARDSTICK,
        )
    ]


async def pipe(setting: Setting) -> list[Row | Absent]:
    """A producer task and a consumer task, both queues bounded."""
    payloads = records(setting.count(PIPE_RECORDS))

    async def ours() -> float:
        async with open_queue(setting, "memory", maxsize=PIPE_MAXSIZE) as queue:
            return await timed(
                asyncio.gather(_put_all(queue, payloads), _take_all(queue, len(payloads)))
            )

    async def yardstick() -> float:
        queue: asyncio.Queue[bytes] = asyncio.Queue(PIPE_MAXSIZE)
        return await timed(
            asyncio.gather(asyncio_put_all(queue, payloads), asyncio_get_all(queue, len(payloads)))
        )

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "producer and consumer, memory",
            compared,
            count=len(payloads),
            target=0.8,
            yardstick=YARDSTICK,
        )
    ]


async def put_many(setting: Setting) -> list[Row | Absent]:
    """`await put_many` of 100 in a loop; records per second."""
    count = setting.count(BATCHES)

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            return await timed(_put_batches(queue, count))

    (seconds,) = await in_turns(setting, ours)
    per_second = count * BATCH_RECORDS / statistics.median(seconds)
    figures = {"per_second": per_second}
    return [Row("put_many of 100, memory", per_second / 1e6, "M/s", 4.0, True, LEDGERQ, figures)]


async def lease_ack(setting: Setting) -> list[Row | Absent]:
    """One consumer that leases and acks a backlog."""
    payloads = records(setting.count(RECORDS // 4))

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            await _put_all(queue, payloads)
            await queue.flush()
            return await timed(_work_off(queue, len(payloads)))

    async def yardstick() -> float:
        source: asyncio.Queue[bytes] = asyncio.Queue()
        asyncio_put_all_nowait(source, payloads)
        return await timed(asyncio_work_off(source, len(payloads)))

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "lease + ack, memory",
            compared,
            count=len(payloads),
            target=0.3,
            yardstick=f"{YARDSTICK} get + task_done",
        )
    ]


async def put_nowait(setting: Setting) -> list[Row | Absent]:
    """`put_nowait` in a loop."""
    payloads = records(setting.count(NOWAIT_RECORDS))

    async def ours() -> float:
        async with open_queue(setting, "memory") as queue:
            return await timed(_put_all_nowait(queue, payloads))

    async def yardstick() -> float:
        target: asyncio.Queue[bytes] = asyncio.Queue()

        async def put_all() -> None:
            asyncio_put_all_nowait(target, payloads)

        return await timed(put_all())

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "put_nowait",
            compared,
            count=len(payloads),
            target=0.6,
            yardstick=f"{YARDSTICK}.put_nowait",
        )
    ]


async def _put_all(queue: BytesQueue, payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        await queue.put(payload)


async def _put_all_nowait(queue: BytesQueue, payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        queue.put_nowait(payload)


async def _put_batches(queue: BytesQueue, count: int) -> None:
    for _ in range(count):
        await queue.put_many(BATCH)


async def _take_all(queue: BytesQueue, count: int) -> None:
    for _ in range(count):
        await queue.take()


async def _work_off(queue: BytesQueue, count: int) -> None:
    for _ in range(count):
        delivery = await queue.lease()
        await delivery.ack()
