"""How a durable actor is fed: one letter at a time, and what became of it.

A handler that returns has made a step, which is committed with the ack of its letter. One that
fails has made none: its state is as it was, its letter is the first again, and the supervision
decides about the actor. Handlers may run ahead of the disk, by a few steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from actors import Actor, ActorStopped, NoReply, Reply
from actors.hooks import run_on_start
from actors.timing import clock
from fifoq.burying import Cause
from fifoq.durable.burying import bury
from fifoq.durable.context import NO_REPLY, StepContext, refuse, resolve
from fifoq.durable.letters import Letter
from fifoq.durable.post import STATE_PREFIX
from fifoq.durable.steps import QUEUES_MAX, STEP_BYTES_MAX, Step
from fifoq.runs import Returned
from store import ItemTooLarge

if TYPE_CHECKING:
    from actors.cell import Cell
    from fifoq.durable.box import Box
    from fifoq.durable.office import Kind

TURN_MESSAGES: Final = 128
"""Letters handled in a row before other tasks get a turn, and steps that may wait for the disk."""
AHEAD_BYTES_MAX: Final = 64 << 20
"""What the steps of all actors that wait for the disk may need in memory, and one step each."""
NEVER_BACK: Final = "the process ended each time while it was handled"


class Durably:
    """Feeds `receive` of one durable actor."""

    __slots__ = (
        "_actor",
        "_box",
        "_careful",
        "_cell",
        "_kind",
        "_number",
        "_state",
        "_steps_ahead",
        "_stumbles",
    )

    def __init__(self, cell: Cell[Any], box: Box, kind: Kind) -> None:
        if cell.on_batch is not None:
            raise TypeError(
                f"{kind.name} has on_batch: a durable actor handles one message at a time, in "
                f"receive. Nothing was spawned."
            )
        self._cell = cell
        self._box = box
        self._kind = kind
        self._actor: Actor[Any] | None = None
        self._state: bytes | None = None
        """The bytes of the state after the last step, from when it was loaded."""
        self._steps_ahead = 0
        self._number = 0
        self._careful = TURN_MESSAGES
        self._stumbles = 0
        """How often in a row it could not start."""

    # Hooks.

    async def start(self, actor: Actor[Any]) -> None:
        """Give a new object its state, and run `on_start`, which is a step."""
        if self._stumbles:
            # No message is to blame, and so none is put off: the start is.
            await asyncio.sleep(self._box.options.pause(self._stumbles))
        self._stumbles += 1
        self._actor = actor
        states = self._kind.states
        if states.kind is not None and self._state is None:
            # Of an actor that had the name before and whose last steps are on their way.
            await self._box.post.steps.flush()
            kept = await self._box.post.load(self._box.name)
            name = self._box.name
            self._state = states.first() if kept is None else states.restore(name, kept)
        self._reload()
        await self._hook(lambda context: run_on_start(actor, context, self._cell.cause))
        self._stumbles = 0

    async def stop(self, actor: Actor[Any]) -> None:
        """Run `on_stop`, which is a step; on return every step of the actor is committed.

        Unless the disk is full: all actors of a system would wait for it, one after the other.
        """
        steps = self._box.post.steps
        try:
            await self._hook(actor.on_stop)
        finally:
            if self._number and not steps.held_up:
                await steps.committed(self._number)

    async def _hook(self, hook: Callable[[StepContext[Any]], Awaitable[None]]) -> None:
        step = Step(self)
        context: StepContext[Any] = StepContext(self._cell, self._box, step)
        try:
            await hook(context)
            self._note_state(step)
        except BaseException:
            self._reload()
            raise
        finally:
            context.end()
        if step:
            self._add(step)

    # Letters.

    async def run(self) -> None:
        """Handle letters until the box is closed or the cell is interrupted."""
        cell, box, steps = self._cell, self._box, self._box.post.steps
        while cell.interruption is None:
            if self._is_ahead() or not box.ready:
                cell.waiting = True
                try:
                    if self._is_ahead():
                        # Its own are enough, unless those of all are too large.
                        await steps.committed(self._number)
                        await steps.below(AHEAD_BYTES_MAX)
                    if not await box.wait():
                        return
                finally:
                    cell.waiting = False
            if await self._turn():
                # The handlers may never have waited for anything, and others want to run.
                await asyncio.sleep(0)

    def _is_ahead(self) -> bool:
        """Whether the disk has to catch up before the next letter is handled."""
        return self._steps_ahead >= TURN_MESSAGES or self._box.post.steps.size >= AHEAD_BYTES_MAX

    async def _turn(self) -> bool:
        """Handle what is in memory, up to the limit of a turn; True if that was reached."""
        cell, box = self._cell, self._box
        timed = cell.timing.is_due()
        for _ in range(TURN_MESSAGES):
            if not box.loaded or box.closed or cell.interruption is not None:
                return False
            if self._is_ahead():
                return False
            record, letter = box.take()
            if letter.given and box.is_abandoned(record, letter):
                box.settled()
                box.remove(record)
                continue
            start = 0
            if timed:
                start, timed = clock(), False
                cell.timing.delays.add(max(0, time.time_ns() - record.time))
            if record.counter <= box.post.old_upto and self._careful:
                await self._handle_carefully(record, letter)
            else:
                await self._handle(record, letter)
            if start:
                cell.timing.handlers.add(clock() - start)
        return True

    async def _handle_carefully(self, record: Returned, letter: Letter) -> None:
        """Handle a letter that may have killed the last process, and nothing beside it.

        The attempt is on disk before it begins: what kills us each time ends as a dead letter.
        """
        self._careful -= 1
        post = self._box.post
        attempts = post.attempts_of(record.counter)
        if not self._box.options.allows(attempts):
            self._bury(record, letter, "max-retries", attempts, reason=NEVER_BACK)
            return
        try:
            await post.write_attempt(record.counter, attempts + 1)
        except BaseException:
            # It never began.
            post.note_attempt(record.counter, attempts)
            self._box.give_back()
            raise
        try:
            await self._handle(record, letter, attempts + 1)
        except asyncio.CancelledError:
            # A stop in good order is no fault of the letter.
            post.note_attempt(record.counter, attempts)
            raise
        if self._number:
            await post.steps.committed(self._number)

    async def _handle(self, record: Returned, letter: Letter, attempt: int = 0) -> None:
        box = self._box
        attempt = attempt or box.post.attempts_of(record.counter) + 1
        try:
            message = self._kind.messages.decode(letter.message)
        except Exception as error:
            # Not msgspec's alone: a `__post_init__` may raise whatever it likes.
            reason = f"it is not a {self._kind.messages.text}"
            self._bury(record, letter, "rejected", attempt, reason=reason, error=error)
            return
        step = Step(self)
        context: StepContext[Any] = StepContext(self._cell, box, step, letter, attempt)
        tokens = box.office.carried.enter(letter.given) if letter.given else None
        try:
            await self._cell.receive(message, context)
            step.remove(box.post.queue, record)
            self._note_state(step, context.encoded)
        except BaseException as error:
            self._fails(record, letter, attempt, error)
        finally:
            context.end()
            if tokens is not None:
                box.office.carried.leave(tokens)
        if letter.given:
            self._answer(step, context, letter)
        self._add(step)
        box.settled()
        self._cell.handled += 1

    def _answer(self, step: Step, context: StepContext[Any], letter: Letter) -> None:
        """Let the asker hear of the reply once the step is committed."""
        asker = self._box.asker_of(letter)
        if context.deferred:
            self._cell.promises.add(Reply(() if asker is None else (asker,)))
            return
        answer = context.answer
        error = NoReply(self._cell.name) if answer is NO_REPLY else None
        self._box.office.asks.answer(step, letter, context.encoded, error)
        if asker is None:
            return
        step.asker = asker
        if error is not None:
            step.when_committed(partial(refuse, asker, error))
        else:
            step.when_committed(partial(resolve, asker, answer))

    def _add(self, step: Step) -> None:
        self._steps_ahead += 1
        self._number = self._box.post.steps.add(step)

    def committed(self) -> None:
        """A step of the actor is."""
        self._steps_ahead -= 1

    # State.

    def _note_state(self, step: Step, reply: bytes | None = None) -> None:
        """Add the state to a step that is whole with it, but for the reply. ItemTooLarge."""
        if self._state is None or self._actor is None:
            self._check_size(step, reply)
            return
        states = self._kind.states
        encoded = states.encode(self._actor.state)  # type: ignore[attr-defined]
        if encoded != self._state:
            # A wrong field must be refused now: nobody could restore the actor later.
            states.decode(encoded)
            step.set_state(STATE_PREFIX + self._box.name, states.keep(encoded))
        self._check_size(step, reply)
        self._state = encoded

    def _check_size(self, step: Step, reply: bytes | None) -> None:
        """A step that no frame holds must fail alone: its frame would end the store for all."""
        size = step.size + len(reply or b"")
        if size > STEP_BYTES_MAX:
            raise ItemTooLarge(
                f"a step of actor {self._box.name!r} of {size} bytes, its state, messages and "
                f"reply, is over the limit of {STEP_BYTES_MAX}. Nothing of it was done. Do less in "
                f"one step."
            )
        if step.queues is not None and len(step.queues) > QUEUES_MAX:
            raise ItemTooLarge(
                f"a step of actor {self._box.name!r} that puts into {len(step.queues)} queues is "
                f"over the limit of {QUEUES_MAX}. Nothing of it was done. Do less in one step."
            )

    def _reload(self) -> None:
        """Let the actor's state be that after its last step."""
        if self._state is not None and self._actor is not None:
            self._actor.state = self._kind.states.decode(self._state)  # type: ignore[attr-defined]

    # Failures.

    def _fails(
        self, record: Returned, letter: Letter, attempt: int, error: BaseException
    ) -> NoReturn:
        """Undo what the handler did, see to its letter, and let the failure go on to the cell."""
        cell, box = self._cell, self._box
        self._reload()
        failure = cell.failure_of(error)
        if not isinstance(failure, Exception):
            asker = box.asker_of(letter) if letter.given else None
            if asker is not None:
                refuse(asker, ActorStopped(cell.name))
            box.give_back()
            raise failure
        cell.failed += 1
        if box.options.allows(attempt):
            box.post.note_attempt(record.counter, attempt)
            box.not_before = box.post.loop.time() + box.options.pause(attempt)
            box.give_back()
        else:
            self._bury(record, letter, "max-retries", attempt, error=failure)
        raise failure

    def _bury(
        self,
        record: Returned,
        letter: Letter,
        cause: Cause,
        attempts: int,
        *,
        reason: str = "",
        error: Exception | None = None,
    ) -> None:
        """Move a letter to the dead letters, with the state that it met."""
        box = self._box
        box.dead_letters += 1
        step = Step(self)
        bury(
            step,
            box.post.queue,
            record,
            cause,
            attempts=attempts,
            reason=reason,
            error=error,
            actor=self._kind.name,
            state=None if self._state is None else self._kind.states.keep(self._state),
        )
        answer: Exception = error or ActorStopped(box.name)
        box.office.asks.answer(step, letter, None, answer)
        asker = box.asker_of(letter) if letter.given else None
        if asker is not None:
            step.asker = asker
            step.when_committed(partial(refuse, asker, answer))
        self._add(step)
        box.settled()

    # What the cell asks.

    def discard(self, error: BaseException) -> int:
        """What waits stays on disk; see `Box.discard`."""
        return self._box.discard(error)

    def __len__(self) -> int:
        return len(self._box)
