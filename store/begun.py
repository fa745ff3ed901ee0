"""Commits in two steps, for a caller that writes a frame without waiting for it.

`begin` makes the frame and keeps the log for it. Then the caller has it written, and synced if it
is to be, at its place in the segment, by whatever means, and says so with `end`; or `fail`; or
`write`, which does it the usual way. Who waits for the disk may `note` it meanwhile.
Only what is ordinary is begun: a frame of no great size for which there are zeros ahead and, if it
is to be synced, that follows durable ones. What is written and what the state becomes is the same
as in one step.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import msgspec

from store import drafted, plain
from store.directory import sync_error, write_all
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
else:
    # It imports this module; `help` and `inspect.signature` want to know what it is.
    Log = object

BEGUN_BYTES_MAX: Final = 256 << 10
"""Larger frames that are synced go in one step: copying them would hold up whoever begins them."""
UNSYNCED_BYTES_MAX: Final = 1 << 20
"""The same for those that are not, which are not copied but for being made."""


class Begun(msgspec.Struct, eq=False):
    """A frame that belongs at `offset` of the segment at the tail; its log waits for the end."""

    log: Log
    draft: Draft | PlainPut
    frame: bytearray
    checksum: int
    offset: int
    sync: bool
    """Whether it is to be durable at its end, or only handed to the kernel."""
    file: SegmentFile
    """The segment at the tail, where the frame belongs."""
    filled: int
    """Up to where the segment holds frames and zeros, durable if the frame is to be synced."""
    noted: bool | None = False
    """Whether the state says what the frame says; None while that is being done."""
    stumbled: BaseException | None = None
    """What came between."""

    def note(self) -> None:
        """Let the state say what the frame says, while somebody writes it at its place.

        Its end is the sooner done. From here on the log can not refuse it: it is written or the log
        has failed. OSError if an earlier try was interrupted: then nobody knows the state.
        """
        if self.noted is None:
            raise InterruptedError(
                errno.EINTR, "interrupted while a frame was noted"
            ) from self.stumbled
        self.noted = None
        try:
            self._note()
        except BaseException as error:
            self.stumbled = error
            raise
        self.noted = True

    def _note(self) -> None:
        tail, draft = self.log.tail, self.draft
        if not self.sync:
            tail.dirty = True
        tail.advance(len(self.frame))
        if isinstance(draft, PlainPut):
            plain.note(self.log, draft)
        else:
            drafted.note(self.log, draft, self.offset, len(self.frame), self.checksum)
            draft.committed = True

    def end(self, seconds: float) -> None:
        """The frame lies at its place, durable if it was to be; that took so long."""
        log = self.log
        try:
            if not self.noted:
                self.note()
            if self.sync:
                log.note_sync(seconds)
            if log.status is FAILED:
                log.status = OPEN
        finally:
            self.log.free_turn()

    def fail(self, error: OSError) -> DurabilityError:
        """Writing or syncing it failed: the log has failed. Returns what to tell."""
        if self.log.status is OPEN:
            self.log.fail()
        self.log.free_turn()
        failure = sync_error(self.log.tail.name, error)
        failure.__cause__ = error
        return failure

    def write(self) -> None:
        """Write the frame here and now, and sync it if it is to be. Errors: as `Log.commit`."""
        log = self.log
        try:
            if self.noted is False:
                log.status = OPEN
                self._append()
            else:
                self._write_noted()
                if self.sync:
                    log.sync_tail()
                log.status = OPEN
        finally:
            self.log.free_turn()

    def _append(self) -> None:
        log, draft = self.log, self.draft
        if isinstance(draft, PlainPut):
            plain.append(log, draft, sync=self.sync)
        else:
            drafted.append(log, draft, self.frame, self.checksum, sync=self.sync)
            draft.committed = True

    def _write_noted(self) -> None:
        """Write the frame where the state says that it lies: a disk that refuses it has failed."""
        file, tail = self.file, self.log.tail
        try:
            if self.noted is None:
                self.note()
            write_all(file.files, file.handle, self.frame, self.offset)
        except OSError as error:
            raise sync_error(tail.name, error) from error
        tail.dirty = True


def begin(log: Log, draft: Draft | PlainPut, *, sync: bool) -> Begun | None:
    """Make the draft's frame; from here on the log counts as failed, until it is said otherwise.

    None if it must be committed in one step. Touches no file.
    """
    if log.status is not OPEN:
        return None
    if sync and log.tail.dirty:
        # The caller's sync covers its frame alone, and none of the frames and zeros before it.
        return None
    try:
        log.turn.pop()
    except IndexError:
        return None
    begun, most = None, BEGUN_BYTES_MAX if sync else UNSYNCED_BYTES_MAX
    try:
        if isinstance(draft, PlainPut):
            begun = _begin_put(log, draft, sync, most)
        else:
            begun = _begin_draft(log, draft, sync, most)
        return begun
    finally:
        if begun is None:
            log.turn.append(None)
        else:
            log.status = FAILED


def _begin_put(log: Log, put: PlainPut, sync: bool, most: int) -> Begun | None:
    tail = log.tail
    if (
        len(put.frame) > most
        or not plain.is_current(log, put)
        or not tail.has_room(plain.room_for(log, put))
    ):
        return None
    return Begun(log, put, put.frame, put.checksum, put.offset, sync, tail.file, tail.filled)


def _begin_draft(log: Log, draft: Draft, sync: bool, most: int) -> Begun | None:
    if (
        draft.body_bytes > most // 2
        or not (sync or drafted.counters_are_covered(draft))
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
    if size > most or rotation_due(log, size, draft.now) or not log.tail.has_room(size):
        return None
    frame, checksum = drafted.encode(log, draft, genesis)
    tail = log.tail
    begun = Begun(log, draft, frame, checksum, tail.length, sync, tail.file, tail.filled)
    log.needed += draft.growth
    return begun
