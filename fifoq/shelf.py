"""The shelf: records that are in a queue and that nobody may have yet.

They wait for a time: of their put's `delay`, or of the next attempt after a nack. Only when and
which is in memory, a few dozen bytes for each; the records are on disk, and those that were put
last are kept at hand as well. Knows no clock and no loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from fifoq.runs import RECORD_OVERHEAD, Returned

REMOVED_MIN: Final = 64
"""So many that wait no more may stay in the heap, or half of it."""
KEPT_BYTES_MAX: Final = 8 << 20
"""What is kept of records that are on disk, with their overhead."""
_COUNTER_BITS: Final = 64
_COUNTER: Final = (1 << _COUNTER_BITS) - 1


class Shelf:
    """See the module. Times are nanoseconds of a clock that never goes back."""

    __slots__ = ("_heap", "_kept_bytes", "_members", "_removed", "kept", "written")

    def __init__(self) -> None:
        # One number holds both: half of what a tuple of them needs.
        self._heap: list[int] = []
        self._members: set[int] | None = None
        """Counters that wait, once somebody has asked for one: few ever do."""
        self._removed: set[int] = set()
        """Of those in the heap: what waits no more."""
        # Not a plain dict: those are slow to find their first entry when many before it are gone.
        self.kept: OrderedDict[int, Returned] = OrderedDict()
        self._kept_bytes = 0
        self.written = 0
        """Records up to this counter are on disk: they need not be kept."""

    def __len__(self) -> int:
        return len(self._heap) - len(self._removed)

    def __contains__(self, counter: int) -> bool:
        if self._members is None:
            self._members = set(self.counters())
        return counter in self._members

    def add(self, due: int, records: Sequence[Returned]) -> None:
        """Have records come out at that time, and hold copies of them."""
        if self._removed and not self._removed.isdisjoint(record[0] for record in records):
            # It comes again: what is left of its first time would be taken for this one.
            self._sweep()
        heap, kept, high = self._heap, self.kept, due << _COUNTER_BITS
        size = 0
        for record in records:
            counter = record[0]
            heappush(heap, high | counter)
            kept[counter] = record
            size += len(record[2])
        self._kept_bytes += size + RECORD_OVERHEAD * len(records)
        if self._members is not None:
            self._members.update(record[0] for record in records)

    def add_one(self, due: int, record: Returned) -> None:
        """The same for one record that was never here before."""
        counter = record[0]
        heappush(self._heap, due << _COUNTER_BITS | counter)
        self.kept[counter] = record
        self._kept_bytes += len(record[2]) + RECORD_OVERHEAD
        if self._members is not None:
            self._members.add(counter)

    def fill(self, entries: Iterable[tuple[int, int]]) -> None:
        """The same without copies, for many at once: each a time and a counter."""
        self._sweep()
        self._heap += [due << _COUNTER_BITS | counter for due, counter in entries]
        heapify(self._heap)
        self._members = None

    @property
    def next_due(self) -> int | None:
        """The earliest time; perhaps of a record that waits no more."""
        return self._heap[0] >> _COUNTER_BITS if self._heap else None

    def take_due(self, now: int, most: int) -> list[int]:
        """Counters whose time has come, in the order of their times."""
        heap = self._heap
        counters: list[int] = []
        limit = (now + 1) << _COUNTER_BITS
        while heap and heap[0] < limit and len(counters) < most:
            counter = heappop(heap) & _COUNTER
            if counter in self._removed:
                self._removed.discard(counter)
            else:
                counters.append(counter)
        if self._members is not None:
            self._members.difference_update(counters)
        return counters

    def remove(self, counter: int) -> None:
        """Let the record wait no more; it must be there. Its copy stays."""
        self._removed.add(counter)
        if self._members is not None:
            self._members.discard(counter)
        if len(self._removed) > max(REMOVED_MIN, len(self._heap) // 2):
            self._sweep()

    def _sweep(self) -> None:
        """Drop what waits no more from the heap."""
        if self._removed:
            self._heap = [entry for entry in self._heap if entry & _COUNTER not in self._removed]
            heapify(self._heap)
            self._removed.clear()

    def counters(self) -> list[int]:
        """All that wait, in no order."""
        counters = [entry & _COUNTER for entry in self._heap]
        if self._removed:
            counters = [counter for counter in counters if counter not in self._removed]
        return counters

    # Copies.

    def keep(self, record: Returned) -> None:
        """Hold a copy, for as long as there is room for it once it is written."""
        self.kept[record.counter] = record
        self._kept_bytes += len(record.payload) + RECORD_OVERHEAD

    def unkeep(self, counter: int) -> Returned | None:
        """The copy, which is not held any more."""
        record = self.kept.pop(counter, None)
        if record is not None:
            self._kept_bytes -= len(record.payload) + RECORD_OVERHEAD
        return record

    def trim(self) -> None:
        """Let go of the oldest copies that are more than there is room for."""
        kept = self.kept
        while self._kept_bytes > KEPT_BYTES_MAX:
            counter, record = kept.popitem(last=False)
            if counter > self.written:
                kept[counter] = record
                kept.move_to_end(counter, last=False)
                return
            self._kept_bytes -= len(record[2]) + RECORD_OVERHEAD
