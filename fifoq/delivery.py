"""What a lease gives: deliveries, one or many, and the block that holds them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fifoq.attributes import Attributes
from fifoq.codec import decode_headers
from fifoq.errors import nothing_came
from fifoq.runs import Returned
from store import FifoqError, Key

T = TypeVar("T")

if TYPE_CHECKING:
    from fifoq.lease import Leases
    from fifoq.queue import Queue
else:
    # They import this module; `help` and `inspect.signature` want to know what they are.
    class Leases(Generic[T]):
        """The leases of a queue."""

    class Queue(Generic[T]):
        """A queue; see `fifoq.Queue`."""


EXTENDED_SECONDS_MAX: Final = 12 * 3600
"""A lease in an `async with` is extended up to here; a handler that hangs gives its record back."""


class Done:
    """What a call gives that has had its effect: it may be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Final = Done()


class Delivery(msgspec.Struct, Generic[T], eq=False):
    """A leased record. `ack` it when it is done, `nack` it to give it back."""

    _leases: Leases[T]
    _counter: int
    _time: int
    _payload: bytes
    item: T
    attempt: int
    deadline: float
    _attributes: Attributes | None = None
    keeper: Keeper | None = None
    state: str = "leased"

    def __repr__(self) -> str:
        return f"<Delivery {self._counter} attempt={self.attempt} {self.state}>"

    @property
    def key(self) -> Key:
        return Key(self._counter, self._time)

    @property
    def headers(self) -> dict[str, str]:
        return decode_headers(self._attributes.headers if self._attributes else None)

    async def ack(self) -> bool:
        """The record is done for good; committed at the queue's durability on return.

        False if it was acked before. StaleLease if the lease has ended: nothing was changed.
        Cancelled, it is applied or not, and may be repeated.
        """
        leases = self._leases
        queue, counter = leases.queue, self._counter
        if queue.acks_pass and self.state == "leased":
            del leases.held[counter]
            self.state = "acked"
            # Not the delivery: whatever it holds is free from now on.
            leases.acked[counter] = len(self._payload)
            queue.bias -= 1
            return True
        return await leases.ack(self)

    def nack(self, *, delay: float | None = None) -> Done:
        """Give the record back to its place, for another attempt. StaleLease as for `ack`.

        It waits there for `delay` seconds, or as long as the queue's `retry_backoff` says, unless
        the store is opened anew before. It may be awaited, as `ack` must be, but need not.
        """
        self._leases.nack(self, delay=delay)
        return DONE

    async def reject(self, reason: str = "", *, error: BaseException | None = None) -> None:
        """The record goes to the dead letters of its queue, in one commit with its removal.

        It is committed at the queue's durability on return. The reason, and the error with its
        traceback, go along in headers. DiskFull: nothing happened, the record is leased as before;
        cancelled, it is moved or not. StaleLease as for `ack`. ValueError in a queue of dead
        letters: there is no other place for them.
        """
        await self._leases.reject(self, reason, error)

    def extend(self, seconds: float) -> Done:
        """Let the lease end `seconds` from now. StaleLease if it has ended. May be awaited."""
        self._leases.extend(self, seconds)
        return DONE

    def record(self) -> Returned:
        """The record as it goes back to its place."""
        return Returned(self._counter, self._time, self._payload, self._attributes)


class Keeper:
    """Extends a lease while the `async with` block that has it runs."""

    __slots__ = ("ends", "seconds")

    def __init__(self, seconds: float, ends: float) -> None:
        self.seconds = seconds
        self.ends = ends


class Leasing(msgspec.Struct, Generic[T], eq=False):
    """What `Queue.lease` gives: await it for a Delivery, or enter it with `async with`."""

    _queue: Queue[T]
    _seconds: float | None
    _timeout: float | None
    _auto_extend: bool
    _delivery: Delivery[T] | None = None

    def __await__(self) -> Generator[Any, None, Delivery[T]]:
        queue = self._queue
        head = queue.head
        if head < queue.lease_limit and self._seconds is None:
            queue.head = queue.taken_from = head + 1
            queue.bias += 1
            leases = queue.leasing
            payload: Any = queue.ready.popleft()
            delivery = leases.held[head] = Delivery(
                leases, head, leases.window_time, payload, payload, 1, leases.window_deadline
            )
            leases.given.append(head)
            return delivery
        return (yield from self._lease().__await__())

    async def _lease(self) -> Delivery[T]:
        queue = self._queue
        if self._timeout is None:
            return await queue.leasing.lease(self._seconds)
        try:
            async with asyncio.timeout(self._timeout):
                return await queue.leasing.lease(self._seconds)
        except TimeoutError:
            raise nothing_came(queue.name, self._timeout) from None

    async def __aenter__(self) -> Delivery[T]:
        delivery = await self.start()
        self.keep()
        return delivery

    async def start(self) -> Delivery[T]:
        """Lease the record that `keep` and the exit are about."""
        self._delivery = await self._lease()
        return self._delivery

    def of(self, delivery: Delivery[T]) -> Leasing[T]:
        """The same for a record that is leased already."""
        return msgspec.structs.replace(self, _delivery=delivery)

    def keep(self) -> None:
        """Have the lease extended from now on, if it is to be."""
        delivery = self._delivery
        assert delivery is not None
        if self._auto_extend:
            seconds = self._queue.leasing.term(self._seconds)
            delivery.keeper = Keeper(seconds, delivery.deadline + EXTENDED_SECONDS_MAX)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        delivery = self._delivery
        assert delivery is not None
        delivery.keeper = None
        if delivery.state != "leased":
            return
        if kind is None:
            await delivery.ack()
        else:
            # The error of the block goes on, also when the store is gone.
            with contextlib.suppress(FifoqError):
                delivery._leases.nack(delivery, error)


class LeasingMany(msgspec.Struct, Generic[T], eq=False):
    """What `Queue.lease_many` gives: await it for deliveries, or enter it with `async with`."""

    _queue: Queue[T]
    _count: int
    _seconds: float | None
    _timeout: float | None
    _max_bytes: int | None
    _auto_extend: bool
    _deliveries: list[Delivery[T]] = []

    def __await__(self) -> Generator[Any, None, list[Delivery[T]]]:
        return self.start().__await__()

    async def start(self) -> list[Delivery[T]]:
        """Lease the records that `keep` and the exit are about."""
        leasing = self._queue.leasing
        try:
            async with asyncio.timeout(self._timeout):
                self._deliveries = await leasing.lease_many(
                    self._count, self._seconds, self._max_bytes
                )
        except TimeoutError:
            raise nothing_came(self._queue.name, self._timeout) from None
        return self._deliveries

    async def __aenter__(self) -> list[Delivery[T]]:
        await self.start()
        self.keep()
        return self._deliveries

    def keep(self) -> None:
        """Have the leases extended from now on, if they are to be."""
        if self._auto_extend:
            seconds = self._queue.leasing.term(self._seconds)
            for delivery in self._deliveries:
                delivery.keeper = Keeper(seconds, delivery.deadline + EXTENDED_SECONDS_MAX)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for delivery in self._deliveries:
            delivery.keeper = None
        left = [delivery for delivery in self._deliveries if delivery.state == "leased"]
        if kind is None:
            await self._queue.leasing.ack_many(left)
            return
        # The error of the block goes on, also when the store is gone.
        with contextlib.suppress(FifoqError):
            for delivery in left:
                delivery._leases.nack(delivery, error)
