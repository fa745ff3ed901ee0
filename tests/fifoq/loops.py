"""Tests that are coroutines, run on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
PATIENCE_SECONDS = 30.0
"""Real time after which a condition counts as never coming."""


def on_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function; its fixtures stay its parameters."""

    def run(loop: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**fixtures))

    parameters = list(inspect.signature(test).parameters.values())
    first = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("loop", list(LOOPS))(run)
    return marked


async def until(condition: Callable[[], object], *, pause: float = 0.0) -> None:
    """Let the loop turn until the condition holds; with a pause for one that costs something."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(pause)


async def turns(count: int = 3) -> None:
    """Let every task that can move do so."""
    for _ in range(count):
        await asyncio.sleep(0)
