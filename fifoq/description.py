"""What a reader must know of a queue to plan its reading, without reading a record."""

from __future__ import annotations

from typing import Any

import msgspec

from fifoq.codec import read_kept
from store import Reader
from store.genesis import Genesis, check_name
from store.state import QueueState, Span, State


class SpanDescription(msgspec.Struct, frozen=True, array_like=True):
    """Counters first..last of a queue lie in one segment.

    `bytes` estimates what they take there, removed records included. They were put at `since` (ns)
    at the earliest and at `until` at the latest. Of a `moved` span not all counters need be there.
    """

    first: int
    last: int
    segment: int
    bytes: int
    since: int
    until: int
    moved: bool


class QueueDescription(msgspec.Struct, frozen=True):
    """A queue as of one moment."""

    name: str
    spans: list[SpanDescription]
    next: int
    """The counter that the next put gets, or a lower one: every record is below it."""
    floor: int
    """Every counter up to here is removed."""
    total_put_count: int
    last_put_time: int
    """In nanoseconds; 0 if nothing was ever put."""
    exists: bool
    schema: str | None = None
    """Hash of the queue's type, if it has one."""
    shape: list[Any] | None = None
    """What its type looks like, if that is kept: JSON schemas, the type itself first."""

    @property
    def first(self) -> int:
        """The oldest retained counter; `next` if nothing is retained."""
        return self.spans[0].first if self.spans else self.next


def describe(reader: Reader, name: str) -> QueueDescription:
    """The queue as the reader sees it; one that is not there is empty. InvalidName"""
    queue = reader.state.queues.get(check_name(name))
    if queue is None:
        queue = QueueState(Genesis(name))
    kept = read_kept(queue.configuration)
    return QueueDescription(
        name,
        [describe_span(reader.state, span) for span in queue.spans],
        queue.genesis.next_counter,
        queue.genesis.floor,
        queue.genesis.total_put_count,
        queue.genesis.last_put_time,
        name in reader.state.queues,
        kept.schema,
        kept.shape,
    )


def describe_span(state: State, span: Span) -> SpanDescription:
    """A span of a queue, with what its segment says of it."""
    place = state.segments[span.segment]
    each = place.record_weight / place.record_count if place.record_count else 0
    return SpanDescription(
        span.first,
        span.last,
        span.segment,
        max(1, round(each * (span.last - span.first + 1))),
        # What was moved there is older than the segment.
        0 if span.moved else place.created_at,
        place.last_time,
        span.moved,
    )


def attempts_within(reader: Reader, name: str, first: int, last: int) -> list[tuple[int, int]]:
    """Counters of first..last that are in the queue and were leased, in order, each how often."""
    queue = reader.state.queues.get(check_name(name))
    if queue is None:
        return []
    return sorted(pair for pair in queue.attempts.items() if first <= pair[0] <= last and pair[1])
