"""The clock of a file's times: whether a write is sure to leave the file's time as it is.

ext4 notes a new time in its journal, and while that is being written, whoever notes something there
waits for the disk. The clock stands still between two ticks, and the same time is not noted again.
Nothing here sees that somebody looked at the file's times in between: Linux 6.13 and newer give it
a finer one with the next write then.
"""

from __future__ import annotations

import sys
import time
from typing import Final

_COARSE: Final = 5
"""CLOCK_REALTIME_COARSE, for which Python has no name."""
CLOSE_NS: Final = 62_500
"""So shortly before a tick a write may come to the kernel behind it."""
TICK_NS: Final = int(time.clock_getres(_COARSE) * 1e9) if sys.platform == "linux" else 0


class FileClock:
    """Knows when the last write gave which file its time."""

    def __init__(self) -> None:
        self._tick = 0
        self._file: object = None
        self._age = 0
        """How old a tick was when it was still the last one: the next does not come before."""

    def stands_still(self, file: object) -> bool:
        """Whether a write now leaves the file's time; it counts as the last write from here on."""
        same, self._file = file is self._file, file
        latest = self._age
        tick, age = self.observe()
        if tick != self._tick:
            self._tick = tick
            # Forget slowly: ticks need not stay as late as they were.
            self._age -= TICK_NS // 64
            return False
        return same and age < latest - CLOSE_NS

    def observe(self) -> tuple[int, int]:
        """See how old ticks become; says which is the last one, and how old it is at least."""
        # In this order: who is interrupted in between takes it for younger than it is.
        now = time.time_ns()
        tick = time.clock_gettime_ns(_COARSE)
        age = now - tick
        if age > self._age:
            self._age = min(age, 2 * TICK_NS)
        return tick, age
