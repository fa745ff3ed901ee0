"""A segment as a file to read: its header, its frames, and what lies behind the last one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from store.checksum import check_function, segment_seed
from store.errors import DamageError, FifoqError
from store.files import Files, Handle
from store.frames import (
    ALIGNMENT,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    FrameHeader,
    SegmentHeader,
    check_body,
    decode_header,
    find_algorithm,
)

READ_BYTES: Final = 256 << 10
_NUMBER_DIGITS: Final = 20
_LOG_SUFFIX: Final = ".log"
_INDEX_SUFFIX: Final = ".idx"


def segment_name(number: int) -> str:
    return f"{number:0{_NUMBER_DIGITS}}{_LOG_SUFFIX}"


def index_name(number: int) -> str:
    return f"{number:0{_NUMBER_DIGITS}}{_INDEX_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number in a segment's file name, or None for any other name."""
    return _number(name, _LOG_SUFFIX)


def index_number(name: str) -> int | None:
    """The number in an index's file name, or None for any other name."""
    return _number(name, _INDEX_SUFFIX)


def _number(name: str, suffix: str) -> int | None:
    digits = name[: -len(suffix)]
    if not name.endswith(suffix) or len(digits) != _NUMBER_DIGITS:
        return None
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) or None


def read_exactly(files: Files, handle: Handle, count: int, offset: int) -> bytes:
    """`count` bytes, or fewer only because the file ends."""
    data = files.pread(handle, count, offset)
    if len(data) == count or not data:
        return data
    parts = [data]
    have = len(data)
    while have < count:
        data = files.pread(handle, count - have, offset + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def let_go(files: Files, handle: Handle) -> None:
    """Close a handle, whatever the disk says to that.

    The handle is gone in any case, and what matters was synced before. An error from here would
    only hide the one that led to the closing, and skip what is to be done after it.
    """
    try:
        files.close(handle)
    except OSError:
        pass


def _algorithm(files: Files, handle: Handle) -> int:
    """The checksum algorithm of a segment: a rotten byte must not cost every frame of it."""
    return find_algorithm(read_exactly(files, handle, SEGMENT_HEADER_BYTES, 0))


class Frame(NamedTuple):
    """A frame whose checksums matched, and where it lies."""

    offset: int
    header: FrameHeader
    body: memoryview
    checksum: int

    @property
    def end(self) -> int:
        return self.offset + self.header.frame_bytes


class SegmentClosed(FifoqError):
    """The segment's file was given back while its frames were read; open it again."""


class SegmentFile:
    """Reads one segment. Every frame it hands out was checked against its place and chain."""

    def __init__(self, files: Files, handle: Handle, number: int, store_id: bytes) -> None:
        self.files = files
        self.handle = handle
        self.number = number
        self.store_id = store_id
        self.check = check_function(_algorithm(files, handle))
        self.seed = segment_seed(self.check, store_id, number)
        self.direct: Handle | None = None
        """Another handle of the same file, for direct writes; it is closed with the first."""
        self._closed = False

    def header(self) -> SegmentHeader:
        """The segment's header, checked against number and store. DamageError or FormatError."""
        data = read_exactly(self.files, self.handle, SEGMENT_HEADER_BYTES, 0)
        header = SegmentHeader.decode(data)
        if header.number != self.number:
            raise DamageError(0, f"segment {header.number} lies under the number {self.number}")
        if header.store_id != self.store_id:
            raise DamageError(0, "the segment belongs to another store")
        return header

    def frames(
        self,
        start: int,
        end: int,
        *,
        sequence: int | None = None,
        previous: int | None = None,
        skip: list[tuple[int, int]] | None = None,
        damage: list[DamageError] | None = None,
    ) -> Iterator[Frame]:
        """Frames from `start` up to `end`, in order.

        `sequence` and `previous` are what the first one must carry, where that is known; each
        later one must continue the one before. Regions of `skip` (known damage) are stepped
        over. DamageError at the first byte that does not fit; or, if there is a list for
        `damage`, it is noted there and the next sound frame follows. SegmentClosed if the
        segment is closed before the frames are used up.
        """
        if damage is not None:
            yield from self._frames_between_damage(start, end, skip, damage)
            return
        data, base = b"", start
        offset = start
        while offset < end:
            for first, stop in skip or ():
                if first <= offset < stop:
                    offset, sequence, previous = stop, None, None
            if offset >= end:
                return
            at = offset - base
            if at + FRAME_HEADER_BYTES > len(data):
                data = self._read(offset, end, FRAME_HEADER_BYTES)
                base, at = offset, 0
            header = decode_header(data, at, check=self.check, seed=self.seed, offset=offset)
            size = header.frame_bytes
            if at + size > len(data):
                data = self._read(offset, end, size)
                base, at = offset, 0
            if sequence is not None and header.sequence != sequence:
                raise DamageError(offset, f"frame {header.sequence} stands where {sequence} must")
            if previous is not None and header.previous != previous:
                raise DamageError(offset, f"frame {header.sequence} breaks the chain")
            body, checksum = check_body(data, at, header, check=self.check, offset=offset)
            yield Frame(offset, header, body, checksum)
            sequence, previous = header.sequence + 1, checksum
            offset += size

    def _frames_between_damage(
        self, start: int, end: int, skip: list[tuple[int, int]] | None, damage: list[DamageError]
    ) -> Iterator[Frame]:
        offset = start
        while offset < end:
            try:
                for frame in self.frames(offset, end, skip=skip):
                    yield frame
                    offset = frame.end
                return
            except DamageError as error:
                damage.append(error)
                offset = error.offset
            offset = next((at for at, _ in self.sound_headers(offset + ALIGNMENT, end)), end)

    def _read(self, offset: int, end: int, count: int) -> bytes:
        if offset + count > end:
            raise DamageError(offset, f"a frame of {count} bytes runs past byte {end}")
        if self._closed:
            raise SegmentClosed(f"{segment_name(self.number)}: closed while it was read")
        want = min(max(count, READ_BYTES), end - offset)
        data = read_exactly(self.files, self.handle, want, offset)
        if len(data) < count:
            raise DamageError(offset, f"the file ends {count - len(data)} bytes early")
        return data

    def sound_headers(
        self, start: int, end: int, *, astray: int = 0
    ) -> Iterator[tuple[int, FrameHeader]]:
        """Every place between `start` and `end` where a header that belongs there stands.

        Used behind damage: what such a header says can be believed, whatever its body is. With
        `astray`, headers that belong that many bytes before the place where they stand.
        """
        # Frames are at most this much apart in a read, so none is missed at a seam.
        overlap = FRAME_HEADER_BYTES
        offset = start
        while offset < end:
            data = read_exactly(
                self.files, self.handle, min(READ_BYTES + overlap, end - offset), offset
            )
            if len(data) < FRAME_HEADER_BYTES:
                return
            at = data.find(FRAME_MAGIC)
            while 0 <= at <= len(data) - FRAME_HEADER_BYTES:
                place = offset + at - astray
                if place % ALIGNMENT == 0 and place >= 0 and at < READ_BYTES:
                    try:
                        yield (
                            offset + at,
                            decode_header(data, at, check=self.check, seed=self.seed, offset=place),
                        )
                    except DamageError:
                        pass
                at = data.find(FRAME_MAGIC, at + 1)
            offset += READ_BYTES

    def is_zero(self, start: int, end: int) -> bool:
        """Whether nothing but zeros lies between `start` and `end` (or the file's end)."""
        offset = start
        while offset < end:
            data = read_exactly(self.files, self.handle, min(READ_BYTES, end - offset), offset)
            if not data:
                return True
            if data.count(0) != len(data):
                return False
            offset += len(data)
        return True

    def close(self) -> None:
        """Give the handles back. Twice is fine."""
        if not self._closed:
            self._closed = True
            let_go(self.files, self.handle)
            if self.direct is not None:
                let_go(self.files, self.direct)
