"""Steps: what handling a message does inside the runtime, committed in one frame or not at all.

A step waits until the one before it is under way no more, together with those of all other
actors: they share one joint, one frame and one sync. An actor goes on meanwhile. Frames follow each
other, so what a crash leaves is always the first steps of an actor and none behind a gap. What
others can see of a step (replies, messages to actors in memory) happens when it is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from fifoq.attributes import Attributes, size_of
from fifoq.joint import Joint, Removal
from fifoq.logs import fields, name_of
from fifoq.options import MEMORY
from fifoq.runs import COLUMN_BYTES, FRAME_BYTES_MAX, LINES_PER_FRAME_MAX, Returned
from store import FifoqError
from store.blocks import ACKED
from store.repeats import RANGE_BYTES

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

JOINT_BYTES_MAX: Final = 4 << 20
"""What is gathered for one frame before the rest waits for the next one."""
STEP_BYTES_MAX: Final = FRAME_BYTES_MAX - (8 << 20)
"""What a handler may do in one step. The rest of the frame is for what comes along with it."""
QUEUES_MAX: Final = LINES_PER_FRAME_MAX - 8
"""Queues beside the actors that the steps of one frame put into. The rest is for their own."""
STATE_BYTES: Final = 256
"""What a state entry needs in a frame beside its value, about."""
RETRY_SECONDS: Final = 0.25
"""How long after a full disk refused them steps are tried again."""

logger = logging.getLogger("fifoq")


class Owner(Protocol):
    """Whose step it is."""

    def committed(self) -> None:
        """One of its steps is."""


class Step:
    """Everything that one message leads to. Built while its handler runs, then given to `Steps`.

    Most steps have little, and there are many: what one does not have costs nothing.
    """

    __slots__ = (
        "after",
        "asker",
        "before",
        "level",
        "owner",
        "puts",
        "queues",
        "removals",
        "size",
        "states",
    )

    def __init__(self, owner: Owner | None = None) -> None:
        self.owner = owner
        self.removals: tuple[Removal, ...] = ()
        self.puts: list[tuple[str, bytes, Attributes | None]] | None = None
        self.queues: set[str] | None = None
        """Those beside the actors that it puts into, at `level` at least."""
        self.level = MEMORY
        self.states: dict[str, bytes | None] | None = None
        self.before: list[Callable[[Joint], None]] | None = None
        self.after: list[Callable[[], None]] | None = None
        self.asker: asyncio.Future[object] | None = None
        """Who hears of it when it is committed, and of the failure if it never is."""
        self.size = 0

    def put(self, queue: str, payload: bytes, attributes: Attributes | None = None) -> None:
        """Put a record into a queue of the store."""
        if self.puts is None:
            self.puts = []
        self.puts.append((queue, payload, attributes))
        self.count(payload, attributes)

    def put_beside(
        self, queue: str, payload: bytes, attributes: Attributes | None, level: int
    ) -> None:
        """Put a record into a queue that is none of the actors' own, at that level at least."""
        if self.queues is None:
            self.queues = set()
        self.queues.add(queue)
        self.level = max(self.level, level)
        self.put(queue, payload, attributes)

    def count(self, payload: bytes, attributes: Attributes | None = None) -> None:
        """Leave room for a record."""
        self.size += len(payload) + size_of(attributes) + COLUMN_BYTES

    def remove(self, queue: Queue[Any], record: Returned, reason: int = ACKED) -> None:
        """Remove a record that the caller holds, counted and out of its place."""
        self.removals = (*self.removals, Removal(queue, record, reason))
        self.size += RANGE_BYTES

    def set_state(self, name: str, value: bytes | None) -> None:
        """Set a state entry of the store; None deletes it."""
        if self.states is None:
            self.states = {}
        self.states[name] = value
        self.size += len(value or b"") + STATE_BYTES

    def when_made(self, call: Callable[[Joint], None]) -> None:
        """Call that when its joint is made: for what can be known no earlier."""
        if self.before is None:
            self.before = []
        self.size += RANGE_BYTES
        self.before.append(call)

    def when_committed(self, call: Callable[[], None]) -> None:
        """Call that when it is committed."""
        if self.after is None:
            self.after = []
        self.after.append(call)

    def __bool__(self) -> bool:
        """Whether it does anything."""
        return bool(self.removals or self.puts or self.states or self.before or self.after)


class Steps:
    """Commits steps in the order in which they are added, as many at once as there are."""

    def __init__(self, committer: Committer, level: int, fail: Callable[[Exception], None]) -> None:
        self._committer = committer
        self._level = level
        self._fail = fail
        self._waiting: deque[Step] = deque()
        self._under_way: list[Step] = []
        self._scheduled = False
        self._retry: asyncio.TimerHandle | None = None
        self._added = self._committed = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.failure: FifoqError | None = None
        self.size = 0
        """Bytes of those that are not committed."""
        self.held_up = False
        """Whether a full disk refused the first of them."""

    def add(self, step: Step) -> int:
        """Commit the step as soon as it can be; returns its number, for `committed`."""
        self._waiting.append(step)
        self.size += step.size
        self._added += 1
        if self.failure is not None:
            _refuse_asker(step, self.failure)
        if not (self._scheduled or self._under_way):
            self._scheduled = True
            # At the end of the turn: others of it belong into the same frame.
            self._committer.loop.call_soon(self._submit)
        return self._added

    async def committed(self, number: int) -> None:
        """Wait until the step with that number is committed. StoreFailed and the like if never."""
        if self._committed >= number:
            return
        if self.failure is not None:
            raise self.failure
        future = self._committer.loop.create_future()
        self._waiters.append((number, future))
        await future

    async def flush(self) -> None:
        """Wait until everything that was added so far is committed."""
        await self.committed(self._added)

    async def below(self, size: int) -> None:
        """Wait until those that are not committed are smaller, together."""
        while self.size >= size:
            await self.flush()

    def _submit(self) -> None:
        self._scheduled = False
        if not self._waiting or self._under_way or self.failure is not None:
            return
        joint = Joint(level=self._level)
        states: dict[str, bytes | None] = {}
        steps = self._under_way
        size = queues = 0
        while self._waiting and (not steps or _goes_along(self._waiting[0], size, queues)):
            step = self._waiting.popleft()
            steps.append(step)
            size += step.size
            joint.removals += step.removals
            if step.puts is not None:
                for put in step.puts:
                    joint.put(*put)
            if step.queues is not None:
                queues += len(step.queues)
                joint.level = max(joint.level, step.level)
            if step.states is not None:
                states.update(step.states)
            if step.before is not None:
                for call in step.before:
                    call(joint)
        joint.states = list(states.items())
        # At most: what one step set another may have forgotten, or set anew.
        joint.size = size
        joint.done = partial(self._done, steps)
        joint.undone = partial(self._undone, joint)
        self._commit(joint)

    def _commit(self, joint: Joint) -> None:
        joint.future = self._committer.loop.create_future()
        joint.future.add_done_callback(self._ended)
        self._committer.joints.submit(joint)

    def _done(self, steps: list[Step]) -> None:
        self._under_way = []
        self._committed += len(steps)
        self.held_up = False
        for step in steps:
            self.size -= step.size
            for line, record, _ in step.removals:
                leasing = cast("Queue[Any]", line).leasing
                leasing.leaving.discard(record.counter)
                leasing.forget(record.counter)
            if step.after is not None:
                for call in step.after:
                    self._tell(call)
            if step.owner is not None:
                step.owner.committed()
        while self._waiters and self._waiters[0][0] <= self._committed:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
        self._submit()

    def _tell(self, call: Callable[[], None]) -> None:
        """Let somebody hear of a commit, which stands whatever becomes of that."""
        try:
            call()
        except Exception as error:
            logger.error(
                "a step is committed, and one who was to hear of it did not: %s",
                type(error).__name__,
                extra=fields("step_unheard", self._committer.path, error=name_of(error)),
            )

    def _undone(self, joint: Joint, error: FifoqError | None) -> None:
        """A full disk: nothing of it happened, and everything of it still has to."""
        self.held_up = True
        logger.warning(
            "steps of actors wait for the disk: %s",
            type(error).__name__,
            extra=fields("steps_wait", self._committer.path, error=name_of(error)),
        )
        self._retry = self._committer.loop.call_later(RETRY_SECONDS, self._again, joint)

    def _again(self, joint: Joint) -> None:
        self._retry = None
        if self._committer.usable:
            self._commit(joint)
        else:
            self._stop(self._committer.failure or FifoqError("the store was closed"))

    def _ended(self, future: asyncio.Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, FifoqError) and self._retry is None:
            self._stop(error)

    def _stop(self, error: FifoqError) -> None:
        """What is on disk is known after a reopen: nobody goes on."""
        if self.failure is not None:
            return
        self.failure = error
        waiting, self._waiters = self._waiters, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        for step in (*self._under_way, *self._waiting):
            _refuse_asker(step, error)
        self._fail(error)

    def close(self) -> None:
        """Try nothing again: askers of what is not committed hear so."""
        if self._retry is not None:
            self._retry.cancel()
        for step in (*self._under_way, *self._waiting):
            _refuse_asker(step, self.failure or FifoqError("the store was closed"))


def _goes_along(step: Step, size: int, queues: int) -> bool:
    """Whether a frame that has so much already is to hold the step as well."""
    if step.queues is not None and queues + len(step.queues) > QUEUES_MAX:
        return False
    return size + step.size <= JOINT_BYTES_MAX


def _refuse_asker(step: Step, error: FifoqError) -> None:
    if step.asker is not None and not step.asker.done():
        step.asker.set_exception(error)
