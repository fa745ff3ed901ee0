"""Commits of drafts: whatever a frame may hold, and what to do when there is no room for it.

Plain puts, nearly all commits under load, have a way of their own in `store.plain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store import upkeep
from store.directory import sync_error
from store.draft import Draft
from store.errors import DiskFull
from store.frames import frame_bytes
from store.genesis import encode_genesis
from store.keys import COUNTER_MAX, RESERVED_COUNTERS
from store.life import FAILED
from store.plan import Plan
from store.repeats import joined

if TYPE_CHECKING:
    from store.log import Log


def commit(log: Log, draft: Draft, *, sync: bool) -> None:
    """Write the draft as one frame, or as a checkpoint. Errors are those of `Log.commit`."""
    draft.check_current(log.state)
    draft.compress()
    if not sync:
        sync = _cover_counters(draft)
    if log.state.unlogged:
        _repeat_removals(log, draft)
    for plan in draft.plans.values():
        plan.finish()
    genesis = encode_genesis([plan.genesis for plan in draft.plans.values()])
    size = frame_bytes(draft.body_bytes + len(genesis))
    _rotate_if_due(log, draft, size)
    room = log.make_room(size, reserve=draft.only_drains, last=draft.frees_segment)
    if not room and not draft.only_removes and upkeep.drained(log):
        # What fills the disk may be our own: records in the tail that were all taken.
        log.rotate_or_stay()
        log.do_housework()
        room = log.make_room(size, reserve=draft.only_drains, last=draft.frees_segment)
    if room:
        if draft.growth or (draft.holds_records and log.needed > log.held):
            _hold_for(log, max(draft.growth, 1))
        append(log, draft, *encode(log, draft, genesis), sync=sync)
    elif not draft.only_removes:
        raise DiskFull(
            f"{log.path}: no space for a frame of {size} bytes. Nothing of it was stored. "
            f"Takes and acks still work; free some space and try again."
        )
    else:
        _commit_in_place(log, draft)
    draft.committed = True


def _rotate_if_due(log: Log, draft: Draft, size: int) -> None:
    if upkeep.rotation_due(log, size, draft.now) and (
        log.sequence >= log.retry_rotation_at or not draft.only_removes
    ):
        log.rotate_or_stay()


def _repeat_removals(log: Log, draft: Draft) -> None:
    """Let the commit repeat removals that only checkpoints hold, if there is space for them."""
    repeats = draft.unrepeated()
    size = frame_bytes(draft.size + sum(repeat.size for repeat in repeats))
    _rotate_if_due(log, draft, size)
    if log.make_room(size, reserve=False):
        draft.repeat(repeats)


def _hold_for(log: Log, growth: int) -> None:
    """See to it that checkpoints have room for whatever is removed after the commit.

    DiskFull: there is no space for that, and nothing may be added that could not be removed.
    """
    log.needed += growth
    if log.needed <= log.held:
        return
    with log.sorting_errors():
        log.held = log.checkpoints.room()
        log.needed = upkeep.needed_bytes(log, growth)
        if log.needed > log.held:
            upkeep.write_checkpoint(log, growth=growth)
            upkeep.write_checkpoint(log, growth=growth)
            log.held = log.checkpoints.room()
    if log.needed > log.held:
        log.needed = log.held
        raise DiskFull(
            f"{log.path}: no space to hold for the removal of what would be added. Nothing of "
            f"it was stored. Takes and acks still work; free some space and try again."
        )


def _cover_counters(draft: Draft) -> bool:
    """Reserve counters ahead where a commit without a sync would show uncovered ones."""
    uncovered = [plan for plan in draft.plans.values() if not _is_covered(plan)]
    for plan in uncovered:
        shown = plan.genesis.next_counter
        plan.genesis.reserved_upto = min(shown + RESERVED_COUNTERS, COUNTER_MAX)
    return bool(uncovered)


def counters_are_covered(draft: Draft) -> bool:
    """Whether the commit may go without a sync: it shows no counter that could be given again."""
    return all(map(_is_covered, draft.plans.values()))


def _is_covered(plan: Plan) -> bool:
    return not plan.puts or plan.genesis.next_counter - 1 <= plan.queue.reserved_durable


def append(log: Log, draft: Draft, frame: bytearray, checksum: int, *, sync: bool) -> None:
    """Write the frame, for which there is room, note it, and sync it if it is to be."""
    status = log.status
    offset = log.write(frame)
    note(log, draft, offset, len(frame), checksum)
    if sync:
        log.sync_tail()
    log.status = status


def encode(log: Log, draft: Draft, genesis: bytes) -> tuple[bytearray, int]:
    """The draft's frame for the end of the log, and its checksum."""
    frame, checksum = log.encode(
        draft.parts, genesis, draft.block_count, log.sequence + 1, log.checksum
    )
    # Before it is written: a payload that is not as long as its draft was told would hide
    # everything behind it.
    assert len(frame) == frame_bytes(draft.body_bytes + len(genesis))
    return frame, checksum


def note(log: Log, draft: Draft, offset: int, size: int, checksum: int) -> None:
    """The frame was appended: let the state say what it says."""
    number = log.tail.file.number
    index = log.cache.tail_index(number)
    draft.apply(number, offset, index)
    if draft.holds_records:
        log.state.segments[number].record_frame_bytes += size
    for plan in draft.plans.values():
        log.covering.add(plan.queue)
    log.note_frame(index, size, checksum)


def _commit_in_place(log: Log, draft: Draft) -> None:
    """Commit removals on a full disk by overwriting a checkpoint copy, which needs no space."""
    with log.sorting_errors():
        room = log.checkpoints.room()
    if not _fits_in_place(log, draft, room):
        raise DiskFull(
            f"{log.path}: the disk is full, and so is the space held for removals. Nothing "
            f"was changed. Free some space and try again."
        )
    unlogged = joined(log.state.unlogged, draft.removals())
    status, log.status = log.status, FAILED
    draft.apply(log.tail.file.number, log.tail.length, None)
    log.state.unlogged = unlogged
    try:
        # Both copies: no frame holds the removal, so one bad sector must not undo it.
        upkeep.write_checkpoint(log)
        upkeep.write_checkpoint(log)
    except OSError as error:
        raise sync_error(log.path, error) from error
    log.status = status


def _fits_in_place(log: Log, draft: Draft, room: int) -> bool:
    """Whether removals fit into a checkpoint, which is certain if room for them was held.

    Leases may use only what removals can never need.
    """
    if upkeep.needed_bytes(log, draft.growth) <= room:
        return True
    # No room was held, perhaps since the store was full already when it came here.
    growth = draft.removal_growth()
    return not draft.growth and upkeep.checkpoint_bytes(log) + growth <= room
