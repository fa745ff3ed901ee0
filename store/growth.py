"""How much a checkpoint may grow: room that is held before anything is added.

On a full disk removals are committed by overwriting a checkpoint copy, so each commit that adds
something first sees to it that the copies can hold the removal of all of it. Estimates are from
above.
"""

from __future__ import annotations

from typing import Final

from store.packing import BITMAP_BYTES, RANGE_JSON, READABLE_RANGES
from store.ranges import CHUNK_BITS

# What a draft can add to the JSON of a checkpoint, where numbers have up to 20 digits.
GENESIS_GROWTH: Final = 320
QUEUE_GROWTH: Final = 2300
"""A queue that is new, what is held for every queue included."""
UNLOGGED_GROWTH: Final = 240
"""An entry of unlogged removals, and from where on the queue's records are held."""
RANGE_GROWTH: Final = 128
LEASE_GROWTH: Final = 48
STATE_GROWTH: Final = 80
STATE_HELD: Final = 32
"""Held for each state: its place gets more digits when it is set again."""
RECORD_GROWTH: Final = 6
CHUNK_GROWTH: Final = 128
SPAN_GROWTH: Final = 130
RESTORED_GROWTH: Final = CHUNK_GROWTH + RANGE_JSON + RECORD_GROWTH
QUEUE_HELD: Final = GENESIS_GROWTH + UNLOGGED_GROWTH + SPAN_GROWTH + 2 * CHUNK_GROWTH
"""Held for each queue once and for all, so that known queues need not be counted again."""


def any_growth(first: int, count: int, *, skips: bool) -> int:
    """Of the space to hold for records put into a queue of any state, at the most."""
    chunks = ((first + count - 1) >> CHUNK_BITS) - ((first - 1) >> CHUNK_BITS) + skips
    packed = min(RECORD_GROWTH * count, 2 * BITMAP_BYTES * (chunks + 1))
    return packed + RANGE_JSON * min(count, READABLE_RANGES) + CHUNK_GROWTH * chunks


def removal_growth(ranges: int, queues: int) -> int:
    """Of so many ranges removed from so many queues, at the most."""
    # As soon as the ranges are few they are a list again, which is longer.
    readable = RANGE_JSON * READABLE_RANGES
    return RANGE_GROWTH * ranges + (GENESIS_GROWTH + UNLOGGED_GROWTH + readable) * queues
