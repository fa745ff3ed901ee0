"""Reading records by counter: from spans to segments, through the index, to blocks.

Used by the owner and by readers alike. Blocks come out as they lie in the log; nothing is copied
for a single record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Final

from store.blocks import MOVED, RecordBlock, StateBlock
from store.errors import CorruptionError, DamageError
from store.index import MovedEntry, QueueIndex, SegmentIndex
from store.replay import frame_blocks, readable
from store.segment import Frame, SegmentClosed, SegmentFile, segment_name
from store.state import QueueState, Span, State

SEEK_BYTES_MIN: Final = 64 << 10
"""A gap to the queue's next entry that is worth jumping over instead of reading through."""

FRAMES_AT_HAND: Final = 4
"""Of the frames with moved records, so many stay decoded: those of one queue lie side by side."""

OpenSegment = Callable[[int], tuple[SegmentFile, SegmentIndex]]


class Lookup:
    """Finds blocks of queues; `open_segment` gives a segment's file and complete index."""

    def __init__(self, path: str, state: State, open_segment: OpenSegment) -> None:
        self._path = path
        self._state = state
        self._open = open_segment

    def blocks(
        self, queue: QueueState, first: int, last: int, *, live: bool = False
    ) -> Iterator[RecordBlock]:
        """Retained records first..last in order of counter, removed ones included.

        CorruptionError where damage has taken one of them, or with `live` a live one; the blocks
        before it were handed out. Damage that took none of them is for others to meet.
        """
        counter = first
        while counter <= last:
            at = queue.span_index(counter)
            if at == len(queue.spans) or queue.spans[at].first > last:
                return
            span = queue.spans[at]
            counter, upto = max(counter, span.first), min(last, span.last)
            read = self._moved_blocks if span.moved else self._put_blocks
            damage: list[DamageError] = []
            try:
                for block in read(queue, span, counter, upto, damage):
                    if counter < block.first:
                        self._check_hole(queue, span, counter, block.first - 1, damage, live)
                    yield block
                    counter = block.last + 1
            except SegmentClosed:
                # Reclaimed, or too many were open: the records may lie elsewhere by now.
                continue
            if counter <= upto:
                self._check_hole(queue, span, counter, upto, damage, live)
            counter = max(counter, upto + 1)

    def _check_hole(
        self,
        queue: QueueState,
        span: Span,
        first: int,
        last: int,
        damage: list[DamageError],
        live: bool,
    ) -> None:
        if queue.live_count(first, last) or (damage and not live):
            place = damage[0] if damage else DamageError(0, "they are not where they must be")
            raise CorruptionError(
                f"{self._path}/{segment_name(span.segment)}",
                place.offset,
                f"records {first} to {last} of queue {queue.name!r}: {place.reason}",
            )

    def live_blocks(self, queue: QueueState, first: int, last: int) -> Iterator[RecordBlock]:
        """The same, with only live records."""
        floor = queue.genesis.floor
        for block in self.blocks(queue, max(first, floor + 1), last, live=True):
            # Records may be removed while the blocks are read, so look at what holds now.
            if not queue.removed and block.first > queue.genesis.floor:
                yield block
                continue
            counters = block.counters()
            start = 0
            while start < block.count:
                stop = start
                while stop < block.count and queue.is_live(counters[stop]):
                    stop += 1
                if stop > start:
                    yield block.slice(start, stop)
                start = stop + 1

    def counter_at(self, queue: QueueState, time: int) -> int:
        """Counter of the first retained record put at `time` or later; the next one if none is."""
        for span in queue.spans:
            first = span.first
            if not span.moved:
                if self._state.segments[span.segment].last_time < time:
                    continue
                with self._damage_in(span.segment):
                    entries = self._entries(queue, span)[1]
                first = max(first, entries.counter_at_time(time))
            for block in self.blocks(queue, first, span.last):
                at = bisect_left(block.times(), time)
                if at < block.count:
                    return block.counters()[at]
        return queue.genesis.next_counter

    def state_value(self, name: str) -> bytes | None:
        """Newest value of a name, or None if it was never set or is deleted."""
        return self.state_values([name]).get(name)

    def state_values(self, names: Iterable[str]) -> dict[str, bytes]:
        """Newest values of those names that have one; each frame is read once."""
        places: dict[tuple[int, int], list[str]] = {}
        for name in names:
            entry = self._state.states.get(name)
            if entry is not None and entry.present:
                places.setdefault((entry.segment, entry.offset), []).append(name)
        values: dict[str, bytes] = {}
        for (segment, offset), wanted in places.items():
            found: dict[str, bytes | None] = {}
            with self._damage_in(segment):
                file, _ = self._open(segment)
                frame = next(file.frames(offset, self._state.segments[segment].length))
                for _, block in frame_blocks(frame):
                    if isinstance(block, StateBlock):
                        found.update(block.entries)
            values |= {name: value for name in wanted if (value := found.get(name)) is not None}
        return values

    def _entries(self, queue: QueueState, span: Span) -> tuple[SegmentFile, QueueIndex]:
        file, index = self._open(span.segment)
        entries = index.queues.get(queue.name)
        if entries is None:
            raise DamageError(0, f"the segment holds no records of queue {queue.name!r}")
        return file, entries

    def _put_blocks(
        self, queue: QueueState, span: Span, first: int, last: int, damage: list[DamageError]
    ) -> Iterator[RecordBlock]:
        with self._damage_in(span.segment):
            file, entries = self._entries(queue, span)
            length = self._state.segments[span.segment].length
            skip = [(start, end) for n, start, end in self._state.damage if n == span.segment]
            offset: int | None = entries.offset_of_counter(first)
            while offset is not None:
                start, offset = offset, None
                for frame in file.frames(start, length, skip=skip, damage=damage):
                    for kind, block in frame_blocks(frame, queue.name):
                        if not isinstance(block, RecordBlock) or kind == MOVED:
                            continue
                        if block.first > last:
                            return
                        if block.last >= first:
                            yield _within(readable(frame, block), first, last)
                            if block.last >= last:
                                return
                    ahead = entries.next_offset(frame.offset)
                    if (
                        ahead is not None
                        and ahead - frame.end >= SEEK_BYTES_MIN
                        and entries.is_noted_from(frame.end, frame.offset)
                    ):
                        offset = ahead
                        break

    def _moved_blocks(
        self, queue: QueueState, span: Span, first: int, last: int, damage: list[DamageError]
    ) -> Iterator[RecordBlock]:
        with self._damage_in(span.segment):
            file, entries = self._entries(queue, span)
            length = self._state.segments[span.segment].length

            @lru_cache(FRAMES_AT_HAND)
            def moved_at(offset: int) -> dict[tuple[int, int], tuple[Frame, RecordBlock]]:
                return {
                    (block.first, block.last): (frame, block)
                    for frame in islice(file.frames(offset, length), 1)
                    for kind, block in frame_blocks(frame, queue.name)
                    if kind == MOVED and isinstance(block, RecordBlock)
                }

            for group in _overlapping(entries.moved, first, last):
                pieces: dict[int, tuple[Frame, RecordBlock, int]] = {}
                for entry in group:
                    found = moved_at(entry.offset).get((entry.first, entry.last))
                    if found is None:
                        # An index that is wrong. Whoever asked sees if a live record is missing.
                        continue
                    frame, block = found
                    # A record moved twice into one segment: the newest copy counts.
                    for i, counter in enumerate(block.counters()):
                        if first <= counter <= last:
                            pieces[counter] = frame, block, i
                yield from _stretches(pieces)

    @contextmanager
    def _damage_in(self, segment: int) -> Iterator[None]:
        try:
            yield
        except DamageError as error:
            path = f"{self._path}/{segment_name(segment)}"
            raise CorruptionError(path, error.offset, error.reason) from None


def _overlapping(entries: Sequence[MovedEntry], first: int, last: int) -> list[list[MovedEntry]]:
    """Entries that reach into first..last, in order of counter; in groups where they overlap.

    Those of a group are in the order in which they were written.
    """
    places = [n for n, entry in enumerate(entries) if entry.first <= last and entry.last >= first]
    places.sort(key=lambda n: entries[n].first)
    groups: list[list[int]] = []
    end = 0
    for place in places:
        if entries[place].first > end:
            groups.append([])
        groups[-1].append(place)
        end = max(end, entries[place].last)
    return [[entries[n] for n in sorted(group)] for group in groups]


def _stretches(pieces: dict[int, tuple[Frame, RecordBlock, int]]) -> Iterator[RecordBlock]:
    """Records by counter, each told by frame, block and index, as blocks without a gap."""
    whole = found = None
    start = stop = end = 0
    for counter in sorted(pieces):
        frame, block, i = pieces[counter]
        if found is not None and block is whole and i == stop and counter == end:
            stop, end = stop + 1, end + 1
            continue
        if found is not None:
            yield found.slice(start, stop)
        if block is not whole or found is None:
            # One at a time: what they decompress to may be more than memory has.
            whole, found = block, readable(frame, block)
        start, stop, end = i, i + 1, counter + 1
    if found is not None:
        yield found.slice(start, stop)


def _within(block: RecordBlock, first: int, last: int) -> RecordBlock:
    """The part of a block of consecutive counters that lies in first..last."""
    return block.slice(max(0, first - block.first), min(block.count, last - block.first + 1))
