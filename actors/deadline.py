"""Deadlines of a stop: of all that were set, the earliest counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls back once its time has come; there may be none."""

    __slots__ = ("_call", "_loop", "_timer", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self.time: float | None = None
        self._loop = loop
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    def bring_forward(self, time: float | None) -> None:
        """Set it, unless an earlier one is set; None changes nothing. Calls at once if over."""
        if time is None or (self.time is not None and self.time <= time):
            return
        self.cancel()
        self.time = time
        if time <= self._loop.time():
            self._call()
        else:
            self._timer = self._loop.call_at(time, self._call)

    def cancel(self) -> None:
        """Do not call back."""
        if self._timer is not None:
            self._timer.cancel()
