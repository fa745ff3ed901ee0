"""A queue's genesis entry after a commit, planned beside the current one."""

from __future__ import annotations

from store.genesis import Genesis
from store.ranges import RangeSet
from store.state import QueueState


class Plan:
    """A queue's genesis after the commit, and what leads there."""

    __slots__ = ("base", "genesis", "index", "puts", "queue", "removed", "restored")

    def __init__(self, queue: QueueState, index: int) -> None:
        self.queue = queue
        self.index = index
        self.base: Genesis = queue.genesis
        self.genesis: Genesis = queue.genesis.__copy__()
        self.puts: list[tuple[int, int, int]] = []
        self.removed: RangeSet | None = None
        self.restored: list[int] = []

    def is_live(self, counter: int) -> bool:
        """Whether a record of before the draft is live with what the draft did so far."""
        if self.removed is not None and counter in self.removed:
            return False
        return counter in self.restored or self.queue.is_live(counter)

    def live_in(self, first: int, last: int) -> int:
        """Live counters of first..last, those that this draft puts or restores included."""
        queue = self.queue
        known = queue.genesis.next_counter - 1
        count = queue.live_count(first, min(last, known)) if first <= known else 0
        for start, stop, _ in self.puts:
            count += max(0, min(last, stop) - max(first, start) + 1)
        for counter in self.restored:
            count += first <= counter <= last and not queue.is_live(counter)
        return count

    def all_removed(self) -> RangeSet:
        """Counters that the draft removes or skips; made when there are any."""
        if self.removed is None:
            self.removed = RangeSet()
        return self.removed

    def finish(self) -> None:
        """Settle the floor, once every block is in."""
        genesis, queue = self.genesis, self.queue
        expected = queue.genesis.next_counter
        for first, last, _ in self.puts:
            if first > expected:
                self.all_removed().add(expected, first - 1)
            expected = last + 1
        if self.removed is not None:
            genesis.floor = queue.floor_after(self.removed)
        for counter in self.restored:
            genesis.floor = min(genesis.floor, counter - 1)


def resize(genesis: Genesis, change: int, now: int) -> None:
    """The queue has so many records more, or fewer; its water marks follow."""
    size = genesis.queue_size + change
    genesis.queue_size = size
    if genesis.high_water_mark is None or size > genesis.high_water_mark:
        genesis.high_water_mark, genesis.high_water_time = size, now
    if genesis.low_water_mark is None or size < genesis.low_water_mark:
        genesis.low_water_mark, genesis.low_water_time = size, now
