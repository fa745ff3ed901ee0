"""Blocking work beside the event loop that whoever cancels it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

R = TypeVar("R")
Args = TypeVarTuple("Args")


async def on_thread(
    function: Callable[[*Args], R],
    *args: *Args,
    stop: Callable[[], None] | None = None,
) -> R:
    """As `asyncio.to_thread`, but a cancelled call ends before the caller goes on.

    So that nobody closes a file, or leaves, while a thread still works on it. `stop` is called to
    make work end that may wait for ever.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        await asyncio.wait([work])
        # Whatever came of it, nobody wants it any more: asyncio need not tell.
        if not work.cancelled():
            work.exception()
        raise
