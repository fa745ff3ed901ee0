"""What went wrong once in queues under faults: one small test for each."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

import fifoq
from fifoq.testing.simfiles import SimFiles
from store.files import Handle
from store.osfiles import OsFiles
from tests.fifoq.loops import until
from tests.support.runners import ManualRunner

DEADLINE_SECONDS = 10.0


def play(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene; one that hangs fails."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await main()

    asyncio.run(bounded())


class Held:
    """Makes the runner of a store and keeps it at hand."""

    def __init__(self) -> None:
        self.runner: ManualRunner

    def __call__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> ManualRunner:
        self.runner = ManualRunner(loop, on_end, name)
        return self.runner

    async def turns(self, count: int = 6) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def wait_for_job(self) -> None:
        while self.runner.waiting is None:
            await asyncio.sleep(0)


class SmallDisk(OsFiles):
    """The real files on a disk that is full as long as one says so."""

    def __init__(self) -> None:
        self.full = False

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.full and offset + len(data) > self.size(handle):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(handle, data, offset)


def test_a_counter_that_was_seen_in_memory_is_not_given_out_again_after_a_crash() -> None:
    """Nothing of a memory queue may be on disk when the process dies: it counted from 1 again."""
    files = SimFiles()

    async def scene() -> None:
        async with fifoq.open("/store", files=files, durability="memory") as queue:
            seen = queue.put_nowait(b"a")
            twin = files.copy()
        twin.process_crash()
        async with fifoq.open("/store", files=twin) as queue:
            assert (await queue.put(b"b")).counter > seen.counter

    play(scene)


def test_counters_are_kept_ahead_again_before_they_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fifoq.jobs.COUNTERS_AHEAD", 100)
    monkeypatch.setattr("fifoq.jobs.COUNTERS_LEFT_MIN", 50)
    files = SimFiles()

    async def scene() -> None:
        async with fifoq.open(
            "/store", files=files, durability="memory", flush_interval=60.0, buffer_size=1000
        ) as queue:
            for _ in range(80):
                queue.put_nowait(b"a")
            await queue.flush()
            seen = [queue.put_nowait(b"b") for _ in range(40)]
            twin = files.copy()
        twin.process_crash()
        async with fifoq.open("/store", files=twin) as queue:
            assert (await queue.put(b"c")).counter > seen[-1].counter > 100

    play(scene)


def test_a_take_that_does_not_wait_finds_the_backlog_of_an_earlier_life(tmp_path: Path) -> None:
    """It said that the queue is empty, for ever: nobody had asked for the records to be read."""

    async def scene() -> None:
        async with fifoq.open(tmp_path / "store") as queue:
            await queue.put_many([b"a", b"b"])
        async with fifoq.open(tmp_path / "store") as queue:
            assert queue.take_nowait() == b"a"
            assert queue.take_nowait() == b"b"

    play(scene)


def test_memory_records_before_one_that_must_wait_can_be_taken() -> None:
    """They were hidden with it if the frame before had one that must wait as well."""

    async def scene() -> None:
        held = Held()
        async with fifoq.open(
            "/store", files=SimFiles(), durability="memory", runner=held
        ) as queue:
            held.runner.hold()
            first = asyncio.ensure_future(queue.put(b"sync 1", durability="sync"))
            await held.wait_for_job()
            queue.put_nowait(b"memory")
            second = asyncio.ensure_future(queue.put(b"sync 2", durability="sync"))
            await held.turns()
            held.runner.step()
            await first
            assert [queue.take_nowait(), queue.take_nowait()] == [b"sync 1", b"memory"]
            held.runner.let_go()
            await second

    play(scene)


def test_close_ends_while_a_job_is_under_way() -> None:
    """It waited for ever if nothing else was left to be done when that job had ended."""

    async def scene() -> None:
        held = Held()
        store = await fifoq.open_store("/store", files=SimFiles(), runner=held)
        queue = await store.queue()
        await queue.put(b"a")
        committer = store._committer
        held.runner.hold()
        closing = asyncio.ensure_future(store.close())
        reading = committer.call(lambda log: None)
        while not closing.done():
            await asyncio.sleep(0)
            if committer.closed and reading.done():
                held.runner.step()
            elif held.runner.waiting is not None and committer._last is None:
                await held.turns()
                held.runner.step()
        await closing
        assert queue.closed
        assert reading.done()

    play(scene)


def test_a_lease_whose_time_is_already_over_works_on_uvloop() -> None:
    """uvloop's timers that are due at once cannot tell when they are due."""

    async def scene() -> None:
        async with fifoq.open("/store", files=SimFiles(), durability="memory") as queue:
            queue.put_nowait(b"a")
            queue.put_nowait(b"b")
            await queue.lease(seconds=0.0001)
            await queue.lease(seconds=0.0001)
            await until(lambda: not queue.stats().leased)
            assert await queue.take_many(2) == [b"a", b"b"]

    uvloop.run(scene())


@pytest.mark.parametrize("level", ["memory", "sync"])
def test_what_is_put_while_the_store_closes_is_written_or_refused(level: Any) -> None:
    """Records in memory were lost, and a put that waits for its commit waited for ever."""
    files = SimFiles()

    async def scene() -> None:
        held = Held()
        store = await fifoq.open_store("/store", files=files, runner=held)
        queue = await store.queue()
        queue.put_nowait(b"early")
        held.runner.hold()
        closing = asyncio.ensure_future(store.close())
        await held.wait_for_job()
        late = asyncio.ensure_future(queue.put(b"late", durability=level))
        await held.turns()
        held.runner.let_go()
        await asyncio.wait([closing, late])
        closing.result()
        expected = [b"early", b"late"] if late.exception() is None else [b"early"]
        async with fifoq.open("/store", files=files) as reopened:
            assert [record.item async for record in reopened.browse()] == expected

    play(scene)


def test_a_taker_that_leaves_while_the_store_closes_leaves_its_record() -> None:
    """Its record came back too late for the last frame, and was lost."""
    files = SimFiles()

    async def scene() -> None:
        held = Held()
        store = await fifoq.open_store("/store", files=files, runner=held)
        queue = await store.queue()
        await queue.put(b"a")
        held.runner.hold()
        taking = asyncio.ensure_future(queue.take())
        closing = asyncio.ensure_future(store.close())
        await held.wait_for_job()
        taking.cancel()
        await held.turns()
        held.runner.let_go()
        await closing
        assert taking.cancelled()
        async with fifoq.open("/store", files=files) as reopened:
            assert await reopened.take(timeout=5) == b"a"

    play(scene)


def test_memory_records_that_a_full_disk_refused_can_be_taken_and_are_written_later(
    tmp_path: Path,
) -> None:
    """They were skipped for good: the refused batch counted as handed out."""
    files = SmallDisk()
    records = [bytes([number]) * (1 << 20) for number in range(8)]

    async def scene() -> None:
        async with fifoq.open(tmp_path / "store", files=files, durability="memory") as queue:
            await queue.flush()
            files.full = True
            for record in records:
                queue.put_nowait(record)
            with pytest.raises(fifoq.DiskFull):
                await queue.flush()
            assert queue.take_nowait() == records[0]
            files.full = False
            await queue.flush()
            assert await queue.take(timeout=5) == records[1]
        async with fifoq.open(tmp_path / "store") as queue:
            assert [record.item async for record in queue.browse()] == records[2:]

    play(scene)


def test_browse_says_that_a_full_disk_keeps_it_from_seeing_everything(tmp_path: Path) -> None:
    """It left out what was not written, as if it were not there."""
    files = SmallDisk()
    records = [bytes([number]) * (1 << 20) for number in range(8)]

    async def scene() -> None:
        async with fifoq.open(tmp_path / "store", files=files, durability="memory") as queue:
            await queue.put(b"on disk")
            await queue.flush()
            files.full = True
            for record in records:
                queue.put_nowait(record)
            with pytest.raises(fifoq.DiskFull):
                [record async for record in queue.browse()]
            files.full = False
            assert [record.item async for record in queue.browse()] == [b"on disk", *records]

    play(scene)


def test_a_removal_of_a_record_that_a_full_disk_refused_waits_for_the_record(
    tmp_path: Path,
) -> None:
    """It was written without the record, which the store refused, and the committer stood still."""
    files = SmallDisk()

    async def scene() -> None:
        async with fifoq.open(
            tmp_path / "store",
            files=files,
            durability="memory",
            buffer_bytes=64 << 20,
            flush_interval=60.0,
        ) as queue:
            queue.put_nowait(b"on disk")
            await queue.flush()
            files.full = True
            for _ in range(8):
                queue.put_nowait(bytes(1 << 20))
            assert queue.take_nowait() == b"on disk"
            assert queue.take_nowait() == bytes(1 << 20)
            with pytest.raises(fifoq.DiskFull):
                await queue.flush()
            files.full = False
            await queue.flush()
        async with fifoq.open(tmp_path / "store") as queue:
            assert len(queue) == 7

    play(scene)


@pytest.mark.parametrize("level", ["sync", "os"])
def test_a_put_that_leaves_before_the_seal_is_not_in_the_queue(level: Any) -> None:
    async def scene() -> None:
        held = Held()
        async with fifoq.open("/store", files=SimFiles(), durability=level, runner=held) as queue:
            held.runner.hold()
            first = asyncio.ensure_future(queue.put(b"under way"))
            await held.wait_for_job()
            second = asyncio.ensure_future(queue.put(b"not sealed"))
            await held.turns()
            assert not first.done()
            assert queue.empty()
            second.cancel()
            await asyncio.wait([second])
            held.runner.let_go()
            await first
            assert [record.item async for record in queue.browse()] == [b"under way"]

    play(scene)


def test_nobody_passes_a_record_that_is_on_its_way_back(tmp_path: Path) -> None:
    """A consumer whose take timed out in the middle of its commit got the next record first."""
    held = Held()

    async def scene() -> None:
        async with fifoq.open(tmp_path / "store", runner=held) as queue:
            await queue.put_many([b"a", b"b"])
            held.runner.hold()
            first = asyncio.ensure_future(queue.take())
            await held.wait_for_job()
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            again = asyncio.ensure_future(queue.take())
            await held.turns()
            assert not again.done()
            held.runner.let_go()
            assert (await again, await queue.take()) == (b"a", b"b")

    play(scene)
