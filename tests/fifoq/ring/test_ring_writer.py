"""The writer with a ring: real writes of the kernel, and every way in which one can end.

Where this machine has no ring, or the scratch directory lies on a file system without direct
writes, its tests are counted as not run.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

import fifoq
from fifoq import Queue, ring_writer, uring
from fifoq.direct import BLOCK_BYTES_MAX
from fifoq.file_clock import FileClock
from fifoq.jobs import Commit
from fifoq.ring_writer import RingWriter, live_writer
from fifoq.uring import Ring
from fifoq.writer import Writer
from store import Status, open_log
from store.files import Handle
from store.osfiles import OsFiles
from tests.fifoq.loops import on_each_loop
from tests.fifoq.ring.support import (
    SECONDS_MAX,
    answer,
    contents,
    count_writes,
    let_notes,
    runner_of,
)
from tests.rigs.conftest import NotRun
from tests.support.leftovers import assert_nothing_is_left_behind

pytestmark = pytest.mark.anyio

Results = list[int | None]


@on_each_loop
async def test_what_the_ring_wrote_is_there_in_order(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of all sizes, so that they end anywhere in a block, cross blocks and segments."""
    sizes = [0, 1, 100, 3900, 3950, 4000, 4096, 9000, 20_000] * 12
    items = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    lengths = count_writes(monkeypatch)
    expected: list[bytes] = []
    async with fifoq.open(place, segment_bytes=128 << 10) as queue:
        for number, item in enumerate(items):
            await queue.put(item)
            expected.append(item)
            if number % 5 == 0:
                await queue.put(b"os", durability="os")
                expected.append(b"os")
                assert await queue.take() == expected.pop(0)
            if number % 7 == 0:
                assert [record.item async for record in queue.browse()] == expected
        assert queue.stats().writer == "io_uring"
    assert await contents(place) == expected
    assert len(lengths) > len(items) // 2
    assert all(length % BLOCK_BYTES_MAX == 0 for length in lengths)


async def test_behind_the_last_frame_are_zeros(queue: Queue[bytes], place: Path) -> None:
    """Whatever lay there would be taken for a frame that was cut short, or worse."""
    for size in (9000, 10, 3000, 10):
        await queue.put(bytes([7]) * size)
    log = queue._committer.log
    assert log is not None
    (segment,) = place.glob("*.log")
    assert not any(segment.read_bytes()[log.tail.length :])


async def test_takes_and_transactions_go_through_the_ring_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fifoq.open_store(place) as store:
        queue = await store.queue()
        await queue.put_many([b"first", b"second", b"third"])
        lengths = count_writes(monkeypatch)
        assert await queue.take() == b"first"
        assert len(lengths) == 1
        async with store.transaction() as transaction:
            transaction.put(queue, b"fourth")
        assert len(lengths) == 2
    assert await contents(place) == [b"second", b"third", b"fourth"]


async def test_another_process_reads_what_the_ring_wrote(queue: Queue[bytes], place: Path) -> None:
    for number in range(50):
        await queue.put(b"%d" % number)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fifoq", "peek", str(place), "--count", "100"),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert printed.split() == [b"first", *(b"%d" % number for number in range(50))]


async def test_a_sync_that_fails_in_the_ring_stops_the_store_and_is_not_tried_again(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = count_writes(monkeypatch)
    answer(monkeypatch, lambda _: -errno.EIO)
    with pytest.raises(fifoq.DurabilityError) as raised:
        await queue.put(b"second")
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EIO
    with pytest.raises(fifoq.FifoqError):
        await queue.put(b"third")
    assert len(lengths) == 1


@pytest.mark.parametrize("noted", [False, True], ids=["before it is noted", "noted"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: -errno.EINVAL, id="refused"),
        pytest.param(lambda result: result - 512, id="short"),
    ],
)
async def test_what_the_ring_does_not_do_the_thread_does_from_then_on(
    queue: Queue[bytes],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[int], int],
    noted: bool,
) -> None:
    answer(monkeypatch, change)
    let_notes(monkeypatch, queue, noted)
    for item in (b"second", b"third", b"fourth"):
        await queue.put(item)
    assert queue.stats().writer == "thread"
    await queue.close()
    assert await contents(place) == [b"first", b"second", b"third", b"fourth"]


async def test_a_commit_is_noted_while_the_disk_is_at_it(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = let_notes(monkeypatch, queue, True)
    putting = asyncio.ensure_future(queue.put(b"second"))
    async with asyncio.timeout(20):
        while not noted:
            await asyncio.sleep(0)
    assert not putting.done()
    assert len(queue) == 1, "nobody sees it before it is durable"
    await putting
    assert (len(noted), len(queue)) == (1, 2)
    await queue.close()
    assert await contents(place) == [b"first", b"second"]


async def test_a_ring_that_takes_no_request_is_given_up(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Ring, "write", refuse)
    await queue.put(b"second")
    assert queue.stats().writer == "thread"
    await queue.close()
    assert await contents(place) == [b"first", b"second"]


async def test_a_block_that_is_not_in_memory_is_not_waited_for(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop would have read it from the disk; now the thread writes that one frame."""
    lengths = count_writes(monkeypatch)
    with monkeypatch.context() as patch:

        def nothing_cached(*_: Any) -> int:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        patch.setattr(os, "preadv", nothing_cached)
        runner_of(queue)._direct._end = -1
        await queue.put(b"second")
    assert (lengths, queue.stats().writer) == ([], "io_uring")
    await queue.put(b"third")
    assert len(lengths) == 1


async def test_a_slow_disk_is_heard_of_without_looking(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns of the loop are spent on a commit that is young, and on no other."""
    looks = 0
    look = RingWriter._look_again

    def counting(runner: RingWriter) -> None:
        nonlocal looks
        looks += 1
        look(runner)

    monkeypatch.setattr(RingWriter, "_look_again", counting)
    monkeypatch.setattr(ring_writer, "LOOK_SECONDS", -1.0)
    await queue.put(b"second")
    seen = looks
    for number in range(20):
        await queue.put(b"%d" % number)
    assert seen <= 1, "the first one finds that it is not young"
    assert looks == seen, "the others were told"


async def test_a_thread_that_only_waits_keeps_nobody_from_looking(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One idle thread of a pool, as nearly every service has, cost a third of the rate."""
    looked: list[None] = []
    look = RingWriter._look_again

    def counting(runner: RingWriter) -> None:
        looked.append(None)
        look(runner)

    monkeypatch.setattr(RingWriter, "_look_again", counting)
    monkeypatch.setattr(ring_writer, "LOOK_SECONDS", 60.0)
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    for number in range(5):
        await queue.put(b"%d" % number)
    end.set()
    other.join()
    assert looked


# What is not synced.


@pytest.mark.parametrize("level", ["os", "memory"])
@on_each_loop
async def test_the_ring_writes_what_is_not_synced_too(
    place: Path, monkeypatch: pytest.MonkeyPatch, level: Literal["os", "memory"]
) -> None:
    items = [b"%d" % number * (number % 300) for number in range(2000)]
    async with fifoq.open(place, durability=level) as queue:
        # Counters are covered and room is held by the thread.
        await queue.put_many(items)
        await queue.flush()
        unsynced = count_writes(monkeypatch, durably=False)
        durable = count_writes(monkeypatch)
        for start in range(0, len(items), 100):
            await queue.put_many(items[start : start + 100])
            await queue.next_commit()
            await queue.take_many(100)
        assert len(unsynced) > len(items) // 200, "now and then the thread makes room"
        assert not durable
        await queue.put(b"its sync covers those before", durability="sync")
        assert not durable, "the ring syncs nothing but its own frame"
        await queue.put(b"follows what is durable", durability="sync")
        assert len(durable) == 1
        assert queue.stats().writer == "io_uring"
    assert (await contents(place))[-3:-1] == [items[-1], b"its sync covers those before"]


async def test_nobody_looks_for_the_end_of_what_nobody_waits_for(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counters are covered and room is held by the thread.
    queue.put_nowait(b"first")
    await queue.put_many([b"x"] * 1000)
    looked: list[None] = []
    monkeypatch.setattr(RingWriter, "_look_again", lambda _: looked.append(None))
    lengths = count_writes(monkeypatch, durably=False)
    runner_of(queue)._quick = True
    commits = queue.stats().commits
    for number in range(1000):
        queue.put_nowait(b"%d" % number)
    async with asyncio.timeout(30):
        while queue.stats().commits == commits:
            await asyncio.sleep(0)
    assert lengths
    assert not looked


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: -errno.ENOSPC, id="full"),
        pytest.param(lambda _: -errno.EIO, id="failed"),
        pytest.param(lambda result: result - 7, id="short"),
        pytest.param(lambda _: 0, id="nothing"),
    ],
)
async def test_what_is_not_synced_and_not_written_by_the_ring_the_thread_writes(
    place: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[int], int]
) -> None:
    """The thread's own error tells, if there is one; here the bytes fit after all."""
    async with fifoq.open(place, durability="os") as queue:
        await queue.put(b"first")
        lengths = count_writes(monkeypatch, durably=False)
        with monkeypatch.context() as patch:
            answer(patch, change)
            for item in (b"second", b"third"):
                await queue.put(item)
        assert len(lengths) == 2
        await queue.put(b"fourth")
        assert queue.stats().writer == "io_uring"
    assert await contents(place) == [b"first", b"second", b"third", b"fourth"]


async def test_a_disk_that_is_full_refuses_what_is_not_synced_and_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring's write and the thread's both find no space: nothing of the frame is there."""
    async with fifoq.open(place, durability="os") as queue:
        await queue.put(b"first")

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            answer(patch, lambda _: -errno.ENOSPC)
            patch.setattr(OsFiles, "pwrite", full)
            with pytest.raises(fifoq.DiskFull):
                await queue.put(b"second")
        await queue.put(b"third")
    assert await contents(place) == [b"first", b"third"]


async def test_what_the_kernel_refuses_at_once_is_refused_before_it_is_noted(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind that there would be no way back: the store would stop instead of refusing a put."""
    result = Ring.result

    def at_once(ring: Ring) -> int:
        while result(ring) is None:
            os.sched_yield()
        return -errno.ENOSPC

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(FileClock, "stands_still", lambda *_: True)
        patch.setattr(Ring, "result", at_once)
        patch.setattr(OsFiles, "pwrite", full)
        with pytest.raises(fifoq.DiskFull):
            await queue.put(b"second")
    await queue.put(b"third")
    await queue.close()
    assert await contents(place) == [b"first", b"third"]


@pytest.mark.parametrize("beyond", [0, 1000, 4096])
async def test_a_frame_that_a_limit_cuts_through_is_refused(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    """The kernel wrote a part of it, which had been noted by then, and that stopped the store."""
    assert queue._committer.log is not None
    limit = queue._committer.log.tail.length + beyond
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with monkeypatch.context() as patch:
        noted = let_notes(patch, queue, True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(fifoq.DiskFull):
                await queue.put(bytes(10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert not noted
    await queue.put(b"third")
    await queue.close()
    assert await contents(place) == [b"first", b"third"]


@pytest.mark.parametrize("level", ["sync", "os"])
@pytest.mark.parametrize("number", [errno.ECANCELED, errno.EINVAL, errno.EOPNOTSUPP])
async def test_a_ring_that_never_writes_here_is_given_up(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int, level: Literal["sync", "os"]
) -> None:
    """Where the kernel may make no thread, a write is cancelled before it is tried."""
    async with fifoq.open(place, durability=level) as queue:
        await queue.put(b"first")
        with monkeypatch.context() as patch:
            answer(patch, lambda _: -number)
            await queue.put(b"second")
        assert queue.stats().writer == "thread"
        await queue.put(b"third")
    assert await contents(place) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("level", ["sync", "os"])
async def test_on_other_file_systems_the_thread_writes(
    place: Path, monkeypatch: pytest.MonkeyPatch, level: Literal["sync", "os"]
) -> None:
    monkeypatch.setattr("fifoq.direct.overwrites_in_place", lambda _: False)
    lengths = count_writes(monkeypatch, durably=level == "sync")
    async with fifoq.open(place, durability=level) as queue:
        for number in range(3):
            await queue.put(b"%d" % number)
        assert queue.stats().writer == "thread"
    assert lengths == []


# Who starts a write.


class Started:
    """Which writes the loop started itself, and of which file each was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        self.at_once: list[bool] = []
        self._write = Ring.write
        monkeypatch.setattr(Ring, "write", self.noting())

    def noting(self) -> Callable[..., None]:
        def write(ring: Ring, *where: int, durably: bool, at_once: bool) -> None:
            self.files.append(os.fstat(where[0]).st_ino)
            self.at_once.append(at_once)
            self._write(ring, *where, durably=durably, at_once=at_once)

        return write


async def test_the_loop_starts_a_write_itself_only_if_the_file_keeps_its_time(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's new time is noted in the journal, and a disk that hangs would hold up the loop."""
    started, answers = Started(monkeypatch), [False, True, True, False]
    monkeypatch.setattr(FileClock, "stands_still", lambda *_: answers[len(started.at_once)])
    for _ in answers:
        await queue.put(b"x")
    assert started.at_once == answers


async def test_each_segment_has_its_own_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their descriptors have the same number, one after the other."""
    started, seen = Started(monkeypatch), []

    def is_the_last(clock: FileClock, file: object) -> bool:
        seen.append(file)
        return seen[-2:-1] == [file]

    monkeypatch.setattr(FileClock, "stands_still", is_the_last)
    async with fifoq.open(place, segment_bytes=64 << 10) as queue:
        for _ in range(60):
            await queue.put(bytes(5000))
    assert len(set(started.files)) > 2
    before = [-1, *started.files]
    wanted = [file == last for file, last in zip(started.files, before, strict=False)]
    assert started.at_once == wanted


async def test_puts_that_never_suspend_hear_of_the_end_too(queue: Queue[bytes]) -> None:
    receipts = []
    deadline = time.monotonic() + SECONDS_MAX
    while queue.stats().commits <= 2:
        # Full as long as the disk is slow; whoever is refused looks for the end too.
        with suppress(fifoq.QueueFull):
            for number in range(1000):
                receipts.append(queue.submit(b"%d" % number))
        assert time.monotonic() < deadline, "without a turn of the loop"
    for receipt in receipts:
        await receipt
    assert len(queue) > len(receipts)


@pytest.mark.parametrize("level", ["sync", "os"])
@pytest.mark.parametrize("wait", [True, False])
def test_a_store_whose_loop_ends_in_the_middle_keeps_what_was_under_way(
    place: Path, wait: bool, level: Literal["sync", "os"]
) -> None:
    """The loop is gone, the kernel is not: what it wrote is noted before the lock is let go."""

    async def leave() -> None:
        queue = await fifoq.open(place, durability=level)
        await queue.put(b"first")
        task = asyncio.ensure_future(queue.put(b"second"))
        await asyncio.sleep(0)
        if wait:
            await task

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()
    gc.collect()
    found = asyncio.run(contents(place))
    assert found[:1] == [b"first"]
    assert found in ([b"first"], [b"first", b"second"])
    assert not wait or len(found) == 2


def test_a_closed_store_leaves_no_descriptor(place: Path) -> None:
    async def work() -> None:
        async with fifoq.open(place) as queue:
            await queue.put(b"x")

    asyncio.run(work())
    with assert_nothing_is_left_behind():
        asyncio.run(work())


@pytest.mark.parametrize("reason", ["old kernel", "forbidden", "asked for"])
async def test_where_there_is_no_ring_the_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "old kernel":
        monkeypatch.setattr(uring, "KERNEL_MIN", (1000, 0))
    elif reason == "forbidden":

        def forbid(*_: Any) -> int:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(uring, "_call", forbid)
    else:
        monkeypatch.setenv("FIFOQ_WRITER", "thread")
    async with fifoq.open(tmp_path / "store") as queue:
        await queue.put(b"x")
        assert queue.stats().writer == "thread"


async def test_a_ring_is_not_left_behind_when_no_thread_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with assert_nothing_is_left_behind(), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            live_writer(asyncio.get_running_loop(), lambda: None, "test")


def test_a_result_that_nobody_took_is_not_that_of_the_next_request(
    tmp_path: Path, not_run: NotRun
) -> None:
    """Who was interrupted between the two had all later commits confirmed before they were."""
    not_run.unless_rings_work()
    ring, data = Ring(), ctypes.create_string_buffer(300)
    with (tmp_path / "file").open("wb") as file:
        for length in (100, 200, 300):
            where = file.fileno(), ctypes.addressof(data), length, 0
            ring.write(*where, durably=False, at_once=False)
            ring.wait()
            assert ring.result() == length
    ring.close()


async def test_a_segment_that_is_gone_is_not_held_open(place: Path) -> None:
    async with fifoq.open(place, segment_bytes=64 << 10) as queue:
        await queue.put(b"first")
        await queue.put(b"second")
        for _ in range(50):
            await queue.put(bytes(5000), durability="os")
            await queue.take()
        while len(queue):
            await queue.take()
        await queue.flush()
        names = [_target(Path(f"/proc/self/fd/{name}")) for name in os.listdir("/proc/self/fd")]
        assert [name for name in names if "(deleted)" in name and str(place) in name] == []


def _target(link: Path) -> str:
    with suppress(FileNotFoundError):
        return os.readlink(link)
    return ""


@pytest.mark.parametrize("level", ["sync", "os"])
async def test_the_child_of_a_fork_has_nothing_of_the_ring(
    queue: Queue[bytes], place: Path, level: Literal["sync", "os"]
) -> None:
    await queue.put(b"second", durability=level)
    receipt = queue.submit(b"under way", durability=level)
    queue._committer.pump()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        targets = [_target(Path(f"/proc/self/fd/{name}")) for name in os.listdir("/proc/self/fd")]
        kept = [name for name in targets if "io_uring" in name or str(place) in name]
        os.write(writer, repr(kept).encode())
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 10_000) == b"[]"
    os.close(reader)
    os.waitpid(child, 0)
    await receipt
    await queue.put(b"third")
    assert len(queue) == 4


async def test_a_wrong_word_in_the_environment_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIFOQ_WRITER", "tread")
    with pytest.raises(ValueError, match="'tread' is neither io_uring nor thread"):
        await fifoq.open(place)


@pytest.mark.parametrize("sync", [True, False])
async def test_what_a_ring_began_is_noted_before_the_log_is_let_go(place: Path, sync: bool) -> None:
    """The loop may be gone by then, and nobody hears of the end but who waits for it."""
    log = open_log(str(place))
    log.put("a", [b"first"], sync=sync)
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    runner = RingWriter(asyncio.get_running_loop(), lambda: None, "test")
    runner.start(Commit(log, draft, sync, [], [], 0, 1))
    assert runner.under_way == {runner}
    runner.stop()
    runner.join()
    assert log.status is Status.OPEN
    assert [payload for block in log.read("a") for payload in block.payloads()] == [
        b"first",
        b"second",
    ]
    log.close()


async def test_files_that_are_not_the_real_ones_see_every_write(place: Path) -> None:
    """Handles of others are numbers that may be anybody's descriptors, and faults are theirs."""
    written: list[bytes] = []

    class Seeing(OsFiles):
        def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
            written.append(bytes(data))
            return super().pwrite(handle, data, offset)

    async with fifoq.open(place, files=Seeing()) as queue:
        for item in (b"first", b"second", b"third"):
            await queue.put(item)
            assert item in written[-1]
        assert queue.stats().writer == Writer.kind
