"""Zeros ahead by the ring: written between two commits, and nobody's trouble."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

import fifoq
from fifoq import Queue
from fifoq.jobs import Commit
from fifoq.uring import Ring
from fifoq.writer import Job, Writer
from store import Filling, Log, Status, filling
from tests.fifoq.loops import on_each_loop, turns
from tests.fifoq.ring.support import SECONDS_MAX, contents, count_filled, count_writes, runner_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("level", ["os", "memory"])
@on_each_loop
async def test_the_ring_writes_zeros_ahead_between_two_commits(
    place: Path, monkeypatch: pytest.MonkeyPatch, level: Literal["os", "memory"]
) -> None:
    """The thread did that, a megabyte at once, while somebody waited for the frame behind it."""
    async with fifoq.open(place, durability=level) as queue:
        # Counters are covered, and room for the removal of as many as ever is held, by the thread.
        await queue.put_many([b"x"] * 3000)
        await queue.flush()
        given: list[object] = []
        start = Writer.start

        def watched(writer: Writer, job: Job) -> None:
            given.append(job)
            start(writer, job)

        monkeypatch.setattr(Writer, "start", watched)
        filled = count_filled(monkeypatch)
        for _ in range(100):
            await queue.put_many([bytes(1000)] * 50)
            await queue.next_commit()
        assert sum(filled) > 4_000_000
        assert not [job for job in given if isinstance(job, Commit)]
        monkeypatch.undo()
    assert len(await contents(place)) == 8000


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: -errno.ENOSPC, id="full"),
        pytest.param(lambda _: -errno.EIO, id="failed"),
        pytest.param(lambda _: 4096, id="short"),
    ],
)
async def test_zeros_for_which_there_is_no_space_are_nobodys_trouble(
    place: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[int], int]
) -> None:
    async with fifoq.open(place, durability="os") as queue:
        await queue.put_many([bytes(1000)] * 20)
        await queue.flush()
        runner, result = runner_of(queue), Ring.result

        def changed(ring: Ring) -> int | None:
            found = result(ring)
            return found if found is None or not isinstance(runner._begun, Filling) else change(0)

        monkeypatch.setattr(Ring, "result", changed)
        filled = count_filled(monkeypatch)
        begun: list[Log] = []
        begin = filling.begin

        def counted(log: Log) -> Filling | None:
            begun.append(log)
            return begin(log)

        monkeypatch.setattr(filling, "begin", counted)
        for _ in range(60):
            await queue.put_many([bytes(1000)] * 50)
        assert not filled
        assert len(begun) < 10, "not behind each of them: only once there was space again"
        assert runner.kind == "io_uring"
        monkeypatch.undo()
    assert len(await contents(place)) == 3020


async def test_behind_synced_records_no_zeros_are_left_unsynced(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would keep every synced frame waiting for the thread."""
    filled, durable = count_filled(monkeypatch), count_writes(monkeypatch)
    for _ in range(30):
        await queue.put_many([bytes(1000)] * 50)
    assert not filled
    assert len(durable) > 20


class Kept:
    """Keeps back what the kernel says of zeros, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, queue: Queue[bytes]) -> None:
        self._queue = queue
        self._runner = runner_of(queue)
        self.holds = True
        result = Ring.result
        monkeypatch.setattr(
            Ring, "result", lambda ring: None if self.holds and self.has_begun else result(ring)
        )

    @property
    def has_begun(self) -> bool:
        return isinstance(self._runner._begun, Filling)

    async def come(self) -> int:
        """Put until zeros are being written; returns how many records that were."""
        for count in range(50, 3000, 50):
            await self._queue.put_many([bytes(1000)] * 50)
            if self.has_begun:
                return count
        raise AssertionError("no zeros were written")


@pytest.fixture
async def written(place: Path) -> AsyncIterator[Queue[bytes]]:
    """A queue that writes zeros ahead soon, with 3,000 records."""
    async with fifoq.open(place, durability="os") as queue:
        await queue.put_many([b"x"] * 3000)
        await queue.flush()
        yield queue


async def test_who_comes_while_zeros_are_written_waits_for_them_and_loses_nothing(
    written: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(monkeypatch, written)
    count = 3000 + await kept.come()
    assert await written.peek() == b"x"
    taken = asyncio.ensure_future(written.take_many(10))
    cancelled = asyncio.ensure_future(written.put(b"cancelled", durability="sync"))
    put = asyncio.ensure_future(written.put(b"synced", durability="sync"))
    flushed = asyncio.ensure_future(written.flush())
    await turns(10)
    cancelled.cancel()
    await turns(10)
    assert not any(waiting.done() for waiting in (taken, put, flushed))
    kept.holds = False
    async with asyncio.timeout(SECONDS_MAX):
        found = await taken
        await put
        await flushed
    await written.close()
    left = await contents(place)
    assert found == [b"x"] * 10
    assert left[-1] == b"synced"
    assert len(left) + 10 in (count + 1, count + 2), "what was cancelled is there or not"


async def test_a_close_waits_for_zeros(
    written: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(monkeypatch, written)
    count = 3000 + await kept.come()
    closing = asyncio.ensure_future(written.close())
    await turns(10)
    assert not closing.done()
    kept.holds = False
    await asyncio.wait_for(closing, SECONDS_MAX)
    assert len(await contents(place)) == count


async def test_a_fork_while_zeros_are_written_is_the_parents(
    written: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log itself told the child of another thread."""
    kept = Kept(monkeypatch, written)
    count = 3000 + await kept.come()
    log = written._committer.log
    assert log is not None
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        told = []
        for call in (lambda: written.put_nowait(b"child's"), lambda: log.put("a", [b"child's"])):
            try:
                call()
            except BaseException as error:
                told.append(type(error).__name__)
        os.write(writer, " ".join(told).encode())
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1000) == b"ForkError ForkError"
    os.close(reader)
    os.waitpid(child, 0)
    kept.holds = False
    await asyncio.wait_for(written.put(b"parent's"), SECONDS_MAX)
    await written.close()
    assert len(await contents(place)) == count + 1


def test_a_loop_that_ends_while_zeros_are_written_leaves_a_store_that_opens(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave() -> tuple[Queue[bytes], Kept, int]:
        queue = await fifoq.open(place, durability="os")
        await queue.put_many([b"x"] * 3000)
        await queue.flush()
        kept = Kept(monkeypatch, queue)
        return queue, kept, 3000 + await kept.come()

    with asyncio.Runner() as runner:
        queue, kept, count = runner.run(leave())
    kept.holds = False
    asyncio.run(queue.close())
    assert len(asyncio.run(contents(place))) == count


@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("from_zeros", [True, False], ids=["zeros' end", "frames' end"])
@pytest.mark.parametrize("beyond", [-4096, -8, -1, 0, 1, 8, 512, 4096, 100_000])
async def test_a_limit_anywhere_near_what_is_written_ahead_refuses_and_nothing_more(
    written: Queue[bytes], place: Path, beyond: int, from_zeros: bool, size: int
) -> None:
    log, runner = written._committer.log, runner_of(written)
    assert log is not None
    start = log.tail.filled if from_zeros else (log.tail.length // 4096 + 2) * 4096
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    count = 3000
    resource.setrlimit(resource.RLIMIT_FSIZE, (start + beyond, hard))
    try:
        for number in range(60):
            with suppress(fifoq.DiskFull):
                level: Literal["sync", "os"] = "os" if number % 4 else "sync"
                await written.put_many([bytes(size)] * 20, durability=level)
                count += 20
        assert len(await written.take_many(10)) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert log.status is Status.OPEN
    assert runner.kind == "io_uring", "the limit has gone, and the ring has not"
    await written.put(b"last")
    await written.close()
    assert len(await contents(place)) == count - 10 + 1
