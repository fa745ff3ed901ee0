"""Stores to move about: rows of every kind, and what is in a store, told as rows."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from fifoq.opening import open_store
from fifoq.tools.pouring import Pouring
from fifoq.tools.rows import QueueHeader, Row
from fifoq.tools.snapshot import Place, Snapshot

TIMES = st.sampled_from([0, 1, 10**18, 2**63 - 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
HEADERS = st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3)
PAYLOADS = (
    st.binary(max_size=40)
    | TEXTS.map(str.encode)
    | st.sampled_from([b"", b"\0", b"\n", b"\r\n", b"\xff", b'{"fifoq_end":1}', b"x" * 5000])
)


@st.composite
def stores(draw: st.DrawFn) -> list[Row]:
    """Rows of one or two queues, with gaps between counters, as a store could hold them."""
    rows: list[Row] = []
    for queue in draw(st.sampled_from([("orders",), ("orders", "orders.dlq")])):
        counter = time = 0
        for _ in range(draw(st.integers(0, 12))):
            counter += draw(st.sampled_from([1, 1, 1, 2, 1000]))
            time += draw(st.sampled_from([0, 1, 10**9, 2**40]))
            plain = draw(st.booleans())
            rows.append(
                Row(
                    queue=queue,
                    counter=counter,
                    timestamp=time,
                    data=draw(PAYLOADS),
                    headers={} if plain else draw(HEADERS),
                    deliver_at=0 if plain else draw(TIMES),
                    expires_at=0 if plain else draw(TIMES),
                    priority=5 if plain else draw(st.integers(0, 9)),
                    ordering_key="" if plain else draw(TEXTS),
                    dedup_id="" if plain else draw(TEXTS),
                    attempt=0 if plain else draw(st.sampled_from([0, 1, 7, 2**32 - 1])),
                )
            )
    return rows


async def build(path: Path, rows: list[Row]) -> None:
    """A store that holds exactly these rows."""
    queues = [QueueHeader(name) for name in dict.fromkeys(row.queue for row in rows)]
    async with open_store(path) as store:
        pouring = Pouring(store, "built")
        await pouring.begin(queues, keep_keys=True, as_new=False, again=False)
        await pouring.put(rows)
        await pouring.end(forget=True)


def rows_in(path: Path, *, removed: bool = False) -> list[Row]:
    """Every row of a store, queue by queue."""
    snapshot = Snapshot(str(path), removed=removed)
    try:
        bounds = snapshot.bounds(None)
        rows: list[Row] = []
        place: Place | None = Place()
        while place is not None:
            page, place = snapshot.page(bounds, place)
            rows += page
        return rows
    finally:
        snapshot.close()


def make(path: Path, rows: list[Row]) -> None:
    asyncio.run(build(path, rows))


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory, where there is one: for many stores that only come and go."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as path:
        yield Path(path)
