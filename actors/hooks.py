"""The hooks of an actor: in which order they run, and that none keeps the runtime waiting."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from anyio import move_on_after

from actors import logs

if TYPE_CHECKING:
    from actors.actor import Actor, Context

M = TypeVar("M")

ON_STOP_SECONDS = 5.0
"""How long `on_stop` may take, also after the deadline of a stop."""


async def run_on_start(actor: Actor[M], ctx: Context[M], cause: Exception | None) -> None:
    """Run `on_start`, before it `on_restart` if the object takes the place of one that failed."""
    if cause is not None:
        await actor.on_restart(cause, ctx)
    await actor.on_start(ctx)


async def run_on_stop(stopping: Awaitable[None], name: str) -> None:
    """Wait for `on_stop`, which nobody cancels before its time is over."""
    try:
        with move_on_after(ON_STOP_SECONDS, shield=True) as scope:
            await stopping
        if scope.cancelled_caught:
            logs.on_stop_late(name, ON_STOP_SECONDS)
    except Exception as error:
        logs.on_stop_failed(name, error)
