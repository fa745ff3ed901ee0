"""Queues that compress: the option, what comes back, for whom, crashes, and zstd not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fifoq
import fifoq.sync
from actors.testing import VirtualTimeLoop
from fifoq import FormatError
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from store import Reader
from tests.fifoq.server.support import client_of, serving
from tests.fifoq.support import Bench, drained, started

ALIKE = [b'{"event":"page_view","user":%d}' % (n % 7) for n in range(200)]
SIZE = sum(map(len, ALIKE))
COMPRESSIONS = ("zlib", "zstd")

pytestmark = pytest.mark.anyio


def log_bytes(q: Any) -> int:
    return sum(place.length for place in q._committer.log.state.segments.values())


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("durability", ["memory", "os", "sync"])
async def test_records_come_back_in_order_from_memory_and_from_disk(
    bench: Bench, compression: str, durability: str
) -> None:
    async with bench.open(compression=compression, durability=durability) as q:
        await q.put_many(ALIKE)
        await asyncio.gather(*[q.put(item) for item in ALIKE])
        await q.put(b"with headers", headers={"a": "b"})
        await q.flush()
        assert log_bytes(q) < SIZE
        assert q.stats().bytes == 2 * SIZE + 12
        assert [await q.take() for _ in range(50)] == ALIKE[:50]
    async with bench.open() as q:
        assert q.options.compression == compression
        found = [(r.item, r.headers) async for r in q.browse()]
        assert found[-1] == (b"with headers", {"a": "b"})
        assert await drained(q) == [*ALIKE[50:], *ALIKE, b"with headers"]


async def test_compression_may_begin_and_end_while_the_queue_runs(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many(ALIKE)
        plain = log_bytes(q)
        q.configure(compression="zlib", compression_level=9)
        await q.put_many(ALIKE)
        compressed = log_bytes(q) - plain
        q.configure(compression=None, compression_level=None)
        await q.put_many(ALIKE)
        assert compressed < SIZE // 2 < SIZE < log_bytes(q) - plain - compressed
        assert await drained(q) == ALIKE * 3


async def test_wrong_options_are_named_and_nothing_is_changed(bench: Bench) -> None:
    with pytest.raises(ValueError, match="compression='lz4' is none of None, zlib, zstd"):
        await bench.open(compression="lz4")
    async with bench.open() as q:
        with pytest.raises(ValueError, match="compression_level=4 without a compression"):
            q.configure(compression_level=4)
        assert q.options.compression is None


async def test_without_zstd_the_queue_names_the_package_and_goes_on_where_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.open(compression="zstd") as q:
        await q.put_many(ALIKE)
    monkeypatch.setattr("store.compression.ZSTD_MODULES", ("not_here",))
    with pytest.raises(ValueError, match="pip install zstandard"):
        await bench.open()
    async with bench.open(compression=None) as q:
        for _ in range(2):
            with pytest.raises(FormatError, match="pip install zstandard"):
                await q.take()
        await q.put(b"behind")
        assert len(q) == 201
    monkeypatch.undo()
    async with bench.open() as q:
        assert await drained(q) == [*ALIKE, b"behind"]


async def test_a_queue_that_nobody_opens_is_compacted_compressed(bench: Bench) -> None:
    async with bench.open_store(segment_bytes=64 << 10) as store:
        q = await store.queue("a", compression="zlib")
        await q.put_many(ALIKE * 20)
    async with bench.open_store(segment_bytes=64 << 10) as store:
        queue = store._committer._open_log.queue("a")
        assert queue.compression is not None
        assert queue.plain_upto == 0


async def test_a_taker_that_leaves_gets_a_compressed_record_back(bench: Bench) -> None:
    async with bench.open(compression="zlib") as q:
        await q.put_many([item * 100 for item in ALIKE])
        bench.runner.hold()
        take = await started(q.take())
        take.cancel()
        bench.runner.let_go()
        with pytest.raises(asyncio.CancelledError):
            await take
    async with bench.open() as q:
        assert await drained(q) == [item * 100 for item in ALIKE]


async def test_upkeep_moves_and_frees_compressed_segments(bench: Bench) -> None:
    """Takes and acks out of order leave sparse segments: what is left of them moves on."""
    async with bench.open_store(segment_bytes=64 << 10) as store:
        q = await store.queue("a", compression="zlib")
        for n in range(12):
            await q.put(b"kept %d" % n)
            await q.put_many([b"%d.%d;" % (n, k) * 40 for k in range(1500)])
            first = await q.lease()
            assert first.item == b"kept %d" % n
            await q.take_many(1500)
        await q.flush()
    async with bench.open_store() as store:
        q = await store.queue("a")
        assert await drained(q) == [b"kept %d" % n for n in range(12)]


def test_power_cuts_at_every_disk_call_leave_what_was_confirmed() -> None:
    confirmed: list[list[bytes]] = [[]]
    found: list[tuple[list[bytes], SimFiles]] = []

    async def work(files: SimFiles) -> None:
        confirmed[0] = []
        async with Bench(files).open(compression="zlib", segment_bytes=64 << 10) as q:
            for start in (0, 100):
                await q.put_many(ALIKE[start : start + 100])
                confirmed[0] = ALIKE[: start + 100]

    def visit(index: int, files: SimFiles) -> None:
        found.append((confirmed[0], after_process_crash(files)))
        images = power_images(files, limit=8, samples=4, seed=index)
        found.extend((confirmed[0], SimFiles.from_image(image)) for image in images)

    async def left(files: SimFiles) -> list[bytes]:
        async with Bench(files).open() as q:
            return await drained(q)

    count = crash_points(lambda files: on_a_loop(work(files)), visit)
    assert count > 20
    for promised, files in found:
        items = on_a_loop(left(files))
        assert items == ALIKE[: len(items)]
        assert len(items) >= len(promised)
        assert len(items) % 100 == 0


def on_a_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def test_other_processes_read_it_by_files_and_by_socket(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, compression="zlib") as q:
        for start in range(0, 200, 20):
            q.put_many(ALIKE[start : start + 20] * 3)
    with serving(path, loop="uvloop") as server, client_of(server) as client:
        there = [p for block in client.blocks("main", 1, 10**9) for p in block.payloads()]
    with Reader(str(path)) as reader:
        here = [p for block in reader.blocks("main") for p in block.payloads()]
    assert here == there == [p for n in range(0, 200, 20) for p in ALIKE[n : n + 20] * 3]


def test_a_read_only_store_shows_it(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store", compression="zstd") as q:
        q.put_many(ALIKE)

    async def seen() -> list[bytes]:
        async with fifoq.open_store(tmp_path / "store", read_only=True) as store:
            queue = await store.queue("main")
            return [record.item async for record in queue.browse()]

    assert asyncio.run(seen()) == ALIKE
