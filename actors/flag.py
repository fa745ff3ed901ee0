"""A flag that is set once, and for which any number of tasks may wait."""

from __future__ import annotations

import asyncio


class Flag:
    """What `asyncio.Event` is, at a tenth of its size while nobody waits."""

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Let everybody go on who waits, now or later."""
        self._set = True
        waiters, self._waiters = self._waiters or (), None
        for future in waiters:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return once it is set."""
        if self._set:
            return
        future = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(future)
        try:
            await future
        finally:
            if self._waiters is not None:
                self._waiters.remove(future)
