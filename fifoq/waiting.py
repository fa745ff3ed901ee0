"""Waiting: records that are in a queue but that nobody may have yet, and those that are too old.

What waits for its time is on the shelf. A record whose ordering key is out waits until that one is
done. Whoever looks for the oldest record passes these by, and removes on the way what has expired.
"""

from __future__ import annotations

import time
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final, TypeVar

from fifoq.attributes import Attributes
from fifoq.burying import is_dead_letters
from fifoq.fetching import fetched
from fifoq.jobs import Waiter
from fifoq.options import MEMORY
from fifoq.runs import Removals, Returned, removal_of
from fifoq.shelving import DUE_MAX, Shelving
from store import Key, Log
from store.blocks import records_weight
from store.keys import COUNTER_MAX

T = TypeVar("T")

BLOCKED_MAX: Final = 65536
"""So many records with keys that are out are passed by; behind them everybody waits."""


class Waiting(Shelving[T]):
    """The part of a queue that says which record somebody may have."""

    __slots__ = ()

    def waiting_upto(self, upto: int) -> list[int]:
        """Records that wait, for whatever it is, up to a counter; the oldest first."""
        waiting = chain(self.shelf.counters(), self.due, *self.blocked.values())
        return sorted(counter for counter in waiting if counter <= upto)

    def pull(self, record: Returned) -> bool:
        """Take a record that waits away from where it does; False if it does not wait."""
        counter = record.counter
        key = record.attributes.ordering_key if record.attributes is not None else b""
        if counter in self.shelf:
            self.shelf.remove(counter)
        elif counter in self.blocked.get(key, ()):
            _drop(self.blocked[key], counter)
            self.blocked_count -= 1
            if not self.blocked[key]:
                del self.blocked[key]
        elif counter in self.due:
            _drop(self.due, counter)
        else:
            return False
        self._unstop(counter)
        self.shelf.unkeep(counter)
        return True

    @property
    def ready_count(self) -> int:
        """Records that are neither leased nor waiting for a time."""
        return len(self) - self.leasing.count - self.waiting_count

    async def cancel(self, key: Key) -> bool:
        """Remove a record that still waits for its `delay`; False if it does not, or not any more.

        On return the removal is committed at the queue's durability.
        """
        if not isinstance(key, Key):
            raise TypeError(f"key={key!r:.80} is not a Key. Nothing was changed.")
        self._committer.require_usable()
        counter = key.counter
        record = self.shelf.kept.get(counter)
        if record is None and counter in self.shelf:
            found = await self._committer.call(lambda log: _get(log, self.name, counter))
            record = found if isinstance(found, Returned) else None
        if record is None or record.time != key.timestamp or counter not in self.shelf:
            return False
        self._committer.require_usable()
        self.shelf.remove(counter)
        self.shelf.unkeep(counter)
        self._unstop(counter)
        now = time.time_ns()
        self.look(now)
        self.bias -= 1
        self._leave(record, self.purged)
        self.touch()
        self.records_went()
        if self.level != MEMORY:
            waiter = Waiter(self._committer.loop.create_future(), self, first=counter)
            self._committer.wait(waiter, self.level)
            await waiter.future
        return True

    # Looking for the oldest record that somebody may have.

    def has_ready(self) -> bool:
        return self.has_head() and (not self.picky or self._may_go())

    def has_head(self) -> bool:
        """Whether there is an oldest record in memory, whoever may have it."""
        there = super().has_ready()
        if self.due or self.fetching:
            return self._is_oldest(there)
        return there

    def _is_oldest(self, there: bool) -> bool:
        """The same when older ones may be only on disk: those are read first, some at a time."""
        if self.restoring:
            return False
        head = self.head_record()[0] if there else COUNTER_MAX
        if self.due and self.due[0] < head and not self.fetching:
            self.fetch([heappop(self.due) for _ in range(min(DUE_MAX, len(self.due)))])
        return there and (not self.fetching or head < min(self.fetching))

    def _may_go(self) -> bool:
        """Whether somebody may have the oldest record, once those who must not be had are away."""
        while True:
            counter, attributes = self.head_record()
            if self.stops and counter > self.stops[0]:
                return False
            if attributes is None:
                return True
            key = attributes.ordering_key
            if attributes.expires_at and attributes.expires_at <= (now := time.time_ns()):
                if not self._expire_run(now):
                    self._expire(self.pass_head())
            elif key and self.keys_out.get(key, counter) != counter:
                if self.blocked_count < BLOCKED_MAX:
                    self._block(key, self.pass_head())
                elif self._will_be_heard_of(self.keys_out[key]):
                    return False
                else:
                    # It is in the queue behind this one: nobody would come to it any more.
                    self._free(key)
            else:
                return True
            if not self.has_head():
                return False

    def _expire_run(self, now: int) -> bool:
        """What is too old at the head of the run goes in one step; False if that is not for it."""
        first, attributes = self.head, self.attributes
        if not self._drops or self.head_record()[0] != first or first >= self.run_end:
            return False
        end = first
        limit = min([self.run_end, *self.stops[:1]])
        while end < limit:
            of = attributes.get(end)
            # Somebody may wait for the key of one that has one.
            if of is None or not 0 < of.expires_at <= now or of.ordering_key:
                break
            end += 1
        if end == first:
            return False
        removal = self.skip_run(end)
        self._expired_unclaimed([removal])
        self.expired.append(removal)
        self._committer.loop.call_soon(self.records_went)
        return True

    @property
    def _drops(self) -> bool:
        """Whether what has expired is gone for good."""
        return self.drops_expired or is_dead_letters(self.name)

    def _expire(self, record: Returned) -> None:
        self.expired_count += 1
        if self._drops:
            self._leave(record, self.expired)
            self.touch()
        else:
            self.bias += 1
            attempts = self.leasing.attempts_of(record.counter)
            self.leasing.burials.begin(record, "expired", attempts=attempts, reason="")
        # Not from here: somebody is about to claim what is behind it.
        self._committer.loop.call_soon(self.records_went)

    def _leave(self, record: Returned, removals: Removals) -> None:
        """A record that is out of its place goes for good, without having been handed out."""
        removals.append(removal_of(record))
        self.bytes_went(len(record.payload))
        self.gone(record)

    def expire_unread(self, ranges: Removals) -> None:
        super().expire_unread(ranges)
        self._expired_unclaimed(ranges)

    def _expired_unclaimed(self, ranges: Removals) -> None:
        """Records that nobody came to are gone: nothing of them is of interest any more."""
        count = sum(last - first + 1 for first, last, _ in ranges)
        self.expired_count += count
        self.bytes_went(sum(weight for _, _, weight in ranges) - records_weight(0, count))
        for first, last, _ in ranges:
            self.leasing.forget(first, last)
        self.touch()

    # Ordering keys.

    def key_out(self, record: Returned) -> None:
        """The record is handed out: no other one of its key is until it is gone."""
        if record.attributes is not None and record.attributes.ordering_key:
            self.keys_out[record.attributes.ordering_key] = record.counter

    def key_in(self, counter: int, attributes: Attributes | None) -> None:
        """The record is gone, and the next one of its key may follow."""
        key = attributes.ordering_key if attributes is not None else b""
        if self.keys_out.get(key, counter) != counter:
            return
        # It need not be there: a take hands nothing out, and is followed all the same.
        self.keys_out.pop(key, None)
        if key in self.blocked:
            self._bring_next(key)

    def _bring_next(self, key: bytes) -> None:
        """The oldest record that waits for a key is at its place."""
        self.bring_back([self._unblock(key)])

    def _will_be_heard_of(self, counter: int) -> bool:
        """Whether a record that has its key is in somebody's hands, waits, or is being read."""
        leasing = self.leasing
        away = leasing.holds(counter) or counter in leasing.noting
        return away or counter in self.fetching or counter in self.shelf

    def _free(self, key: bytes) -> None:
        """The record that has the key is in the queue: whichever of the key is first goes first."""
        del self.keys_out[key]
        if key in self.blocked:
            self._place([self._unblock(key)])

    def _block(self, key: bytes, record: Returned) -> None:
        heappush(self.blocked.setdefault(key, []), record.counter)
        self.blocked_count += 1
        # It was never away from the queue.
        self.bias += 1
        self.shelf.keep(record)
        self.shelf.trim()

    def _unblock(self, key: bytes) -> int:
        counters = self.blocked[key]
        counter = heappop(counters)
        if not counters:
            del self.blocked[key]
        self.blocked_count -= 1
        return counter

    def gone(self, record: Returned) -> None:
        """The record leaves for good: nobody counts its attempts, nobody waits for its key."""
        self.leasing.forget(record.counter)
        self.key_free(record)

    def key_free(self, record: Returned) -> None:
        """Nobody waits for the record's key any more."""
        if self.keys_out or self.blocked:
            self.key_in(record.counter, record.attributes)


def _drop(heap: list[int], counter: int) -> None:
    """Take a counter that is there out of a heap; the lowest one goes fast."""
    if heap[0] == counter:
        heappop(heap)
    else:
        heap.remove(counter)
        heapify(heap)


def _get(log: Log, name: str, counter: int) -> Returned | None:
    found = fetched(log, name, [counter]).records
    return found[0] if found else None
