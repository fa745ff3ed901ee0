"""The tail: the one segment that is written.

Zeros are written ahead of the frames. Syncing a frame that overwrites blocks which exist already
is cheaper than one that makes the file longer, and a full disk shows up while filling, before any
byte of a frame is written. The last `reserve_bytes` of the zeros are for removals alone.
"""

from __future__ import annotations

import errno
import logging
from typing import Final

from store.checksum import Buffer
from store.directory import PASSING_ERRNOS, SPACE_ERRNOS, sync_error, sync_file, write_all
from store.errors import AccessError, DiskFull
from store.frames import SEGMENT_HEADER_BYTES
from store.options import LogOptions
from store.segment import SegmentFile

logger = logging.getLogger("store")

LAST_SHARE: Final = 4
"""This share of the reserve is kept to the end: the space to start a segment once all is taken."""
_FILL_PIECE: Final = bytes(1 << 20)


class Tail:
    """Appends frames to one segment, ahead of which zeros lie."""

    def __init__(self, file: SegmentFile, length: int, options: LogOptions) -> None:
        self.file = file
        self.length = length
        self.filled = length
        self.dirty = False
        self.closed = False
        """The segment takes no more frames, and there is no space for another one."""
        self.fills = True
        """More zeros may be written before somebody needs them: there was space the last time."""
        self.ahead_bytes = options.ahead_bytes
        self._reserve = options.reserve_bytes

    @property
    def empty(self) -> bool:
        return self.length == SEGMENT_HEADER_BYTES

    @property
    def wanted(self) -> int:
        """Up to where zeros are to lie, if there is space."""
        return self.length + self._reserve + self.ahead_bytes

    def has_room(self, count: int) -> bool:
        """Whether `count` bytes fit and leave the reserve as it is."""
        return self.length + count + self._reserve <= self.filled and not self.closed

    def make_room(self, count: int, *, reserve: bool, last: bool = False) -> bool:
        """Fill ahead so that `count` bytes fit; False if the disk is too full for that.

        With `reserve` the reserve may be used but for its last share, with `last` that share too;
        otherwise all of it must be left behind the frame.
        """
        if self.closed:
            return False
        need = self.length + count
        with_reserve = need + self._reserve
        if self.filled >= with_reserve:
            return True
        try:
            self._fill_to(with_reserve + self.ahead_bytes)
        except OSError as error:
            if error.errno not in SPACE_ERRNOS:
                raise
        if not reserve:
            return self.filled >= with_reserve
        return self.filled >= need + (0 if last else self._reserve // LAST_SHARE)

    def _fill_to(self, target: int) -> None:
        files, handle = self.file.files, self.file.handle
        while self.filled < target:
            piece = memoryview(_FILL_PIECE)[: target - self.filled]
            count = files.pwrite(handle, piece, self.filled)
            if count == 0:
                raise OSError(errno.ENOSPC, "a write made no progress")
            self.filled += count
            self.dirty = True
        self.fills = True

    def append(self, frame: Buffer) -> int:
        """Write a frame for which there is room; returns its offset.

        DiskFull, or AccessError for want of memory, if it is refused all the same: then it is cut
        off again, and the cut is synced, before anybody is told.
        """
        offset = self.length
        files, handle = self.file.files, self.file.handle
        self.dirty = True
        try:
            count = files.pwrite(handle, frame, offset)
            if count < len(frame):
                write_all(files, handle, memoryview(frame)[count:], offset + count)
        except OSError as error:
            if error.errno not in SPACE_ERRNOS and error.errno not in PASSING_ERRNOS:
                raise
            self._cut_back(offset)
            if error.errno in PASSING_ERRNOS:
                raise AccessError(
                    f"{self.name}: {error.strerror} while writing a frame. Nothing "
                    f"of it was stored; the store goes on. Try again."
                ) from error
            raise DiskFull(
                f"{self.name}: no space for a frame of {len(frame)} bytes at byte "
                f"{offset}. Nothing of it was stored. Takes and acks still work; free some space."
            ) from error
        self.advance(len(frame))
        return offset

    def advance(self, count: int) -> None:
        """A frame of so many bytes lies at the end."""
        offset = self.length
        self.length = length = offset + count
        if length > self.filled:
            self.filled = length
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("write segment=%d offset=%d bytes=%d", self.file.number, offset, count)

    def _cut_back(self, offset: int) -> None:
        try:
            self.file.files.truncate(self.file.handle, offset)
        except OSError as error:
            raise sync_error(self.name, error) from error
        self.filled = offset
        sync_file(self.file.files, self.file.handle, self.name)

    @property
    def name(self) -> str:
        return f"segment {self.file.number}"

    def sync(self) -> None:
        """Make everything appended so far durable. DurabilityError if that fails."""
        if self.dirty:
            file = self.file
            try:
                file.files.datasync(file.handle)
            except OSError as error:
                raise sync_error(self.name, error) from error
            self.dirty = False

    def trim(self) -> None:
        """Give back the zeros ahead; the segment ends with its last frame."""
        if self.filled > self.length:
            self.file.files.truncate(self.file.handle, self.length)
            self.filled = self.length
            self.dirty = True
