"""Leases of a cursor: how its members share it.

A record is leased to one member at a time. It comes back when the lease ends, when it is nacked,
and when the task that leased it has ended, so that the others never wait for one that is gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from fifoq.delivery import Delivery
from fifoq.lease import Leases
from fifoq.reading import Reading

if TYPE_CHECKING:
    from fifoq.queue import Queue

T = TypeVar("T")

LEASED_MAX: Final = 4096
"""Records of one cursor that may be leased at a time; with that, what it keeps is bounded."""


class CursorLeases(Leases[T]):
    """The leases of one cursor that are out."""

    __slots__ = ("_members", "_owners", "_pauses", "_reading")

    def __init__(self, reading: Reading[T]) -> None:
        # What a lease asks its queue for is its name, its options and nothing else.
        super().__init__(cast("Queue[T]", reading), reading.committer, {})
        self._reading = reading
        self._members: dict[asyncio.Task[Any], set[int]] = {}
        """What each task has leased that has not ended."""
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        """Records that were nacked and wait for another attempt."""
        self._owners: dict[int, asyncio.Task[Any]] = {}
        reading.on_moved = self._forget_all

    async def lease(self, seconds: float | None) -> Delivery[T]:
        """Hand out the next record; waits for one."""
        reading = self._reading
        await reading.wait(self._may_lease)
        record, item = reading.claim()
        counter = record.counter
        reading.records.lease_out(record)
        attempt = self._attempts.get(counter, 0) + 1
        deadline = self._committer.loop.time() + self.term(seconds)
        delivery = self.held[counter] = Delivery(
            self, counter, record.time, record.payload, item, attempt, deadline, record.attributes
        )
        self._join(counter)
        self._watch(deadline)
        reading.pass_on()
        return delivery

    def _may_lease(self) -> bool:
        return len(self._reading.records.out) < LEASED_MAX

    async def ack(self, delivery: Delivery[T]) -> bool:
        first = delivery.state != "acked"
        if first:
            self._require_held(delivery)
            delivery.state = "acked"
            self._leave(delivery)
            self._attempts.pop(delivery._counter, None)
            self._reading.finish(delivery._counter)
        if not self._committer.closing:
            await self._reading.commit()
        return first

    def require_removes(self) -> None:
        raise ValueError(
            f"cursor of queue {self.queue.name!r}: it removes nothing, so what it leased can be "
            f"neither rejected nor settled in a transaction. Nothing was changed. Ack it."
        )

    def _release(
        self, delivery: Delivery[T], error: BaseException | None = None, delay: float = 0.0
    ) -> None:
        """The record is back at its place after `delay` seconds; others pass it meanwhile."""
        counter = delivery._counter
        self._leave(delivery)
        self._attempts[counter] = delivery.attempt
        if delay:
            # Its ordering key stays busy: nothing of it may come before the record.
            self._pauses[counter] = self._committer.loop.call_later(delay, self._back, counter)
        else:
            self._reading.give_back(counter)

    def _back(self, counter: int) -> None:
        del self._pauses[counter]
        self._reading.give_back(counter)

    def stop(self) -> None:
        super().stop()
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()

    def _leave(self, delivery: Delivery[T]) -> None:
        """The record is with nobody any more."""
        counter = delivery._counter
        del self.held[counter]
        task = self._owners.pop(counter, None)
        if task is not None:
            self._members[task].discard(counter)

    def _forget_all(self) -> None:
        """The cursor was moved: what is out is of no interest any more."""
        for delivery in self.held.values():
            delivery.state = "moved"
        self.stop()
        self.held.clear()
        self._attempts.clear()
        self._owners.clear()
        for counters in self._members.values():
            counters.clear()

    # Members.

    def _join(self, counter: int) -> None:
        """The record is with the task that runs, as long as that does."""
        task = asyncio.current_task()
        if task is None:
            return
        if task not in self._members:
            self._members[task] = set()
            task.add_done_callback(self._ended)
        self._members[task].add(counter)
        self._owners[counter] = task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Hand over what the task had, unless that is what it returned to somebody."""
        counters = self._members.pop(task, set())
        # Not `task.result()`, nor `exception()`: then asyncio would take the error of a task that
        # nobody waits for as seen, and never tell of it.
        given: object = getattr(task, "_result", None)
        for counter in sorted(counters):
            del self._owners[counter]
            delivery = self.held.get(counter)
            if delivery is None or delivery is given or self._committer.failure is not None:
                continue
            if isinstance(given, list | tuple) and any(part is delivery for part in given):
                continue
            delivery.state = "left"
            self._release(delivery)
