"""Frozen snapshots of what actors did."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actors.life import State

if TYPE_CHECKING:
    from actors.cell import Cell


SUMS = ("handled", "failed", "restarts", "dropped", "undelivered", "cut_short", "dead_letters")
"""The counts of an actor, which are added up over several."""


class ActorStats(Struct, frozen=True, kw_only=True):
    """One actor at one moment. Counts go on over restarts.

    `depth` messages wait. `handled` were handled to their end, `failed` ended in an exception,
    `dropped` were dropped by a full mailbox. `undelivered` is what was told and not handled when
    the actor stopped; `cut_short` counts handlers that a deadline cancelled. `batches` counts those
    of `on_batch` by what closed them. `dead_letters` is for durable actors.

    Seconds, from samples, None if there is none: `delay_p50` and `delay_p99` from `tell` to the
    handler; `handler_p50` and `handler_p99` in it (in `on_batch`: for a batch).
    """

    name: str
    state: State
    depth: int = 0
    handled: int = 0
    failed: int = 0
    restarts: int = 0
    dropped: int = 0
    undelivered: int = 0
    cut_short: int = 0
    dead_letters: int = 0
    delay_p50: float | None = None
    delay_p99: float | None = None
    handler_p50: float | None = None
    handler_p99: float | None = None
    batches: Mapping[str, int] = MappingProxyType({})


class SystemStats(Struct, frozen=True, kw_only=True):
    """The living actors by name, and sums over all that ever lived in the system."""

    actors: Mapping[str, ActorStats]
    depth: int
    handled: int
    failed: int
    restarts: int
    dropped: int
    undelivered: int
    cut_short: int
    dead_letters: int
    delay_p50: float | None
    delay_p99: float | None
    handler_p50: float | None
    handler_p99: float | None


def snapshot(cell: Cell[Any], depth: int) -> ActorStats:
    """What one actor did so far."""
    return ActorStats(
        name=cell.name,
        state=cell.state,
        depth=depth,
        handled=cell.handled,
        failed=cell.failed,
        restarts=cell.restarts,
        dropped=getattr(cell.mailbox, "dropped", 0),
        undelivered=cell.undelivered,
        cut_short=cell.cut_short,
        dead_letters=getattr(cell.mailbox, "dead_letters", 0),
        batches=dict(cell.batches),
        **cell.timing.percentiles(),
    )
