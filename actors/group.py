"""Group restarts: siblings that are restarted together, in the order of their spawning.

They stop from the youngest on and start from the oldest on: the younger ones were given the refs
of the older ones. Nothing here decides what a failure means; the cells do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from actors.supervision import Scope

if TYPE_CHECKING:
    from actors.cell import Cell

IN_HAND_SECONDS = 5.0
"""How long a sibling may take for the message in hand before a group restart cuts it short."""


class Round:
    """One restart of one or more siblings, led by the one that failed.

    Each member passes through the same steps. Whoever ends on the way leaves, so that nobody waits
    for it.
    """

    def __init__(self, members: Sequence[Cell[Any]], leader: Cell[Any], error: Exception) -> None:
        self.error = error
        self.leader = leader
        self.over = asyncio.Event()
        self._members = tuple(members)
        self._joined = {leader}
        self._stopped = {cell: asyncio.Event() for cell in members}
        self._started = {cell: asyncio.Event() for cell in members}
        self._delayed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def gather(self) -> None:
        """Have the others join as soon as they have no message in hand, or after a while."""
        loop = asyncio.get_running_loop()
        for cell in self._members:
            if cell is not self.leader:
                cell.recovery.take_along(self)
        self._timer = loop.call_later(IN_HAND_SECONDS, self._cut_short)

    def _cut_short(self) -> None:
        # One of them may wait for a reply from another that has stopped already.
        for cell in self._members:
            if cell not in self._joined:
                cell.cancel_handler()

    async def wait_to_stop(self, cell: Cell[Any]) -> None:
        """Wait until all younger members have stopped."""
        self._joined.add(cell)
        for younger in self._members[self._members.index(cell) + 1 :]:
            await self._stopped[younger].wait()

    async def wait_to_start(self, cell: Cell[Any], delay: float) -> None:
        """The member has stopped: wait for all to stop, the leader's delay, the older ones."""
        self._stopped[cell].set()
        for stopped in self._stopped.values():
            await stopped.wait()
        if cell is self.leader:
            await asyncio.sleep(delay)
            self._delayed.set()
        await self._delayed.wait()
        for older in self._members[: self._members.index(cell)]:
            await self._started[older].wait()

    def has_stopped(self, cell: Cell[Any]) -> bool:
        """Whether the member has stopped, and is to start."""
        return self._stopped[cell].is_set()

    def leave(self, cell: Cell[Any]) -> None:
        """The member has started, or failed to, or ended: nobody waits for it any more."""
        self._joined.add(cell)
        self._stopped[cell].set()
        self._started[cell].set()
        if cell is self.leader:
            self._delayed.set()
        if all(started.is_set() for started in self._started.values()):
            self.over.set()
            if self._timer is not None:
                self._timer.cancel()


class Rounds:
    """The group restarts of one system, one at a time among the children of one parent."""

    def __init__(self) -> None:
        self._latest: dict[Cell[Any] | None, Round] = {}

    async def lead(
        self,
        scope: Scope,
        cell: Cell[Any],
        siblings: Callable[[], Sequence[Cell[Any]]],
        error: Exception,
    ) -> Round:
        """The round in which this cell restarts, as its leader unless another took it along."""
        if scope == "one-for-one":
            return Round([cell], cell, error)
        while (other := self._latest.get(cell.parent)) is not None and not other.over.is_set():
            await other.over.wait()
            if cell.recovery.round is not None:
                return cell.recovery.round
        members = siblings()
        first = 0 if scope == "one-for-all" else members.index(cell)
        round_ = cell.recovery.round = Round(members[first:], cell, error)
        self._latest[cell.parent] = round_
        round_.gather()
        return round_

    def forget(self, parent: Cell[Any]) -> None:
        """A parent has ended."""
        self._latest.pop(parent, None)
