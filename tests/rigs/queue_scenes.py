"""Scenes of queues on failing disks: `python -m tests.rigs.queue_scenes NAME DIRECTORY`.

Each one plays on real files below DIRECTORY and ends with status 0 if all went as promised. Those
that mount something must run in a mount namespace; see `mounts.assert_runs_private`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, Final

import fifoq
from fifoq import Queue
from fifoq.ring_writer import WRITER_VARIABLE
from store.osfiles import OsFiles
from tests.rigs import mounts

DEADLINE_SECONDS: Final = 60.0
RECORD_BYTES: Final = 16000
FULL_BYTES: Final = 12 * mounts.MIB
SEGMENT_BYTES: Final = 256 << 10
MEMORY_RECORDS: Final = 250
"""More than are filled ahead, and fewer than fit on the disk once it has space again."""
LAG_SECONDS_MAX: Final = 0.1
"""Generous: the machine is shared. What was measured is printed."""
HANG_SECONDS: Final = 0.4


def item(number: int) -> bytes:
    return number.to_bytes(8, "big") * (RECORD_BYTES // 8)


async def raises(kind: type[BaseException], call: Coroutine[Any, Any, object]) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


# A full disk.


async def full_sync(point: Path) -> None:
    """Puts are refused, what was confirmed drains to empty, puts work again."""
    async with fifoq.open(point / "store", segment_bytes=SEGMENT_BYTES) as queue:
        count = await _fill(queue)
        await raises(fifoq.DiskFull, queue.put_many([item(0)] * 50))
        assert len(queue) == count, (len(queue), count)
        for number in range(count):
            assert await queue.take(timeout=5) == item(number)
        assert queue.empty()
        await queue.put(item(7))
    async with fifoq.open(point / "store") as queue:
        assert await queue.take(timeout=5) == item(7)


async def _fill(queue: Queue[bytes]) -> int:
    count = 0
    while True:
        try:
            await queue.put(item(count))
        except fifoq.DiskFull:
            return count
        count += 1


async def full_leases(point: Path) -> None:
    """Leases, acks in any order and nacks work on a full disk."""
    async with fifoq.open(point / "store", segment_bytes=SEGMENT_BYTES, max_retries=None) as queue:
        count = await _fill(queue)
        while count:
            held = [await queue.lease(timeout=5) for _ in range(min(count, 20))]
            for delivery in reversed(held[1:]):
                await delivery.ack()
            held[0].nack(delay=0)
            again = await queue.lease(timeout=5)
            assert again.item == held[0].item
            await again.ack()
            count -= len(held)
        assert queue.empty()


async def full_memory(point: Path) -> None:
    """Records in memory are refused once the disk is, stay in order, and are written in the end."""
    async with fifoq.open(
        point / "store", segment_bytes=SEGMENT_BYTES, durability="memory"
    ) as queue:
        await queue.put(item(0))
        await queue.flush()
        ballast = _fill_up(point)
        count = 1
        with contextlib.suppress(fifoq.DiskFull):
            while count < MEMORY_RECORDS:
                await queue.put(item(count))
                count += 1
        await raises(fifoq.DiskFull, queue.flush())
        taken = count // 3
        for number in range(taken):
            assert await queue.take(timeout=5) == item(number), number
        ballast.unlink()
        await queue.flush()
        await queue.put(item(count))
        await queue.flush()
    async with fifoq.open(point / "store") as queue:
        found = [record.item async for record in queue.browse()]
        assert found == [item(number) for number in range(taken, count + 1)]


def _fill_up(point: Path) -> Path:
    """Take what is free; returns the file that has it."""
    ballast = point / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


# Failing and read-only disks.


async def read_only(point: Path) -> None:
    """What fails on a disk that turned read-only fails with ours; a reopen has all confirmed."""
    queue = await fifoq.open(point / "store", segment_bytes=64 << 10)
    for number in range(10):
        await queue.put(item(number))
    mounts.cut_power(point, mounts.FLUSH_ALL)
    await raises(fifoq.FifoqError, queue.put_many([item(99)] * 40))
    await raises(fifoq.FifoqError, queue.put(item(98)))
    await raises(fifoq.FifoqError, queue.take())
    with contextlib.suppress(fifoq.FifoqError):
        await queue.close()


async def dead_disk(point: Path) -> None:
    """A commit that is an ordinary one fails at the disk: it says so, and the queue has stopped."""
    queue = await fifoq.open(point / "store")
    for number in range(10):
        await queue.put(item(number))
    assert queue.stats().writer == os.environ[WRITER_VARIABLE]
    mounts.cut_power(point, mounts.FLUSH_ALL)
    await raises(fifoq.DurabilityError, queue.put(b"small"))
    await raises(fifoq.StoreFailed, queue.put(b"small"))
    await raises(fifoq.StoreFailed, queue.take())
    with contextlib.suppress(fifoq.FifoqError):
        await queue.close()


async def failing_sync(directory: Path) -> None:
    """Puts until a sync fails (strace does that); prints what was confirmed."""
    queue: Queue[bytes] | None = None
    try:
        queue = await fifoq.open(directory / "store", segment_bytes=64 << 10)
        for number in range(200):
            await queue.put(item(number))
            print(number, flush=True)
    except (fifoq.DurabilityError, fifoq.StoreFailed):
        if queue is None:
            print("failed while opening")
            return
        for call in (queue.put(b"x"), queue.take(), queue.flush(), queue.put_many([b"x"])):
            await raises(fifoq.StoreFailed, call)
    assert queue is not None
    with contextlib.suppress(fifoq.FifoqError):
        await queue.close()


# Owners.


async def owners(directory: Path) -> None:
    path = directory / "store"
    (directory / "link").symlink_to(path)
    (directory / "x").mkdir()
    queue = await fifoq.open(path)
    await queue.put(b"a")
    await raises(fifoq.AlreadyOpen, _open(path))
    await raises(fifoq.FifoqError, _open(directory / "link"))
    await raises(fifoq.AlreadyOpen, _open(directory / "." / "x" / ".." / "store"))
    code = (
        "import asyncio, fifoq, sys\nasync def main():\n    await fifoq.open(sys.argv[1])\n"
        "try:\n    asyncio.run(main())\nexcept fifoq.AlreadyOpen:\n    sys.exit(7)"
    )
    other = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(other, cwd=mounts.ROOT, check=False).returncode == 7
    await queue.close()
    await queue.close()
    await raises(fifoq.QueueClosed, queue.put(b"b"))
    async with fifoq.open(path) as again:
        assert await again.take(timeout=5) == b"a"


async def _open(path: Path) -> Queue[bytes]:
    return await fifoq.open(path)


async def fork(directory: Path) -> None:
    """The child can do nothing with the parent's queue, and the parent does not notice it."""
    async with fifoq.open(directory / "store") as queue:
        await queue.put(b"a")
        pid = os.fork()
        if pid == 0:
            os._exit(_use_in_child(queue))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert await queue.take(timeout=5) == b"a"
        await queue.put(b"b")


def _use_in_child(queue: Queue[bytes]) -> int:
    refused = 0
    calls: list[Callable[[], object]] = [
        lambda: queue.put_nowait(b"x"),
        queue.take_nowait,
        lambda: queue.put(b"x").send(None),
        lambda: queue.take().send(None),
        lambda: queue.flush().send(None),
    ]
    for call in calls:
        try:
            call()
        except fifoq.ForkError:
            refused += 1
    return 0 if refused == len(calls) else 1


async def threads(directory: Path) -> None:
    """Another thread, with a loop or without, is refused and changes nothing."""
    async with fifoq.open(directory / "store", durability="memory") as queue:
        await queue.put(b"a")
        await asyncio.sleep(0)
        seen: list[type[BaseException] | None] = []

        def note(call: Callable[[], object]) -> None:
            try:
                call()
            except BaseException as error:
                seen.append(type(error))
            else:
                seen.append(None)

        def elsewhere() -> None:
            note(lambda: queue.put_nowait(b"x"))
            note(queue.take_nowait)
            note(lambda: asyncio.run(_await(queue.put(b"x"))))
            note(lambda: asyncio.run(_await(queue.take())))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [fifoq.WrongLoop] * 4, seen
        assert await queue.take(timeout=5) == b"a"
        assert queue.empty()


async def _await(call: Coroutine[Any, Any, object]) -> None:
    await call


async def closed_loop(directory: Path) -> None:
    """A loop that ended with the queue open: every call is refused, and another may open it."""
    seen: list[str] = []

    def run() -> None:
        loop = asyncio.new_event_loop()
        queue: Queue[bytes] = loop.run_until_complete(_open(directory / "store"))
        loop.run_until_complete(queue.put(b"a"))
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
        try:
            queue.put_nowait(b"b")
        except fifoq.FifoqError as error:
            seen.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert seen in (["WrongLoop"], ["QueueClosed"], ["StoreFailed"]), seen


# A disk that hangs.


@contextlib.asynccontextmanager
async def frozen(point: Path, seconds: float) -> AsyncIterator[None]:
    """The file system stands still for a while; it is let go whatever happens."""
    subprocess.run(["fsfreeze", "-f", str(point)], check=True)
    thaw = threading.Timer(seconds, lambda: subprocess.run(["fsfreeze", "-u", str(point)]))
    thaw.start()
    try:
        yield
    finally:
        await asyncio.to_thread(thaw.join)


class Lag:
    """The longest time by which the loop was late."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def measure(self) -> None:
        while True:
            started = time.monotonic()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.monotonic() - started - 0.001)


async def frozen_disk(point: Path, seconds: float) -> None:
    """The loop goes on, memory goes on, those who wait may leave; nothing is lost."""
    store = await fifoq.open_store(point / "store")
    strong = await store.queue("strong")
    weak = await store.queue("weak", durability="memory")
    await strong.put_many([b"a", b"b"])
    await weak.put_many([b"1", b"2", b"3"])
    await store.flush()
    lag = Lag()
    watching = asyncio.ensure_future(lag.measure())
    async with frozen(point, seconds):
        # The pauses are real: a disk that hangs tells nobody, and the lag of the loop is measured.
        stuck = asyncio.ensure_future(strong.put(b"c"))
        await asyncio.sleep(0.1)
        assert await strong.peek() == b"a"
        strong.stats()
        assert await weak.take(timeout=1) == b"1"
        delivery = await weak.lease(timeout=1)
        await delivery.ack()
        await weak.put(b"4")
        await raises(TimeoutError, asyncio.wait_for(strong.put(b"d"), 0.05))
        leaving = asyncio.ensure_future(strong.put(b"e"))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.wait([leaving], timeout=0.2)
        assert leaving.cancelled()
        assert not stuck.done()
        await asyncio.sleep(max(0.0, seconds - 0.6))
        started = time.monotonic()
        await raises(TimeoutError, store.close(timeout=0.05))
        assert time.monotonic() - started < 1.0
    watching.cancel()
    await store.close()
    assert (await stuck).counter
    print(f"lag_ms={lag.worst * 1000:.1f}")
    assert lag.worst < LAG_SECONDS_MAX, lag.worst
    async with fifoq.open_store(point / "store") as store:
        found = [r.item async for r in (await store.queue("strong")).browse()]
        assert found == [b"a", b"b", b"c"], found
        assert [r.item async for r in (await store.queue("weak")).browse()] == [b"3", b"4"]


def one_in_the_other(directory: Path) -> tuple[Path, Path]:
    """Two file systems, the second in a file of the first.

    While the first is frozen, the disk of the second hangs, and the second itself does not.
    """
    outer, inner = directory / "outer", directory / "inner"
    outer.mkdir()
    inner.mkdir()
    mounts.make_image(directory / "image", 4 * FULL_BYTES, "ext4", "-m0")
    mounts.mount_image(directory / "image", outer)
    mounts.make_image(outer / "image", FULL_BYTES, "ext4", "-m0")
    mounts.mount_image(outer / "image", inner)
    return outer, inner


async def hanging_disk(directory: Path, hangs: int) -> None:
    """The disk hangs again and again, at any moment of a commit, while the journal is busy."""
    outer, inner = one_in_the_other(directory)
    store = await fifoq.open_store(inner / "store", segment_bytes=mounts.MIB)
    queues = await store.queue("strong"), await store.queue("weak", durability="os")
    producers = [asyncio.ensure_future(_put_and_take(queue)) for queue in queues]
    journal = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import os, sys, time\nwhile True:\n    with open(sys.argv[1], 'w') as file:\n"
            "        os.fsync(file.fileno())\n    os.unlink(sys.argv[1])\n    time.sleep(0.002)",
            str(inner / "other"),
        ]
    )
    random, lag = Random(hangs), Lag()
    watching = asyncio.ensure_future(lag.measure())
    try:
        for _ in range(hangs):
            # The pauses are real: what is met is one of many moments of real work.
            await asyncio.sleep(random.uniform(0.1, 0.13))
            freeze = f"fsfreeze -f {outer} && sleep {HANG_SECONDS}; fsfreeze -u {outer}"
            status = await (await asyncio.create_subprocess_exec("sh", "-c", freeze)).wait()
            assert status == 0, "only what was frozen can be let go"
        assert journal.poll() is None, "nobody kept the journal busy"
    finally:
        journal.kill()
        journal.wait()
    for task in (watching, *producers):
        task.cancel()
    await asyncio.wait(producers)
    assert all(task.cancelled() for task in producers)
    print(f"lag_ms={lag.worst * 1000:.1f}")
    assert lag.worst < HANG_SECONDS / 2, lag.worst
    for queue in queues:
        # One at least between two hangs: both were at work when the disk began to hang.
        assert queue.stats().total_take_count > hangs, queue
    await store.close()


async def _put_and_take(queue: Queue[bytes]) -> None:
    while True:
        await queue.put(b"x" * 100)
        assert await queue.take() == b"x" * 100


# A write that outlives its process.


async def late_write(directory: Path) -> None:
    """Who opens a store waits for what the kernel still writes for an owner who was killed."""
    outer, inner = one_in_the_other(directory)
    async with fifoq.open(inner / "store") as queue:
        await queue.put(b"first")
    os.sync()
    code = (
        "import asyncio, fifoq, os, sys\nfrom fifoq import settling\n"
        "settling.SEAL_SECONDS = 60.0\nasync def main():\n"
        "    queue = await fifoq.open(sys.argv[1])\n    await queue.put(b'second')\n"
        "    assert queue.stats().writer == 'io_uring'\n    print('ready', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.readline)\n"
        "    asyncio.ensure_future(queue.put(b'third'))\n    await asyncio.sleep(0.1)\n"
        "    os.kill(os.getpid(), 9)\nasyncio.run(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(inner / "store")],
        cwd=mounts.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    files = OsFiles()
    store = files.open_dir(str(inner / "store"))
    name = max(path.name for path in (inner / "store").glob("*.log"))
    async with frozen(outer, 1.0):
        process.communicate(b"\n")
        waiting = asyncio.ensure_future(asyncio.to_thread(files.await_writes, store, name))
        await asyncio.wait([waiting], timeout=0.4)
        assert not waiting.done(), "the kernel was still writing"
    assert await waiting
    files.close(store)
    async with fifoq.open(inner / "store") as queue:
        found = [record.item async for record in queue.browse()]
    assert found == [b"first", b"second", b"third"], found


# Which scene is played where.

ON_DISKS: Final = {
    "full_sync": full_sync,
    "full_leases": full_leases,
    "full_memory": full_memory,
    "read_only": read_only,
    "dead_disk": dead_disk,
}
IN_DIRECTORIES: Final = {
    "failing_sync": failing_sync,
    "owners": owners,
    "fork": fork,
    "threads": threads,
    "closed_loop": closed_loop,
    "late_write": late_write,
}


def mounted(directory: Path, kind: str) -> Path:
    point = directory / "mounted"
    point.mkdir()
    if kind == "tmpfs":
        mounts.mount_tmpfs(point, FULL_BYTES)
    else:
        mounts.make_image(directory / "image", FULL_BYTES, "ext4", "-m0")
        mounts.mount_image(directory / "image", point)
    return point


def main(name: str, directory: Path, detail: str = "") -> None:
    for logger in ("store", "fifoq"):
        logging.getLogger(logger).addHandler(logging.NullHandler())

    async def play() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            if name in ON_DISKS:
                await ON_DISKS[name](mounted(directory, detail))
            elif name == "frozen_disk":
                await frozen_disk(mounted(directory, "ext4"), float(detail))
            elif name == "hanging_disk":
                await hanging_disk(directory, int(detail))
            else:
                await IN_DIRECTORIES[name](directory)

    asyncio.run(play())
    if name in ("read_only", "dead_disk"):
        mounts.unmount(directory / "mounted")
        mounts.mount_image(directory / "image", directory / "mounted")
        asyncio.run(_look_at_read_only(directory / "mounted"))


async def _look_at_read_only(point: Path) -> None:
    async with fifoq.open(point / "store") as queue:
        found = [record.item async for record in queue.browse()]
    assert found[:10] == [item(number) for number in range(10)]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
