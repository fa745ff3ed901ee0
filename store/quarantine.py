"""Opening what damage has left: every intact record, and an exact list of what is missing.

The damaged bytes are copied aside into `.bad` files, and their places are kept in the checkpoint so
that later reads step over them. The segments themselves are not changed. Indexes go, since they may
speak of what is lost; they are built again.

A counter is missing if something that is left knows of it: the checkpoint, or a genesis entry
behind the damage. Behind what nothing knows, counting goes on far enough away.
"""

from __future__ import annotations

from store.blocks import MOVED, RecordBlock, RemovedBlock
from store.check import live_ranges, unseen
from store.checkpoint import Checkpoint
from store.directory import QUARANTINE_SUFFIX, Directory, Names
from store.errors import CorruptionError, DamageError, FormatError, Quarantine
from store.frames import SEGMENT_HEADER_BYTES
from store.genesis import decode_genesis
from store.keys import COUNTER_MAX, RESERVED_COUNTERS
from store.ranges import RangeSet
from store.recovery import Position, Recovered, find_store_id, find_witness, read_checkpoints
from store.replay import apply_frame, frame_blocks
from store.segment import Frame, SegmentFile, index_name, read_exactly, segment_name
from store.segment_state import SegmentState
from store.state import NOWHERE, QueueState, Span, State
from store.survey import Survey, survey


def salvage(directory: Directory, names: Names) -> tuple[Recovered, Quarantine]:
    """The state of everything intact, and what is not. Writes `.bad` copies and removes indexes.

    CorruptionError if there is nothing to start from: then nothing was changed.
    """
    return _Salvage(directory, names).run()


class _Salvage:
    """Builds a state from whatever is intact."""

    def __init__(self, directory: Directory, names: Names) -> None:
        self._directory = directory
        self._names = names
        self._state = State()
        self._missing: dict[str, RangeSet] = {}
        self._lost_states: list[str] = []
        self._regions: list[tuple[int, int, int]] = []
        self._surveys: dict[int, Survey] = {}
        self._losses = 0
        """How many stretches behind the checkpoint were lost so far."""
        self._losses_known: dict[str, int] = {}
        """That number when each queue was last heard of."""
        self._unknown: dict[str, int] = {}

    def run(self) -> tuple[Recovered, Quarantine]:
        copies = read_checkpoints(self._directory, self._names)
        number, name, self._start = 0, None, Position(0, 0, 0, 0)
        if copies:
            name, self._store_id, checkpoint = copies[0]
            self._state.load(checkpoint)
            number = checkpoint.number
            self._start = _end_of(checkpoint)
        elif self._names.segments:
            self._store_id = find_store_id(self._directory, self._names)
        self._end = self._start
        leftovers = self._read_segments()
        self._drop_missing_segments()
        self._give_up_unseen()
        self._skip_unknown_counters()
        self._set_aside()
        end, torn_bytes = self._last_place()
        is_cut = end.segment < self._start.segment
        recovered = Recovered(
            self._store_id, self._state, end, number, name, False, torn_bytes, leftovers, is_cut
        )
        missing = {name: list(ranges) for name, ranges in self._missing.items() if ranges}
        return recovered, Quarantine(missing, self._regions, self._lost_states, self._unknown)

    def _last_place(self) -> tuple[Position, int]:
        """Where the log goes on: behind everything, whatever it is, in the last segment."""
        number = max(self._surveys)
        with self._directory.reading(segment_name(number)) as handle:
            size = self._directory.files.size(handle)
        length = self._state.segments[number].length
        damaged = sum(stop - start for n, start, stop in self._regions if n == number)
        sequence, checksum = self._end.sequence, self._end.checksum
        found = self._surveys[number]
        if number < self._end.segment and found.frame_count:
            # What came later is gone: the log continues the frame that is the last one now.
            sequence, checksum = found.last_sequence, found.last_checksum
        return Position(number, length, sequence, checksum), max(0, size - length) + damaged

    def _read_segments(self) -> list[int]:
        """Read what there is, in order; returns the numbers of what was reclaimed already."""
        start = self._start.segment
        kept = [n for n in self._names.segments if n >= start or n in self._state.segments]
        if not kept:
            path = f"{self._directory.path}/{segment_name(max(start, 1))}"
            raise CorruptionError(path, 0, "every segment is missing")
        expected = start or kept[0]
        for number in kept:
            if number > expected:
                self._losses += 1
            self._read_segment(number)
            expected = max(expected, number + 1)
        if expected == start:
            self._losses += 1
        return [number for number in self._names.segments if number not in kept]

    def _read_segment(self, number: int) -> None:
        with self._directory.reading(segment_name(number)) as handle:
            file = SegmentFile(self._directory.files, handle, number, self._store_id)
            size = self._directory.files.size(handle)
            place = self._state.segments.get(number)
            if place is None:
                place = self._state.segments[number] = SegmentState(
                    number, SEGMENT_HEADER_BYTES, self._end.sequence + 1, 0
                )
            sealed = self._sealed_length(number)
            end = max(size, place.length) if sealed is None else sealed
            known = self._start.offset if number == self._start.segment else None
            found, frames = survey(file, SEGMENT_HEADER_BYTES, end, known=known)
            noted = 0
            for frame in frames:
                for offset, stop, _ in found.damage[noted:]:
                    self._note_region(number, offset, stop, self._is_behind_start(number, offset))
                noted = len(found.damage)
                if self._is_behind_start(number, frame.offset):
                    self._apply(number, frame)
            for offset, stop, _ in found.damage[noted:]:
                if sealed is not None or not self._is_tail(file, offset, stop):
                    self._note_region(number, offset, stop, self._is_behind_start(number, offset))
            if sealed is None and size < end:
                # What was behind the checkpoint is gone as well, and no byte is left to tell.
                self._losses += 1
            try:
                file.header()
            except DamageError:
                # Without any frame it may be the file of another segment, whatever its size.
                lost = not found.frame_count and number >= self._start.segment
                self._note_region(number, 0, SEGMENT_HEADER_BYTES, lost)
            place.length = max(place.length, sealed or 0)
            self._surveys[number] = found

    def _sealed_length(self, number: int) -> int | None:
        """The length of a segment that takes no more frames, if anything knows it."""
        if number < self._start.segment:
            return self._state.segments[number].length
        if number + 1 not in self._names.segments:
            return None
        with self._directory.reading(segment_name(number + 1)) as handle:
            file = SegmentFile(self._directory.files, handle, number + 1, self._store_id)
            try:
                return file.header().previous_length
            except DamageError:
                return None

    def _is_behind_start(self, number: int, offset: int) -> bool:
        return (number, offset) >= (self._start.segment, self._start.offset)

    def _is_tail(self, file: SegmentFile, offset: int, stop: int) -> bool:
        """Whether the end of the last segment is zeros or a torn frame, which nobody misses."""
        if not self._is_behind_start(file.number, offset):
            return False
        if file.is_zero(offset, stop):
            return True
        last = file.number == self._names.segments[-1]
        return last and find_witness(file, offset, stop, self._end.sequence) is None

    def _note_region(self, number: int, start: int, end: int, lost: bool) -> None:
        """Damage; with `lost`, frames behind the checkpoint may have been in there."""
        if any(n == number and a <= start and end <= b for n, a, b in self._state.damage):
            return
        self._losses += lost
        self._regions.append((number, start, end))

    def _apply(self, number: int, frame: Frame) -> None:
        """Apply a frame behind damage; counters that it skips over were in the damage."""
        try:
            entries = decode_genesis(frame.body, frame.header.genesis_bytes)
            blocks = frame_blocks(frame)
            for entry in entries:
                queue = self._state.queue(entry.name)
                firsts = [
                    block.first
                    for kind, block in blocks
                    if isinstance(block, RecordBlock)
                    and kind != MOVED
                    and block.queue == entry.name
                ]
                self._note_gap(queue, min(firsts, default=entry.next_counter) - 1)
            apply_frame(self._state, number, frame, None)
        except (DamageError, FormatError):
            self._note_region(number, frame.offset, frame.end, True)
            return
        for kind, block in blocks:
            if isinstance(block, RemovedBlock) and block.queue in self._missing:
                for first, last, _ in block.ranges:
                    self._missing[block.queue].remove(first, last)
            elif kind == MOVED and isinstance(block, RecordBlock) and block.queue in self._missing:
                for counter in block.counters():
                    self._missing[block.queue].remove(counter, counter)
        for entry in entries:
            if entry.name in self._missing:
                self._missing[entry.name].remove(1, entry.floor)
            self._losses_known[entry.name] = self._losses
        self._end = Position(number, frame.end, frame.header.sequence, frame.checksum)

    def _note_gap(self, queue: QueueState, upto: int) -> None:
        expected = queue.genesis.next_counter
        if upto >= expected:
            if self._losses_known.get(queue.name, 0) != self._losses:
                self._missing.setdefault(queue.name, RangeSet()).add(expected, upto)
            self._state.skip_counters(queue, upto)

    def _drop_missing_segments(self) -> None:
        for number in set(self._state.segments) - set(self._names.segments):
            for queue in self._state.queues.values():
                for span in [span for span in queue.spans if span.segment == number]:
                    for first, last in live_ranges(queue, span.first, span.last):
                        self._give_up(queue, first, last)
            self._lose_states(number, 0, self._state.segments[number].length)
            self._state.forget_segment(number)
            for queue in self._state.queues.values():
                # The number may be used again: nothing of the queue lies there.
                if queue.genesis_segment == number:
                    queue.genesis_segment = NOWHERE
                if queue.configuration_segment == number:
                    queue.configuration_segment = NOWHERE

    def _give_up_unseen(self) -> None:
        for queue in self._state.queues.values():
            for first, last in unseen(queue, self._surveys):
                self._give_up(queue, first, last)
            queue.spans = [span for span in queue.spans if self._is_seen(queue, span)]
            live = sum(span.live for span in queue.spans)
            missing = sum(b - a + 1 for a, b in self._missing.get(queue.name, ()))
            if live + missing < queue.genesis.queue_size:
                # Without a checkpoint: of what was moved nothing else tells the counters.
                self._unknown[queue.name] = queue.genesis.floor + 1
            queue.genesis.queue_size = live
        for number, start, end in self._regions:
            self._lose_states(number, start, end)

    def _is_seen(self, queue: QueueState, span: Span) -> bool:
        """Whether anything of a span is intact, taken or not."""
        seen = self._surveys[span.segment].seen.get((queue.name, span.moved))
        return seen is not None and seen.count(span.first, span.last) > 0

    def _skip_unknown_counters(self) -> None:
        """A queue not heard of since the last loss may have shown counters that nobody knows."""
        for queue in self._state.queues.values():
            lost = self._losses - self._losses_known.get(queue.name, 0)
            if lost:
                following = queue.genesis.next_counter
                self._unknown.setdefault(queue.name, following)
                upto = max(following + lost * RESERVED_COUNTERS, queue.genesis.reserved_upto)
                self._state.skip_counters(queue, min(upto, COUNTER_MAX))

    def _give_up(self, queue: QueueState, first: int, last: int) -> None:
        self._missing.setdefault(queue.name, RangeSet()).add(first, last)
        self._state.remove(queue, first, last, 0)

    def _lose_states(self, number: int, start: int, end: int) -> None:
        states = self._state.states
        for name in [
            name
            for name, entry in states.items()
            if entry.segment == number and start <= entry.offset < end
        ]:
            if self._state.forget_state(name).present:
                self._lost_states.append(name)

    def _set_aside(self) -> None:
        self._regions.sort()
        for number, start, end in self._regions:
            with self._directory.reading(segment_name(number)) as handle:
                data = read_exactly(self._directory.files, handle, end - start, start)
            name = f"{number:020}-{start}{QUARANTINE_SUFFIX}"
            self._directory.files.close(self._directory.create(name, data))
        self._state.damage = _joined(sorted({*self._state.damage, *self._regions}))
        for number in self._names.indexes:
            self._directory.remove(index_name(number))


def _end_of(checkpoint: Checkpoint) -> Position:
    return Position(
        checkpoint.segment, checkpoint.offset, checkpoint.sequence, checkpoint.last_checksum
    )


def _joined(regions: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sorted regions, with those that touch made one."""
    joined: list[tuple[int, int, int]] = []
    for number, start, end in regions:
        if joined and joined[-1][0] == number and start <= joined[-1][2]:
            joined[-1] = number, joined[-1][1], max(end, joined[-1][2])
        else:
            joined.append((number, start, end))
    return joined
