"""The same queues for blocking code and for any number of threads.

with fifoq.sync.open("data/orders") as q:
    q.put(b"hello")
    item = q.take(timeout=1.0)

Each open store has a thread of its own that runs its event loop (uvloop's, where it is installed).
One thread for all stores would be one less here and there, but a store that is slow or busy would
hold up the others, and nobody could say when that thread ends; this one ends with its store. All
calls may be made from any thread, also from one that runs an event loop of its own, which is
blocked meanwhile. Ctrl-C in a call that waits cancels it first: a record that was about to be taken
stays in the queue. A store that nobody closed is closed when the interpreter ends, so what was put
in memory is written then. The child of a fork must open its own: calls raise ForkError.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, Literal, TypeVar, Unpack, overload

from fifoq import delivery as _delivery
from fifoq import queue as _queue
from fifoq import store as _store
from fifoq import topic as _topic
from fifoq import transaction as _transaction
from fifoq.attributes import PutKeywords, RecordKeywords, check_timeout
from fifoq.browse import Record
from fifoq.compacting import Compacted
from fifoq.cursor import Start
from fifoq.errors import QueueClosed
from fifoq.explain import Explanation
from fifoq.keys import Keys
from fifoq.loopthread import LoopThread
from fifoq.options import Durability
from fifoq.recurring import Schedule
from fifoq.runs import Returned
from fifoq.stats import QueueStats
from fifoq.sync_cursor import Cursor
from fifoq.sync_dead_letters import DeadLetters
from fifoq.sync_readonly import ReadOnlyQueue, ReadOnlyStore
from fifoq.view import View
from store import Key, Quarantine
from store.opening import Recover

__all__ = [
    "Cursor",
    "DeadLetters",
    "Delivery",
    "Queue",
    "ReadOnlyQueue",
    "ReadOnlyStore",
    "Store",
    "Topic",
    "Transaction",
    "open",
    "open_store",
]

R = TypeVar("R")
T = TypeVar("T")

BROWSE_RECORDS: Final = 256
"""How many records `browse` fetches at once."""
EXIT_SECONDS: Final = 5.0
"""How long the end of the interpreter waits for stores that were not closed, all together."""

_open_stores: dict[Store, None] = {}


class Store:
    """An open store for any number of threads. Its queues share one log, one commit, one sync."""

    def __init__(self, thread: LoopThread, store: _store.Store) -> None:
        self.path = store.path
        self._thread = thread
        self._store = store
        self._queues: dict[str, Queue[Any]] = {}
        self._topics: dict[str, Topic[Any]] = {}
        _open_stores[self] = None

    def __repr__(self) -> str:
        return f"<sync.Store {self.path!r} {'closed' if self.closed else 'open'}>"

    @property
    def closed(self) -> bool:
        return self._thread.stopping

    @property
    def quarantine(self) -> Quarantine | None:
        """What `recover="quarantine"` set aside, if anything."""
        return self._store.quarantine

    @overload
    def queue(self, name: str = ..., *, type: type[T], **options: Any) -> Queue[T]: ...

    @overload
    def queue(self, name: str = ..., *, type: None = ..., **options: Any) -> Queue[bytes]: ...

    def queue(
        self, name: str = _store.DEFAULT_QUEUE, *, type: Any = None, **options: Any
    ) -> Queue[Any]:
        """Open a queue of this store; the same object for the same name. As `fifoq.Store.queue`."""
        opened = self._thread.run(lambda: self._store.queue(name, type=type, **options))
        return self._queues.setdefault(name, Queue(self._thread, opened))

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        return self._thread.call(self._store.queues)

    @overload
    def topic(
        self, name: str, *, partitions: int | None = ..., type: type[T], **options: Any
    ) -> Topic[T]: ...

    @overload
    def topic(
        self, name: str, *, partitions: int | None = ..., type: None = ..., **options: Any
    ) -> Topic[bytes]: ...

    def topic(
        self, name: str, *, partitions: int | None = None, type: Any = None, **options: Any
    ) -> Any:
        """Open a topic of this store; the same object for the same name. As `fifoq.Store.topic`."""
        opened: _topic.Topic[Any] = self._thread.run(
            lambda: self._store.topic(name, partitions=partitions, type=type, **options)
        )
        queues = [self.queue(opened.partition(at).name) for at in range(opened.partitions)]
        return self._topics.setdefault(name, Topic(self._thread, opened, queues))

    def dead_letters(self, name: str = _store.DEFAULT_QUEUE) -> DeadLetters:
        """The dead letters of a queue, to look at, replay or purge them."""
        return DeadLetters(self._thread, self._thread.run(lambda: self._store.dead_letters(name)))

    def transaction(self) -> Transaction:
        """Puts, leases and acks over queues of this store that are one frame, or nothing."""
        return Transaction(self._thread, self._store.transaction())

    def metrics(self) -> str:
        """Statistics for Prometheus. As `fifoq.Store.metrics`."""
        return self._thread.call(self._store.metrics)

    def explain(self, key: Key | int, *, queue: str = _store.DEFAULT_QUEUE) -> Explanation:
        """What became of a record, from the log alone. As `fifoq.Store.explain`."""
        return self._thread.run(lambda: self._store.explain(key, queue=queue))

    def flush(self) -> None:
        """Make everything that was put, taken and acked in any queue durable."""
        self._thread.run(self._store.flush)

    def compact(self) -> Compacted:
        """Give back the space of what is removed, all that can be. As `fifoq.Store.compact`."""
        return self._thread.run(self._store.compact)

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable, let the directory go, end the thread. Twice is fine.

        Whoever waits in a queue of this store gets QueueClosed. Interrupted or timed out, closing
        goes on in the background; calling it again waits for it. In the child of a fork nothing
        happens: the store is the parent's.
        """
        if self._thread.of_another_process:
            return
        try:
            with suppress(QueueClosed):
                self._thread.run(lambda: self._store.close(timeout))
        except TimeoutError:
            raise
        except Exception:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._thread.stop()
        _open_stores.pop(self, None)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Queue(Generic[T]):
    """A durable FIFO queue for any number of threads. Made by `open` or `Store.queue`.

    What `fifoq.Queue` says of its calls holds for these. Calls wait, without a limit if they have
    no `timeout`; QueueClosed ends them when another thread closes the store.
    """

    def __init__(self, thread: LoopThread, queue: _queue.Queue[T]) -> None:
        self.name = queue.name
        self._thread = thread
        self._queue = queue
        self._owner: Store | None = None

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
            async with asyncio.timeout(timeout):
                return await self._queue.take_records(1)

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
        return Delivery(self._thread, leasing, self._thread.run(leasing.start, _give_back))

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
        deliveries = self._thread.run(leasing.start, _give_all_back)
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
        return Cursor(self._thread, opened, Delivery)

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

    def configure(self, **changes: Any) -> None:
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

    def __exit__(self, *error: object) -> None:
        self.close()


class Topic(Generic[T]):
    """A stream of records over several queues, for any number of threads. As `fifoq.Topic`."""

    def __init__(self, thread: LoopThread, topic: _topic.Topic[T], queues: list[Queue[T]]) -> None:
        self.name, self.partitions = topic.name, topic.partitions
        self._thread = thread
        self._topic = topic
        self._queues = queues

    def __repr__(self) -> str:
        return f"<sync.{repr(self._topic)[1:]}"

    def partition(self, index: int) -> Queue[T]:
        """The queue of a partition. ValueError if there is none of that number."""
        self._topic.partition(index)
        return self._queues[index]

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key."""
        return self._topic.partition_of(key)

    def put(self, item: T, **options: Any) -> tuple[int, Key]:
        """Put one record by `key`, `partition` or in turn; returns its partition and its key."""
        return self._thread.run(lambda: self._topic.put(item, **options))

    def put_many(self, items: Iterable[T], **options: Any) -> list[tuple[int, Key]]:
        """Put records in one commit, all or nothing; returns partition and key of each."""
        # Here, so that an iterator of the caller's runs on the caller's thread.
        listed = list(items)
        return self._thread.run(lambda: self._topic.put_many(listed, **options))

    def __len__(self) -> int:
        """Records that are there, in all partitions."""
        return sum(map(len, self._queues))


class Delivery(Generic[T]):
    """A leased record. `ack` it when it is done, `nack` it to give it back, or use `with`."""

    def __init__(
        self, thread: LoopThread, leasing: _delivery.Leasing[T], delivery: _delivery.Delivery[T]
    ) -> None:
        self.item, self.key, self.attempt = delivery.item, delivery.key, delivery.attempt
        self._thread = thread
        self._leasing = leasing
        self._delivery = delivery

    def __repr__(self) -> str:
        return f"<sync.{repr(self._delivery)[1:]}"

    @property
    def headers(self) -> dict[str, str]:
        return self._delivery.headers

    @property
    def state(self) -> str:
        """leased, acked, nacked, expired or removed."""
        return self._delivery.state

    def ack(self) -> bool:
        """The record is done for good, committed on return. False if it was acked before.

        StaleLease if the lease has ended: nothing was changed.
        """
        return self._thread.run(self._delivery.ack)

    def nack(self, *, delay: float | None = None) -> None:
        """Give the record back to its place, for another attempt. StaleLease as for `ack`.

        It waits there for `delay` seconds, or as long as the queue's `retry_backoff` says.
        """
        self._thread.call(lambda: self._delivery.nack(delay=delay))

    def reject(self, reason: str = "", *, error: BaseException | None = None) -> None:
        """The record goes to the dead letters of its queue, committed on return."""
        self._thread.run(lambda: self._delivery.reject(reason, error=error))

    def extend(self, seconds: float) -> None:
        """Let the lease end `seconds` from now. StaleLease if it has ended."""
        self._thread.call(lambda: self._delivery.extend(seconds))

    def __enter__(self) -> Delivery[T]:
        self._thread.call(self._leasing.keep)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(lambda: self._leasing.__aexit__(kind, error, traceback))


class Transaction:
    """What `Store.transaction` gives, for one `with`. As `fifoq.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: _transaction.Transaction) -> None:
        self._thread = thread
        self._transaction = transaction

    def __repr__(self) -> str:
        return f"<sync.{repr(self._transaction)[1:]}"

    @property
    def keys(self) -> list[Key]:
        """Of the records put, once the block has ended well."""
        return self._transaction.keys

    def put(self, queue: Queue[T], item: T, **options: Unpack[PutKeywords]) -> None:
        """Put a record when the transaction commits."""
        self._thread.call(lambda: self._transaction.put(queue._queue, item, **options))

    def lease(
        self, queue: Queue[T], *, seconds: float | None = None, timeout: float | None = None
    ) -> Delivery[T]:
        """Hand out the oldest record until the transaction ends; waits for one."""
        leasing = queue._queue.lease(seconds=seconds, timeout=timeout)
        delivery = self._thread.run(lambda: self._transaction.start(queue._queue, leasing))
        return Delivery(self._thread, leasing, delivery)

    def take(self, queue: Queue[T], *, timeout: float | None = None) -> T:
        """The oldest record, which is removed when the transaction commits; waits for one."""
        return self._thread.run(lambda: self._transaction.take(queue._queue, timeout=timeout))

    def ack(self, delivery: Delivery[Any]) -> None:
        """The record is done for good when the transaction commits."""
        self._thread.call(lambda: self._transaction.ack(delivery._delivery))

    def nack(self, delivery: Delivery[Any]) -> None:
        """The record is back at its place when the transaction commits."""
        self._thread.call(lambda: self._transaction.nack(delivery._delivery))

    def reject(self, delivery: Delivery[Any], reason: str = "") -> None:
        """The record goes to the dead letters of its queue when the transaction commits."""
        self._thread.call(lambda: self._transaction.reject(delivery._delivery, reason))

    def __enter__(self) -> Transaction:
        self._thread.run(self._transaction.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(lambda: self._transaction.__aexit__(kind, error, traceback))


async def _give_back(delivery: _delivery.Delivery[Any]) -> None:
    delivery.nack(delay=0)


async def _give_all_back(deliveries: list[_delivery.Delivery[Any]]) -> None:
    for delivery in deliveries:
        delivery.nack(delay=0)


@overload
def open_store(
    path: str | os.PathLike[str], *, read_only: Literal[True], **options: Any
) -> ReadOnlyStore: ...


@overload
def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[False] = ...,
    recover: Recover = ...,
    **options: Any,
) -> Store: ...


def open_store(
    path: str | os.PathLike[str], *, read_only: bool = False, **options: Any
) -> Store | ReadOnlyStore:
    """Open the store at `path`, or make one there, and own it until it is closed.

    With `read_only` it is seen from outside, whoever owns it. As `fifoq.open_store`.
    """
    if read_only:
        return ReadOnlyStore(View(os.fspath(path), **options))
    opening = _store.open_store(path, **options)
    return _opened(path, opening, Store)


@overload
def open(
    path: str | os.PathLike[str], *, type: type[T], queue: str = ..., **options: Any
) -> Queue[T]: ...


@overload
def open(
    path: str | os.PathLike[str], *, type: None = ..., queue: str = ..., **options: Any
) -> Queue[bytes]: ...


def open(
    path: str | os.PathLike[str],
    *,
    type: Any = None,
    queue: str = _store.DEFAULT_QUEUE,
    **options: Any,
) -> Queue[Any]:
    """Open one queue, by default "main", of the store at `path`; both are made if need be.

    Closing the queue closes the store. Options are those of the queue and of the store.
    """
    opening: _store.Opening[_queue.Queue[Any]] = _store.open(
        path, type=type, queue=queue, **options
    )

    def wrap(thread: LoopThread, opened: _queue.Queue[Any]) -> Queue[Any]:
        wrapped: Queue[Any] = Queue(thread, opened)
        assert isinstance(opened.owner, _store.Store)
        wrapped._owner = Store(thread, opened.owner)
        return wrapped

    return _opened(path, opening, wrap)


A = TypeVar("A", _store.Store, _queue.Queue[Any])


def _opened(
    path: str | os.PathLike[str], opening: _store.Opening[A], wrap: Callable[[LoopThread, A], R]
) -> R:
    thread = LoopThread(os.fspath(path))

    async def open_it() -> A:
        return await opening

    async def close(opened: A) -> None:
        await opened.close()

    try:
        return wrap(thread, thread.run(open_it, close))
    except BaseException:
        thread.stop()
        raise


def _close_at_exit() -> None:
    """Write what is left in memory; a disk that hangs must not keep the interpreter from ending."""
    deadline = time.monotonic() + EXIT_SECONDS
    for store in list(_open_stores):
        with suppress(Exception):
            store.close(timeout=max(0.0, deadline - time.monotonic()))


atexit.register(_close_at_exit)
