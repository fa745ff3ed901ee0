"""Refs: the typed address of an actor. The only way to reach one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, overload

from anyio import move_on_after

from actors.batch import Asked
from actors.draining import InsideOnly
from actors.errors import AskTimeout, MailboxFull
from actors.life import OPEN
from actors.mailbox import Intake
from actors.memory import MemoryMailbox
from actors.stats import ActorStats

if TYPE_CHECKING:
    from actors.cell import Cell

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")

ASK_SECONDS = 30.0
"""How long an ask waits for its reply, when nothing else is said."""
STOP_SECONDS = 30.0
"""How long a stop lets actors handle what waits, when nothing else is said."""


class Ref(Generic[M_contra]):
    """The address of one actor, whatever object runs behind it after restarts.

    Belongs to the event loop of its system: it may be used by every task there, not by other
    threads.
    """

    __slots__ = ("_mailbox", "cell")

    def __init__(self, cell: Cell[M_contra]) -> None:
        mailbox = cell.mailbox
        self.cell = cell
        self._mailbox: Intake = (
            cast("Intake", mailbox) if hasattr(mailbox, "put_nowait") else _NoIntake(cell.name)
        )

    @property
    def name(self) -> str:
        """The actor's name: unique among the living actors of its system."""
        return self.cell.name

    @property
    def generation(self) -> int:
        """How often the actor was restarted: another number, another object with fresh state."""
        return self.cell.restarts

    def tell(self, message: M_contra) -> Coroutine[object, None, None]:
        """Send a message: once awaited, it is in the mailbox. Waits only while there is no room.

        What happens without room is the mailbox's overflow policy. Raises ActorStopped, and with
        the policy `fail` MailboxFull; then the message was not taken. Cancelled while it waits:
        not taken, unless room was made for it in the same turn of the loop.
        """
        # Not `async def`: the mailbox's coroutine is handed on, one coroutine for a message.
        return self._mailbox.put(message)

    def tell_nowait(self, message: M_contra) -> None:
        """Send a message now. Raises MailboxFull where `tell` would wait, or ActorStopped."""
        self._mailbox.put_nowait(message)

    def tell_exempt(self, message: M_contra) -> None:
        """Send a message now, whether there is room or not: what `Context.tell` does."""
        self._mailbox.put_nowait(message, exempt=True)

    @overload
    async def ask(self, message: M_contra, *, timeout: float | None = ASK_SECONDS) -> object: ...
    @overload
    async def ask(
        self, message: M_contra, *, returns: type[R], timeout: float | None = ASK_SECONDS
    ) -> R: ...
    async def ask(
        self,
        message: M_contra,
        *,
        returns: type[R] | type[object] = object,
        timeout: float | None = ASK_SECONDS,
    ) -> R | object:
        """Send a message and wait for its reply, for room in the mailbox included.

        Raises what the handler raised; NoReply if it did not reply, ActorStopped if it never will,
        AskTimeout after `timeout` seconds, TypeError if the reply is no instance of `returns`.
        After AskTimeout or cancellation the message is not handled unless that had begun; nothing
        is left behind.
        """
        loop = asyncio.get_running_loop()
        letter = Asked(message, loop.create_future())
        if type(self._mailbox) is not MemoryMailbox:
            return _checked(await self._ask_slowly(letter, timeout), returns, self.name)
        try:
            self._mailbox.put_nowait(letter)
        except MailboxFull:
            return _checked(await self._ask_slowly(letter, timeout), returns, self.name)
        # It is in the mailbox: one timer is enough, where a cancel scope costs as much as the rest.
        future = letter.future
        timer = None if timeout is None else loop.call_later(timeout, self._expire, future, timeout)
        try:
            return _checked(await future, returns, self.name)
        except (AskTimeout, asyncio.CancelledError):
            self._mailbox.withdraw(letter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, future: asyncio.Future[object], timeout: float) -> None:
        if not future.done():
            future.set_exception(AskTimeout(self.name, timeout))

    async def _ask_slowly(self, letter: Asked, timeout: float | None) -> object:
        """Ask where to send may take time."""
        try:
            with move_on_after(timeout):
                await self._mailbox.put(letter)
                return await letter.future
        finally:
            if not letter.future.done() or letter.future.cancelled():
                letter.future.cancel()
                self._mailbox.withdraw(letter)
        assert timeout is not None
        raise AskTimeout(self.name, timeout)

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Stop the actor: intake closes, what waits is handled until the timeout is over.

        Then the handler is cancelled and every message left has its outcome: askers get
        ActorStopped, told messages are counted. Returns that count once the actor has stopped, at
        once if it had; called by the actor itself it returns 0 and the stop goes on by itself.
        A shorter timeout may follow a longer one. Cancelling the wait does not end the stop.
        """
        return await self.cell.stop(timeout)

    async def wait_until_stopped(self) -> None:
        """Wait until the actor has ended, for whatever reason."""
        await self.cell.ended.wait()

    def stats(self) -> ActorStats:
        """What the actor did so far."""
        return self.cell.stats()

    # What the runtime asks.

    def _close_to_outside(self) -> None:
        """From now on only actors of the system reach this one."""
        self._mailbox = InsideOnly(self._mailbox, self.cell.tree, self.name)

    def _targets(self, message: M_contra) -> Sequence[Ref[Any]]:
        """Those that get this message."""
        return (self,)

    def _is_open(self) -> bool:
        """Whether the actor takes messages."""
        return self.cell.state in OPEN

    def _load(self) -> int:
        """Messages in hand and waiting."""
        return self.cell.load()

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<Ref {stats.name!r} depth={stats.depth} {stats.state}>"


def _checked(reply: object, expected: type[object], name: str) -> object:
    if isinstance(reply, expected):
        return reply
    raise TypeError(
        f"actor {name!r} replied with a {type(reply).__name__}, not a {expected.__name__}"
    )


class _NoIntake:
    """Stands for a mailbox that its owner feeds by ways of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def put(self, letter: object) -> None:
        self._refuse()

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        self._refuse()

    def withdraw(self, letter: object) -> None:
        """Nothing was ever taken."""

    def _refuse(self) -> NoReturn:
        raise TypeError(f"the mailbox of actor {self._name!r} has no put: refs can not send to it")
