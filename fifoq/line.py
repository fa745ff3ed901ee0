"""A line: one queue's records in order, as far as they are in memory, and what waits to be sealed.

Knows no files, no loop and no waiting. Records stand, oldest first, in these places:

    returned  gave back by a cancelled take or a lease that ended; a heap by counter
    ready     one run of consecutive counters, taken from its left end
    chunks    runs that were written and kept, because takers will want them soon
    gap       a stretch of counters that is only on disk
    aside     those that nobody may have yet: of what follows, they are in no run
    sealed    the batch whose commit is under way
    tail      what was put since

A put appends to the tail and a take pops from ready; everything else happens once for a whole
batch, or in the rare path. The rare path opens a window of a few puts or takes and gives it the
time; only one of the two windows is open, so the size moves one way in between and the water
marks are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final

from fifoq.attributes import Attributes
from fifoq.places import Places
from fifoq.runs import (
    COLUMN_BYTES,
    Batch,
    Removals,
    Returned,
    Run,
    before,
    first_of,
    index_at,
    part_of,
    removal_of,
    run_bytes,
    runs_without_holes,
    stretch_between,
    times_from,
)
from store.blocks import records_weight

CACHE_BYTES_MAX: Final = 29 << 20
"""What a queue keeps in memory of records that are on disk as well, with their overhead."""
RESTORED_MAX: Final = 16384
"""Records that one frame restores: each is a block of its own."""
RESTORED_BYTES_MAX: Final = 4 << 20
"""And about how many bytes, if there is more than one."""


class Line(Places):
    """See the module."""

    __slots__ = ()

    # Taking.

    def has_ready(self) -> bool:
        """Whether a take would succeed at once; may bring records forward within memory."""
        if self.restoring:
            return False
        if self.head < self.run_end:
            return True
        returned = self.returned
        if (returned and returned[0].counter < self.head) or self.refill():
            return True
        # What waited for its time may be younger than what is only on disk.
        return bool(returned) and (self.gap is None or returned[0].counter < self.gap[0])

    def refill(self) -> bool:
        """Make the next visible records in memory ready; False if there are none.

        The run must be used up. With False and a gap, the records are on disk.
        """
        self.close_run()
        if self.chunks:
            run = self.chunks.popleft()
            self.cached_bytes -= run_bytes(run)
            self._start_run(run)
            return True
        if self.gap is not None:
            return False
        visible = self.visible if self.strong_upto else self.next - 1
        unwritten = self._unwritten_run(visible)
        if unwritten is None:
            return False
        self._start_run(unwritten)
        return True

    def _unwritten_run(self, visible: int) -> Run | None:
        """The next records that no commit has confirmed but that takers may have."""
        sealed = self.sealed
        if sealed is not None:
            for run in sealed.runs:
                if run.end > sealed.shown and run.first <= visible:
                    start, stop = max(run.first, sealed.shown), min(run.end, visible + 1)
                    if self.aside:
                        start, stop = stretch_between(self.aside, start, stop)
                    if start < stop:
                        sealed.shown = stop
                        return part_of(run, start, stop)
        start, stop = self.tail_shown, visible + 1
        if start < self.tail_first:
            start = self.tail_first
        if self.withdrawn or self.aside:
            start, stop = self._between_holes(start, stop)
        if start >= stop:
            return None
        at = start - self.tail_first
        payloads = self.tail[at : stop - self.tail_first]
        self.tail_shown = stop
        counted = stop - self.tail_first <= self.tail_counted
        item_bytes = self.tail_item_bytes if counted else None
        return Run(start, payloads, times_from(self.tail_times, start), item_bytes)  # type: ignore[arg-type]

    def _between_holes(self, start: int, stop: int) -> tuple[int, int]:
        """The first records of the tail from `start` on that are neither withdrawn nor aside."""
        tail, first, aside = self.tail, self.tail_first, self.aside
        while start < stop and (tail[start - first] is None or start in aside):
            start += 1
        # Nobody has to look at those again.
        self.tail_shown = max(self.tail_shown, start)
        end = start
        while end < stop and tail[end - first] is not None and end not in aside:
            end += 1
        return start, end

    def _start_run(self, run: Run) -> None:
        first, payloads, times, item_bytes = run
        self.bias += first - self.head
        self.head = self.run_first = self.taken_from = first
        self.run_end = first + len(payloads)
        self.ready.extend(payloads)
        self.run_times = times
        if item_bytes is None:
            lengths = list(map(len, payloads))
            if lengths.count(lengths[0]) == len(lengths):
                item_bytes = lengths[0]
            else:
                self.run_ends = [0, *accumulate(lengths)]
        self.run_item_bytes = item_bytes

    def close_run(self) -> None:
        """Note what was taken from the run since the last time, to be removed by a commit."""
        first, end = self.taken_from, self.head
        if first == end:
            return
        self.removed.append((first, end - 1, self.taken_weight(first, end)))
        self.taken_from = end
        if self.take_marks:
            self.taken_time = self.take_marks[-1][1]
            self._note_delays(first, end)
        self.forget_attributes(first, end)

    def forget_attributes(self, first: int, end: int) -> None:
        """Records are not in memory any more; what waits to be written is written all the same."""
        if self.attributes:
            for counter in range(first, end):
                self.attributes.pop(counter, None)

    def taken_weight(self, first: int, end: int) -> int:
        count = end - first
        if self.run_item_bytes is not None:
            return records_weight(count * self.run_item_bytes, count)
        ends, base = self.run_ends, self.run_first
        return records_weight(ends[end - base] - ends[first - base], count)

    def _note_delays(self, first: int, end: int) -> None:
        marks = self.take_marks
        at = max(0, index_at(marks, first))
        while first < end:
            stop = min(end, marks[at + 1][0]) if at + 1 < len(marks) else end
            taken = marks[at][1]
            at += 1
            while first < stop:
                run = index_at(self.run_times, first)
                put_stop = stop
                if run + 1 < len(self.run_times):
                    put_stop = min(stop, self.run_times[run + 1][0])
                self.note_delay(put_stop - first, taken - self.run_times[run][1])
                first = put_stop
        self.take_marks = marks[-1:]

    def claim_head(self) -> Returned:
        """Take the oldest visible record away from the line; there must be one.

        The caller says what becomes of it.
        """
        returned = self.returned
        if returned and (self.head >= self.run_end or returned[0].counter < self.head):
            self.bias -= 1
            return heappop(returned)
        self.close_run()
        counter = self.head
        payload = self.ready.popleft()
        self.head = self.taken_from = counter + 1
        time = self.run_times[index_at(self.run_times, counter)][1]
        attributes = self.attributes.pop(counter, None) if self.attributes else None
        return Returned(counter, time, payload, attributes)

    def pass_head(self) -> Returned:
        """The same for a record that nobody gets: it only stands in the way."""
        return self.claim_head()

    def claim_run(self) -> list[Returned]:
        """Take all records that are ready in memory away from the line, which must have some.

        As many claims of the head, for one who wants them all; they stay counted.
        """
        if self.returned or self.attributes or self.head >= self.run_end:
            record = self.claim_head()
            self.bias += 1
            return [record]
        self.close_run()
        first, end, times = self.head, self.run_end, self.run_times
        at = index_at(times, first)
        records = []
        for counter, payload in zip(range(first, end), self.ready, strict=True):
            if at + 1 < len(times) and times[at + 1][0] <= counter:
                at += 1
            records.append(Returned(counter, times[at][1], payload))
        self.ready.clear()
        self.bias += end - first
        self.head = self.taken_from = end
        return records

    def head_record(self) -> tuple[int, Attributes | None]:
        """Counter and attributes of the oldest visible record; there must be one."""
        returned = self.returned
        if returned and (self.head >= self.run_end or returned[0].counter < self.head):
            return returned[0].counter, returned[0].attributes
        return self.head, self.attributes.get(self.head)

    def give_back_early(self) -> None:
        """The disk is too full to restore records: takers get them all the same."""
        for record in self.restored:
            if record.counter not in self.back_early:
                self.back_early.add(record.counter)
                self.restoring -= 1
                self.give_back(record)

    def restored_bytes(self) -> int:
        """What the next batch restores, in bytes of a frame."""
        count = first_of(self.restored, RESTORED_BYTES_MAX)
        return sum(len(record.payload) + COLUMN_BYTES for record in self.restored[:count])

    def same_time_until(self, limit: int) -> tuple[int, int]:
        """Up to which counter of the run, not over `limit`, records share the head's put time."""
        times = self.run_times
        at = index_at(times, self.head)
        if at + 1 < len(times):
            limit = min(limit, times[at + 1][0])
        return min(limit, self.run_end), times[at][1]

    def give_back(self, record: Returned) -> None:
        """The record is at its place again, as if nobody had claimed it."""
        self.take_limit = self.lease_limit = 0
        heappush(self.returned, record)
        self.bias += 1

    def peek_head(self) -> bytes | None:
        """The oldest visible record in memory, without claiming it."""
        if not self.has_ready():
            return None
        returned = self.returned
        if returned and (self.head >= self.run_end or returned[0].counter < self.head):
            return returned[0].payload
        return self.ready[0]

    # Commits.

    @property
    def dirty(self) -> bool:
        """Whether a commit would hold anything of this queue."""
        return bool(
            self.tail
            or self.head > self.taken_from
            or self.removed
            or self.claims
            or self.acked
            or self.leases
            or self.restored
            or self.dropped
            or self.expired
            or self.purged
            or self.configuration
        )

    @property
    def departed(self) -> int:
        """Records that the frame under way removes for a joint."""
        sealed = self.sealed.joined if self.sealed is not None else ()
        return len(self.joined) + len(sealed)

    @property
    def waits(self) -> bool:
        """Whether something waits to be written that needs space."""
        return len(self.tail) > self.tail.count(None)

    @property
    def only_puts(self) -> bool:
        """Whether new records, one after the other, are all that a commit would hold."""
        return self.head == self.taken_from and not (
            self.withdrawn
            or self.tail_attributes
            or self.marks
            or self.removed
            or self.claims
            or self.acked
            or self.leases
            or self.restored
            or self.dropped
            or self.expired
            or self.purged
            or self.back_early
            or self.configuration
        )

    def seal_puts(self) -> Batch:
        """The same as `seal` for a line that has `only_puts`, and a tail."""
        assert self.sealed is None
        self.close_windows()
        self.sealed = batch = Batch()
        self._seal_tail(batch)
        return batch

    def seal(self, *, puts: bool = True) -> Batch:
        """Hand everything that waits over to a commit; without `puts` all but the tail."""
        assert self.sealed is None
        self.close_windows()
        self.close_run()
        batch = Batch()
        if self.tail and puts:
            self._seal_tail(batch)
        if self.tail:
            self._seal_removals_of_written(batch)
        else:
            batch.taken, self.removed = self.removed, []
            batch.claims, self.claims = self.claims, []
            batch.acked, self.acked = self.acked, []
            batch.dropped, self.dropped = self.dropped, []
            batch.expired, self.expired = self.expired, []
            batch.purged, self.purged = self.purged, []
            batch.leases, self.leases = self.leases, {}
        batch.joined, self.joined = self.joined, []
        for claim in batch.claims:
            claim.sealed = True
            batch.taken += map(removal_of, claim.records)
        if self.back_early:
            self._seal_away(batch)
        count = min(first_of(self.restored, RESTORED_BYTES_MAX), RESTORED_MAX)
        batch.restored, self.restored = self.restored[:count], self.restored[count:]
        if puts:
            batch.configuration, self.configuration = self.configuration, None
        if batch.removes:
            # Delays are written with removals: those of what is leased wait for its ack.
            batch.delay_ns, self.delay_ns = self.delay_ns, 0
        self.sealed = batch
        return batch

    def _seal_away(self, batch: Batch) -> None:
        """What was back early and is removed by this batch need not be restored before."""
        removed = {first for first, _, _ in batch.removals}
        away = removed & self.back_early
        batch.away = [record for record in self.restored if record.counter in away]
        self.restored = [record for record in self.restored if record.counter not in away]
        self.back_early -= away

    def _seal_removals_of_written(self, batch: Batch) -> None:
        """What waits in the tail can not be removed before it is put."""
        first = self.tail_first
        batch.taken, self.removed = before(first, self.removed)
        batch.acked, self.acked = before(first, self.acked)
        batch.dropped, self.dropped = before(first, self.dropped)
        batch.expired, self.expired = before(first, self.expired)
        batch.purged, self.purged = before(first, self.purged)
        batch.claims = [claim for claim in self.claims if claim.last < first]
        self.claims = [claim for claim in self.claims if claim.last >= first]
        batch.leases = {c: attempt for c, attempt in self.leases.items() if c < first}
        self.leases = {c: attempt for c, attempt in self.leases.items() if c >= first}

    def _seal_tail(self, batch: Batch) -> None:
        self.count_tail()
        first, payloads = self.tail_first, self.tail
        if self.withdrawn:
            batch.runs = list(runs_without_holes(first, payloads, self.tail_times))
        else:
            batch.runs = [Run(first, payloads, self.tail_times, self.tail_item_bytes)]  # type: ignore[arg-type]
        batch.shown = max(first, self.tail_shown)
        batch.first, batch.upto = first, self.next - 1
        batch.frame_bytes = self.tail_bytes
        batch.attributes, self.tail_attributes = self.tail_attributes, {}
        batch.marks, self.marks = self.marks, {}
        self.tail = []
        self.tail_first = self.tail_shown = self.next
        self.tail_times = [(self.next, self.put_time)]
        self.tail_bytes = self.tail_counted = 0
        self.withdrawn = False
        batch.hidden, self.hidden = self.hidden, 0
        batch.strong_first, self.strong_first = self.strong_first, 0

    def confirm(self) -> None:
        """The sealed batch is committed: what it hid is there for takers now."""
        batch, self.sealed = self.sealed, None
        assert batch is not None
        if batch.upto:
            self._show(batch)
            runs = batch.runs if not self.aside else self._shelve_from(batch)
            for run in runs:
                if run.end > batch.shown:
                    self._keep(part_of(run, max(run.first, batch.shown), run.end))
        for record in batch.restored:
            if record.counter in self.back_early:
                self.back_early.discard(record.counter)
            else:
                self.restoring -= 1
                self.give_back(record)

    def _shelve_from(self, batch: Batch) -> list[Run]:
        """Shelve what was set aside of a batch; returns the runs of the others."""
        aside = self.aside
        plain: list[Run] = []
        records: list[Returned] = []
        for run in batch.runs:
            start = run.first
            for counter in range(run.first, run.end):
                shelved = aside.pop(counter, None)
                if shelved is None:
                    continue
                if start < counter:
                    plain.append(part_of(run, start, counter))
                start = counter + 1
                if not shelved:
                    time = run.times[index_at(run.times, counter)][1]
                    payload = run.payloads[counter - run.first]
                    of = batch.attributes.get(counter)
                    records.append(Returned(counter, time, payload, of))
            if start < run.end:
                plain.append(part_of(run, start, run.end))
        if records:
            self.shelve(records)
        return plain

    def _show(self, batch: Batch) -> None:
        if not self.strong_upto:
            return
        # Counters that were withdrawn stay out of the size for ever.
        self.bias += batch.hidden
        if self.strong_upto <= batch.upto or not self.hidden:
            self.strong_upto = 0
        else:
            # What was put behind the batch is there up to the next one that must wait.
            self.visible = self.strong_first - 1

    def _keep(self, run: Run) -> None:
        """Hold a written run in memory if takers come to it soon, else leave it on disk."""
        size = run_bytes(run)
        if self.gap is not None:
            self.gap = (self.gap[0], run.end - 1)
            self.forget_attributes(run.first, run.end)
        elif self.cached_bytes + size > CACHE_BYTES_MAX:
            self.gap = (run.first, run.end - 1)
            self.forget_attributes(run.first, run.end)
        else:
            self.chunks.append(run)
            self.cached_bytes += size

    def unseal(self) -> None:
        """The sealed batch was refused: put it back as it was."""
        # The tail becomes another list, which an open window would not see.
        self.close_windows()
        batch, self.sealed = self.sealed, None
        assert batch is not None
        if batch.upto:
            self._unseal_tail(batch)
        for claim in batch.claims:
            claim.sealed = False
        claimed = {record.counter for claim in batch.claims for record in claim.records}
        self.removed = [entry for entry in batch.taken if entry[0] not in claimed] + self.removed
        self.claims = batch.claims + self.claims
        self.acked = batch.acked + self.acked
        self.dropped = batch.dropped + self.dropped
        self.expired = batch.expired + self.expired
        self.purged = batch.purged + self.purged
        self.leases = {**batch.leases, **self.leases}
        self.restored = batch.away + batch.restored + self.restored
        self.back_early.update(record.counter for record in batch.away)
        self.configuration = self.configuration or batch.configuration
        self.delay_ns += batch.delay_ns

    def _unseal_tail(self, batch: Batch) -> None:
        self.count_tail()
        first = batch.first
        payloads: list[bytes | None] = []
        for run in batch.runs:
            payloads += [None] * (run.first - first - len(payloads))
            payloads += run.payloads
        payloads += [None] * (self.tail_first - first - len(payloads))
        times = sorted({*(mark for run in batch.runs for mark in run.times), *self.tail_times})
        self.withdrawn = self.withdrawn or None in payloads
        self.tail = payloads + self.tail
        if self.tail_shown <= self.tail_first:
            # Takers have not come to the tail: how far they are is for the batch to say.
            self.tail_shown = batch.shown
        self.tail_first = first
        self.tail_times = times
        # Both parts may have even lengths, and different ones.
        self.tail_item_bytes = None
        self.tail_bytes += batch.frame_bytes
        self.tail_counted = len(self.tail)
        self.hidden += batch.hidden
        self.strong_first = batch.strong_first or self.strong_first
        self.tail_attributes = {**batch.attributes, **self.tail_attributes}
        self.marks = {**batch.marks, **self.marks}

    def unwritten_bytes(self) -> int:
        """By how many payload bytes the records that are there differ from those committed."""
        self.close_run()
        size = sum(len(payload) for payload in self.tail if payload is not None)
        removed = [*self.removed, *self.acked, *self.dropped, *self.expired, *self.purged]
        for claim in self.claims:
            removed += map(removal_of, claim.records)
        if self.sealed is not None:
            size += sum(len(payload) for run in self.sealed.runs for payload in run.payloads)
            removed += self.sealed.removals
        for first, last, weight in removed:
            size -= weight - records_weight(0, last - first + 1)
        return size

    # Removing what nobody takes.

    def remove_returned(self, upto: int) -> Removals:
        """Take what is back at its place, up to a counter, away from the line; says what it was.

        One entry for each record: those that are to be restored are found by it.
        """
        gone = [record for record in self.returned if record.counter <= upto]
        if gone:
            self.returned = [record for record in self.returned if record.counter > upto]
            heapify(self.returned)
            self.bias -= len(gone)
        return list(map(removal_of, gone))

    def remove_ready(self, upto: int, most: int, now: int) -> Removals:
        """Take records in memory that takers may have, up to a counter, `most` at the most."""
        removed: Removals = []
        while most > 0 and (self.head < self.run_end or self.refill()) and self.head <= upto:
            self.close_run()
            first, end = self.head, min(self.run_end, upto + 1, self.head + most)
            removed.append((first, end - 1, self.taken_weight(first, end)))
            if end == self.run_end:
                self.ready.clear()
            else:
                for _ in range(end - first):
                    self.ready.popleft()
            self._note_waited(first, end, now)
            self.head = self.taken_from = end
            self.forget_attributes(first, end)
            most -= end - first
        return removed

    def _note_waited(self, first: int, end: int, now: int) -> None:
        """Count how long records of the run were there."""
        times = self.run_times
        while first < end:
            at = index_at(times, first)
            stop = min(end, times[at + 1][0]) if at + 1 < len(times) else end
            self.note_delay(stop - first, now - times[at][1])
            first = stop

    def skip_gap(self, upto: int, count: int) -> None:
        """Records of the gap up to counter `upto`, `count` of them, are as good as removed."""
        assert self.gap is not None
        last = self.gap[1]
        self.gap = (upto + 1, last) if upto < last else None
        self.bias -= count

    def pass_by_all(self) -> None:
        """Somebody has all records that are there, out of their places; they stay counted.

        Only right after opening, before anybody puts or takes.
        """
        assert self.sealed is None
        assert not self.tail
        assert not self.ready
        self.close_windows()
        self.chunks.clear()
        self.cached_bytes = 0
        self.gap = None
        self.attributes.clear()
        self.bias += self.next - self.head
        self.head = self.run_first = self.run_end = self.taken_from = self.next

    # What is read from disk.

    def fill_gap(self, runs: Sequence[Run], upto: int) -> None:
        """Records of the gap up to counter `upto` were read; what is not among them is not live."""
        assert self.gap is not None
        self.chunks.extend(runs)
        self.cached_bytes += sum(map(run_bytes, runs))
        last = self.gap[1]
        self.gap = (upto + 1, last) if upto < last else None
