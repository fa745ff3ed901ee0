"""Shelving: records that wait for their time, onto the shelf and off it.

A put with a `delay` and a nack bring them there; one timer brings them to their places, or those of
them that are only on disk by way of a read.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import partial
from heapq import heappush
from itertools import groupby, repeat
from operator import attrgetter
from typing import Final, TypeVar

from fifoq.attributes import FIXED_BYTES, SECONDS_MAX, Attributes, PutKeywords
from fifoq.fetching import Fetch, Fetched
from fifoq.member import SMALL_BYTES
from fifoq.runs import Returned, new_returned
from fifoq.turns import Turns, wake_all
from store import FifoqError, Key

T = TypeVar("T")

DUE_MAX: Final = 1024
"""Records that come off the shelf in one step, or are read at once."""
RETRY_SECONDS: Final = 1.0
"""After this much time what could not be read is tried again."""
_NS: Final = 1_000_000_000


class Shelving(Turns[T]):
    """The part of a queue that keeps records back until their time."""

    __slots__ = ()

    sets_all_aside = False
    """Whether no record stands in the line itself."""

    # Onto the shelf.

    def set_aside(
        self,
        first: int,
        payloads: Sequence[bytes],
        moment: int,
        attributes: Attributes | None,
        *,
        shown: bool,
    ) -> None:
        """Records were just put; if they must wait, no taker comes to them in the line.

        `shown` says that they are there before their commit.
        """
        if attributes is not None:
            self._mind(attributes)
            if attributes.deliver_at and not self.codec.aside:
                # Whoever opens the queue has to look for them on disk.
                self.codec.aside = True
                self.configuration = self.codec.configuration(self.options)
            if not (attributes.deliver_at or self.sets_all_aside):
                return
        if len(payloads) == 1:
            self.aside[first] = shown
            self.attributes.pop(first, None)
            if shown:
                self.shelve([Returned(first, moment, payloads[0], attributes)])
            return
        end = first + len(payloads)
        self.aside.update(dict.fromkeys(range(first, end), shown))
        self.forget_attributes(first, end)
        if shown:
            counters, times, same = range(first, end), repeat(moment), repeat(attributes)
            self.shelve(list(map(Returned, counters, times, payloads, same)))

    def _put_later(self, item: T, options: PutKeywords) -> Key | None:
        """Put a small record with a delay in an open window; None if there is more to look at."""
        delay = options.get("delay")
        if (
            len(options) > 1
            or type(item) is not bytes
            or len(item) > SMALL_BYTES  # type: ignore[arg-type]
            or (type(delay) is not float and type(delay) is not int)
            or not 0 < delay <= SECONDS_MAX
            or not self.codec.aside
        ):
            return None
        counter, moment = self.next, self.put_time
        self.next = counter + 1
        payload: bytes = item  # type: ignore[assignment]
        self.tail.append(payload)
        attributes = Attributes(b"", time.time_ns() + round(delay * _NS))
        self.tail_attributes[counter] = attributes
        self.tail_bytes += FIXED_BYTES
        committer = self._committer
        committer.waiting_bytes += FIXED_BYTES
        self.aside[counter] = True
        due = round((committer.loop.time() + delay) * _NS) + committer.clock_step
        self.shelf.add_one(due, new_returned((counter, moment, payload, attributes)))
        if self._shelf_timer is None or due < self._shelf_timer_due:
            self._watch_shelf()
        return Key(counter, moment)

    def _mind(self, attributes: Attributes) -> None:
        """From now on every record is looked at before somebody gets it, if this one must be."""
        if (attributes.expires_at or attributes.ordering_key) and not self.picky:
            self.picky = True
            self.fast = False
            self.close_windows()

    def arrive(self, payload: bytes, attributes: Attributes | None) -> tuple[int, int]:
        counter, moment = super().arrive(payload, attributes)
        if attributes is not None or self.sets_all_aside:
            self.set_aside(counter, [payload], moment, attributes, shown=False)
        return counter, moment

    def attributes_came(self, attributes: dict[int, Attributes]) -> None:
        super().attributes_came(attributes)
        self.close_windows()
        for of in attributes.values():
            self._mind(of)

    def shelve(self, records: Sequence[Returned]) -> None:
        if len(records) == 1:
            (record,) = records
            assert record.attributes is not None
            self.wait_on_shelf(records, max(0, record.attributes.deliver_at - time.time_ns()))
            return
        # Those of one put have the same attributes, not only equal ones.
        for attributes, same in groupby(records, _attributes_of):
            assert attributes is not None
            self.wait_on_shelf(list(same), max(0, attributes.deliver_at - time.time_ns()))

    def wait_on_shelf(self, records: Sequence[Returned], delay: int) -> None:
        """Keep records, which count as being in the queue, back for so many nanoseconds."""
        shelf = self.shelf
        due = self._due_in(delay)
        shelf.add(due, records)
        shelf.trim()
        if self._shelf_timer is None or due < self._shelf_timer_due:
            self._watch_shelf()

    def _due_in(self, delay: int) -> int:
        """When so many nanoseconds will have passed, by the loop's clock.

        One that counts in steps is up to a step behind: no record may be early by that.
        """
        return round(self._committer.loop.time() * _NS) + delay + self._committer.clock_step

    def hold_back(self, record: Returned, delay: int) -> None:
        """The same after a nack; in a strict queue nobody passes it meanwhile."""
        if self.options.strict:
            insort(self.stops, record.counter)
            self.close_windows()
        self.wait_on_shelf([record], delay)

    def fill_shelf(self, delayed: Sequence[tuple[int, int, int]]) -> None:
        """What was found on disk at opening: its time, its counter, when it was put.

        A clock that was set back makes nothing wait longer than its put asked for.
        """
        now, moment = time.time_ns(), round(self._committer.loop.time() * _NS)
        step = self._committer.clock_step
        entries = [
            (moment + (left + step if left > 0 else 0), counter)
            for due, counter, put in delayed
            for left in (min(due - now, due - put),)
        ]
        if not self.sets_all_aside:
            # What is due already is at its place before the first taker comes.
            self.due = sorted(counter for due, counter in entries if due <= moment)
            entries = [entry for entry in entries if entry[0] > moment]
        self.shelf.fill(entries)
        self.codec.aside = bool(delayed)
        self._watch_shelf()

    def confirm(self) -> None:
        super().confirm()
        if self.shelf.kept:
            self.shelf.written = self.tail_first - 1
            self.shelf.trim()

    # Off the shelf.

    def _watch_shelf(self) -> None:
        due = self.shelf.next_due
        if due is None:
            return
        if self._shelf_timer is not None:
            if self._shelf_timer_due <= due:
                return
            self._shelf_timer.cancel()
        self._shelf_timer_due = due
        if step := self._committer.clock_step:
            # Within a step the clock stands still: the timer would ring again and again.
            due += -due % step
        self._shelf_timer = self._committer.loop.call_at(due / _NS, self._time_has_come)

    def _time_has_come(self) -> None:
        self._shelf_timer = None
        if self._committer.failure is not None or self._committer.closed:
            return
        # Rounded, and not cut: a timer that rings must never find that it is early.
        now = round(self._committer.loop.time() * _NS)
        self.bring_back(self.shelf.take_due(now, DUE_MAX))
        self._watch_shelf()

    def bring_back(self, counters: Sequence[int]) -> None:
        """Records wait no more: they are at their places, some to be read when it is their turn."""
        self._place(counters)
        if counters:
            self.records_came()

    def _place(self, counters: Sequence[int]) -> None:
        """The same for one who looks at the head next: nobody else is told."""
        missing = []
        for counter in counters:
            record = self.shelf.unkeep(counter)
            if record is None:
                missing.append(counter)
            else:
                self._come_out(record)
        if missing:
            self.come_due(missing)

    def come_due(self, counters: Sequence[int]) -> None:
        """Records that are only on disk wait no more."""
        # No window may pass them by.
        self.close_windows()
        for counter in counters:
            heappush(self.due, counter)

    def fetch(self, counters: Sequence[int]) -> None:
        """Have records read that belong to their places now."""
        self.fetching.update(counters)
        fetch = Fetch(
            self.name,
            counters,
            partial(self._fetched, counters),
            self._committer.loop.create_future(),
        )
        self._committer.run_call(fetch)

    def _fetched(self, counters: Sequence[int], fetched: Fetched, error: FifoqError | None) -> None:
        self.fetching.difference_update(counters)
        if error is not None:
            again = round((self._committer.loop.time() + RETRY_SECONDS) * _NS)
            self.shelf.fill((again, counter) for counter in counters)
            self._watch_shelf()
            self.read_ended(error)
            return
        for record in fetched.records:
            if record.attributes is not None:
                self._mind(record.attributes)
            self._come_out(record)
        if fetched.rest:
            self.come_due(fetched.rest)
        self.read_ended(None)

    def read_ended(self, error: FifoqError | None) -> None:
        super().read_ended(error)
        if self._takers and not (self.lacks or self.fetching or self.has_ready()):
            # What was read was for nobody: whoever only wanted to look must not wait on.
            wake_all(self._takers)

    def _come_out(self, record: Returned) -> None:
        self._unstop(record.counter)
        self.come_back(record)

    def _unstop(self, counter: int) -> None:
        at = bisect_left(self.stops, counter)
        if self.stops[at : at + 1] == [counter]:
            del self.stops[at]

    @property
    def waiting_count(self) -> int:
        """Records that wait for their time."""
        return len(self.shelf)

    def store_closed(self) -> None:
        super().store_closed()
        if self._shelf_timer is not None:
            self._shelf_timer.cancel()
            self._shelf_timer = None


_attributes_of = attrgetter("attributes")
