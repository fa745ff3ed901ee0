"""Which segments stay although nothing in them is live: for retention, and for consumers.

A queue that is retained wants its removed records kept as long as its limits say. A queue that is
held wants them kept from one counter on, for consumers outside that have not passed it. Segments
stay or go whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from store.state import QueueState

if TYPE_CHECKING:
    from store.log import Log

_NANOSECONDS: Final = 1_000_000_000


def unneeded(log: Log) -> list[int]:
    """Segments without a live record, by number, that nobody wants kept.

    Whoever holds records is asked before: he may have begun to need one since.
    """
    numbers = {
        span.segment
        for queue in log.state.queues.values()
        if queue.retained
        for span in queue.spans
    }
    free = [n for n in sorted(log.state.emptied | numbers) if _is_free(log, n)]
    if not free or not may_reclaim(log):
        return []
    kept = kept_segments(log)
    return [number for number in free if number not in kept]


def may_reclaim(log: Log) -> bool:
    """Ask who holds records to say what he holds; False while he cannot tell."""
    return log.before_reclaim is None or log.before_reclaim()


def kept_segments(log: Log) -> set[int]:
    """Segments with records, live or not, that a queue wants kept."""
    kept = _retained(log)
    for queue in log.state.queues.values():
        if queue.held:
            kept |= _spans_from(queue, queue.held)
    return kept


def held_bytes(log: Log, holds: Mapping[str, int]) -> int:
    """Bytes that stay only because queues hold removed records, each from that counter on.

    What is live counts for itself, and so does what would not be compacted anyway.
    """
    retained = _retained(log)
    numbers: set[int] = set()
    for name, first in holds.items():
        queue = log.state.queues.get(name)
        if queue is not None:
            numbers |= _spans_from(queue, first)
    tail = log.tail.file.number
    segments = [log.state.segments[number] for number in numbers - retained if number != tail]
    return sum(segment.length - segment.live_bytes for segment in segments if segment.sparse)


def _spans_from(queue: QueueState, first: int) -> set[int]:
    return {span.segment for span in queue.spans[queue.span_index(first) :]}


def _retained(log: Log) -> set[int]:
    kept: set[int] = set()
    for queue in log.state.queues.values():
        if queue.retained:
            kept |= _within_limits(log, queue)
    return kept


def _within_limits(log: Log, queue: QueueState) -> set[int]:
    """The queue's segments from the newest back to the first that its limits let go.

    Only those without a live record count. One with live records stays if it would stay without
    them; otherwise it may be compacted.
    """
    limits = queue.retention or log.options.retention
    now = log.clock.wall()
    kept: set[int] = set()
    count = size = 0
    for number in sorted({span.segment for span in queue.spans}, reverse=True):
        segment = log.state.segments[number]
        too_old = (
            limits.max_age is not None and now - segment.last_time > limits.max_age * _NANOSECONDS
        )
        too_large = limits.max_bytes is not None and size + segment.length > limits.max_bytes
        too_many = limits.max_segments is not None and count >= limits.max_segments
        stays = count < limits.min_segments or not (too_old or too_large or too_many)
        if stays:
            kept.add(number)
        if _is_free(log, number):
            if not stays:
                break
            count += 1
            size += segment.length
    return kept


def _is_free(log: Log, number: int) -> bool:
    segment = log.state.segments.get(number)
    return segment is not None and number != log.tail.file.number and not segment.live_count
