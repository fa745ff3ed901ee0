"""What a commit does to the state, gathered in a draft and carried out once it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store.blocks import MOVED, RECORDS, state_weight
from store.index import SegmentIndex
from store.state import QueueState, State


class Put(NamedTuple):
    """Records first, first + 1, … are put."""

    queue: QueueState
    first: int
    records: int
    weight: int
    time: int
    last_time: int


class Remove(NamedTuple):
    """Counter ranges, each (first, last, weight), are removed."""

    queue: QueueState
    ranges: Sequence[tuple[int, int, int]]
    reason: int
    time: int


class Move(NamedTuple):
    """Records are written again under the keys they have."""

    queue: QueueState
    counters: Sequence[int]
    weights: Sequence[int]
    time: int


class Lease(NamedTuple):
    """Records are handed out, each for that attempt."""

    queue: QueueState
    counters: Sequence[int]
    attempts: Sequence[int]


class States(NamedTuple):
    """Newest values by name; None deletes."""

    entries: Sequence[tuple[str, bytes | None]]


Effect = Put | Remove | Move | Lease | States


def apply(
    effects: Iterable[Effect],
    state: State,
    segment: int,
    offset: int,
    index: SegmentIndex | None,
) -> None:
    """Carry out what the frame at that place says; the tail's index follows."""
    for effect in effects:
        if isinstance(effect, Put):
            queue, first, count, weight, time, last_time = effect
            state.put(queue, segment, first, count, weight, last_time)
            if index is not None:
                index.note(queue.name, RECORDS, first, first + count - 1, time, offset)
        elif isinstance(effect, Remove):
            for first, last, weight in effect.ranges:
                state.remove(effect.queue, first, last, weight)
        elif isinstance(effect, Move):
            queue, counters, weights, time = effect
            state.move(queue, segment, counters, weights)
            if index is not None:
                index.note(queue.name, MOVED, counters[0], counters[-1], time, offset)
        elif isinstance(effect, Lease):
            for counter, attempt in zip(effect.counters, effect.attempts, strict=True):
                if effect.queue.is_live(counter):
                    effect.queue.attempts[counter] = attempt
        else:
            for name, value in effect.entries:
                weight = state_weight(name, value)
                state.set_state(name, segment, offset, weight, value is not None)
