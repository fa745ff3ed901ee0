"""What of a queue is retained: from where on, how many records, and since when.

For whoever has the log: everything here looks at its state, and some of it reads blocks.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from fifoq.logs import fields, name_of
from store import FifoqError, Log
from store.checkpoint import SpanEntry
from store.keys import COUNTER_MAX
from store.state import QueueState

logger = logging.getLogger("fifoq")


def first_from(log: Log, name: str, counter: int) -> int | None:
    """About the first record of a queue from a counter on that is retained: none is before it."""
    queue = log.state.queues.get(name)
    if queue is None:
        return None
    at = queue.span_index(counter)
    return max(counter, queue.spans[at].first) if at < len(queue.spans) else None


def next_from(log: Log, name: str, counter: int) -> int:
    """The very first of them, or the queue's next counter if there is none.

    Where damage hides it, the first that may be it: whoever reads there is told.
    """
    try:
        for block in log.read(name, counter, removed=True):
            return block.counters()[0]
    except FifoqError:
        return first_from(log, name, counter) or counter
    return log.queue(name).genesis.next_counter


def counts_from(queue: QueueState, first: int) -> Iterator[int]:
    """How many records from `first` on each span of the queue holds, removed ones included.

    Of records that were moved and removed since at least one is counted: only their blocks know
    how many there are, and nothing is read here.
    """
    for span in queue.spans[queue.span_index(first) :]:
        count = span.last - max(span.first, first) + 1
        yield min(count, max(span.live, 1)) if span.moved else count


def put_time(log: Log, name: str, counter: int) -> int:
    """When the first record at or behind a counter was put; now if that cannot be read."""
    try:
        for block in log.read(name, counter, removed=True):
            return int(block.slice(0, 1).times()[0])
    except FifoqError as error:
        logger.warning(
            "queue %r: no lag of its consumers: %s",
            name,
            type(error).__name__,
            extra=fields("no_lag", log.path, queue=name, error=name_of(error)),
        )
    return time.time_ns()


class Retained:
    """Counts the retained records of one queue, and remembers what it had to read for that."""

    __slots__ = ("_moved",)

    def __init__(self) -> None:
        self._moved: dict[tuple[int, int, int, int], array[int]] = {}
        """Counters of records that lie apart, by segment, its length, and the ends of the span."""

    def count(self, log: Log, name: str, first: int, last: int = COUNTER_MAX) -> int:
        """How many of the records first..last there are, removed ones included."""
        queue = log.queue(name)
        count = 0
        for span in queue.spans[queue.span_index(first) :]:
            if span.first > last:
                break
            start, stop = max(span.first, first), min(span.last, last)
            if span.moved:
                counters = self._counters(log, queue, span)
                count += bisect_right(counters, stop) - bisect_left(counters, start)
            else:
                count += stop - start + 1
        return count

    def _counters(self, log: Log, queue: QueueState, span: SpanEntry) -> array[int]:
        length = log.state.segments[span.segment].length
        key = span.segment, length, span.first, span.last
        found = self._moved.get(key)
        if found is None:
            if len(self._moved) >= len(queue.spans):
                # Spans that are no more.
                self._moved.clear()
            found = array("Q")
            try:
                for block in log.read(queue.name, span.first, span.last, removed=True):
                    found.extend(block.counters())
            except FifoqError:
                # Whoever reads on comes to it; what is before it counts.
                return found
            self._moved[key] = found
        return found
