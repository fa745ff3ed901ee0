"""Compaction that somebody asks for: everything at once, in bounded steps between commits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from store import CorruptionError, Log

if TYPE_CHECKING:
    from fifoq.committer import Committer


class Compacted(msgspec.Struct, frozen=True):
    """What `Store.compact` did: segments that are gone, and bytes less on disk."""

    segments_removed: int
    bytes_freed: int


async def compact(committer: Committer) -> Compacted:
    """See Store.compact."""
    committer.require_usable()
    removed = freed = 0
    damage: CorruptionError | None = None
    more, begin = True, True
    while more:
        committer.require_usable()
        step = cast(_Step, await committer.call(partial(_step, begin)))
        begin = False
        removed, freed, more = removed + step.removed, freed + step.freed, step.more
        damage = damage or step.damage
    if damage is not None:
        raise damage
    return Compacted(removed, freed)


class _Step(msgspec.Struct):
    removed: int
    freed: int
    more: bool
    damage: CorruptionError | None = None


def _step(begin: bool, log: Log) -> _Step:
    before = {number: segment.length for number, segment in log.state.segments.items()}
    if begin and log.state.segments[log.tail.file.number].sparse:
        # What is dead in the newest segment is to go as well.
        log.rotate_or_stay()
    damage = None
    try:
        more = log.compact()
    except CorruptionError as error:
        # That segment stays as it is from now on, and the others must not wait for it.
        damage, more = error, True
    after = {number: segment.length for number, segment in log.state.segments.items()}
    gone = before.keys() - after.keys()
    return _Step(len(gone), sum(before.values()) - sum(after.values()), more, damage)
