"""A line: one queue's records in order, as far as they are in memory, and what waits to be sealed.

Knows no files, no loop and no waiting. Records stand, oldest first, in these places:

    returned  gave back by a cancelled take or a lease that ended; a heap by counter
    ready     one run of consecutive counters, taken from its left end
    chunks    runs that were written and kept, because takers will want them soon
    gap       a stretch of counters that is only on disk
    sealed    the batch whose commit is under way
    tail      what was put since

A put appends to the tail and a take pops from ready; everything else happens once for a whole
batch, or in the rare path. The rare path opens a window of a few puts or takes and gives it the
time; only one of the two windows is open, so the size moves one way in between and the water
marks are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple

from fifoq.histogram import Histogram
from store import FifoqError
from store.blocks import records_weight

WINDOW_MIN: Final = 4
WINDOW_MAX: Final = 256
"""Puts or takes that may follow without a look at the clock and the limits."""
WINDOW_NS: Final = 200_000
"""A window that took longer than this is followed by a smaller one."""
SAME_TIME_NS: Final = 100_000
"""Puts and takes that are less apart than this share a time."""
CACHE_BYTES_MAX: Final = 24 << 20
"""What a queue keeps in memory of records that are on disk as well, with their overhead."""
RESTORED_MAX: Final = 16384
"""Records that one frame restores: each is a block of its own."""
COLUMN_BYTES: Final = 16
"""What a record needs in a frame beside its payload, at the most, without optional columns."""
RECORD_OVERHEAD: Final = 48
"""What a record in memory needs beside its bytes, about."""
TIME_RUNS_MAX: Final = 64

TimeRuns = list[tuple[int, int]]
"""From which counter on which time holds, rising."""
Removals = list[tuple[int, int, int]]
"""First and last counter, and their weight."""


class Returned(NamedTuple):
    """A record that goes back to its place in front of the others."""

    counter: int
    time: int
    payload: bytes
    headers: bytes | None = None


class Run(NamedTuple):
    """Consecutive records: the first one's counter, payloads, put times."""

    first: int
    payloads: Sequence[bytes]
    times: TimeRuns
    item_bytes: int | None = None
    """The length of every payload, if it is the same and known."""

    @property
    def end(self) -> int:
        return self.first + len(self.payloads)


class Claim:
    """Records that a taker holds until their removal is committed."""

    __slots__ = ("records", "sealed")

    def __init__(self, records: list[Returned]) -> None:
        self.records = records
        self.sealed = False

    @property
    def last(self) -> int:
        """The highest counter."""
        return max(record.counter for record in self.records)


class Batch:
    """What one commit holds of a queue."""

    __slots__ = (
        "acked",
        "claims",
        "configuration",
        "delay_ns",
        "dropped",
        "first",
        "frame_bytes",
        "headers",
        "hidden",
        "leases",
        "restored",
        "runs",
        "shown",
        "strong_first",
        "taken",
        "upto",
    )

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.shown = 0
        """Counters below this are in the hands of takers already."""
        self.first = self.upto = self.strong_first = 0
        self.hidden = 0
        """How many of the records nobody may take before the commit."""
        self.frame_bytes = 0
        self.headers: dict[int, bytes] = {}
        self.taken: list[tuple[int, int, int]] = []
        self.acked: list[tuple[int, int, int]] = []
        self.dropped: list[tuple[int, int, int]] = []
        self.claims: list[Claim] = []
        self.leases: dict[int, int] = {}
        self.restored: list[Returned] = []
        self.configuration: bytes | None = None
        self.delay_ns = 0

    @property
    def removes(self) -> bool:
        return bool(self.taken or self.acked or self.dropped)

    def __bool__(self) -> bool:
        return bool(self.runs or self.removes or self.leases or self.restored or self.configuration)


class Line:
    """See the module."""

    __slots__ = (
        "acked",
        "bias",
        "cached_bytes",
        "chunks",
        "claims",
        "configuration",
        "delay_count",
        "delay_ns",
        "delay_total_ns",
        "delays",
        "dropped",
        "gap",
        "head",
        "headers",
        "hidden",
        "high",
        "high_time",
        "lease_limit",
        "leases",
        "looked",
        "low",
        "low_time",
        "name",
        "next",
        "put_limit",
        "put_time",
        "ready",
        "removed",
        "restored",
        "restoring",
        "returned",
        "run_end",
        "run_ends",
        "run_first",
        "run_item_bytes",
        "run_times",
        "sealed",
        "strong_first",
        "strong_limit",
        "strong_upto",
        "tail",
        "tail_bytes",
        "tail_counted",
        "tail_first",
        "tail_item_bytes",
        "tail_shown",
        "tail_times",
        "take_limit",
        "take_marks",
        "taken_from",
        "taken_time",
        "visible",
        "window",
        "withdrawn",
        "withdrawn_count",
    )

    def __init__(
        self, name: str, *, next_counter: int, floor: int, size: int, last_put_time: int
    ) -> None:
        self.name = name
        self.next = next_counter
        self.put_limit = self.strong_limit = 0
        self.window = WINDOW_MIN
        self.looked = 0
        self.put_time = last_put_time
        self.tail: list[bytes | None] = []
        self.tail_first = next_counter
        self.tail_shown = next_counter
        self.tail_times: TimeRuns = []
        self.tail_bytes = 0
        self.tail_counted = 0
        self.tail_item_bytes: int | None = None
        self.withdrawn = False
        self.withdrawn_count = 0
        self.hidden = 0
        self.sealed: Batch | None = None
        self.strong_upto = 0
        """Highest counter put at a level above memory that is not committed yet, or 0."""
        self.strong_first = 0
        """Lowest such counter in the tail, or 0."""
        self.visible = next_counter - 1
        """While `strong_upto` is set: counters up to here may be taken."""
        self.head = floor + 1
        self.take_limit = self.lease_limit = 0
        self.ready: deque[bytes] = deque()
        self.run_first = self.run_end = self.taken_from = self.head
        self.run_item_bytes: int | None = 0
        self.run_ends: list[int] = []
        self.run_times: TimeRuns = []
        self.chunks: deque[Run] = deque()
        self.cached_bytes = 0
        self.gap = (self.head, next_counter - 1) if size else None
        self.returned: list[Returned] = []
        self.headers: dict[int, bytes] = {}
        # The size is next - head + bias: what is between them and not there counts against it.
        self.bias = size - (next_counter - self.head)
        self.take_marks: TimeRuns = []
        self.removed: list[tuple[int, int, int]] = []
        self.acked: list[tuple[int, int, int]] = []
        self.dropped: list[tuple[int, int, int]] = []
        self.claims: list[Claim] = []
        self.leases: dict[int, int] = {}
        self.restored: list[Returned] = []
        self.restoring = 0
        """Records that are on their way back to their places; takers wait for them."""
        self.configuration: bytes | None = None
        self.delays: Histogram | None = None
        self.delay_ns = self.delay_total_ns = self.delay_count = 0
        self.taken_time = 0
        self.high: int | None = None
        self.high_time = 0
        self.low: int | None = None
        self.low_time = 0

    def __len__(self) -> int:
        return self.next - self.head + self.bias

    def close_windows(self) -> None:
        """Send the next put and the next take down the rare path."""
        self.put_limit = self.strong_limit = self.take_limit = self.lease_limit = 0

    # Water marks and time.

    def look(self, now: int) -> None:
        """Close both windows and note the size. Comes first in every rare path."""
        self.put_limit = self.strong_limit = self.take_limit = self.lease_limit = 0
        window = self.window
        if now - self.looked < WINDOW_NS:
            self.window = window * 2 if window < WINDOW_MAX else window
        else:
            self.window = WINDOW_MIN
        self.looked = now
        self.note_size(now)

    def note_size(self, now: int) -> None:
        """Let the water marks see the size, wherever it may turn."""
        size = self.next - self.head + self.bias
        if self.high is None:
            if size:
                self.high = self.low = size
                self.high_time = self.low_time = now
            return
        if size > self.high:
            self.high, self.high_time = size, now
        elif self.low is not None and size < self.low:
            self.low, self.low_time = size, now

    def first_put(self, now: int, count: int = 1) -> None:
        """The very first records make a size which no later look may see."""
        if self.high is None:
            self.high = self.low = count
            self.high_time = self.low_time = now

    def stamp_put(self, now: int) -> int:
        """The time for the puts that follow; never earlier than the one before."""
        if not self.tail_times or now - self.put_time >= SAME_TIME_NS:
            if now > self.put_time:
                self.put_time = now
            self.tail_times.append((self.next, self.put_time))
        return self.put_time

    def stamp_take(self, now: int) -> None:
        marks = self.take_marks
        if not marks or now - marks[-1][1] >= SAME_TIME_NS:
            if self.head == self.taken_from:
                # Nothing was taken from the run since: no record needs the older ones.
                marks.clear()
            marks.append((self.head, now))

    def open_puts(self, count: int) -> None:
        self.put_limit = self.next + count

    def open_takes(self, count: int) -> None:
        self.take_limit = min(self.run_end, self.head + count)

    # Putting.

    def append(self, payload: bytes, *, strong: bool) -> int:
        """Put one record; returns its counter."""
        counter = self.next
        self.tail.append(payload)
        self.next = counter + 1
        if strong:
            self._hide(counter, 1)
        return counter

    def extend(self, payloads: Sequence[bytes], *, strong: bool) -> int:
        """Put records; returns the first one's counter."""
        first = self.next
        self.tail.extend(payloads)
        self.next = first + len(payloads)
        if strong:
            self._hide(first, len(payloads))
        return first

    def _hide(self, first: int, count: int) -> None:
        """Records of a level above memory are there for takers only once they are committed."""
        if not self.strong_upto:
            self.visible = first - 1
        if not self.strong_first:
            self.strong_first = first
        self.strong_upto = first + count - 1
        self.bias -= count
        self.hidden += count

    def withdraw(self, first: int, count: int) -> bool:
        """Take hidden records back out of the tail; False if they are sealed already.

        Their counters are never used again.
        """
        at = first - self.tail_first
        if at < 0:
            return False
        assert self.tail_counted >= at + count, "what was put is counted first"
        for index in range(at, at + count):
            assert self.tail[index] is not None
            self.tail[index] = None
            self.headers.pop(self.tail_first + index, None)
        self.withdrawn = True
        self.withdrawn_count += count
        self.hidden -= count
        if not self.hidden:
            self.strong_first = 0
        if not self.hidden and (self.sealed is None or not self.sealed.hidden):
            # Nothing is hidden any more, so nothing behind it has to wait.
            self.strong_upto = 0
        return True

    def count_tail(self) -> int:
        """Count what was put since the last time; returns how many bytes that is in a frame."""
        tail, counted = self.tail, self.tail_counted
        more = len(tail) - counted
        if not more:
            return 0
        lengths = list(map(len, tail[counted:] if counted else tail))  # type: ignore[arg-type]
        length = lengths[0]
        if lengths.count(length) == more:
            size = more * (length + COLUMN_BYTES)
            if not counted:
                self.tail_item_bytes = length
            elif length != self.tail_item_bytes:
                self.tail_item_bytes = None
        else:
            size = sum(lengths) + COLUMN_BYTES * more
            self.tail_item_bytes = None
        self.tail_bytes += size
        self.tail_counted = len(tail)
        return size

    def count_known(self, count: int, size: int, item_bytes: int | None) -> int:
        """The same when the newest `count` records are known to have that size in a frame."""
        uncounted = len(self.tail) - self.tail_counted
        if uncounted != count:
            return self.count_tail()
        if not self.tail_counted:
            self.tail_item_bytes = item_bytes
        elif item_bytes != self.tail_item_bytes:
            self.tail_item_bytes = None
        self.tail_bytes += size
        self.tail_counted = len(self.tail)
        return size

    # What the queue does when its line moves.

    def records_came(self) -> None:
        """There may be something to take that was not there before."""

    def records_went(self) -> None:
        """There may be room that was not there before."""

    def read_ended(self, error: FifoqError | None) -> None:
        """Records were brought into memory, or could not be."""

    def store_closed(self) -> None:
        """Nothing can be put or taken any more."""

    # Taking.

    def has_ready(self) -> bool:
        """Whether a take would succeed at once; may bring records forward within memory."""
        if self.restoring:
            return False
        return bool(self.returned) or self.head < self.run_end or self.refill()

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
                    sealed.shown = stop
                    return part_of(run, start, stop) if start < stop else None
        start, stop = self.tail_shown, visible + 1
        if start < self.tail_first:
            start = self.tail_first
        if self.withdrawn:
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
        """The first records of the tail from `start` on of which none was withdrawn."""
        tail, first = self.tail, self.tail_first
        while start < stop and tail[start - first] is None:
            start += 1
        end = start
        while end < stop and tail[end - first] is not None:
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
        if self.headers:
            # What waits in the tail still needs its headers written.
            kept = min(end, self.tail_first)
            for counter in [c for c in self.headers if first <= c < kept]:
                del self.headers[counter]

    def taken_weight(self, first: int, end: int) -> int:
        count = end - first
        if self.run_item_bytes is not None:
            return records_weight(count * self.run_item_bytes, count)
        ends, base = self.run_ends, self.run_first
        return records_weight(ends[end - base] - ends[first - base], count)

    def _note_delays(self, first: int, end: int) -> None:
        marks = self.take_marks
        at = max(0, _index_at(marks, first))
        while first < end:
            stop = min(end, marks[at + 1][0]) if at + 1 < len(marks) else end
            taken = marks[at][1]
            at += 1
            while first < stop:
                run = _index_at(self.run_times, first)
                put_stop = stop
                if run + 1 < len(self.run_times):
                    put_stop = min(stop, self.run_times[run + 1][0])
                self.note_delay(put_stop - first, taken - self.run_times[run][1])
                first = put_stop
        self.take_marks = marks[-1:]

    def note_delay(self, count: int, delay: int) -> None:
        if self.delays is not None:
            delay = max(0, delay)
            self.delay_ns += count * delay
            self.delay_total_ns += count * delay
            self.delay_count += count
            self.delays.add(delay, count)

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
        time = self.run_times[_index_at(self.run_times, counter)][1]
        headers = self.headers.get(counter) if self.headers else None
        if headers is not None and counter < self.tail_first:
            del self.headers[counter]
        return Returned(counter, time, payload, headers)

    def same_time_until(self, limit: int) -> tuple[int, int]:
        """Up to which counter of the run, not over `limit`, records share the head's put time."""
        times = self.run_times
        at = _index_at(times, self.head)
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
            or self.configuration
        )

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
            batch.leases, self.leases = self.leases, {}
        for claim in batch.claims:
            claim.sealed = True
            batch.taken += map(removal_of, claim.records)
        batch.restored, self.restored = self.restored[:RESTORED_MAX], self.restored[RESTORED_MAX:]
        if puts:
            batch.configuration, self.configuration = self.configuration, None
        batch.delay_ns, self.delay_ns = self.delay_ns, 0
        self.sealed = batch
        return batch

    def _seal_removals_of_written(self, batch: Batch) -> None:
        """What waits in the tail can not be removed before it is put."""
        first = self.tail_first
        batch.taken, self.removed = _before(first, self.removed)
        batch.acked, self.acked = _before(first, self.acked)
        batch.dropped, self.dropped = _before(first, self.dropped)
        batch.claims = [claim for claim in self.claims if claim.last < first]
        self.claims = [claim for claim in self.claims if claim.last >= first]
        batch.leases = {c: attempt for c, attempt in self.leases.items() if c < first}
        self.leases = {c: attempt for c, attempt in self.leases.items() if c >= first}

    def _seal_tail(self, batch: Batch) -> None:
        self.count_tail()
        first, payloads = self.tail_first, self.tail
        if self.withdrawn:
            batch.runs = list(_runs_without_holes(first, payloads, self.tail_times))
        else:
            batch.runs = [Run(first, payloads, self.tail_times, self.tail_item_bytes)]  # type: ignore[arg-type]
        batch.shown = max(first, self.tail_shown)
        batch.first, batch.upto = first, self.next - 1
        batch.frame_bytes = self.tail_bytes
        if self.headers:
            batch.headers = {c: h for c, h in self.headers.items() if c >= first}
            self.headers = {c: h for c, h in self.headers.items() if c >= self.head}
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
            for run in batch.runs:
                if run.end > batch.shown:
                    self._keep(part_of(run, max(run.first, batch.shown), run.end))
        for record in batch.restored:
            self.restoring -= 1
            self.give_back(record)

    def _show(self, batch: Batch) -> None:
        if not self.strong_upto:
            return
        # Counters that were withdrawn stay out of the size for ever.
        self.bias += batch.hidden
        if self.strong_upto <= batch.upto:
            self.strong_upto = 0
        else:
            # What was put behind the batch is there up to the next one that must wait.
            self.visible = self.strong_first - 1

    def _keep(self, run: Run) -> None:
        """Hold a written run in memory if takers come to it soon, else leave it on disk."""
        size = run_bytes(run)
        if self.gap is not None:
            self.gap = (self.gap[0], run.end - 1)
        elif self.cached_bytes + size > CACHE_BYTES_MAX:
            self.gap = (run.first, run.end - 1)
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
        self.leases = {**batch.leases, **self.leases}
        self.restored = batch.restored + self.restored
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
        self.headers = {**batch.headers, **self.headers}

    def unwritten_bytes(self) -> int:
        """By how many payload bytes the records that are there differ from those committed."""
        self.close_run()
        size = sum(len(payload) for payload in self.tail if payload is not None)
        removed = [*self.removed, *self.acked, *self.dropped]
        for claim in self.claims:
            removed += map(removal_of, claim.records)
        if self.sealed is not None:
            size += sum(len(payload) for run in self.sealed.runs for payload in run.payloads)
            removed += [*self.sealed.taken, *self.sealed.acked, *self.sealed.dropped]
        for first, last, weight in removed:
            size -= weight - records_weight(0, last - first + 1)
        return size

    # What is read from disk.

    def fill_gap(self, runs: Sequence[Run], upto: int) -> None:
        """Records of the gap up to counter `upto` were read; what is not among them is not live."""
        assert self.gap is not None
        self.chunks.extend(runs)
        self.cached_bytes += sum(map(run_bytes, runs))
        last = self.gap[1]
        self.gap = (upto + 1, last) if upto < last else None


def removal_of(record: Returned) -> tuple[int, int, int]:
    counter, _, payload, _ = record
    return counter, counter, records_weight(len(payload), 1)


def _before(counter: int, removals: Removals) -> tuple[Removals, Removals]:
    """Removals of records below a counter, and the others. No range reaches across the tail."""
    early = [removal for removal in removals if removal[0] < counter]
    return early, [removal for removal in removals if removal[0] >= counter]


def run_bytes(run: Run) -> int:
    """What a run needs in memory, about."""
    if run.item_bytes is not None:
        return (run.item_bytes + RECORD_OVERHEAD) * len(run.payloads)
    return sum(map(len, run.payloads)) + RECORD_OVERHEAD * len(run.payloads)


def part_of(run: Run, start: int, stop: int) -> Run:
    """The records of a run from counter `start` up to `stop`."""
    if start == run.first and stop == run.end:
        return run
    payloads = run.payloads[start - run.first : stop - run.first]
    return Run(start, payloads, times_from(run.times, start), run.item_bytes)


def times_from(times: TimeRuns, counter: int) -> TimeRuns:
    """The times that hold from `counter` on."""
    return times[max(0, _index_at(times, counter)) :]


def time_runs(run: Run) -> list[tuple[int, int]]:
    """How many records of a run share which time, as a block wants it."""
    times, end = run.times, run.end
    if len(times) == 1:
        return [(end - run.first, times[0][1])]
    counted = []
    for at, (first, time) in enumerate(times):
        first = max(first, run.first)
        stop = min(times[at + 1][0], end) if at + 1 < len(times) else end
        if stop > first:
            counted.append((stop - first, time))
    return counted


def coarse_times(first: int, times: Sequence[int]) -> TimeRuns:
    """Put times of consecutive records as few stretches, each with its first record's time."""
    step = max(SAME_TIME_NS, (times[-1] - times[0]) // TIME_RUNS_MAX)
    runs, at = [], 0
    while at < len(times):
        runs.append((first + at, times[at]))
        at = bisect_right(times, times[at] + step, at)
    return runs


def _index_at(times: TimeRuns, counter: int) -> int:
    return bisect_right(times, counter, key=_first_of) - 1


def _first_of(mark: tuple[int, int]) -> int:
    return mark[0]


def _runs_without_holes(first: int, payloads: Sequence[bytes | None], times: TimeRuns) -> list[Run]:
    runs: list[Run] = []
    start = 0
    while start < len(payloads):
        stop = start
        while stop < len(payloads) and payloads[stop] is not None:
            stop += 1
        if stop > start:
            part: list[bytes] = payloads[start:stop]  # type: ignore[assignment]
            runs.append(Run(first + start, part, times_from(times, first + start)))
        start = stop + 1
    return runs
