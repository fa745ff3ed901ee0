"""A store on a simulated disk, its model, and the operations that small workloads are made of.

Each operation tells the model what it is about to do, does it, and tells the model what was
promised on return. So at any moment in between, the model knows what a crash may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store import Log, LogOptions, open_log
from store.blocks import ACKED, DEAD_LETTERED, EXPIRED, HEADERS, RECORD_WEIGHT, Column
from store.draft import Draft
from store.files import Files
from tests.support.clock import ManualClock
from tests.support.oracle import Commit, Found, Model, Record, check_survivors, observe

PATH = "/store"
BIG_BYTES = 1200
STATES: tuple[bytes | None, ...] = (b"first", b"second", None)

Wrap = Callable[[SimFiles], Files]


class World:
    """One store that lives on `files`, and what it promised so far.

    `wrap` stands between the store and its disk. `open` must be called first.
    """

    def __init__(self, files: SimFiles, *, options: LogOptions, wrap: Wrap | None = None) -> None:
        self.files = files
        self.model = Model()
        self.clock = ManualClock()
        self.options = options
        self.wrap = wrap
        self.serial = 0
        self.log: Log

    def on(self, files: SimFiles) -> World:
        """The same story so far on another disk, with no store open there yet."""
        world = World(files, options=self.options, wrap=self.wrap)
        world.model = self.model.copy()
        world.clock.set_wall(self.clock.wall())
        world.serial = self.serial
        return world

    def open(self) -> Found:
        """Open the store after whatever happened to it; it must show what the model allows."""
        self.log = open_log(
            PATH,
            files=self.wrap(self.files) if self.wrap else self.files,
            clock=self.clock,
            options=self.options,
        )
        found = self.found()
        self.model.settle(check_survivors(found, self.model, self.model.returned))
        return found

    def found(self) -> Found:
        return observe(self.log)

    # Commits.

    def put(self, *, queue: str = "a", size: int = 0, sync: bool = True) -> None:
        self._put([(queue, 1)], size=size, sync=sync)

    def put_big(self) -> None:
        """A record over several sectors."""
        self.put(size=BIG_BYTES)

    def put_many(self) -> None:
        """Two records of one queue and one of another in a single commit."""
        self._put([("a", 2), ("b", 1)])

    def put_os(self) -> None:
        """A put that the kernel has and the disk may not have."""
        self.put(sync=False)

    def take(self, *, queue: str = "a", sync: bool = True) -> None:
        head = next(iter(self.model.now.queue(queue).records.values()), None)
        if head is not None:
            self._attempt(Commit(removes=[(queue, head.counter)]))
        taken = self.log.take(queue, 1, sync=sync)
        assert [(key.counter, key.timestamp, payload) for key, payload in taken] == (
            [] if head is None else [head]
        ), f"take gave {taken}, the head is {head}"
        if head is not None:
            self.model.confirm(durable=sync)

    def ack_oldest(self) -> None:
        self.ack(0)

    def ack_newest(self) -> None:
        self.ack(-1)

    def ack(self, at: int, *, queue: str = "a", sync: bool = True) -> None:
        """Remove the live record at that place, whichever it is."""
        self._part_with(at, ACKED, queue=queue, sync=sync)

    def expire(self) -> None:
        """The head is past its time, and goes without a trace."""
        self._part_with(0, EXPIRED)

    def reject(self) -> None:
        """Move the head to the dead letters, with headers: it goes and comes in one frame."""
        self._part_with(0, DEAD_LETTERED, into="a.dlq", headers=b"rejected")

    def transact(self) -> None:
        """Ack the newest, put what it leads to into another queue, set a state: one frame."""
        self._part_with(-1, ACKED, into="b", state="t")

    def _part_with(
        self,
        at: int,
        reason: int,
        *,
        queue: str = "a",
        sync: bool = True,
        into: str | None = None,
        headers: bytes | None = None,
        state: str | None = None,
    ) -> None:
        """Remove a live record, with whatever else belongs to that commit."""
        records = list(self.model.now.queue(queue).records.values())
        if not records:
            return
        record = records[at]
        weight = len(record.payload) + RECORD_WEIGHT
        draft, commit = self.log.draft(), Commit(removes=[(queue, record.counter)])
        gone = [(record.counter, record.counter, weight)]
        draft.remove(self.log.queue(queue), gone, reason=reason)
        if into is not None:
            self._draft_put(draft, commit, into, [record.payload], headers=headers)
        if state is not None:
            value = self._next_state(state)
            draft.set_states([(state, value)])
            commit.states.append((state, value))
        self._attempt(commit)
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    def lease(self, *, queue: str = "a", sync: bool = True) -> None:
        """Hand out the oldest record once more."""
        view = self.model.now.queue(queue)
        if not view.records:
            return
        counter = min(view.records)
        attempt = view.attempts.get(counter, 0) + 1
        draft = self.log.draft()
        draft.lease(self.log.queue(queue), [counter], [attempt], self.clock.wall() + 10**9)
        self._attempt(Commit(leases=[(queue, counter, attempt)]))
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    def set_state(self, *, name: str = "s", sync: bool = True) -> None:
        """Set a state to its next value; every third time that deletes it."""
        value = self._next_state(name)
        draft = self.log.draft()
        draft.set_states([(name, value)])
        self._attempt(Commit(states=[(name, value)]))
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    def configure(self, *, queue: str = "a", sync: bool = True) -> None:
        self.serial += 1
        configuration = f"configuration {self.serial}".encode()
        draft = self.log.draft()
        draft.configure(self.log.queue(queue), configuration)
        self._attempt(Commit(configurations=[(queue, configuration)]))
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    def restore(self, queue: str, record: Record, *, sync: bool = True) -> None:
        """Put a record that was removed back at its place."""
        draft = self.log.draft()
        draft.move(self.log.queue(queue), [record.counter], [record.time], [record.payload])
        self._attempt(Commit(puts=[(queue, record)], restores=True))
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    # Upkeep. What these write is no commit of the model's: nothing that is visible changes.

    def seal(self) -> None:
        self.log.seal()

    def flush(self) -> None:
        self.log.flush()
        self.model.confirm(durable=True)

    def rotate(self) -> None:
        self.log.rotate()
        self.model.confirm(durable=True)

    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.model.confirm(durable=True)

    def compact(self) -> None:
        self.log.compact()

    # Ends and beginnings.

    def reopen(self) -> None:
        """Close and open."""
        self.log.close()
        self.model.confirm(durable=True)
        self.open()

    def crash(self) -> None:
        """End the process and open again; the disk keeps running."""
        self.files.process_crash()
        self.open()

    def _put(self, counts: Sequence[tuple[str, int]], *, size: int = 0, sync: bool = True) -> None:
        draft, commit = self.log.draft(), Commit()
        for name, count in counts:
            self._draft_put(draft, commit, name, [self._payload(size) for _ in range(count)])
        self._attempt(commit)
        self.log.commit(draft, sync=sync)
        self.model.confirm(durable=sync)

    def _draft_put(
        self,
        draft: Draft,
        commit: Commit,
        name: str,
        payloads: list[bytes],
        *,
        headers: bytes | None = None,
    ) -> None:
        queue = self.log.queue(name)
        counter, time = queue.genesis.next_counter, queue.genesis.last_put_time
        time = max(time, self.clock.wall())
        commit.puts += [
            (name, Record(counter + i, time, payload)) for i, payload in enumerate(payloads)
        ]
        columns: dict[int, Column] = {} if headers is None else {HEADERS: [headers]}
        first = draft.put(queue, payloads, columns=columns)
        assert first == counter, f"counter {first} was given out, {counter} is next"

    def _next_state(self, name: str) -> bytes | None:
        now = self.model.now.states.get(name)
        return STATES[(STATES.index(now) + 1) % len(STATES)]

    def _payload(self, size: int) -> bytes:
        self.serial += 1
        return b"record %d " % self.serial + bytes(range(1, 256)) * (size // 255)

    def _attempt(self, commit: Commit) -> None:
        self.clock.advance(seconds=0.001)
        self.model.attempt(commit)


OPERATIONS: dict[str, Callable[[World], None]] = {
    "put": World.put,
    "put_big": World.put_big,
    "put_many": World.put_many,
    "put_os": World.put_os,
    "take": World.take,
    "ack_oldest": World.ack_oldest,
    "ack_newest": World.ack_newest,
    "lease": World.lease,
    "expire": World.expire,
    "reject": World.reject,
    "transact": World.transact,
    "set_state": World.set_state,
    "seal": World.seal,
    "flush": World.flush,
    "rotate": World.rotate,
    "checkpoint": World.checkpoint,
    "compact": World.compact,
    "reopen": World.reopen,
    "crash": World.crash,
}

DELIVERY = ("expire", "reject", "transact")
"""Those that put together what others do one by one."""

PREPARATIONS: dict[str, Callable[[World], None]] = {**OPERATIONS, "configure": World.configure}


class Start(NamedTuple):
    """What was done to a store before a workload begins; then it was closed."""

    options: LogOptions
    operations: tuple[str, ...]


_LIFE = (
    "put",
    "configure",
    "put_many",
    "set_state",
    "put_big",
    "rotate",
    "ack_newest",
    "lease",
    "put_os",
)

STARTS = {
    "empty": Start(LogOptions(fill_bytes=256, reserve_bytes=128), ()),
    "used": Start(LogOptions(fill_bytes=0, reserve_bytes=0), _LIFE),
    "filled": Start(LogOptions(fill_bytes=64, reserve_bytes=64), _LIFE),
}
"""Beginnings of workloads. Little is written ahead, so that few sectors can be torn."""


def start_of(name: str, wrap: Wrap | None = None) -> tuple[World, Image]:
    """A story that ended with a close, and the disk it left."""
    start = STARTS[name]
    world = World(SimFiles(), options=start.options, wrap=wrap)
    if start.operations:
        world.open()
        for operation in start.operations:
            PREPARATIONS[operation](world)
        world.log.close()
        world.model.confirm(durable=True)
    return world, world.files.image()
