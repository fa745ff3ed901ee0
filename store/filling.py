"""Zeros ahead in two steps, for a caller that writes them without waiting.

A frame that is not to be synced needs no zeros, but the space held for removals lies behind every
frame, and who finds too little of it writes more before the frame, a megabyte at once. `begin` is
for doing that beforehand: between two commits, while nobody waits for it. Nothing depends on it.
What was written and not told of is written again by whoever needs it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from store.life import OPEN
from store.options import HELD_BYTES_MAX
from store.segment import SegmentFile

if TYPE_CHECKING:
    from store.log import Log
else:
    # It imports this module; `help` and `inspect.signature` want to know what it is.
    Log = object

LEFT_SHARE: Final = 2
"""More is written when less than one part in so many of what lies ahead is left."""


class Filling(msgspec.Struct, eq=False):
    """Zeros that belong at `offset` of the segment at the tail; its log waits for the end.

    To whoever writes it, it is what a `Begun` is that is not to be synced.
    """

    log: Log
    frame: memoryview
    offset: int
    file: SegmentFile
    sync: bool = False

    def end(self, seconds: float) -> None:
        """The zeros lie at their place; that took so long."""
        tail = self.log.tail
        # In this order: whoever is interrupted in between has lost nothing but the zeros.
        tail.dirty = True
        tail.filled = self.offset + len(self.frame)
        self.log.free_turn()

    def fail(self, error: OSError) -> OSError:
        """They were not written, or nobody saw how that ended: either does no harm."""
        self.write()
        return error

    def write(self) -> None:
        """Leave it: the next frame sees to the space that it needs, and tells if there is none."""
        self.log.tail.fills = False
        self.log.free_turn()


@cache
def _zeros() -> memoryview:
    return memoryview(bytearray(HELD_BYTES_MAX))


def is_due(log: Log) -> bool:
    """Whether so little is left ahead that the next frames would have to write more.

    Not where that found no space: then whoever needs it finds out first whether there is some.
    """
    tail = log.tail
    return tail.fills and not (tail.closed or tail.has_room(tail.ahead_bytes // LEFT_SHARE))


def begin(log: Log) -> Filling | None:
    """Begin to fill up what lies ahead of the tail; None if that is not due. Touches no file."""
    if log.status is not OPEN or not is_due(log):
        return None
    tail = log.tail
    zeros = _zeros()[: tail.wanted - tail.filled]
    filling = Filling(log, zeros, tail.filled, tail.file)
    try:
        # Last: whatever is raised before leaves everything as it was.
        log.turn.pop()
    except IndexError:
        return None
    return filling
