"""A store in a directory of this machine, as Spark's planners and tasks see it.

A planner loads the store's state. A task does not: its pieces say where in which segment they lie,
and frames carry checksums of their place, so it opens that one file. What it does not find there
any more, because the owner reclaimed or compacted the segment, it looks up as anybody would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from fifoq.consumers import Position, id_text, read_position, write_position
from fifoq.description import (
    QueueDescription,
    SpanDescription,
    attempts_within,
    describe,
    describe_span,
)
from fifoq.spark.access import Piece
from store import CorruptionError, Reader, RecordBlock
from store.blocks import MOVED
from store.directory import Directory, access_error
from store.errors import DamageError
from store.frames import SEGMENT_HEADER_BYTES
from store.genesis import check_name
from store.index import QueueIndex
from store.osfiles import OsFiles
from store.replay import frame_blocks, readable


class LocalAccess:
    """A directory of this machine, live or not."""

    def __init__(self, path: str, store_id: str = "") -> None:
        """FormatError or AccessError if no store is there, unless a `store_id` says that one is."""
        self.path = local_path(path)
        self._expected = store_id
        self._loaded: Reader | None = None
        if not store_id:
            self._load()

    def _load(self) -> Reader:
        try:
            reader = Reader(self.path)
        except OSError as error:
            raise access_error(self.path, error) from error
        found = id_text(reader.store_id)
        if self._expected not in ("", found):
            reader.close()
            raise CorruptionError(
                f"{self.path}/checkpoint.a",
                0,
                f"store {found} lies where store {self._expected} was when the query was planned",
            )
        self._loaded = reader
        return reader

    @property
    def _reader(self) -> Reader:
        return self._loaded or self._load()

    @property
    def store_id(self) -> str:
        return self._expected or id_text(self._reader.store_id)

    def queues(self) -> list[str]:
        return sorted(self._reader.state.queues)

    def queue(self, name: str) -> QueueDescription:
        return describe(self._reader, name)

    def seek(self, name: str, time_ns: int) -> int:
        return self._reader.seek(check_name(name), max(time_ns, 0))

    def removed(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        queue = self._reader.state.queues.get(check_name(name))
        return queue.not_live(first, last, last - first + 2) if queue is not None else []

    def attempts(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        return attempts_within(self._reader, name, first, last)

    def pieces(
        self, name: str, first: int, last: int, *, piece_bytes: int, total_bytes: int | None = None
    ) -> list[Piece]:
        queue = self._reader.state.queues.get(check_name(name))
        found: list[Piece] = []
        left = total_bytes
        at = queue.span_index(first) if queue is not None else 0
        while queue is not None and at < len(queue.spans) and queue.spans[at].first <= last:
            span = describe_span(self._reader.state, queue.spans[at])
            largest = piece_bytes if left is None else min(piece_bytes, left)
            for piece in self._pieces_of(name, span, first, last, largest):
                if left is not None:
                    left -= piece.bytes
                    if left < 0 and found:
                        return found
                found.append(piece)
            if left is not None and left <= 0:
                return found
            at += 1
        return found

    def _pieces_of(
        self, name: str, span: SpanDescription, first: int, last: int, piece_bytes: int
    ) -> list[Piece]:
        """A span's part of first..last in pieces."""
        first, last = max(first, span.first), min(last, span.last)
        count = last - first + 1
        size = max(1, span.bytes * count // (span.last - span.first + 1))
        if span.moved:
            # They lie scattered, so that each piece would read all of them.
            return [Piece(first, last, size)]
        segment = self._reader.state.segments[span.segment]
        if first == span.first and last == span.last and size <= piece_bytes:
            return [
                Piece(first, last, size, span.segment, SEGMENT_HEADER_BYTES, segment.length),
            ]
        entries = self._reader.entries(name, span.segment)
        if entries is None or not len(entries.counters):
            return [Piece(first, last, size)]
        return list(_cut(entries, span.segment, segment.length, first, last, piece_bytes))

    def read(self, name: str, piece: Piece) -> Iterator[RecordBlock]:
        counter = piece.first
        try:
            for block in self._placed(name, piece):
                if block.first > counter:
                    # A reader knows whether something is missing there.
                    yield from self.blocks(name, counter, block.first - 1)
                yield block
                counter = block.last + 1
        except (DamageError, FileNotFoundError):
            # It was reclaimed or compacted; or the reader will tell exactly what is damaged.
            pass
        except OSError as error:
            raise access_error(self.path, error) from error
        if counter <= piece.last:
            yield from self.blocks(name, counter, piece.last)

    def _placed(self, name: str, piece: Piece) -> Iterator[RecordBlock]:
        """Blocks of a piece as far as they lie where it says."""
        if not piece.segment:
            return
        directory = Directory(OsFiles(), self.path)
        try:
            file = directory.open_segment(piece.segment, bytes.fromhex(self.store_id))
        finally:
            directory.close()
        try:
            for frame in file.frames(piece.start, piece.end):
                for kind, block in frame_blocks(frame, name):
                    if kind == MOVED or not isinstance(block, RecordBlock):
                        continue
                    if block.first > piece.last:
                        return
                    if block.last >= piece.first:
                        yield _within(readable(frame, block), piece)
        finally:
            file.close()

    def blocks(
        self, name: str, first: int, last: int, *, removed: bool = True
    ) -> Iterator[RecordBlock]:
        return self._reader.blocks(name, first, last, removed=removed)

    def state(self, name: str) -> bytes | None:
        """The newest entry of the store's states of that name, if there is one."""
        return self._reader.state_of(name)

    def position(self, consumer: str) -> Position | None:
        return read_position(self.path, consumer)

    def set_position(self, consumer: str, position: Position) -> None:
        write_position(self.path, consumer, position)

    def refresh(self) -> None:
        self._reader.refresh()

    def close(self) -> None:
        if self._loaded is not None:
            self._loaded.close()


def _cut(
    entries: QueueIndex, segment: int, length: int, first: int, last: int, piece_bytes: int
) -> Iterator[Piece]:
    """Pieces that begin where the index has an entry, each of the largest size that fits."""
    at = max(0, bisect_right(entries.counters, first) - 1)
    stop = bisect_right(entries.counters, last)
    starts, bounds = entries.counters[at:stop], entries.offsets[at : stop + 1].tolist()
    if stop == len(entries.offsets):
        bounds.append(length)
    at = 0
    while at < len(starts):
        # The last entry that leaves the piece within its size; the next one if none does.
        end = max(at + 1, bisect_right(bounds, bounds[at] + piece_bytes) - 1)
        upto = last if end == len(starts) else starts[end] - 1
        yield Piece(first, upto, bounds[end] - bounds[at], segment, bounds[at], bounds[end])
        first, at = upto + 1, end


def _within(block: RecordBlock, piece: Piece) -> RecordBlock:
    """The part of a block of consecutive counters that belongs to a piece."""
    start = max(0, piece.first - block.first)
    return block.slice(start, min(block.count, piece.last - block.first + 1))


def local_path(path: str) -> str:
    """A path of this machine as Spark may hand it over, with or without `file:`."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path
