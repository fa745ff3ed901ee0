"""What a store with queues must do, in plain Python: lists, sets and no files.

The test tells the model what happens and at what time; the model says which record comes next, what
the counts are, and after each change what a crash may leave. Times are seconds of a clock that
never goes back (`now`), or nanoseconds of the wall clock (`wall`), which anybody may set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NS = 1_000_000_000
DEAD = ".dlq"


class Kept(NamedTuple):
    """What a log has of a queue."""

    name: str
    records: tuple[tuple[bytes, int], ...]
    """In order, each with the number of its attempts."""
    puts: int
    """Records ever put."""
    ids: frozenset[tuple[str, int]]
    """Ids that were put, with counters."""
    cursor: int
    """How many of the records ever put its cursor has done."""


Contents = tuple[Kept, ...]


@dataclass
class Record:
    """One record; `place` is its order in the queue, `due` and `expires_at` are wall time or 0."""

    place: int
    payload: bytes
    put_time: int = 0
    due: int = 0
    expires_at: int = 0
    priority: int = 5
    key: str = ""
    counter: int = 0
    attempts: int = 0


class Id(NamedTuple):
    """A put with an id: which record it was, and when by both clocks."""

    counter: int
    time: int
    since: float


class Seen(NamedTuple):
    """What was handed out, and how many records of its queue were in the dead letters then."""

    payload: bytes
    buried: int


@dataclass
class Rules:
    """Options of a queue, as far as they are about delivery."""

    max_retries: int | None = None
    backoff: float = 1.0
    strict: bool = False
    lanes: bool = False
    aging: float | None = 30.0
    expired_to_dead: bool = False
    maxsize: int | None = None
    weights: tuple[int, ...] | None = None
    dedup_window: float = 300.0


@dataclass
class QueueModel:
    """Records of one queue, and who is where."""

    name: str
    rules: Rules
    records: dict[int, Record] = field(default_factory=dict)
    leased: dict[int, float] = field(default_factory=dict)
    """Deadlines by place."""
    waiting: dict[int, float] = field(default_factory=dict)
    """When those come back that wait for their time."""
    stops: set[int] = field(default_factory=set)
    """In a strict queue: what waits after a nack, and nobody passes."""
    keys: dict[str, int] = field(default_factory=dict)
    """Which record has an ordering key: until it is gone, others of that key are passed by."""
    blocked: set[int] = field(default_factory=set)
    burying: list[Record] = field(default_factory=list)
    """On the way to the dead letters."""
    expired: int = 0
    buried: int = 0
    next_place: int = 1
    ids: dict[str, Id] = field(default_factory=dict)
    credits: list[int] = field(default_factory=lambda: [0] * 10)
    """Of the lanes, where each has a share."""
    history: list[tuple[int, bytes]] = field(default_factory=list)
    """All that was ever put, by counter."""
    cursor_kept: int = 0
    """How many of those the cursor has done, as it was committed."""
    cursor_done: int = 0
    handed: int = 0
    """Taken by the cursor, and done once somebody takes again or commits."""
    perhaps_gone: set[int] = field(default_factory=set)
    """Counters that the cursor had passed before it was moved back: nobody kept them for it."""

    # Counts.

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def ready(self) -> int:
        return self.size - len(self.leased) - len(self.waiting)

    def fits(self, count: int) -> bool:
        return self.rules.maxsize is None or self.size + count <= self.rules.maxsize

    # In.

    def put(self, record: Record, now: float, wall: int) -> None:
        record.place = self.next_place
        self.next_place += 1
        self.history.append((record.counter, record.payload))
        self.records[record.place] = record
        if record.due > wall:
            self.waiting[record.place] = now + (record.due - wall) / NS

    def known(self, id: str, now: float) -> Id | None:
        """The put with that id, if the window has it."""
        found = self.ids.get(id)
        return found if found is not None and found.since > now - self.rules.dedup_window else None

    # Which is next.

    def head(self, wall: int, seen: Seen | None = None) -> Record | None:
        """The record that somebody may have next; what is too old on the way there goes."""
        while True:
            self.blocked -= {r.place for r in self.records.values() if self._follows(r, seen)}
            record = self._oldest(wall)
            if record is None or (self.stops and record.place > min(self.stops)):
                return None
            if record.expires_at and record.expires_at <= wall:
                self.expire(record)
            elif self._waits_for_key(record) and not self._follows(record, seen):
                self.blocked.add(record.place)
            else:
                return record

    def _waits_for_key(self, record: Record) -> bool:
        return bool(record.key) and self.keys.get(record.key, record.place) != record.place

    def _follows(self, record: Record, seen: Seen | None) -> bool:
        """Whether the one that had the key was in the dead letters when this one was handed out.

        Nobody can say when a burial ends; the first one of that key may be next from then on.
        """
        if seen is None or record.payload != seen.payload:
            return False
        if self.buried + len(self.burying) != seen.buried:
            return False
        ended = [other.place for other in self.burying]
        before = [p for p in self.blocked if self.records[p].key == record.key and p < record.place]
        return self.keys.get(record.key) in ended and not before

    def _oldest(self, wall: int) -> Record | None:
        found = self._free()
        if not self.rules.lanes or not found:
            return found[0] if found else None
        heads: dict[int, Record] = {}
        for record in found:
            heads.setdefault(record.priority, record)
        weights = self.rules.weights
        if weights is not None:
            return heads[max(heads, key=lambda lane: (self.credits[lane] + weights[lane], -lane))]
        return min(heads.values(), key=lambda record: self.rank(record, wall))

    def _free(self) -> list[Record]:
        """Records at their places, in order."""
        aside = self.leased.keys() | self.waiting.keys() | self.blocked
        aside |= {record.place for record in self.burying}
        return [record for place, record in sorted(self.records.items()) if place not in aside]

    def claim(self, record: Record) -> None:
        """Somebody gets the record: its lane has had a turn."""
        weights = self.rules.weights
        if weights is None or not self.rules.lanes:
            return
        lanes = {other.priority for other in self._free()}
        for lane in range(10):
            self.credits[lane] = self.credits[lane] + weights[lane] if lane in lanes else 0
        self.credits[record.priority] -= sum(weights[lane] for lane in lanes)

    def rank(self, record: Record, wall: int) -> tuple[int, int]:
        """The record with the lowest one is next."""
        if not self.rules.lanes:
            return 0, record.place
        if self.rules.aging is None:
            return record.priority, record.place
        waited = max(0, wall - record.put_time)
        return record.priority - int(waited / (self.rules.aging * NS)), record.place

    # Out.

    def expire(self, record: Record) -> None:
        self.expired += 1
        if self.rules.expired_to_dead and not self.name.endswith(DEAD):
            self.burying.append(record)
        else:
            self.gone(record)

    def gone(self, record: Record) -> None:
        del self.records[record.place]
        self.leased.pop(record.place, None)
        self.waiting.pop(record.place, None)
        self.stops.discard(record.place)
        self.blocked.discard(record.place)
        self.let_follow(record)

    def let_follow(self, record: Record) -> None:
        """The record needs its key no more: the next one of that key is at its place."""
        if record.key and self.keys.get(record.key, record.place) == record.place:
            self.keys.pop(record.key, None)
            followers = [p for p in self.blocked if self.records[p].key == record.key]
            if followers:
                self.blocked.remove(min(followers))

    def lease(self, record: Record, deadline: float) -> bool:
        """Hand the record out; False if it was often enough, and goes to the dead letters."""
        self.claim(record)
        if record.key:
            self.keys[record.key] = record.place
        if self.spent(record):
            self.burying.append(record)
            return False
        record.attempts += 1
        self.leased[record.place] = deadline
        return True

    def spent(self, record: Record) -> bool:
        """Whether the record was leased so often that nobody leases it again."""
        return record.attempts > 0 and not self.allowed(record.attempts)

    def allowed(self, attempts: int) -> bool:
        retries = self.rules.max_retries
        return retries is None or attempts <= retries or self.name.endswith(DEAD)

    def release(self, record: Record, now: float, delay: float = 0.0) -> None:
        """The lease has ended without an ack."""
        del self.leased[record.place]
        if not self.allowed(record.attempts):
            self.burying.append(record)
        elif delay:
            self.waiting[record.place] = now + delay
            if self.rules.strict:
                self.stops.add(record.place)

    def backoff(self, record: Record) -> float:
        return min(self.rules.backoff * 2.0 ** (record.attempts - 1), 300.0)

    # Time.

    def advance(self, now: float) -> None:
        """That time has come."""
        for place, due in sorted(self.waiting.items(), key=lambda entry: entry[1]):
            if due <= now:
                del self.waiting[place]
                self.stops.discard(place)
        for place, deadline in sorted(self.leased.items(), key=lambda entry: entry[1]):
            if deadline <= now:
                self.release(self.records[place], now)

    def reopen(self, now: float, wall: int) -> None:
        """Nobody holds anything; a delay goes on, for no longer than its put asked for."""
        self.leased, self.waiting, self.stops = {}, {}, set()
        self.keys, self.blocked, self.burying = {}, set(), []
        self.expired = self.buried = 0
        self.credits = [0] * 10
        self.cursor_done, self.handed = self.cursor_kept, 0
        for record in self.records.values():
            left = min(record.due - wall, record.due - record.put_time)
            if record.due and left > 0:
                self.waiting[record.place] = now + left / NS


class StoreModel:
    """Queues and their dead letters, and the states that a crash may leave.

    `states[0]` is surely durable; those before `written` do not survive the end of the process.
    """

    def __init__(self, rules: dict[str, Rules]) -> None:
        self.queues = {name: QueueModel(name, rule) for name, rule in rules.items()}
        self.known: dict[tuple[str, bytes], Record] = {}
        self.put_times: dict[tuple[str, int], int] = {}
        """Of puts with ids."""
        self.old_ids: dict[str, set[tuple[str, int]]] = {name: set() for name in rules}
        """Puts of ids whose window was over once: a clock that is set back may begin it anew."""
        self.states: list[Contents] = [self.contents()]
        self.written = 0

    def contents(self) -> Contents:
        return tuple(
            Kept(
                name,
                tuple((r.payload, r.attempts) for _, r in sorted(queue.records.items())),
                len(queue.history),
                frozenset((id, put.counter) for id, put in queue.ids.items()),
                queue.cursor_kept,
            )
            for name, queue in self.queues.items()
        )

    # What is sure.

    def changed(self, level: str = "memory") -> None:
        """One change that is whole or not at all, and as sure as its level says."""
        contents = self.contents()
        if contents != self.states[-1]:
            self.states.append(contents)
        self.sure(level)

    def sure(self, level: str) -> None:
        if level != "memory":
            self.written = len(self.states) - 1
        if level == "sync":
            self.states, self.written = self.states[-1:], 0

    # Changes.

    def put(self, name: str, records: Iterable[Record], now: float, wall: int) -> None:
        for record in records:
            self.queues[name].put(record, now, wall)
            self.known[name, record.payload] = record

    def remember(self, name: str, id: str, record: Record, now: float) -> None:
        """The record was put with that id."""
        queue = self.queues[name]
        if id in queue.ids:
            self.old_ids[name].add((id, queue.ids[id].counter))
        queue.ids[id] = Id(record.counter, record.put_time, now)
        self.put_times[name, record.counter] = record.put_time

    def bury(self, name: str) -> bool:
        """What is on its way to the dead letters is there; False if nothing was."""
        queue = self.queues[name]
        found, queue.burying = queue.burying, []
        for record in found:
            self.move(name, record)
            self.changed()
        return bool(found)

    def move(self, name: str, record: Record) -> None:
        queue = self.queues[name]
        queue.gone(record)
        queue.buried += 1
        letter = Record(0, record.payload, priority=record.priority, key=record.key)
        self.put(name + DEAD, [letter], 0.0, 0)

    def crash(
        self, disk: Contents, found: Contents, now: float, wall: int, stamps: dict[str, int]
    ) -> None:
        """The store was opened anew and has the records `found`; `stamps` are its newest.

        Windows of ids go by these where the clock was set back. What is too old went as it was
        read. That is not written yet, so the next crash may leave `disk` again; and with a clock
        that was set back, what was too old may be there again.
        """
        for name, records, puts, ids, cursor in found:
            queue = self.queues[name]
            queue.records = {}
            for payload, attempts in records:
                record = self.known[name, payload]
                record.attempts = attempts
                queue.records[record.place] = record
            del queue.history[puts:]
            queue.cursor_kept = cursor
            latest = max(wall, stamps[name])
            self._note_old_ids(queue, now, latest)
            # A clock that was set back makes no window longer than it is from now on.
            queue.ids = {
                id: Id(counter, time, now - max(0, latest - time) / NS)
                for id, counter in ids
                for time in (self.put_times[name, counter],)
            }
            queue.reopen(now, wall)
        self.states, self.written = [disk, found], 0

    def _note_old_ids(self, queue: QueueModel, now: float, wall: int) -> None:
        window = queue.rules.dedup_window
        for id, put in queue.ids.items():
            if put.since <= now - window or put.time <= wall - round(window * NS):
                self.old_ids[queue.name].add((id, put.counter))
