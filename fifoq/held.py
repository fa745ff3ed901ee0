"""What is leased, and how it comes back without an ack: given back, or at the end of its lease."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fifoq.attributes import check_seconds
from fifoq.burying import Burials
from fifoq.delivery import Delivery
from fifoq.errors import StaleLease
from fifoq.options import MEMORY
from fifoq.runs import Returned

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

SCAN_SECONDS_PER_LEASE: Final = 1e-6
"""Looking for ended leases is put off this long for each one that is out."""
DOUBLINGS_MAX: Final = 64

ENDS: Final = {
    "nacked": "it was given back",
    "expired": "its lease ended",
    "rolled back": "its transaction did not ack it",
}
"""What became of the last attempt, by the delivery's state."""


class Held(Generic[T]):
    """The deliveries of one queue that are out, and how often each record was."""

    __slots__ = (
        "_attempts",
        "_committer",
        "_timer",
        "_timer_at",
        "burials",
        "held",
        "leaving",
        "queue",
    )

    def __init__(self, queue: Queue[T], committer: Committer, attempts: dict[int, int]) -> None:
        self.queue = queue
        self._committer = committer
        self._attempts = attempts
        self.burials = Burials(queue)
        self.held: dict[int, Delivery[T]] = {}
        self.leaving: set[int] = set()
        """Counters that a commit of several queues is about to remove: nobody holds them."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def holds(self, counter: int) -> bool:
        """Whether a record is in somebody's hands, or on its way to the dead letters."""
        return counter in self.held or counter in self.leaving

    @property
    def count(self) -> int:
        # What is in a frame that is under way counts in the size of the queue no more.
        return len(self.held) + len(self.leaving) - self.queue.departed

    def term(self, seconds: float | None) -> float:
        return self.queue.options.lease_seconds if seconds is None else seconds

    def attempts_of(self, counter: int) -> int:
        """How often a record that is not leased was."""
        return self._attempts.get(counter, 0)

    def note(self, counter: int, attempts: int) -> None:
        """A record that is not leased was handed out that often, to be written."""
        self._attempts[counter] = self.queue.leases[counter] = attempts

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

    # Given back.

    def give_up(self, delivery: Delivery[T], error: BaseException | None) -> None:
        """The transaction that leased the record was rolled back, or did not ack it."""
        if self._committer.usable and self.held.get(delivery._counter) is delivery:
            delivery.state = "rolled back"
            self._release(delivery, error)

    def nack(
        self,
        delivery: Delivery[T],
        error: BaseException | None = None,
        delay: float | None = None,
    ) -> None:
        self._require_held(delivery)
        if delay is not None:
            check_seconds("delay", delay, "Nothing was changed.")
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
        check_seconds("seconds", seconds, "Nothing was changed.", above=True)
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
