"""The real `Files` and `Clock`: thin calls into the operating system, with no logic and no retry.

Retry loops for short counts and every decision about an error live in the core, where the
simulated disk tests them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
import weakref
from collections.abc import Callable

from store.files import Handle

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_FILE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK


class OsFiles:
    """The file system of this machine."""

    def make_dir(self, path: str) -> None:
        os.mkdir(path, DIRECTORY_MODE)
        # A umask that takes the owner's own bits would leave a directory that nobody can use.
        os.chmod(path, DIRECTORY_MODE)

    def open_dir(self, path: str) -> Handle:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return Handle(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def lock_dir(self, directory: Handle) -> None:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def require_writable(self, directory: Handle) -> None:
        # Only where it matters: sandboxes that are older than the call behind it say no to all.
        differs = (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid())
        effective = differs and os.access in os.supports_effective_ids
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=directory, effective_ids=effective):
            read_only = os.fstatvfs(directory).f_flag & os.ST_RDONLY
            number = errno.EROFS if read_only else errno.EACCES
            raise OSError(number, os.strerror(number))

    def list_dir(self, directory: Handle) -> list[str]:
        return os.listdir(directory)

    def sync_dir(self, directory: Handle) -> None:
        os.fsync(directory)

    def create(self, directory: Handle, name: str) -> Handle:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE_FLAGS
        descriptor = os.open(name, flags, FILE_MODE, dir_fd=directory)
        try:
            # A umask can only take bits away from FILE_MODE, and it may take the owner's own.
            os.fchmod(descriptor, FILE_MODE)
            return Handle(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        flags = (os.O_RDWR if write else os.O_RDONLY) | _FILE_FLAGS
        descriptor = os.open(name, flags, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            return Handle(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def unlink(self, directory: Handle, name: str) -> None:
        os.unlink(name, dir_fd=directory)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        return os.pread(handle, count, offset)

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def truncate(self, handle: Handle, size: int) -> None:
        os.ftruncate(handle, size)

    def datasync(self, handle: Handle) -> None:
        if sys.platform == "darwin":
            # fsync on macOS stops at the drive's volatile cache; only this goes through it.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(handle)

    def forget_cache(self, handle: Handle) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def await_writes(self, directory: Handle, name: str) -> bool:
        if not hasattr(os, "posix_fallocate"):
            return False
        descriptor = os.open(name, os.O_RDWR | _FILE_FLAGS, dir_fd=directory)
        try:
            # It changes nothing; but Linux allocates only when no direct write is under way.
            os.posix_fallocate(descriptor, 0, 1)
        finally:
            os.close(descriptor)
        return True

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def watch_fork(self, callback: Callable[[], None]) -> None:
        # Each step is one that no other thread comes between.
        owner = weakref.ref(callback.__self__, _forget_watcher)  # type: ignore[attr-defined]
        _fork_watchers[id(owner)] = owner, callback.__name__


_fork_watchers: dict[int, tuple[weakref.ref[object], str]] = {}
"""Whose method of which name is to be called, by the identity of the reference."""


def _forget_watcher(
    owner: weakref.ref[object],
    watchers: dict[int, object] = _fork_watchers,  # type: ignore[assignment]
) -> None:
    watchers.pop(id(owner), None)


def _after_fork_in_child() -> None:
    for reference, name in list(_fork_watchers.values()):
        owner = reference()
        if owner is not None:
            getattr(owner, name)()
    _fork_watchers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class SystemClock:
    """The clocks and the random source of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> int:
        return time.time_ns()

    def token(self, count: int) -> bytes:
        return os.urandom(count)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
