"""The two seams through which the store reaches the world.

`Files` is everything the store asks of a file system and `Clock` everything it asks of time
and chance. The real ones are in `osfiles`; tests put a simulated disk and a manual clock here.
Nothing else in this package touches the operating system, and a test walks the syntax trees
to see that it stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType, Protocol

Handle = NewType("Handle", int)
"""An open file or directory. Only the `Files` that gave it out knows what it means."""


class Files(Protocol):
    """Blocking file calls. Each may raise OSError; none retries, none hides a short count.

    A directory is opened once and its files are reached relative to it, so nobody can swap
    the directory under us. Names are plain names without separators.
    """

    def make_dir(self, path: str) -> None:
        """Make one directory, mode 0700. FileExistsError if the path exists."""

    def open_dir(self, path: str) -> Handle:
        """Open a directory. NotADirectoryError for anything else."""

    def lock_dir(self, directory: Handle) -> None:
        """Take the exclusive owner lock; BlockingIOError if anybody has it.

        It is held until the handle is closed or the process dies; there is no unlock.
        """

    def require_writable(self, directory: Handle) -> None:
        """OSError if this user may make no files in the directory."""

    def list_dir(self, directory: Handle) -> list[str]:
        """Names in the directory, in no order."""

    def sync_dir(self, directory: Handle) -> None:
        """Make created, renamed and unlinked names durable."""

    def create(self, directory: Handle, name: str) -> Handle:
        """Make a new file, mode 0600, for reading and writing. FileExistsError if it exists."""

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        """Open an existing regular file. A symbolic link or a special file is an OSError."""

    def unlink(self, directory: Handle, name: str) -> None:
        """Remove a name."""

    def size(self, handle: Handle) -> int:
        """Length of the file in bytes."""

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        """Read at most `count` bytes; fewer at the end of the file, or for no reason."""

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write at most all of `data`; the number of bytes written is returned."""

    def truncate(self, handle: Handle, size: int) -> None:
        """Cut the file to `size` bytes, or lengthen it with zeros."""

    def datasync(self, handle: Handle) -> None:
        """Make the file's content and length durable. It says nothing about its name."""

    def forget_cache(self, handle: Handle) -> None:
        """Drop clean cached pages, so that the next read shows what the disk holds."""

    def await_writes(self, directory: Handle, name: str) -> bool:
        """Wait for direct writes to a file that a process which is gone may have begun.

        False if there can be none: what was read before is what there is. The file is not empty.
        """

    def close(self, handle: Handle) -> None:
        """Give the handle back. Never writes."""

    def watch_fork(self, callback: Callable[[], None]) -> None:
        """Call `callback`, held weakly, in the child after every fork."""


class Clock(Protocol):
    """Time and chance."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    def wall(self) -> int:
        """Nanoseconds since the epoch; may be set back by people and daemons."""

    def token(self, count: int) -> bytes:
        """`count` unpredictable bytes."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
