"""The one place that forwards every `Files` call, for wrappers that look at or break them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from store.files import Files, Handle

T = TypeVar("T")


class WrappedFiles:
    """A `Files` that sends every call through `_around`, which a subclass overrides.

    `watch_fork` and `await_writes` go straight through: they ask nothing of a simulated disk.
    """

    def __init__(self, inner: Files) -> None:
        self.inner = inner

    def _around(self, name: str, args: tuple[object, ...], call: Callable[[], T]) -> T:
        raise NotImplementedError

    def make_dir(self, path: str) -> None:
        return self._around("make_dir", (path,), lambda: self.inner.make_dir(path))

    def open_dir(self, path: str) -> Handle:
        return self._around("open_dir", (path,), lambda: self.inner.open_dir(path))

    def lock_dir(self, directory: Handle) -> None:
        return self._around("lock_dir", (directory,), lambda: self.inner.lock_dir(directory))

    def require_writable(self, directory: Handle) -> None:
        # Asks nothing of the disk.
        self.inner.require_writable(directory)

    def list_dir(self, directory: Handle) -> list[str]:
        return self._around("list_dir", (directory,), lambda: self.inner.list_dir(directory))

    def sync_dir(self, directory: Handle) -> None:
        return self._around("sync_dir", (directory,), lambda: self.inner.sync_dir(directory))

    def create(self, directory: Handle, name: str) -> Handle:
        return self._around("create", (directory, name), lambda: self.inner.create(directory, name))

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        return self._around(
            "open", (directory, name, write), lambda: self.inner.open(directory, name, write=write)
        )

    def unlink(self, directory: Handle, name: str) -> None:
        return self._around("unlink", (directory, name), lambda: self.inner.unlink(directory, name))

    def size(self, handle: Handle) -> int:
        return self._around("size", (handle,), lambda: self.inner.size(handle))

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        return self._around(
            "pread", (handle, count, offset), lambda: self.inner.pread(handle, count, offset)
        )

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        content = bytes(data)
        return self._around(
            "pwrite", (handle, content, offset), lambda: self.inner.pwrite(handle, content, offset)
        )

    def truncate(self, handle: Handle, size: int) -> None:
        return self._around("truncate", (handle, size), lambda: self.inner.truncate(handle, size))

    def datasync(self, handle: Handle) -> None:
        return self._around("datasync", (handle,), lambda: self.inner.datasync(handle))

    def forget_cache(self, handle: Handle) -> None:
        return self._around("forget_cache", (handle,), lambda: self.inner.forget_cache(handle))

    def await_writes(self, directory: Handle, name: str) -> bool:
        return self.inner.await_writes(directory, name)

    def close(self, handle: Handle) -> None:
        return self._around("close", (handle,), lambda: self.inner.close(handle))

    def watch_fork(self, callback: Callable[[], None]) -> None:
        self.inner.watch_fork(callback)
