"""Timers of one actor in memory: messages that it tells later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypedDict

from actors.errors import ActorError

SECONDS_MAX: Final = 1 << 33
"""Some 272 years: later times have no place among nanoseconds since the epoch."""
EVERY_SECONDS_MIN: Final = 0.001
"""Who wants to be told more often has no need of a clock."""


class TimerKeywords(TypedDict, total=False):
    """When a timer rings."""

    delay: float | None
    deliver_at: datetime | float | None
    every: float | None


class Timers:
    """What waits for its time. Belongs to the loop, and takes the time from it."""

    __slots__ = ("_handles", "_loop", "_number")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[str | int, asyncio.TimerHandle] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._handles)

    def set(
        self, name: str | None, seconds: float, every: float | None, tell: Callable[[], None]
    ) -> None:
        """Tell then; one of the same name is replaced."""
        key: str | int
        if name is None:
            key = self._number = self._number + 1
        else:
            key = name
            self.drop(name)
        self._handles[key] = self._loop.call_later(seconds, self._ring, key, every, tell)

    def drop(self, name: str | int) -> None:
        """Forget it, if it is there."""
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def drop_all(self) -> None:
        """Nobody listens any more."""
        for name in list(self._handles):
            self.drop(name)

    def _ring(self, key: str | int, every: float | None, tell: Callable[[], None]) -> None:
        del self._handles[key]
        if every is not None:
            self._handles[key] = self._loop.call_later(every, self._ring, key, every, tell)
        try:
            tell()
        except ActorError:
            # Whoever was to hear of it is gone: a timer has nobody to tell that.
            pass


def first_delay(
    delay: float | None = None,
    deliver_at: datetime | float | None = None,
    every: float | None = None,
) -> float:
    """Seconds until a timer first rings. ValueError for what makes no sense."""
    if delay is not None and deliver_at is not None:
        raise ValueError("delay and deliver_at are two ways to say one thing. Nothing was changed.")
    if every is not None and not EVERY_SECONDS_MIN <= every <= SECONDS_MAX:
        raise ValueError(
            f"every={every!r} is not in {EVERY_SECONDS_MIN} to {SECONDS_MAX} seconds. Nothing was "
            f"changed."
        )
    if delay is None and deliver_at is None:
        if every is None:
            raise ValueError("a timer needs delay, deliver_at or every. Nothing was changed.")
        return every
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise ValueError(f"deliver_at={deliver_at!s} has no time zone. Nothing was changed.")
        deliver_at = deliver_at.timestamp()
    if deliver_at is not None and not deliver_at <= SECONDS_MAX:
        raise ValueError(
            f"deliver_at={deliver_at!r} is not a time up to {SECONDS_MAX}. Nothing was changed."
        )
    seconds = deliver_at - time.time() if deliver_at is not None else delay
    assert seconds is not None
    if deliver_at is None and not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(
            f"delay={delay!r} is not 0 or more, and at most {SECONDS_MAX}. Nothing was changed."
        )
    return max(0.0, seconds)
