"""The work of `fifoq inspect` and `fifoq cursors`: what the files say beside records."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import msgspec

from fifoq.cli.access import require_store
from fifoq.codec import read_kept
from fifoq.consumers import id_text, proved, read_positions
from fifoq.cursor_position import cursor_names, decode_position, state_name
from fifoq.recurring import schedules_in
from fifoq.retained import counts_from
from fifoq.staged import MANIFEST_SUFFIX, STAGED_DIRECTORY
from store import Reader
from store.state import QueueState


class SegmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the log."""

    number: int
    bytes: int
    records: int
    live: int
    live_bytes: int


class CursorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A named position in a queue: a cursor of its process, or a consumer of another one."""

    queue: str
    name: str
    kind: str
    """cursor or consumer"""
    counter: int
    """The first record that is not done."""
    lag: int
    """Records that it has not done, as far as they are retained."""
    written_at: int
    """Nanoseconds since the epoch."""


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: its options that are not the defaults, its type, where its records lie."""

    name: str
    size: int
    next_counter: int
    floor: int
    options: dict[str, Any]
    schema: str | None
    shape: list[Any] | None
    segments: list[int]
    schedules: list[str]


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store, from its files alone."""

    path: str
    id: str
    bytes: int
    segments: list[SegmentFacts]
    queues: list[QueueFacts]
    cursors: list[CursorFacts]
    states: int
    """Entries beside queues: positions, schedules, states of actors."""
    staged: int
    """Batches of other processes that the owner has not taken in yet."""
    damage: list[tuple[int, int, int]]
    """Segment, first byte and end of what was set aside."""


def inspect(path: str) -> StoreFacts:
    """NotThere if there is no store."""
    require_store(path)
    with Reader(path) as reader:
        state = reader.state
        segments = [
            SegmentFacts(
                number=number,
                bytes=segment.length,
                records=segment.record_count,
                live=segment.live_count,
                live_bytes=segment.live_bytes,
            )
            for number, segment in sorted(state.segments.items())
        ]
        present = [name for name, entry in state.states.items() if entry.present]
        schedules = schedules_in(present)
        return StoreFacts(
            path=path,
            id=id_text(reader.store_id),
            bytes=sum(segment.bytes for segment in segments),
            segments=segments,
            queues=[_queue(q, schedules) for _, q in sorted(state.queues.items())],
            cursors=cursors_of(reader),
            states=len(present),
            staged=_staged(path),
            damage=list(state.damage),
        )


def cursors(path: str) -> list[CursorFacts]:
    """Cursors and consumers of all queues. NotThere if there is no store."""
    require_store(path)
    with Reader(path) as reader:
        return cursors_of(reader)


def cursors_of(reader: Reader) -> list[CursorFacts]:
    """By queue and name."""
    found = [*_cursors(reader), *_consumers(reader)]
    return sorted(found, key=lambda each: (each.queue, each.name, each.kind))


def _cursors(reader: Reader) -> list[CursorFacts]:
    states = reader.state.states
    found = []
    for queue, name in cursor_names(n for n, entry in states.items() if entry.present):
        value = reader.state_of(state_name(queue, name))
        if value is not None:
            position = decode_position(value, reader.path, state_name(queue, name))
            done = sum(last - first + 1 for first, last in position.done)
            lag = _lag(reader, queue, position.counter) - done
            found.append(_facts(queue, name, "cursor", position.counter, lag, position.written_at))
    return found


def _consumers(reader: Reader) -> list[CursorFacts]:
    store = id_text(reader.store_id)
    found = []
    for name, position in read_positions(reader.path).items():
        if position is None or position.store != store:
            continue
        queue, counter = position.queue, position.counter
        with suppress(OSError):
            # Spark's own notes may prove more than it told us.
            counter = proved(position.checkpoint, store, queue, above=counter) or counter
        lag = _lag(reader, queue, counter)
        found.append(_facts(queue, name, "consumer", counter, lag, position.written_at * 1_000_000))
    return found


def _facts(
    queue: str, name: str, kind: str, counter: int, lag: int, written_at: int
) -> CursorFacts:
    return CursorFacts(
        queue=queue, name=name, kind=kind, counter=counter, lag=max(lag, 0), written_at=written_at
    )


def _lag(reader: Reader, name: str, counter: int) -> int:
    queue = reader.state.queues.get(name)
    return 0 if queue is None else sum(counts_from(queue, counter))


def _queue(queue: QueueState, schedules: list[tuple[str, str]]) -> QueueFacts:
    kept = read_kept(queue.configuration)
    return QueueFacts(
        name=queue.name,
        size=queue.genesis.queue_size,
        next_counter=queue.genesis.next_counter,
        floor=queue.genesis.floor,
        options=kept.options,
        schema=kept.schema,
        shape=kept.shape,
        segments=sorted({span.segment for span in queue.spans}),
        schedules=sorted(name for owner, name in schedules if owner == queue.name),
    )


def _staged(path: str) -> int:
    try:
        names = os.listdir(f"{path}/{STAGED_DIRECTORY}")
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return sum(name.endswith(MANIFEST_SUFFIX) for name in names)
