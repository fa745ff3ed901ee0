"""The world that stores reach in this context, where it is not the real one.

For the test kit: whatever opens a store below `WORLD.set(...)` opens it there, however deep in a
program that knows nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from fifoq.writer import Runner
from store.files import Clock, Files

MakeRunner = Callable[[asyncio.AbstractEventLoop, Callable[[], None], str], Runner]


class World(NamedTuple):
    """What a store needs of the world; None stands for the real thing."""

    files: Files | None = None
    clock: Clock | None = None
    runner: MakeRunner | None = None


WORLD: Final[ContextVar[World]] = ContextVar("fifoq.world", default=World())  # noqa: B039
