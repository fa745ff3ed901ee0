"""Cells: the life of one actor, in one task.

A cell keeps what stays the same over restarts: name, ref, mailbox, children, counts. It makes the
actor object, runs its hooks and handlers, asks the supervision about failures, and sees to it that
every message has an outcome when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from anyio import CancelScope

from actors import logs
from actors.actor import Actor, Context
from actors.batch import Reply
from actors.current import running
from actors.deadline import Deadline
from actors.errors import ActorStopped, HandlerCancelled
from actors.flag import Flag
from actors.handling import handling_of
from actors.hooks import run_on_stop
from actors.life import TABLE, Event, State
from actors.mailbox import Mailbox, MailboxOptions
from actors.memory import MemoryMailbox
from actors.promises import Promises
from actors.recovery import Recovery
from actors.ref import STOP_SECONDS, Ref
from actors.stats import ActorStats, snapshot
from actors.supervision import Supervision
from actors.timers import Timers
from actors.timing import Timing

if TYPE_CHECKING:
    from actors.tree import Tree

M = TypeVar("M")
N = TypeVar("N")

CHILD_STOP_SECONDS = 5.0
"""How long children may handle what waits when their parent restarts."""


class Cell(Generic[M]):
    """One actor, seen from the runtime."""

    # Ten thousand of them may be idle at a time.
    __slots__ = (
        "_actor",
        "_closing_down",
        "_deadline",
        "_factory",
        "_handling",
        "_killed",
        "_scope",
        "_timers",
        "batches",
        "began",
        "cause",
        "children",
        "cut_short",
        "ended",
        "failed",
        "handled",
        "interruption",
        "kind",
        "loop",
        "mailbox",
        "name",
        "on_batch",
        "parent",
        "promises",
        "receive",
        "recovery",
        "ref",
        "restarts",
        "started",
        "state",
        "task",
        "timing",
        "told",
        "tree",
        "undelivered",
        "waiting",
    )

    def __init__(
        self,
        tree: Tree,
        parent: Cell[Any] | None,
        factory: partial[Actor[M]],
        name: str,
        mailbox: MailboxOptions | Mailbox,
        supervision: Supervision,
    ) -> None:
        self.name = name
        self.parent = parent
        # In the order of spawning; a dict, since with thousands of them one must leave quickly.
        self.children: dict[Cell[Any], None] = {}
        self.state = State.STARTING
        self.handled = self.failed = self.restarts = self.undelivered = self.cut_short = 0
        self.batches: dict[str, int] = {}
        self.timing = Timing()
        self.task: asyncio.Task[object] | None = None
        self.loop = asyncio.get_running_loop()
        self.tree = tree
        self._factory = factory
        self.recovery = Recovery(self, supervision, tree.random)
        actor = factory()
        self._adopt(actor)
        self.mailbox: Mailbox = (
            MemoryMailbox(mailbox, name) if isinstance(mailbox, MailboxOptions) else mailbox
        )
        self.ref: Ref[M] = Ref(self)
        self.told: Context[M] = Context(self, Reply())
        self._timers: Timers | None = None
        self._handling = handling_of(self, actor)
        # Set by a child that escalates: between two messages the cell takes it as its own failure.
        self.interruption: Exception | None = None
        self.waiting = False
        # Whoever spawned may wait for `on_start` and then hears of its failure, in place of the
        # supervision.
        self.started: asyncio.Future[None] | None = None
        self.ended = Flag()
        self._scope = CancelScope()
        self.promises = Promises(name)
        self._deadline = Deadline(self.loop, self.kill)
        self._killed = self._closing_down = False
        self.cause: Exception | None = None

    # Life

    async def run(self) -> None:
        """Live until the mailbox is closed and drained, or the deadline of a stop is over."""
        self.task = asyncio.current_task()
        running.set(self)
        try:
            try:
                while await self._live():
                    pass
            finally:
                await self._close_down()
        finally:
            self.end()

    async def _live(self) -> bool:
        """Handle messages until something happens; True if life goes on after it."""
        failure: Exception | None = None
        with CancelScope() as self._scope:
            if self._killed:
                return False
            try:
                await self._start()
                await self._handling.run()
            except Exception as error:
                failure = error
        failure, self.interruption = failure or self.interruption, None
        if failure is None or self._killed:
            return False
        return await self.recovery.recover(failure)

    def _adopt(self, actor: Actor[M]) -> None:
        on_batch = getattr(actor, "on_batch", None)
        if on_batch is None and type(actor).receive is Actor.receive:
            raise TypeError(f"{type(actor).__name__} has neither receive nor on_batch")
        self._actor: Actor[M] | None = actor
        self.kind = type(actor)
        self.began = False
        self.receive: Callable[[Any, Context[M]], Awaitable[None]] = actor.receive
        self.on_batch: Callable[[Any, Context[M]], Awaitable[None]] | None = on_batch

    async def _start(self) -> None:
        if self._actor is None:
            self._adopt(self._factory())
        assert self._actor is not None
        if not self.began:
            await self._handling.start(self._actor)
            self.began = True
            self._shift(Event.STARTED)
            self.recovery.leave_round()
        self.cause = None
        if self.started is not None and not self.started.done():
            self.started.set_result(None)

    def begin_restart(self, failure: Exception) -> None:
        """From now on the actor is restarting: nobody keeps what its object has promised."""
        self._shift(Event.FAILED)
        self.restarts += 1
        self.promises.fail(failure)
        self.tree.watches.forget(self)

    def new_scope(self) -> CancelScope:
        """What a deadline cancels from now on."""
        self._scope = CancelScope()
        return self._scope

    async def go_down(self) -> None:
        """Stop the children, then the object, to which another will follow."""
        await self._stop_children(self.loop.time() + CHILD_STOP_SECONDS)
        await self._run_on_stop()
        self._actor = None

    def cancel_handler(self) -> None:
        """Cancel what the cell is doing, but for the hooks of its stop; its life goes on."""
        self.cut_short += not self.waiting
        self._scope.cancel()

    def interrupt(self, error: Exception) -> None:
        """Fail with a child's error, as soon as no message is being handled."""
        self.interruption = self.interruption or error
        if self.waiting:
            self._scope.cancel()

    def is_idle(self) -> bool:
        """Whether the actor has nothing to do, and nothing that it will do later."""
        nothing = self.waiting and not len(self._handling) and not self.promises
        return nothing and not self._timers and self.state is State.RUNNING

    def load(self) -> int:
        """Messages in hand and waiting, as far as it is known."""
        return len(self._handling) + (not self.waiting)

    def failure_of(self, error: BaseException) -> BaseException:
        """What an error of a handler means: a `CancelledError` may not be meant for the cell."""
        assert self.task is not None
        if not isinstance(error, asyncio.CancelledError) or self.task.cancelling():
            return error
        failure = HandlerCancelled(self.name)
        failure.__cause__ = error
        return failure

    def timers(self) -> Timers:
        """What the actor tells later, in memory."""
        if self._timers is None:
            self._timers = Timers(self.loop)
        return self._timers

    # Children

    def spawn_child(
        self,
        factory: partial[Actor[N]],
        *,
        name: str | None,
        mailbox: MailboxOptions | Mailbox | None,
        supervision: Supervision | None,
        durable: bool = False,
    ) -> Ref[N]:
        """Make a child; it starts in its own time."""
        if self._closing_down:
            raise ActorStopped(self.name)
        return self.tree.make(self, factory, name, mailbox, supervision, durable=durable).ref

    async def _stop_children(self, deadline: float) -> None:
        # The youngest first: an older one may still be told something by it.
        while self.children:
            child = next(reversed(self.children))
            child.request_stop(deadline)
            await child.ended.wait()

    # Stopping

    async def stop(self, timeout: float | None) -> int:
        """See `Ref.stop`."""
        self.request_stop(None if timeout is None else self.loop.time() + timeout)
        if asyncio.current_task() is self.task:
            return 0
        await self.ended.wait()
        return self.undelivered

    def request_stop(self, deadline: float | None) -> None:
        """Close the intake; at the deadline, if there is one, end whatever goes on."""
        if self.state is State.STOPPED:
            return
        self._refuse()
        self._deadline.bring_forward(deadline)

    def kill(self) -> None:
        """Give all that waits its outcome and cancel what the cell is doing."""
        at_work = self.task is not None and not self.waiting
        self.cut_short += at_work and not (self._killed or self._closing_down)
        self._killed = True
        self._refuse()
        self._discard()
        self._scope.cancel()
        for child in list(self.children):
            child.kill()

    def _refuse(self) -> None:
        self._shift(Event.STOP)
        self.mailbox.close()

    def _discard(self) -> None:
        self.undelivered += self._handling.discard(self._stopped())

    def _stopped(self) -> ActorStopped:
        error = ActorStopped(self.name)
        error.__cause__ = self.cause
        return error

    async def _close_down(self) -> None:
        self._closing_down = True
        self._refuse()
        self._discard()
        now = self.loop.time()
        with CancelScope(shield=True):
            await self._stop_children(
                now if self._killed else self._deadline.time or now + STOP_SECONDS
            )
            await self._run_on_stop()

    async def _run_on_stop(self) -> None:
        actor, began, self.began = self._actor, self.began, False
        if began and actor is not None:
            await run_on_stop(self._handling.stop(actor), self.name)

    def end(self) -> None:
        """Nothing runs any more. Also for a cell whose task was cancelled before it ran."""
        self._deadline.cancel()
        if self._timers is not None:
            self._timers.drop_all()
        self._refuse()
        self._discard()
        self.promises.fail(self._stopped())
        self._shift(Event.ENDED)
        self.recovery.end()
        logs.ended(self.name, self.undelivered)
        self.tree.forget(self)
        if self.started is not None and not self.started.done():
            self.started.set_exception(self._stopped())
        self.ended.set()
        self.tree.watches.ended(self)

    def _shift(self, event: Event) -> None:
        self.state = TABLE[self.state, event]

    def stats(self) -> ActorStats:
        """A snapshot."""
        return snapshot(self, len(self._handling))
