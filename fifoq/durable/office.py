"""The office: what the durable actors of one system have in common."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from actors import Actor, Mailbox, MailboxOptions, SystemStopped
from fifoq.durable.asks import Asks
from fifoq.durable.box import Box
from fifoq.durable.carried import Carried
from fifoq.durable.letters import Messages, encode_untyped, write_letter
from fifoq.durable.options import DurableMailbox
from fifoq.durable.post import Post
from fifoq.durable.state import States
from fifoq.durable.timers import TIMERS, Timers
from fifoq.options import Durability

if TYPE_CHECKING:
    from fifoq.store import Store

NAME_BYTES_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9_.:@-]+(/[A-Za-z0-9_.:@-]+)*")


class Kind:
    """What is known of one class of durable actors."""

    __slots__ = ("messages", "name", "states")

    def __init__(self, actor: type[Actor[Any]]) -> None:
        self.name = f"{actor.__module__}:{actor.__qualname__}"
        self.messages = Messages(actor)
        self.states = States(actor)


class Office:
    """Post, timers, asks and context of one system."""

    def __init__(self, post: Post, carried: Carried, kept_seconds: float) -> None:
        self.post = post
        self.carried = carried
        self.asks = Asks(post, kept_seconds)
        self.timers: Timers
        self._kinds: dict[type[Actor[Any]], Kind] = {}
        self._life = secrets.token_hex(4)
        self._asked = 0

    @classmethod
    async def open(
        cls,
        store: Store,
        *,
        durability: Durability,
        context: Sequence[ContextVar[str]],
        kept_seconds: float,
        fail: Callable[[Exception], None],
    ) -> Office:
        """Open what the store holds of actors."""

        def stop(error: Exception) -> None:
            # Not with the rest of the system: that may take until its deadline.
            office.asks.close(error)
            fail(error)

        carried = Carried(context)
        office = cls(await Post.open(store, durability, stop), carried, kept_seconds)
        await office.asks.open()
        queue = await store._queues.own(TIMERS, {"durability": durability})
        office.timers = await Timers.open(office, queue)
        return office

    async def close(self) -> None:
        """Ring and deliver no more, and have every step committed."""
        try:
            await self.timers.close()
            await self.post.close()
        finally:
            failure = self.post.steps.failure or self.post.committer.failure
            self.asks.close(failure or SystemStopped("answer"))

    def box(self, name: str | None, mailbox: MailboxOptions | Mailbox | None) -> Box:
        """The mailbox of a durable actor. ValueError for a name that can not last."""
        if name is None:
            raise ValueError("a durable actor needs a name, by which it is found again")
        check_name(name)
        if mailbox is None:
            mailbox = _DEFAULT
        elif not isinstance(mailbox, MailboxOptions):
            raise TypeError(
                "the mailbox of a durable actor is in the store: only options are given"
            )
        elif not isinstance(mailbox, DurableMailbox):
            mailbox = DurableMailbox(size_max=mailbox.size_max, overflow=mailbox.overflow)
        return Box(self, name, mailbox)

    def kind_of(self, actor: type[Actor[Any]]) -> Kind:
        """Messages and state of a class. TypeError if it can not be durable."""
        kind = self._kinds.get(actor)
        if kind is None:
            kind = self._kinds[actor] = Kind(actor)
        return kind

    def encode(self, to: str, box: Box | None, message: object) -> bytes:
        """A message as bytes, checked if it is known what the actor takes."""
        return encode_untyped(to, message) if box is None else box.encode(message)

    def letter(
        self, to: str, box: Box | None, message: object, headers: dict[str, str] | None = None
    ) -> bytes:
        """The payload of a letter, with what the caller's context carries."""
        check_name(to)
        carried = self.carried.headers()
        if headers:
            carried = {**carried, **headers}
        return write_letter(to, self.encode(to, box, message), carried)

    def next_ask(self) -> str:
        """A number that no other ask has, in this life of the system or another."""
        self._asked += 1
        return f"{self._life}.{self._asked}"


_DEFAULT: Final = DurableMailbox()


def check_name(name: str) -> None:
    """ValueError unless it can be the name of a durable actor."""
    if not _NAME.fullmatch(name) or len(name) > NAME_BYTES_MAX:
        raise ValueError(
            f"{name!r:.80} can not be the name of a durable actor: it has letters, digits and "
            f"_.:@- in parts between slashes, {NAME_BYTES_MAX} at the most"
        )


def decode_as(raw: msgspec.Raw, kind: type[Any]) -> Any:
    """A kept answer as a value of that type."""
    return msgspec.msgpack.decode(raw, type=Any if kind is object else kind)
