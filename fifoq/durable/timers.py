"""Durable timers: letters that wait for their time in a queue of their own.

Setting and forgetting one are parts of a step. When its time has come a letter is moved to the
mailboxes, in one frame with the next one of a timer that repeats itself.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from actors.timers import EVERY_SECONDS_MIN, SECONDS_MAX
from fifoq.attributes import Attributes
from fifoq.durable.letters import Letter, decode_letter, write_letter
from fifoq.durable.steps import Step
from fifoq.errors import QueueClosed
from fifoq.fetching import Fetched, fetched
from fifoq.joint import Joint, Put
from fifoq.runs import Returned
from store import Key, Log
from store.blocks import PURGED

if TYPE_CHECKING:
    from fifoq.durable.box import Box
    from fifoq.durable.office import Office
    from fifoq.queue import Queue

TIMERS: Final = "actors/timers"
NAME_HEADER: Final = "fifoq.timer"
OWNER_HEADER: Final = "fifoq.timer_owner"
EVERY_HEADER: Final = "fifoq.timer_every"
DUE_HEADER: Final = "fifoq.timer_due"
MOVED_MAX: Final = 512
"""Letters whose time has come that are in memory at once, beside what their steps wait for."""
_NS: Final = 1_000_000_000

Named = tuple[str, str]
"""An actor and the name of a timer of its own."""
Again = tuple[bytes, int]
"""The letter of a timer that repeats itself, and when it is due next."""


class Timers:
    """The timers of all durable actors of one system."""

    def __init__(self, office: Office, queue: Queue[bytes]) -> None:
        self._office = office
        self._post = office.post
        self._queue = queue
        self._named: dict[Named, Returned | Put] = {}
        """What waits under a name; a Put while its frame is made."""
        self._keys: tuple[Joint, dict[int, Key]] | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, office: Office, queue: Queue[bytes]) -> Timers:
        """Go on with what was set before."""
        timers = cls(office, queue)
        found = cast("list[Returned]", await office.post.committer.call(_waiting_in))
        for record in found:
            with suppress(msgspec.MsgspecError):
                named = _named(decode_letter(record.payload))
                if named is not None:
                    timers._named[named] = record
        timers._task = office.post.loop.create_task(timers._ring(), name="fifoq timers")
        return timers

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # What steps do.

    def set(
        self,
        step: Step,
        owner: str,
        to: str,
        box: Box | None,
        message: object,
        seconds: float,
        every: float | None,
        name: str | None,
    ) -> None:
        """Make a timer a part of the step; one of that name is replaced."""
        now = time.time_ns()
        due = now + round(seconds * _NS)
        headers = {**self._office.carried.headers(), OWNER_HEADER: owner, DUE_HEADER: str(due)}
        if name is not None:
            headers[NAME_HEADER] = name
        if every is not None:
            headers[EVERY_HEADER] = repr(every)
        payload = write_letter(to, self._office.encode(to, box, message), headers)
        if name is not None:
            self.drop(step, owner, name)
        self._put(step, payload, due if due > now else 0, None if name is None else (owner, name))

    def drop(self, step: Step, owner: str, name: str) -> None:
        """Make it a part of the step that the timer of that name is no more."""
        step.when_made(partial(self._drop, (owner, name)))

    def _put(self, step: Step, payload: bytes, due: int, named: Named | None) -> None:
        attributes = _at(due)
        if named is None:
            step.put(TIMERS, payload, attributes)
            return
        step.count(payload, attributes)
        step.when_made(partial(self._put_named, step, payload, attributes, named))

    def _put_named(
        self,
        step: Step,
        payload: bytes,
        attributes: Attributes | None,
        named: Named,
        joint: Joint,
    ) -> None:
        joint.put(TIMERS, payload, attributes)
        put = self._named[named] = joint.puts[-1]
        step.when_committed(partial(self._note, named, put, joint))

    def _note(self, named: Named, put: Put, joint: Joint) -> None:
        """It is committed, and has a key."""
        if self._named.get(named) is not put:
            return
        if self._keys is None or self._keys[0] is not joint:
            ids = map(id, joint.puts)
            self._keys = joint, dict(zip(ids, joint.keys, strict=True))
        key = self._keys[1][id(put)]
        self._named[named] = Returned(key.counter, key.timestamp, put.payload, put.attributes)

    def _drop(self, named: Named, joint: Joint) -> None:
        found = self._named.pop(named, None)
        if isinstance(found, Put):
            # An earlier step of the same frame set it.
            joint.puts = [put for put in joint.puts if put is not found]
        elif found is not None and self._queue.pull(found):
            joint.remove(self._queue, found, PURGED)

    # When the time has come.

    async def _ring(self) -> None:
        queue = self._queue
        moved = 0
        try:
            while True:
                while not queue.looks_ready():
                    await queue.wait_to_take()
                while queue.has_ready():
                    record = queue.claim_head()
                    queue.bias += 1
                    queue.leasing.leaving.add(record.counter)
                    self._move(record)
                    moved += 1
                    if not moved % MOVED_MAX:
                        # After a long pause there may be any number, and others want to run.
                        await self._post.steps.flush()
        except QueueClosed:
            return
        except Exception as error:
            # Whatever it is: no timer would ring any more, and nobody know why.
            self._post.fail(error)

    def _move(self, record: Returned) -> None:
        try:
            letter = decode_letter(record.payload)
        except msgspec.MsgspecError:
            # Somebody else put it into our queue: it stays there, and in nobody's way.
            return
        named = _named(letter)
        step = Step()
        step.remove(self._queue, record)
        again = _again(letter)
        if named is None:
            step.put(self._post.queue.name, record.payload)
            if again is not None:
                self._put(step, *again, None)
        else:
            step.count(record.payload)
            step.count(again[0] if again is not None else b"")
            step.when_made(partial(self._move_named, step, record, again, named))
        self._post.steps.add(step)

    def _move_named(
        self, step: Step, record: Returned, again: Again | None, named: Named, joint: Joint
    ) -> None:
        """Only now is it known whether a step before this one replaced or forgot the timer."""
        held = self._named.get(named)
        if not isinstance(held, Returned) or held.counter != record.counter:
            return
        del self._named[named]
        joint.put(self._post.queue.name, record.payload)
        if again is not None:
            payload, due = again
            self._put_named(step, payload, _at(due), named, joint)


def _at(due: int) -> Attributes | None:
    return Attributes(deliver_at=due) if due else None


def _again(letter: Letter) -> Again | None:
    """The next one of a timer that repeats itself; times missed while nobody ran are passed."""
    headers = letter.headers
    try:
        every = min(max(float(headers[EVERY_HEADER]), EVERY_SECONDS_MIN), SECONDS_MAX)
        period, due = round(every * _NS), int(headers[DUE_HEADER])
    except (KeyError, ValueError):
        # It has no period, or none that anybody could have asked for.
        return None
    now = time.time_ns()
    due = min(due, now) + period
    if due <= now:
        due += ((now - due) // period + 1) * period
    headers = {**headers, DUE_HEADER: str(due)}
    return write_letter(letter.to, bytes(letter.message), headers), due


def _named(letter: Letter) -> Named | None:
    name = letter.headers.get(NAME_HEADER)
    return None if name is None else (letter.headers.get(OWNER_HEADER, letter.to), name)


def _waiting_in(log: Log) -> list[Returned]:
    counters = [counter for block in log.read(TIMERS) for counter in block.counters()]
    found: Fetched = fetched(log, TIMERS, counters) if counters else Fetched([], [])
    return found.records
