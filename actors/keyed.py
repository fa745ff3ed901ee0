"""Keyed actors: one for each key, there while it is needed.

The first message for a key activates its actor; after a while without any it is passivated: it
ends, and the next message makes a new one. All of them are children of one actor that does nothing
but to be their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Struct

from actors.actor import Actor, Context
from actors.life import OPEN, State
from actors.mailbox import MailboxOptions
from actors.ref import ASK_SECONDS, STOP_SECONDS, Ref
from actors.slots import Slots
from actors.stats import ActorStats
from actors.supervision import Supervision

if TYPE_CHECKING:
    from actors.cell import Cell
    from actors.tree import Tree

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")

IDLE_SECONDS = 60.0
"""How long a keyed actor is idle before it is passivated, when nothing else is said."""
ACTIVE_MAX = 1000
"""Keyed actors at a time, when nothing else is said."""
KEYED_SUPERVISION = Supervision(exhausted="stop")
"""One key that fails too often must not take the others with it."""


class KeyedStats(Struct, frozen=True, kw_only=True):
    """The actors of one `Keyed`: how many there are, and how many came and went.

    `waiting` keys have messages and no actor, because there is no room for one more.
    """

    active: int
    waiting: int
    activated: int
    passivated: int
    undelivered: int


class KeyedOptions(Struct, frozen=True, kw_only=True):
    """How the actors of one `Keyed` are made, and when they go."""

    idle_seconds: float = IDLE_SECONDS
    active_max: int = ACTIVE_MAX
    mailbox: MailboxOptions | None = None
    supervision: Supervision | None = None
    durable: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.idle_seconds < float("inf"):
            raise ValueError(f"idle_seconds is {self.idle_seconds}: it must be over 0")
        if self.active_max < 1:
            raise ValueError(f"active_max is {self.active_max}: it must be 1 or more")


class Keyed(Generic[M]):
    """The actors of all keys: `ActorSystem.keyed` makes it.

    For each key there is at most one actor at a time, and its messages are handled in the order of
    sending, whatever comes and goes in between. What an actor has in memory goes with it.
    """

    def __init__(
        self, factory: Callable[[str], Actor[M]], name: str, options: KeyedOptions
    ) -> None:
        self._factory = factory
        self._options = options
        self.slots = Slots(
            name,
            self._activate,
            idle_seconds=options.idle_seconds,
            active_max=options.active_max,
            size_max=(options.mailbox or MailboxOptions()).size_max,
            durable=options.durable,
        )

    @property
    def name(self) -> str:
        """The name of the parent; the actor of a key has it, a slash and the key as its name."""
        return self.slots.name

    def ref(self, key: str) -> Ref[M]:
        """The address of the actor of this key, which need not be there; good for ever."""
        return KeyedRef(self.slots, key)

    def tell(self, key: str, message: M) -> Coroutine[object, None, None]:
        """Send a message to the actor of the key, as `Ref.tell` does.

        Code outside of actors also waits while there is no room for one more actor.
        """
        return self.slots.send(key, message)

    @overload
    async def ask(self, key: str, message: M, *, timeout: float | None = ASK_SECONDS) -> object: ...
    @overload
    async def ask(
        self, key: str, message: M, *, returns: type[R], timeout: float | None = ASK_SECONDS
    ) -> R: ...
    async def ask(
        self,
        key: str,
        message: M,
        *,
        returns: type[R] | type[object] = object,
        timeout: float | None = ASK_SECONDS,
    ) -> R | object:
        """Send a message to the actor of the key and wait for its reply, as `Ref.ask` does."""
        return await self.ref(key).ask(message, returns=returns, timeout=timeout)

    def wake(self, key: str) -> None:
        """Activate the actor of the key without a message, as soon as there is room for it."""
        self.slots.wake(key)

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Stop all of them as `Ref.stop` does; returns how many told messages were not handled."""
        parent = self.slots.parent
        assert parent is not None
        return await parent.stop(timeout) + self.slots.undelivered

    def stats(self) -> KeyedStats:
        """How many there are, and how many came and went."""
        slots = self.slots
        return KeyedStats(
            active=slots.living,
            waiting=len(slots.waiting),
            activated=slots.activated,
            passivated=slots.passivated,
            undelivered=slots.undelivered,
        )

    def _activate(self, key: str) -> Cell[Any]:
        assert self.slots.parent is not None
        options = self._options
        rules = options.supervision
        if rules is None and not options.durable:
            rules = KEYED_SUPERVISION
        ref: Ref[M] = self.slots.parent.told.spawn(
            self._factory,
            key,
            name=key,
            mailbox=options.mailbox,
            supervision=rules,
            durable=options.durable,
        )
        cell = ref.cell
        # Whoever is given its address by the actor itself reaches the next one of this key too.
        cell.ref = self.ref(key)
        return cell

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<Keyed {self.name!r} active={stats.active} waiting={stats.waiting}>"


class Keeper(Actor[object]):
    """The parent of the actors of one `Keyed`."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    async def on_start(self, ctx: Context[object]) -> None:
        self._slots.parent = parent = ctx.self_ref.cell
        parent.tree.add_keyed(self._slots)

    async def on_stop(self, ctx: Context[object]) -> None:
        parent = ctx.self_ref.cell
        del parent.tree.keyed[parent.name]

    async def on_batch(self, batch: object, ctx: Context[object]) -> None:
        """Nothing is ever handed out."""


class KeyedRef(Ref[M_contra]):
    """The address of whatever actor a key has."""

    __slots__ = ("_key", "_slots")

    def __init__(self, slots: Slots, key: str) -> None:
        self._slots = slots
        self._key = key
        self._mailbox = _Route(slots, key)

    @property
    def cell(self) -> Cell[Any]:  # type: ignore[override]
        """The actor of now, activated if there is none."""
        return self._slots.cell_of(self._key)

    @property
    def name(self) -> str:
        """The name of the actor, which is there from time to time."""
        return f"{self._slots.name}/{self._key}"

    @property
    def tree(self) -> Tree | None:
        """Where its actors live; None before the parent has started."""
        return None if self._slots.parent is None else self._slots.parent.tree

    @property
    def durable(self) -> bool:
        """Whether its actors are."""
        return self._slots.durable

    @property
    def generation(self) -> int:
        """How often the actor of now was restarted; 0 if there is none."""
        cell = self._now()
        return 0 if cell is None else cell.restarts

    def wake(self) -> None:
        """Activate the actor without a message, as soon as there is room for it."""
        self._slots.wake(self._key)

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Passivate the actor, if it is there: the next message makes a new one."""
        cell = self._now()
        return 0 if cell is None else await cell.stop(timeout)

    async def wait_until_stopped(self) -> None:
        """Wait until the actor of now has ended; at once if there is none."""
        cell = self._now()
        if cell is not None:
            await cell.ended.wait()

    def stats(self) -> ActorStats:
        """What the actor of now did so far."""
        cell = self._now()
        return ActorStats(name=self.name, state=State.STOPPED) if cell is None else cell.stats()

    def _close_to_outside(self) -> None:
        """The slots see to it, for all refs of all keys."""

    def _is_open(self) -> bool:
        return self._slots.parent is not None and self._slots.parent.state in OPEN

    def _load(self) -> int:
        cell = self._now()
        return 0 if cell is None else cell.load()

    def _now(self) -> Cell[Any] | None:
        slot = self._slots.slots.get(self._key)
        return None if slot is None else slot.cell


class _Route:
    """The intake of one key."""

    __slots__ = ("_key", "_slots")

    def __init__(self, slots: Slots, key: str) -> None:
        self._slots = slots
        self._key = key

    def put(self, letter: object) -> Coroutine[object, None, None]:
        return self._slots.send(self._key, letter)

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        self._slots.send_nowait(self._key, letter, exempt=exempt)

    def withdraw(self, letter: object) -> None:
        self._slots.withdraw(self._key, letter)
