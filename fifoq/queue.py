"""The queue: `await put`, `await take`, and what stands around them.

A put appends to the queue's line and a take claims from it in the caller's own step; what waits
for the disk waits for one commit that all callers of the store share. The common case of both is
a few instructions; everything that is rare (limits, levels, time, waiting) is behind one
comparison each.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from fifoq.browse import Record, browse
from fifoq.codec import Codec, encode_headers
from fifoq.committer import Committer
from fifoq.errors import QueueClosed, QueueEmpty, QueueFull, SchemaMismatch
from fifoq.histogram import Histogram
from fifoq.jobs import Waiter
from fifoq.keys import Keys
from fifoq.lease import Leases, Leasing
from fifoq.line import (
    COLUMN_BYTES,
    WINDOW_MAX,
    WINDOW_MIN,
    Batch,
    Claim,
    Line,
    Returned,
    removal_of,
)
from fifoq.options import LEVELS, MEMORY, Durability, QueueOptions
from fifoq.receipt import Receipt
from fifoq.stats import QueueStats, collect, watch
from store import CounterExhausted, FifoqError, ItemTooLarge, Key
from store.keys import COUNTER_MAX
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.asyncio_queue import AsyncioQueue

T = TypeVar("T")

SMALL_BYTES: Final = 4096
"""Records up to this size are counted only when the window closes."""
BATCH_BYTES_MAX: Final = 56 << 20
"""What one `put_many` may hold: it is one frame."""
REAP_RECORDS: Final = 4096
REAP_BYTES: Final = 512 << 10
"""Puts that follow each other without a turn of the loop have this much written at once."""
COUNT_AFTER: Final = 1024
"""Small records are counted in bytes when this many came, or with the first of a turn."""
TAKE_MANY_MAX: Final = 16384
"""Records in one `take_many`: one frame must be able to restore them."""
_DROPPED: Final = 0
_DRAINING: Final = 1
AT_ONCE: Final = 2
"""What `_shutdown` is after an immediate one."""


class Closable(Protocol):
    """What a queue needs of the store that it opened."""

    async def close(self, timeout: float | None = None) -> None: ...


class Queue(Line, Generic[T]):
    """A durable FIFO queue of one store, for the event loop that opened it.

    Made by `fifoq.open` or `Store.queue`. Any number of tasks may put and take.
    """

    __slots__ = (
        "_append",
        "_asyncio",
        "_bytes",
        "_committer",
        "_lost",
        "_new_future",
        "_pop",
        "_putters",
        "_shutdown",
        "_state",
        "_takers",
        "_trouble",
        "_written",
        "codec",
        "fast",
        "leasing",
        "level",
        "options",
        "owner",
        "pressed",
        "totals",
    )

    def __init__(
        self, committer: Committer, state: QueueState, options: QueueOptions, codec: Codec[T]
    ) -> None:
        genesis = state.genesis
        super().__init__(
            state.name,
            next_counter=genesis.next_counter,
            floor=genesis.floor,
            size=genesis.queue_size,
            last_put_time=genesis.last_put_time,
        )
        self.high, self.high_time = genesis.high_water_mark, genesis.high_water_time
        self.low, self.low_time = genesis.low_water_mark, genesis.low_water_time
        self.totals = copy.copy(genesis)
        """As of opening."""
        self._state = state
        self._lost = genesis.total_put_count - genesis.total_take_count - genesis.queue_size
        self._committer = committer
        self.codec = codec
        self._append = self.tail.append
        self._pop = self.ready.popleft
        self._new_future = committer.loop.create_future
        self._takers: deque[asyncio.Future[None]] = deque()
        self._putters: deque[asyncio.Future[None]] = deque()
        self._shutdown = 0
        self._asyncio: AsyncioQueue[T] | None = None
        self.pressed = False
        self._trouble: FifoqError | None = None
        self._bytes = self._written = genesis.queue_bytes
        self.owner: Closable | None = None
        """The store, if closing the queue closes it."""
        self.leasing = Leases(self, committer, dict(state.attempts))
        self.options = options
        self._use(options)

    def look(self, now: int) -> None:
        self.leasing.acks_pass = False
        super().look(now)

    def _use(self, options: QueueOptions) -> None:
        self.close_windows()
        # What was taken so far counts, or does not, by the settings of then.
        self.close_run()
        if options.max_bytes is not None and self.options.max_bytes is None:
            # Nobody counted them while there was no limit.
            self.leasing.hand_over()
            self._bytes = self._written + self.unwritten_bytes()
        self.options = options
        self.level = LEVELS[options.durability]
        self.fast = self.level == MEMORY and options.max_bytes is None
        if not options.statistics:
            self.delays = None
        elif self.delays is None:
            self.delays = Histogram()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "shut down" if self._shutdown else "open"
        return f"<Queue {self.name!r} depth={len(self)} leased={self.leasing.count} {state}>"

    # Putting.

    async def put(self, item: T, **options: Any) -> Key:
        """Put one record; returns its key once it is committed at the queue's durability.

        Keywords: `durability` for this call, `headers` (a dict of strings). Waits while the queue
        is under pressure, and while it is full if its `overflow` is "block". Cancelled before it is
        sealed into a frame, it is certainly not in the queue; after that it is, once. QueueFull,
        QueueClosed, ItemTooLarge, DiskFull: nothing was stored. DurabilityError: whether it was
        is known after a reopen. With `overflow="drop-newest"` a record that was dropped has the
        counter 0.
        """
        counter = self.next
        if (
            counter < self.put_limit
            and type(item) is bytes
            and not options
            and len(item) <= SMALL_BYTES  # type: ignore[arg-type]
        ):
            self.next = counter + 1
            self._append(item)  # type: ignore[arg-type]
            return Key(counter, self.put_time)
        if (
            counter < self.strong_limit
            and type(item) is bytes
            and not options
            and len(item) <= SMALL_BYTES  # type: ignore[arg-type]
        ):
            self.next = counter + 1
            self._append(item)  # type: ignore[arg-type]
            self.strong_upto = counter
            self.bias -= 1
            self.hidden += 1
            moment = self.put_time
            waiter = Waiter(self._new_future(), self, counter, 1)
            self._committer.waiters.append(waiter)
            try:
                await waiter.future
            except BaseException:
                self.take_back(waiter)
                raise
            return Key(counter, moment)
        payload, headers, level = self._prepare(item, **options)
        size = len(payload) + COLUMN_BYTES
        while not self._admits(1, size):
            await self._wait_to_put(1, size)
        first, moment = self._store([payload], headers, level)
        if self._putters:
            self._pass_on_room()
        if first and level:
            await self._committed(first, 1, level)
        return Key(first, moment)

    def put_nowait(self, item: T, **options: Any) -> Key:
        """Put one record in memory; returns its key at once. `flush_interval` bounds the writing.

        QueueFull if the queue is full or too much waits to be written: nothing was stored.
        """
        counter = self.next
        if (
            counter < self.put_limit
            and type(item) is bytes
            and not options
            and len(item) <= SMALL_BYTES  # type: ignore[arg-type]
        ):
            self.next = counter + 1
            self._append(item)  # type: ignore[arg-type]
            return Key(counter, self.put_time)
        payload, headers, _ = self._prepare(item, **options)
        if not self._admits(1, len(payload) + COLUMN_BYTES, pressure=False):
            raise self._full()
        return Key(*self._store([payload], headers, MEMORY))

    async def put_many(self, items: Iterable[T], *, durability: Durability | None = None) -> Keys:
        """Put records in one commit, all or nothing; returns their keys, a lazy sequence.

        What holds for `put` holds for all of them together.
        """
        payloads, size, item_bytes = self._prepare_many(items)
        level = self._level_of(durability)
        if not payloads:
            return Keys(0, 0, 0)
        while not self._admits(len(payloads), size):
            await self._wait_to_put(len(payloads), size)
        first, moment = self._store(payloads, None, level, size, item_bytes)
        if self._putters:
            self._pass_on_room()
        if first and level:
            await self._committed(first, len(payloads), level)
        return Keys(first, len(payloads), moment)

    def submit(self, item: T, **options: Any) -> Receipt:
        """Put one record without waiting; the receipt has its key and tells its outcome.

        QueueFull if the queue is full: nothing was stored.
        """
        payload, headers, level = self._prepare(item, **options)
        if not self._admits(1, len(payload) + COLUMN_BYTES, pressure=False):
            raise self._full()
        first, moment = self._store([payload], headers, level)
        if not (first and level):
            return Receipt(Key(first, moment), None, self)
        return Receipt(Key(first, moment), self._waiter(first, 1, level), self)

    def _prepare(
        self,
        item: T,
        *,
        durability: Durability | None = None,
        headers: dict[str, str] | None = None,
        **unknown: object,
    ) -> tuple[bytes, bytes | None, int]:
        if unknown:
            raise TypeError(
                f"put takes durability and headers, not {next(iter(unknown))!r}. Nothing was "
                f"stored."
            )
        payload = self.codec.encode(item)
        if len(payload) > self.options.max_item_bytes:
            raise _too_large(self.name, len(payload), self.options.max_item_bytes)
        encoded = encode_headers(headers) if headers else None
        return payload, encoded, self._level_of(durability)

    def _prepare_many(self, items: Iterable[T]) -> tuple[Sequence[bytes], int, int | None]:
        """Payloads, what they need in a frame, and their length if they all have the same."""
        payloads = self.codec.encode_many(items)
        if not payloads:
            return payloads, 0, None
        lengths = list(map(len, payloads))
        count, largest = len(lengths), lengths[0]
        even = lengths.count(largest) == count
        if not even:
            largest = max(lengths)
        if largest > self.options.max_item_bytes:
            raise _too_large(self.name, largest, self.options.max_item_bytes)
        size = (largest * count if even else sum(lengths)) + COLUMN_BYTES * count
        if size > BATCH_BYTES_MAX:
            raise ItemTooLarge(
                f"queue {self.name!r}: a put_many of {size} bytes is over the limit of "
                f"{BATCH_BYTES_MAX}. Nothing was stored. Put fewer records at once."
            )
        return payloads, size, largest if even else None

    def _level_of(self, durability: Durability | None) -> int:
        if durability is None:
            return self.level
        try:
            return LEVELS[durability]
        except (KeyError, TypeError):
            raise ValueError(
                f"durability={durability!r} is none of {', '.join(LEVELS)}. Nothing was stored."
            ) from None

    def _admits(self, count: int, size: int, *, pressure: bool = True) -> bool:
        """Whether that many records of together `size` bytes may be put now.

        Raises what fits if they never will, and makes room if the queue drops its oldest.
        """
        committer = self._committer
        committer.require_usable()
        if self._shutdown:
            raise QueueClosed(f"queue {self.name!r} takes no more records; it was shut down.")
        if self.next + count > COUNTER_MAX:
            raise CounterExhausted(
                f"queue {self.name!r} has used its last counter. Nothing was stored."
            )
        now = time.time_ns()
        self.look(now)
        uncounted = len(self.tail) - self.tail_counted
        if (
            uncounted >= COUNT_AFTER
            or self.window <= WINDOW_MIN
            or committer.is_full(uncounted * (SMALL_BYTES + COLUMN_BYTES) + size)
        ):
            committer.waiting_bytes += self.count_tail()
        if len(self.tail) >= REAP_RECORDS or self.tail_bytes >= REAP_BYTES:
            committer.reap()
        if committer.refused is not None and (self.level == MEMORY or not committer.has_room(size)):
            raise committer.refused
        options = self.options
        if not self._fits(count, size):
            if options.overflow == "fail":
                raise self._full()
            if options.overflow == "block":
                return False
            if options.overflow == "drop-oldest":
                self._drop_oldest(count, size)
                if not self._fits(count, size):
                    return False
        if pressure and self._under_pressure():
            return False
        return committer.has_room(size)

    def _fits(self, count: int, size: int) -> bool:
        options = self.options
        if options.maxsize is not None:
            if count > options.maxsize:
                raise ItemTooLarge(
                    f"queue {self.name!r}: {count} records at once never fit into "
                    f"maxsize={options.maxsize}. Nothing was stored."
                )
            if self._depth() + count > options.maxsize:
                return False
        if options.max_bytes is not None:
            payload = size - COLUMN_BYTES * count
            if payload > options.max_bytes:
                raise _too_large(self.name, payload, options.max_bytes)
            return self._bytes + payload <= options.max_bytes
        return True

    def _depth(self) -> int:
        """Records, those included that nobody may take before their commit."""
        sealed = self.sealed.hidden if self.sealed is not None else 0
        return len(self) + self.hidden + sealed

    def _under_pressure(self) -> bool:
        high = self.options.pressure_high
        if high is None:
            return False
        low = self.options.pressure_floor()
        assert low is not None
        depth = self._depth()
        self.pressed = depth > low if self.pressed else depth >= high
        return self.pressed

    def _drop_oldest(self, count: int, size: int) -> None:
        while not self._fits(count, size) and self.has_ready():
            record = self.claim_head()
            self._bytes -= len(record.payload)
            self.dropped.append(removal_of(record))
        if self.gap is not None and not self.has_ready():
            self._committer.request_read(self)

    def _full(self) -> QueueFull:
        return QueueFull(
            f"queue {self.name!r} is full ({len(self)} records), or too much waits to be written. "
            f"Nothing was stored. Take some, or await put."
        )

    async def _wait_to_put(self, count: int, size: int) -> None:
        committer = self._committer
        if not committer.has_room(size):
            await committer.wait_for_room()
            return
        future = committer.loop.create_future()
        self._putters.append(future)
        await self._wait_turn(self._putters, future)

    def _pass_on_room(self) -> None:
        """One wake-up stands for all the room there is: the next in line may fit as well."""
        room = self._fits(1, COLUMN_BYTES)
        if not room and self.options.overflow == "drop-oldest":
            room = self.has_ready()
        if room and not self._under_pressure():
            _wake_one(self._putters)

    async def _wait_turn(
        self, waiting: deque[asyncio.Future[None]], future: asyncio.Future[None]
    ) -> None:
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled():
                # It was our turn, and we leave: somebody else must not sleep through it.
                _wake_one(waiting)
            else:
                with contextlib.suppress(ValueError):
                    waiting.remove(future)
            raise

    def _store(
        self,
        payloads: Sequence[bytes],
        headers: bytes | None,
        level: int,
        size: int = 0,
        item_bytes: int | None = None,
    ) -> tuple[int, int]:
        """Append records that were admitted; returns the first counter and their time.

        The counter is 0 if they are dropped because the queue is full.
        """
        now = time.time_ns()
        if self.options.overflow == "drop-newest" and not self._fits_exactly(payloads):
            return _DROPPED, now
        if level == MEMORY:
            self.first_put(now, len(payloads))
        moment = self.stamp_put(now)
        first = self.extend(payloads, strong=level > MEMORY)
        if headers is not None:
            self.headers[first] = headers
            self.tail_bytes += len(headers)
            self._committer.waiting_bytes += len(headers)
        committer = self._committer
        if self.options.max_bytes is not None:
            self._bytes += sum(map(len, payloads))
        if size:
            committer.waiting_bytes += self.count_known(len(payloads), size, item_bytes)
        elif level > MEMORY or len(payloads[0]) > SMALL_BYTES:
            committer.waiting_bytes += self.count_tail()
        self.touch()
        if self._putters and self._has_room():
            # One take of many records woke one of us: the next one follows.
            _wake_one(self._putters)
        if level == MEMORY:
            if self._takers and not self.strong_upto:
                _wake_one(self._takers)
            elif self.fast:
                self._open_puts()
        return first, moment

    def _has_room(self) -> bool:
        maxsize, max_bytes = self.options.maxsize, self.options.max_bytes
        return (
            (maxsize is None or self._depth() < maxsize)
            and (max_bytes is None or self._bytes < max_bytes)
            and not self._under_pressure()
        )

    def _fits_exactly(self, payloads: Sequence[bytes]) -> bool:
        return self._fits(len(payloads), sum(map(len, payloads)) + COLUMN_BYTES * len(payloads))

    def touch(self) -> None:
        """Have what changed in memory written in time."""
        options, committer = self.options, self._committer
        committer.touch(self, options.flush_interval if options.auto_flush else None)
        if options.auto_flush and (
            len(self.tail) >= options.buffer_size or self.tail_bytes >= options.buffer_bytes
        ):
            committer.commit_soon()

    def _open_puts(self) -> None:
        """Let the next few puts of this turn pass without a look."""
        if self.strong_upto or self._takers or not self._takes_plain_bytes:
            return
        count, options = self.window, self.options
        if len(self.tail) < options.buffer_size:
            # The one that fills the buffer must be looked at.
            count = min(count, options.buffer_size - len(self.tail) - 1)
        self._append = self.tail.append
        self.open_puts(min(count, self._room_left()))
        self._committer.open_window(self)

    def _waiter(self, first: int, count: int, level: int) -> Waiter:
        waiter = Waiter(self._committer.loop.create_future(), self, first=first, count=count)
        self._committer.wait(waiter, level)
        return waiter

    async def _committed(self, first: int, count: int, level: int) -> None:
        waiter = self._waiter(first, count, level)
        if count == 1 and level == self.level:
            self._open_strong_puts()
        try:
            await waiter.future
        except BaseException:
            self.take_back(waiter)
            raise

    def _open_strong_puts(self) -> None:
        """Let the next few puts of this turn share the frame of this one without a look."""
        options = self.options
        if options.max_bytes is not None or self.strong_upto != self.next - 1:
            return
        if not self._takes_plain_bytes:
            return
        self._append = self.tail.append
        self.strong_limit = self.next + min(WINDOW_MAX, self._room_left())
        self._committer.open_window(self)

    @property
    def _takes_plain_bytes(self) -> bool:
        """Whether any small bytes may be put without a look at them."""
        return not self.codec.typed and self.options.max_item_bytes >= SMALL_BYTES

    def _room_left(self) -> int:
        """How many records may come before a limit must be looked at."""
        options, room = self.options, WINDOW_MAX
        if options.maxsize is not None:
            room = min(room, options.maxsize - self._depth())
        if options.pressure_high is not None:
            room = min(room, options.pressure_high - self._depth())
        return room

    def take_back(self, waiter: Waiter) -> bool:
        """Withdraw what was put if it is not sealed yet; returns whether it was."""
        if not (waiter.count and waiter.future.cancelled()):
            return False
        self._committer.waiting_bytes += self.count_tail()
        if self.withdraw(waiter.first, waiter.count):
            waiter.count = 0
            self.records_went()
            return True
        return False

    # Taking.

    async def take(self, *, timeout: float | None = None) -> T:
        """Remove the oldest record and return it; its removal is committed by then.

        Waits for one. Cancelled, or after `timeout` seconds (TimeoutError), the record is in the
        queue at its place. QueueClosed once the queue is closed, or shut down and empty.
        """
        head = self.head
        if head < self.take_limit:
            self.head = head + 1
            return self._pop()  # type: ignore[return-value]
        if timeout is not None:
            async with asyncio.timeout(timeout):
                return await self._take()
        return await self._take()

    async def _take(self) -> T:
        while not self.looks_ready():
            await self.wait_to_take()
        item = self.decoded_head()
        if self.level == MEMORY:
            self._take_in_memory()
        else:
            await self._commit_removal([self._claim()])
        return item

    def decoded_head(self) -> T:
        """The oldest record as an item, before it is claimed: one that does not decode stays."""
        payload = self.peek_head()
        assert payload is not None
        try:
            return self.codec.decode(payload)
        except SchemaMismatch:
            # It stands in everybody's way: the next one who waits is to be told as well.
            _wake_one(self._takers)
            raise

    def take_nowait(self) -> T:
        """Remove the oldest record in memory and return it; the removal is written in time.

        QueueEmpty if none is ready.
        """
        head = self.head
        if head < self.take_limit:
            self.head = head + 1
            return self._pop()  # type: ignore[return-value]
        if not self.looks_ready():
            raise self._not_ready()
        item = self.decoded_head()
        self._take_in_memory()
        return item

    async def take_many(self, count: int, *, max_bytes: int | None = None) -> list[T]:
        """Remove 1 to `count` records in one commit, more than one only up to `max_bytes`.

        Waits for the first. What holds for `take` holds for all of them together.
        """
        records = await self.take_records(count, max_bytes)
        return self.codec.decode_many([record.payload for record in records])

    async def take_records(self, count: int, max_bytes: int | None = None) -> list[Returned]:
        """The same as `take_many`, for one who may have to `restore` them."""
        if count < 1:
            raise ValueError(f"count={count} is below 1")
        count = min(count, TAKE_MANY_MAX)
        while not self.looks_ready():
            await self.wait_to_take()
        self.decoded_head()
        records: list[Returned] = []
        size = 0
        while len(records) < count and self.has_ready():
            if records and not self._decodes_head():
                break
            following = len(self.peek_head() or b"")
            if records and max_bytes is not None and size + following > max_bytes:
                break
            records.append(self._claim())
            size += following
        if self.level == MEMORY:
            self.removed += map(removal_of, records)
            self.touch()
            self.records_went()
        else:
            await self._commit_removal(records)
        return records

    def _decodes_head(self) -> bool:
        if not self.codec.typed:
            return True
        try:
            self.decoded_head()
        except SchemaMismatch:
            return False
        return True

    def take_record_nowait(self) -> Returned:
        """The same as `take_nowait`, for one who may have to `restore` it."""
        if not self.looks_ready():
            raise self._not_ready()
        self.decoded_head()
        record = self._claim()
        self.removed.append(removal_of(record))
        self.touch()
        self.records_went()
        return record

    async def restore(self, records: list[Returned]) -> None:
        """Records that were taken reached nobody: they are back at their places on return."""
        self.restoring += len(records)
        # First the removal, if it still waits: a frame's removals come after what it restores.
        await self._next_commit()
        self.restored += records
        await self._next_commit()

    async def _next_commit(self) -> None:
        committer = self._committer
        committer.require_usable()
        waiter = Waiter(committer.loop.create_future(), self)
        committer.touch(self, None)
        committer.wait(waiter, MEMORY)
        await waiter.future

    def _not_ready(self) -> QueueEmpty:
        if self.gap is not None:
            # Whoever asks again and again must come to what is only on disk.
            self._committer.request_read(self)
        return QueueEmpty(f"queue {self.name!r} has nothing that is ready. Await take.")

    async def peek(self) -> T | None:
        """The oldest record, or None; nothing changes. Waits only if it must be read from disk."""
        while not self.looks_ready():
            if self.gap is None:
                return None
            await self.wait_to_take()
        if self._takers:
            # We only looked: a taker must not sleep through the wake-up that we got.
            self.records_came()
        return self.decoded_head()

    def looks_ready(self) -> bool:
        """Whether there is something to take; raises what fits if there never will be."""
        committer = self._committer
        committer.require_usable()
        now = time.time_ns()
        self.look(now)
        if self._shutdown == AT_ONCE:
            raise QueueClosed(f"queue {self.name!r} was shut down.")
        if self.delays is not None:
            self.stamp_take(now)
        if self.has_ready():
            if len(self.chunks) < 2 and self.gap is not None and self._trouble is None:
                committer.request_read(self)
            return True
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if self._shutdown and not self._depth():
            raise QueueClosed(f"queue {self.name!r} was shut down and is empty.")
        if self.gap is not None:
            # Also for those who do not wait: whoever asks again must find it one day.
            committer.request_read(self)
        return False

    async def wait_to_take(self) -> None:
        committer = self._committer
        if self.gap is not None and not self.chunks:
            committer.request_read(self)
        future = committer.loop.create_future()
        self._takers.append(future)
        await self._wait_turn(self._takers, future)

    def _take_in_memory(self) -> bytes:
        returned = self.returned
        if returned and (self.head >= self.run_end or returned[0].counter < self.head):
            record = self.claim_head()
            self.taken_time = now = time.time_ns()
            self.note_delay(1, now - record.time)
            self.removed.append(removal_of(record))
            payload = record.payload
        else:
            self.head += 1
            payload = self._pop()
            if not (returned or self._putters) and self.fast and not self.codec.typed:
                self.open_takes(self.window)
                self._committer.open_window(self)
        if self.options.max_bytes is not None:
            self._bytes -= len(payload)
        self.touch()
        self.records_went()
        return payload

    def _claim(self) -> Returned:
        record = self.claim_head()
        self.taken_time = now = time.time_ns()
        self.note_delay(1, now - record.time)
        if self.options.max_bytes is not None:
            self._bytes -= len(record.payload)
        return record

    async def _commit_removal(self, records: list[Returned]) -> None:
        """Commit that claimed records are gone; if the caller leaves, they come back."""
        committer = self._committer
        claim = Claim(records)
        self.claims.append(claim)
        waiter = Waiter(committer.loop.create_future(), self, claim=claim)
        committer.touch(self, None)
        committer.wait(waiter, self.level)
        if self._takers and self.has_ready():
            _wake_one(self._takers)
        try:
            await waiter.future
        except BaseException:
            self._unclaim(waiter, claim)
            raise
        self.records_went()

    def _unclaim(self, waiter: Waiter, claim: Claim) -> None:
        """The taker leaves: its records go back at once, or with the next frame."""
        if not claim.sealed:
            if claim in self.claims:
                self.claims.remove(claim)
                for record in claim.records:
                    self.give_back(record)
                self.records_came()
        elif waiter.future.cancelled() or _succeeded(waiter.future):
            # Until they are back nobody takes what is behind them.
            self.restoring += len(claim.records)
            if _succeeded(waiter.future):
                self._committer.restore(self, claim)

    def bytes_went(self, count: int) -> None:
        """Payload bytes are gone for good, or are about to be given back."""
        self._bytes -= count

    @property
    def has_putters(self) -> bool:
        """Whether somebody must hear of an ack: putters, or takers after a shutdown."""
        return bool(self._putters or self._shutdown)

    def seal(self, *, puts: bool = True) -> Batch:
        self.leasing.hand_over()
        return super().seal(puts=puts)

    @property
    def dirty(self) -> bool:
        return bool(self.leasing.given or self.leasing.acked) or super().dirty

    def close_windows(self) -> None:
        super().close_windows()
        self.leasing.acks_pass = False

    def withdraw(self, first: int, count: int) -> bool:
        at = max(0, first - self.tail_first)
        size = sum(len(payload or b"") for payload in self.tail[at : at + count])
        withdrawn = super().withdraw(first, count)
        if withdrawn:
            self._bytes -= size
        return withdrawn

    def give_back(self, record: Returned) -> None:
        # The size turns here: what it was must be seen, and no window may pass the record by.
        self.look(time.time_ns())
        super().give_back(record)
        self._bytes += len(record.payload)

    def confirm(self) -> None:
        now = time.time_ns()
        self.note_size(now)
        super().confirm()
        self.note_size(now)
        self._written = self._state.genesis.queue_bytes

    # Waking.

    def records_came(self) -> None:
        if self._takers and (self._committer.failure is not None or self.closed):
            _wake_all(self._takers)
            _wake_all(self._putters)
        elif self._takers and self.has_ready():
            _wake_one(self._takers)
        elif self._takers and self.gap is not None:
            self._committer.request_read(self)
        if self._committer.failure is not None:
            _wake_all(self._putters)
        elif self._putters:
            # What came may be dropped for what waits.
            self._pass_on_room()

    def records_went(self) -> None:
        """Let those who wait to put look again, and the next taker if there is more."""
        if self._putters and not self._under_pressure():
            _wake_one(self._putters)
        if self._takers and self.has_ready():
            _wake_one(self._takers)
        elif self._shutdown and not self._depth():
            _wake_all(self._takers)

    def read_ended(self, error: FifoqError | None) -> None:
        self._trouble = error
        if error is not None:
            _wake_all(self._takers)
            _wake_all(self._putters)
        else:
            self.records_came()

    async def below_pressure(self) -> None:
        """Return once the queue is not under pressure (at once if it never is)."""
        while True:
            self._committer.require_usable()
            if not self._under_pressure():
                return
            future = self._committer.loop.create_future()
            self._putters.append(future)
            await self._wait_turn(self._putters, future)
            # We only looked: whoever waits to put goes on.
            _wake_one(self._putters)

    # The rest.

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
        exception, and extended while the block runs.
        """
        return Leasing(self, seconds, timeout, auto_extend)

    def browse(self, start: int = 1) -> AsyncIterator[Record[T]]:
        """Records from counter `start` on that are not removed, in order; nothing changes.

        What is in memory alone is written first.
        """
        return browse(self, self._committer, self.codec, start)

    def __len__(self) -> int:
        """Records that are there: ready, leased and delayed."""
        return self.next - self.head + self.bias

    def size(self) -> int:
        """The same as `len`."""
        return len(self)

    def empty(self) -> bool:
        return not len(self)

    @property
    def closed(self) -> bool:
        return self._committer.closed

    @property
    def durability(self) -> Durability:
        return self.options.durability

    def counts(self) -> tuple[int, int, int]:
        """Records ever put and ever taken, and when the last one was taken."""
        given = self.next - self.totals.next_counter - self.withdrawn_count
        put = self.totals.total_put_count + given - (self._depth() - len(self))
        taken = put - len(self) - self._lost
        return put, taken, max(self.taken_time, self._state.genesis.last_take_time)

    def byte_count(self) -> int:
        """Bytes of the records that are there, as far as commits and limits know."""
        return (
            self._bytes if self.options.max_bytes is not None else self._state.genesis.queue_bytes
        )

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

    def reset_marks(self) -> None:
        """Let the water marks start again from the size of now."""
        now = time.time_ns()
        self.look(now)
        if self.high is not None:
            self.high = self.low = len(self)
            self.high_time = self.low_time = now

    def configure(self, **changes: Any) -> None:
        """Change options of the running queue; all but `durability` are kept with the next commit.

        TypeError for an unknown name, ValueError for wrong settings: then nothing was changed.
        """
        self._committer.require_usable()
        options = self.options.changed(changes)
        self.look(time.time_ns())
        self._use(options)
        self.configuration = self.codec.configuration(options)
        self._committer.touch(self, 0)
        self.records_went()
        _wake_all(self._putters)

    def shutdown(self, *, immediate: bool = False) -> None:
        """Take no more puts; takes go on until the queue is empty, with `immediate` not at all.

        What is in the queue stays there for the next open.
        """
        self.close_windows()
        self._shutdown = max(self._shutdown, AT_ONCE if immediate else _DRAINING)
        _wake_all(self._putters)
        _wake_all(self._takers)

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

    def store_closed(self) -> None:
        self.close_windows()
        self.leasing.stop()
        _wake_all(self._putters)
        _wake_all(self._takers)

    async def __aenter__(self) -> Queue[T]:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _items(self) -> AsyncIterator[T]:
        while True:
            try:
                item = await self.take()
            except QueueClosed:
                return
            yield item


def _wake_one(waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            future.set_result(None)
            return


def _wake_all(waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        _wake_one(waiting)


def _succeeded(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _too_large(name: str, size: int, limit: int) -> ItemTooLarge:
    return ItemTooLarge(
        f"queue {name!r}: a record of {size} bytes is over the limit of {limit}. "
        f"Nothing was stored."
    )
