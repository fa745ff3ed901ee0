"""Commits in two steps, for a caller that writes and syncs a frame without waiting for it.

`begin` makes the frame and keeps the log for it. Then the caller has it written and synced at its
place in the segment, by whatever means, and says so with `end`; or `fail`; or `write`, which
does it the usual way. Only what is ordinary is begun: a small frame that follows durable ones and
for which there are zeros ahead. What is written and what the state becomes is the same as in one
step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from store import drafted, plain
from store.directory import sync_error
from store.draft import Draft
from store.errors import DurabilityError, FifoqError
from store.frames import frame_bytes
from store.genesis import encode_genesis
from store.life import FAILED, OPEN
from store.plain import PlainPut
from store.segment import SegmentFile
from store.upkeep import rotation_due

if TYPE_CHECKING:
    from store.log import Log

BEGUN_BYTES_MAX: Final = 256 << 10
"""Larger frames are committed in one step: copying them would hold up whoever begins them."""


class Begun(msgspec.Struct, eq=False):
    """A frame that belongs at `offset` of the segment at the tail; its log waits for the end."""

    log: Log
    draft: Draft | PlainPut
    frame: bytearray
    checksum: int
    offset: int

    @property
    def file(self) -> SegmentFile:
        """The segment at the tail, where the frame belongs."""
        return self.log.tail.file

    @property
    def filled(self) -> int:
        """Up to where the segment holds frames and zeros, all of them durable."""
        return self.log.tail.filled

    def end(self, seconds: float) -> None:
        """The frame is durable at its place; that took so long."""
        log = self.log
        try:
            log.tail.advance(len(self.frame))
            self._note()
            log.note_sync(seconds)
            if log.status is FAILED:
                log.status = OPEN
        finally:
            self._give_turn_back()

    def fail(self, error: OSError) -> DurabilityError:
        """Writing or syncing it failed: the log has failed. Returns what to tell."""
        if self.log.status is OPEN:
            self.log.fail()
        self._give_turn_back()
        failure = sync_error(self.log.tail.name, error)
        failure.__cause__ = error
        return failure

    def write(self) -> None:
        """Write and sync the frame here and now. Errors are those of `Log.commit`."""
        log, draft = self.log, self.draft
        try:
            log.status = OPEN
            if isinstance(draft, PlainPut):
                plain.append(log, draft)
            else:
                drafted.append(log, draft, self.frame, self.checksum)
                draft.committed = True
            log.sync_tail()
        finally:
            self._give_turn_back()

    def _give_turn_back(self) -> None:
        # Not appended: whoever is interrupted while a commit ends may end it a second time.
        self.log.turn[:] = (None,)

    def _note(self) -> None:
        draft = self.draft
        if isinstance(draft, PlainPut):
            plain.note(self.log, draft)
        else:
            drafted.note(self.log, draft, self.offset, len(self.frame), self.checksum)
            draft.committed = True


def begin(log: Log, draft: Draft | PlainPut) -> Begun | None:
    """Make the draft's frame; from here on the log counts as failed, until it is said otherwise.

    None if it must be committed in one step. Touches no file.
    """
    if log.status is not OPEN or log.tail.dirty:
        # The caller's sync covers its frame alone, and none of the frames and zeros before it.
        return None
    try:
        log.turn.pop()
    except IndexError:
        return None
    begun = None
    try:
        if isinstance(draft, PlainPut):
            begun = _begin_put(log, draft)
        else:
            begun = _begin_draft(log, draft)
        return begun
    finally:
        if begun is None:
            log.turn.append(None)
        else:
            log.status = FAILED


def _begin_put(log: Log, put: PlainPut) -> Begun | None:
    if (
        len(put.frame) > BEGUN_BYTES_MAX
        or not plain.is_current(log, put)
        or not log.tail.has_room(plain.room_for(log, put))
    ):
        return None
    return Begun(log, put, put.frame, put.checksum, put.offset)


def _begin_draft(log: Log, draft: Draft) -> Begun | None:
    if (
        draft.body_bytes > BEGUN_BYTES_MAX // 2
        or draft.compresses
        or log.state.unlogged
        or (draft.growth and log.needed + draft.growth > log.held)
        or (draft.holds_records and log.needed > log.held)
    ):
        return None
    try:
        draft.check_current(log.state)
    except FifoqError:
        # Whoever commits it is told.
        return None
    for plan in draft.plans.values():
        plan.finish()
    genesis = encode_genesis([plan.genesis for plan in draft.plans.values()])
    size = frame_bytes(draft.body_bytes + len(genesis))
    if size > BEGUN_BYTES_MAX or rotation_due(log, size, draft.now) or not log.tail.has_room(size):
        return None
    frame, checksum = drafted.encode(log, draft, genesis)
    begun = Begun(log, draft, frame, checksum, log.tail.length)
    log.needed += draft.growth
    return begun
