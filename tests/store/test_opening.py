"""Opening: new stores, half-made ones, clean and unclean ends, and who may own what."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.disk import SyncFailure
from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    AlreadyOpen,
    DiskFull,
    DurabilityError,
    Log,
    LogOptions,
    Status,
    open_log,
)
from store.directory import Directory
from store.files import Handle
from store.keys import RESERVED_COUNTERS
from store.osfiles import OsFiles
from store.segment import index_name, segment_name
from tests.store.conftest import PATH, SMALL, OpenStore
from tests.support.clock import ManualClock

TINY = LogOptions(fill_bytes=0, reserve_bytes=0)
FILLER_BYTES = 6 << 10


def payloads(log: Log, queue: str = "orders") -> list[bytes]:
    return [payload for block in log.read(queue) for payload in block.payloads()]


def names(files: SimFiles, path: str = PATH) -> list[str]:
    return sorted(files.list_dir(files.open_dir(path)))


def open_tiny(files: SimFiles) -> Log:
    return open_log(PATH, files=files, clock=ManualClock(), options=TINY)


def must_be_empty_and_work(files: SimFiles) -> None:
    """Open what a cut left of a store that nobody has put into; use it, and open it again."""
    log = open_tiny(files)
    assert log.sequence == 0
    assert log.put("orders", [b"a"]) == range(1, 2)
    log.close()
    again = open_tiny(files)
    assert payloads(again) == [b"a"]
    again.close()


# New stores.


def test_a_new_store_has_one_segment_and_two_checkpoints_and_its_parents_are_made(
    open_store: OpenStore, files: SimFiles
) -> None:
    log = open_store()
    assert names(files) == [segment_name(1), "checkpoint.a", "checkpoint.b"]
    assert (log.status, log.sequence, log.torn_bytes) == (Status.OPEN, 0, 0)
    assert not files.disk.pending


def test_a_new_store_stands_on_a_real_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with open_log(f"{path}/") as log:
        log.put("orders", [b"a"])
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    with open_log(str(path)) as log:
        assert payloads(log) == [b"a"]


def test_a_store_whose_making_was_cut_off_anywhere_opens_as_empty() -> None:
    seen: set[Image] = set()

    def visit(index: int, files: SimFiles) -> None:
        must_be_empty_and_work(after_process_crash(files))
        for image in power_images(files):
            if image not in seen:
                seen.add(image)
                must_be_empty_and_work(SimFiles.from_image(image))

    crash_points(open_tiny, visit)
    assert len(seen) > 500


def test_a_store_whose_making_was_cut_off_twice_opens_as_empty() -> None:
    """A torn checkpoint could outlive the segment that the second making was to replace."""
    first = SimFiles()
    open_tiny(first).release()
    segment = first.content(f"{PATH}/{segment_name(1)}")[:80]
    half = Image.of({f"{PATH}/{segment_name(1)}": segment, f"{PATH}/checkpoint.a": b""})
    seen: set[Image] = set()

    def visit(index: int, files: SimFiles) -> None:
        for image in power_images(files):
            if image not in seen:
                seen.add(image)
                must_be_empty_and_work(SimFiles.from_image(image))

    crash_points(open_tiny, visit, files=SimFiles.from_image(half))
    assert len(seen) > 500


def test_a_file_in_the_way_is_an_access_error_with_advice(files: SimFiles) -> None:
    files.add_file("/plain", b"")
    with pytest.raises(AccessError) as caught:
        open_log("/plain", files=files)
    assert str(caught.value) == (
        "/plain: Not a directory. Nothing was changed. Check that it is a directory of regular "
        "files which this user may read and write."
    )


@pytest.mark.parametrize("path", ["", "relative"])
def test_a_path_is_taken_as_it_is(path: str) -> None:
    """An empty path once opened the root directory."""
    files = SimFiles()
    if path:
        open_log(path, files=files, clock=ManualClock(), options=TINY).close()
        assert names(files, "/") == ["relative"]
        return
    with pytest.raises(AccessError):
        open_log(path, files=files, clock=ManualClock(), options=TINY)
    assert names(files, "/") == []


def test_an_unknown_way_to_recover_is_refused_before_anything_is_made(files: SimFiles) -> None:
    with pytest.raises(ValueError, match="recover='guess'"):
        open_log(PATH, files=files, recover="guess")  # type: ignore[arg-type]
    assert names(files, "/") == []


def test_the_root_directory_may_be_a_store() -> None:
    files = SimFiles()
    log = open_log("//", files=files, clock=ManualClock(), options=TINY)
    assert log.path == "/"
    log.close()


# Owners.


def test_a_second_owner_is_refused_with_advice_and_leaves_the_first_alone(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    handles = len(files._handles)
    with pytest.raises(AlreadyOpen) as caught:
        open_store()
    assert str(caught.value) == (
        "/data/store: the store is owned by another process, thread or object. Nothing was "
        "changed. Close that owner, or read beside it: "
        "`fifoq.open_store(path, read_only=True)`."
    )
    assert len(files._handles) == handles
    log.put("orders", [b"a"])
    log.close()
    assert payloads(open_store()) == [b"a"]


def test_a_failed_open_leaves_no_handle_and_no_lock(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.release()
    syncs = 0

    def fail(index: int, name: str, args: tuple[object, ...]) -> None:
        nonlocal syncs
        if name == "datasync":
            syncs += 1
            if syncs == last:
                raise OSError(errno.EIO, "Input/output error")

    last = 1
    failed = 0
    while True:
        syncs = 0
        files.before_op = fail
        try:
            open_store()
            break
        except DurabilityError:
            failed += 1
        finally:
            files.before_op = None
        assert not files._handles
        last += 1
    assert failed >= 5


# Clean and unclean ends.


def test_a_clean_reopen_goes_on_in_the_same_segment(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a"])
    log.close()
    length, sequence = log.tail.length, log.sequence
    again = open_store()
    assert (again.tail.file.number, again.tail.length) == (1, length)
    assert again.sequence == sequence
    again.put("orders", [b"b"])
    again.seal()
    assert payloads(again) == [b"a", b"b"]
    again.close()
    assert payloads(open_store()) == [b"a", b"b"]


def test_a_clean_reopen_changes_nothing_until_something_is_put(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.close()
    image = files.image()
    again = open_store()
    assert payloads(again) == [b"a"]
    again.seal()
    assert files.image() == image


def test_an_unclean_reopen_goes_on_in_a_new_segment(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a"])
    log.release()
    again = open_store()
    assert again.tail.file.number == 2
    assert again.put("orders", [b"b"]) == range(2, 3)
    assert payloads(again) == [b"a", b"b"]


def test_an_unclean_end_in_an_empty_segment_stays_there(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.release()
    again = open_store()
    assert again.tail.file.number == 2
    assert payloads(again) == [b"a"]


def test_the_zeros_ahead_of_an_unclean_end_are_given_back(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    length = log.tail.length
    log.release()
    assert len(files.content(f"{PATH}/{segment_name(1)}")) > length
    open_store()
    assert len(files.content(f"{PATH}/{segment_name(1)}")) == length


def test_a_torn_tail_is_set_aside_and_counted(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    files.damage(f"{PATH}/{segment_name(1)}", log.tail.length, b"torn")
    content = files.content(f"{PATH}/{segment_name(1)}")
    torn = len(content) - log.tail.length
    log.release()
    again = open_store()
    assert again.torn_bytes == torn
    assert files.content(f"{PATH}/{segment_name(1)}") == content
    assert payloads(again) == [b"a"]
    again.release()
    assert open_store().torn_bytes == 0


def test_counters_that_may_have_been_shown_are_skipped_after_an_unclean_end(
    log: Log, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"], sync=False)
    log.put("orders", [b"b"], sync=False)
    log.release()
    again = open_store()
    assert payloads(again) == [b"a", b"b"]
    (counter,) = again.put("orders", [b"c"])
    assert counter == 2 + RESERVED_COUNTERS + 1
    again.close()
    assert payloads(open_store()) == [b"a", b"b", b"c"]


def test_so_they_are_after_a_close_that_leaves_no_clean_end(
    log: Log, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"], sync=False)
    log.close(clean=False)
    assert log.status is Status.CLOSED
    assert log.durable_upto == log.sequence, "all of it is durable"
    again = open_store()
    assert payloads(again) == [b"a"]
    (counter,) = again.put("orders", [b"b"])
    assert counter > 1 + RESERVED_COUNTERS


def test_no_counter_is_skipped_after_a_clean_end(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a"], sync=False)
    log.close()
    again = open_store()
    assert again.put("orders", [b"b"]) == range(2, 3)
    assert again.queue("orders").genesis.reserved_upto == 0


def test_only_synced_commits_skip_no_counter_even_after_an_unclean_end(
    log: Log, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"])
    log.release()
    assert open_store().put("orders", [b"b"]) == range(2, 3)


# Leftovers.


def test_a_segment_that_came_back_is_ignored_and_removed(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"old"])
    content = files.content(f"{PATH}/{segment_name(1)}")
    log.rotate()
    log.put("orders", [b"new"])
    log.take("orders")
    log.close()
    assert segment_name(1) not in names(files)
    files.add_file(f"{PATH}/{segment_name(1)}", content)
    files.add_file(f"{PATH}/{index_name(1)}", b"old index")
    again = open_store()
    assert payloads(again) == [b"new"]
    again.checkpoint()
    assert {segment_name(1), index_name(1)}.isdisjoint(names(files))


@pytest.mark.parametrize("content", [b"", b"\0" * 80, b"FIFOQLOG half a header"])
def test_a_last_segment_that_never_got_its_header_is_replaced(
    log: Log, open_store: OpenStore, files: SimFiles, content: bytes
) -> None:
    log.put("orders", [b"a"])
    log.release()
    files.add_file(f"{PATH}/{segment_name(2)}", content)
    again = open_store()
    assert again.tail.file.number == 2
    again.put("orders", [b"b"])
    again.checkpoint()
    again.close()
    assert payloads(open_store()) == [b"a", b"b"]


# Without space.


@pytest.fixture
def full() -> SimFiles:
    """A disk with no space at all, and on it a store that was not closed; `/filler` can go."""
    files = SimFiles(capacity=20 << 10)
    filler = files.create(files.open_dir("/"), "filler")
    files.pwrite(filler, bytes(FILLER_BYTES), 0)
    log = open_log(PATH, files=files, clock=ManualClock(), options=SMALL)
    with suppress(DiskFull):
        while True:
            log.put("orders", [b"x" * 200])
    while log.tail.make_room(200, reserve=True):
        assert log.take("orders")
    log.release()
    with suppress(OSError):
        for offset in range(FILLER_BYTES, 2 * FILLER_BYTES, 512):
            files.pwrite(filler, bytes(512), offset)
    files.process_crash()
    return files


def make_space(files: SimFiles) -> None:
    files.truncate(files.open(files.open_dir("/"), "filler", write=True), 0)


def test_a_store_on_a_full_disk_opens_drains_and_goes_on_when_there_is_space(
    full: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(PATH, files=full, clock=ManualClock(), options=SMALL)
    assert "opened without space for a new segment" in caplog.text
    assert log.tail.closed
    size = log.queue("orders").genesis.queue_size
    with pytest.raises(DiskFull):
        log.put("orders", [b"y"])
    log.seal()
    taken = log.take("orders")
    taken += log.take("orders")
    log.release()
    make_space(full)
    log = open_log(PATH, files=full, clock=ManualClock(), options=SMALL)
    assert log.queue("orders").genesis.queue_size == size - 2
    assert not log.tail.closed
    log.put("orders", [b"y"])
    log.release()
    log = open_log(PATH, files=full, clock=ManualClock(), options=SMALL)
    keys = [key.counter for key in log.keys("orders")]
    assert not set(keys) & {key.counter for key, _ in taken}
    assert len(keys) == size - 1


def test_a_tail_that_opening_had_to_close_is_left_as_soon_as_there_is_space(
    full: SimFiles,
) -> None:
    log = open_log(PATH, files=full, clock=ManualClock(), options=SMALL)
    log.take("orders")
    number = log.tail.file.number
    make_space(full)
    log.put("orders", [b"y"])
    assert log.tail.file.number == number + 1
    assert not log.state.unlogged
    log.release()
    again = open_log(PATH, files=full, clock=ManualClock(), options=SMALL)
    assert payloads(again)[-1] == b"y"


def test_a_sync_that_fails_while_opening_is_told_and_nothing_is_left_open(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.release()
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        open_store()
    assert not files._handles
    assert payloads(open_store()) == [b"a"]


def test_a_store_that_has_space_for_a_segment_but_not_for_its_checkpoint_opens(
    log: Log, open_store: OpenStore, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log.put("orders", [b"a"])
    log.release()

    def refuse(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "open" and args[2] and str(args[1]).startswith("checkpoint"):
            raise OSError(errno.EMFILE, "Too many open files")

    files.before_op = refuse
    again = open_store()
    files.before_op = None
    assert "opened without space" in caplog.text
    assert (again.tail.file.number, again.tail.closed) == (2, False)
    again.put("orders", [b"b"])
    again.close()
    assert payloads(open_store()) == [b"a", b"b"]


@pytest.mark.parametrize("watcher", [Directory, Log])
def test_an_open_that_is_interrupted_leaves_no_handle(watcher: type) -> None:
    class NoWatch(SimFiles):
        def watch_fork(self, callback: Callable[[], None]) -> None:
            if isinstance(callback.__self__, watcher):  # type: ignore[attr-defined]
                raise KeyboardInterrupt

    files = NoWatch()
    with pytest.raises(KeyboardInterrupt):
        open_tiny(files)
    assert not files._handles


@pytest.mark.parametrize("closed", [True, False])
def test_writes_of_an_owner_who_was_killed_are_waited_for_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """The kernel may be at one of them when the next owner reads the end of the log."""
    path = tmp_path / "store"
    log = open_log(path)
    log.put("a", [b"first"])
    length = log.tail.length
    log.put("a", [b"second"])
    (path / "server.log").write_bytes(b"of somebody else")
    segment = path / f"{1:020}.log"
    if closed:
        log.close()
    else:
        log.release()
        late = segment.read_bytes()[length:]
        os.truncate(segment, length)
        os.truncate(segment, length + len(late))
    waited: list[str] = []

    def wait(files: OsFiles, directory: Handle, name: str) -> bool:
        waited.append(name)
        with segment.open("r+b") as file:
            file.seek(length)
            file.write(late)
        return True

    monkeypatch.setattr(OsFiles, "await_writes", wait)
    with open_log(path) as again:
        found = [payload for block in again.read("a") for payload in block.payloads()]
    assert found == [b"first", b"second"]
    assert waited == ([] if closed else [segment.name])


def test_a_file_that_can_not_be_waited_for_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "store")
    log.put("a", [b"first"])
    log.release()

    def refuse(files: OsFiles, directory: Handle, name: str) -> bool:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(OsFiles, "await_writes", refuse)
    with open_log(tmp_path / "store") as again:
        assert [payload for block in again.read("a") for payload in block.payloads()] == [b"first"]
