"""What the log means: queues, where their live records are, newest states, live bytes.

Plain bookkeeping with no I/O. Committing and replaying call the same methods, so a state that
was recovered equals the one that was there before. Rules:

- A counter at or below a queue's floor is removed; so is one in its `removed` ranges. Counters
  that were never used (gaps) count as removed.
- A span says that a stretch of counters lies in one segment; spans of a queue never overlap.
- A segment is dead when no span has a live record in it and nothing newest lies in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from store.checkpoint import (
    Checkpoint,
    QueueEntry,
    SegmentEntry,
    SpanEntry,
    StateEntry,
    UnloggedEntry,
)
from store.compression import Compression
from store.genesis import Genesis, GenesisView
from store.keys import COUNTER_MAX
from store.options import Retention
from store.packing import json_bytes_max, pack
from store.ranges import RangeSet
from store.segment_state import SegmentState

GENESIS_WEIGHT: Final = 128
"""What a newest genesis entry weighs in the estimate of live bytes."""

NOWHERE: Final = -1
"""Instead of a segment: the newest entry was lost, and is written again with the next commit."""

Span = SpanEntry
_last = attrgetter("last")


class QueueState:
    """One queue: genesis, configuration, and where its records are."""

    __slots__ = (
        "attempts",
        "compression",
        "configuration",
        "configuration_segment",
        "genesis",
        "genesis_segment",
        "held",
        "name",
        "plain_upto",
        "removed",
        "reserved_durable",
        "retained",
        "retention",
        "spans",
    )

    def __init__(self, genesis: Genesis) -> None:
        self.name = genesis.name
        self.genesis = genesis
        self.genesis_segment = 0
        self.configuration: bytes | None = None
        self.configuration_segment = 0
        self.spans: list[Span] = []
        self.removed = RangeSet()
        self.attempts: dict[int, int] = {}
        self.reserved_durable = 0
        self.retained = False
        self.retention: Retention | None = None
        """The limits of that, if they are not those of the options."""
        self.held = 0
        """Removed records from this counter on are kept for consumers; 0 if none are."""
        self.compression: Compression | None = None
        self.plain_upto = COUNTER_MAX
        """Counters that a commit without a draft may reach: none where records are compressed."""

    def compress_by(self, compression: Compression | None) -> None:
        """Compress the blocks that are written from now on, or no longer."""
        self.compression = compression
        self.plain_upto = COUNTER_MAX if compression is None else 0

    def is_live(self, counter: int) -> bool:
        genesis = self.genesis
        return genesis.floor < counter < genesis.next_counter and counter not in self.removed

    def live_count(self, first: int, last: int) -> int:
        """How many counters of first..last are live, if all of them were ever used."""
        first = max(first, self.genesis.floor + 1)
        return max(0, last - first + 1) - self.removed.count(first, last)

    def span_index(self, counter: int) -> int:
        """Index of the first span that ends at or behind `counter`."""
        return bisect_left(self.spans, counter, key=_last)

    def floor_after(self, removed: RangeSet) -> int:
        """The floor once the ranges of `removed` are removed as well."""
        floor = self.genesis.floor
        while True:
            last = removed.end_of(floor + 1) or self.removed.end_of(floor + 1)
            if last is None:
                return floor
            floor = last

    def not_live_from(self, counter: int) -> int | None:
        """The lowest removed counter that is not below `counter`."""
        return counter if counter <= self.genesis.floor else self.removed.next_from(counter)

    def not_live(self, first: int, last: int, limit: int) -> list[tuple[int, int]]:
        """The lowest `limit` ranges of removed counters within first..last."""
        floor = self.genesis.floor
        below = [(first, min(floor, last))] if first <= floor else []
        above = self.removed.inside(max(first, floor + 1), last, limit - len(below))
        return below + above

    def removed_bytes_max(self) -> int:
        """What its removed counters can need in a checkpoint, whatever is removed next."""
        genesis = self.genesis
        return json_bytes_max(self.removed, genesis.queue_size, genesis.floor, genesis.next_counter)

    def entry(self) -> QueueEntry:
        removed, packed = pack(self.removed)
        return QueueEntry(
            name=self.name,
            genesis=GenesisView.of(self.genesis, self.configuration),
            genesis_segment=self.genesis_segment,
            configuration_segment=self.configuration_segment,
            retained=self.retained,
            spans=self.spans,
            removed=removed,
            packed=packed,
            attempts=sorted(self.attempts.items()),
            held=self.held,
        )

    @classmethod
    def of(cls, entry: QueueEntry) -> QueueState:
        queue = cls(entry.genesis.genesis(entry.name))
        if entry.genesis.configuration is not None:
            queue.configuration = entry.genesis.configuration.encode()
        queue.genesis_segment = entry.genesis_segment
        queue.configuration_segment = entry.configuration_segment
        queue.retained = entry.retained
        queue.held = entry.held
        queue.spans = entry.spans
        queue.removed = RangeSet(entry.removed)
        queue.attempts = dict(entry.attempts)
        queue.reserved_durable = queue.genesis.reserved_upto
        return queue


class State:
    """Everything that frames say, taken together."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueState] = {}
        self.segments: dict[int, SegmentState] = {}
        self.states: dict[str, StateEntry] = {}
        self.damage: list[tuple[int, int, int]] = []
        self.unlogged: dict[str, UnloggedEntry] = {}
        self.emptied: set[int] = set()
        """Segments that may have become dead since somebody looked."""

    # Applying one frame, block by block.

    def queue(self, name: str) -> QueueState:
        """The queue, made on first sight."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueState(Genesis(name))
        return queue

    def put(
        self,
        queue: QueueState,
        segment: int,
        first: int,
        count: int,
        weight: int,
        last_time: int,
    ) -> None:
        """Records first, first + 1, … were appended to `segment`, the last put at `last_time`."""
        last = first + count - 1
        if first > queue.genesis.next_counter:
            self.skip_counters(queue, first - 1)
        queue.genesis.next_counter = last + 1
        spans = queue.spans
        place = self.segments[segment]
        if spans and spans[-1].segment == segment and not spans[-1].moved:
            span = spans[-1]
            span.last = last
            span.live += count
            span.weight += weight
        else:
            spans.append(Span(first, last, segment, count, weight, False))
        place.last_time = max(place.last_time, last_time)
        place.record_count += count
        place.record_weight += weight
        place.live_count += count
        place.live_weight += weight

    def skip_counters(self, queue: QueueState, upto: int) -> None:
        """Counters up to there are used, by records or not: the next one is higher."""
        expected = queue.genesis.next_counter
        if upto >= expected:
            self._remove_counters(queue, expected, upto)
            queue.genesis.next_counter = upto + 1

    def remove(self, queue: QueueState, first: int, last: int, weight: int) -> int:
        """Counters first..last are no longer live; returns how many of them were."""
        newly_total = 0
        whole = range(first, last + 1)
        at = queue.span_index(first)
        remaining = last - first + 1
        while first <= last and at < len(queue.spans) and queue.spans[at].first <= last:
            span = queue.spans[at]
            end = min(last, span.last)
            newly = self._remove_counters(queue, first, end)
            share = weight * (end - first + 1) // remaining if end < last else weight
            share = span.weight if span.live == newly else min(share, span.weight) if newly else 0
            place = self.segments[span.segment]
            span.live -= newly
            span.weight -= share
            place.live_count -= newly
            place.live_weight -= share
            if not place.live_count:
                self.emptied.add(span.segment)
            newly_total += newly
            remaining -= end - first + 1
            weight -= share
            first = end + 1
            at += 1
        if first <= last:
            self._remove_counters(queue, first, last)
        if self.unlogged:
            self._note_logged(queue, whole)
        return newly_total

    def _note_logged(self, queue: QueueState, removed: range) -> None:
        """A block holds this removal now. Unlogged ones are repeated from the lowest on."""
        entry = self.unlogged.get(queue.name)
        if entry is None:
            return
        start = queue.not_live_from(entry.first)
        if start in removed:
            start = queue.not_live_from(removed.stop)
        if start is None or start > entry.last:
            del self.unlogged[queue.name]
        else:
            entry.first = start

    def _remove_counters(self, queue: QueueState, first: int, last: int) -> int:
        genesis = queue.genesis
        floor = genesis.floor
        if queue.attempts:
            if last - first < len(queue.attempts):
                for counter in range(first, last + 1):
                    queue.attempts.pop(counter, None)
            else:
                for counter in [c for c in queue.attempts if first <= c <= last]:
                    del queue.attempts[counter]
        first = max(first, floor + 1)
        if first > last:
            return 0
        if first == floor + 1 and not queue.removed:
            genesis.floor = last
            return last - first + 1
        newly = queue.removed.add(first, last)
        genesis.floor = queue.removed.pop_through(floor)
        return newly

    def move(
        self, queue: QueueState, segment: int, counters: Sequence[int], weights: Sequence[int]
    ) -> None:
        """Records now lie in `segment`: copied forward, or restored after a removal.

        `counters` rise. Every live record between the first and the last of them is among
        them, or they are a single restored one.
        """
        first, last = counters[0], counters[-1]
        restored = [counter for counter in counters if not queue.is_live(counter)]
        self._cut_spans(queue, first, last)
        self._skip_unknown(queue, counters)
        for counter in restored:
            self._restore_counter(queue, counter)
        weight = sum(weights)
        span = Span(first, last, segment, len(counters), weight, True)
        at = queue.span_index(first)
        queue.spans.insert(at, span)
        before = queue.spans[at - 1] if at else None
        if before and before.segment == segment and before.moved and before.last == first - 1:
            before.last, before.live = last, before.live + span.live
            before.weight += span.weight
            del queue.spans[at]
        place = self.segments[segment]
        place.record_count += len(counters)
        place.record_weight += weight
        place.live_count += len(counters)
        place.live_weight += weight
        if self.unlogged:
            self._note_logged(queue, range(0))

    def _skip_unknown(self, queue: QueueState, counters: Sequence[int]) -> None:
        """Counters between moved ones that this state never saw are not live."""
        expected = queue.genesis.next_counter
        for counter in counters:
            if counter >= expected:
                if counter > expected:
                    self._remove_counters(queue, expected, counter - 1)
                expected = counter + 1
        queue.genesis.next_counter = expected

    def _cut_spans(self, queue: QueueState, first: int, last: int) -> None:
        """Take first..last out of the spans that hold them, with what is live there."""
        at = queue.span_index(first)
        while at < len(queue.spans) and queue.spans[at].first <= last:
            span = queue.spans[at]
            place = self.segments[span.segment]
            pieces = []
            for a, b in ((span.first, first - 1), (last + 1, span.last)):
                if a <= b:
                    live = queue.live_count(a, b)
                    weight = span.weight * live // span.live if span.live else 0
                    pieces.append(Span(a, b, span.segment, live, weight, span.moved))
            place.live_count -= span.live - sum(piece.live for piece in pieces)
            place.live_weight -= span.weight - sum(piece.weight for piece in pieces)
            if not place.live_count:
                self.emptied.add(span.segment)
            queue.spans[at : at + 1] = pieces
            at += len(pieces)

    def _restore_counter(self, queue: QueueState, counter: int) -> None:
        genesis = queue.genesis
        if counter <= genesis.floor:
            if counter < genesis.floor:
                queue.removed.add(counter + 1, genesis.floor)
            genesis.floor = counter - 1
        else:
            queue.removed.remove(counter, counter)

    def set_genesis(self, queue: QueueState, entry: Genesis, segment: int) -> None:
        """The queue's newest genesis entry lies in `segment`."""
        if entry.configuration is not None:
            self.set_configuration(queue, entry.configuration, segment)
            entry.configuration = None
        queue.genesis = entry
        self.touch(queue, segment)

    def touch(self, queue: QueueState, segment: int) -> None:
        if queue.genesis_segment != segment:
            self._add_meta(queue.genesis_segment, -1, -GENESIS_WEIGHT)
            self._add_meta(segment, 1, GENESIS_WEIGHT)
            queue.genesis_segment = segment

    def set_configuration(self, queue: QueueState, configuration: bytes, segment: int) -> None:
        if queue.configuration is not None:
            self._add_meta(queue.configuration_segment, -1, -len(queue.configuration))
        queue.configuration = configuration
        queue.configuration_segment = segment
        self._add_meta(segment, 1, len(configuration))

    def set_state(self, name: str, segment: int, offset: int, weight: int, present: bool) -> None:
        """The newest value of `name`, or its deletion, lies in the frame at `offset`."""
        old = self.states.get(name)
        if old is not None:
            self._add_meta(old.segment, -1, -old.weight)
        elif not present:
            return
        self.states[name] = StateEntry(segment, offset, weight, present)
        self._add_meta(segment, 1, weight)

    def _add_meta(self, segment: int, count: int, weight: int) -> None:
        place = self.segments.get(segment)
        if place is not None:
            place.meta_count += count
            place.meta_weight += weight
            if not place.meta_count:
                self.emptied.add(segment)

    # Segments that go.

    def forget_segment(self, number: int) -> None:
        """A dead segment is deleted: nothing points into it any more."""
        assert self.segments[number].live_count == 0
        del self.segments[number]
        for queue in self.queues.values():
            if any(span.segment == number for span in queue.spans):
                queue.spans = [span for span in queue.spans if span.segment != number]
        self.damage = [region for region in self.damage if region[0] != number]
        self.drop_tombstones()

    def drop_tombstones(self) -> None:
        """Forget deletions once no older segment can hold a value that they hide."""
        oldest = min(self.segments, default=0)
        gone = [n for n, e in self.states.items() if not e.present and e.segment <= oldest]
        for name in gone:
            self.forget_state(name)

    def forget_state(self, name: str) -> StateEntry:
        """Nothing of the name is kept any more; returns where it was."""
        entry = self.states.pop(name)
        self._add_meta(entry.segment, -1, -entry.weight)
        return entry

    # Whole states.

    def disagreements(self, names: Iterable[str]) -> list[str]:
        """Queues whose genesis and spans tell different sizes, in words."""
        return [
            f"queue {name!r}: genesis says {queue.genesis.queue_size} records, the log holds {live}"
            for name in names
            for queue in (self.queues[name],)
            for live in (sum(span.live for span in queue.spans),)
            if live != queue.genesis.queue_size
        ] + [
            f"queue {name!r}: floor {genesis.floor} is not below the next counter "
            f"{genesis.next_counter}"
            for name in names
            for genesis in (self.queues[name].genesis,)
            if genesis.floor >= genesis.next_counter
        ]

    def segment_entries(self) -> list[SegmentEntry]:
        """The segments, for a checkpoint."""
        return [self.segments[number].entry() for number in sorted(self.segments)]

    def load(self, checkpoint: Checkpoint) -> None:
        """Become the state that a checkpoint holds."""
        self.segments = {entry.number: SegmentState.of(entry) for entry in checkpoint.segments}
        self.queues = {entry.name: QueueState.of(entry) for entry in checkpoint.queues}
        self.states = checkpoint.states
        self.damage = list(checkpoint.damage)
        self.unlogged = {entry.queue: entry for entry in checkpoint.unlogged}
        for entry in checkpoint.unlogged:
            self._note_logged(self.queue(entry.queue), range(0))
        for queue in self.queues.values():
            self._add_meta(queue.genesis_segment, 1, GENESIS_WEIGHT)
            if queue.configuration is not None:
                self._add_meta(queue.configuration_segment, 1, len(queue.configuration))
            for span in queue.spans:
                place = self.segments.get(span.segment)
                if place is not None:
                    place.live_count += span.live
                    place.live_weight += span.weight
        for found in self.states.values():
            self._add_meta(found.segment, 1, found.weight)
        # Reclaiming may have been put off, and what was retained may no longer be.
        self.emptied = {n for n, segment in self.segments.items() if not segment.live_count}
