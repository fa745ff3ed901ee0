"""Leases: records that are handed out until they are acked, or come back to their place."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fifoq.attributes import SECONDS_MAX, Attributes
from fifoq.burying import Burials, burial, refuse_burial
from fifoq.codec import decode_headers
from fifoq.errors import StaleLease
from fifoq.jobs import Waiter
from fifoq.options import MEMORY, OS
from fifoq.runs import Removals, Returned
from store import FifoqError, Key
from store.blocks import records_weight

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

SCAN_SECONDS_PER_LEASE: Final = 1e-6
"""Looking for ended leases is put off this long for each one that is out."""
DOUBLINGS_MAX: Final = 64
EXTENDED_SECONDS_MAX: Final = 12 * 3600
"""A lease in an `async with` is extended up to here; a handler that hangs gives its record back."""


ENDS: Final = {
    "nacked": "it was given back",
    "expired": "its lease ended",
    "rolled back": "its transaction did not ack it",
}
"""What became of the last attempt, by the delivery's state."""
NEVER_BACK: Final = "whoever leased it last never gave it back"
"""Why a record is buried that somebody wants to lease once more than it may be."""


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
    keeper: _Keeper | None = None
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
        counter = self._counter
        if leases.acks_pass and leases.held.get(counter) is self:
            del leases.held[counter]
            self.state = "acked"
            leases.acked.append(self)
            leases.queue.bias -= 1
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


class _Keeper:
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
        async with asyncio.timeout(self._timeout):
            return await queue.leasing.lease(self._seconds)

    async def __aenter__(self) -> Delivery[T]:
        delivery = await self.start()
        self.keep()
        return delivery

    async def start(self) -> Delivery[T]:
        """Lease the record that `keep` and the exit are about."""
        self._delivery = await self._lease()
        return self._delivery

    def keep(self) -> None:
        """Have the lease extended from now on, if it is to be."""
        delivery = self._delivery
        assert delivery is not None
        if self._auto_extend:
            seconds = self._queue.leasing.term(self._seconds)
            delivery.keeper = _Keeper(seconds, delivery.deadline + EXTENDED_SECONDS_MAX)

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


class Leases(Generic[T]):
    """The leases of one queue that are out."""

    __slots__ = (
        "_attempts",
        "_committer",
        "_timer",
        "_timer_at",
        "_window_now",
        "_window_start",
        "acked",
        "acks_pass",
        "burials",
        "given",
        "held",
        "leaving",
        "noting",
        "queue",
        "window_deadline",
        "window_time",
    )

    def __init__(self, queue: Queue[T], committer: Committer, attempts: dict[int, int]) -> None:
        self.queue = queue
        self._committer = committer
        self._attempts = attempts
        self.burials = Burials(queue)
        self.held: dict[int, Delivery[T]] = {}
        self.noting: set[int] = set()
        """Counters whose attempt is being written: they are about to be handed out."""
        self.leaving: set[int] = set()
        """Counters that a commit of several queues is about to remove: nobody holds them."""
        self.given: list[int] = []
        """Counters that were handed out since the last commit."""
        self.acked: list[Delivery[T]] = []
        """Deliveries that were acked since the last commit."""
        self.acks_pass = False
        """An ack may pass without a look, until the loop turns."""
        self.window_time = self._window_now = 0
        self.window_deadline = 0.0
        self._window_start = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def count(self) -> int:
        return len(self.held) + len(self.leaving)

    def term(self, seconds: float | None) -> float:
        return self.queue.options.lease_seconds if seconds is None else seconds

    async def lease(self, seconds: float | None) -> Delivery[T]:
        """Hand out the oldest record; waits for one, and for the note of its attempt."""
        queue = self.queue
        while True:
            while not queue.looks_ready():
                await queue.wait_to_take()
            item = queue.decoded_head()
            record = queue.claim_head()
            queue.bias += 1
            queue.key_out(record)
            counter = record.counter
            attempt = self._attempts.get(counter, 0) + 1 if self._attempts else 1
            if attempt == 1 or self.burials.allowed(attempt - 1):
                break
            # Nobody gave it back: whoever had it last died with it.
            self.burials.begin(record, "max-retries", attempts=attempt - 1, reason=NEVER_BACK)
        if attempt == 1:
            queue.note_delay(1, time.time_ns() - record.time)
        queue.touch()
        # Of this step: the level may be another one when the note is written.
        in_memory = queue.level == MEMORY
        if in_memory:
            queue.records_went()
        else:
            queue.leases[counter] = attempt
            await self._note_attempt(record)
        deadline = self._committer.loop.time() + self.term(seconds)
        delivery = self.held[counter] = Delivery(
            self, counter, record.time, record.payload, item, attempt, deadline, record.attributes
        )
        if in_memory:
            self._note_window()
            self.given.append(counter)
            self._window_start += 1
            if seconds is None:
                self._open_window(deadline)
        self._watch(deadline)
        return delivery

    def _open_window(self, deadline: float) -> None:
        """Let the next few leases of this turn pass without a look."""
        queue = self.queue
        if queue.returned or queue.attributes or self._attempts:
            return
        if not queue.fast or queue.codec.typed:
            return
        # What was taken from the run is noted first: leases in the window pass over it.
        queue.close_run()
        self._note_window()
        self._window_start, self._window_now = len(self.given), time.time_ns()
        self.window_deadline = deadline
        limit, self.window_time = queue.same_time_until(queue.head + queue.window)
        queue.lease_limit = limit
        self.acks_pass = not queue.has_putters
        self._committer.open_window(queue)

    def _note_window(self) -> None:
        """Count the delays of what the last window handed out."""
        count = len(self.given) - self._window_start
        if count > 0:
            self.queue.note_delay(count, self._window_now - self.window_time)
        self._window_start = len(self.given)

    async def _note_attempt(self, record: Returned) -> None:
        """Write that the record is about to be handed out; if the caller leaves, it is not."""
        committer, queue = self._committer, self.queue
        waiter = Waiter(committer.loop.create_future(), queue, first=record.counter)
        committer.wait(waiter, OS)
        self.noting.add(record.counter)
        queue.records_went()
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            if queue.leases.pop(record.counter, None) is None:
                # It is in a frame already: the next one says that it was no attempt.
                queue.leases[record.counter] = self._attempts.get(record.counter, 0)
            self._return(record)
            raise
        finally:
            self.noting.discard(record.counter)

    async def ack(self, delivery: Delivery[T]) -> bool:
        if delivery.state == "acked":
            await self._ack_committed(delivery)
            return False
        self._require_held(delivery)
        queue = self.queue
        lease_limit = queue.lease_limit
        queue.taken_time = now = time.time_ns()
        queue.look(now)
        counter = delivery._counter
        del self.held[counter]
        delivery.state = "acked"
        self.acked.append(delivery)
        queue.bias -= 1
        self._gone(delivery)
        queue.bytes_went(len(delivery._payload))
        queue.touch()
        queue.records_went()
        if queue.level == MEMORY:
            if not (self._attempts or queue.has_putters) and queue.fast:
                # Leases do not change the size: their window may stay open beside this one.
                self.acks_pass = True
                queue.lease_limit = lease_limit
                self._committer.open_window(queue)
            return True
        waiter = Waiter(self._committer.loop.create_future(), queue, first=counter)
        self._committer.wait(waiter, queue.level)
        await waiter.future
        return True

    async def _ack_committed(self, delivery: Delivery[T]) -> None:
        """Wait for an ack whose first caller may have left before it was committed."""
        queue = self.queue
        if queue.level != MEMORY and not self._committer.closing:
            waiter = Waiter(self._committer.loop.create_future(), queue, first=delivery._counter)
            queue.touch()
            self._committer.wait(waiter, queue.level)
            await waiter.future

    def attempts_of(self, counter: int) -> int:
        """How often a record that is not leased was."""
        return self._attempts.get(counter, 0)

    def _gone(self, delivery: Delivery[T]) -> None:
        self.forget(delivery._counter)
        if self.queue.keys_out:
            self.queue.key_in(delivery._counter, delivery._attributes)

    def forget(self, first: int, last: int = 0) -> None:
        """The record is gone: how often it was leased is of no interest any more.

        With `last`, the same for all from the first on.
        """
        attempts = self._attempts
        if attempts and first < last:
            for counter in [c for c in attempts if first <= c <= last]:
                del attempts[counter]
        elif attempts:
            attempts.pop(first, None)

    def hand_over(self) -> None:
        """Give what happened since the last commit to the queue's next batch."""
        queue, held = self.queue, self.held
        self._note_window()
        for counter in self.given:
            if counter in held:
                queue.leases[counter] = held[counter].attempt
        self.given.clear()
        self._window_start = 0
        for delivery in self.acked:
            queue.leases.pop(delivery._counter, None)
        queue.acked += removals_of(self.acked)
        self.acked.clear()

    def remove_upto(self, upto: int) -> Removals:
        """End the leases of records up to a counter, which are to be removed; says what they were.

        Whoever has one of them gets StaleLease from now on.
        """
        gone = [self.held[counter] for counter in sorted(self.held) if counter <= upto]
        if gone:
            # First what was handed out and acked before, so that only these are left to forget.
            self.hand_over()
        queue = self.queue
        for delivery in gone:
            counter = delivery._counter
            del self.held[counter]
            delivery.state = "removed"
            queue.leases.pop(counter, None)
            self._gone(delivery)
        queue.bias -= len(gone)
        return removals_of(gone)

    # Records that go with a joint.

    def require_removes(self) -> None:
        """ValueError unless an ack removes the record."""

    def part_with(self, delivery: Delivery[T]) -> Returned:
        """A joint is to remove the record: whoever leased it can do nothing until that has ended.

        Then comes `parted`, or `take_back` if nothing of it happened.
        """
        self._require_held(delivery)
        self.queue.look(time.time_ns())
        self.hand_over()
        del self.held[delivery._counter]
        self.leaving.add(delivery._counter)
        delivery.state = "committing"
        return delivery.record()

    def parted(self, delivery: Delivery[T], state: str) -> None:
        delivery.state = state
        self.leaving.discard(delivery._counter)
        self._gone(delivery)

    def take_back(self, delivery: Delivery[T]) -> None:
        self.leaving.discard(delivery._counter)
        self.held[delivery._counter] = delivery
        delivery.state = "leased"
        self._watch(delivery.deadline)

    def give_up(self, delivery: Delivery[T], error: BaseException | None) -> None:
        """The transaction that leased the record was rolled back, or did not ack it."""
        if self._committer.usable and self.held.get(delivery._counter) is delivery:
            delivery.state = "rolled back"
            self._release(delivery, error)

    async def reject(self, delivery: Delivery[T], reason: str, error: BaseException | None) -> None:
        self.require_removes()
        self._require_held(delivery)
        queue = self.queue
        refuse_burial(queue.name, reason)
        record = self.part_with(delivery)
        joint = burial(
            queue, record, "rejected", attempts=delivery.attempt, reason=reason, error=error
        )

        def done() -> None:
            self.burials.moved(record)
            delivery.state = "dead-lettered"

        joint.done, joint.undone = done, lambda _: self.take_back(delivery)
        await self._committer.joints.commit(joint)

    def nack(
        self,
        delivery: Delivery[T],
        error: BaseException | None = None,
        delay: float | None = None,
    ) -> None:
        self._require_held(delivery)
        if delay is not None and not 0 <= delay <= SECONDS_MAX:
            raise ValueError(f"delay={delay} is not 0 or more. Nothing was changed.")
        delivery.state = "nacked"
        pause = self._backoff(delivery.attempt) if delay is None else delay
        self._release(delivery, error, pause)

    def _backoff(self, attempt: int) -> float:
        """How long a record waits after that many attempts: twice as long each time, about."""
        options = self.queue.options
        doubled = options.retry_backoff * 2.0 ** min(attempt - 1, DOUBLINGS_MAX)
        # Records that failed together are not tried together.
        return min(doubled, options.retry_backoff_max) * (0.5 + random.random() / 2)

    def extend(self, delivery: Delivery[T], seconds: float) -> None:
        self._require_held(delivery)
        if not seconds > 0:
            raise ValueError(f"seconds={seconds} is not above 0")
        delivery.deadline = self._committer.loop.time() + seconds
        self._watch(delivery.deadline)

    def _require_held(self, delivery: Delivery[T]) -> None:
        self._committer.require_usable()
        if self.held.get(delivery._counter) is not delivery:
            where = (
                "it is done"
                if delivery.state in ("acked", "removed", "dead-lettered")
                else "a transaction that is being committed has it"
                if delivery.state == "committing"
                else "it is back in the queue or with somebody else; lease it again"
            )
            raise StaleLease(
                f"queue {self.queue.name!r}: the lease of record {delivery._counter} has ended "
                f"({delivery.state}). Nothing was changed: {where}."
            )

    def _release(
        self, delivery: Delivery[T], error: BaseException | None = None, delay: float = 0.0
    ) -> None:
        del self.held[delivery._counter]
        self._attempts[delivery._counter] = delivery.attempt
        if self.queue.level == MEMORY:
            # The attempt counts, however short it was.
            self.queue.leases[delivery._counter] = delivery.attempt
        if self.burials.allowed(delivery.attempt):
            if delay:
                self.queue.hold_back(delivery.record(), int(delay * 1e9))
                self.queue.touch()
            else:
                self._return(delivery.record())
            return
        reason = "" if error is not None else ENDS[delivery.state]
        delivery.state = "dead-lettered"
        self.burials.begin(
            delivery.record(), "max-retries", attempts=delivery.attempt, reason=reason, error=error
        )

    def _return(self, record: Returned) -> None:
        queue = self.queue
        queue.come_back(record)
        queue.touch()
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
        for delivery in list(self.held.values()):
            self._end_or_extend(delivery, now)
            if delivery.state == "leased" and (earliest is None or delivery.deadline < earliest):
                earliest = delivery.deadline
        if earliest is not None:
            self._watch(max(earliest, now + len(self.held) * SCAN_SECONDS_PER_LEASE))

    def _end_or_extend(self, delivery: Delivery[T], now: float) -> None:
        keeper = delivery.keeper
        if keeper is not None and now < keeper.ends:
            # Half a term early, so that no moment is left without a lease.
            if delivery.deadline <= now + keeper.seconds / 2:
                delivery.deadline = now + keeper.seconds
        elif delivery.deadline <= now:
            delivery.state = "expired"
            self._release(delivery)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def removals_of(acked: list[Delivery[Any]]) -> Removals:
    """Counter ranges with their weights; few, since acks mostly come in order."""
    if not acked:
        return []
    first, last = acked[0]._counter, acked[-1]._counter
    counters = [delivery._counter for delivery in acked]
    if counters == list(range(first, last + 1)):
        size = sum([len(delivery._payload) for delivery in acked])
        return [(first, last, records_weight(size, len(acked)))]
    return [
        (counter, counter, records_weight(len(delivery._payload), 1))
        for counter, delivery in zip(counters, acked, strict=True)
    ]
