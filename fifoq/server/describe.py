"""What a client must know of a queue to plan its reading, without reading a record."""

from __future__ import annotations

from typing import Any

import msgspec

from fifoq.codec import read_kept
from store import Reader
from store.genesis import Genesis, check_name
from store.state import QueueState, State


class SpanDescription(msgspec.Struct, frozen=True, array_like=True):
    """Counters first..last of a queue lie in one segment.

    `bytes` estimates what they take there, removed ones included; they were put between `since` and
    `until` (ns). Some counters of a `moved` span may not be there.
    """

    first: int
    last: int
    segment: int
    bytes: int
    since: int
    until: int
    moved: bool


class QueueDescription(msgspec.Struct, frozen=True):
    """A queue as of one moment. `schema` is the hash of its type, `shape` what that looks like."""

    name: str
    spans: list[SpanDescription]
    next: int
    floor: int
    total_put_count: int
    last_put_time: int
    exists: bool
    schema: str | None = None
    shape: list[Any] | None = None


def describe(reader: Reader, name: str) -> QueueDescription:
    """The queue as the reader sees it; one that is not there is empty. InvalidName"""
    queue = reader.state.queues.get(check_name(name))
    if queue is None:
        queue = QueueState(Genesis(name))
    kept = read_kept(queue.configuration)
    return QueueDescription(
        name,
        _spans(reader.state, queue),
        queue.genesis.next_counter,
        queue.genesis.floor,
        queue.genesis.total_put_count,
        queue.genesis.last_put_time,
        name in reader.state.queues,
        kept.schema,
        kept.shape,
    )


def _spans(state: State, queue: QueueState) -> list[SpanDescription]:
    found = []
    for span in queue.spans:
        place = state.segments[span.segment]
        each = place.record_weight / place.record_count if place.record_count else 0
        found.append(
            SpanDescription(
                span.first,
                span.last,
                span.segment,
                max(1, round(each * (span.last - span.first + 1))),
                0 if span.moved else place.created_at,
                place.last_time,
                span.moved,
            )
        )
    return found
