"""How long messages wait and handlers take: sampled, in little memory.

Nothing is written down when a message is told. The delay is that of messages that wake an idle
actor, and, while there is a backlog, how long the last message in it takes to get to its turn.
"""

from __future__ import annotations

import time
from typing import Final

SAMPLED_TURNS: Final = 4
"""One in so many turns of an actor is timed, by its first message."""

clock = time.perf_counter_ns

_STEPS: Final = 8
"""Buckets for each doubling: about 6 % error."""


class Durations:
    """Counts of nanoseconds in buckets; there is one only for what occurred."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}

    def add(self, duration: int) -> None:
        """Note a duration, not negative."""
        bits = duration.bit_length()
        bucket = bits * _STEPS + ((duration >> (bits - 4)) & 7 if bits > 3 else 0)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def merge(self, other: Durations) -> None:
        """Note all that the other has noted."""
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def percentile(self, share: float) -> float | None:
        """Seconds that `share` (0 to 1) of the noted durations do not exceed, about."""
        wanted = share * sum(self._buckets.values())
        for bucket in sorted(self._buckets):
            wanted -= self._buckets[bucket]
            if wanted <= 0:
                return _middle(bucket) / 1e9
        return None


class Timing:
    """The samples of one actor, or of all that ever lived in a system."""

    __slots__ = ("_behind", "_since", "_turns", "delays", "handlers")

    def __init__(self) -> None:
        self.delays = Durations()
        self.handlers = Durations()
        self._turns = 0
        # While there is a backlog: messages before the one that is timed, and since when.
        self._behind = 0
        self._since = 0

    def is_due(self) -> bool:
        """Whether this turn is to be timed."""
        self._turns += 1
        return self._turns % SAMPLED_TURNS == 1

    def backlog(self, handled: int, waiting: int) -> None:
        """A turn has handled so many, and so many wait: time how long the last one of them does."""
        if self._since:
            self._behind -= handled
            if self._behind > 0:
                return
            now = clock()
            self.delays.add(now - self._since)
            self._since = 0
        if waiting:
            self._behind, self._since = waiting, clock()

    def merge(self, other: Timing) -> None:
        """Note all that the other has noted."""
        self.delays.merge(other.delays)
        self.handlers.merge(other.handlers)

    def percentiles(self) -> dict[str, float | None]:
        """As the fields of the stats are named."""
        return {
            f"{name}_p{percent}": durations.percentile(percent / 100)
            for name, durations in (("delay", self.delays), ("handler", self.handlers))
            for percent in (50, 99)
        }


def _middle(bucket: int) -> int:
    bits, step = divmod(bucket, _STEPS)
    if bits <= 3:
        return (1 << bits) // 2
    width = 1 << (bits - 4)
    return (_STEPS + step) * width + width // 2
