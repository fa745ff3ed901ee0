"""The real file calls: modes, flags and errors that only a real file system shows.

That results and errnos are those of the simulated disk is tested with the simulated disk.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from store import osfiles
from store.files import Handle
from store.osfiles import OsFiles, SystemClock


@pytest.fixture
def files() -> OsFiles:
    return OsFiles()


@pytest.fixture
def directory(files: OsFiles, tmp_path: Path) -> Iterator[Handle]:
    handle = files.open_dir(str(tmp_path))
    yield handle
    files.close(handle)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_and_files_are_for_the_owner_alone(
    files: OsFiles, directory: Handle, tmp_path: Path
) -> None:
    for umask in (0o000, 0o077, 0o777):
        before = os.umask(umask)
        try:
            handle = files.create(directory, f"file{umask}")
        finally:
            os.umask(before)
        assert files.pwrite(handle, b"x", 0) == 1
        files.close(handle)
        assert mode_of(tmp_path / f"file{umask}") == 0o600
    files.make_dir(str(tmp_path / "made"))
    assert mode_of(tmp_path / "made") == 0o700


def test_handles_are_not_inherited_by_children(files: OsFiles, directory: Handle) -> None:
    made = files.create(directory, "a")
    opened = files.open(directory, "a", write=True)
    for handle in (directory, made, opened):
        assert fcntl.fcntl(handle, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    files.close(made)
    files.close(opened)


def test_only_regular_files_are_opened(files: OsFiles, directory: Handle, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for write in (False, True):
        for name in ("link", "fifo", "folder", "missing"):
            with pytest.raises(OSError):
                files.open(directory, name, write=write)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OSError) as caught:
        files.open(directory, "fifo", write=False)
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(FileExistsError):
        files.create(directory, "link")
    with pytest.raises(NotADirectoryError):
        files.open_dir(str(tmp_path / "real"))


def test_a_file_opened_for_reading_can_not_be_written(files: OsFiles, directory: Handle) -> None:
    files.close(files.create(directory, "a"))
    handle = files.open(directory, "a", write=False)
    with pytest.raises(OSError):
        files.pwrite(handle, b"x", 0)
    files.close(handle)


def test_the_lock_is_held_until_the_handle_is_closed(files: OsFiles, tmp_path: Path) -> None:
    one, other = files.open_dir(str(tmp_path)), files.open_dir(str(tmp_path))
    files.lock_dir(one)
    with pytest.raises(BlockingIOError):
        files.lock_dir(other)
    files.close(one)
    files.lock_dir(other)
    files.close(other)


def test_every_call_does_what_its_name_says(files: OsFiles, directory: Handle) -> None:
    handle = files.create(directory, "a")
    assert files.pwrite(handle, memoryview(b"0123456789"), 2) == 10
    assert files.pread(handle, 4, 0) == b"\0\x0001"
    files.truncate(handle, 6)
    files.datasync(handle)
    files.sync_dir(directory)
    files.forget_cache(handle)
    assert files.size(handle) == 6
    assert files.pread(handle, 100, 4) == b"23"
    files.close(handle)
    assert files.list_dir(directory) == ["a"]
    files.unlink(directory, "a")
    assert files.list_dir(directory) == []


def test_on_macos_a_sync_goes_through_the_cache_of_the_drive(
    files: OsFiles, directory: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That platform's own call stands in a recorder here; its number is one that only it knows."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: asked.append(arguments))
    handle = files.create(directory, "a")
    files.datasync(handle)
    files.close(handle)
    assert asked == [(handle, 51)]


def test_a_platform_that_cannot_drop_its_cache_is_left_alone(
    files: OsFiles, directory: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    files.forget_cache(directory)
    assert files.list_dir(directory) == []


@pytest.mark.parametrize("call", ["open_dir", "create", "open"])
def test_a_handle_that_cannot_be_handed_out_is_closed(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """An interrupt may come between the system call and the return."""
    (tmp_path / "there").touch()
    opened: list[int] = []

    def interrupted(descriptor: int) -> Handle:
        opened.append(descriptor)
        raise KeyboardInterrupt

    calls: dict[str, Callable[[Handle], Handle]] = {
        "open_dir": lambda _: files.open_dir(str(tmp_path)),
        "create": lambda directory: files.create(directory, "new"),
        "open": lambda directory: files.open(directory, "there", write=False),
    }
    directory = files.open_dir(str(tmp_path))
    monkeypatch.setattr(osfiles, "Handle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calls[call](directory)
    (descriptor,) = opened
    with pytest.raises(OSError) as caught:
        os.fstat(descriptor)
    assert caught.value.errno == errno.EBADF
    files.close(directory)


class Watcher:
    def __init__(self) -> None:
        self.calls = 0

    def called(self) -> None:
        self.calls += 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_watcher_is_called_in_the_child_and_forgotten_with_its_owner(files: OsFiles) -> None:
    kept, dropped = Watcher(), Watcher()
    files.watch_fork(dropped.called)
    files.watch_fork(kept.called)
    del dropped
    gc.collect()
    child = os.fork()
    if child == 0:
        os._exit(40 + kept.calls)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41
    assert kept.calls == 0


@pytest.fixture
def watchers() -> Iterator[dict[int, Any]]:
    """Those of this process, with none in it for now."""
    found: dict[int, Any] = osfiles._fork_watchers
    others = dict(found)
    found.clear()
    yield found
    found.update(others)


def test_watchers_that_are_alive_are_called_once_each(watchers: dict[int, Any]) -> None:
    """What runs in the child after a fork, called here: nothing counts branches in a child."""
    kept, dropped = Watcher(), Watcher()
    for watcher in (dropped, kept):
        OsFiles().watch_fork(watcher.called)
    del dropped, watcher
    gc.collect()
    assert len(watchers) == 1
    # One that is just going.
    watchers[0] = weakref.ref(Watcher()), "called"
    osfiles._after_fork_in_child()
    osfiles._after_fork_in_child()
    assert kept.calls == 1


@pytest.mark.usefixtures("watchers")
def test_no_watcher_is_lost_while_several_threads_come() -> None:
    """A store's come from two. The child of a fork kept the lock."""
    come_at_once = [[Watcher() for _ in range(300)] for _ in range(4)]

    def come(mine: list[Watcher]) -> None:
        for watcher in mine:
            OsFiles().watch_fork(watcher.called)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=come, args=(mine,)) for mine in come_at_once]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    osfiles._after_fork_in_child()
    assert all(watcher.calls == 1 for mine in come_at_once for watcher in mine)


def test_the_clock_is_the_machines() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.wall() > 1_700_000_000 * 10**9
    assert len(clock.token(16)) == 16
    assert clock.token(16) != clock.token(16)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_in_which_no_files_can_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files = OsFiles()
    directory = files.open_dir(str(tmp_path))
    files.require_writable(directory)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    flags = os.ST_RDONLY if number == errno.EROFS else 0
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_flag=flags))
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        files.require_writable(directory)
    assert raised.value.errno == number
    files.close(directory)


def test_waiting_for_writes_changes_nothing(files: OsFiles, directory: Handle) -> None:
    handle = files.create(directory, "a")
    files.pwrite(handle, b"some", 0)
    assert files.await_writes(directory, "a")
    assert (files.size(handle), files.pread(handle, 100, 0)) == (4, b"some")
    files.close(handle)


def test_where_nothing_can_be_allocated_nobody_waits_for_writes(
    files: OsFiles, directory: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    assert not files.await_writes(directory, "a")
