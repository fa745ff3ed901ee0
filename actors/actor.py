"""Actors as their author sees them: the base class, and what a handler may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from actors.batch import Reply
from actors.mailbox import Mailbox, MailboxOptions
from actors.supervision import Supervision
from actors.timers import TimerKeywords, first_delay
from actors.watch import Terminated

if TYPE_CHECKING:
    from actors.cell import Cell
    from actors.ref import Ref

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
N = TypeVar("N")
N_contra = TypeVar("N_contra", contravariant=True)
P = ParamSpec("P")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class _Queue(Protocol[N_contra, P]):
    """A queue, as far as an actor knows it."""

    def put(self, item: N_contra, *args: P.args, **kwargs: P.kwargs) -> Awaitable[object]: ...


class Actor(Generic[M]):
    """One owner of some state, fed by a mailbox with messages of the union `M`.

    A subclass has `receive`, or `async def on_batch(self, batch, ctx)`, which gets a `Batch[M]` (or
    whatever a mailbox of the caller's own hands out) and wins if both are there. Only one of an
    actor's methods runs at a time. What a handler raises goes to the asker of the message, and to
    the supervision.
    """

    async def receive(self, message: M, ctx: Context[M]) -> None:
        """Handle one message."""
        raise TypeError(f"{type(self).__name__} has no receive")

    async def on_start(self, ctx: Context[M]) -> None:
        """Runs before the first message, also after each restart."""

    async def on_restart(self, error: Exception, ctx: Context[M]) -> None:
        """Runs before `on_start` in an object that takes the place of another.

        `error` ended that one: its own, or that of the sibling that was restarted with it.
        """

    async def on_stop(self, ctx: Context[M]) -> None:
        """Runs once for every object whose `on_start` returned: at stop and before a restart.

        It has a few seconds, even if the deadline of the stop is over; an error is logged.
        """


class Context(Generic[M_contra]):
    """What a handler may do. Its methods never wait."""

    __slots__ = ("_cell", "_reply")

    def __init__(self, cell: Cell[M_contra], reply: Reply) -> None:
        self._cell = cell
        self._reply = reply

    @property
    def self_ref(self) -> Ref[M_contra]:
        """The actor's own address."""
        return self._cell.ref

    def reply(self, value: object) -> None:
        """Answer whoever asked; nothing happens if the message was told, or has its answer.

        In `on_batch` it answers all who asked and have no answer; see `Batch.reply` for one.
        """
        self._reply.resolve(value)

    def defer_reply(self) -> Reply:
        """Promise to answer after the handler has returned, by what this returns.

        If the actor restarts or stops before, the asker gets the failure or `ActorStopped`.
        """
        self._cell.promises.add(self._reply)
        return self._reply

    @property
    def attempt(self) -> int:
        """Which attempt at the message this is: 1, unless the actor is durable and it failed."""
        return 1

    @property
    def headers(self) -> Mapping[str, str]:
        """What came along with the message."""
        return _NO_HEADERS

    @overload
    def tell(self, ref: Ref[N], message: N) -> None: ...
    @overload
    def tell(self, ref: str, message: object) -> None: ...
    def tell(self, ref: Ref[Any] | str, message: Any) -> None:
        """Send a message at once, to a ref or a name; it needs no room in a mailbox that is full.

        Raises ActorStopped if that actor takes no more messages, or none of that name is alive.
        """
        (self._cell.tree.ref_of(ref) if isinstance(ref, str) else ref).tell_exempt(message)

    def put(self, queue: _Queue[N, P], item: N, *args: P.args, **kwargs: P.kwargs) -> None:
        """Put an item into a queue, as a part of the step of a durable actor.

        Keywords are those of the queue's own `put`. TypeError in an actor in memory, which has no
        step: it awaits that `put`.
        """
        raise TypeError(
            f"actor {self._cell.name!r} is in memory alone and has no step to put with. Nothing "
            f"was put. Await the queue's own put."
        )

    @overload
    def schedule(
        self, message: M, *, name: str | None = ..., **when: Unpack[TimerKeywords]
    ) -> None: ...
    @overload
    def schedule(
        self, message: N, *, to: Ref[N], name: str | None = ..., **when: Unpack[TimerKeywords]
    ) -> None: ...
    @overload
    def schedule(
        self, message: object, *, to: str, name: str | None = ..., **when: Unpack[TimerKeywords]
    ) -> None: ...
    def schedule(
        self,
        message: Any,
        *,
        to: Ref[Any] | str | None = None,
        name: str | None = None,
        **when: Unpack[TimerKeywords],
    ) -> None:
        """Tell a message later, to this actor if nobody else is named: after `delay` seconds or at
        `deliver_at`, a datetime or seconds since the epoch, and then `every` so many seconds.

        A timer of that `name` of this actor is replaced. In memory it lasts as long as the actor,
        restarts included; what finds nobody is dropped.
        """
        seconds = first_delay(**when)

        def tell() -> None:
            (self._cell.tree.ref_of(to) if isinstance(to, str) else to or self_ref).tell_exempt(
                message
            )

        self_ref = self._cell.ref
        self._cell.timers().set(name, seconds, when.get("every"), tell)

    def unschedule(self, name: str) -> None:
        """Forget the timer of that name, if there is one; what it has told stays told."""
        self._cell.timers().drop(name)

    def spawn(
        self,
        factory: Callable[..., Actor[N]],
        *args: object,
        name: str | None = None,
        mailbox: MailboxOptions | Mailbox | None = None,
        supervision: Supervision | None = None,
        durable: bool = False,
        **kwargs: object,
    ) -> Ref[N]:
        """Make a child, as `ActorSystem.spawn` does but without waiting for its `on_start`.

        If that fails, the child's supervision decides. A child stops when its parent stops or
        restarts; what it escalates fails the parent. Its name follows the parent's and a slash.
        """
        return self._cell.spawn_child(
            partial(factory, *args, **kwargs),
            name=name,
            mailbox=mailbox,
            supervision=supervision,
            durable=durable,
        )

    def watch(self: Context[Terminated], ref: Ref[Any]) -> None:
        """Be told a `Terminated` when that actor has ended; at once if it has.

        For actors whose messages include `Terminated`: a type checker says so. It needs no room in
        the mailbox. Whoever watches twice is told once. A restart ends the watches: the new object
        watches anew, in its `on_start`.
        """
        self._cell.tree.watches.tell(self._cell, ref.cell)

    def unwatch(self, ref: Ref[Any]) -> None:
        """Watch that actor no more; a `Terminated` in the mailbox is still handled."""
        self._cell.tree.watches.remove(self._cell, ref.cell)

    @overload
    def find(self, name: str) -> Ref[Never] | None: ...
    @overload
    def find(self, name: str, kind: type[Actor[N]]) -> Ref[N] | None: ...
    def find(self, name: str, kind: type[Actor[N]] | None = None) -> Ref[N] | Ref[Never] | None:
        """The living actor of this name, as `ActorSystem.find` says."""
        return self._cell.tree.find(name, kind)

    def stop(self) -> None:
        """Take no more messages, handle those that wait, then stop."""
        self._cell.request_stop(None)
