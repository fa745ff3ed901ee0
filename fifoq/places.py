"""Where a queue's records are in memory, their size and their time, and how they are put.

See `line` for what the places are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from fifoq.attributes import Attributes
from fifoq.histogram import Histogram
from fifoq.runs import (
    COLUMN_BYTES,
    SAME_TIME_NS,
    Batch,
    Claim,
    Removals,
    Returned,
    Run,
    TimeRuns,
    removal_of,
)
from store import FifoqError

WINDOW_MIN: Final = 4
WINDOW_MAX: Final = 256
"""Puts or takes that may follow without a look at the clock and the limits."""
WINDOW_NS: Final = 200_000
"""A window that took longer than this is followed by a smaller one."""


class Places:
    """The state of a line, and the half of it that takes records in."""

    __slots__ = (
        "acked",
        "acks_pass",
        "aside",
        "attributes",
        "back_early",
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
        "drops_expired",
        "expired",
        "gap",
        "head",
        "hidden",
        "high",
        "high_time",
        "joined",
        "lease_limit",
        "leases",
        "looked",
        "low",
        "low_time",
        "marks",
        "name",
        "next",
        "purged",
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
        "tail_attributes",
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
        self.acks_pass = False
        """An ack may pass without a look, until the loop turns."""
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
        self.aside: dict[int, bool] = {}
        """Records of the tail and of the sealed batch that stand in no run, because nobody may have
        them yet; whether the shelf has them already, since they need no commit to be there."""
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
        self.attributes: dict[int, Attributes] = {}
        """Of records that stand in runs, for whoever takes them."""
        self.tail_attributes: dict[int, Attributes] = {}
        """Of records in the tail, to be written."""
        self.marks: dict[int, tuple[str, bytes | None]] = {}
        """State entries that are set in the frame of the record with that counter, or never."""
        # The size is next - head + bias: what is between them and not there counts against it.
        self.bias = size - (next_counter - self.head)
        self.take_marks: TimeRuns = []
        self.removed: list[tuple[int, int, int]] = []
        self.acked: list[tuple[int, int, int]] = []
        self.dropped: list[tuple[int, int, int]] = []
        self.joined: list[tuple[int, tuple[int, int, int]]] = []
        """Removals of joints with their reasons, for the batch that is sealed next."""
        self.drops_expired = True
        self.expired: list[tuple[int, int, int]] = []
        self.purged: list[tuple[int, int, int]] = []
        self.claims: list[Claim] = []
        self.leases: dict[int, int] = {}
        self.restored: list[Returned] = []
        self.restoring = 0
        """Records that are on their way back to their places; takers wait for them."""
        self.back_early: set[int] = set()
        """Of those in `restored`: what takers may have although the disk was too full for it."""
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
        """Send the next put, take, lease and ack down the rare path."""
        self.put_limit = self.strong_limit = self.take_limit = self.lease_limit = 0
        self.acks_pass = False

    # Water marks and time.

    def look(self, now: int) -> None:
        """Close all windows and note the size. Comes first in every rare path."""
        self.put_limit = self.strong_limit = self.take_limit = self.lease_limit = 0
        self.acks_pass = False
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
            if not self.tail:
                # No record has the time that was there: one time for a block is read and
                # written sooner than two.
                self.tail_times.clear()
            self.tail_times.append((self.next, self.put_time))
        return self.put_time

    def stamp_take(self, now: int) -> None:
        marks = self.take_marks
        if not marks or now - marks[-1][1] >= SAME_TIME_NS:
            if self.head == self.taken_from:
                # Nothing was taken from the run since: no record needs the older ones.
                marks.clear()
            marks.append((self.head, now))

    def note_delay(self, count: int, delay: int) -> None:
        if self.delays is not None:
            delay = max(0, delay)
            self.delay_ns += count * delay
            self.delay_total_ns += count * delay
            self.delay_count += count
            self.delays.add(delay, count)

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
            self.attributes.pop(self.tail_first + index, None)
            self.tail_attributes.pop(self.tail_first + index, None)
            self.aside.pop(self.tail_first + index, None)
        self.marks.pop(first, None)
        # The next strong put must say anew from where on records are hidden.
        self.strong_limit = 0
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

    def attach(self, first: int, count: int, attributes: Attributes) -> int:
        """Give records of the tail attributes; returns how many bytes that is in a frame."""
        size = attributes.size * count
        self.tail_bytes += size
        if count == 1:
            self.tail_attributes[first] = self.attributes[first] = attributes
            return size
        attached = dict.fromkeys(range(first, first + count), attributes)
        self.tail_attributes.update(attached)
        self.attributes.update(attached)
        return size

    # Joints.

    def expect(self, count: int) -> None:
        """That many records are about to arrive; negative if they do now, or never will."""

    def begin_arrivals(self, now: int) -> None:
        """Records of joints follow."""
        self.look(now)
        self.stamp_put(now)

    def arrive(self, payload: bytes, attributes: Attributes | None) -> tuple[int, int]:
        """Put a record of a joint, whose frame is put together; returns its counter and time.

        One below `next` stands for a record that was put before, and this one is not stored.
        """
        counter = self.append(payload, strong=True)
        if attributes is not None:
            self.attach(counter, 1, attributes)
        return counter, self.put_time

    def depart(self, records: Sequence[tuple[Returned, int]], now: int) -> None:
        """Records that are out of their places and still counted go with the next batch."""
        self.look(now)
        self.joined += [(reason, removal_of(record)) for record, reason in records]
        self.bias -= len(records)

    def stay(self, record: Returned) -> None:
        """It does not go: it is counted again, and still out of its place."""
        self.bias += 1

    def come_restored(self, records: list[Returned]) -> None:
        """Have the next batch bring back records whose removal was committed."""
        self.restored += records

    # What the queue does when its line moves.

    def shelve(self, records: Sequence[Returned]) -> None:
        """Records that were set aside are committed: they are there from now on, for later."""
        raise AssertionError("a line alone sets nothing aside")

    def attributes_came(self, attributes: dict[int, Attributes]) -> None:
        """Records that were read have attributes."""
        self.attributes.update(attributes)

    def expire_unread(self, ranges: Removals) -> None:
        """Records of the gap are too old for anybody, and leave."""
        self.expired += ranges
        self.bias -= sum(last - first + 1 for first, last, _ in ranges)

    def records_came(self) -> None:
        """There may be something to take that was not there before."""

    def records_went(self) -> None:
        """There may be room that was not there before."""

    def read_ended(self, error: FifoqError | None) -> None:
        """Records were brought into memory, or could not be."""

    def store_closed(self) -> None:
        """Nothing can be put or taken any more."""
