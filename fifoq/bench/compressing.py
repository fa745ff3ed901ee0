"""Records that look alike in a queue that compresses, against one that does not."""

from __future__ import annotations

import asyncio
import random
import statistics
from typing import get_args

import fifoq
from fifoq.bench.measure import (
    BATCH_RECORDS,
    Absent,
    BytesQueue,
    Row,
    Setting,
    in_turns,
    rate,
    timed,
)
from fifoq.options import Algorithm
from store.compression import ZSTD, readable

TASKS = 8
BATCHES = 2_000
BYTES_MAX = 0.25
RATE_MIN = 0.3


async def compression(setting: Setting) -> list[Row | Absent]:
    """`put_many` of 100 from 8 tasks at `os`: bytes on disk and rate, zlib and zstd."""
    rows: list[Row | Absent] = []
    for name in get_args(Algorithm):
        if name == "zstd" and not readable(ZSTD):
            rows.append(Absent("compression, zstd", "pip install 'fifoq[zstd]'"))
        else:
            rows += await _rows(setting, name)
    return rows


async def _rows(setting: Setting, name: Algorithm) -> list[Row]:
    each = max(1, setting.count(BATCHES) // TASKS)
    count = each * TASKS * BATCH_RECORDS
    batches = [_events(number) for number in range(16)]
    sizes: dict[str | None, int] = {}

    async def put(queue: BytesQueue, task: int) -> None:
        for turn in range(each):
            await queue.put_many(batches[(task + turn) % len(batches)])

    async def side(compression: Algorithm | None) -> float:
        with setting.fresh("queue") as path:
            async with fifoq.open(str(path), durability="os", compression=compression) as queue:
                work = asyncio.gather(*(put(queue, task) for task in range(TASKS)))
                seconds = await timed(work)
            sizes[compression] = sum(found.stat().st_size for found in path.glob("*.log"))
        return seconds

    with_it, without = await in_turns(setting, lambda: side(name), lambda: side(None))
    ours, plain = count / statistics.median(with_it), count / statistics.median(without)
    mine, theirs = sizes[name] / count, sizes[None] / count
    return [
        Row(
            f"compression, {name}: bytes on disk",
            mine / theirs,
            "×",
            BYTES_MAX,
            False,
            f"{mine:.1f} against {theirs:.1f} bytes a record",
            {"bytes": mine, "plain_bytes": theirs},
        ),
        Row(
            f"  put_many of 100 from {TASKS} tasks, os",
            ours / plain,
            "×",
            RATE_MIN,
            True,
            f"{rate(ours)} against {rate(plain)} (not compressed)",
            {"per_second": ours, "yardstick_per_second": plain},
        ),
    ]


def _events(seed: int) -> list[bytes]:
    """Records of about 100 bytes as a web shop would log them."""
    chance = random.Random(seed)
    return [
        b'{"id":%d,"user":"user-%d","event":"%s","url":"https://example.com/products/%d"}'
        % (
            seed * BATCH_RECORDS + number,
            chance.randrange(5_000),
            chance.choice((b"page_view", b"click", b"purchase")),
            chance.randrange(100_000),
        )
        for number in range(BATCH_RECORDS)
    ]
