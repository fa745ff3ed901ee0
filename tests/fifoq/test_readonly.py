"""Read-only stores: what the owner has committed, seen from outside, for loops and for threads."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.sync
from fifoq import browse
from fifoq.view import View
from store import FormatError, LogOptions, StoreClosed, open_log
from store.files import Handle
from store.osfiles import OsFiles
from tests.fifoq.loops import on_each_loop
from tests.support.clock import ManualClock


class Order(msgspec.Struct):
    number: int


def fill(path: Path, *items: bytes, name: str = "main") -> None:
    """A store that its owner closed, with these records."""
    with open_log(str(path)) as log:
        draft = log.draft()
        draft.put(log.queue(name), list(items))
        log.commit(draft)


async def items_of(queue: fifoq.ReadOnlyQueue[Any], start: int = 1) -> list[Any]:
    return [record.item async for record in queue.browse(start)]


# A store that nobody has open.


@on_each_loop
async def test_a_free_store_shows_its_queues_and_records(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a", b"b", b"c")
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        assert repr(store) == f"<ReadOnlyStore '{tmp_path}/s' open>"
        assert await store.queues() == ["main"]
        queue = await store.queue()
        assert repr(queue) == f"<ReadOnlyQueue 'main' of '{tmp_path}/s'>"
        assert await queue.peek() == b"a"
        assert await items_of(queue) == [b"a", b"b", b"c"]
        assert await items_of(queue, 2) == [b"b", b"c"]
        stats = await queue.stats()
        assert (stats.name, stats.current_size, stats.total_put_count) == ("main", 3, 3)
        assert (stats.average_delay, stats.bytes, stats.segments) == (None, 3, 1)
    assert repr(store).endswith("closed>")


@on_each_loop
async def test_stats_tell_what_was_taken_and_how_long_it_waited(tmp_path: Path) -> None:
    async with fifoq.open(tmp_path / "s") as queue:
        await queue.put_many([b"a", b"b"])
        await queue.take()
        owner = queue.stats()
    async with await fifoq.open_store(tmp_path / "s", read_only=True) as store:
        stats = await (await store.queue()).stats()
    assert (stats.current_size, stats.total_take_count) == (1, 1)
    assert stats.last_put_time == owner.last_put_time
    assert stats.average_delay is not None
    assert stats.average_delay > 0
    names = set(stats.__struct_fields__)
    assert names < set(owner.__struct_fields__)


@pytest.mark.parametrize("durability", ["memory", "sync"])
@on_each_loop
async def test_the_marks_on_disk_are_those_of_the_size_on_disk(
    tmp_path: Path, durability: Any
) -> None:
    """Marks were once written as the last look found them: a queue of five said it had seen one."""
    async with fifoq.open(tmp_path / "s", durability=durability, statistics=False) as queue:
        for _ in range(5):
            await queue.put(b"a")
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        stats = await (await store.queue()).stats()
        assert (stats.high_water_mark, stats.low_water_mark) == (5, 1)
        assert stats.high_water_time >= stats.low_water_time > 0
    async with fifoq.open(tmp_path / "s", durability=durability, statistics=False) as queue:
        for _ in range(5):
            await queue.take()
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        stats = await (await store.queue()).stats()
        assert (stats.high_water_mark, stats.low_water_mark) == (5, 0)


@on_each_loop
async def test_nothing_in_the_directory_is_changed_and_no_lock_is_taken(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")

    def look() -> dict[str, tuple[bytes, int]]:
        files = sorted((tmp_path / "s").iterdir())
        return {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in files}

    before = look()
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        assert await items_of(await store.queue()) == [b"a"]
        async with fifoq.open(tmp_path / "s"):
            pass
        after_owner = look()
    assert look() == after_owner
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        assert await items_of(await store.queue()) == [b"a"]
    assert look() == after_owner
    assert before


@on_each_loop
async def test_headers_and_typed_items_are_decoded(tmp_path: Path) -> None:
    """A queue with nothing but default options once did not keep its type."""
    async with fifoq.open(tmp_path / "s", type=Order) as queue:
        await queue.put(Order(1), headers={"from": "shop"})
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        typed = await store.queue(type=Order)
        assert await typed.peek() == Order(1)
        (record,) = [record async for record in typed.browse()]
        assert (record.item, record.headers, record.key.counter) == (
            Order(1),
            {"from": "shop"},
            1,
        )
        with pytest.raises(fifoq.SchemaMismatch):
            await store.queue(type=dict)
        assert msgspec.msgpack.decode(await (await store.queue()).peek() or b"") == {"number": 1}


@on_each_loop
async def test_a_queue_that_is_not_there_is_empty(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        queue = await store.queue("other")
        assert await queue.peek() is None
        assert await items_of(queue) == []
        stats = await queue.stats()
        assert (stats.name, stats.current_size, stats.high_water_mark) == ("other", 0, None)
        with pytest.raises(fifoq.InvalidName):
            await store.queue("No Such Name")


def test_calls_that_change_something_do_not_exist() -> None:
    for owner, names in {
        fifoq.ReadOnlyStore: ("flush", "transaction"),
        fifoq.ReadOnlyQueue: ("put", "put_many", "put_nowait", "take", "lease", "configure"),
        fifoq.sync.ReadOnlyQueue: ("put", "put_many", "put_nowait", "take", "lease", "configure"),
    }.items():
        assert [name for name in names if hasattr(owner, name)] == []


# A store that is owned.


@on_each_loop
async def test_it_follows_the_owner_from_commit_to_commit(tmp_path: Path) -> None:
    async with (
        fifoq.open(tmp_path / "s") as owner,
        fifoq.open_store(tmp_path / "s", read_only=True) as store,
    ):
        queue = await store.queue()
        assert await queue.peek() is None
        for number in range(1, 6):
            await owner.put(b"%d" % number)
            # A commit is believed once the next one witnesses it.
            await owner.put(b"-")
            stats = await queue.stats()
            assert stats.total_put_count >= 2 * number - 1
            assert stats.total_take_count >= 2 * number - 2
            assert await queue.peek() == b"%d" % number
            await owner.take_many(2)


@on_each_loop
async def test_it_survives_rotation_compaction_and_reclaim(tmp_path: Path) -> None:
    async with fifoq.open(tmp_path / "s", segment_bytes=65536) as owner:
        await owner.put(b"first")
        async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
            queue = await store.queue()
            names = {file.name for file in (tmp_path / "s").glob("*.log")}
            for _ in range(12):
                await owner.put_many([bytes(1000)] * 50)
                await owner.take_many(50)
                assert (await queue.stats()).total_put_count > 0
            await owner.put(b"last")
            await owner.flush()
            assert names.isdisjoint(file.name for file in (tmp_path / "s").glob("*.log"))
            left = [record.item async for record in owner.browse()]
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        assert await items_of(await store.queue()) == left
        assert left[-1] == b"last"


@on_each_loop
async def test_a_browse_goes_on_while_the_owner_removes_what_it_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "PAGE_RECORDS", 2)
    path = tmp_path / "s"
    with open_log(str(path), options=LogOptions(segment_bytes=65536)) as log:
        for number in range(6):
            draft = log.draft()
            draft.put(log.queue("main"), [b"%d" % number])
            log.commit(draft)
        log.seal()
        async with fifoq.open_store(path, read_only=True) as store:
            seen = []
            async for record in (await store.queue()).browse():
                seen.append(record.item)
                if record.item == b"1":
                    draft = log.draft()
                    draft.remove(log.queue("main"), [(1, 4, 0)], reason=1)
                    log.commit(draft)
                    log.seal()
            assert seen == [b"0", b"1", b"4", b"5"]


def test_another_process_reads_beside_the_owner(tmp_path: Path) -> None:
    script = (
        "import asyncio, fifoq, sys\n"
        "async def main():\n"
        "    async with fifoq.open_store(sys.argv[1], read_only=True) as store:\n"
        "        queue = await store.queue()\n"
        "        print([r.item async for r in queue.browse()])\n"
        "asyncio.run(main())\n"
    )
    with fifoq.sync.open(tmp_path / "s") as owner:
        owner.put_many([b"a", b"b"])
        command = [sys.executable, "-c", script, str(tmp_path / "s")]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert shown.stdout == "[b'a', b'b']\n"


@on_each_loop
async def test_the_loop_turns_while_the_disk_hangs(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")
    asked, answer = threading.Event(), threading.Event()

    class Slow(OsFiles):
        def pread(self, handle: Handle, count: int, offset: int) -> bytes:
            asked.set()
            assert answer.wait(30)
            return super().pread(handle, count, offset)

    opening = asyncio.ensure_future(_opened(tmp_path / "s", Slow()))
    while not asked.is_set():
        await asyncio.sleep(0)
    assert not opening.done()
    answer.set()
    store = await opening
    await store.close()


async def _opened(path: Path, files: OsFiles) -> fifoq.ReadOnlyStore:
    return await fifoq.open_store(path, read_only=True, files=files)


@on_each_loop
async def test_the_tail_of_a_crashed_owner_is_shown_after_a_moment(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")
    with open_log(str(tmp_path / "s")) as log:
        draft = log.draft()
        draft.put(log.queue("main"), [b"b"])
        log.commit(draft)
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
    clock = ManualClock()
    async with fifoq.open_store(tmp_path / "copy", read_only=True, clock=clock) as store:
        assert await items_of(await store.queue()) == [b"a", b"b"]
    assert clock.naps == [0.1]


# Where it ends.


@on_each_loop
async def test_a_directory_that_is_no_store_is_told_apart_from_one_that_is_not_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="there is no store here"):
        await fifoq.open_store(tmp_path / "empty", read_only=True)
    with pytest.raises(fifoq.AccessError, match="Is the path right"):
        await fifoq.open_store(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(fifoq.AccessError):
        fifoq.sync.open_store(tmp_path / "file", read_only=True)


def test_an_error_of_the_operating_system_comes_as_ours(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")

    class Refusing(OsFiles):
        refuses = True

        def pread(self, handle: Handle, count: int, offset: int) -> bytes:
            if self.refuses:
                raise OSError(errno.EIO, "Input/output error")
            return super().pread(handle, count, offset)

    files = Refusing()
    with pytest.raises(fifoq.AccessError, match="Input/output error"):
        View(str(tmp_path / "s"), files=files)
    files.refuses = False
    view = View(str(tmp_path / "s"), files=files)
    files.refuses = True
    with pytest.raises(fifoq.AccessError, match="Input/output error"):
        view.queues()
    view.close()


def test_read_only_takes_no_options_of_an_owner(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"segment_bytes": 1 << 20}, {"recover": "quarantine"}]
    for given in options:
        with pytest.raises(TypeError, match="takes no other options"):
            fifoq.open_store(tmp_path, read_only=True, **given)
        with pytest.raises(TypeError):
            fifoq.sync.open_store(tmp_path, read_only=True, **given)


@on_each_loop
async def test_a_closed_view_refuses_and_closes_twice(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")
    store = await fifoq.open_store(tmp_path / "s", read_only=True)
    queue = await store.queue()
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await queue.stats()


def test_a_store_may_be_used_from_one_loop_after_another(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")

    async def open_it() -> fifoq.ReadOnlyStore:
        return await fifoq.open_store(tmp_path / "s", read_only=True)

    store = asyncio.run(open_it())
    assert asyncio.run(store.queues()) == ["main"]
    asyncio.run(store.close())


def test_the_child_of_a_fork_is_refused_and_may_close(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a")
    with fifoq.sync.open_store(tmp_path / "s", read_only=True) as store:
        child = os.fork()
        if not child:
            status = 1
            try:
                store.queues()
            except fifoq.ForkError:
                store.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.queues() == ["main"]


def test_another_process_is_known_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", b"a")
    view = View(str(tmp_path / "s"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(fifoq.ForkError, match="Open it in the child, after forking"):
            view.queues()
        view.close()
        assert not view.closed
    view.close()
    assert view.closed


@on_each_loop
async def test_in_the_child_of_a_fork_a_loop_is_refused_and_never_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", b"a")
    async with fifoq.open_store(tmp_path / "s", read_only=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(fifoq.ForkError):
                await store.queues()
            await store.close()
        assert await store.queues() == ["main"]


# The same for threads.


def test_threads_see_the_same_without_a_loop(tmp_path: Path) -> None:
    fill(tmp_path / "s", b"a", b"b")
    with fifoq.sync.open_store(tmp_path / "s", read_only=True) as store:
        assert repr(store) == f"<sync.ReadOnlyStore '{tmp_path}/s' open>"
        assert store.queues() == ["main"]
        queue = store.queue()
        assert repr(queue) == f"<sync.ReadOnlyQueue 'main' of '{tmp_path}/s'>"
        assert queue.peek() == b"a"
        assert [record.item for record in queue.browse()] == [b"a", b"b"]
        assert [record.item for record in queue.browse(2)] == [b"b"]
        assert queue.stats().current_size == 2
    assert repr(store).endswith("closed>")
    store.close()
    with pytest.raises(StoreClosed):
        queue.peek()


def test_many_threads_may_look_at_once(tmp_path: Path) -> None:
    fill(tmp_path / "s", *[b"%d" % number for number in range(50)])
    with fifoq.sync.open_store(tmp_path / "s", read_only=True) as store:
        queue = store.queue()
        seen: list[int] = []
        start = threading.Barrier(4)

        def look() -> None:
            start.wait()
            seen.extend(len(list(queue.browse())) for _ in range(5))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [50] * 20
