"""Putting into a staging buffer against the plain queue, while no drain runs: what staging costs.

Spark is never started. What a drain takes of the machine is Spark's, and no part of a put.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from fifoq.bench.measure import (
    BATCH,
    BATCH_RECORDS,
    Absent,
    Durability,
    Row,
    Setting,
    alternate,
    open_queue,
    ratio_row,
    records,
    timed,
)

if TYPE_CHECKING:
    from fifoq.spark import StagingBuffer

RECORDS = 200_000
BATCHES = 400
LATER = 1 << 40
"""Records, bytes and seconds that never wait: no drain begins."""


async def staging_put(setting: Setting) -> list[Row | Absent]:
    """`await put` and `put_many` into a staging buffer, and into a queue with the same options."""
    try:
        import fifoq.spark  # noqa: F401
    except ImportError:
        return [Absent("staging buffer", "pip install 'fifoq[spark]'")]
    payloads = records(setting.count(RECORDS))
    batches = setting.count(BATCHES)

    async def put_all(target: Any) -> None:
        put = target.put
        for payload in payloads:
            await put(payload)

    async def put_batches(target: Any) -> None:
        for _ in range(batches):
            await target.put_many(BATCH)

    rows: list[Row | Absent] = []
    for name, durability, work, count in (
        ("staging buffer: put, memory", "memory", put_all, len(payloads)),
        ("  put_many of 100, sync", "sync", put_batches, batches * BATCH_RECORDS),
    ):

        async def ours(work: Any = work, durability: Any = durability) -> float:
            async with AsyncExitStack() as stack:
                path = stack.enter_context(setting.fresh("staging"))
                buffer = await _open(str(path), durability)
                try:
                    return await timed(work(buffer))
                finally:
                    await buffer.close(drain=False)

        async def yardstick(work: Any = work, durability: Any = durability) -> float:
            async with open_queue(setting, durability) as queue:
                return await timed(work(queue))

        compared = await alternate(setting, ours, yardstick)
        rows.append(ratio_row(name, compared, count=count, target=0.8, yardstick="plain queue"))
    return rows


async def _open(path: str, durability: Durability) -> StagingBuffer:
    from fifoq.spark import StagingBuffer

    return await StagingBuffer(
        path,
        _no_spark,
        to=f"{path}.table",
        durability=durability,
        drain_records=LATER,
        drain_bytes=LATER,
        drain_seconds=LATER,
    ).open()


def _no_spark() -> NoReturn:
    raise AssertionError("no drain was due")
