"""Removed counters in a checkpoint: a short list for people, and packed pieces when there are many.

A piece holds the ranges that begin and end inside one chunk of `CHUNK_COUNTERS` counters and do
not reach its end: as runs while they are few, else as a bitmap. So a queue's removed counters
never need more than one bit for each counter of the chunks that have a live record, in whatever
order records are removed. Space for that is held before the disk is full.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from store.errors import DamageError
from store.keys import COUNTER_MAX
from store.ranges import CHUNK_BITS, RangeSet

CHUNK_COUNTERS: Final = 1 << CHUNK_BITS
BITMAP_BYTES: Final = CHUNK_COUNTERS // 8
READABLE_RANGES: Final = 32
"""Up to so many ranges are a plain list."""

# What the parts need in JSON at the most, numbers having up to 19 digits.
RANGE_JSON: Final = 44
PIECE_JSON: Final = 32
_RUN = array("H", (0, 0))
RUN_BYTES: Final = _RUN.itemsize * len(_RUN)
_ONES = re.compile("1+")

Ranges = list[tuple[int, int]]
Pieces = list[tuple[int, bytes]]


def pack(removed: RangeSet) -> tuple[Ranges, Pieces]:
    """A list of ranges, and pieces (chunk, runs or bitmap) that hold the others."""
    if len(removed) <= READABLE_RANGES:
        return list(removed), []
    listed: Ranges = []
    pieces: Pieces = []
    for chunk, start, stop in removed.chunks():
        if chunk is None:
            listed += removed.slice(start, stop)
            continue
        piece = removed.packed.get(chunk)
        if piece is None:
            piece = removed.packed[chunk] = _piece(chunk, removed.slice(start, stop))
        pieces.append((chunk, piece))
    return listed, pieces


def _piece(chunk: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    base = chunk << CHUNK_BITS
    bounds = array("H", [counter - base for pair in ranges for counter in pair])
    if len(bounds) * bounds.itemsize < BITMAP_BYTES:
        return _little(bounds).tobytes()
    digits = bytearray(b"0") * CHUNK_COUNTERS
    for at in range(0, len(bounds), 2):
        first, last = bounds[at], bounds[at + 1]
        digits[first : last + 1] = b"1" * (last + 1 - first)
    digits.reverse()
    return int(digits, 2).to_bytes(BITMAP_BYTES, "little")


def unpack(listed: Sequence[tuple[int, int]], pieces: Pieces) -> RangeSet:
    """The set again. DamageError unless ranges rise, do not touch and stay in their chunks."""
    ranges = list(listed)
    for chunk, piece in pieces:
        if not 0 <= chunk <= COUNTER_MAX >> CHUNK_BITS:
            raise DamageError(0, f"there is no chunk {chunk} of counters")
        base = chunk << CHUNK_BITS
        ranges += [(base + first, base + last) for first, last in _ranges_of(piece)]
    ranges.sort()
    before = -1
    for first, last in ranges:
        if not before + 1 < first <= last <= COUNTER_MAX:
            raise DamageError(0, f"removed counters {first} to {last} are out of order")
        before = last
    return RangeSet(ranges)


def _ranges_of(piece: bytes) -> Iterable[tuple[int, int]]:
    if len(piece) == BITMAP_BYTES:
        digits = f"{int.from_bytes(piece, 'little'):b}"[::-1]
        return [(found.start(), found.end() - 1) for found in _ONES.finditer(digits)]
    if len(piece) % RUN_BYTES or len(piece) > BITMAP_BYTES:
        raise DamageError(0, f"a piece of {len(piece)} bytes is neither runs nor a bitmap")
    bounds = _little(array("H", piece))
    return zip(bounds[::2], bounds[1::2], strict=True)


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":  # pragma: no cover
        numbers.byteswap()
    return numbers


def put_growth(live: int, floor: int, following: int, count: int) -> int:
    """By how much `json_bytes_max` of a queue without removed ranges grows with `count` puts.

    The queue has `live` records between its floor and the `following` counter.
    """
    start = (floor + 1) >> CHUNK_BITS
    chunks = (following >> CHUNK_BITS) - start + 1
    more = ((following + count) >> CHUNK_BITS) - start + 1
    if more == chunks and live >= READABLE_RANGES:
        # Only what is packed grows, until a bitmap of each chunk is counted.
        most, before = BITMAP_BYTES * chunks, RUN_BYTES * (live + chunks)
        if before >= most:
            return 0
        return min(most, before + RUN_BYTES * count) * 4 // 3 - before * 4 // 3
    after = _bytes_max(live + count, more)
    return after - _bytes_max(live, chunks) if live else after


def json_bytes_max(removed: RangeSet, live: int, floor: int, following: int) -> int:
    """What the packed set can need in JSON, now or after any further removals.

    Of the queue: `live` records between its floor and the `following` counter. Ranges are divided
    by live records, so a chunk with n of them has at most n + 1 runs, and one without has none.
    """
    if not live:
        return 0
    chunks = (following >> CHUNK_BITS) - ((floor + 1) >> CHUNK_BITS) + 1
    for chunk, start, stop in removed.chunks():
        if chunk is None:
            for first, last in removed.slice(start, stop):
                # Chunks that lie wholly inside.
                chunks -= ((last + 1) >> CHUNK_BITS) - ((first - 1) >> CHUNK_BITS) - 1
    return _bytes_max(live, chunks)


def _bytes_max(live: int, chunks: int) -> int:
    readable = RANGE_JSON * min(READABLE_RANGES, live + 1)
    packed = min(BITMAP_BYTES * chunks, RUN_BYTES * (live + chunks))
    return readable + RANGE_JSON * (chunks + 1) + PIECE_JSON * chunks + packed * 4 // 3
