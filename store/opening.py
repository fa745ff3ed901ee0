"""Opening a store as its owner: make it if it is new, recover it if it was not closed."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Literal, get_args

from store import upkeep
from store.check import check_store
from store.checkpoint import CHECKPOINT_NAMES, Checkpoint, encode_checkpoint
from store.checkpoints import Checkpoints
from store.checksum import CRC32C
from store.directory import Directory, FilePath, access_error, path_text
from store.errors import AccessError, CorruptionError, DiskFull
from store.files import Clock, Files
from store.frames import SEGMENT_HEADER_BYTES, SegmentHeader
from store.life import Status
from store.log import Log
from store.options import LogOptions
from store.osfiles import OsFiles, SystemClock
from store.quarantine import salvage
from store.recovery import Position, Recovered
from store.recovery import recover as read_store
from store.segment import segment_name
from store.segment_state import SegmentState
from store.state import State
from store.tail import Tail

logger = logging.getLogger("store")


Recover = Literal["refuse", "quarantine"]


def open_log(
    path: str | FilePath,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    options: LogOptions | None = None,
    recover: Recover = "refuse",
) -> Log:
    """Open the store at `path`, or make one there, and own it until it is closed.

    On return every confirmed record is there and everything found is durable. AlreadyOpen if it
    has an owner; CorruptionError or FormatError if it cannot be read, AccessError or
    DurabilityError if the disk refuses: then nothing was changed and no handle is left open.

    With `recover="quarantine"` a damaged store is opened with every record that is intact; what
    is not is copied aside and listed in `Log.quarantine`.
    """
    if recover not in get_args(Recover):
        raise ValueError(f"recover={recover!r} is none of {get_args(Recover)}")
    files = files or OsFiles()
    path = path_text(path)
    try:
        Directory.make(files, path)
        directory = Directory(files, path)
        try:
            return _open(directory, clock or SystemClock(), options or LogOptions(), recover)
        except BaseException:
            directory.close()
            raise
    except OSError as error:
        raise access_error(path, error) from error


def _open(directory: Directory, clock: Clock, options: LogOptions, recover: Recover) -> Log:
    directory.lock()
    # Now: an owner makes files, and would learn in the middle of a commit that it may not.
    directory.files.require_writable(directory.handle)
    quarantine = None
    try:
        recovered = read_store(directory, directory.names())
        if recovered is not None and not recovered.clean and _await_writes(directory, recovered):
            # What the kernel still wrote for an owner who was killed is there now.
            recovered = read_store(directory, directory.names())
        damaged = recovered is not None and not _is_sound(directory, clock, recover)
    except CorruptionError:
        if recover == "refuse":
            raise
        damaged = True
    if damaged:
        recovered, quarantine = salvage(directory, directory.names())
    if recovered is None:
        recovered = _create(directory, clock)
    end = recovered.end
    file = directory.open_segment(end.segment, recovered.store_id, write=True)
    try:
        log = Log(directory, clock, options, recovered, Tail(file, end.offset, options))
    except BaseException:
        file.close()
        raise
    log.quarantine = quarantine
    try:
        if not recovered.clean:
            _start_over(log, recovered)
        elif recovered.checkpoint_number == 1:
            # A store that is new: a full disk must find both copies there, with room in them.
            with log.sorting_errors():
                upkeep.write_checkpoint(log, clean=True)
        log.status = Status.OPEN
    except BaseException:
        log.release()
        raise
    return log


def _await_writes(directory: Directory, recovered: Recovered) -> bool:
    """Whether something may have been written since: the last segment's end is not what it was."""
    last = max(recovered.end.segment, *directory.names().segments)
    with suppress(OSError):
        return directory.files.await_writes(directory.handle, segment_name(last))
    return False


def _is_sound(directory: Directory, clock: Clock, recover: Recover) -> bool:
    """Only quarantine looks at what opening itself does not read."""
    if recover == "refuse":
        return True
    return check_store(directory.path, files=directory.files, clock=clock).sound


def _create(directory: Directory, clock: Clock) -> Recovered:
    """Make an empty store. Until its checkpoint is sound, the next opener makes it again."""
    directory.sync_parents()
    for name in CHECKPOINT_NAMES:
        directory.remove(name)
    # For good, before the segment is made again: a checkpoint without it would look like a loss.
    directory.sync()
    header = SegmentHeader(
        store_id=_ulid(clock),
        number=1,
        created_at=clock.wall(),
        first_sequence=1,
        previous_number=0,
        previous_length=0,
        previous_checksum=0,
        algorithm=CRC32C,
    )
    directory.create_segment(header).close()
    state = State()
    state.segments[1] = SegmentState(1, SEGMENT_HEADER_BYTES, 1, header.created_at)
    checkpoint = Checkpoint(
        number=1,
        clean=True,
        written_at=header.created_at // 1_000_000,
        segment=1,
        offset=SEGMENT_HEADER_BYTES,
        sequence=0,
        last_checksum=0,
        segments=state.segment_entries(),
        queues=[],
        states={},
        damage=[],
        unlogged=[],
    )
    checkpoints = Checkpoints(directory, 0, None)
    try:
        checkpoints.write(checkpoint.number, encode_checkpoint(checkpoint, header.store_id))
    finally:
        checkpoints.close()
    end = Position(1, SEGMENT_HEADER_BYTES, 0, 0)
    return Recovered(header.store_id, state, end, 1, CHECKPOINT_NAMES[0], True, 0, [])


def _ulid(clock: Clock) -> bytes:
    """A store's id: milliseconds since the epoch in 6 bytes, then 10 random ones."""
    return (clock.wall() // 1_000_000).to_bytes(6, "big") + clock.token(10)


def _start_over(log: Log, recovered: Recovered) -> None:
    """Go on after a crash: past every counter that was ever shown, in a segment of its own."""
    for queue in log.state.queues.values():
        log.state.skip_counters(queue, queue.genesis.reserved_upto)
    old = log.tail
    stays = old.empty and not recovered.torn_bytes
    try:
        with log.sorting_errors():
            if recovered.is_cut:
                # Before there is one of that number again, which a crash would leave to be taken
                # for the one that is lost.
                upkeep.write_checkpoint(log)
            if not stays:
                if not recovered.torn_bytes:
                    # The zeros ahead, which may be needed to get a new one.
                    old.filled = log.directory.files.size(old.file.handle)
                log.tail = upkeep.new_segment(log)
                upkeep.retire(log, old)
            upkeep.write_checkpoint(log)
    except (DiskFull, AccessError) as error:
        # A full disk must still drain: removals go into the checkpoint until there is space.
        logger.warning("%s: opened without space for a new segment: %s", log.path, error)
        if log.tail is old and not stays:
            old.closed = True
