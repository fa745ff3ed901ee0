"""Our own queue at each durability, and SQLite by hand: measured as the peers are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

import fifoq
from fifoq.bench.measure import BATCH, BATCH_RECORDS, Durability, Setting, records, timed
from fifoq.bench.peer import PRODUCERS, RECORDS, Peer, per_second
from fifoq.bench.yardsticks import SqliteQueue, open_sqlite, take_first

PUTS_EACH = 30


def _on_loop(
    measure: Callable[[Path, Setting], Coroutine[Any, Any, dict[str, float]]],
) -> Callable[[Path, Setting], dict[str, float]]:
    return lambda path, setting: uvloop.run(measure(path, setting))


async def _fifoq(path: Path, setting: Setting, *, durability: Durability) -> dict[str, float]:
    (payload,) = records(1)
    count = setting.count(RECORDS)
    async with fifoq.open(str(path / "queue"), durability=durability) as queue:
        put, done = await per_second(lambda: queue.put(payload), count)
        take, _ = await per_second(queue.take, done)
        batch, _ = await per_second(lambda: queue.put_many(BATCH), count // BATCH_RECORDS or 1)
        found = {"put": put, "take": take, "batch": batch * BATCH_RECORDS}
        if durability == "sync":
            found |= {"synced": put, "synced_64": await _together(queue.put, setting)}
    return found


async def _sqlite(path: Path, setting: Setting) -> dict[str, float]:
    (payload,) = records(1)
    count = setting.count(RECORDS)
    queue = SqliteQueue(path / "queue.db")
    put, done = await per_second(lambda: queue.put(payload), count)
    batch, _ = await per_second(lambda: queue.put_many(BATCH), count // BATCH_RECORDS or 1)
    together = await _together(queue.put, setting)
    await queue.close()
    connection = open_sqlite(path / "queue.db")

    async def take() -> None:
        take_first(connection)

    taken, _ = await per_second(take, done)
    connection.close()
    return {
        "put": put,
        "take": taken,
        "batch": batch * BATCH_RECORDS,
        "synced": put,
        "synced_64": together,
    }


async def _together(put: Callable[[bytes], Awaitable[object]], setting: Setting) -> float:
    """Records per second of 64 tasks that each await their puts."""
    payloads = records(max(setting.count(PUTS_EACH * PRODUCERS) // PRODUCERS, 2))

    async def put_all() -> None:
        for payload in payloads:
            await put(payload)

    seconds = await timed(asyncio.gather(*(put_all() for _ in range(PRODUCERS))))
    return len(payloads) * PRODUCERS / seconds


OURS = (
    Peer(
        "fifoq, memory",
        _on_loop(partial(_fifoq, durability="memory")),
        "what waits for the kernel: 0.1 s, 100 records or 64 KiB",
        "the last 0.1 s before the sync, and what waits",
    ),
    Peer(
        "fifoq, os",
        _on_loop(partial(_fifoq, durability="os")),
        "nothing",
        "the last 0.1 s",
    ),
    Peer("fifoq, sync", _on_loop(partial(_fifoq, durability="sync")), "nothing", "nothing"),
    Peer("SQLite by hand, group commit", _on_loop(_sqlite), "nothing", "nothing"),
)
