"""The tree of actors below one system: who lives, under which name, and what all of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, Never, NoReturn, TypeVar, cast

from anyio.abc import TaskGroup

from actors.actor import Actor
from actors.cell import Cell
from actors.errors import ActorStopped, NameTaken
from actors.group import Round, Rounds
from actors.keyed import KeyedRef
from actors.mailbox import Mailbox, MailboxOptions
from actors.ref import Ref
from actors.slots import Slots
from actors.stats import SUMS, SystemStats
from actors.supervision import DURABLE, Scope, Supervision
from actors.timing import Timing
from actors.watch import Watches

M = TypeVar("M")


class Tree:
    """The living actors, by name and in the order of their spawning."""

    def __init__(self, random: Random, fail: Callable[[Exception], None]) -> None:
        self.random = random
        self.fail = fail
        self.cells: dict[str, Cell[Any]] = {}
        self.past: Counter[str] = Counter()
        self.past_timing = Timing()
        self.watches = Watches()
        self.keyed: dict[str, Slots] = {}
        self.group: TaskGroup | None = None
        self.durable_mailbox: Callable[[str | None, MailboxOptions | Mailbox | None], Mailbox] = (
            _nowhere_to_last
        )
        """Makes the mailbox of a durable actor, for a system that has a place for it."""
        self.absent: Collection[str] = ()
        """Names of durable actors that are not alive and have letters."""
        self.durable_context: Callable[[], Context] = copy_context
        """What a durable actor sees of its spawner's context."""
        self._rounds = Rounds()
        self._numbers: Counter[str] = Counter()

    def make(
        self,
        parent: Cell[Any] | None,
        factory: partial[Actor[M]],
        name: str | None,
        mailbox: MailboxOptions | Mailbox | None,
        supervision: Supervision | None,
        *,
        durable: bool = False,
    ) -> Cell[M]:
        """Make a cell and its task, which runs from the next turn of the loop on."""
        assert self.group is not None
        free = self._free_name(parent, name, factory)
        if durable:
            # One that numbers made would be another actor's after a restart.
            mailbox = self.durable_mailbox(free if name is not None else None, mailbox)
            supervision = supervision or DURABLE
        cell = Cell(
            self,
            parent,
            factory,
            free,
            MailboxOptions() if mailbox is None else mailbox,
            Supervision() if supervision is None else supervision,
        )
        self.cells[cell.name] = cell
        if parent is not None:
            parent.children[cell] = None
        start = partial(self.group.start_soon, cell.run, name=f"actor {cell.name}")
        if durable:
            self.durable_context().run(start)
        else:
            start()
        return cell

    def _free_name(
        self, parent: Cell[Any] | None, name: str | None, factory: partial[Actor[M]]
    ) -> str:
        prefix = "" if parent is None else f"{parent.name}/"
        if name is None:
            return self._numbered(prefix + getattr(factory.func, "__name__", "actor").lower())
        if prefix + name in self.cells:
            raise NameTaken(prefix + name)
        return prefix + name

    def _numbered(self, kind: str) -> str:
        while True:
            self._numbers[kind] += 1
            name = f"{kind}-{self._numbers[kind]}"
            if name not in self.cells:
                return name

    def find(self, name: str, kind: type[Actor[M]] | None) -> Ref[M] | Ref[Never] | None:
        """See `ActorSystem.find`."""
        cell = self.cells.get(name)
        if cell is None:
            return None
        if kind is not None and not issubclass(cell.kind, kind):
            raise TypeError(f"actor {name!r} is a {cell.kind.__name__}, not a {kind.__name__}")
        return cast("Ref[M]", cell.ref)

    def ref_of(self, name: str) -> Ref[Any]:
        """The ref of an actor that is alive, or keyed; ActorStopped if none has that name."""
        cell = self.cells.get(name)
        ref = self.keyed_ref(name) if cell is None else cell.ref
        if ref is None:
            raise ActorStopped(name)
        return ref

    def keyed_ref(self, name: str) -> KeyedRef[Any] | None:
        """The ref of a keyed actor of this name, alive or not; None if there can be none."""
        prefixes = [prefix for prefix in self.keyed if name.startswith(f"{prefix}/")]
        if not prefixes:
            return None
        prefix = max(prefixes, key=len)
        return KeyedRef(self.keyed[prefix], name[len(prefix) + 1 :])

    def add_keyed(self, slots: Slots) -> None:
        """From now on what the name of `slots` and a slash begin is the name of a keyed actor."""
        self.keyed[slots.name] = slots
        for name in tuple(self.absent):
            self.wake(name)

    def wake(self, name: str) -> bool:
        """Have a durable keyed actor of this name activated; False if there can be none.

        For mailboxes that outlive their actors and get a message while there is none.
        """
        ref = self.keyed_ref(name)
        if ref is None or not ref.durable:
            return False
        ref.wake()
        return True

    def close_to_outside(self) -> None:
        """From now on only actors of the tree reach actors of it."""
        for cell in self.cells.values():
            cell.ref._close_to_outside()
        for slots in self.keyed.values():
            slots.inside_only = True

    def siblings(self, cell: Cell[Any]) -> Sequence[Cell[Any]]:
        """The children of the cell's parent, the cell included, in the order of spawning."""
        if cell.parent is not None:
            return list(cell.parent.children)
        return [other for other in self.cells.values() if other.parent is None]

    async def lead(self, cell: Cell[Any], scope: Scope, error: Exception) -> Round:
        """The restart that a failed cell leads, or one that takes it along."""
        return await self._rounds.lead(scope, cell, partial(self.siblings, cell), error)

    def forget(self, cell: Cell[Any]) -> None:
        """An actor has ended: its name is free, its counts stay in the sums."""
        del self.cells[cell.name]
        if cell.parent is not None:
            del cell.parent.children[cell]
        self._rounds.forget(cell)
        stats = cell.stats()
        self.past.update({name: getattr(stats, name) for name in SUMS})
        self.past_timing.merge(cell.timing)

    def stats(self) -> SystemStats:
        """What the living actors do, and the sums over all."""
        actors = {name: cell.stats() for name, cell in self.cells.items()}
        sums = {
            name: self.past[name] + sum(getattr(stats, name) for stats in actors.values())
            for name in SUMS
        }
        timing = Timing()
        timing.merge(self.past_timing)
        for cell in self.cells.values():
            timing.merge(cell.timing)
        depth = sum(stats.depth for stats in actors.values())
        fields: dict[str, Any] = {**sums, **timing.percentiles()}
        return SystemStats(actors=actors, depth=depth, **fields)


def _nowhere_to_last(name: str | None, mailbox: object) -> NoReturn:
    raise TypeError("this system is in memory alone: fifoq.ActorSystem has durable actors")
