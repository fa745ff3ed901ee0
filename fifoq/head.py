"""The head of a line: how records come to be ready, and how they leave their places.

See `line` for what the places are. What is noted here as taken or removed is sealed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate

from fifoq.attributes import Attributes
from fifoq.places import Places
from fifoq.runs import (
    Removals,
    Returned,
    Run,
    index_at,
    part_of,
    removal_of,
    run_bytes,
    stretch_between,
    times_from,
)
from store.blocks import records_weight


class Head(Places):
    """The half of a line that gives records out."""

    __slots__ = ()

    # What takers may have.

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
            self._note_waited(first, end, now)
            removed.append(self.skip_run(end))
            most -= end - first
        return removed

    def skip_run(self, end: int) -> tuple[int, int, int]:
        """Take the records of the run in front of a counter away; says what they were."""
        self.close_run()
        first = self.head
        removal = first, end - 1, self.taken_weight(first, end)
        if end == self.run_end:
            self.ready.clear()
        else:
            for _ in range(end - first):
                self.ready.popleft()
        self.head = self.taken_from = end
        self.forget_attributes(first, end)
        return removal

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
