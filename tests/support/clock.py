"""A clock that stands still until a test moves it, and chance that repeats itself."""

from __future__ import annotations

from random import Random

NANOSECONDS = 1_000_000_000
WALL_START = 1_700_000_000 * NANOSECONDS


class ManualClock:
    """A `Clock` whose time passes only by `advance` and `sleep`, and whose tokens follow a seed.

    `naps` lists what was slept, in seconds. `set_wall` moves the wall clock alone, either way,
    as a person or a time daemon does; the monotonic clock never goes back.
    """

    def __init__(self, *, seed: int = 0, wall: int = WALL_START) -> None:
        self.naps: list[float] = []
        self._elapsed = 0
        self._wall = wall
        self._random = Random(seed)

    def monotonic(self) -> float:
        return self._elapsed / NANOSECONDS

    def wall(self) -> int:
        return self._wall

    def token(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds=seconds)
        self.naps.append(seconds)

    def advance(self, *, seconds: float) -> None:
        """Let time pass on both clocks. ValueError if it is negative."""
        if seconds < 0:
            raise ValueError(f"time can not pass backwards: {seconds} seconds")
        step = round(seconds * NANOSECONDS)
        self._elapsed += step
        self._wall += step

    def set_wall(self, nanoseconds: int) -> None:
        """Set the wall clock; the monotonic one does not notice."""
        self._wall = nanoseconds
