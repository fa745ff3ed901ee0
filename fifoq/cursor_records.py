"""The records of a cursor that are in memory: their order, and whose ordering key is free.

Plain rules: knows no log, no loop and nobody who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from fifoq.attributes import Attributes
from fifoq.cursor_page import PAGE_BYTES, PAGE_RECORDS

BLOCKED_MAX: Final = 4 * PAGE_RECORDS
"""Records that wait for another one of their ordering key before no more are read."""
BLOCKED_BYTES_MAX: Final = 4 * PAGE_BYTES


class Loaded(NamedTuple):
    """A record in memory. No record has a counter between `since` and its own."""

    counter: int
    since: int
    time: int
    payload: bytes
    attributes: Attributes | None

    @property
    def headers(self) -> bytes | None:
        return self.attributes.headers if self.attributes else None

    @property
    def ordering_key(self) -> bytes | None:
        return (self.attributes.ordering_key or None) if self.attributes else None


class CursorRecords:
    """Records that nobody has yet, lowest counter first, and those that are leased.

    Of each ordering key one is leased at a time; the others wait for it.
    """

    def __init__(self) -> None:
        self.ahead: deque[Loaded] = deque()
        """What was read and not handed out."""
        self.out: dict[int, Loaded] = {}
        """What is leased."""
        self._returned: list[Loaded] = []
        self._busy: set[bytes] = set()
        """Ordering keys of which a record is leased."""
        self._blocked: dict[bytes, deque[Loaded]] = {}
        self._blocked_count = self._blocked_bytes = 0

    @property
    def wants_more(self) -> bool:
        """Whether more may be read, and soon has to be."""
        return (
            len(self.ahead) <= PAGE_RECORDS // 4
            and self._blocked_count < BLOCKED_MAX
            and self._blocked_bytes < BLOCKED_BYTES_MAX
        )

    def next(self) -> Loaded | None:
        """The next record whose ordering key is free; it stays where it is."""
        while True:
            source = self._source()
            if source is None:
                return None
            record = source[0]
            key = record.ordering_key
            if key is None or key not in self._busy:
                return record
            self.pop()
            self._blocked.setdefault(key, deque()).append(record)
            self._blocked_count += 1
            self._blocked_bytes += len(record.payload)

    def pop(self) -> None:
        """Take away what `next` gave."""
        if self._source() is self._returned:
            heappop(self._returned)
        else:
            self.ahead.popleft()

    def _source(self) -> list[Loaded] | deque[Loaded] | None:
        """Where the lowest counter is."""
        ahead, returned = self.ahead, self._returned
        if returned and (not ahead or returned[0].counter < ahead[0].counter):
            return returned
        return ahead or None

    def put_back(self, record: Loaded) -> None:
        """A record that was taken away is at its place again."""
        heappush(self._returned, record)

    def lease_out(self, record: Loaded) -> None:
        self.out[record.counter] = record
        if record.ordering_key is not None:
            self._busy.add(record.ordering_key)

    def give_back(self, counter: int) -> None:
        """What was leased is at its place again."""
        record = self.out.pop(counter)
        if record.ordering_key is not None:
            self._busy.discard(record.ordering_key)
        self.put_back(record)

    def finish(self, counter: int) -> Loaded:
        """What was leased is done: the next one of its ordering key may go."""
        record = self.out.pop(counter)
        key = record.ordering_key
        if key is not None:
            self._busy.discard(key)
            blocked = self._blocked.get(key)
            if blocked:
                freed = blocked.popleft()
                self._blocked_count -= 1
                self._blocked_bytes -= len(freed.payload)
                self.put_back(freed)
            if not blocked:
                self._blocked.pop(key, None)
        return record

    def counters(self) -> Iterator[int]:
        """Of everything leased, and the lowest of each place: the lowest of all is among them."""
        yield from self.out
        for source in (self.ahead, self._returned, *self._blocked.values()):
            if source:
                yield source[0].counter
