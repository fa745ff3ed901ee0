"""Recovery: what a cell does about a failure, alone or with its siblings."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from actors import logs
from actors.group import Round
from actors.supervision import Restarts, Supervision

if TYPE_CHECKING:
    from actors.cell import Cell


class Recovery:
    """Asks the supervision of one actor, and sees its cell through restarts."""

    __slots__ = ("_cell", "_restarts", "_rules", "round")

    def __init__(self, cell: Cell[Any], rules: Supervision, random: Random) -> None:
        self._cell = cell
        self._rules = rules
        self._restarts = Restarts(rules, random)
        self.round: Round | None = None
        """The group restart that the cell is to take part in, until it has started again."""

    async def recover(self, failure: Exception) -> bool:
        """Do what the supervision says about a failure; True if life goes on."""
        cell, rules = self._cell, self._rules
        cell.cause = failure
        if cell.started is not None and not cell.started.done():
            cell.started.set_exception(failure)
            return False
        self.leave_round()
        if self.round is not None:
            return await self._follow(self.round, failure)
        strategy = rules.strategy_for(failure)
        logs.failed(cell.name, strategy, failure)
        if strategy == "resume" and cell.began:
            return True
        if strategy in ("restart", "resume"):
            delay = self._restarts.next_delay(cell.loop.time())
            if delay is not None:
                return await self._restart(failure, delay)
            failure.add_note(f"actor {cell.name!r} failed too often to be restarted once more")
            strategy = rules.exhausted
        if strategy == "escalate":
            self._escalate(failure)
        return False

    async def _follow(self, round_: Round, failure: Exception) -> bool:
        if failure is not round_.error:
            # It failed in the message after which it would have joined.
            logs.failed(self._cell.name, "restart", failure)
        logs.taken_along(self._cell.name, round_.leader.name)
        self._cell.cause = round_.error
        return await self._restart(round_.error, 0)

    async def _restart(self, failure: Exception, delay: float) -> bool:
        cell = self._cell
        cell.begin_restart(failure)
        with cell.new_scope():
            round_ = self.round or await cell.tree.lead(cell, self._rules.scope, failure)
            await round_.wait_to_stop(cell)
            await cell.go_down()
            await round_.wait_to_start(cell, delay)
        # A sibling may have failed while this one was on its way.
        joining = self.round is not None and not self.round.has_stopped(cell)
        cell.interruption = self.round.error if joining and self.round is not None else None
        return True

    def take_along(self, round_: Round) -> None:
        """Restart with a sibling, as soon as no message is being handled."""
        self.round = round_
        self._restarts.note(self._cell.loop.time())
        self._cell.interrupt(round_.error)

    def leave_round(self) -> None:
        """The cell has started again, or has failed to."""
        if self.round is not None and self.round.has_stopped(self._cell):
            self.round.leave(self._cell)
            self.round = None

    def end(self) -> None:
        """The cell has ended: no sibling need wait for it."""
        if self.round is not None:
            self.round.leave(self._cell)

    def _escalate(self, failure: Exception) -> None:
        parent = self._cell.parent
        if parent is None:
            self._cell.tree.fail(failure)
        else:
            parent.interrupt(failure)
