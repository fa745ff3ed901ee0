"""A damaged store, as it can still be read: `Files` that show it and change nothing.

Segments appear under the number that their own header says, whatever name they have by now. Indexes
do not appear: they may speak of frames that are damaged, and are built anew from what is intact.
Sectors that the disk refuses read as zeros and are noted. What is created goes nowhere.
"""

from __future__ import annotations

import errno
import os
from collections import Counter

import msgspec

from store import DamageError, FifoqError, FormatError
from store.checksum import CRC32C
from store.directory import Directory
from store.files import Handle
from store.frames import ALGORITHM_AT, SEGMENT_HEADER_BYTES, SegmentHeader
from store.osfiles import OsFiles
from store.recovery import read_checkpoints
from store.segment import index_number, segment_name, segment_number

SECTOR_BYTES = 512


class Unreadable(msgspec.Struct, frozen=True):
    """Bytes of a file that the disk did not give back."""

    file: str
    offset: int
    end: int


class Evidence(OsFiles):
    """The files of one damaged store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notes: list[str] = []
        self.unreadable: list[Unreadable] = []
        self._opened: dict[int, str] = {}
        self._real: dict[str, str] = {}
        self._headless: set[str] = set()
        names = os.listdir(path)
        self.segments = self._sort_out([n for n in names if segment_number(n) is not None])
        hidden = (segment_number, index_number)
        self._names = [n for n in names if all(number(n) is None for number in hidden)]

    # Which file is which segment.

    def _sort_out(self, names: list[str]) -> list[int]:
        headers = {name: self._header(name) for name in names}
        store_id = self._store_id([header for header in headers.values() if header is not None])
        chosen: dict[int, str] = {}
        for name, header in sorted(headers.items()):
            if header is not None and header.store_id != store_id:
                self.notes.append(f"{name} belongs to another store, and is left out")
                continue
            number = header.number if header is not None else segment_number(name)
            assert number is not None
            rival = chosen.get(number)
            if rival is None or self._rank(name, header) > self._rank(rival, headers[rival]):
                chosen[number] = name
            if rival is not None:
                loser = rival if chosen[number] == name else name
                self.notes.append(f"{loser} is another copy of segment {number}, and is left out")
        for number, name in chosen.items():
            if headers[name] is None:
                self._headless.add(segment_name(number))
            self._real[segment_name(number)] = name
            if segment_name(number) != name:
                self.notes.append(f"{name} says that it is {segment_name(number)}, and is read so")
        return sorted(chosen)

    def _rank(self, name: str, header: SegmentHeader | None) -> tuple[bool, bool, int]:
        """Of two files for one number: the one with a sound header, its own name, more bytes."""
        own = header is not None and header.number == segment_number(name)
        return header is not None, own, os.path.getsize(f"{self.path}/{name}")

    def _header(self, name: str) -> SegmentHeader | None:
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                return SegmentHeader.decode(file.read(SEGMENT_HEADER_BYTES))
        except (DamageError, FormatError, OSError):
            return None

    def _store_id(self, headers: list[SegmentHeader]) -> bytes:
        """The id that checkpoints and headers have, or most of them."""
        ids = Counter(header.store_id for header in headers)
        directory = Directory(OsFiles(), self.path)
        try:
            ids.update(
                store_id for _, store_id, _ in read_checkpoints(directory, directory.names())
            )
        except (FifoqError, OSError):
            pass
        finally:
            directory.close()
        return ids.most_common(1)[0][0] if ids else b""

    # What the store asks for.

    def list_dir(self, directory: Handle) -> list[str]:
        return [*self._names, *self._real]

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        if index_number(name) is not None or (segment_number(name) and name not in self._real):
            raise FileNotFoundError(errno.ENOENT, "it is not shown", name)
        handle = super().open(directory, self._real.get(name, name), write=False)
        self._opened[handle] = name
        return handle

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        try:
            data = super().pread(handle, count, offset)
        except OSError:
            data = self._read_sectors(handle, min(count, self.size(handle) - offset), offset)
        if self._opened[handle] in self._headless and offset <= ALGORITHM_AT < offset + len(data):
            # Of a header that is not sound this byte may be what rotted, and every frame is read by
            # it. Nothing but CRC32C was ever written there.
            at = ALGORITHM_AT - offset
            data = data[:at] + bytes([CRC32C]) + data[at + 1 :]
        return data

    def _read_sectors(self, handle: Handle, count: int, offset: int) -> bytes:
        """What the disk gives of a stretch that it does not give whole."""
        data = bytearray()
        while len(data) < count:
            at = offset + len(data)
            size = min(SECTOR_BYTES - at % SECTOR_BYTES, count - len(data))
            try:
                piece = super().pread(handle, size, at)
            except OSError:
                self._refused(self._opened[handle], at, at + size)
                piece = b""
            data += piece.ljust(size, b"\0")
        return bytes(data)

    def _refused(self, name: str, start: int, end: int) -> None:
        for index, known in enumerate(self.unreadable):
            if known.file == name and known.offset <= start <= known.end:
                self.unreadable[index] = Unreadable(name, known.offset, max(end, known.end))
                return
        self.unreadable.append(Unreadable(name, start, end))

    def close(self, handle: Handle) -> None:
        self._opened.pop(handle, None)
        super().close(handle)

    # What would change something.

    def create(self, directory: Handle, name: str) -> Handle:
        handle = Handle(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        self._opened[handle] = name
        return handle

    def unlink(self, directory: Handle, name: str) -> None: ...

    def datasync(self, handle: Handle) -> None: ...

    def sync_dir(self, directory: Handle) -> None: ...

    def truncate(self, handle: Handle, size: int) -> None: ...
