"""Open segments and their indexes, the last few used."""

from __future__ import annotations

import errno
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from store.directory import Directory
from store.errors import CorruptionError, DamageError
from store.frames import SEGMENT_HEADER_BYTES
from store.index import SegmentIndex
from store.replay import extend_index
from store.segment import SegmentFile, segment_name
from store.state import State

OPEN_SEGMENTS_MAX: Final = 8
SAVE_BYTES_MIN: Final = 1 << 20
"""An index built from less than this is built again next time; that is cheaper than a sync."""


class SegmentCache:
    """Gives a segment's file and its index, complete up to the length that the state knows."""

    def __init__(
        self, directory: Directory, state: State, store_id: bytes, *, saves: bool = False
    ) -> None:
        """With `saves`, which is the owner's, an index that had to be built is kept on disk."""
        self._directory = directory
        self._state = state
        self._store_id = store_id
        self._files: OrderedDict[int, SegmentFile] = OrderedDict()
        self._indexes: dict[int, SegmentIndex] = {}
        self._saves = saves
        self._tail = 0
        self._closed = False

    def open(self, number: int) -> tuple[SegmentFile, SegmentIndex]:
        """The segment's file, which stays open for a while. FileNotFoundError once closed."""
        if self._closed:
            raise FileNotFoundError(errno.ENOENT, "the segments were given back")
        file = self._files.get(number)
        if file is None:
            file = self._open_file(number)
            try:
                self._files[number] = file
            except BaseException:
                file.close()
                raise
        self._files.move_to_end(number)
        index = self.index(file)
        while len(self._files) > OPEN_SEGMENTS_MAX:
            oldest = next(iter(self._files))
            self._files.pop(oldest).close()
            if oldest != self._tail:
                self._indexes.pop(oldest, None)
        return file, index

    def _open_file(self, number: int) -> SegmentFile:
        try:
            return self._directory.open_segment(number, self._store_id)
        except FileNotFoundError:
            if not self._saves:
                raise
            # Nobody but the owner may take a segment away.
            path = f"{self._directory.path}/{segment_name(number)}"
            raise CorruptionError(path, 0, "the segment is missing") from None

    def index(self, file: SegmentFile) -> SegmentIndex:
        """The index of an open segment: as kept, as stored, or built by reading the segment."""
        number = file.number
        index = self._indexes.get(number)
        if index is None:
            index = self._directory.read_index(number, self._store_id)
        length = self._state.segments[number].length
        if index is None or index.length > length:
            index = SegmentIndex(SEGMENT_HEADER_BYTES)
        behind = length - index.length
        if behind > 0:
            skip = [(start, end) for n, start, end in self._state.damage if n == number]
            damage: list[DamageError] = []
            for frame in file.frames(index.length, length, skip=skip, damage=damage):
                extend_index(index, frame)
            index.length = length
            if damage:
                # It serves the queues that are not in there, this once; it is not worth keeping.
                return index
            if self._saves and behind >= SAVE_BYTES_MIN and number != self._tail:
                with suppress(OSError):
                    self._directory.write_index(index, number, self._store_id)
        self._indexes[number] = index
        return index

    def tail_index(self, number: int) -> SegmentIndex | None:
        """The kept index of the segment that is written, if there is one; it stays kept."""
        self._tail = number
        return self._indexes.get(number)

    def start_tail(self, number: int) -> None:
        """A new segment is written from here on."""
        self._tail = number
        self._indexes[number] = SegmentIndex(SEGMENT_HEADER_BYTES)

    def end_tail(self, number: int) -> SegmentIndex | None:
        """A segment takes no more frames: its index is handed over and kept only while it is open.

        None if there is none at hand.
        """
        index = self._indexes.get(number)
        if number not in self._files:
            self._indexes.pop(number, None)
        return index

    def forget(self, number: int) -> None:
        file = self._files.pop(number, None)
        if file is not None:
            file.close()
        self._indexes.pop(number, None)

    def close(self) -> None:
        self._closed = True
        for number in list(self._files):
            self.forget(number)
