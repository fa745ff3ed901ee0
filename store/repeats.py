"""Removals that only checkpoints hold, and how later commits repeat them in the log.

On a full disk a removal is committed by overwriting a checkpoint copy. No frame holds it then, so
commits that have space log it again, piece by piece, from the lowest counter on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from store.blocks import BLOCK_HEADER_BYTES
from store.checkpoint import UnloggedEntry
from store.frames import BLOCK_COUNT_MAX, BODY_BYTES_MAX
from store.genesis import GENESIS_BYTES_MAX
from store.state import QueueState, State

RANGE_BYTES: Final = 24
REPEAT_BYTES: Final = GENESIS_BYTES_MAX + BLOCK_HEADER_BYTES
REPEATED_RANGES_MAX: Final = 8192
"""How many ranges of unlogged removals one commit repeats; the next one goes on with the rest."""


class Repeat(NamedTuple):
    """A removal that takes effect no more, but gets its place in the log."""

    queue: QueueState
    ranges: Sequence[tuple[int, int, int]]
    reason: int
    time: int

    @property
    def size(self) -> int:
        """Bytes that it needs in a frame, at the most."""
        return REPEAT_BYTES + RANGE_BYTES * len(self.ranges)


def unrepeated(state: State, *, body_bytes: int, block_count: int) -> list[Repeat]:
    """Unlogged removals that fit into a commit of that size, the lowest of each queue first.

    What is left stays unlogged. Counters that were logged before may be among them.
    """
    repeats: list[Repeat] = []
    left = BODY_BYTES_MAX - body_bytes
    limit = REPEATED_RANGES_MAX
    for entry in state.unlogged.values():
        left -= REPEAT_BYTES
        fits = min(limit, left // RANGE_BYTES)
        if fits <= 0 or block_count + len(repeats) == BLOCK_COUNT_MAX:
            break
        queue = state.queues[entry.queue]
        average = entry.weight // max(entry.record_count, 1)
        ranges = [
            (first, last, min(average * (last - first + 1), entry.weight))
            for first, last in queue.not_live(entry.first, entry.last, fits)
        ]
        repeats.append(Repeat(queue, ranges, entry.reason, entry.time))
        limit -= len(ranges)
        left -= RANGE_BYTES * len(ranges)
    return repeats


def joined(
    unlogged: dict[str, UnloggedEntry], more: list[UnloggedEntry]
) -> dict[str, UnloggedEntry]:
    """Removals and more of them, one entry for each queue.

    Removing record by record from a full disk must not let the checkpoint grow by each of them.
    """
    entries = dict(unlogged)
    for entry in more:
        before = entries.get(entry.queue)
        if before is not None:
            entry = UnloggedEntry(
                entry.queue,
                entry.reason,
                entry.time,
                min(before.first, entry.first),
                max(before.last, entry.last),
                before.record_count + entry.record_count,
                before.weight + entry.weight,
            )
        entries[entry.queue] = entry
    return entries
