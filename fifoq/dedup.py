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
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fifoq.attributes import NONE, encoded_text
from fifoq.jobs import Waiter
from fifoq.options import MEMORY, SYNC
from fifoq.runs import COLUMN_BYTES
from store import FormatError, Key, Log

if TYPE_CHECKING:
    from fifoq.attributes import PutKeywords
    from fifoq.line import Line
    from fifoq.putting import Putting
    from fifoq.runs import Batch

logger = logging.getLogger("fifoq")

IDS_MAX: Final = 100_000
"""Ids that a queue remembers; beyond that the oldest is forgotten before its time."""
ID_BYTES_MAX: Final = 255
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
        self._ids: dict[bytes, Known] = {}
        """Rising by counter."""
        self._held: dict[int, list[Any]] = {}
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
        self._ids = {
            id: Known(counter, time, now - max(0, wall - time) / _NANOSECONDS)
            for id, counter, time in rows
        }
        if len(self._ids) < len(rows):
            # Two pages have it, or it was put again: its place is that of the last put.
            self._ids = dict(sorted(self._ids.items(), key=lambda item: item[1].counter))
        for id in list(islice(self._ids, max(0, len(self._ids) - IDS_MAX))):
            del self._ids[id]


def digest_of(dedup_id: object) -> tuple[bytes, bytes]:
    """An id's bytes and what stands for it. TypeError or ValueError if it is none."""
    if not isinstance(dedup_id, str):
        raise TypeError(f"dedup_id is a str, not {type(dedup_id).__name__}. Nothing was stored.")
    encoded = encoded_text("dedup_id", dedup_id)
    if not 0 < len(encoded) <= ID_BYTES_MAX:
        raise ValueError(
            f"a dedup_id of {len(encoded)} bytes is not one of 1 to {ID_BYTES_MAX}. Nothing was "
            f"stored."
        )
    return encoded, hashlib.blake2b(encoded, digest_size=16).digest()


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


# Puts of queues.


async def put_once(queue: Putting[Any], item: Any, options: PutKeywords) -> Key:
    """`put` with a `dedup_id`."""
    once = _Once(queue, item, options)
    while once.known() is None:
        if not once.others_wait:
            key = await once.come_in()
            if key is not None:
                if key.counter and once.level:
                    await queue._committed(key.counter, 1, once.level)
                return key
        else:
            await once.wait_for_others()
    waiter = once.join()
    if waiter is not None:
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            queue.take_back(waiter)
            raise
    return once.key


def put_once_now(
    queue: Putting[Any], item: Any, options: PutKeywords, *, level: int | None = None
) -> tuple[Key, Waiter | None]:
    """The same without waiting: the key, and who is told when it is committed, unless it is."""
    once = _Once(queue, item, options)
    if level is not None:
        once.level = level
    if once.known() is not None:
        return once.key, once.join()
    if not queue._admits(1, once.size, once.level, pressure=False):
        raise queue._full()
    key = once.store()
    if not (key.counter and once.level):
        return key, None
    return key, queue._waiter(key.counter, 1, once.level)


class _Once:
    """One put with an id."""

    def __init__(self, queue: Putting[Any], item: Any, options: PutKeywords) -> None:
        encoded, self._id = digest_of(options.pop("dedup_id"))
        self._payload, attributes, self.level = queue._prepare(item, **options)
        self._attributes = msgspec.structs.replace(attributes or NONE, dedup_id=encoded)
        self.size = len(self._payload) + COLUMN_BYTES
        self._queue = queue
        self._dedup = queue.dedup or queue.remember_ids()
        self.key = Key(0, 0)

    def known(self) -> Known | None:
        """The first put with this id, if the window has it."""
        self._queue._committer.require_usable()
        known = self._dedup.find(self._id, self._now())
        if known is not None:
            self.key = Key(known.counter, known.time)
        return known

    @property
    def others_wait(self) -> bool:
        """Whether a put with the same id waits for room."""
        return self._id in self._dedup.coming

    async def wait_for_others(self) -> None:
        """Until it has come in, or has left."""
        future = self._queue._new_future()
        self._dedup.coming[self._id].append(future)
        await future

    async def come_in(self) -> Key | None:
        """Store the record as soon as there is room; None if somebody else came first."""
        queue, coming = self._queue, self._dedup.coming
        if queue._admits(1, self.size, self.level):
            return self._pass_on(self.store())
        coming[self._id] = []
        try:
            while True:
                await queue._wait_to_put(1, self.size)
                if self.known() is not None:
                    return self._pass_on(None)
                if queue._admits(1, self.size, self.level):
                    return self._pass_on(self.store())
        finally:
            for future in coming.pop(self._id):
                if not future.done():
                    future.set_result(None)

    def _pass_on(self, key: Key | None) -> Key | None:
        if self._queue._putters:
            self._queue._pass_on_room()
        return key

    def store(self) -> Key:
        queue = self._queue
        key = Key(*queue._store([self._payload], self._attributes, self.level))
        if key.counter:
            self._dedup.add(self._id, key.counter, key.timestamp, self._now())
        return key

    def join(self) -> Waiter | None:
        """Want the record of the first put as well; None if it is as durable as it must be.

        Until it is written, whoever put it may leave, or be refused: what it becomes then is what
        it becomes for us, and it stays as long as one of us waits for it.
        """
        queue, dedup, counter = self._queue, self._dedup, self.key.counter
        committer = queue._committer
        dedup.hits += 1
        if not dedup.is_written(counter):
            dedup.hold(counter)
            if self.level == MEMORY:
                return None
            waiter = Waiter(queue._new_future(), queue, counter, 1)
        elif self.level == SYNC and not committer.all_durable:
            waiter = Waiter(queue._new_future())
        else:
            return None
        committer.wait(waiter, self.level)
        return waiter

    def _now(self) -> float:
        return self._queue._committer.loop.time()
