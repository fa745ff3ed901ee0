"""Direct writes: a segment's end in whole blocks of the disk, past the page cache.

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
from fifoq.writer import Started
from store.begun import BEGUN_BYTES_MAX, Begun
from store.files import Handle
from store.osfiles import OsFiles
from store.segment import SegmentFile, segment_name

BLOCK_BYTES_MAX: Final = 4096
"""Larger blocks are written in parts of this size: a disk needs no more than its sectors."""
_ZEROS: Final = bytes(BLOCK_BYTES_MAX)


class DirectTail:
    """Memory from which the end of a log is written directly, one frame at a time."""

    def __init__(self) -> None:
        # A mapping of its own begins with a page.
        self._memory = mmap.mmap(-1, BEGUN_BYTES_MAX + 2 * BLOCK_BYTES_MAX)
        self._view = memoryview(self._memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.handle = Handle(-1)
        """The segment's own for direct writes, which is closed with it."""
        self._file: SegmentFile | None = None
        self._mask = 0
        self._end = -1
        """Where the last frame written from here ends: the memory begins with its block."""
        self._filled = 0

    def stage(self, begun: Begun) -> tuple[int, int]:
        """Lay out the blocks that the frame touches; returns their offset and length.

        OSError: it cannot be written directly, or not without waiting.
        """
        offset, frame, view, file = begun.offset, begun.frame, self._view, begun.file
        last, self._end = self._end, -1
        start = offset & self._mask
        inside = offset - start
        if offset != last and inside:
            self._read(file.handle, start, inside)
        end = inside + len(frame)
        length = (end + ~self._mask) & self._mask
        filled = begun.filled
        if start + length > filled:
            raise BlockingIOError(errno.EAGAIN, "the zeros ahead end within a block")
        if filled != self._filled:
            # A block that is in the page cache is not written without waiting.
            os.posix_fadvise(file.handle, start, filled - start, os.POSIX_FADV_DONTNEED)
            self._filled = filled
        view[inside:end] = frame
        if length > end:
            view[end:length] = _ZEROS[: length - end]
        return start, length

    def written(self, begun: Begun) -> None:
        """The frame that was staged is durable: keep the block in which it ends."""
        start = begun.offset & self._mask
        end = begun.offset + len(begun.frame)
        last = end & self._mask
        if last > start:
            view = self._view
            view[: end - last] = view[last - start : end - start]
        self._end = end

    def follow(self, begun: Started) -> None:
        """Be at the segment where the frame belongs. OSError if the ring must not write there."""
        file, directory = begun.file, begun.log.directory
        if file is self._file:
            return
        self._file = None
        # Tests put other files below a log.
        if type(file.files) is not OsFiles or not overwrites_in_place(file.handle):
            raise OSError(errno.EOPNOTSUPP, "direct writes need blocks that stay where they are")
        if file.direct is None:
            flags = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
            name = segment_name(file.number)
            file.direct = Handle(os.open(name, flags, dir_fd=directory.handle))
        self.handle = file.direct
        self._mask = -min(os.fstatvfs(file.handle).f_bsize, BLOCK_BYTES_MAX)
        self._end, self._filled = -1, 0
        self._file = file

    def _read(self, handle: Handle, start: int, count: int) -> None:
        """The bytes in front of a frame that lie in its block, unless the disk must be asked."""
        there = [self._view[:count]]
        if os.preadv(handle, there, start, os.RWF_NOWAIT) != count:
            raise BlockingIOError(errno.EAGAIN, "the block in front of the frame is not in memory")
