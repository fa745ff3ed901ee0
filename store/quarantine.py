"""Opening what damage has left: every intact record, and an exact list of what is missing.

The damaged bytes are copied aside into `.bad` files, and their places are kept in the checkpoint so
that later reads step over them. The segments themselves are not changed.
"""

from __future__ import annotations

from store.blocks import MOVED, RecordBlock, RemovedBlock
from store.check import live_ranges, unseen
from store.directory import QUARANTINE_SUFFIX, Directory, Names
from store.errors import CorruptionError, DamageError, FormatError, Quarantine
from store.frames import SEGMENT_HEADER_BYTES
from store.genesis import decode_genesis
from store.keys import RESERVED_COUNTERS
from store.ranges import RangeSet
from store.recovery import Position, Recovered, find_store_id, read_checkpoints
from store.replay import apply_frame, frame_blocks
from store.segment import Frame, SegmentFile, read_exactly, segment_name
from store.segment_state import SegmentState
from store.state import NOWHERE, QueueState, State
from store.survey import Survey, survey


def salvage(directory: Directory, names: Names) -> tuple[Recovered, Quarantine]:
    """The state of everything intact, and what is not. Writes only `.bad` copies.

    CorruptionError if there is nothing to start from.
    """
    if not names.segments:
        path = f"{directory.path}/{segment_name(1)}"
        raise CorruptionError(path, 0, "every segment is missing")
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

    def run(self) -> tuple[Recovered, Quarantine]:
        copies = read_checkpoints(self._directory, self._names)
        number, name, start = 0, None, Position(0, 0, 0, 0)
        if copies:
            name, self._store_id, checkpoint = copies[0]
            self._state.load(checkpoint)
            number = checkpoint.number
            start = Position(
                checkpoint.segment, checkpoint.offset, checkpoint.sequence, checkpoint.last_checksum
            )
        else:
            self._store_id = find_store_id(self._directory, self._names)
        self._start = self._end = start
        leftovers = []
        for segment in self._names.segments:
            if segment < start.segment and segment not in self._state.segments:
                leftovers.append(segment)
            else:
                self._read_segment(segment, start)
        self._drop_missing_segments()
        self._give_up_unseen()
        self._skip_unknown_counters()
        self._copy_aside()
        end, torn_bytes = self._last_place()
        recovered = Recovered(
            self._store_id, self._state, end, number, name, False, torn_bytes, leftovers
        )
        missing = {name: list(ranges) for name, ranges in self._missing.items() if ranges}
        return recovered, Quarantine(missing, self._regions, self._lost_states)

    def _last_place(self) -> tuple[Position, int]:
        """Where the log goes on: behind everything, whatever it is, in the last segment."""
        number = max(self._names.segments)
        with self._directory.reading(segment_name(number)) as handle:
            size = self._directory.files.size(handle)
        length = self._state.segments[number].length
        damaged = sum(stop - start for n, start, stop in self._regions if n == number)
        end = Position(number, length, self._end.sequence, self._end.checksum)
        return end, max(0, size - length) + damaged

    def _read_segment(self, number: int, start: Position) -> None:
        with self._directory.reading(segment_name(number)) as handle:
            file = SegmentFile(self._directory.files, handle, number, self._store_id)
            size = self._directory.files.size(handle)
            place = self._state.segments.get(number)
            if place is None:
                place = self._state.segments[number] = SegmentState(
                    number, SEGMENT_HEADER_BYTES, self._end.sequence + 1, 0
                )
            end = place.length if number < start.segment else size
            try:
                file.header()
            except DamageError:
                self._note_region(number, 0, SEGMENT_HEADER_BYTES)
            found, frames = survey(file, SEGMENT_HEADER_BYTES, end)
            known = 0
            for frame in frames:
                for offset, stop, _ in found.damage[known:]:
                    self._note_region(number, offset, stop)
                known = len(found.damage)
                if frame.header.sequence > start.sequence:
                    self._apply(number, frame)
            for offset, stop, _ in found.damage[known:]:
                if number < start.segment or not self._is_tail(file, offset, stop):
                    self._note_region(number, offset, stop)
            place.length = max(place.length, self._end.offset if number == self._end.segment else 0)
            self._surveys[number] = found

    def _is_tail(self, file: SegmentFile, offset: int, stop: int) -> bool:
        """Whether the end of the last segment is zeros or a torn frame, which nobody misses."""
        if file.is_zero(offset, stop):
            return True
        return file.number == self._names.segments[-1] and not any(
            header.durable_upto > self._end.sequence
            for _, header in file.sound_headers(offset, stop)
        )

    def _note_region(self, number: int, start: int, end: int) -> None:
        if (number, start) >= (self._start.segment, self._start.offset):
            self._losses += 1
        if (number, start, end) not in self._state.damage:
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
            self._note_region(number, frame.offset, frame.end)
            return
        for _, block in blocks:
            if isinstance(block, RemovedBlock) and block.queue in self._missing:
                for first, last, _ in block.ranges:
                    self._missing[block.queue].remove(first, last)
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
            queue.genesis.queue_size = sum(span.live for span in queue.spans)
        for number, start, end in self._regions:
            self._lose_states(number, start, end)

    def _skip_unknown_counters(self) -> None:
        """A queue not heard of since the last loss may have shown counters that nobody knows."""
        for queue in self._state.queues.values():
            if self._losses_known.get(queue.name, 0) != self._losses:
                upto = queue.genesis.next_counter + RESERVED_COUNTERS
                self._state.skip_counters(queue, max(upto, queue.genesis.reserved_upto))

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

    def _copy_aside(self) -> None:
        for number, start, end in self._regions:
            with self._directory.reading(segment_name(number)) as handle:
                data = read_exactly(self._directory.files, handle, end - start, start)
            name = f"{number:020}-{start}{QUARANTINE_SUFFIX}"
            self._directory.files.close(self._directory.create(name, data))
        self._state.damage = sorted({*self._state.damage, *self._regions})
