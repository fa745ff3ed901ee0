"""Removing records that nobody takes: all of them up to a counter, wherever they are.

What is in memory goes from the line at once; what is only on disk is measured there, a bounded
stretch at a time, and no record of it becomes an object. Each step is one commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fifoq.fetching import FETCH_BYTES_MAX, fetched
from fifoq.jobs import Call, Waiter, consecutive
from fifoq.options import MEMORY
from fifoq.runs import Removals, Returned, removal_of
from fifoq.shelving import DUE_MAX
from fifoq.waiting import Waiting
from store import Log, RecordBlock
from store.blocks import DELIVER_AT, records_weight
from store.ranges import merged

if TYPE_CHECKING:
    from fifoq.committer import Committer

T = TypeVar("T")

STEP_RECORDS: Final = 131_072
STEP_BYTES: Final = 8 << 20
"""How much one step removes, at least if there is that much; on disk, to the end of a frame."""


class Removing(Waiting[T]):
    """The part of a queue that removes records without handing them out."""

    __slots__ = ()

    async def remove_upto(self, counter: int) -> int:
        """Remove every record whose counter is not above `counter`; returns how many there were.

        For one who knows from elsewhere that they are done. On return the removal is committed at
        the queue's durability. It removes what is leased as well: that lease has ended, and its
        `ack` raises StaleLease. What a take has claimed stays with the taker; what a put has not
        committed yet is waited for. Records put later have higher counters and are not meant.

        It goes in bounded steps. Cancelled, or after DiskFull or CorruptionError, some steps may
        have been done, each whole, and the oldest records first as far as they are on disk; it may
        be called again.
        """
        if isinstance(counter, bool) or not isinstance(counter, int):
            raise TypeError(f"counter={counter!r} is not a whole number. Nothing was removed.")
        self._committer.require_usable()
        upto = min(counter, self.next - 1)
        total = 0
        while True:
            self._committer.require_usable()
            gone = self._remove_in_memory(upto)
            if not gone and self.gap is not None and self.gap[0] <= upto:
                gone = await self._remove_on_disk(upto)
            elif not gone and (waiting := self.waiting_upto(upto)):
                total += await self._remove_waiting(waiting)
            elif not gone:
                if not self._in_flight(upto):
                    break
                await self.next_commit()
            if gone:
                total += sum(last - first + 1 for first, last, _ in gone)
                await self._commit_removed(max(last for _, last, _ in gone))
        if not total and (self.dirty or self.sealed is not None):
            # Somebody who called it before may have left before that was committed.
            await self._commit_removed(0)
        return total

    def _remove_in_memory(self, upto: int) -> Removals:
        now = time.time_ns()
        self.look(now)
        gone = self.leasing.remove_upto(upto) + self.remove_returned(upto)
        gone += self.remove_ready(upto, STEP_RECORDS, now)
        self._note_removed(gone, now)
        return gone

    async def _remove_on_disk(self, upto: int) -> Removals:
        measure = _Measure(self, upto, self._committer.loop.create_future())
        return await self._committer.run_call(measure) or []  # type: ignore[return-value]

    def skipped(self, measured: _Measured, now: int) -> Removals:
        """A stretch of what is only on disk was measured: it is out of the line from now on."""
        if self.absent:
            # Some of it may be in other hands; whoever removes it looks again.
            return []
        self.look(now)
        gone = merged(measured.ranges)
        count = sum(last - first + 1 for first, last, _ in gone)
        self.skip_gap(measured.upto, count)
        if count:
            self.note_delay(count, now - measured.time_total // count)
        self._note_removed(gone, now)
        return gone

    async def _remove_waiting(self, counters: Sequence[int]) -> int:
        """Remove what waits for its time or its key: nobody gets it on the way."""
        total = 0
        for start in range(0, len(counters), DUE_MAX):
            rest: Sequence[int] = counters[start : start + DUE_MAX]
            while rest:
                self._committer.require_usable()
                pull = _Pull(self, rest, self._committer.loop.create_future())
                gone: Removals = await self._committer.run_call(pull)  # type: ignore[assignment]
                rest = pull.rest
                if gone:
                    total += len(gone)
                    await self._commit_removed(max(last for _, last, _ in gone))
        return total

    def pulled(self, records: Sequence[Returned], now: int) -> Removals:
        """Those of the records that still wait leave for good."""
        self.look(now)
        found = [record for record in records if self.pull(record)]
        self.bias -= len(found)
        gone = list(map(removal_of, found))
        self._note_removed(gone, now)
        for record in found:
            self.gone(record)
        return gone

    def remove_returned(self, upto: int) -> Removals:
        returned = [record for record in self.returned if record.counter <= upto]
        gone = super().remove_returned(upto)
        for record in returned:
            self.gone(record)
        return gone

    def _note_removed(self, gone: Removals, now: int) -> None:
        if gone:
            self.taken_time = now
            self.acked += gone
            for first, last, _ in gone:
                self.leasing.forget(first, last)
            count = sum(last - first + 1 for first, last, _ in gone)
            self.bytes_went(sum(weight for _, _, weight in gone) - records_weight(0, count))
            self.note_size(now)

    async def _commit_removed(self, last: int) -> None:
        self.touch()
        self.records_went()
        if self.level == MEMORY:
            # Each step is a turn of the loop, for others' sake.
            await asyncio.sleep(0)
            return
        waiter = Waiter(self._committer.loop.create_future(), self, first=last)
        self._committer.wait(waiter, self.level)
        await waiter.future

    def _in_flight(self, upto: int) -> bool:
        """Whether records up to there are in nobody's place for now, and may come back to one."""
        if self.restoring or (self.strong_upto and self.visible < upto):
            return True
        leasing = self.leasing
        away = (*leasing.noting, *leasing.leaving, *self.fetching)
        if any(counter <= upto for counter in away):
            return True
        claims = self.claims + (self.sealed.claims if self.sealed is not None else [])
        return any(record.counter <= upto for claim in claims for record in claim.records)


class _Pull(Call):
    """Reads some records of a queue that wait, and takes them from where they do.

    As many of those on disk as there is room for; the others are its `rest` afterwards.
    """

    def __init__(
        self, queue: Removing[Any], counters: Sequence[int], future: asyncio.Future[object]
    ) -> None:
        super().__init__(self._read, future)
        self._queue, self._counters = queue, counters
        self._missing = [counter for counter in counters if counter not in queue.shelf.kept]
        self.rest: Sequence[int] = []

    def _read(self, log: Log) -> list[Returned]:
        if not self._missing:
            return []
        records, self.rest = fetched(log, self._queue.name, self._missing, FETCH_BYTES_MAX)
        return records

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if isinstance(outcome, list) and not self.future.done():
            # In this very step: before another job, or a taker, comes to these records.
            kept = self._queue.shelf.kept
            records = [kept[counter] for counter in self._counters if counter in kept]
            outcome = self._queue.pulled(records + outcome, time.time_ns())
        super().settle(committer, outcome, error)


class _Measured:
    """Live records of a stretch: ranges with their weights, and the sum of their put times."""

    def __init__(self) -> None:
        self.ranges: Removals = []
        self.upto = 0
        self.time_total = 0

    def add(self, block: RecordBlock) -> tuple[int, int]:
        """Note a block; returns how many records and payload bytes it has."""
        counters, offsets = block.counters(), block.offsets
        # What has a time is on the shelf.
        timed = block.columns.get(DELIVER_AT, ())
        shelved = {index for index, due in enumerate(timed) if due}
        for start, stop in consecutive(counters, shelved):
            size = int(offsets[stop] - offsets[start])
            weight = records_weight(size, stop - start)
            self.ranges.append((counters[start], counters[stop - 1], weight))
        differences = block.time_differences
        self.time_total += block.time * block.count + sum(differences or ())
        return block.count, int(offsets[-1] - offsets[0])


class _Measure(Call):
    """Measures the first stretch of a queue's gap, and takes it out of the line on the loop."""

    def __init__(self, queue: Removing[Any], upto: int, future: asyncio.Future[object]) -> None:
        super().__init__(self._measure, future)
        self._queue = queue
        self._upto = upto

    def _measure(self, log: Log) -> _Measured | None:
        """None if takers had it all read into memory before it was our turn."""
        gap = self._queue.gap
        if gap is None or gap[0] > self._upto:
            return None
        measured = _Measured()
        first, last = gap[0], min(gap[1], self._upto)
        records = size = 0
        frame: object = None
        for block in log.read(self._queue.name, first, last):
            if frame is not block.offsets.obj and (records >= STEP_RECORDS or size >= STEP_BYTES):
                # Not inside a frame: the next step would have to read all of it again.
                return measured
            frame = block.offsets.obj
            count, more = measured.add(block)
            records, size = records + count, size + more
            measured.upto = block.last
        measured.upto = last
        return measured

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if isinstance(outcome, _Measured) and not self.future.done():
            # In this very step: before another job, or a taker, comes to these records.
            outcome = self._queue.skipped(outcome, time.time_ns())
        super().settle(committer, outcome, error)
