"""The queue for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack

from fifoq import queue as _queue
from fifoq.attributes import PutKeywords, RecordKeywords, check_timeout
from fifoq.browse import Record
from fifoq.cursor import Start
from fifoq.errors import QueueClosed, nothing_came
from fifoq.keys import Keys
from fifoq.keywords import QueueKeywords
from fifoq.loopthread import LoopThread
from fifoq.options import Durability
from fifoq.recurring import Schedule
from fifoq.runs import Returned
from fifoq.stats import QueueStats
from fifoq.sync.cursor import Cursor
from fifoq.sync.delivery import Delivery, give_all_back, give_back
from store import Key

if TYPE_CHECKING:
    from fifoq.sync.store import Store

R = TypeVar("R")
T = TypeVar("T")

BROWSE_RECORDS: Final = 256
"""How many records `browse` fetches at once."""


class Queue(Generic[T]):
    """A durable FIFO queue for any number of threads. Made by `open` or `Store.queue`.

    What `fifoq.Queue` says of its calls holds for these. Calls wait, without a limit if they have
    no `timeout`; QueueClosed ends them when another thread closes the store.
    """

    def __init__(
        self, thread: LoopThread, queue: _queue.Queue[T], owner: Store | None = None
    ) -> None:
        self.name = queue.name
        self._thread = thread
        self._queue = queue
        # The store, if closing the queue closes it.
        self._owner = owner

    def __repr__(self) -> str:
        return f"<sync.{repr(self._queue)[1:]}"

    def _look(self, function: Callable[[], R]) -> R:
        """What the queue says of itself; of a closed one, what it said last."""
        if self._thread.of_another_process or not self._thread.stopping:
            with suppress(QueueClosed):
                return self._thread.call(function)
        return function()

    # Putting.

    def put(self, item: T, **options: Unpack[PutKeywords]) -> Key:
        """Put one record; returns its key once it is committed at the queue's durability."""
        return self._thread.run(lambda: self._queue.put(item, **options))

    def put_nowait(self, item: T, **options: Unpack[PutKeywords]) -> Key:
        """Put one record in memory; returns its key. QueueFull if there is no room."""
        return self._thread.call(lambda: self._queue.put_nowait(item, **options))

    def put_many(
        self,
        items: Iterable[T],
        *,
        durability: Durability | None = None,
        dedup_ids: Sequence[str | None] | None = None,
        **keywords: Unpack[RecordKeywords],
    ) -> Keys:
        """Put records in one commit, all or nothing; returns their keys, a lazy sequence."""
        # Here, so that an iterator of the caller's runs on the caller's thread.
        listed = items if isinstance(items, bytes | bytearray | memoryview | str) else list(items)
        return self._thread.run(
            lambda: self._queue.put_many(
                listed, durability=durability, dedup_ids=dedup_ids, **keywords
            )
        )

    # Recurring.

    def schedule(self, name: str, item: T, **options: Any) -> Schedule:
        """Put the item again and again, by `every` or `cron`; kept on return. As `Queue.schedule`.

        The store's thread fires it: nobody has to wait in a call meanwhile.
        """
        return self._thread.run(lambda: self._queue.schedule(name, item, **options))

    def schedules(self) -> list[Schedule]:
        """The schedules of this queue, by name."""
        return self._look(self._queue.schedules)

    def unschedule(self, name: str) -> bool:
        """Forget a schedule, durable on return; False if there is none. Its records stay."""
        return self._thread.run(lambda: self._queue.unschedule(name))

    # Taking.

    def take(self, *, timeout: float | None = None) -> T:
        """Remove the oldest record and return it; its removal is committed by then.

        After `timeout` seconds TimeoutError, and the record is in the queue at its place. So it is
        after an interrupt.
        """

        if timeout is not None:
            check_timeout(timeout, "Nothing was taken.")

        async def take() -> list[Returned]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._queue.take_records(1)
            except TimeoutError:
                raise nothing_came(self.name, timeout) from None

        return self._decoded(self._thread.run(take, self._queue.restore))[0]

    def take_nowait(self) -> T:
        """Remove the oldest record in memory and return it. QueueEmpty if none is ready there."""
        record = self._thread.call(lambda: [self._queue.take_record_nowait()], self._queue.restore)
        return self._decoded(record)[0]

    def take_many(self, count: int, *, max_bytes: int | None = None) -> list[T]:
        """Remove 1 to `count` records in one commit, more than one only up to `max_bytes`."""
        records = self._thread.run(
            lambda: self._queue.take_records(count, max_bytes), self._queue.restore
        )
        return self._decoded(records)

    def _decoded(self, records: list[Returned]) -> list[T]:
        return self._queue.codec.decode_many([record.payload for record in records])

    def lease(
        self,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        auto_extend: bool = True,
    ) -> Delivery[T]:
        """Hand out the oldest record until it is acked, or goes back after `seconds`; waits for it.

        Use the delivery with `with`: acked on exit, given back on an exception, and extended while
        the block runs, unless `auto_extend` is False.
        """
        leasing = self._queue.lease(seconds=seconds, timeout=timeout, auto_extend=auto_extend)
        return Delivery(self._thread, leasing, self._thread.run(leasing.start, give_back))

    def lease_many(
        self,
        count: int,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
    ) -> list[Delivery[T]]:
        """Hand out 1 to `count` records at once; waits for the first. Each is acked by itself."""
        leasing = self._queue.lease_many(
            count, seconds=seconds, timeout=timeout, max_bytes=max_bytes
        )
        deliveries = self._thread.run(leasing.start, give_all_back)
        alone = self._queue.lease(seconds=seconds)
        return [Delivery(self._thread, alone.of(delivery), delivery) for delivery in deliveries]

    def ack_many(self, deliveries: Iterable[Delivery[T]]) -> int:
        """Ack deliveries of this queue in one commit; returns how many were not acked before."""
        # What is none of ours is for the queue to refuse.
        leased: list[Any] = [getattr(each, "_delivery", each) for each in deliveries]
        return self._thread.run(lambda: self._queue.ack_many(leased))

    def remove_upto(self, counter: int) -> int:
        """Remove every record whose counter is not above `counter`; returns how many there were."""
        return self._thread.run(lambda: self._queue.remove_upto(counter))

    def cancel(self, key: Key) -> bool:
        """Remove a record that still waits for its `delay`; False if it does not any more."""
        return self._thread.run(lambda: self._queue.cancel(key))

    def cursor(self, name: str, start: Start = "earliest", **options: Any) -> Cursor[T]:
        """The cursor of that name; made if there is none. As `fifoq.Queue.cursor`."""
        opened = self._thread.run(lambda: self._queue.cursor(name, start, **options))
        return Cursor(self._thread, opened)

    def cursors(self) -> list[str]:
        """Names of the queue's cursors, in order."""
        return self._thread.call(self._queue.cursors)

    def __iter__(self) -> Iterator[T]:
        """Take one record after the other, until the queue is closed, or shut down and empty."""
        while True:
            try:
                item = self.take()
            except QueueClosed:
                return
            yield item

    # Looking.

    def peek(self) -> T | None:
        """The oldest record, or None; nothing changes."""
        return self._thread.run(self._queue.peek)

    def browse(self, start: int = 1) -> Iterator[Record[T]]:
        """Records from counter `start` on that are not removed, in order; nothing changes."""
        records = self._queue.browse(start)

        async def fetch() -> list[Record[T]]:
            fetched = []
            async for record in records:
                fetched.append(record)
                if len(fetched) == BROWSE_RECORDS:
                    break
            return fetched

        while page := self._thread.run(fetch):
            yield from page

    def __len__(self) -> int:
        """Records that are there: ready, leased and delayed."""
        return self._look(self._queue.__len__)

    def size(self) -> int:
        """The same as `len`."""
        return len(self)

    def empty(self) -> bool:
        return not len(self)

    def stats(self) -> QueueStats:
        """A snapshot."""
        return self._look(self._queue.stats)

    @property
    def closed(self) -> bool:
        return self._thread.stopping

    @property
    def durability(self) -> Durability:
        return self._queue.durability

    # The rest.

    def flush(self) -> None:
        """Make everything put, taken and acked so far durable."""
        self._thread.run(self._queue.flush)

    def configure(self, **changes: Unpack[QueueKeywords]) -> None:
        """Change options of the running queue. TypeError, ValueError: nothing was changed."""
        self._thread.call(lambda: self._queue.configure(**changes))

    def reset_marks(self) -> None:
        """Let the water marks start again from the size of now."""
        self._thread.call(self._queue.reset_marks)

    def below_pressure(self) -> None:
        """Return once the queue is not under pressure (at once if it never is)."""
        self._thread.run(self._queue.below_pressure)

    def shutdown(self, *, immediate: bool = False) -> None:
        """Take no more puts; takes go on until the queue is empty, with `immediate` not at all."""
        self._thread.call(lambda: self._queue.shutdown(immediate=immediate))

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable and close the store if this queue opened it. Twice is fine."""
        if self._owner is not None:
            self._owner.close(timeout)

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._owner is not None:
            self._owner.__exit__(kind, error, trace)
