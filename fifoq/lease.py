"""Leases: records that are handed out until they are acked, or come back to their place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fifoq.codec import decode_headers
from fifoq.errors import StaleLease
from fifoq.jobs import Waiter
from fifoq.line import Returned, removal_of
from fifoq.options import MEMORY, OS
from store import Key

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

SCAN_SECONDS_PER_LEASE: Final = 1e-6
"""Looking for ended leases is put off this long for each one that is out."""
EXTENDED_SECONDS_MAX: Final = 12 * 3600
"""A lease in an `async with` is extended up to here; a handler that hangs gives its record back."""


class Delivery(Generic[T]):
    """A leased record. `ack` it when it is done, `nack` it to give it back."""

    __slots__ = ("_leases", "_record", "attempt", "deadline", "item", "keeper", "key", "state")

    def __init__(
        self, leases: Leases[T], record: Returned, item: T, attempt: int, deadline: float
    ) -> None:
        self._leases = leases
        self._record = record
        self.item = item
        self.key = Key(record.counter, record.time)
        self.attempt = attempt
        self.deadline = deadline
        self.keeper: _Keeper | None = None
        self.state = "leased"

    def __repr__(self) -> str:
        return f"<Delivery {self.key.counter} attempt={self.attempt} {self.state}>"

    @property
    def headers(self) -> dict[str, str]:
        return decode_headers(self._record.headers)

    async def ack(self) -> bool:
        """The record is done for good; committed at the queue's durability on return.

        False if it was acked before. StaleLease if the lease has ended: nothing was changed.
        Cancelled, it is applied or not, and may be repeated.
        """
        return await self._leases.ack(self, self._record)

    def nack(self) -> None:
        """Give the record back to its place, for another attempt. StaleLease as for `ack`."""
        self._leases.nack(self, self._record)

    def extend(self, seconds: float) -> None:
        """Let the lease end `seconds` from now. StaleLease if it has ended."""
        self._leases.extend(self, seconds)


class _Keeper:
    """Extends a lease while the `async with` block that has it runs."""

    __slots__ = ("ends", "seconds")

    def __init__(self, seconds: float, ends: float) -> None:
        self.seconds = seconds
        self.ends = ends


class Leasing(Generic[T]):
    """What `Queue.lease` gives: await it for a Delivery, or enter it with `async with`."""

    __slots__ = ("_auto_extend", "_delivery", "_leases", "_queue", "_seconds", "_timeout")

    def __init__(
        self,
        queue: Queue[T],
        leases: Leases[T],
        seconds: float,
        timeout: float | None,
        auto_extend: bool,
    ) -> None:
        self._queue = queue
        self._leases = leases
        self._seconds = seconds
        self._timeout = timeout
        self._auto_extend = auto_extend
        self._delivery: Delivery[T] | None = None

    def __await__(self) -> Generator[Any, None, Delivery[T]]:
        return self._lease().__await__()

    async def _lease(self) -> Delivery[T]:
        if self._timeout is None:
            return await self._leases.lease(self._seconds)
        async with asyncio.timeout(self._timeout):
            return await self._leases.lease(self._seconds)

    async def __aenter__(self) -> Delivery[T]:
        delivery = self._delivery = await self._lease()
        if self._auto_extend:
            ends = delivery.deadline + EXTENDED_SECONDS_MAX
            delivery.keeper = _Keeper(self._seconds, ends)
        return delivery

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        delivery = self._delivery
        assert delivery is not None
        delivery.keeper = None
        if delivery.state != "leased":
            return
        if kind is None:
            await delivery.ack()
        else:
            delivery.nack()


class Leases(Generic[T]):
    """The leases of one queue that are out."""

    __slots__ = ("_attempts", "_committer", "_held", "_queue", "_timer", "_timer_at")

    def __init__(self, queue: Queue[T], committer: Committer, attempts: dict[int, int]) -> None:
        self._queue = queue
        self._committer = committer
        self._attempts = attempts
        self._held: dict[int, Delivery[T]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def count(self) -> int:
        return len(self._held)

    async def lease(self, seconds: float) -> Delivery[T]:
        """Hand out the oldest record; waits for one, and for the note of its attempt."""
        queue = self._queue
        while not queue._looks_ready():
            await queue._wait_to_take()
        record = queue.claim_head()
        queue.bias += 1
        counter = record.counter
        attempt = self._attempts.get(counter, 0) + 1
        queue.leases[counter] = attempt
        queue._touch()
        if queue._level != MEMORY:
            await self._note_attempt(record)
        elif queue._takers and queue.has_ready():
            queue.records_went()
        if attempt > 1 or queue._level != MEMORY:
            self._attempts[counter] = attempt
        if queue.delays is not None and attempt == 1:
            queue.note_delay(1, time.time_ns() - record.time)
        deadline = self._committer.loop.time() + seconds
        delivery = Delivery(self, record, queue._codec.decode(record.payload), attempt, deadline)
        self._held[counter] = delivery
        self._watch(deadline)
        return delivery

    async def _note_attempt(self, record: Returned) -> None:
        """Write that the record is about to be handed out; if the caller leaves, it is not."""
        committer, queue = self._committer, self._queue
        waiter = Waiter(committer.loop.create_future(), queue)
        committer.wait(waiter, OS)
        queue.records_went()
        try:
            await waiter.future
        except BaseException:
            queue.leases.pop(record.counter, None)
            self._return(record)
            raise

    async def ack(self, delivery: Delivery[T], record: Returned) -> bool:
        if delivery.state == "acked":
            return False
        self._require_held(delivery)
        queue = self._queue
        del self._held[record.counter]
        delivery.state = "acked"
        self._attempts.pop(record.counter, None)
        queue.leases.pop(record.counter, None)
        queue.acked.append(removal_of(record))
        queue.bias -= 1
        queue._touch()
        if queue._putters:
            queue.records_went()
        if queue._level != MEMORY:
            waiter = Waiter(self._committer.loop.create_future(), queue)
            self._committer.wait(waiter, queue._level)
            await waiter.future
        return True

    def nack(self, delivery: Delivery[T], record: Returned) -> None:
        self._require_held(delivery)
        delivery.state = "nacked"
        self._release(delivery, record)

    def extend(self, delivery: Delivery[T], seconds: float) -> None:
        self._require_held(delivery)
        if not seconds > 0:
            raise ValueError(f"seconds={seconds} is not above 0")
        delivery.deadline = self._committer.loop.time() + seconds
        self._watch(delivery.deadline)

    def _require_held(self, delivery: Delivery[T]) -> None:
        self._committer.require_usable()
        if self._held.get(delivery.key.counter) is not delivery:
            raise StaleLease(
                f"queue {self._queue.name!r}: the lease of record {delivery.key.counter} has ended "
                f"({delivery.state}). Nothing was changed; the record is back in the queue or with "
                f"somebody else. Lease it again."
            )

    def _release(self, delivery: Delivery[T], record: Returned) -> None:
        counter = record.counter
        del self._held[counter]
        self._attempts[counter] = delivery.attempt
        self._return(record)

    def _return(self, record: Returned) -> None:
        queue = self._queue
        queue.look(time.time_ns())
        queue.bias -= 1
        queue.give_back(record)
        queue.records_came()

    # Leases that end.

    def _watch(self, deadline: float) -> None:
        timer = self._timer
        if timer is not None:
            # Not `timer.when()`: uvloop has none on a timer that is due at once.
            if self._timer_at <= deadline:
                return
            timer.cancel()
        self._timer_at = deadline
        self._timer = self._committer.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._committer.failure is not None or self._committer.closed:
            return
        now = self._committer.loop.time()
        earliest: float | None = None
        for delivery in list(self._held.values()):
            self._end_or_extend(delivery, now)
            if delivery.state == "leased" and (earliest is None or delivery.deadline < earliest):
                earliest = delivery.deadline
        if earliest is not None:
            self._watch(max(earliest, now + len(self._held) * SCAN_SECONDS_PER_LEASE))

    def _end_or_extend(self, delivery: Delivery[T], now: float) -> None:
        keeper = delivery.keeper
        if keeper is not None and now < keeper.ends:
            # Half a term early, so that no moment is left without a lease.
            if delivery.deadline <= now + keeper.seconds / 2:
                delivery.deadline = now + keeper.seconds
        elif delivery.deadline <= now:
            delivery.state = "expired"
            self._release(delivery, delivery._record)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
