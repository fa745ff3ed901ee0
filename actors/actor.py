"""Actors as their author sees them: the base class, and what a handler may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from actors.batch import Reply
from actors.mailbox import Mailbox, MailboxOptions
from actors.supervision import Supervision

if TYPE_CHECKING:
    from actors.cell import Cell
    from actors.ref import Ref

M = TypeVar("M")
N = TypeVar("N")


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

    async def on_stop(self, ctx: Context[M]) -> None:
        """Runs once for every object whose `on_start` returned: at stop and before a restart.

        It has a few seconds, even if the deadline of the stop is over; an error is logged.
        """


class Context(Generic[M]):
    """What a handler may do. Its methods never wait."""

    __slots__ = ("_cell", "_reply")

    def __init__(self, cell: Cell[M], reply: Reply) -> None:
        self._cell = cell
        self._reply = reply

    @property
    def self_ref(self) -> Ref[M]:
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
        self._cell.defer(self._reply)
        return self._reply

    def tell(self, ref: Ref[N], message: N) -> None:
        """Send a message at once; it needs no room in a mailbox that is full.

        Raises ActorStopped if that actor takes no more messages.
        """
        ref.tell_exempt(message)

    def spawn(
        self,
        factory: Callable[..., Actor[N]],
        *args: object,
        name: str | None = None,
        mailbox: MailboxOptions | Mailbox | None = None,
        supervision: Supervision | None = None,
        **kwargs: object,
    ) -> Ref[N]:
        """Make a child, as `ActorSystem.spawn` does but without waiting for its `on_start`.

        If that fails, the child's supervision decides. A child stops when its parent stops or
        restarts; what it escalates fails the parent. Its name follows the parent's and a slash.
        """
        return self._cell.spawn_child(
            partial(factory, *args, **kwargs), name=name, mailbox=mailbox, supervision=supervision
        )

    def stop(self) -> None:
        """Take no more messages, handle those that wait, then stop."""
        self._cell.request_stop(None)
