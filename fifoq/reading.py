"""Reading: the records of one cursor, as its members share them, and its position.

Records are brought into memory a page at a time and handed out in order of counter; what comes back
goes to its place in front. Everything here happens on the loop, but for the jobs, which have the
log while they run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fifoq.cursor_line import PositionLine
from fifoq.cursor_page import Page
from fifoq.cursor_position import CursorPosition, Done
from fifoq.cursor_records import CursorRecords, Loaded
from fifoq.errors import QueueClosed, SchemaMismatch
from fifoq.holding import CursorHold
from fifoq.jobs import Waiter, as_ours, look_away
from fifoq.options import MEMORY, QueueOptions
from fifoq.retained import Retained, put_time
from fifoq.turns import Turn, wait_turn, wake_all, wake_one
from store import FifoqError, Log

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.cursor_lease import CursorLeases
    from fifoq.queue import Queue

T = TypeVar("T")

_SECOND: Final = 1e9


class Reading(Generic[T]):
    """What the members of one cursor share."""

    head = lease_limit = 0
    acks_pass = False
    """A lease of a cursor has no window, and its ack passes none: see `Leasing` and `Delivery`."""

    def __init__(self, queue: Queue[T], committer: Committer, hold: CursorHold) -> None:
        self.queue = queue
        self.committer = committer
        self.hold = hold
        self.line = PositionLine(self)
        self.handed: list[Loaded] = []
        """What was taken last: done once somebody takes again, or commits."""
        self.on_moved: Callable[[], None] = _nothing
        """Called when the cursor was moved: no lease holds any more."""
        self._waiting: deque[Turn] = deque()
        self._ending = 0
        """How many of them do not wait for new records."""
        self._more = True
        """Perhaps there is more to read."""
        self._page: Page | None = None
        self._trouble: FifoqError | None = None
        self.deleted = False
        self._retained = Retained()
        self.leasing: CursorLeases[T]
        self._start_at(hold.position)

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def options(self) -> QueueOptions:
        return self.queue.options

    def _start_at(self, position: CursorPosition) -> None:
        self.done = Done(position)
        self._since = position.counter
        self.records = CursorRecords()
        self.handed.clear()
        self._more = True
        self._trouble = None

    # Handing out.

    def require_usable(self) -> None:
        self.committer.require_usable()
        if self.deleted:
            raise QueueClosed(
                f"queue {self.name!r}: the cursor {self.hold.name!r} was deleted. Nothing was "
                f"changed. `queue.cursor` makes it anew."
            )

    async def wait(self, may: Callable[[], bool] | None = None, *, for_new: bool = True) -> bool:
        """Until there is a record to claim; raises what fits if it cannot be read.

        It is there in the step in which this returns, for whoever claims it then. False, and only
        without `for_new`, if all that was committed has been handed out.
        """
        while True:
            self.require_usable()
            if (may is None or may()) and self.records.next() is not None:
                self._read_ahead()
                return True
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                self._more = True
                # It stands in everybody's way: the next one who waits is to be told as well.
                wake_one(self._waiting)
                raise trouble
            self._read_ahead()
            if not (for_new or self._page or self._more):
                return False
            self._ending += not for_new
            try:
                await wait_turn(self.committer.loop, self._waiting)
            finally:
                self._ending -= not for_new

    def claim(self) -> tuple[Loaded, T]:
        """The next record with its item; SchemaMismatch leaves it where it is."""
        record = self.records.next()
        assert record is not None
        try:
            item = self.queue.codec.decode(record.payload)
        except SchemaMismatch:
            wake_one(self._waiting)
            raise
        self.records.pop()
        return record, item

    def following_bytes(self) -> int | None:
        """The size of the next record in memory, or None if there is none."""
        record = self.records.next()
        return None if record is None else len(record.payload)

    def pass_on(self) -> None:
        """One wake-up stands for all there is: let the next member look."""
        if self._waiting and self.records.next() is not None:
            wake_one(self._waiting)
        elif self._ending and not (self._page or self._more):
            wake_all(self._waiting)

    def give_back(self, counter: int) -> None:
        """What was leased is at its place again."""
        self.records.give_back(counter)
        self.pass_on()

    def finish(self, counter: int) -> None:
        """What was leased is done."""
        record = self.records.finish(counter)
        self.done.add(record.since, record.counter)
        self.pass_on()

    def take_back(self, records: list[Loaded]) -> None:
        """What was taken reached nobody: it is at its place again, unless it counts already."""
        for record in records:
            if record in self.handed:
                self.handed.remove(record)
                self.records.put_back(record)
        self.pass_on()

    def count_handed(self) -> bool:
        """What was taken counts as done from now on; False if nothing was."""
        for record in self.handed:
            self.done.add(record.since, record.counter)
        counted = bool(self.handed)
        self.handed.clear()
        return counted

    # Reading.

    def records_came(self) -> None:
        """Records of the queue were committed."""
        self._more = True
        if self._waiting:
            self._read_ahead()

    def store_closed(self) -> None:
        wake_all(self._waiting)

    def _read_ahead(self) -> None:
        if self._page is None and self._more and self.records.wants_more:
            self._more = False
            self._page = Page(self.hold, self.filled, self.committer.loop.create_future())
            self.committer.run_call(self._page)

    def filled(self, page: Page, error: BaseException | None) -> None:
        """A page was read, or could not be."""
        self._page = None
        if error is not None:
            self._trouble = as_ours(error)
            wake_one(self._waiting)
            return
        self._more |= page.more
        for counter, put_at, payload, attributes in page.records:
            if counter not in self.done:
                record = Loaded(counter, self._since, put_at, payload, attributes)
                self.records.ahead.append(record)
            self._since = counter + 1
        if page.records and not self.records.ahead:
            # All of them were done before.
            self._read_ahead()
        self.pass_on()

    # The position.

    def position(self) -> CursorPosition:
        """Where the cursor is, to be kept."""
        return CursorPosition(
            self.done.counter, self.done.above, self._first_undone() or 0, time.time_ns()
        )

    def _first_undone(self, *, handed: bool = True) -> int | None:
        """The first record that is not done, or was not handed out either, if one is known."""
        counters = [*self.records.counters()]
        counters += [record.counter for record in self.handed[:1] if handed]
        return min(counters, default=self.hold.there)

    async def commit(self) -> None:
        """Make the position durable at the queue's level."""
        kept, done = self.hold.position, self.done
        line = self.line
        if kept.counter == done.counter and kept.done == done.above and line.idle:
            return
        line.due = True
        level = self.queue.level
        self.committer.touch(line, self.options.flush_interval)
        if level == MEMORY:
            return
        waiter = Waiter(self.committer.loop.create_future(), line)
        self.committer.wait(waiter, level)
        await waiter.future

    def commit_later(self) -> None:
        """The same, and nobody waits for it; refused, it is tried again."""
        self.line.due = True
        self.committer.touch(self.line, 0)
        if self.queue.level > MEMORY:
            waiter = Waiter(self.committer.loop.create_future(), self.line)
            waiter.future.add_done_callback(look_away)
            self.committer.wait(waiter, self.queue.level)

    def committed(self, position: CursorPosition) -> None:
        """The log has the position."""
        moved = position.counter != self.hold.position.counter
        self.hold.position = position
        if moved:
            self.committer.consumers.cursor_moved = True
            self.committer.watch_consumers()

    def moved(self) -> None:
        """The cursor was moved, in the log and for good: begin there."""
        self.line.due = False
        self._start_at(self.hold.position)
        self.on_moved()
        self.records_came()

    async def lag(self) -> tuple[int, float]:
        """How many records are not done, and how long the oldest of them has been there."""
        self.require_usable()
        start, above, handed = self.done.counter, self.done.above, len(self.handed)
        first = self._first_undone(handed=False) or self.hold.reads_at

        def look(log: Log) -> tuple[int, float]:
            # Ranges of what is done hold counters that no record has.
            counted = partial(self._retained.count, log, self.name)
            count = counted(start) - handed - sum(counted(*passed) for passed in above)
            if count <= 0:
                return 0, 0.0
            return count, max(0, time.time_ns() - put_time(log, self.name, first)) / _SECOND

        return await self.committer.call(look)  # type: ignore[return-value]


def _nothing() -> None:
    pass
