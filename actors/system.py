"""Actor systems: where actors live, how they are spawned, and how all of them stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Never, Self, TypeVar, overload

from anyio import CancelScope, create_task_group

from actors import logs
from actors.actor import Actor
from actors.cell import Cell
from actors.draining import SIGNALS, heard
from actors.errors import SystemStopped
from actors.keyed import ACTIVE_MAX, IDLE_SECONDS, Keeper, Keyed, KeyedOptions
from actors.mailbox import Mailbox, MailboxOptions
from actors.ref import STOP_SECONDS, Ref
from actors.router import Pool, PoolParent
from actors.routing import Routing
from actors.stats import SystemStats
from actors.supervision import Supervision
from actors.tree import Tree

M = TypeVar("M")


class ActorSystem:
    """A tree of actors in one event loop, stopped together.

    `async with ActorSystem() as system`, or `await system.start()` and `await system.stop()` from
    whatever tasks: the actors' task group lives in a task of its own. Leaving the `async with`
    stops with `stop_timeout`, and at once if an exception leaves it. A failure that no supervision
    kept stops the system; `stop`, `wait_until_stopped` or the `async with` raises it, once.
    `seed` makes the jitter of restarts repeat itself.
    """

    def __init__(
        self, *, stop_timeout: float | None = STOP_SECONDS, seed: int | None = None
    ) -> None:
        self._stop_timeout = stop_timeout
        self._tree = Tree(Random(seed), self._fail)
        self._task: asyncio.Task[None] | None = None
        self._stop_wanted = asyncio.Event()
        self._deadline: float | None = None
        self._stopping: Cell[Any] | None = None
        self._error: Exception | None = None

    # Start and stop

    async def start(self) -> Self:
        """Make the system ready to spawn; returns it. Raises SystemStopped the second time."""
        if self._task is not None or self._stop_wanted.is_set():
            raise SystemStopped("start again")
        started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(started), name="actors")
        await started
        return self

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Stop all actors, the youngest first, with one deadline for all of them.

        From now on only actors reach actors. Each closes its intake in its turn and handles what
        waits; at the deadline the rest gets its outcome as `Ref.stop` says. Returns how many told
        messages were not handled in the system's life. May be called twice. Called by an actor it
        returns at once and the stop goes on by itself. Cancelling the wait does not end the stop.
        """
        loop = asyncio.get_running_loop()
        self._request_stop(None if timeout is None else loop.time() + timeout)
        task = asyncio.current_task()
        if all(cell.task is not task for cell in self._tree.cells.values()):
            await self.wait_until_stopped()
        return self._tree.past["undelivered"]

    async def wait_until_stopped(self) -> None:
        """Wait until the system has stopped; raises the failure that stopped it."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def run_until_signal(
        self,
        *,
        deadline: float = STOP_SECONDS,
        signals: Sequence[signal.Signals] = SIGNALS,
    ) -> int:
        """Wait for SIGTERM or SIGINT, then stop all actors within `deadline` seconds.

        Returns the exit status for the process: 0 if every handler came to its end and every told
        message was handled (a durable one may wait on disk), else 1. A second signal ends the
        deadline at once. Raises the failure that stopped the system, and RuntimeError outside of
        the main thread.
        """
        loop = asyncio.get_running_loop()
        told = 0

        def call() -> None:
            nonlocal told
            told += 1
            logs.signalled(deadline if told == 1 else 0)
            self._request_stop(loop.time() + (deadline if told == 1 else 0))

        with heard(signals, call):
            await self.wait_until_stopped()
        past = self._tree.past
        logs.drained(past["undelivered"], past["cut_short"])
        return 1 if past["undelivered"] or past["cut_short"] else 0

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.stop(self._stop_timeout)
            return
        with CancelScope(shield=True):
            try:
                await self.stop(0)
            except Exception:
                # A cancellation goes on as such; the failure has been logged.
                if isinstance(error, Exception):
                    raise

    async def _run(self, started: asyncio.Future[None]) -> None:
        try:
            async with create_task_group() as self._tree.group:
                if started.cancelled():
                    # Whoever started the system has left, and nobody can stop it.
                    return
                started.set_result(None)
                await self._stop_wanted.wait()
                while self._tree.cells:
                    await self._stop_youngest()
        except Exception as error:
            if started.done():
                raise
            # Whoever waits for the start would wait for ever.
            started.set_exception(error)
        except BaseException:
            started.cancel()
            raise
        finally:
            self._stop_wanted.set()
            for cell in list(self._tree.cells.values()):
                cell.end()

    async def _stop_youngest(self) -> None:
        # Actors are given the refs of older ones: while they drain, those still listen.
        cells = reversed(self._tree.cells.values())
        self._stopping = next(cell for cell in cells if cell.parent is None)
        self._stopping.request_stop(self._deadline)
        await self._stopping.ended.wait()

    def _request_stop(self, deadline: float | None) -> None:
        if not self._stop_wanted.is_set():
            self._stop_wanted.set()
            self._tree.close_to_outside()
        if deadline is None or (self._deadline is not None and self._deadline <= deadline):
            return
        self._deadline = deadline
        if self._stopping is not None:
            self._stopping.request_stop(deadline)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        timeout = STOP_SECONDS if self._stop_timeout is None else self._stop_timeout
        self._request_stop(asyncio.get_running_loop().time() + timeout)

    # Actors

    async def spawn(
        self,
        factory: Callable[..., Actor[M]],
        *args: object,
        name: str | None = None,
        mailbox: MailboxOptions | Mailbox | None = None,
        supervision: Supervision | None = None,
        durable: bool = False,
        **kwargs: object,
    ) -> Ref[M]:
        """Make an actor by `factory(*args, **kwargs)`, now and at each restart.

        Returns its ref when `on_start` has returned. If that or the factory raises, so does this,
        and there is no actor. `mailbox` is options for one in memory, or an object of the caller's
        own that no other actor uses. Raises NameTaken, and SystemStopped unless the system runs.
        `durable` is for a `fifoq.ActorSystem`, which has a place for what must last.
        """
        if self._task is None or self._stop_wanted.is_set():
            raise SystemStopped("spawn an actor")
        made = partial(factory, *args, **kwargs)
        cell = self._tree.make(None, made, name, mailbox, supervision, durable=durable)
        cell.started = asyncio.get_running_loop().create_future()
        try:
            await cell.started
        except asyncio.CancelledError:
            cell.kill()
            raise
        except Exception:
            await cell.ended.wait()
            raise
        return cell.ref

    async def keyed(
        self,
        factory: Callable[[str], Actor[M]],
        *,
        name: str,
        idle_seconds: float = IDLE_SECONDS,
        active_max: int = ACTIVE_MAX,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision | None = None,
        durable: bool = False,
    ) -> Keyed[M]:
        """One actor for each key, made by `factory(key)` when a message for it comes.

        After `idle_seconds` to twice as long without a message it is passivated. When there are
        `active_max`, those that were used least recently go first, and senders outside of actors
        wait for that. If one fails too often it alone stops; the next message makes a new one.
        """
        options = KeyedOptions(
            idle_seconds=idle_seconds,
            active_max=active_max,
            mailbox=mailbox,
            supervision=supervision,
            durable=durable,
        )
        keyed = Keyed(factory, name, options)
        rules = Supervision(strategy="escalate")
        await self.spawn(Keeper, keyed.slots, name=name, mailbox=keyed.slots, supervision=rules)
        return keyed

    async def pool(
        self,
        factory: Callable[..., Actor[M]],
        *args: object,
        size: int,
        name: str,
        routing: Routing = "round-robin",
        key: Callable[[M], str] | None = None,
        mailbox: MailboxOptions | None = None,
        supervision: Supervision | None = None,
        durable: bool = False,
        **kwargs: object,
    ) -> Pool[M]:
        """Spawn `size` actors, and return one ref for all of them.

        They are named by the pool's name, a slash and their number. A member that fails is
        restarted as its `supervision` says; what it escalates restarts all of them. Raises as
        `spawn` does, also if a member does not start, and ValueError for options without sense.
        """
        if size < 1:
            raise ValueError(f"size is {size}: a pool has at least one member")
        pool: Pool[M] = Pool(name, routing, key)
        make = partial(factory, *args, **kwargs)
        options = {"mailbox": mailbox, "supervision": supervision, "durable": durable}
        await self.spawn(PoolParent, pool, size, make, options, name=name)
        return pool

    @overload
    def find(self, name: str) -> Ref[Never] | None: ...
    @overload
    def find(self, name: str, kind: type[Actor[M]]) -> Ref[M] | None: ...
    def find(self, name: str, kind: type[Actor[M]] | None = None) -> Ref[M] | Ref[Never] | None:
        """The living actor of this name, or None. A child's name begins with its parent's.

        With its class the ref is typed by the messages of that class; TypeError if the actor is of
        another one. Without, the ref can be watched and stopped, and told nothing.
        """
        return self._tree.find(name, kind)

    def stats(self) -> SystemStats:
        """What the living actors do, and the sums over all."""
        return self._tree.stats()

    def __repr__(self) -> str:
        if self._task is None:
            state = "stopped" if self._stop_wanted.is_set() else "new"
        elif self._task.done():
            state = "stopped"
        else:
            state = "stopping" if self._stop_wanted.is_set() else "running"
        return f"<ActorSystem actors={len(self._tree.cells)} {state}>"
