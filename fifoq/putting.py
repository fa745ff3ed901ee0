"""Putting: how records come into a queue.

The common case of a put is a few instructions; everything that is rare (limits, levels, time,
waiting) is behind one comparison.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar, Unpack

from fifoq.admitting import Admitting
from fifoq.attributes import (
    NONE,
    PRIORITY_DEFAULT,
    Attributes,
    PutKeywords,
    RecordKeywords,
    attributes_from,
)
from fifoq.dedup import Dedup, Place, digest_of
from fifoq.errors import QueueClosed
from fifoq.jobs import Waiter
from fifoq.joint import Joint
from fifoq.keys import Keys
from fifoq.member import SMALL_BYTES
from fifoq.once import put_many_once, put_once, put_once_now
from fifoq.options import LEVELS, MEMORY, SYNC, Durability
from fifoq.places import WINDOW_MAX
from fifoq.receipt import Receipt
from fifoq.runs import COLUMN_BYTES
from fifoq.turns import too_large
from store import ItemTooLarge, Key

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 56 << 20
"""What one `put_many` may hold: it is one frame."""


class Putting(Admitting[T]):
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
            self.tail.append(item)  # type: ignore[arg-type]
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
                self.tail.append(item)  # type: ignore[arg-type]
                self.strong_upto = counter
                self.bias -= 1
                self.hidden += 1
                committer = self._committer
                waiter = Waiter(committer.loop.create_future(), self, counter, 1)
                committer.waiters.append(waiter)
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
        if len(self.tail) > WINDOW_MAX or self._is_out_of_the_ordinary(1, 0):
            return None
        counter = self.next
        self.next = counter + 1
        self.tail.append(item)
        self._hide(counter, 1)
        committer = self._committer
        waiter = Waiter(committer.loop.create_future(), self, counter, 1)
        if len(self.tail) > 1:
            # Whoever comes next in this turn may be one of many.
            self._open_strong_puts()
        committer.wait_for(self, waiter, self.level)
        return waiter

    def _put_strong_many(
        self, payloads: Sequence[bytes], level: int, size: int, item_bytes: int | None
    ) -> Waiter | None:
        """The same for records that were prepared."""
        count = len(payloads)
        if self.sets_all_aside or self._is_out_of_the_ordinary(count, size):
            return None
        committer = self._committer
        first = self.extend(payloads, strong=True)
        committer.waiting_bytes += self.count_known(count, size, item_bytes)
        waiter = Waiter(committer.loop.create_future(), self, first, count)
        committer.wait_for(self, waiter, level)
        return waiter

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
            self.tail.append(item)  # type: ignore[arg-type]
            return Key(counter, self.put_time)
        if options and counter < self.put_limit:
            key = self._put_later(item, options)
            if key is not None:
                return key
        if "dedup_id" in options:
            return put_once_now(self, item, options, level=MEMORY)[0]
        payload, attributes, _ = self._prepare(item, **options)
        if not self._admits(1, len(payload) + COLUMN_BYTES, MEMORY, pressure=False):
            raise self._full(1, len(payload) + COLUMN_BYTES)
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
            raise self._full(1, len(payload) + COLUMN_BYTES)
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

    async def below_pressure(self) -> None:
        """Return once the queue is not under pressure (at once if it never is).

        QueueClosed once it is shut down: it takes no more puts.
        """
        while True:
            self._committer.require_usable()
            if self._shutdown:
                raise self._no_more_puts()
            if not self._under_pressure():
                return
            await self._wait_for_room(None)
            # We only looked: whoever waits to put goes on.
            self._wake_putter()
