"""The queue: `await put`, `await take`, and what stands around them.

A put appends to the queue's line and a take claims from it in the caller's own step; what waits
for the disk waits for one commit that all callers of the store share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from fifoq.attributes import RecordKeywords, check_count, check_seconds, check_timeout
from fifoq.browse import Record, browse
from fifoq.codec import Codec
from fifoq.committer import Committer
from fifoq.consumers import id_text
from fifoq.cursor import Cursor, Start, open_cursor
from fifoq.delivery import Delivery, Leasing, LeasingMany
from fifoq.errors import QueueClosed, close_failed
from fifoq.keywords import QueueKeywords
from fifoq.lease import Leases
from fifoq.member import AT_ONCE, DRAINING
from fifoq.options import QueueOptions
from fifoq.picking import Picking
from fifoq.putting import Putting
from fifoq.recurring import CatchUp, Schedule
from fifoq.removing import Removing
from fifoq.stats import QueueStats, collect, watch
from fifoq.taking import TAKE_MANY_MAX, Taking
from fifoq.turns import wake_all
from store import FifoqError, Log
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.asyncio_queue import AsyncioQueue

T = TypeVar("T")


class Queue(Putting[T], Taking[T], Removing[T], Picking[T]):
    """A durable FIFO queue of one store, for the event loop that opened it.

    Made by `fifoq.open` or `Store.queue`. Any number of tasks may put and take.
    """

    __slots__ = ()

    def __init__(
        self, committer: Committer, state: QueueState, options: QueueOptions, codec: Codec[T]
    ) -> None:
        super().__init__(committer, state, options, codec)
        self.leasing = Leases(self, committer, dict(state.attempts))
        self.use(options)

    async def flush(self) -> None:
        """Make everything put, taken and acked so far durable."""
        self._committer.require_usable()
        await self._committer.flush()

    def lease(
        self,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        auto_extend: bool = True,
    ) -> Leasing[T]:
        """Hand out the oldest record until it is acked, or goes back after `seconds`.

        Await it for a Delivery, or use it with `async with`: acked on exit, given back on an
        exception, and extended while the block runs. One that is awaited is not extended: ask for
        enough `seconds`, or call its `extend`.
        """
        if seconds is not None:
            check_seconds("seconds", seconds, "Nothing was leased.", above=True)
        if timeout is not None:
            check_timeout(timeout, "Nothing was leased.")
        return Leasing(self, seconds, timeout, auto_extend)

    def lease_many(
        self,
        count: int,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        auto_extend: bool = True,
    ) -> LeasingMany[T]:
        """The same for 1 to `count` records at once, more than one only up to `max_bytes`.

        Await it for a list of deliveries, or use it with `async with`: those that are still leased
        at its end are acked in one commit, or given back on an exception.
        """
        check_count(count, "Nothing was leased.")
        if max_bytes is not None and not isinstance(max_bytes, int):
            raise TypeError(f"max_bytes={max_bytes!r} is not a whole number. Nothing was leased.")
        if seconds is not None:
            check_seconds("seconds", seconds, "Nothing was leased.", above=True)
        if timeout is not None:
            check_timeout(timeout, "Nothing was leased.")
        return LeasingMany(
            self, min(count, TAKE_MANY_MAX), seconds, timeout, max_bytes, auto_extend
        )

    async def ack_many(self, deliveries: Sequence[Delivery[T]]) -> int:
        """Ack deliveries of this queue in one commit; returns how many were not acked before.

        StaleLease if one of the leases has ended: nothing was changed.
        """
        return await self.leasing.ack_many(deliveries)

    def browse(self, start: int = 1) -> AsyncIterator[Record[T]]:
        """Records from counter `start` on that are not removed, in order; nothing changes.

        What is in memory alone is written first.
        """
        return browse(self, self._committer, self.codec, start)

    async def schedule(
        self,
        name: str,
        item: T,
        *,
        every: float | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: bool | None = None,
        **options: Unpack[RecordKeywords],
    ) -> Schedule:
        """Put `item` every so many seconds, or whenever a cron line comes due; kept on return.

        Keywords: those of `put`, but `durability`: each firing is one synced commit. A schedule of
        that name is replaced; with the same times it goes on as it was. While the record of the
        last firing is still in the queue the next one is passed over, unless `overlap`. What came
        due while the store was closed is made up for by one record, by none ("skip") or by one
        each ("all"). Limits of the queue do not hold it up. ValueError names what makes no sense;
        nothing was changed then. Cancelled, it is kept or not.
        """
        payload = self.check_schedule(item, **options)
        return await self._committer.schedules.add(
            self.name,
            name,
            payload,
            {**options},
            every=every,
            cron=cron,
            zone=zone,
            catch_up=catch_up,
            overlap=overlap,
        )

    def schedules(self) -> list[Schedule]:
        """The schedules of this queue, by name."""
        return self._committer.schedules.of(self.name)

    async def unschedule(self, name: str) -> bool:
        """Forget a schedule, durable on return; False if there is none. Its records stay."""
        return await self._committer.schedules.drop(self.name, name)

    async def cursor(
        self, name: str, start: Start = "earliest", *, auto_commit: float | None = None
    ) -> Cursor[T]:
        """The cursor of that name, the same object each time; made if there is none.

        A new one starts at the oldest record that is retained ("earliest"), behind the newest
        ("latest"), at a counter, or at the first record put at a datetime or later, and is
        committed on return. One that is there stays where it is. With `auto_commit` what was taken
        is committed by itself after so many seconds.

        InvalidName, TypeError, ValueError; RangeGone for a counter that is gone: nothing was made.
        """
        return await open_cursor(self, self._committer, name, start, auto_commit)

    def cursors(self) -> list[str]:
        """Names of the queue's cursors, in order, whether anybody reads with them or not."""
        self._committer.require_usable()
        known = list(self._committer.consumers.cursors)
        return sorted(name for queue, name in known if queue == self.name)

    def size(self) -> int:
        """The same as `len`."""
        return len(self)

    def empty(self) -> bool:
        return not len(self)

    @property
    def store_id(self) -> str:
        """The store's own id, as hexadecimal text."""
        log = self._committer.log
        assert log is not None
        return id_text(log.store_id)

    @property
    def removed_upto(self) -> int:
        """Every counter up to here is removed, and that is committed or being written."""
        return self._state.genesis.floor

    async def show_readers(self) -> None:
        """Let readers of other processes see, from their next look on, all that was put so far."""
        await self.flush()
        await self._committer.call(Log.seal)

    def counts(self) -> tuple[int, int, int]:
        """Records ever put and ever taken, and when the last one was taken."""
        given = self.next - self.totals.next_counter - self.withdrawn_count
        put = self.totals.total_put_count + given - (self._depth() - self.arriving - len(self))
        taken = put - len(self) - self._lost
        return put, taken, max(self.taken_time, self._state.genesis.last_take_time)

    def stats(self) -> QueueStats:
        """A snapshot; cheap enough to poll a thousand times a second."""
        self.look(time.time_ns())
        self.close_run()
        # Whoever asks must not be told of a pressure that has gone: it may be why nobody puts.
        self._under_pressure()
        return collect(self, self._committer)

    def watch(self, interval: float = 1.0) -> AsyncIterator[QueueStats]:
        """Snapshots, one every `interval` seconds, until the queue is closed."""
        return watch(self, interval)

    async def until_closed(self, seconds: float) -> None:
        """Wait that long, or until the store is being closed."""
        future = self._committer.loop.create_future()
        timer = self._committer.loop.call_later(seconds, _end, future)
        self._committer.closing_waiters.append(future)
        try:
            await future
        finally:
            timer.cancel()
            self._committer.closing_waiters.remove(future)

    def reset_marks(self) -> None:
        """Let the water marks start again from the size of now."""
        now = time.time_ns()
        self.look(now)
        if self.high is not None:
            self.high = self.low = len(self)
            self.high_time = self.low_time = now

    def configure(self, **changes: Unpack[QueueKeywords]) -> None:
        """Change options of the running queue; all but `durability` are kept with the next commit.

        TypeError for an unknown name, ValueError for wrong settings: then nothing was changed.
        """
        self._committer.require_usable()
        options = self.options.changed(dict(changes))
        if options.priorities != self.options.priorities:
            raise ValueError(
                f"queue {self.name!r}: priorities can be changed only while it is being opened. "
                f"Nothing was changed. Close the store, and open the queue with the option."
            )
        self.look(time.time_ns())
        self.use(options)
        self.configuration = self.codec.configuration(options)
        self._committer.touch(self, 0)
        self.records_went()
        self._wake_putters()

    def shutdown(self, *, immediate: bool = False) -> None:
        """Take no more puts; takes go on until the queue is empty, with `immediate` not at all.

        What is in the queue stays there for the next open. WrongLoop: another thread called.
        """
        self._committer.require_no_other()
        self.close_windows()
        self._shutdown = max(self._shutdown, AT_ONCE if immediate else DRAINING)
        self._wake_putters()
        wake_all(self._takers)

    def as_asyncio(self) -> AsyncioQueue[T]:
        """This queue with the interface and the exceptions of `asyncio.Queue`."""
        from fifoq.asyncio_queue import AsyncioQueue

        if self._asyncio is None:
            self._asyncio = AsyncioQueue(self)
        return self._asyncio

    async def close(self, timeout: float | None = None) -> None:
        """Make everything durable and close the store if this queue opened it. Twice is fine."""
        if self.owner is not None:
            await self.owner.close(timeout)

    async def __aenter__(self) -> Queue[T]:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except FifoqError as failure:
            close_failed(failure, error)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _items(self) -> AsyncIterator[T]:
        while True:
            try:
                item = await self.take()
            except QueueClosed:
                return
            yield item


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
