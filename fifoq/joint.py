"""Joints: changes to several queues of a store that one frame holds, or none does.

A joint waits beside the lines and touches none of them. When a frame is put together it enters
its lines, puts and removals at once, and these are sealed whole: so a frame holds all of it or
nothing. Whoever leaves before that has changed nothing; a frame that was refused is undone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fifoq.attributes import Attributes, size_of
from fifoq.errors import QueueClosed
from fifoq.line import Line
from fifoq.options import OS
from fifoq.runs import COLUMN_BYTES, FRAME_BYTES_MAX, LINES_PER_FRAME_MAX, Returned
from store import FifoqError, Key, Log
from store.repeats import RANGE_BYTES

if TYPE_CHECKING:
    from fifoq.intake import Intake

SLACK_BYTES: Final = 1 << 20
"""What may wait in the lines of a joint that is larger than a frame should be."""


class Put(NamedTuple):
    """A record for the queue with that name, which need not be open."""

    name: str
    payload: bytes
    attributes: Attributes | None
    configuration: bytes | None
    """Kept with the queue if this makes it."""


class Removal(NamedTuple):
    """A record that somebody holds, out of its place and still counted, and why it goes."""

    line: Line
    record: Returned
    reason: int


class Joint(msgspec.Struct, eq=False):
    """What one frame is to hold. See the module; `Joints` commits it."""

    level: int = OS
    """The frame is written at this level at least."""
    puts: list[Put] = []
    removals: list[Removal] = []
    states: list[tuple[str, bytes | None]] = []
    size: int = 0
    """Bytes of a frame, about."""
    keys: list[Key] = []
    """Of the records put, in their order, once it is committed; of one whose id was put before,
    the key that it was given then."""
    entered: Callable[[Joint], None] | None = None
    """Called when the records have their keys, just before its frame is written: its states may be
    replaced by others that are no longer."""
    done: Callable[[], None] | None = None
    """Called when it is committed."""
    undone: Callable[[FifoqError | None], None] | None = None
    """Called when it is certain that nothing of it happens: an error, or None if withdrawn."""
    future: asyncio.Future[None] | None = None
    expected: list[Line] = []
    """While it waits: which open queues its records are for."""
    arrived: list[tuple[Line, int]] = []
    """While its frame is under way: the records, by line and counter."""
    late: bool = False
    """A frame had no room for it."""

    def put(
        self,
        name: str,
        payload: bytes,
        attributes: Attributes | None = None,
        configuration: bytes | None = None,
    ) -> None:
        """Put a record into a queue of the store, open or not.

        `configuration` is kept with a queue that comes to be by it. A record with a time needs a
        queue that is open: whoever opens another one would not look for it.
        """
        self.puts.append(Put(name, payload, attributes, configuration))
        self.size += len(payload) + size_of(attributes) + COLUMN_BYTES

    def remove(self, line: Line, record: Returned, reason: int) -> None:
        """Remove a record that the caller holds. The size of its line counts it until then."""
        self.removals.append(Removal(line, record, reason))
        self.size += RANGE_BYTES

    def set_state(self, name: str, value: bytes | None) -> None:
        """Set a state entry of the store; None deletes it."""
        self.states.append((name, value))
        self.size += len(name) + len(value or b"") + COLUMN_BYTES

    def state_bytes(self) -> int:
        """What its states need in a frame, about."""
        return sum(len(name) + len(value or b"") + COLUMN_BYTES for name, value in self.states)

    def queue_names(self) -> dict[str, None]:
        """The queues that it changes, in order."""
        names = dict.fromkeys(put.name for put in self.puts)
        return names | dict.fromkeys(removal.line.name for removal in self.removals)

    def only_drains(self) -> bool:
        """Whether a full disk can hold it: removals of what was written before, nothing else."""
        return not (self.puts or self.states) and all(
            removal.record.counter < removal.line.tail_first for removal in self.removals
        )


class Joints:
    """The joints of a store that wait to be committed."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._lines = intake.lines
        self.waiting: list[Joint] = []
        self.under_way: list[Joint] = []
        """What the frame holds that is put together or written now."""
        self._unopened: set[str] = set()
        """Queues that nobody opened and that have a line only for the frame under way."""

    async def commit(self, joint: Joint) -> None:
        """Commit it: on return one frame holds all of it, at the joint's level.

        DiskFull: nothing of it happened. Cancelled before it is sealed into a frame, it never
        happens; after that it does, once.
        """
        joint.future = self._intake.loop.create_future()
        self.submit(joint)
        try:
            await joint.future
        except BaseException:
            joint.future.cancel()
            self.withdraw(joint)
            raise

    def submit(self, joint: Joint) -> None:
        """The same without waiting: `done` or `undone` tells, unless the store fails before."""
        intake = self._intake
        assert all(put.name in self._lines or not _has_time(put) for put in joint.puts)
        self.waiting.append(joint)
        self._expect(joint, 1)
        intake.waiting_bytes += joint.size
        intake.raise_level(joint.level)
        intake.commit_soon()

    def withdraw(self, joint: Joint) -> bool:
        """Take it back; False if it is sealed into a frame, or at its end already."""
        if joint not in self.waiting:
            return False
        self.waiting.remove(joint)
        self._leave(joint)
        _undone(joint, None)
        return True

    def _leave(self, joint: Joint) -> None:
        """It waits no more."""
        self._intake.waiting_bytes -= joint.size
        self._expect(joint, -1)

    def _expect(self, joint: Joint, sign: int) -> None:
        """Let the limits of open queues count what is about to come."""
        if sign > 0:
            names = [put.name for put in joint.puts if put.name in self._lines]
            joint.expected = [self._lines[name] for name in names]
        for line, count in Counter(joint.expected).items():
            line.expect(sign * count)
        if sign < 0:
            joint.expected = []

    # For the committer.

    @property
    def set_states(self) -> bool:
        """Whether what is under way needs space although it may put no record."""
        return any(joint.states for joint in self.under_way)

    def enter(self, log: Log, *, puts: bool) -> dict[Line, None]:
        """Bring what one frame can hold into its lines; these are to be sealed whole, and now.

        Without `puts` only what a full disk can hold. The rest goes on waiting.
        """
        entered = self.under_way
        assert not entered
        bound: dict[Line, None] = {}
        size = 0
        for joint in self.waiting:
            if not (puts or joint.only_drains()):
                continue
            names = [n for n in joint.queue_names() if self._lines.get(n) not in bound]
            waits = sum(map(self._waiting_bytes, names))
            full = size + waits + joint.size > FRAME_BYTES_MAX and (entered or waits > SLACK_BYTES)
            if full or (entered and len(bound) + len(names) > LINES_PER_FRAME_MAX):
                joint.late = True
                break
            size += waits + joint.size
            self._leave(joint)
            self._enter(joint, log)
            bound.update((self._lines[name], None) for name in names)
            entered.append(joint)
        gone = set(map(id, entered))
        self.waiting = [joint for joint in self.waiting if id(joint) not in gone]
        return bound

    def _waiting_bytes(self, name: str) -> int:
        """What a frame must hold of a queue whose line is sealed whole."""
        line = self._lines.get(name)
        if line is None:
            return 0
        self._intake.waiting_bytes += line.count_tail()
        return line.tail_bytes + line.restored_bytes()

    def _enter(self, joint: Joint, log: Log) -> None:
        now = time.time_ns()
        joint.keys = []
        line: Line | None = None
        for put in joint.puts:
            if line is None or line.name != put.name:
                line = self._line(put, log)
                line.begin_arrivals(now)
            next_counter = line.next
            counter, moment = line.arrive(put.payload, put.attributes)
            joint.keys.append(Key(counter, moment))
            if counter >= next_counter:
                joint.arrived.append((line, counter))
                self._intake.waiting_bytes += size_of(put.attributes)
        leaving: dict[Line, list[tuple[Returned, int]]] = {}
        for line, record, reason in joint.removals:
            leaving.setdefault(line, []).append((record, reason))
        for line, records in leaving.items():
            line.depart(records, now)
        if joint.entered is not None:
            joint.entered(joint)

    def _line(self, put: Put, log: Log) -> Line:
        """The line of a queue; one that nobody opened gets one for as long as the frame lasts."""
        name = put.name
        line = self._lines.get(name)
        if line is None:
            genesis = log.queue(name).genesis
            line = self._lines[name] = Line(
                name,
                next_counter=genesis.next_counter,
                floor=genesis.floor,
                size=genesis.queue_size,
                last_put_time=genesis.last_put_time,
            )
            self._unopened.add(name)
            if genesis.next_counter == 1:
                line.configuration = put.configuration
        return line

    def committed(self) -> None:
        """The frame is written, and its lines have heard of it."""
        self._forget_unopened()
        # They are forgotten last: whoever is interrupted in here has told the rest of nothing.
        for joint in self.under_way:
            joint.arrived = []
            # One wake-up stands for all the room there is.
            for line in dict.fromkeys(removal.line for removal in joint.removals):
                line.records_went()
            if joint.done is not None:
                joint.done()
            if joint.future is not None and not joint.future.done():
                joint.future.set_result(None)
        self.under_way = []

    def arrived_count(self) -> int:
        """How many records of theirs are in the frame that is under way."""
        return sum(len(joint.arrived) for joint in self.under_way)

    def refused(self, error: FifoqError, *, again: bool) -> None:
        """Nothing of the frame was stored, and its lines have it back.

        What a full disk can hold may be tried `again` without the rest of the frame.
        """
        kept: list[Joint] = []
        undone: list[Joint] = []
        for joint in self.under_way:
            self._take_out(joint)
            (kept if again and joint.only_drains() else undone).append(joint)
        self._forget_unopened()
        self._intake.waiting_bytes += sum(joint.size for joint in kept)
        # What finds no room beside records that cannot be written would never find it.
        late = [joint for joint in self.waiting if again and joint.late]
        for joint in late:
            self._leave(joint)
        left = set(map(id, late))
        self.waiting = kept + [joint for joint in self.waiting if id(joint) not in left]
        for joint in undone + late:
            _undone(joint, error)
        self.under_way = []

    def _take_out(self, joint: Joint) -> None:
        for line, counter in joint.arrived:
            line.withdraw(counter, 1)
            line.records_went()
        joint.arrived, joint.keys = [], []
        for removal in joint.removals:
            removal.line.stay(removal.record)

    def _forget_unopened(self) -> None:
        intake = self._intake
        for name in self._unopened:
            line = self._lines.pop(name)
            intake.waiting_bytes -= line.tail_bytes
            intake.forget(line)
        self._unopened.clear()

    def fail(self, error: FifoqError) -> None:
        """The store stopped: whoever waits is told. What is on disk is known after a reopen."""
        for joint in self.under_way + self.waiting:
            if joint.future is not None and not joint.future.done():
                joint.future.set_exception(error)
        self.under_way, self.waiting = [], []

    def retire(self) -> None:
        """Nothing is committed any more."""
        error = QueueClosed("the store was closed before this was committed. Open it anew.")
        self.fail(error)


def _has_time(put: Put) -> bool:
    return put.attributes is not None and bool(put.attributes.deliver_at)


def _undone(joint: Joint, error: FifoqError | None) -> None:
    if joint.undone is not None:
        joint.undone(error)
    if joint.future is not None and not joint.future.done() and error is not None:
        joint.future.set_exception(error)
