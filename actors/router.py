"""Routers and pools: one address for several actors that do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from actors.actor import Actor, Context
from actors.batch import Asked
from actors.errors import ActorStopped
from actors.life import OPEN, State
from actors.ref import STOP_SECONDS, Ref
from actors.routing import Broadcast, Routing, rule_of
from actors.stats import SUMS, ActorStats

if TYPE_CHECKING:
    from actors.cell import Cell

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class Router(Ref[M_contra]):
    """One ref for several: each message goes to one of them, or to all of a broadcast.

    Those that have stopped are passed over; ActorStopped if none is left. A broadcast can not be
    asked: ask its `members`. `key` tells the key of a message, for the routing `by-key`.
    """

    __slots__ = ("_members", "_name", "_rule")

    def __init__(
        self,
        members: Sequence[Ref[M_contra]],
        *,
        routing: Routing = "round-robin",
        key: Callable[[Any], str] | None = None,
        name: str = "router",
    ) -> None:
        self._rule = rule_of(routing, key)
        self._members = tuple(members)
        self._name = name
        self._mailbox = _Routes(self)

    @property
    def members(self) -> tuple[Ref[M_contra], ...]:
        """All of them, also those that have stopped."""
        return self._members

    @property
    def cell(self) -> Cell[Any]:  # type: ignore[override]
        """There is none."""
        raise TypeError(f"{self.name!r} is a router, not an actor: use its members")

    @property
    def name(self) -> str:
        """What errors and logs call it."""
        return self._name

    @property
    def generation(self) -> int:
        """How often its members were restarted, together."""
        return sum(member.generation for member in self._members)

    def _targets(self, message: Any) -> Sequence[Ref[Any]]:
        """Those that get this message."""
        members = [member for member in self._members if member._is_open()]
        if not members:
            raise ActorStopped(self.name)
        picked = self._rule.pick(members, message)
        return [target for member in picked for target in member._targets(message)]

    def _is_open(self) -> bool:
        """Whether anybody takes messages."""
        return any(member._is_open() for member in self._members)

    def _load(self) -> int:
        """Messages in hand and waiting."""
        return sum(member._load() for member in self._members)

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Stop all members, together, with one deadline."""
        return sum(await asyncio.gather(*(member.stop(timeout) for member in self._members)))

    async def wait_until_stopped(self) -> None:
        """Wait until all members have ended."""
        for member in self._members:
            await member.wait_until_stopped()

    def stats(self) -> ActorStats:
        """The sums over its members; running while one of them takes messages."""
        found = [member.stats() for member in self._members]
        sums = {name: sum(getattr(stats, name) for stats in found) for name in ("depth", *SUMS)}
        state = State.RUNNING if self._is_open() else State.STOPPED
        return ActorStats(name=self.name, state=state, **sums)


class Pool(Router[M_contra]):
    """The router of actors that were spawned for it: `ActorSystem.pool` makes it."""

    __slots__ = ("_parent",)

    def __init__(self, name: str, routing: Routing, key: Callable[[Any], str] | None) -> None:
        super().__init__((), routing=routing, key=key, name=name)
        self._parent: Cell[Any] | None = None

    @property
    def cell(self) -> Cell[Any]:  # type: ignore[override]
        """The parent of the members."""
        assert self._parent is not None
        return self._parent

    def _adopt(self, parent: Cell[Any], members: Sequence[Ref[M_contra]]) -> None:
        """The members are there, for the first time or anew."""
        self._parent, self._members = parent, tuple(members)
        # Whoever knows its name alone reaches the members too.
        parent.ref = self

    def _is_open(self) -> bool:
        """Whether the pool takes messages."""
        return self.cell.state in OPEN and super()._is_open()

    async def stop(self, timeout: float | None = STOP_SECONDS) -> int:
        """Stop the members, then their parent, with one deadline."""
        members = self._members
        await self.cell.stop(timeout)
        return sum(member.stats().undelivered for member in members)

    async def wait_until_stopped(self) -> None:
        """Wait until the pool has ended."""
        await self.cell.ended.wait()


class PoolParent(Actor[Any]):
    """Spawns the members of a pool, and all of them anew if one of them escalates."""

    def __init__(
        self, pool: Pool[Any], size: int, make: partial[Actor[Any]], options: dict[str, Any]
    ) -> None:
        self._pool, self._size, self._make, self._options = pool, size, make, options

    async def on_start(self, ctx: Context[Any]) -> None:
        members = [
            ctx.spawn(self._make, name=str(number), **self._options)
            for number in range(1, self._size + 1)
        ]
        self._pool._adopt(ctx.self_ref.cell, members)
        starts = [asyncio.get_running_loop().create_future() for _ in members]
        for member, started in zip(members, starts, strict=True):
            member.cell.started = started
        await asyncio.gather(*starts)

    async def receive(self, message: Any, ctx: Context[Any]) -> None:
        """Nothing is told to it."""


class _Routes:
    """The intake of a router."""

    __slots__ = ("_router",)

    def __init__(self, router: Router[Any]) -> None:
        self._router = router

    async def put(self, letter: object) -> None:
        targets = self._targets(letter)
        for target in targets:
            # One that has just stopped must not keep a broadcast from the others.
            with suppress(ActorStopped) if len(targets) > 1 else nullcontext():
                await target._mailbox.put(letter)

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        for target in self._targets(letter):
            target._mailbox.put_nowait(letter, exempt=exempt)

    def withdraw(self, letter: object) -> None:
        for member in self._router.members:
            member._mailbox.withdraw(letter)

    def _targets(self, letter: object) -> Sequence[Ref[Any]]:
        if type(letter) is not Asked:
            return self._router._targets(letter)
        if isinstance(self._router._rule, Broadcast):
            raise TypeError(f"{self._router.name!r} is a broadcast: ask its members, one by one")
        return self._router._targets(letter.message)
