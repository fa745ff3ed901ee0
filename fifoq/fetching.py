"""Fetching: single records by their counters, and what opening must know of all of them."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from fifoq.attributes import PRIORITY_DEFAULT, attributes_in
from fifoq.jobs import Call, as_ours, consecutive, look_away
from fifoq.runs import Returned
from store import FifoqError, Log, RecordBlock
from store.blocks import DELIVER_AT, PRIORITY
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.committer import Committer

NEAR: Final = 64
"""Counters that are less apart than this are read in one go."""
FETCH_BYTES_MAX: Final = 1 << 20
"""Payloads that one fetch brings into memory, if there is more than one record."""


class Fetched(NamedTuple):
    """The live ones among some records, and the counters that there was no room for."""

    records: list[Returned]
    rest: Sequence[int]


class Fetch(Call):
    """Reads records by their counters and hands them over in the very step in which that ends.

    It reads as many of the oldest as there is room for, and at least one.
    """

    def __init__(
        self,
        name: str,
        counters: Sequence[int],
        done: Callable[[Fetched, FifoqError | None], None],
        future: asyncio.Future[object],
    ) -> None:
        super().__init__(self._fetch, future)
        self._name = name
        self._counters = sorted(counters)
        self._done = done
        # Whoever waits for a record waits elsewhere.
        future.add_done_callback(look_away)

    def _fetch(self, log: Log) -> Fetched:
        return fetched(log, self._name, self._counters, FETCH_BYTES_MAX)

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if error is None:
            assert isinstance(outcome, Fetched)
            self._done(outcome, None)
        else:
            self._done(Fetched([], []), as_ours(error))
        super().settle(committer, outcome, error)


def fetched(log: Log, name: str, counters: Sequence[int], bytes_max: int | None = None) -> Fetched:
    """Read some records, whose counters rise; more than one only up to so many bytes."""
    found: list[Returned] = []
    size = 0
    for record in _records(log, name, counters):
        size += len(record.payload)
        if found and bytes_max is not None and size > bytes_max:
            return Fetched(found, counters[bisect_left(counters, record.counter) :])
        found.append(record)
    return Fetched(found, [])


def _records(log: Log, name: str, counters: Sequence[int]) -> Iterator[Returned]:
    wanted = frozenset(counters)
    cuts = [at + 1 for at, (a, b) in enumerate(pairwise(counters)) if b - a > NEAR]
    for start, stop in pairwise([0, *cuts, len(counters)]):
        for block in log.read(name, counters[start], counters[stop - 1]):
            yield from _records_of(block, wanted)


def _records_of(block: RecordBlock, wanted: frozenset[int]) -> Iterator[Returned]:
    attributes = dict(attributes_in(block))
    columns = zip(block.counters(), block.times(), block.payloads(), strict=True)
    for counter, time, payload in columns:
        if counter in wanted:
            yield Returned(counter, time, payload, attributes.get(counter))


class Found(NamedTuple):
    """What opening a queue finds in it."""

    next_counter: int
    delayed: list[tuple[int, int, int]]
    lanes: list[tuple[int, bytes]]


def survey(log: Log, queue: QueueState, *, delayed: bool, lanes: bool) -> Found:
    """Look at all live records of a queue, for what was asked for; reads nothing for nothing."""
    return Found(
        queue.genesis.next_counter,
        delayed_in(log, queue.name) if delayed else [],
        lanes_in(log, queue.name) if lanes else [],
    )


def delayed_in(log: Log, name: str) -> list[tuple[int, int, int]]:
    """Live records that were put with a time: it, the counter, and the time of the put."""
    found: list[tuple[int, int, int]] = []
    for block in log.read(name):
        if DELIVER_AT in block.columns:
            due_times = cast("memoryview[int]", block.columns[DELIVER_AT])
            columns = zip(due_times, block.counters(), block.times(), strict=True)
            found += [(due, counter, put) for due, counter, put in columns if due]
    return found


def lanes_in(log: Log, name: str) -> list[tuple[int, bytes]]:
    """Lanes of the live records that were put without a time, a byte for each.

    Stretches of consecutive counters, each with its first one.
    """
    found: list[tuple[int, bytes]] = []
    for block in log.read(name):
        column = block.columns.get(PRIORITY)
        lanes = bytes([PRIORITY_DEFAULT]) * block.count
        if isinstance(column, memoryview):
            lanes = bytes(column)
        counters = block.counters()
        timed = {index for index, due in enumerate(block.columns.get(DELIVER_AT, ())) if due}
        for start, stop in consecutive(counters, timed):
            found.append((counters[start], lanes[start:stop]))
    return found
