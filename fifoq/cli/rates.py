"""What changes from one snapshot of a store to the next: rates, and their history.

Pure: snapshots in, figures out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fifoq.cli.watching import Snapshot
from fifoq.stats import QueueStats
from fifoq.view import ReadOnlyStats

HISTORY_MAX: Final = 240
"""Snapshots that are remembered of each queue."""
_SECOND: Final = 1e9
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_HEIGHTS: Final = "_.-=+*#%"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one snapshot; rates are records a second since the one before, None at first."""

    name: str
    size: int
    put_rate: float | None
    take_rate: float | None
    stats: QueueStats | ReadOnlyStats

    @property
    def activity(self) -> tuple[float, int]:
        """How much there is to see."""
        return (self.put_rate or 0.0) + (self.take_rate or 0.0), self.size


class History:
    """The snapshots of one store so far."""

    def __init__(self) -> None:
        self.last: Snapshot | None = None
        self.queues: list[Rates] = []
        """By name, as of the last snapshot."""
        self._sizes: dict[str, deque[float]] = {}
        self._puts: deque[float] = deque(maxlen=HISTORY_MAX)
        self._takes: deque[float] = deque(maxlen=HISTORY_MAX)

    def add(self, snapshot: Snapshot) -> None:
        before, self.last = self.last, snapshot
        self.queues = [_rates(stats, before, snapshot.time) for stats in snapshot.queues.values()]
        for queue in self.queues:
            sizes = self._sizes.setdefault(queue.name, deque(maxlen=HISTORY_MAX))
            sizes.append(float(queue.size))
        for name in self._sizes.keys() - snapshot.queues.keys():
            del self._sizes[name]
        if before is not None:
            self._puts.append(self.put_rate)
            self._takes.append(self.take_rate)

    @property
    def put_rate(self) -> float:
        """Of all queues together."""
        return sum(queue.put_rate or 0.0 for queue in self.queues)

    @property
    def take_rate(self) -> float:
        return sum(queue.take_rate or 0.0 for queue in self.queues)

    def sizes(self, name: str) -> Sequence[float]:
        return self._sizes.get(name, ())

    def puts(self) -> Sequence[float]:
        return self._puts

    def takes(self) -> Sequence[float]:
        return self._takes

    def busiest(self, count: int) -> list[Rates]:
        """All of them by name if there are no more than that, else those with most to see."""
        if len(self.queues) <= count:
            return self.queues
        chosen = sorted(self.queues, key=lambda queue: queue.activity, reverse=True)[:count]
        return sorted(chosen, key=lambda queue: queue.name)


def _rates(stats: QueueStats | ReadOnlyStats, before: Snapshot | None, now: int) -> Rates:
    earlier = before.queues.get(stats.name) if before is not None else None
    put_rate = take_rate = None
    if before is not None and earlier is not None and now > before.time:
        seconds = (now - before.time) / _SECOND
        # What only the owner has seen so far the files do not say: counts may step back once.
        put_rate = max(0, stats.total_put_count - earlier.total_put_count) / seconds
        take_rate = max(0, stats.total_take_count - earlier.total_take_count) / seconds
    return Rates(
        name=stats.name,
        size=stats.current_size,
        put_rate=put_rate,
        take_rate=take_rate,
        stats=stats,
    )


def sparkline(values: Iterable[float], width: int, *, plain: bool = False) -> str:
    """The last values as heights, the largest of them the highest; 0 is always the lowest."""
    heights = _PLAIN_HEIGHTS if plain else _HEIGHTS
    shown = list(values)[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    steps = len(heights) - 1
    return "".join(
        heights[0 if value <= 0 else max(1, round(value / most * steps))] for value in shown
    )
