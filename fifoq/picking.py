"""Picking: records out of the middle of a queue, by their counters.

A queue hands out its oldest record. Whoever wants another one reads it from disk and takes it from
its place when nothing is under way; what the line has in memory is read again then, without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify
from typing import TYPE_CHECKING, Any, TypeVar

from fifoq.attributes import attributes_in
from fifoq.browse import PAGE_BYTES, PAGE_RECORDS
from fifoq.jobs import Call
from fifoq.runs import Returned, Run, part_of
from fifoq.waiting import Waiting
from store import Log

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")


class Picking(Waiting[T]):
    """The part of a queue that gives single records away."""

    __slots__ = ()

    def pick(self, records: Sequence[Returned]) -> list[Returned]:
        """Take records, as they lie on disk, from their places; returns those that were there.

        Their size stays counted. What somebody has, or is about to get, is left alone. Only while
        no job is under way.
        """
        assert self.sealed is None
        self.look(time.time_ns())
        returned = {record.counter for record in self.returned}
        back: set[int] = set()
        ahead: set[int] = set()
        picked = []
        for record in records:
            if record.counter in returned:
                back.add(record.counter)
            elif self._is_ahead(record):
                ahead.add(record.counter)
            elif not self.pull(record):
                continue
            picked.append(record)
            if record.counter < self.tail_first:
                self.attributes.pop(record.counter, None)
        if back:
            self.returned = [record for record in self.returned if record.counter not in back]
            heapify(self.returned)
        if ahead:
            self.absent |= ahead
            self._rewind()
        return picked

    def _is_ahead(self, record: Returned) -> bool:
        """Whether nobody has come to the record yet."""
        if self.sets_all_aside or record.counter < self.head or record.counter in self.absent:
            return False
        # What has a time stands in no run.
        return record.attributes is None or not record.attributes.deliver_at

    def unpick(self, records: Sequence[Returned]) -> None:
        """Records that were picked are at their places again. Only while no job is under way."""
        now = time.time_ns()
        for record in records:
            was_ahead = record.counter in self.absent
            self.absent.discard(record.counter)
            if was_ahead and record.counter >= self.head:
                # It is read again with the others.
                continue
            if record.attributes is not None and record.attributes.deliver_at > now:
                self.shelve([record])
            else:
                self.come_back(record)
        if not self.sets_all_aside:
            self._rewind()
        self.records_came()

    def _rewind(self) -> None:
        """Let everything that is ready be read from disk again, as far as a frame holds it."""
        assert self.sealed is None
        self.close_windows()
        self.close_run()
        head = self.head
        self.ready.clear()
        self.chunks.clear()
        self.cached_bytes = 0
        self.run_first = self.run_end = self.taken_from = head
        if head < self.tail_first:
            self.gap = (head, self.tail_first - 1)
        self.tail_shown = max(self.tail_first, head)

    def fill_gap(self, runs: Sequence[Run], upto: int) -> None:
        if self.absent:
            runs = [part for run in runs for part in parts_without(run, self.absent)]
        super().fill_gap(runs, upto)


def parts_without(run: Run, counters: Collection[int]) -> Iterator[Run]:
    """What is left of a run without some of its records."""
    start = run.first
    for counter in range(run.first, run.end):
        if counter in counters:
            if start < counter:
                yield part_of(run, start, counter)
            start = counter + 1
    if start < run.end:
        yield part_of(run, start, run.end)


class Picked:
    """What was picked, and the counter from which on there may be more."""

    def __init__(self, records: list[Returned], following: int) -> None:
        self.records = records
        self.following = following


class Pick(Call):
    """Reads some records of a queue, and picks those of them that are at their places."""

    def __init__(
        self, queue: Queue[Any], first: int, last: int, future: asyncio.Future[object]
    ) -> None:
        super().__init__(self._read, future)
        self._queue, self._first, self._last = queue, first, last

    def _read(self, log: Log) -> Picked:
        records: list[Returned] = []
        size = 0
        for block in log.read(self._queue.name, self._first, self._last):
            attributes = dict(attributes_in(block))
            columns = zip(block.counters(), block.times(), block.payloads(), strict=True)
            records += [Returned(*values, attributes.get(values[0])) for values in columns]
            size += int(block.offsets[-1] - block.offsets[0])
            if size >= PAGE_BYTES or len(records) >= PAGE_RECORDS:
                return Picked(records, block.last + 1)
        return Picked(records, self._last + 1)

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if error is None and not self.future.done():
            assert isinstance(outcome, Picked)
            # In this very step: before another job, or a taker, comes to these records.
            outcome.records = self._queue.pick(outcome.records)
            self._queue.leasing.leaving.update(record.counter for record in outcome.records)
        super().settle(committer, outcome, error)


class Unpick(Call):
    """Brings picked records back to their places, when nothing is under way."""

    def __init__(self, queue: Queue[Any], records: Sequence[Returned]) -> None:
        super().__init__(_nothing, None)
        self._queue, self._records = queue, records

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if error is None:
            for record in self._records:
                self._queue.leasing.leaving.discard(record.counter)
            self._queue.unpick(self._records)
        super().settle(committer, outcome, error)


def _nothing(log: Log) -> None:
    pass
