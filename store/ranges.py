"""A set of counters kept as inclusive ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

CHUNK_BITS: Final = 16
"""Counters that differ only in so many low bits are in one chunk."""
_FEW_CHUNKS: Final = 8


class RangeSet:
    """Counters as sorted, disjoint, non-touching inclusive ranges."""

    __slots__ = ("_firsts", "_lasts", "packed")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.packed: dict[int, bytes] = {}
        """What a checkpoint held of a chunk, as long as nothing changed there."""
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        return len(self._firsts)

    def __contains__(self, counter: int) -> bool:
        at = bisect_right(self._firsts, counter) - 1
        return at >= 0 and counter <= self._lasts[at]

    def end_of(self, counter: int) -> int | None:
        """Last counter of the range that holds `counter`, or None."""
        at = bisect_right(self._firsts, counter) - 1
        return self._lasts[at] if at >= 0 and counter <= self._lasts[at] else None

    def add(self, first: int, last: int) -> int:
        """Add first..last; returns how many of them were not in the set."""
        firsts, lasts = self._firsts, self._lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            self._changed(first, last)
            return last - first + 1
        start = bisect_left(lasts, first - 1)
        stop = bisect_right(firsts, last + 1)
        inside = 0
        new_first, new_last = first, last
        if start < stop:
            inside = self.count(first, last)
            new_first = min(first, firsts[start])
            new_last = max(last, lasts[stop - 1])
        firsts[start:stop] = [new_first]
        lasts[start:stop] = [new_last]
        self._changed(new_first, new_last)
        return last - first + 1 - inside

    def remove(self, first: int, last: int) -> None:
        """Take first..last out, as far as they are in."""
        firsts, lasts = self._firsts, self._lasts
        start = bisect_left(lasts, first)
        stop = bisect_right(firsts, last)
        if start >= stop:
            return
        self._changed(firsts[start], lasts[stop - 1])
        pieces = [
            (a, b) for a, b in ((firsts[start], first - 1), (last + 1, lasts[stop - 1])) if a <= b
        ]
        firsts[start:stop] = [a for a, _ in pieces]
        lasts[start:stop] = [b for _, b in pieces]

    def count(self, first: int, last: int) -> int:
        """How many counters of first..last are in the set."""
        total = 0
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            total += min(last, self._lasts[at]) - max(first, self._firsts[at]) + 1
            at += 1
        return total

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges of first..last that are not in the set."""
        holes: list[tuple[int, int]] = []
        at = bisect_left(self._lasts, first)
        while first <= last and at < len(self._firsts) and self._firsts[at] <= last:
            if self._firsts[at] > first:
                holes.append((first, self._firsts[at] - 1))
            first = self._lasts[at] + 1
            at += 1
        if first <= last:
            holes.append((first, last))
        return holes

    def pop_through(self, floor: int) -> int:
        """Drop ranges that `floor` reaches or touches; returns the floor pushed past them."""
        while self._firsts and self._firsts[0] <= floor + 1:
            floor = max(floor, self._lasts[0])
            self._changed(self._firsts[0], self._lasts[0])
            del self._firsts[0], self._lasts[0]
        return floor

    def next_from(self, counter: int) -> int | None:
        """The lowest counter of the set that is not below `counter`."""
        at = bisect_left(self._lasts, counter)
        return max(self._firsts[at], counter) if at < len(self._firsts) else None

    def inside(self, first: int, last: int, limit: int) -> list[tuple[int, int]]:
        """The ranges of the set within first..last, the lowest `limit` of them."""
        at = bisect_left(self._lasts, first)
        stop = min(bisect_right(self._firsts, last), at + limit)
        return [(max(a, first), min(b, last)) for a, b in self.slice(at, stop)]

    def slice(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges by their place in the set."""
        return zip(self._firsts[start:stop], self._lasts[start:stop], strict=True)

    def chunks(self) -> Iterator[tuple[int | None, int, int]]:
        """Places start..stop of the ranges by the chunk that they are in.

        None instead of a chunk for a range that leaves its chunk or reaches the end of it.
        """
        firsts, lasts = self._firsts, self._lasts
        at = 0
        while at < len(firsts):
            chunk = firsts[at] >> CHUNK_BITS
            stop = bisect_left(firsts, (chunk + 1) << CHUNK_BITS, at)
            leaves = (lasts[stop - 1] + 1) >> CHUNK_BITS != chunk
            if stop - leaves > at:
                yield chunk, at, stop - leaves
            if leaves:
                yield None, stop - 1, stop
            at = stop

    def _changed(self, first: int, last: int) -> None:
        packed = self.packed
        if packed:
            start, stop = first >> CHUNK_BITS, last >> CHUNK_BITS
            few = stop - start < _FEW_CHUNKS
            for chunk in range(start, stop + 1) if few else list(packed):
                if start <= chunk <= stop:
                    packed.pop(chunk, None)


def merged(ranges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Rising ranges (first, last, weight) with those that touch joined."""
    joined: list[tuple[int, int, int]] = []
    for first, last, weight in ranges:
        if joined and joined[-1][1] == first - 1:
            before = joined[-1]
            joined[-1] = (before[0], last, before[2] + weight)
        else:
            joined.append((first, last, weight))
    return joined
