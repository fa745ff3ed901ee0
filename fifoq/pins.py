"""Pins: why segments of the log stay on disk, as one queue has a say in it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

import msgspec

from fifoq.holding import Consumers
from store import Log
from store.state import QueueState, Span

PINS_MAX: Final = 8
"""How many pins are told, the oldest segments first."""


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that stays because of one queue.

    `live` is how many of the queue's records in it are not removed, `bytes` the whole length of the
    file. `by` says who keeps it and `counter` which record is the oldest that he keeps: "leased" or
    "waiting" for a record that is not removed, "cursor NAME", "consumer NAME", or "retention".
    """

    segment: int
    bytes: int
    live: int
    counter: int
    by: str


def pins_of(log: Log, consumers: Consumers, name: str, leased: Container[int]) -> tuple[Pin, ...]:
    """The queue's pins, the oldest first. While no job has the log."""
    queue = log.state.queues.get(name)
    if queue is None:
        return ()
    pins: dict[int, Pin] = {}
    for span in queue.spans:
        if span.segment in pins:
            continue
        pin = _pin(log, consumers, queue, span, leased)
        if pin is not None:
            pins[span.segment] = pin
            if len(pins) == PINS_MAX:
                break
    return tuple(sorted(pins.values(), key=_segment_of))


def _pin(
    log: Log, consumers: Consumers, queue: QueueState, span: Span, leased: Container[int]
) -> Pin | None:
    counter, by = next(_reasons(consumers, queue, span, leased), (0, ""))
    if not by:
        # Nobody wants it: it goes when the log is looked after.
        return None
    return Pin(
        segment=span.segment,
        bytes=log.state.segments[span.segment].length,
        live=span.live,
        counter=counter,
        by=by,
    )


def _reasons(
    consumers: Consumers, queue: QueueState, span: Span, leased: Container[int]
) -> Iterator[tuple[int, str]]:
    if span.live:
        counter = max(span.first, queue.genesis.floor + 1)
        counter = (queue.removed.end_of(counter) or counter - 1) + 1
        yield counter, "leased" if counter in leased else "waiting"
    holder = consumers.holder(queue.name, span.last)
    if holder is not None:
        yield max(span.first, holder[0]), holder[1]
    if queue.retained:
        yield span.first, "retention"


def _segment_of(pin: Pin) -> int:
    return pin.segment
