"""Cursors: named, durable reading positions over a queue, which remove nothing.

A cursor sees every record that is retained, taken or not, in order of counter, and what it has not
passed is kept for it. Its position is a state of the log, and is committed as everything else is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from fifoq.attributes import check_seconds, check_timeout
from fifoq.browse import Record
from fifoq.codec import decode_headers
from fifoq.consumers import check_consumer_name
from fifoq.cursor_lease import CursorLeases
from fifoq.cursor_position import CursorPosition, encode_position, state_name
from fifoq.cursor_records import Loaded
from fifoq.delivery import Leasing
from fifoq.errors import QueueClosed, SchemaMismatch
from fifoq.holding import Consumers, CursorHold
from fifoq.jobs import Call
from fifoq.options import SYNC
from fifoq.reading import Reading
from fifoq.retained import first_from, next_from
from fifoq.taking import TAKE_MANY_MAX
from store import Key, Log, RangeGone
from store.options import wrong_number

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

Start = Literal["earliest", "latest"] | int | datetime
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Lag(msgspec.Struct, frozen=True):
    """How far a cursor is behind: records that it has not done, and the age of the oldest."""

    records: int
    seconds: float


class Cursor(Generic[T]):
    """A reading position that has a name; made by `Queue.cursor`. Any number of tasks may share it.

    `take` and `commit` are for one task that reads: the position is what was committed last.
    `lease` is for several: each record goes to one of them, and is done when that one acks it.
    """

    def __init__(self, queue: Queue[T], committer: Committer, hold: CursorHold) -> None:
        self.name = hold.name
        self.auto_commit: float | None = None
        """Seconds after which what was taken is committed by itself, or None."""
        self._committer = committer
        self._reading = Reading(queue, committer, hold)
        self.leasing = CursorLeases(self._reading)
        self._reading.leasing = self.leasing
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "deleted" if self._reading.deleted else "closed" if self.closed else "open"
        return f"<Cursor {self.name!r} of {self._reading.name!r} at {self.position} {state}>"

    @property
    def position(self) -> int:
        """Every record below this counter is done, whether that is committed or not."""
        return self._reading.done.counter

    @property
    def committed(self) -> int:
        """The same as the log has it: where the cursor is after a crash."""
        return self._reading.hold.position.counter

    @property
    def closed(self) -> bool:
        return self._committer.closed

    # Taking.

    async def take(self, *, timeout: float | None = None) -> T:
        """The next record's item; waits for one.

        It counts as done once the next take begins or `commit` is called: until that is committed
        it is handed out again after a crash. Cancelled, or after `timeout` seconds (TimeoutError),
        nothing was taken. RangeGone says what was reclaimed before the cursor came to it.
        """
        ((_, item),) = await self.take_records(1, None, timeout)
        return item

    async def take_many(
        self, count: int, *, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[T]:
        """The next 1 to `count` items, more than one only up to `max_bytes`; waits for the first.

        What holds for `take` holds for all of them together.
        """
        return [item for _, item in await self.take_records(count, max_bytes, timeout)]

    async def records(self, *, wait: bool = True) -> AsyncIterator[Record[T]]:
        """Records with their keys and headers, as `take` gives them, until the store is closed.

        Without `wait` it ends when everything that was committed has been handed out.
        """
        while True:
            try:
                taken = await self.take_records(1, for_new=wait)
            except QueueClosed:
                return
            if not taken:
                return
            ((record, item),) = taken
            headers = decode_headers(record.headers)
            yield Record(Key(record.counter, record.time), item, headers)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _items(self) -> AsyncIterator[T]:
        async for record in self.records():
            yield record.item

    async def take_records(
        self,
        count: int,
        max_bytes: int | None = None,
        timeout: float | None = None,
        *,
        for_new: bool = True,
    ) -> list[tuple[Loaded, T]]:
        """The same as `take_many`, for one who may have to take them back."""
        _refuse(wrong_number("count", count, 1))
        _refuse(wrong_number("max_bytes", max_bytes, 0, optional=True))
        if timeout is not None:
            check_timeout(timeout, "Nothing was taken.")
        reading = self._reading
        reading.require_usable()
        if reading.count_handed():
            self._commit_in_time()
        if timeout is not None:
            await self._wait_for(timeout)
        elif not await reading.wait(for_new=for_new):
            return []
        taken = [reading.claim()]
        size = len(taken[0][0].payload)
        for _ in range(min(count, TAKE_MANY_MAX) - 1):
            following = reading.following_bytes()
            if following is None or (max_bytes is not None and size + following > max_bytes):
                break
            try:
                taken.append(reading.claim())
            except SchemaMismatch:
                # For whoever takes next, and comes to it first.
                break
            size += following
        reading.handed += [record for record, _ in taken]
        reading.pass_on()
        return taken

    async def _wait_for(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._reading.wait()
        except TimeoutError:
            raise TimeoutError(
                f"cursor {self.name!r}: nothing to take in {timeout} s. Nothing was taken."
            ) from None

    async def take_back(self, taken: list[tuple[Loaded, T]]) -> None:
        """What was taken reached nobody: it is at its place again, unless it counts already."""
        self._reading.take_back([record for record, _ in taken])

    def lease(
        self,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        auto_extend: bool = True,
    ) -> Leasing[T]:
        """Hand the next record to one member of those that share the cursor.

        As `Queue.lease`, but `ack` moves the cursor and removes nothing. The record comes back to
        its place, for another member, when the lease ends, when it is nacked, and at once when the
        task ends that leased it, unless the delivery is what it returned.
        """
        if seconds is not None:
            check_seconds("seconds", seconds, "Nothing was leased.", above=True)
        if timeout is not None:
            check_timeout(timeout, "Nothing was leased.")
        return Leasing(cast("Queue[T]", self._reading), seconds, timeout, auto_extend)

    # The position.

    async def commit(self) -> None:
        """Make it durable, at the queue's durability, that everything taken so far is done.

        Cancelled, it is committed or not, and may be repeated. DiskFull: it is written once there
        is space.
        """
        reading = self._reading
        reading.require_usable()
        reading.count_handed()
        await reading.commit()

    async def seek(
        self, *, counter: int | None = None, timestamp: datetime | int | None = None
    ) -> int:
        """Go on at a counter, or at the first record put at a time or later; returns where.

        On return that is committed at the queue's durability. A timestamp is a datetime with a
        time zone, or nanoseconds since the epoch. What is leased comes back to nobody: `ack`
        raises StaleLease. RangeGone if the counter is older than all that is retained, ValueError
        if it, or the time, is beyond the end: then nothing was changed. A counter that no record
        has, or whose record was reclaimed behind the cursor, leads to the next one that is there.
        Cancelled, it is done or not, as a whole.
        """
        self._reading.require_usable()
        if (counter is None) == (timestamp is None):
            raise TypeError("seek takes either a counter or a timestamp. Nothing was changed.")
        target = _target(counter if timestamp is None else timestamp, moment=timestamp is not None)
        move = _Move(self._reading, target)
        return cast(int, await self._committer.run_call(move))

    async def lag(self) -> Lag:
        """How many retained records are not done, and how long the oldest has been there.

        A put that was cancelled leaves a counter that no record has; some of those may count too.
        """
        return Lag(*await self._reading.lag())

    async def delete(self) -> None:
        """Forget the cursor for good: it holds nothing any more. Members that wait are told."""
        self._reading.require_usable()
        await self._committer.run_call(_Delete(self._reading, self._committer))

    # Committing by itself.

    def use(self, auto_commit: float | None) -> None:
        """Commit what was taken after so many seconds."""
        _refuse(wrong_number("auto_commit", auto_commit, 0.001, whole=False, optional=True))
        self.auto_commit = auto_commit

    def _commit_in_time(self) -> None:
        if self.auto_commit is not None and self._timer is None:
            loop = self._committer.loop
            self._timer = loop.call_later(self.auto_commit, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._committer.usable and not self._committer.closing:
            self._reading.commit_later()

    # As a follower.

    def records_came(self) -> None:
        self._reading.records_came()

    def store_closed(self) -> None:
        """Commit what is counted, if that is done by itself, and let nobody wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if self._committer.usable:
                self._reading.commit_later()
        self.leasing.stop()
        self._reading.store_closed()


async def open_cursor(
    queue: Queue[T], committer: Committer, name: str, start: Start, auto_commit: float | None
) -> Cursor[T]:
    """See Queue.cursor."""
    committer.require_usable()
    check_consumer_name(name, "cursor")
    _refuse(wrong_number("auto_commit", auto_commit, 0.001, whole=False, optional=True))
    target = _target(start, moment=isinstance(start, datetime))
    level = queue.level

    def find(log: Log) -> CursorHold:
        consumers = committer.consumers
        hold = consumers.cursors.get((queue.name, name))
        if hold is None:
            counter = target.counter(log, queue.name)
            hold = CursorHold(queue.name, name, CursorPosition(counter))
            _place(log, consumers, hold, counter, sync=level == SYNC)
        return hold

    hold = cast(CursorHold, await committer.call(find))
    followers = committer.followers.setdefault(queue.name, [])
    for follower in followers:
        if isinstance(follower, Cursor) and follower._reading.hold is hold:
            break
    else:
        follower = Cursor(queue, committer, hold)
        followers.append(follower)
    if auto_commit is not None:
        follower.use(auto_commit)
    return follower


class _Target(msgspec.Struct, frozen=True):
    """Where to go: to one of the ends, to a counter, or to a time."""

    end: str = ""
    number: int = 0
    time: int | None = None

    def counter(self, log: Log, queue: str) -> int:
        """The counter that is meant now. RangeGone and ValueError for one that is not there."""
        state = log.queue(queue)
        following = state.genesis.next_counter
        oldest = first_from(log, queue, 1) or following
        if self.end:
            return oldest if self.end == "earliest" else following
        if self.time is not None:
            # After the clock was set back, records may be later than now.
            if self.time > max(time.time_ns(), state.genesis.last_put_time):
                raise ValueError(
                    f"timestamp {self.time} is in the future. Nothing was changed. "
                    f"The end of the queue is counter {following}."
                )
            return log.seek(queue, self.time)
        if self.number > following:
            raise ValueError(
                f"counter {self.number} is beyond the end of queue {queue!r}, which is "
                f"{following}. Nothing was changed."
            )
        if self.number < oldest:
            raise RangeGone(
                queue,
                self.number,
                oldest,
                f"queue {queue!r}: counter {self.number} is not there any more; the oldest that "
                f"is retained is {oldest}. Nothing was changed. Seek {oldest} or later.",
            )
        return next_from(log, queue, self.number)


def _target(start: object, *, moment: bool) -> _Target:
    if start in ("earliest", "latest"):
        return _Target(end=str(start))
    if isinstance(start, datetime):
        return _Target(time=_nanoseconds(start))
    if isinstance(start, bool) or not isinstance(start, int):
        raise TypeError(
            f"{start!r:.80} is no place in a queue: a counter, a datetime, or the start "
            f'"earliest" or "latest". Nothing was changed.'
        )
    if start < (0 if moment else 1):
        raise ValueError(f"{start} is before the beginning. Nothing was changed.")
    return _Target(time=start) if moment else _Target(number=start)


def _nanoseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError(
            f"{moment!r} has no time zone, so it is no moment. Nothing was changed. "
            f"Give one, for instance datetime.now(UTC)."
        )
    return max(0, (moment - _EPOCH) // timedelta(microseconds=1) * 1000)


def _place(log: Log, consumers: Consumers, hold: CursorHold, counter: int, *, sync: bool) -> None:
    """Put the cursor there, in the log and for the owner; if that fails, it is where it was."""
    key = hold.queue, hold.name
    known, before, at, there = key in consumers.cursors, hold.position, hold.reads_at, hold.there
    first = first_from(log, hold.queue, counter) or 0
    position = CursorPosition(counter, (), first, time.time_ns())
    # First for the owner, so that nothing of it goes while it is written.
    consumers.cursors[key] = hold
    hold.position = position
    hold.read_from(log, counter)
    try:
        consumers.look()
        draft = log.draft()
        draft.set_states([(hold.state, encode_position(position))])
        log.commit(draft, sync=sync)
    except BaseException:
        hold.position, hold.reads_at, hold.there = before, at, there
        if not known:
            del consumers.cursors[key]
        consumers.look()
        raise


class _Move(Call):
    """Puts the cursor somewhere else."""

    def __init__(self, reading: Reading[Any], target: _Target) -> None:
        super().__init__(self._move, reading.committer.loop.create_future())
        self._reading = reading
        self._target = target
        self._sync = reading.queue.level == SYNC

    def _move(self, log: Log) -> int:
        hold = self._reading.hold
        counter = self._target.counter(log, hold.queue)
        consumers = self._reading.committer.consumers
        _place(log, consumers, hold, counter, sync=self._sync)
        return counter

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if error is None:
            # Also when the caller has left: the log says so.
            self._reading.moved()
            committer.consumers.cursor_moved = True
            committer.watch_consumers()
        super().settle(committer, outcome, error)


class _Delete(Call):
    """Takes the cursor out of the log."""

    def __init__(self, reading: Reading[Any], committer: Committer) -> None:
        super().__init__(self._delete, committer.loop.create_future())
        self._reading = reading
        self._consumers = committer.consumers
        self._sync = reading.queue.level == SYNC

    def _delete(self, log: Log) -> None:
        hold = self._reading.hold
        draft = log.draft()
        draft.set_states([(state_name(hold.queue, hold.name), None)], drains=True)
        log.commit(draft, sync=self._sync)
        self._consumers.cursors.pop((hold.queue, hold.name), None)
        self._consumers.look()

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        reading = self._reading
        if error is None:
            reading.deleted = True
            reading.moved()
            followers = committer.followers.get(reading.name, [])
            followers[:] = [f for f in followers if getattr(f, "_reading", None) is not reading]
            if not followers:
                committer.followers.pop(reading.name, None)
            reading.store_closed()
            committer.consumers.cursor_moved = True
            committer.watch_consumers()
        super().settle(committer, outcome, error)


def _refuse(wrong: str | None) -> None:
    if wrong is not None:
        raise ValueError(f"{wrong}. Nothing was changed.")
