"""Lanes: which record of which priority is next. Plain bookkeeping; knows no time and no payloads.

A byte for each record from the oldest on says its lane, so that ten million of them need ten
megabytes and the next one of a lane is found by one search in C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fifoq.options import PRIORITY_COUNT

TRIM_EVERY: Final = 65536
"""Records that leave before the bytes of the oldest ones are let go."""


class Lanes:
    """Counters by lane, oldest first within each."""

    __slots__ = ("_base", "_codes", "_credits", "_from", "_left", "counts")

    def __init__(self) -> None:
        self._base = 0
        self._codes = bytearray()
        """From the counter `_base` on: the lane plus 1, or 0 for what is not there."""
        self._from = [0] * PRIORITY_COUNT
        """No record of the lane is in front of this index."""
        self.counts = [0] * PRIORITY_COUNT
        self._left = 0
        self._credits = [0] * PRIORITY_COUNT

    def __len__(self) -> int:
        return sum(self.counts)

    def __contains__(self, counter: int) -> bool:
        index = counter - self._base
        return 0 <= index < len(self._codes) and bool(self._codes[index])

    def add(self, counter: int, lane: int) -> None:
        if not self._codes:
            self._base = counter
            self._from = [0] * PRIORITY_COUNT
        index = counter - self._base
        if index < 0:
            self._codes[:0] = bytes(-index)
            self._from = [start - index for start in self._from]
            self._base, index = counter, 0
        elif index >= len(self._codes):
            self._codes.extend(bytes(index + 1 - len(self._codes)))
        assert not self._codes[index], "a record is in one lane"
        self._codes[index] = lane + 1
        self.counts[lane] += 1
        if index < self._from[lane]:
            self._from[lane] = index

    def fill(self, first: int, lanes: Sequence[int]) -> None:
        """The same for consecutive records that are younger than all others."""
        if not self._codes:
            self._base = first
        end = self._base + len(self._codes)
        assert first >= end
        self._codes.extend(bytes(first - end))
        self._codes.extend(bytes(lane + 1 for lane in lanes))
        for lane in range(PRIORITY_COUNT):
            self.counts[lane] += lanes.count(lane)

    def remove(self, counter: int) -> None:
        index = counter - self._base
        lane = self._codes[index] - 1
        assert lane >= 0, "only what is there can leave"
        self._codes[index] = 0
        self.counts[lane] -= 1
        self._left += 1
        if self._left >= TRIM_EVERY:
            self._trim()

    def _trim(self) -> None:
        self._left = 0
        gone = len(self._codes) - len(self._codes.lstrip(b"\0"))
        del self._codes[:gone]
        self._base += gone
        self._from = [max(0, start - gone) for start in self._from]

    def heads(self) -> dict[int, int]:
        """The oldest record of each lane that has any."""
        return {lane: self._oldest(lane) for lane, count in enumerate(self.counts) if count}

    def _oldest(self, lane: int) -> int:
        index = self._codes.find(lane + 1, self._from[lane])
        self._from[lane] = index
        return self._base + index

    def following(self, lane: int) -> Iterator[int]:
        """Records of a lane, oldest first."""
        index = self._codes.find(lane + 1, self._from[lane])
        while index >= 0:
            yield self._base + index
            index = self._codes.find(lane + 1, index + 1)

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
