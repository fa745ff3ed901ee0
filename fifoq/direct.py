"""Direct writes: a segment's end in whole blocks, past the page cache.

A frame ends anywhere, and what is written directly begins and ends with a block. So the block in
which the last frame ends is kept and written again with the next one; in front of the new frame
are the bytes that lie there already, behind it zeros, as they lie ahead of every frame.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Final

from fifoq.uring import overwrites_in_place
from store import Begun
from store.begun import BEGUN_BYTES_MAX
from store.osfiles import OsFiles
from store.segment import segment_name

BLOCK_BYTES: Final = 4096
_MASK: Final = ~(BLOCK_BYTES - 1)
_ZEROS: Final = bytes(BLOCK_BYTES)


class DirectTail:
    """Memory from which the end of a log is written directly, one frame at a time."""

    def __init__(self) -> None:
        # A mapping of its own begins with a page.
        self._memory = mmap.mmap(-1, BEGUN_BYTES_MAX + 2 * BLOCK_BYTES)
        self._view = memoryview(self._memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.descriptor = -1
        self._segment = 0
        self._end = -1
        """Where the last frame written from here ends: the memory begins with its block."""
        self._filled = 0

    def stage(self, begun: Begun) -> tuple[int, int]:
        """Lay out the blocks that the frame touches; returns their offset and length.

        OSError: it cannot be written directly, or not without waiting.
        """
        offset, frame, view = begun.offset, begun.frame, self._view
        if begun.segment != self._segment:
            self._open(begun)
        start = offset & _MASK
        inside = offset - start
        if offset != self._end:
            self._end = -1
            if inside:
                self._read(begun, start, inside)
        if begun.filled != self._filled:
            # A block that is in the page cache is not written without waiting.
            os.posix_fadvise(begun.handle, start, begun.filled - start, os.POSIX_FADV_DONTNEED)
            self._filled = begun.filled
        end = inside + len(frame)
        view[inside:end] = frame
        length = (end + BLOCK_BYTES - 1) & _MASK
        if length > end:
            view[end:length] = _ZEROS[: length - end]
        return start, length

    def written(self, begun: Begun) -> None:
        """The frame that was staged is durable: keep the block in which it ends."""
        start = begun.offset & _MASK
        self._end = end = begun.offset + len(begun.frame)
        last = end & _MASK
        if last > start:
            view = self._view
            view[: end - last] = view[last - start : end - start]

    def forget(self) -> None:
        """Nobody knows what became of the frame that was staged."""
        self._end = -1

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
        self._segment = 0

    def _open(self, begun: Begun) -> None:
        self.close()
        log = begun.log
        if type(log.directory.files) is not OsFiles or not overwrites_in_place(begun.handle):
            raise OSError(errno.EOPNOTSUPP, "direct writes need blocks that stay where they are")
        flags = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
        directory = log.directory.handle
        self.descriptor = os.open(segment_name(begun.segment), flags, dir_fd=directory)
        self._segment, self._end, self._filled = begun.segment, -1, 0

    def _read(self, begun: Begun, start: int, count: int) -> None:
        """The bytes in front of a frame that lie in its block, unless the disk must be asked."""
        there = [self._view[:count]]
        if os.preadv(begun.handle, there, start, os.RWF_NOWAIT) != count:
            raise BlockingIOError(errno.EAGAIN, "the block in front of the frame is not in memory")
