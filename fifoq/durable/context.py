"""What a handler of a durable actor may do: all of it becomes part of its step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from actors import ActorError, Context, Ref, Reply, Terminated
from actors.timers import TimerKeywords, first_delay
from fifoq.durable.asks import ID_HEADER, encode_answer
from fifoq.durable.box import Box
from fifoq.durable.office import check_name
from fifoq.durable.targets import targets
from fifoq.errors import QueueClosed
from fifoq.putting import Putting

if TYPE_CHECKING:
    from actors.cell import Cell
    from fifoq.durable.letters import Letter
    from fifoq.durable.steps import Step

M = TypeVar("M")

NO_REPLY = object()
_NOBODY = Reply()


class StepContext(Context[M]):
    """A context whose effects happen together with the ack of the message, or not at all.

    That is what it tells, puts, schedules and replies; after the handler has returned, or raised,
    it does so no more. To spawn, watch and stop is of this process alone and happens at once.
    """

    __slots__ = ("_attempt", "_box", "_letter", "answer", "deferred", "encoded", "step")

    def __init__(
        self, cell: Cell[M], box: Box, step: Step, letter: Letter | None = None, attempt: int = 1
    ) -> None:
        super().__init__(cell, _NOBODY)
        self._box = box
        self._letter = letter
        self._attempt = attempt
        self.step: Step | None = step
        self.answer: object = NO_REPLY
        self.encoded: bytes | None = None
        self.deferred = False

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self._letter is None else self._letter.headers

    def reply(self, value: object) -> None:
        self._open_step()
        if self.answer is not NO_REPLY or self.deferred:
            return
        if self._letter is not None and ID_HEADER in self._letter.headers:
            self.encoded = encode_answer(value)
        self.answer = value

    def defer_reply(self) -> Reply:
        """Promise to answer after the step. The answer lasts only as long as this process.

        RuntimeError for an ask with an id, whose answer outlives the process.
        """
        self._open_step()
        if self._letter is not None and ID_HEADER in self._letter.headers:
            raise RuntimeError(
                f"actor {self._box.name!r} can not defer its reply to an ask with an id: the "
                f"answer is kept with its step. Nothing was changed. Reply in the handler."
            )
        self.deferred = True
        # It is a promise once the step is made: a handler that fails has promised nothing.
        asker = None if self._letter is None else self._box.asker_of(self._letter, stays=True)
        return Reply(() if asker is None else (asker,))

    def tell(self, ref: Ref[Any] | str, message: Any) -> None:
        """Send a message with the step; whoever gets it sees it once that is committed.

        To a name: the durable actor of that name, alive or not, or the one in memory that is alive.
        """
        step = self._open_step()
        box = self._box
        found = targets(box.post, self._cell.tree, ref, message)
        # All before the first is told: one that refuses it must not leave it to the others alone.
        letters = [box.office.letter(to.name, to.box, message) for to in found if to.ref is None]
        for letter in letters:
            step.put(box.post.queue.name, letter)
        for target in found:
            if target.ref is not None:
                step.when_committed(partial(_tell, target.ref, message))

    def put(self, queue: Any, item: Any, *args: Any, **kwargs: Any) -> None:
        """Put a record with the step: nobody gets it before that is committed.

        Keywords as for `Queue.put`. It waits for nothing, so no limit of the queue holds it up.
        ValueError for a queue of another store, QueueClosed for one that was shut down.
        """
        step = self._open_step()
        if not isinstance(queue, Putting):
            raise TypeError(f"{queue!r:.80} is no queue of a store. Nothing was put.")
        if queue._committer is not self._box.post.committer:
            raise ValueError(
                f"queue {queue.name!r} is not of the store of this system, and a step is one frame "
                f"of one store. Nothing was put. Open it by system.store.queue."
            )
        if queue.shut_down:
            raise QueueClosed(f"queue {queue.name!r} takes no more records; it was shut down.")
        payload, attributes, level = queue._prepare(item, *args, **kwargs)
        step.put_beside(queue.name, payload, attributes, level)

    def schedule(
        self,
        message: Any,
        *,
        to: Ref[Any] | str | None = None,
        name: str | None = None,
        **when: Unpack[TimerKeywords],
    ) -> None:
        """Tell a message later, also after restarts. Like everything, it is part of the step."""
        step = self._open_step()
        seconds, every = first_delay(**when), when.get("every")
        own = self._box
        found = targets(own.post, self._cell.tree, own.name if to is None else to, message)
        if name is not None and len(found) > 1:
            raise ValueError(
                f"a timer with a name is for one actor, and {name!r} would be for {len(found)}. "
                f"Nothing was changed. Set one for each."
            )
        for target in found:
            if target.ref is not None:
                raise TypeError(
                    f"actor {target.name!r} is in memory alone: a durable timer needs a durable "
                    f"one. Nothing was changed."
                )
            check_name(target.name)
        for target in found:
            own.office.timers.set(
                step, own.name, target.name, target.box, message, seconds, every, name
            )

    def watch(self, ref: Ref[Any]) -> None:
        """Be told when that actor has ended. TypeError unless this one takes `Terminated`."""
        # Now, and not when it is too late to say so.
        self._box.encode(Terminated(name=ref.name, generation=0))
        super().watch(ref)  # type: ignore[misc]

    def unschedule(self, name: str) -> None:
        """Forget the timer of that name, with the step; what is in the mailbox stays there."""
        self._box.office.timers.drop(self._open_step(), self._box.name, name)

    def _open_step(self) -> Step:
        if self.step is None:
            raise RuntimeError(
                f"a handler of actor {self._box.name!r} has ended, and so has its step. Nothing "
                f"was changed. Use the context before the handler returns."
            )
        return self.step

    def end(self) -> None:
        """The handler is done."""
        self.step = None


def _tell(ref: Ref[Any], message: object) -> None:
    with suppress(ActorError):
        ref.tell_exempt(message)


def resolve(future: asyncio.Future[object], value: object) -> None:
    """Answer an asker who may have left."""
    if not future.done():
        future.set_result(value)


def refuse(future: asyncio.Future[object], error: BaseException) -> None:
    """Give an asker who may have left an error."""
    if not future.done():
        future.set_exception(error)
