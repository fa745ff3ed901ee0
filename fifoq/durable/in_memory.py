"""A file system in memory, for a system without a path: it ends with the system."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from typing import Final

from store.files import Handle

MEMORY_PATH: Final = "/memory"
SEGMENT_BYTES: Final = 1 << 20
"""What is removed is given back by the segment, and in memory that matters soon."""


class MemoryFiles:
    """A `Files` of plain buffers: directories are paths, files are looked up by path and name."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, bytearray]] = {"/": {}}
        self._open: dict[int, str | bytearray] = {}
        self._next = 1

    def make_dir(self, path: str) -> None:
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "it is there", path)
        if posixpath.dirname(path) not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._files[path] = {}

    def open_dir(self, path: str) -> Handle:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return self._handle(path)

    def lock_dir(self, directory: Handle) -> None:
        """Nobody else can reach it."""

    def require_writable(self, directory: Handle) -> None:
        """Whoever has it may."""

    def list_dir(self, directory: Handle) -> list[str]:
        return list(self._names(directory))

    def sync_dir(self, directory: Handle) -> None:
        """There is nothing more durable."""

    def create(self, directory: Handle, name: str) -> Handle:
        names = self._names(directory)
        if name in names:
            raise FileExistsError(errno.EEXIST, "it is there", name)
        content = names[name] = bytearray()
        return self._handle(content)

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        content = self._names(directory).get(name)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._handle(content)

    def unlink(self, directory: Handle, name: str) -> None:
        if self._names(directory).pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)

    def size(self, handle: Handle) -> int:
        return len(self._content(handle))

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        return bytes(memoryview(self._content(handle))[offset : offset + count])

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        content = self._content(handle)
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, handle: Handle, size: int) -> None:
        content = self._content(handle)
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def datasync(self, handle: Handle) -> None:
        """There is nothing more durable."""

    def forget_cache(self, handle: Handle) -> None:
        """There is none."""

    def await_writes(self, directory: Handle, name: str) -> bool:
        """Nobody else has them."""
        return False

    def close(self, handle: Handle) -> None:
        del self._open[handle]

    def watch_fork(self, callback: Callable[[], None]) -> None:
        """The child has a copy of its own, but no thread that writes to it: it hears nothing."""

    def _handle(self, what: str | bytearray) -> Handle:
        self._next += 1
        self._open[self._next] = what
        return Handle(self._next)

    def _names(self, directory: Handle) -> dict[str, bytearray]:
        path = self._open[directory]
        assert isinstance(path, str)
        return self._files[path]

    def _content(self, handle: Handle) -> bytearray:
        content = self._open[handle]
        assert isinstance(content, bytearray)
        return content
