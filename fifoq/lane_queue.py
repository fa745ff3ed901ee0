"""A queue with priorities: lanes 0 (first) to 9 (last), each in order.

No record stands in the line itself: which is where is in `Lanes`, a byte for each; the records are
at hand while they are few, and are read a bounded stretch at a time when they are many.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from fifoq.attributes import PRIORITY_DEFAULT, Attributes
from fifoq.fetching import Fetch, Fetched
from fifoq.lanes import Lanes
from fifoq.options import QueueOptions
from fifoq.queue import Queue
from fifoq.runs import Returned
from store import FifoqError

T = TypeVar("T")

AHEAD_RECORDS: Final = 256
"""Records of a lane that are read at once, at the most."""
_NS: Final = 1_000_000_000


class LaneQueue(Queue[T]):
    """A queue whose option `priorities` is on; made by `Store.queue`."""

    __slots__ = ("_ahead", "_awaited", "_chosen", "_lanes")

    sets_all_aside = True

    def __init__(self, *arguments: Any) -> None:
        self._lanes = Lanes()
        self._ahead: dict[int, Returned] = {}
        """Records that were read because their turn is near."""
        self._awaited: set[int] = set()
        """Records that have their keys because they must be read first."""
        self._chosen: tuple[int, Returned] | None = None
        """What is next and its lane, until something changes."""
        super().__init__(*arguments)
        self.gap = None

    def fill_lanes(self, found: Sequence[tuple[int, bytes]]) -> None:
        """What was found on disk at opening, from the oldest record on."""
        for first, lanes in found:
            self._lanes.fill(first, lanes)

    def use(self, options: QueueOptions) -> None:
        super().use(options)
        # Every put and every take has to look at the lanes.
        self.fast = self.unlimited = self.takes_plain_bytes = False

    def look(self, now: int) -> None:
        self._chosen = None
        super().look(now)

    async def remove_upto(self, counter: int) -> int:
        """Not for a queue with priorities: nobody has come past all records up to a counter."""
        raise TypeError(f"queue {self.name!r} has priorities: remove_upto is for queues without.")

    # Into the lanes.

    def shelve(self, records: Sequence[Returned]) -> None:
        now, later = time.time_ns(), []
        for record in records:
            if record.attributes is not None and record.attributes.deliver_at > now:
                later.append(record)
            else:
                self._enter(record)
        super().shelve(later)

    def give_back(self, record: Returned) -> None:
        self.look(time.time_ns())
        self._enter(record)
        self.bias += 1
        self._bytes += len(record.payload)

    def _enter(self, record: Returned) -> None:
        self._chosen = None
        self._lanes.add(record.counter, _lane_of(record))
        self.shelf.keep(record)
        self.shelf.trim()

    def come_due(self, counters: Sequence[int]) -> None:
        # Only whoever reads them knows their lanes.
        self.fetch(counters)

    def _bring_next(self, key: bytes) -> None:
        counter = self._unblock(key)
        if counter not in self.shelf.kept:
            # Until it is read it is in no lane: no younger one of its key may pass it.
            self.keys_out[key] = counter
            self._awaited.add(counter)
        self.bring_back([counter])

    def _come_out(self, record: Returned) -> None:
        if record.counter in self._awaited:
            self._awaited.discard(record.counter)
            assert record.attributes is not None
            self.keys_out.pop(record.attributes.ordering_key, None)
        super()._come_out(record)

    # Out of them.

    def has_head(self) -> bool:
        if self.restoring:
            return False
        if self._chosen is None:
            self._chosen = self._choose()
        return self._chosen is not None

    def _choose(self) -> tuple[int, Returned] | None:
        """The lane that is next and its oldest record; None if there is none at hand."""
        heads = self._lanes.heads()
        if not heads:
            return None
        weights = self.options.priority_weights
        if weights is not None:
            lane = self._lanes.share(weights)
            heads = {lane: heads[lane]}
        found = {lane: self._at_hand(counter) for lane, counter in heads.items()}
        if not all(found.values()):
            self._fetch_ahead([lane for lane, record in found.items() if record is None])
            return None
        now, aging = time.time_ns(), self.options.priority_aging

        def rank(lane: int) -> tuple[int, int]:
            record = found[lane]
            assert record is not None
            waited = max(0, now - record.time)
            return lane - (0 if aging is None else int(waited / (aging * _NS))), record.counter

        lane = min(found, key=rank)
        record = found[lane]
        assert record is not None
        return lane, record

    def _at_hand(self, counter: int) -> Returned | None:
        return self._ahead.get(counter) or self.shelf.kept.get(counter)

    def _fetch_ahead(self, lanes: list[int]) -> None:
        if self.fetching:
            return
        for lane in lanes:
            wanted = [
                counter
                for counter in islice(self._lanes.following(lane), AHEAD_RECORDS)
                if self._at_hand(counter) is None
            ]
            self.fetching.update(wanted)
            done = partial(self._fetched_ahead, wanted)
            self._committer.run_call(
                Fetch(self.name, wanted, done, self._committer.loop.create_future())
            )

    def _fetched_ahead(
        self, counters: Sequence[int], fetched: Fetched, error: FifoqError | None
    ) -> None:
        self.fetching.difference_update(counters)
        # The rest is read when one of them is next.
        self._ahead.update((record.counter, record) for record in fetched.records)
        for record in fetched.records:
            if record.attributes is not None:
                self._mind(record.attributes)
        self.read_ended(error)

    def head_record(self) -> tuple[int, Attributes | None]:
        assert self._chosen is not None
        record = self._chosen[1]
        return record.counter, record.attributes

    def peek_head(self) -> bytes | None:
        if not self.has_ready():
            return None
        assert self._chosen is not None
        return self._chosen[1].payload

    def claim_head(self) -> Returned:
        assert self._chosen is not None
        weights = self.options.priority_weights
        if weights is not None:
            self._lanes.shared(self._chosen[0], weights)
        return self.pass_head()

    def pass_head(self) -> Returned:
        # Without a turn: whoever waits for a key would cost its lane all that follow.
        assert self._chosen is not None
        record = self._chosen[1]
        self._chosen = None
        self._lanes.remove(record.counter)
        self._ahead.pop(record.counter, None)
        self.shelf.unkeep(record.counter)
        self.bias -= 1
        return record

    def refill(self) -> bool:
        return False

    def pull(self, record: Returned) -> bool:
        counter = record.counter
        if counter not in self._lanes:
            return super().pull(record)
        self._chosen = None
        self._lanes.remove(counter)
        self._ahead.pop(counter, None)
        self.shelf.unkeep(counter)
        return True


def _lane_of(record: Returned) -> int:
    return record.attributes.priority if record.attributes is not None else PRIORITY_DEFAULT
