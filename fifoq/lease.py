"""Leases: records that are handed out until they are acked, or come back to their place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from fifoq.burying import burial, refuse_burial
from fifoq.delivery import Delivery
from fifoq.held import Held
from fifoq.jobs import Waiter
from fifoq.options import MEMORY, OS
from fifoq.runs import Removals, Returned, removal_of, removals_of

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

NEVER_BACK: Final = "whoever leased it last never gave it back"
"""Why a record is buried that somebody wants to lease once more than it may be."""


class Leases(Held[T]):
    """The leases of one queue that are out."""

    __slots__ = (
        "_window_now",
        "_window_start",
        "acked",
        "given",
        "noting",
        "window_deadline",
        "window_time",
    )

    def __init__(self, queue: Queue[T], committer: Committer, attempts: dict[int, int]) -> None:
        super().__init__(queue, committer, attempts)
        self.noting: set[int] = set()
        """Counters that were claimed and are handed out once their attempt is written."""
        self.given: list[int] = []
        """Counters that were handed out since the last commit."""
        self.acked: dict[int, int] = {}
        """Counters that were acked since the last commit, with the lengths of their payloads."""
        self.window_time = self._window_now = 0
        self.window_deadline = 0.0
        self._window_start = 0

    async def lease(self, seconds: float | None) -> Delivery[T]:
        """Hand out the oldest record; waits for one, and for the note of its attempt."""
        queue = self.queue
        claimed = place = None
        while claimed is None:
            while not queue.looks_ready():
                place = await queue.wait_to_take(place)
            claimed = self._claim()
        record, item, attempt = claimed
        queue.touch()
        # Of this step: the level may be another one when the note is written.
        in_memory = queue.level == MEMORY
        if in_memory:
            queue.records_went()
        else:
            queue.leases[record.counter] = attempt
            await self._note_attempts([record])
        deadline = self._committer.loop.time() + self.term(seconds)
        delivery = self._hold(record, item, attempt, deadline)
        if in_memory:
            self._note_window()
            self.given.append(record.counter)
            self._window_start += 1
            if seconds is None:
                self._open_window(deadline)
        self._watch(deadline)
        return delivery

    async def lease_many(
        self, count: int, seconds: float | None, max_bytes: int | None
    ) -> list[Delivery[T]]:
        """The same for 1 to `count` records, whose attempts are noted in one commit."""
        queue = self.queue
        claimed: list[tuple[Returned, T, int]] = []
        place = None
        while not claimed:
            while not queue.looks_ready():
                place = await queue.wait_to_take(place)
            size = 0
            while len(claimed) < count and queue.has_ready():
                size += len(queue.peek_head() or b"")
                if claimed and (
                    (max_bytes is not None and size > max_bytes) or not queue.decodes_head()
                ):
                    break
                found = self._claim()
                if found is not None:
                    claimed.append(found)
        queue.touch()
        in_memory = queue.level == MEMORY
        if in_memory:
            queue.records_went()
        else:
            queue.leases.update((record.counter, attempt) for record, _, attempt in claimed)
            await self._note_attempts([record for record, _, _ in claimed])
        deadline = self._committer.loop.time() + self.term(seconds)
        deliveries = [self._hold(*one, deadline) for one in claimed]
        if in_memory:
            self._note_window()
            self.given += [record.counter for record, _, _ in claimed]
            self._window_start = len(self.given)
        self._watch(deadline)
        return deliveries

    def _claim(self) -> tuple[Returned, T, int] | None:
        """The oldest record, its item and which attempt this is; None if there must be no other."""
        queue = self.queue
        item = queue.decoded_head()
        record = queue.claim_head()
        queue.bias += 1
        queue.key_out(record)
        attempt = self._attempts.get(record.counter, 0) + 1 if self._attempts else 1
        if attempt == 1:
            queue.note_delay(1, time.time_ns() - record.time)
        elif not self.burials.allowed(attempt - 1):
            # Nobody gave it back: whoever had it last died with it.
            self.burials.begin(record, "max-retries", attempts=attempt - 1, reason=NEVER_BACK)
            return None
        self.noting.add(record.counter)
        return record, item, attempt

    def _hold(self, record: Returned, item: T, attempt: int, deadline: float) -> Delivery[T]:
        counter, moment, payload, attributes = record
        self.noting.discard(counter)
        delivery = self.held[counter] = Delivery(
            self, counter, moment, payload, item, attempt, deadline, attributes
        )
        return delivery

    def _open_window(self, deadline: float) -> None:
        """Let the next few leases of this turn pass without a look."""
        queue = self.queue
        if queue.returned or queue.attributes or self._attempts:
            return
        if not queue.fast or queue.codec.typed or queue.head >= queue.run_end:
            return
        # What was taken from the run is noted first: leases in the window pass over it.
        queue.close_run()
        self._note_window()
        self._window_start, self._window_now = len(self.given), time.time_ns()
        self.window_deadline = deadline
        limit, self.window_time = queue.same_time_until(queue.head + queue.window)
        queue.lease_limit = limit
        queue.acks_pass = not queue.has_putters
        self._committer.open_window(queue)

    def _note_window(self) -> None:
        """Count the delays of what the last window handed out."""
        count = len(self.given) - self._window_start
        if count > 0:
            self.queue.note_delay(count, self._window_now - self.window_time)
        self._window_start = len(self.given)

    async def _note_attempts(self, records: list[Returned]) -> None:
        """Write that records are about to be handed out; if the caller leaves, they are not."""
        committer, queue = self._committer, self.queue
        counters = [record.counter for record in records]
        waiter = Waiter(committer.loop.create_future(), queue, first=max(counters))
        committer.wait(waiter, OS)
        queue.records_went()
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            self.noting.difference_update(counters)
            for record in records:
                if queue.leases.pop(record.counter, None) is None:
                    # It is in a frame already: the next one says that it was no attempt.
                    queue.leases[record.counter] = self._attempts.get(record.counter, 0)
                self._return(record)
            raise

    async def ack(self, delivery: Delivery[T]) -> bool:
        if delivery.state == "acked":
            await self._ack_committed(delivery)
            return False
        self._require_held(delivery)
        queue = self.queue
        lease_limit = queue.lease_limit
        self._note_acks([delivery])
        if queue.level == MEMORY:
            if not (self._attempts or queue.has_putters) and queue.fast:
                # Leases do not change the size: their window may stay open beside this one.
                queue.acks_pass = True
                queue.lease_limit = lease_limit
                self._committer.open_window(queue)
            return True
        waiter = Waiter(self._committer.loop.create_future(), queue, first=delivery._counter)
        self._committer.wait(waiter, queue.level)
        await waiter.future
        return True

    async def ack_many(self, deliveries: Sequence[Delivery[T]]) -> int:
        """Ack several in one commit; says how many were not acked before."""
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise TypeError(
                    f"deliveries has {delivery!r:.80}, which is not a Delivery. Nothing was "
                    f"changed."
                )
            if delivery._leases is not self:
                raise ValueError(
                    f"queue {self.queue.name!r}: record {delivery._counter} was not leased from it "
                    f"but from {delivery._leases.queue.name!r}, or by a cursor. Nothing was "
                    f"changed. Ack it there."
                )
        fresh = [delivery for delivery in deliveries if delivery.state != "acked"]
        for delivery in fresh:
            # All before the first is acked: a stale one must change nothing.
            self._require_held(delivery)
        if len({delivery._counter for delivery in fresh}) < len(fresh):
            raise ValueError("a delivery is among those to be acked twice. Nothing was changed.")
        if fresh:
            self._note_acks(fresh)
        if self.queue.level != MEMORY and deliveries:
            last = max(deliveries, key=lambda delivery: delivery._counter)
            await self._ack_committed(last)
        return len(fresh)

    def _note_acks(self, deliveries: Sequence[Delivery[T]]) -> None:
        """Records are done for good, to be committed."""
        queue = self.queue
        queue.taken_time = now = time.time_ns()
        queue.look(now)
        for delivery in deliveries:
            del self.held[delivery._counter]
            delivery.state = "acked"
            self.acked[delivery._counter] = size = len(delivery._payload)
            queue.bias -= 1
            queue.bytes_went(size)
            self._gone(delivery)
        queue.touch()
        queue.records_went()

    async def _ack_committed(self, delivery: Delivery[T]) -> None:
        """Wait for an ack whose first caller may have left before it was committed."""
        queue = self.queue
        if queue.level != MEMORY and not self._committer.closing:
            waiter = Waiter(self._committer.loop.create_future(), queue, first=delivery._counter)
            queue.touch()
            self._committer.wait(waiter, queue.level)
            await waiter.future

    def hand_over(self) -> None:
        """Give what happened since the last commit to the queue's next batch."""
        queue, held = self.queue, self.held
        self._note_window()
        for counter in self.given:
            if counter in held:
                queue.leases[counter] = held[counter].attempt
        self.given.clear()
        self._window_start = 0
        if queue.leases:
            for counter in self.acked:
                queue.leases.pop(counter, None)
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
        # What a full disk keeps from the dead letters would be waited for as long as it is full.
        put_off = self.burials.give_up(upto)
        for record in put_off:
            self.leaving.discard(record.counter)
            queue.leases.pop(record.counter, None)
            queue.gone(record)
        queue.bias -= len(gone) + len(put_off)
        lengths = {delivery._counter: len(delivery._payload) for delivery in gone}
        return removals_of(lengths) + list(map(removal_of, put_off))

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
