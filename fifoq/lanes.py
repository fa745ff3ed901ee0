"""Lanes: which record of which priority is next. Plain bookkeeping; knows no time and no payloads.

A byte for each record says its lane, so that ten million of them need ten megabytes and the next
one of a lane is found by a search in C. The bytes lie in stretches of counters; where no record is
there is none, since counters jump far after a crash.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Final

from fifoq.options import PRIORITY_COUNT

STRETCH_BITS: Final = 14
"""A stretch has 16 KiB: little to search, and little if one record alone is in it."""
_STRETCH: Final = 1 << STRETCH_BITS
_INDEX: Final = _STRETCH - 1


class Lanes:
    """Counters by lane, oldest first within each."""

    __slots__ = ("_credits", "_from", "_numbers", "_stretches", "_used", "counts")

    def __init__(self) -> None:
        self._stretches: dict[int, bytearray] = {}
        """By number: for each counter the lane plus 1, or 0 for what is not there."""
        self._used: dict[int, int] = {}
        """How many records are in a stretch."""
        self._numbers: list[int] = []
        """Of the stretches, rising."""
        self._from = [0] * PRIORITY_COUNT
        """No record of the lane is in front of this counter."""
        self.counts = [0] * PRIORITY_COUNT
        self._credits = [0] * PRIORITY_COUNT

    def __len__(self) -> int:
        return sum(self.counts)

    def __contains__(self, counter: int) -> bool:
        stretch = self._stretches.get(counter >> STRETCH_BITS)
        return stretch is not None and bool(stretch[counter & _INDEX])

    def add(self, counter: int, lane: int) -> None:
        stretch = self._stretch(counter >> STRETCH_BITS)
        index = counter & _INDEX
        assert not stretch[index], "a record is in one lane"
        stretch[index] = lane + 1
        self._used[counter >> STRETCH_BITS] += 1
        self.counts[lane] += 1
        if counter < self._from[lane]:
            self._from[lane] = counter

    def fill(self, first: int, lanes: Sequence[int]) -> None:
        """The same for consecutive records that are younger than all others."""
        for counter, lane in enumerate(lanes, first):
            self.add(counter, lane)

    def _stretch(self, number: int) -> bytearray:
        stretch = self._stretches.get(number)
        if stretch is None:
            stretch = self._stretches[number] = bytearray(_STRETCH)
            self._used[number] = 0
            insort(self._numbers, number)
        return stretch

    def remove(self, counter: int) -> None:
        number = counter >> STRETCH_BITS
        stretch = self._stretches[number]
        lane = stretch[counter & _INDEX] - 1
        assert lane >= 0, "only what is there can leave"
        stretch[counter & _INDEX] = 0
        self.counts[lane] -= 1
        self._used[number] -= 1
        if not self._used[number]:
            del self._stretches[number], self._used[number]
            del self._numbers[bisect_left(self._numbers, number)]

    def heads(self) -> dict[int, int]:
        """The oldest record of each lane that has any."""
        heads = {}
        for lane, count in enumerate(self.counts):
            if count:
                self._from[lane] = heads[lane] = next(self.following(lane))
        return heads

    def following(self, lane: int) -> Iterator[int]:
        """Records of a lane, oldest first; nothing may change meanwhile."""
        start = self._from[lane]
        at = bisect_left(self._numbers, start >> STRETCH_BITS)
        for number in self._numbers[at:]:
            stretch = self._stretches[number]
            first = number << STRETCH_BITS
            index = stretch.find(lane + 1, max(0, start - first))
            while index >= 0:
                yield first + index
                index = stretch.find(lane + 1, index + 1)

    # Fair shares.

    def share(self, weights: Sequence[int]) -> int:
        """The lane whose turn it is, by its weight among those that have records."""
        open_lanes = [lane for lane, count in enumerate(self.counts) if count]
        return max(open_lanes, key=lambda lane: (self._credits[lane] + weights[lane], -lane))

    def shared(self, lane: int, weights: Sequence[int]) -> None:
        """A record of that lane was handed out."""
        total = 0
        for other, count in enumerate(self.counts):
            if count or other == lane:
                self._credits[other] += weights[other]
                total += weights[other]
            else:
                self._credits[other] = 0
        self._credits[lane] -= total
