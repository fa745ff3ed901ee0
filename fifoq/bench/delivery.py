"""Rows of delivery: many consumers that lease and ack, and many records that wait for a time."""

from __future__ import annotations

import asyncio
import gc
import statistics

from fifoq.bench.durable import PRODUCERS, PUTS_EACH
from fifoq.bench.machine import resident_bytes
from fifoq.bench.measure import (
    BATCH_RECORDS,
    Absent,
    BytesQueue,
    Row,
    Setting,
    alternate,
    duration,
    open_queue,
    rate,
    records,
    timed,
)

DELAYED_RECORDS = 1_000_000
DELAY_SECONDS = 3600.0
ENOUGH_PER_SECOND = 40_000.0


async def lease_sync(setting: Setting) -> list[Row | Absent]:
    """64 consumers that each lease and ack at `sync`, beside 64 producers."""
    each = max(setting.count(PUTS_EACH * PRODUCERS) // PRODUCERS, 2)
    payloads = records(each)

    async def ours() -> float:
        async with open_queue(setting, "sync") as queue:
            await queue.put_many(records(each * PRODUCERS))
            return await timed(asyncio.gather(*(_work_off(queue, each) for _ in range(PRODUCERS))))

    async def producers() -> float:
        async with open_queue(setting, "sync") as queue:
            return await timed(
                asyncio.gather(*(_put_all(queue, payloads) for _ in range(PRODUCERS)))
            )

    compared = await alternate(setting, ours, producers)
    count = each * PRODUCERS
    leased = count / statistics.median(compared.ours)
    put = count / statistics.median(compared.yardstick)
    return [
        Row(
            "64 consumers, lease + ack, sync",
            leased / 1e3,
            "k/s",
            # Half the rate of as many producers, or what is enough on any disk.
            min(ENOUGH_PER_SECOND, put / 2) / 1e3,
            True,
            f"{compared.ratio:.2f} × 64 producers, {rate(put)}",
            {"per_second": leased, "yardstick_per_second": put},
        )
    ]


async def delayed(setting: Setting) -> list[Row | Absent]:
    """Records that wait for their time: what it costs to put one, and to have it wait."""
    batches = setting.count(DELAYED_RECORDS // BATCH_RECORDS)
    count = batches * BATCH_RECORDS
    batch = records(BATCH_RECORDS)
    async with open_queue(setting, "memory") as queue:
        # The first tenth also fills what does not grow with their number: buffers, and copies.
        part = batches // 10 or 1
        seconds = [await timed(_delay(queue, batch, part))]
        await queue.flush()
        gc.collect()
        before = resident_bytes()
        for _ in range(9):
            seconds.append(await timed(_delay(queue, batch, part)))
            await queue.flush()
        gc.collect()
        memory = (resident_bytes() - before) / (9 * part * BATCH_RECORDS)
        alone = await timed(_delay_alone(queue, batch * 100)) / (len(batch) * 100)
    each = statistics.median(seconds) / (part * BATCH_RECORDS)
    detail = f"put_many of 100; one by one {duration(alone)}"
    figures = {"records": count, "seconds": each, "alone_seconds": alone, "bytes": memory}
    return [
        Row("delayed record, put", each * 1e6, "µs", 3.0, False, detail, figures),
        Row("delayed record, memory", memory, "B", 120.0, False, f"{count} wait", figures),
    ]


async def _delay(queue: BytesQueue, batch: list[bytes], times: int) -> None:
    for _ in range(times):
        await queue.put_many(batch, delay=DELAY_SECONDS)


async def _delay_alone(queue: BytesQueue, payloads: list[bytes]) -> None:
    for payload in payloads:
        await queue.put(payload, delay=DELAY_SECONDS)


async def _work_off(queue: BytesQueue, count: int) -> None:
    for _ in range(count):
        delivery = await queue.lease()
        await delivery.ack()


async def _put_all(queue: BytesQueue, payloads: list[bytes]) -> None:
    for payload in payloads:
        await queue.put(payload)
