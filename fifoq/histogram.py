"""A histogram of durations in constant memory, with about 6 % error at any size."""

from __future__ import annotations

from typing import Final

_STEPS: Final = 8
"""Buckets for each doubling."""
_DOUBLINGS: Final = 64


class Histogram:
    """Counts of nanoseconds, and the percentiles of them."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets = [0] * (_DOUBLINGS * _STEPS)
        self.count = 0

    def add(self, duration: int, count: int = 1) -> None:
        """Note a duration, not negative, `count` times."""
        bits = duration.bit_length()
        step = (duration >> (bits - 4)) & 7 if bits > 3 else 0
        self._buckets[min(bits, _DOUBLINGS - 1) * _STEPS + step] += count
        self.count += count

    def percentile(self, share: float) -> int | None:
        """The duration that `share` (0 to 1) of the noted ones do not exceed, about."""
        if not self.count:
            return None
        wanted = share * self.count
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return _middle(index)
        return None

    def clear(self) -> None:
        self._buckets = [0] * len(self._buckets)
        self.count = 0


def _middle(index: int) -> int:
    bits, step = divmod(index, _STEPS)
    if bits <= 3:
        return (1 << bits) // 2
    width = 1 << (bits - 4)
    return (_STEPS + step) * width + width // 2
