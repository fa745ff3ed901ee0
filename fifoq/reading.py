"""Reading: the records of one cursor, as its members share them, and its position.

Records are brought into memory a page at a time and handed out in order of counter; what comes back
goes to its place in front. One in flight for each ordering key. Everything here happens on the
loop, but for the jobs, which have the log while they run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from fifoq.attributes import Attributes, attributes_in
from fifoq.cursor_position import CursorPosition, Done, encode_position
from fifoq.errors import QueueClosed, SchemaMismatch
from fifoq.holding import CursorHold
from fifoq.jobs import Call, Waiter, as_ours
from fifoq.line import Line
from fifoq.options import MEMORY, QueueOptions
from fifoq.retained import Retained, first_from, put_time
from fifoq.runs import Batch
from fifoq.turns import wait_turn, wake_all, wake_one
from store import CorruptionError, FifoqError, Log, RangeGone, RecordBlock

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.cursor_lease import CursorLeases
    from fifoq.queue import Queue

T = TypeVar("T")

PAGE_BYTES: Final = 1 << 20
PAGE_RECORDS: Final = 4096
"""How much is brought into memory at once, at least if there is that much."""
BLOCKED_MAX: Final = 4 * PAGE_RECORDS
"""Records that wait for another one of their ordering key before no more are read."""
BLOCKED_BYTES_MAX: Final = 4 * PAGE_BYTES
_SECOND: Final = 1e9


class Loaded(NamedTuple):
    """A record in memory. No record has a counter between `since` and its own."""

    counter: int
    since: int
    time: int
    payload: bytes
    attributes: Attributes | None

    @property
    def headers(self) -> bytes | None:
        return self.attributes.headers if self.attributes else None

    @property
    def ordering_key(self) -> bytes | None:
        return (self.attributes.ordering_key or None) if self.attributes else None


class Reading(Generic[T]):
    """What the members of one cursor share."""

    head = lease_limit = 0
    """A lease of a cursor has no window: see `Leasing`."""

    def __init__(self, queue: Queue[T], committer: Committer, hold: CursorHold) -> None:
        self.queue = queue
        self.committer = committer
        self.hold = hold
        self.line = _PositionLine(self)
        self._ahead: deque[Loaded] = deque()
        self._returned: list[Loaded] = []
        self._blocked: dict[bytes, deque[Loaded]] = {}
        self._blocked_count = self._blocked_bytes = 0
        self.busy: set[bytes] = set()
        """Ordering keys of which a record is leased."""
        self.out: dict[int, Loaded] = {}
        """What is leased."""
        self.handed: list[Loaded] = []
        """What was taken last: done once somebody takes again, or commits."""
        self.on_moved: Callable[[], None] = _nothing
        """Called when the cursor was moved: no lease holds any more."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ending = 0
        """How many of them do not wait for new records."""
        self._more = True
        """Perhaps there is more to read."""
        self._page: _Page | None = None
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
        self._ahead.clear()
        self._returned.clear()
        self._blocked.clear()
        self._blocked_count = self._blocked_bytes = 0
        self.busy.clear()
        self.out.clear()
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
            if (may is None or may()) and self._next() is not None:
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
        record = self._next()
        assert record is not None
        try:
            item = self.queue.codec.decode(record.payload)
        except SchemaMismatch:
            wake_one(self._waiting)
            raise
        self._pop()
        return record, item

    def following_bytes(self) -> int | None:
        """The size of the next record in memory, or None if there is none."""
        record = self._next()
        return None if record is None else len(record.payload)

    def _next(self) -> Loaded | None:
        """The next record in memory whose ordering key is free; it stays where it is."""
        while True:
            source = self._source()
            if source is None:
                return None
            record = source[0]
            key = record.ordering_key
            if key is None or key not in self.busy:
                return record
            self._pop()
            self._blocked.setdefault(key, deque()).append(record)
            self._blocked_count += 1
            self._blocked_bytes += len(record.payload)

    def _source(self) -> list[Loaded] | deque[Loaded] | None:
        """Where the lowest counter is."""
        ahead, returned = self._ahead, self._returned
        if returned and (not ahead or returned[0].counter < ahead[0].counter):
            return returned
        return ahead or None

    def _pop(self) -> None:
        if self._source() is self._returned:
            heappop(self._returned)
        else:
            self._ahead.popleft()

    def pass_on(self) -> None:
        """One wake-up stands for all there is: let the next member look."""
        if self._waiting and self._next() is not None:
            wake_one(self._waiting)
        elif self._ending and not (self._page or self._more):
            wake_all(self._waiting)

    def lease_out(self, record: Loaded) -> None:
        self.out[record.counter] = record
        if record.ordering_key is not None:
            self.busy.add(record.ordering_key)

    def give_back(self, counter: int) -> None:
        """What was leased is at its place again."""
        record = self.out.pop(counter)
        if record.ordering_key is not None:
            self.busy.discard(record.ordering_key)
        heappush(self._returned, record)
        self.pass_on()

    def finish(self, counter: int) -> None:
        """What was leased is done."""
        record = self.out.pop(counter)
        self.done.add(record.since, record.counter)
        key = record.ordering_key
        if key is not None:
            self.busy.discard(key)
            blocked = self._blocked.get(key)
            if blocked:
                freed = blocked.popleft()
                self._blocked_count -= 1
                self._blocked_bytes -= len(freed.payload)
                heappush(self._returned, freed)
            if not blocked:
                self._blocked.pop(key, None)
        self.pass_on()

    def take_back(self, records: list[Loaded]) -> None:
        """What was taken reached nobody: it is at its place again, unless it counts already."""
        for record in records:
            if record in self.handed:
                self.handed.remove(record)
                heappush(self._returned, record)
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
        if (
            self._page is None
            and self._more
            and len(self._ahead) <= PAGE_RECORDS // 4
            and self._blocked_count < BLOCKED_MAX
            and self._blocked_bytes < BLOCKED_BYTES_MAX
        ):
            self._more = False
            self._page = _Page(self)
            self.committer.run_call(self._page)

    def filled(self, page: _Page, error: BaseException | None) -> None:
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
                self._ahead.append(record)
            self._since = counter + 1
        if page.records and not self._ahead:
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
        counters = [*self.out]
        counters += [record.counter for record in self.handed[:1] if handed]
        counters += [source[0].counter for source in self._in_memory() if source]
        return min(counters, default=self.hold.there)

    def _in_memory(self) -> Iterator[list[Loaded] | deque[Loaded]]:
        yield self._ahead
        yield self._returned
        yield from self._blocked.values()

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
            waiter.future.add_done_callback(_forget)
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


class _PositionLine(Line):
    """What a commit holds of a cursor: its position, as it is when the frame is sealed."""

    __slots__ = ("_reading", "_sealing", "due")

    def __init__(self, reading: Reading[Any]) -> None:
        super().__init__(reading.name, next_counter=1, floor=0, size=0, last_put_time=0)
        # Whoever waits for it waits for something that needs space.
        self.tail_first = 0
        self._reading = reading
        self._sealing: CursorPosition | None = None
        self.due = False

    @property
    def dirty(self) -> bool:
        return self.due

    @property
    def waits(self) -> bool:
        return self.due

    @property
    def idle(self) -> bool:
        """Whether what was committed last is all there is."""
        return not self.due and self.sealed is None

    def seal(self, *, puts: bool = True) -> Batch:
        assert self.sealed is None
        self.sealed = batch = Batch()
        if puts and self.due and not self._reading.deleted:
            self.due = False
            self._sealing = position = self._reading.position()
            batch.marks = {0: (self._reading.hold.state, encode_position(position))}
        return batch

    def confirm(self) -> None:
        self.sealed = None
        position, self._sealing = self._sealing, None
        if position is not None:
            self._reading.committed(position)

    def unseal(self) -> None:
        self.due |= self._sealing is not None
        self.sealed = self._sealing = None


class _Page(Call):
    """Reads the next records of a cursor, a bounded step."""

    def __init__(self, reading: Reading[Any]) -> None:
        super().__init__(self._read, reading.committer.loop.create_future())
        self.future.add_done_callback(_forget)
        self._reading = reading
        self.records: list[tuple[int, int, bytes, Attributes | None]] = []
        self.more = False

    def _read(self, log: Log) -> None:
        hold = self._reading.hold
        check_there(log, hold)
        size = 0
        try:
            for block in log.read(hold.queue, hold.reads_at, removed=True):
                self.records += _rows(block)
                size += int(block.offsets[-1] - block.offsets[0])
                if size >= PAGE_BYTES or len(self.records) >= PAGE_RECORDS:
                    self.more = True
                    hold.read_from(log, block.last + 1)
                    return
        except CorruptionError:
            if not self.records:
                raise
            # First what is before the damage.
            self.more = True
            hold.read_from(log, self.records[-1][0] + 1)
            return
        queue = log.state.queues.get(hold.queue)
        if queue is not None:
            hold.read_from(log, max(hold.reads_at, queue.genesis.next_counter))

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        super().settle(committer, outcome, error)
        self._reading.filled(self, error)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._reading.filled(self, error)


def check_there(log: Log, hold: CursorHold) -> None:
    """RangeGone if the record that comes next was reclaimed."""
    hold.look(log)
    queue = log.state.queues.get(hold.queue)
    if hold.there is None or queue is None:
        return
    oldest = first_from(log, hold.queue, hold.reads_at) or queue.genesis.next_counter
    if oldest > hold.there:
        raise RangeGone(
            hold.queue,
            hold.there,
            oldest,
            f"queue {hold.queue!r}: records {hold.there} to {oldest - 1} were reclaimed before "
            f"cursor {hold.name!r} came to them, since it held more than cursor_cap_bytes. It was "
            f"not moved. Go on with what is there: seek(counter={oldest}).",
        )


def _rows(block: RecordBlock) -> Iterator[tuple[int, int, bytes, Attributes | None]]:
    attributes = dict(attributes_in(block))
    for counter, put_at, payload in zip(
        block.counters(), block.times(), block.payloads(), strict=True
    ):
        yield counter, put_at, payload, attributes.get(counter)


def _forget(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it."""
    if not future.cancelled():
        future.exception()


def _nothing() -> None:
    pass
