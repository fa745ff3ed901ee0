"""Deduplication: ids of the last puts of a queue, and which key each of them was given.

An id is live from its put on until the queue's `dedup_window` is over, whatever becomes of the
record. It is written in the frame of its record, as a part of a *page*: a state entry that holds
ids as digests with counters and times. Pages of about one size are merged into a larger one by a
later frame when there are eight of them, so few names are enough for any number of ids, each id
is written a few times at the most, and opening reads the pages and no record.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fifoq.logs import fields
from store import FormatError, Log

if TYPE_CHECKING:
    from fifoq.line import Line
    from fifoq.runs import Batch

logger = logging.getLogger("fifoq")

IDS_MAX: Final = 100_000
"""Ids that a queue remembers; beyond that the oldest is forgotten before its time."""
FAN: Final = 8
"""Pages of one size that are merged into one; a page of the next size has so many times the ids."""
TOP: Final = 4
"""The largest size, of which there are as many pages as there must be."""
TOP_SLOTS: Final = 64

_ENTRY = struct.Struct("<16sQQ")
_PAGE_VERSION: Final = b"\x01"
_NANOSECONDS: Final = 1_000_000_000
_id_of, _counter_of = itemgetter(0), itemgetter(1)

States = list[tuple[str, bytes | None]]
Place = tuple[int, int]
"""Size and slot of a page."""


class Known(NamedTuple):
    """A put that was made: its key, and when that was by the loop's clock."""

    counter: int
    time: int
    since: float


class Page(NamedTuple):
    """Ids that lie in one state entry; the highest of their counters."""

    ids: list[bytes]
    last: int


class Plan(NamedTuple):
    """Pages as they are once a batch is committed."""

    batch: Batch
    pages: dict[Place, Page]


class Dedup:
    """The ids of one queue. Knows its line, and no files."""

    def __init__(self, line: Line, seconds: float) -> None:
        self._line = line
        self.seconds = seconds
        # Not plain dicts: those are slow to find their first entry when many before it are gone.
        self._ids: OrderedDict[bytes, Known] = OrderedDict()
        """Rising by counter."""
        self._held: OrderedDict[int, list[Any]] = OrderedDict()
        """Of puts that may not be committed: id, and how many callers want the record."""
        self._pages: dict[Place, Page] = {}
        self._plan: Plan | None = None
        self.coming: dict[bytes, list[asyncio.Future[None]]] = {}
        """Ids of puts that wait for room, and those who wait for them."""
        self.hits = 0
        self._overflowed = False

    def __len__(self) -> int:
        return len(self._ids)

    # Puts.

    def find(self, id: bytes, now: float) -> Known | None:
        """The put with that id, if the window has it at that time of the loop."""
        self._forget_old(now)
        return self._ids.get(id)

    def add(self, id: bytes, counter: int, time: int, now: float) -> None:
        """A record was put with that id, and its caller wants it."""
        self._tidy()
        self._ids[id] = Known(counter, time, now)
        self._held[counter] = [id, 1]
        if len(self._ids) > IDS_MAX:
            del self._ids[next(iter(self._ids))]
            if not self._overflowed:
                self._overflowed = True
                logger.warning(
                    "queue %r has more than %d ids in its dedup window; the oldest are forgotten",
                    self._line.name,
                    IDS_MAX,
                    extra=fields("ids_forgotten", None, queue=self._line.name, count=IDS_MAX),
                )

    def is_written(self, counter: int) -> bool:
        """Whether the frame with the record is in the log."""
        sealed = self._line.sealed
        under_way = sealed is not None and sealed.upto and counter >= sealed.first
        return not under_way and counter < self._line.tail_first

    def hold(self, counter: int) -> None:
        """Another caller wants the record, which is not written yet, to be there."""
        self._held[counter][1] += 1

    def leave(self, counter: int) -> bool:
        """A caller of an unsealed record leaves; True if no other wants it to be there."""
        held = self._held.get(counter)
        if held is None:
            return True
        held[1] -= 1
        if held[1]:
            return False
        del self._held[counter]
        known = self._ids.get(held[0])
        if known is not None and known.counter == counter:
            del self._ids[held[0]]
        return True

    def _forget_old(self, now: float) -> None:
        ids, until = self._ids, now - self.seconds
        old = []
        for id, known in ids.items():
            if known.since > until:
                break
            old.append(id)
        for id in old:
            del ids[id]

    def _tidy(self) -> None:
        """Forget who wanted records that are written by now."""
        held = self._held
        while held:
            counter = next(iter(held))
            if not self.is_written(counter):
                break
            del held[counter]

    # Pages.

    def seal(self, batch: Batch, now: float) -> States:
        """The state entries that the frame of a batch needs for the ids of its records."""
        self._forget_old(now)
        pages = dict(self._current_pages())
        ids = [
            id
            for counter, (id, _) in self._held.items()
            if batch.first <= counter <= batch.upto and self._is(id, counter)
        ]
        if not ids:
            return []
        changed: dict[Place, Page | None] = {}
        oldest = next(iter(self._ids.values())).counter
        for place, page in list(pages.items()):
            if page.last < oldest:
                del pages[place]
                changed[place] = None
        while True:
            size = _size_of(len(ids))
            full = [place for place in pages if place[0] == size]
            if size == TOP or len(full) < FAN:
                break
            ids = [*self._live(pages.pop(place) for place in full), *ids]
            changed.update(dict.fromkeys(full))
        used = {slot for place_size, slot in pages if place_size == size}
        slot = next(slot for slot in range(TOP_SLOTS) if slot not in used)
        # An id that was put again is newer than some page says.
        ids = sorted(dict.fromkeys(ids), key=lambda id: self._ids[id].counter)
        changed[size, slot] = pages[size, slot] = Page(ids, self._ids[ids[-1]].counter)
        self._plan = Plan(batch, pages)
        return [
            (page_name(self._line.name, place), None if page is None else self._encode(page))
            for place, page in changed.items()
        ]

    def unseal(self, batch: Batch) -> None:
        """The batch was refused: the pages are what they were before it."""
        if self._plan is not None and self._plan.batch is batch:
            self._plan = None

    def _current_pages(self) -> dict[Place, Page]:
        plan = self._plan
        if plan is not None and self._line.sealed is not plan.batch:
            # Nobody took it back, so it is committed.
            self._pages, self._plan = plan.pages, None
        return self._pages

    def _is(self, id: bytes, counter: int) -> bool:
        known = self._ids.get(id)
        return known is not None and known.counter == counter

    def _live(self, pages: Iterable[Page]) -> Iterator[bytes]:
        return (id for page in pages for id in page.ids if id in self._ids)

    def _encode(self, page: Page) -> bytes:
        ids = self._ids
        return _PAGE_VERSION + b"".join(
            _ENTRY.pack(id, known.counter, known.time) for id in page.ids for known in (ids[id],)
        )

    def restore(self, found: dict[Place, bytes], now: float, wall: int) -> None:
        """Become what pages say, as of that time of the loop and of day."""
        rows: list[tuple[bytes, int, int]] = []
        for place, value in found.items():
            entries = _decode(value)
            last = max(map(_counter_of, entries), default=0)
            self._pages[place] = Page(list(map(_id_of, entries)), last)
            rows += entries
        rows.sort(key=_counter_of)
        until = wall - round(self.seconds * _NANOSECONDS)
        rows = [row for row in rows if row[2] > until]
        # A clock that was set back makes no id newer than now, and no window longer.
        self._ids = OrderedDict(
            (id, Known(counter, time, now - max(0, wall - time) / _NANOSECONDS))
            for id, counter, time in rows
        )
        if len(self._ids) < len(rows):
            # Two pages have it, or it was put again: its place is that of the last put.
            self._ids = OrderedDict(sorted(self._ids.items(), key=lambda item: item[1].counter))
        for id in list(islice(self._ids, max(0, len(self._ids) - IDS_MAX))):
            del self._ids[id]


def digest_of(dedup_id: bytes) -> bytes:
    """What stands for an id."""
    return hashlib.blake2b(dedup_id, digest_size=16).digest()


def page_name(queue: str, place: Place) -> str:
    return f"dedup/{queue}/{place[0]}.{place[1]}"


def read_pages(log: Log, queue: str) -> dict[Place, bytes]:
    """The pages of a queue that are there. CorruptionError if one cannot be read."""
    places = [(size, slot) for size in range(TOP) for slot in range(FAN)]
    places += [(TOP, slot) for slot in range(TOP_SLOTS)]
    states = log.state.states
    names = {
        name: place
        for place in places
        if (name := page_name(queue, place)) in states and states[name].present
    }
    if not names:
        return {}
    values = log.lookup.state_values(names)
    return {names[name]: value for name, value in values.items()}


def _decode(page: bytes) -> list[tuple[bytes, int, int]]:
    if page[:1] != _PAGE_VERSION or len(page) % _ENTRY.size != 1:
        raise FormatError("a page of ids is from a newer version. Nothing was changed.")
    return list(_ENTRY.iter_unpack(memoryview(page)[1:]))


def _size_of(count: int) -> int:
    size = 0
    while size < TOP and count >= FAN ** (size + 1):
        size += 1
    return size
