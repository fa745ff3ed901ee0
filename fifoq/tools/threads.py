"""Blocking work beside the event loop that whoever cancels it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def on_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """As `asyncio.to_thread`, but a cancelled call ends before the caller goes on.

    So that nobody closes a file, or leaves, while a thread still works on it.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait([work])
        raise
