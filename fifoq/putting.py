"""Putting: how records come into a queue.

The common case of a put is a few instructions; everything that is rare (limits, levels, time,
waiting) is behind one comparison.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar, Unpack

from fifoq.attributes import (
    NONE,
    PRIORITY_DEFAULT,
    Attributes,
    PutKeywords,
    RecordKeywords,
    attributes_from,
)
from fifoq.dedup import Dedup, Place, digest_of
from fifoq.errors import QueueClosed, QueueFull
from fifoq.jobs import Waiter
from fifoq.joint import Joint
from fifoq.keys import Keys
from fifoq.member import SMALL_BYTES
from fifoq.once import put_many_once, put_once, put_once_now
from fifoq.options import LEVELS, MEMORY, SYNC, Durability
from fifoq.places import WINDOW_MAX, WINDOW_MIN
from fifoq.receipt import Receipt
from fifoq.runs import COLUMN_BYTES, removal_of
from fifoq.turns import too_large, wake_one
from fifoq.waiting import Waiting
from store import CounterExhausted, ItemTooLarge, Key
from store.keys import COUNTER_MAX

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 56 << 20
"""What one `put_many` may hold: it is one frame."""
QUICK_BYTES: Final = 1 << 20
"""While no more than this waits to be written, a small record needs no count of it."""
REAP_RECORDS: Final = 4096
REAP_BYTES: Final = 512 << 10
"""Puts that follow each other without a turn of the loop have this much written at once."""
COUNT_AFTER: Final = 1024
"""Small records are counted in bytes when this many came, or with the first of a turn."""
_DROPPED: Final = 0


class Putting(Waiting[T]):
    """The half of a queue that takes records in."""

    __slots__ = ()

    async def put(self, item: T, **options: Unpack[PutKeywords]) -> Key:
        """Put one record; returns its key once it is committed at the queue's durability.

        Keywords: `durability` for this call, `headers` (a dict of strings), `delay` in seconds or
        `deliver_at` (nobody gets it before), `ttl` in seconds (nobody gets it later),
        `priority` (0 first to 9 last), `ordering_key` (of each key one record is out at a time),
        `dedup_id` (a put that was made with it in the last `dedup_window` seconds is the same put:
        its key is returned once that is committed, and nothing is stored). Waits while the queue
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
            (self.unlimited or counter < self.strong_limit)
            and type(item) is bytes
            and not options
            and len(item) <= SMALL_BYTES  # type: ignore[arg-type]
        ):
            waiter: Waiter | None
            if counter < self.strong_limit:
                self.next = counter + 1
                self._append(item)  # type: ignore[arg-type]
                self.strong_upto = counter
                self.bias -= 1
                self.hidden += 1
                waiter = Waiter(self._new_future(), self, counter, 1)
                self._committer.waiters.append(waiter)
            else:
                waiter = self._put_strong(item)  # type: ignore[arg-type]
            if waiter is not None:
                moment = self.put_time
                try:
                    await waiter.future
                except BaseException:
                    waiter.future.cancel()
                    self.take_back(waiter)
                    raise
                return Key(waiter.first, moment)
        if options and counter < self.put_limit:
            key = self._put_later(item, options)
            if key is not None:
                return key
        if "dedup_id" in options:
            return await put_once(self, item, options)
        payload, attributes, level = self._prepare(item, **options)
        size = len(payload) + COLUMN_BYTES
        while not self._admits(1, size, level):
            await self._wait_to_put(1, size)
        first, moment = self._store([payload], attributes, level)
        if self._putters:
            self._pass_on_room()
        if first and level:
            await self._committed(first, 1, level)
        return Key(first, moment)

    def _put_strong(self, item: bytes) -> Waiter | None:
        """Put a small record that must wait for its commit; None if there is more to look at."""
        if len(self.tail) > WINDOW_MAX or self._is_out_of_the_ordinary(1):
            return None
        counter = self.next
        self.next = counter + 1
        self.tail.append(item)
        self._hide(counter, 1)
        waiter = Waiter(self._new_future(), self, counter, 1)
        if len(self.tail) > 1:
            # Whoever comes next in this turn may be one of many.
            self._open_strong_puts()
        self._committer.wait_for(self, waiter, self.level)
        return waiter

    def _put_strong_many(
        self, payloads: Sequence[bytes], level: int, size: int, item_bytes: int | None
    ) -> Waiter | None:
        """The same for records that were prepared."""
        count = len(payloads)
        if self.sets_all_aside or self._is_out_of_the_ordinary(count):
            return None
        committer = self._committer
        first = self.extend(payloads, strong=True)
        committer.waiting_bytes += self.count_known(count, size, item_bytes)
        waiter = Waiter(self._new_future(), self, first, count)
        committer.wait_for(self, waiter, level)
        return waiter

    def _is_out_of_the_ordinary(self, count: int) -> bool:
        """Whether there is more to look at before records are put; if not, stamps them."""
        committer = self._committer
        committer.require_usable()
        if (
            committer.waiting_bytes + committer.sealed_bytes > QUICK_BYTES
            or len(self.tail) >= REAP_RECORDS
            or committer.refused is not None
            or self._shutdown
            or self._putters
            or self.next + count > COUNTER_MAX
        ):
            return True
        now = time.time_ns()
        self.look(now)
        self.stamp_put(now)
        return False

    def put_nowait(self, item: T, **options: Unpack[PutKeywords]) -> Key:
        """Put one record in memory; returns its key at once. `flush_interval` bounds the writing.

        QueueFull if the queue is full or too much waits to be written: nothing was stored.
        """
        # The same lines as in `put`: a call of its own would cost as much as all of them.
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
        if options and counter < self.put_limit:
            key = self._put_later(item, options)
            if key is not None:
                return key
        if "dedup_id" in options:
            return put_once_now(self, item, options, level=MEMORY)[0]
        payload, attributes, _ = self._prepare(item, **options)
        if not self._admits(1, len(payload) + COLUMN_BYTES, MEMORY, pressure=False):
            raise self._full()
        return Key(*self._store([payload], attributes, MEMORY))

    async def put_many(
        self,
        items: Iterable[T],
        *,
        durability: Durability | None = None,
        dedup_ids: Sequence[str | None] | None = None,
        **keywords: Unpack[RecordKeywords],
    ) -> Keys:
        """Put records in one commit, all or nothing; returns their keys, a lazy sequence.

        What holds for `put` holds for all of them together, and keywords mean each of them. Waiting
        for room, they keep their place, but smaller puts that fit may pass: where many wait for
        ever, put fewer at once. `dedup_ids` has one id for each record, or None for one without:
        it is a transaction then, written at "os" at least.
        """
        if dedup_ids is not None or "dedup_id" in keywords:
            return await put_many_once(self, items, dedup_ids, keywords, durability)
        attributes = self._attributes_of(keywords) if keywords else None
        payloads, size, item_bytes = self._prepare_many(items)
        level = self._level_of(durability)
        if not payloads:
            return Keys(0, 0, 0)
        if level and self.unlimited and attributes is None:
            waiter = self._put_strong_many(payloads, level, size, item_bytes)
            if waiter is not None:
                moment = self.put_time
                await self._outcome(waiter)
                return Keys(waiter.first, len(payloads), moment)
        while not self._admits(len(payloads), size, level):
            await self._wait_to_put(len(payloads), size)
        first, moment = self._store(payloads, attributes, level, size, item_bytes)
        if self._putters:
            self._pass_on_room()
        if first and level:
            await self._committed(first, len(payloads), level)
        return Keys(first, len(payloads), moment)

    async def put_staged(
        self, payloads: Sequence[bytes], attributes: dict[int, Attributes], mark: tuple[str, bytes]
    ) -> None:
        """Put records that were promised elsewhere, with a state entry, in one synced frame.

        `attributes` are those of the records with these indexes. No limit of the queue holds them
        up: they are on disk already, and waiting there they would only hide from its size.
        Cancelled or failed, both are in the frame or none.
        """
        committer = self._committer
        size = sum(map(len, payloads)) + COLUMN_BYTES * len(payloads)
        size += sum(of.size for of in attributes.values())
        while not committer.has_room(size):
            await committer.wait_for_room()
            committer.require_usable()
        if self._shutdown:
            raise QueueClosed(f"queue {self.name!r} takes no more records; it was shut down.")
        if any(of.dedup_id for of in attributes.values()):
            joint = Joint(level=SYNC)
            for index, payload in enumerate(payloads):
                joint.put(self.name, payload, attributes.get(index))
            joint.set_state(*mark)
            await committer.joints.commit(joint)
            return
        now = time.time_ns()
        self.look(now)
        self.stamp_put(now)
        first = self.extend(payloads, strong=True)
        committer.waiting_bytes += self.count_tail()
        for index, of in attributes.items():
            committer.waiting_bytes += self.attach(first + index, 1, of)
            self.set_aside(first + index, [payloads[index]], self.put_time, of, shown=False)
        if self.sets_all_aside:
            self.set_aside(first, payloads, self.put_time, None, shown=False)
        self.marks[first] = mark
        if self.options.max_bytes is not None:
            self._bytes += sum(map(len, payloads))
        self.touch()
        await self._committed(first, len(payloads), SYNC)

    def submit(self, item: T, **options: Unpack[PutKeywords]) -> Receipt:
        """Put one record without waiting; the receipt has its key and tells its outcome.

        QueueFull if the queue is full: nothing was stored.
        """
        if "dedup_id" in options:
            return Receipt(*put_once_now(self, item, options), self)
        payload, attributes, level = self._prepare(item, **options)
        if not self._admits(1, len(payload) + COLUMN_BYTES, level, pressure=False):
            raise self._full()
        first, moment = self._store([payload], attributes, level)
        if not (first and level):
            return Receipt(Key(first, moment), None, self)
        return Receipt(Key(first, moment), self._waiter(first, 1, level), self)

    def _prepare(
        self, item: T, *, durability: Durability | None = None, **keywords: Unpack[RecordKeywords]
    ) -> tuple[bytes, Attributes | None, int]:
        attributes = self._attributes_of(keywords) if keywords else None
        payload = self.codec.encode(item)
        if len(payload) > self.options.max_item_bytes:
            raise too_large(self.name, len(payload), self.options.max_item_bytes)
        return payload, attributes, self._level_of(durability)

    def _attributes_of(self, keywords: RecordKeywords) -> Attributes | None:
        """What keywords of a put ask for; TypeError or ValueError if that makes no sense."""
        attributes = attributes_from(time.time_ns(), **keywords)
        if attributes.priority != PRIORITY_DEFAULT and not self.options.priorities:
            raise ValueError(
                f"queue {self.name!r} has no priorities; open it with priorities=True. Nothing "
                f"was stored."
            )
        return attributes if attributes != NONE else None

    def remember_ids(self, pages: dict[Place, bytes] | None = None) -> Dedup:
        """The ids of puts, those that were kept and from now on."""
        self.dedup = dedup = Dedup(self, self.options.dedup_window)
        if pages is not None:
            # The log's own time goes on where a clock was set back: what was over stays over.
            wall = max(time.time_ns(), self.put_time)
            dedup.restore(pages, self._committer.loop.time(), wall)
        return dedup

    def _knows(self, dedup_id: bytes) -> bool:
        """Whether a put with that id is in the window."""
        if self.dedup is None:
            return False
        return self.dedup.find(digest_of(dedup_id), self._committer.loop.time()) is not None

    def arrive(self, payload: bytes, attributes: Attributes | None) -> tuple[int, int]:
        if attributes is None or not attributes.dedup_id:
            return super().arrive(payload, attributes)
        # Not before: whoever put it first may have left until now, or the window may be over. What
        # is known here is in the log, or in the frame that is put together.
        dedup, moment = self.dedup or self.remember_ids(), self._committer.loop.time()
        digest = digest_of(attributes.dedup_id)
        known = dedup.find(digest, moment)
        if known is not None:
            dedup.hits += 1
            return known.counter, known.time
        counter, put_time = super().arrive(payload, attributes)
        dedup.add(digest, counter, put_time, moment)
        return counter, put_time

    def check_schedule(self, item: T, **options: Unpack[RecordKeywords]) -> bytes:
        """The payload of what is to be put again and again, with these keywords."""
        if "durability" in options:
            raise TypeError("schedule takes no durability: each firing is synced. Nothing changed.")
        if wrong := options.keys() & {"delay", "deliver_at", "dedup_id"}:
            raise TypeError(f"schedule takes no {min(wrong)}. Nothing was changed.")
        return self._prepare(item, **options)[0]

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
            raise too_large(self.name, largest, self.options.max_item_bytes)
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

    def _admits(self, count: int, size: int, level: int, *, pressure: bool = True) -> bool:
        """Whether that many records of together `size` bytes may be put now, at that level.

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
        if committer.refused is not None and (level == MEMORY or not committer.has_room(size)):
            raise committer.refused
        if self.unlimited:
            return committer.has_room(size)
        if (pressure and self._under_pressure()) or not committer.has_room(size):
            return False
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
        return True

    def _drop_oldest(self, count: int, size: int) -> None:
        while not self._fits(count, size) and self.has_ready():
            record = self.claim_head()
            self._bytes -= len(record.payload)
            self.dropped.append(removal_of(record))
            self.gone(record)
        if not self.has_ready():
            self.read_on()

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
        await self._wait_for_room((count, size))

    def _store(
        self,
        payloads: Sequence[bytes],
        attributes: Attributes | None,
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
        committer = self._committer
        if attributes is not None:
            committer.waiting_bytes += self.attach(first, len(payloads), attributes)
        if attributes is not None or self.sets_all_aside:
            self.set_aside(first, payloads, moment, attributes, shown=level == MEMORY)
        if self.options.max_bytes is not None:
            self._bytes += sum(map(len, payloads))
        if size:
            committer.waiting_bytes += self.count_known(len(payloads), size, item_bytes)
        elif level > MEMORY or len(payloads[0]) > SMALL_BYTES:
            committer.waiting_bytes += self.count_tail()
        if level == MEMORY:
            self.touch()
        if self._putters and self._has_room():
            # One take of many records woke one of us: the next one follows.
            self._wake_putter()
        if level == MEMORY:
            if self._takers and not self.strong_upto:
                wake_one(self._takers)
            elif self.fast and (attributes is None or attributes.deliver_at):
                # Whoever gives other attributes comes here with the next one as well.
                self._open_puts()
        return first, moment

    def _open_puts(self) -> None:
        """Let the next few puts of this turn pass without a look."""
        if self.strong_upto or self._takers or not self.takes_plain_bytes:
            return
        count, options = self.window, self.options
        if len(self.tail) < options.buffer_size:
            # The one that fills the buffer must be looked at.
            count = min(count, options.buffer_size - len(self.tail) - 1)
        self._append = self.tail.append
        self.open_puts(min(count, self._room_left()))
        self._committer.open_window(self)

    def _room_left(self) -> int:
        """How many records may come before a limit must be looked at."""
        options, room = self.options, WINDOW_MAX
        if options.maxsize is not None:
            room = min(room, options.maxsize - self._depth())
        if options.pressure_high is not None:
            room = min(room, options.pressure_high - self._depth())
        return room

    def _waiter(self, first: int, count: int, level: int) -> Waiter:
        waiter = Waiter(self._new_future(), self, first, count)
        self._committer.wait_for(self, waiter, level)
        return waiter

    async def _committed(self, first: int, count: int, level: int) -> None:
        waiter = self._waiter(first, count, level)
        if (
            count == 1
            and level == self.level
            and self.strong_first
            and self.strong_upto == self.next - 1
            and self.takes_plain_bytes
            and self.options.max_bytes is None
        ):
            # It is in the tail, not sealed at once: others of this turn may share its frame.
            self._open_strong_puts()
        await self._outcome(waiter)

    async def _outcome(self, waiter: Waiter) -> None:
        """Until the commit; what is not sealed when the caller leaves is taken back."""
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            self.take_back(waiter)
            raise

    def _open_strong_puts(self) -> None:
        """Let the next few puts of this turn share the frame of this one without a look."""
        self._append = self.tail.append
        self.strong_limit = self.next + min(WINDOW_MAX, self._room_left())
        self._committer.open_window(self)

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

    async def below_pressure(self) -> None:
        """Return once the queue is not under pressure (at once if it never is)."""
        while True:
            self._committer.require_usable()
            if not self._under_pressure():
                return
            await self._wait_for_room(None)
            # We only looked: whoever waits to put goes on.
            self._wake_putter()
