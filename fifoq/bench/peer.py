"""What a peer is, and how fast a call of it is: shared by all peers."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fifoq.bench.measure import BATCH, BATCH_RECORDS, Setting, records

RATES = {
    "put": "put",
    "take": "take",
    "batch": "batch of 100",
    "synced": "put, synced",
    "synced_64": "64 tasks, synced",
}
"""What is measured of each peer, where it has it, in records per second; with column titles."""
RECORDS = 20_000
SECONDS_MAX = 1.0
"""A slow call is measured for this long, rather than as often as a fast one."""
PRODUCERS = 64


class Peer(NamedTuple):
    """One way to have a queue. `measure` is given an empty directory and returns rates."""

    name: str
    measure: Callable[[Path, Setting], dict[str, float]]
    lost_on_kill: str
    lost_on_power_cut: str
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    install: str = ""


class Blocking(NamedTuple):
    """The calls of a peer whose calls block. `synced`: a put returns only after a sync."""

    put: Callable[[bytes], object]
    take: Callable[[], object]
    put_batch: Callable[[Sequence[bytes]], object] | None = None
    synced: bool = False


def measure_blocking(peer: Blocking, setting: Setting) -> dict[str, float]:
    """Puts, then takes of what was put, then batches."""
    payloads = records(setting.count(RECORDS))
    put, done = _per_second(lambda payload: peer.put(payload), payloads)
    take, _ = _per_second(lambda _: peer.take(), payloads[:done])
    found = {"put": put, "take": take}
    if peer.put_batch is not None:
        put_batch = peer.put_batch
        batches = setting.count(RECORDS) // BATCH_RECORDS or 1
        batch, _ = _per_second(lambda _: put_batch(BATCH), range(batches))
        found["batch"] = batch * BATCH_RECORDS
    if peer.synced:
        found["synced"] = put
    return found


async def per_second(call: Callable[[], Awaitable[object]], count: int) -> tuple[float, int]:
    """Calls per second, and how many were made: `count`, or fewer if they are slow."""
    gc.collect()
    start = now = time.perf_counter()
    done = 0
    while done < count and now - start < SECONDS_MAX:
        await call()
        done += 1
        now = time.perf_counter()
    return done / (now - start), done


def _per_second(call: Callable[..., object], arguments: Sequence[object]) -> tuple[float, int]:
    gc.collect()
    start = now = time.perf_counter()
    done = 0
    for argument in arguments:
        call(argument)
        done += 1
        now = time.perf_counter()
        if now - start > SECONDS_MAX:
            break
    return done / (now - start), done
