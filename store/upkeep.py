"""Upkeep of a log: rotation, checkpoints, reclaiming dead segments, compacting sparse ones.

Order is everything here. A segment is unlinked only after a checkpoint that does not need it is
durable; a new segment takes frames only after its name is durable and a checkpoint knows it.
OSErrors pass through; the log sorts them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from store import keeping
from store.blocks import COUNTERS, Column, RecordBlock
from store.checkpoint import Checkpoint, encode_checkpoint, removed_bytes
from store.checksum import CRC32C
from store.directory import PASSING_ERRNOS, SPACE_ERRNOS
from store.draft import Draft
from store.errors import AccessError, CorruptionError, DiskFull, FifoqError, FormatError
from store.frames import SEGMENT_HEADER_BYTES, SegmentHeader
from store.growth import QUEUE_HELD, STATE_HELD
from store.segment import index_name, segment_name
from store.segment_state import SegmentState
from store.state import QueueState
from store.tail import Tail

if TYPE_CHECKING:
    from store.log import Log

logger = logging.getLogger("store")

CHECKPOINT_RATIO: Final = 4
"""A checkpoint is due only after this many times its own size of log."""
CARRY_BYTES: Final = 4 << 20
"""About how much of a segment's newest entries one commit carries forward."""
UNSYNCED_FACTOR: Final = 32
"""How much longer a checkpoint is put off while commits are not synced."""
DIGITS_HELD: Final = 256
"""Held for numbers of the checkpoint itself and of its segments."""
_NANOSECONDS: Final = 1_000_000_000


# Rotation.


def rotation_due(log: Log, size: int, now: int) -> bool:
    """Whether a frame of `size` bytes, begun at `now`, belongs into a new segment."""
    tail, options = log.tail, log.options
    if tail.closed:
        return True
    place = log.state.segments[tail.file.number]
    is_full = (
        tail.length + size > options.segment_bytes
        or place.record_count >= options.segment_records
        or now - place.created_at > options.segment_seconds * _NANOSECONDS
    )
    return is_full and not tail.empty


def rotate(log: Log) -> None:
    """Go on in a new segment. The old one is durable first and keeps its reserve until then."""
    if log.tail.empty and not log.tail.closed:
        return
    log.sync_tail()
    old = log.tail
    # If anything odd happens, perhaps there is one which says where the old one ends. Then nothing
    # may follow there, so the log has failed until it is certain that it has not.
    status = log.status
    log.fail()
    try:
        if drained(log):
            # The reserve is for removals; with nothing left to remove it may go first.
            old.trim()
            log.sync_tail()
        log.tail = new_segment(log)
    except OSError:
        log.status = status
        raise
    except DiskFull:
        log.status = status
        raise
    log.status = status
    log.state.emptied.add(old.file.number)
    retire(log, old)
    write_checkpoint(log)
    # It knows one segment more, and soon a span of each queue.
    log.recount_room()


def drained(log: Log) -> bool:
    """Whether no queue has a live record."""
    return not any(segment.live_count for segment in log.state.segments.values())


def new_segment(log: Log) -> Tail:
    """A segment that continues the log, with its reserve; on any failure there is none."""
    header = SegmentHeader(
        store_id=log.store_id,
        number=log.tail.file.number + 1,
        created_at=log.clock.wall(),
        first_sequence=log.sequence + 1,
        previous_number=log.tail.file.number,
        previous_length=log.tail.length,
        previous_checksum=log.checksum,
        algorithm=CRC32C,
    )
    # After a quarantine the number may be that of a segment that was lost, not its index.
    log.directory.remove(index_name(header.number))
    file = log.directory.create_segment(header)
    try:
        tail = Tail(file, SEGMENT_HEADER_BYTES, log.options)
        if not tail.make_room(0, reserve=False) and not drained(log):
            raise DiskFull(f"{log.path}: no space for another segment. Nothing was changed.")
        log.state.segments[header.number] = SegmentState(
            header.number, SEGMENT_HEADER_BYTES, header.first_sequence, header.created_at
        )
        log.cache.start_tail(header.number)
        if header.number in log.doomed:
            # A leftover of that number was replaced just now: it must not be unlinked any more.
            log.doomed.remove(header.number)
    except BaseException:
        log.state.segments.pop(header.number, None)
        file.close()
        log.directory.uncreate(segment_name(header.number))
        raise
    return tail


def retire(log: Log, tail: Tail) -> None:
    """Cut a segment that takes no more frames to its length, and write its index."""
    try:
        tail.trim()
        tail.sync()
        write_index(log, tail.file.number)
    finally:
        tail.file.close()


def write_index(log: Log, number: int) -> None:
    """Write a segment's index if it is at hand; without one it is built on the next use."""
    index = log.cache.end_tail(number)
    if index is None:
        return
    try:
        log.directory.write_index(index, number, log.store_id)
    except OSError as error:
        if error.errno not in SPACE_ERRNOS | PASSING_ERRNOS:
            raise
        logger.warning("%s: segment %d has no index: %s", log.path, number, error)


# Checkpoints.


def write_checkpoint(log: Log, *, clean: bool = False, growth: int = 0) -> None:
    """Make the log durable and write its state; then unlink what nothing needs any more.

    Room is held for all removals, `growth` more bytes of it if so much is to be added.
    """
    log.sync_tail()
    checkpoint = _snapshot(log, clean=clean)
    data = encode_checkpoint(checkpoint, log.store_id)
    needed = _needed(log, checkpoint, len(data)) + _fixed(log) + growth
    log.checkpoints.write(checkpoint.number, data, needed=needed)
    log.since_checkpoint = 0
    logger.debug("checkpoint number=%d sequence=%d", checkpoint.number, checkpoint.sequence)
    while log.doomed:
        number = log.doomed[-1]
        log.cache.forget(number)
        log.directory.remove(segment_name(number))
        log.directory.remove(index_name(number))
        log.doomed.pop()
        log.retry_rotation_at = 0
        logger.debug("unlink segment=%d", number)


def checkpoint_bytes(log: Log) -> int:
    """What a checkpoint written now would need."""
    return len(encode_checkpoint(_snapshot(log, clean=False), log.store_id))


def needed_bytes(log: Log, growth: int = 0) -> int:
    """What a checkpoint may need after removals in any order.

    With `growth`, what must be held before so much is added, so that it is enough for ever.
    """
    checkpoint = _snapshot(log, clean=False)
    needed = _needed(log, checkpoint, len(encode_checkpoint(checkpoint, log.store_id)))
    return needed + _fixed(log) + growth if growth else needed


def _needed(log: Log, checkpoint: Checkpoint, size: int) -> int:
    removed_max = sum(queue.removed_bytes_max() for queue in log.state.queues.values())
    return size - removed_bytes(checkpoint) + removed_max


def _fixed(log: Log) -> int:
    """For numbers that get longer, and the like."""
    return DIGITS_HELD + QUEUE_HELD * len(log.state.queues) + STATE_HELD * len(log.state.states)


def _snapshot(log: Log, *, clean: bool) -> Checkpoint:
    state = log.state
    return Checkpoint(
        number=log.checkpoints.number + 1,
        clean=clean,
        written_at=log.clock.wall() // 1_000_000,
        segment=log.tail.file.number,
        offset=log.tail.length,
        sequence=log.sequence,
        last_checksum=log.checksum,
        segments=state.segment_entries(),
        queues=[queue.entry() for queue in state.queues.values() if queue.genesis_segment],
        states=state.states,
        damage=state.damage,
        unlogged=list(state.unlogged.values()),
    )


# Reclaiming.


def housework_due(log: Log) -> bool:
    """Whether a segment may be dead or a checkpoint is due. Asked after every commit."""
    emptied = log.state.emptied
    if emptied:
        # An empty queue empties the tail with every take; it counts once it is rotated.
        emptied.discard(log.tail.file.number)
        if emptied:
            return True
    interval = max(log.options.checkpoint_bytes, CHECKPOINT_RATIO * log.checkpoints.size)
    # A checkpoint needs a synced log; while nobody syncs, it is not worth a sync of its own.
    return log.since_checkpoint >= interval * (UNSYNCED_FACTOR if log.tail.dirty else 1)


def keep_house(log: Log) -> None:
    """Reclaim what is dead and write a checkpoint if that, or the interval, asks for one."""
    dead = keeping.unneeded(log)
    log.state.emptied.clear()
    rest = _forget_dead(log, dead)
    if log.doomed or housework_due(log):
        # First what needs no space, since it gives some.
        write_checkpoint(log)
    failure: FifoqError | None = None
    for number in rest:
        try:
            if log.state.segments[number].sparse:
                _carry_meta(log, number)
        except CorruptionError as error:
            log.spoiled.add(number)
            failure = error
        except (DiskFull, AccessError) as error:
            log.state.emptied.add(number)
            failure = error
    _forget_dead(log, rest)
    if log.doomed:
        write_checkpoint(log)
    if failure is not None:
        raise failure


def look_over(log: Log, queue: QueueState) -> None:
    """The queue wants less kept, perhaps: the next upkeep is to look at its segments."""
    segments = log.state.segments
    free = {span.segment for span in queue.spans if not segments[span.segment].live_count}
    log.state.emptied.update(free - {log.tail.file.number})


def _forget_dead(log: Log, numbers: list[int]) -> list[int]:
    """Let go of the segments that nothing needs; returns the others."""
    rest = []
    for number in numbers:
        if log.state.segments[number].dead:
            log.state.forget_segment(number)
            log.doomed.append(number)
        else:
            rest.append(number)
    return rest


def _carry_meta(log: Log, number: int) -> None:
    """Write newest genesis entries, configurations and states of a segment again at the tail."""
    while (segment := log.state.segments.get(number)) is not None and segment.meta_count:
        draft = log.new_draft()
        for queue in log.state.queues.values():
            if draft.size >= CARRY_BYTES:
                break
            if queue.configuration is not None and queue.configuration_segment == number:
                draft.configure(queue, queue.configuration)
            elif queue.genesis_segment == number:
                draft.touch(queue)
        names = _states_of(log, number, CARRY_BYTES - draft.size)
        values = log.lookup.state_values(names)
        draft.set_states([(name, values.get(name)) for name in names])
        # It may use the reserve: the segment that goes gives back more than this takes.
        draft.only_drains = draft.frees_segment = True
        log.commit_frame(draft, sync=False)


def _states_of(log: Log, number: int, budget: int) -> list[str]:
    """Names whose newest state is in a segment, until the budget is spent."""
    names = []
    for name, entry in log.state.states.items():
        if budget <= 0:
            break
        if entry.segment == number:
            names.append(name)
            budget -= entry.weight
    return names


# Compaction.


def compact(log: Log, max_bytes: int) -> bool:
    """One bounded step; returns whether a sparse segment is left."""
    # What a queue no longer retains is dead although nobody emptied it; the next commit reclaims.
    log.state.emptied.update(n for n, segment in log.state.segments.items() if segment.dead)
    if _sparsest(log) is None or not keeping.may_reclaim(log):
        return False
    number = _sparsest(log)
    if number is None:
        return False
    try:
        if log.state.segments[number].live_count:
            draft = log.new_draft()
            _move_records(log, draft, number, max_bytes)
            log.commit_frame(draft, sync=False)
        else:
            _carry_meta(log, number)
    except (CorruptionError, FormatError):
        # The others must not wait for it. The latter: compressed, and not to be read here.
        log.spoiled.add(number)
        raise
    return _sparsest(log) is not None


def _sparsest(log: Log) -> int | None:
    excluded = keeping.kept_segments(log) | log.spoiled | {log.tail.file.number}
    candidates = [
        segment
        for number, segment in log.state.segments.items()
        if segment.sparse and not segment.dead and number not in excluded
    ]
    best = min(candidates, key=lambda segment: segment.live_bytes / segment.length, default=None)
    return None if best is None else best.number


def _move_records(log: Log, draft: Draft, number: int, budget: int) -> None:
    for queue in log.state.queues.values():
        for span in queue.spans:
            if span.segment != number or not span.live:
                continue
            blocks = log.lookup.live_blocks(queue, span.first, span.last)
            for batch in _batches(blocks, budget):
                budget -= sum(block.move_bytes(0, block.count) for block in batch)
                _move(draft, queue, batch)
            if budget <= 0:
                return


def _batches(blocks: Iterator[RecordBlock], budget: int) -> Iterator[list[RecordBlock]]:
    """Records, of which there are some, until the budget is spent; together what may be one block.

    A block for each would make reading them again cost more than the records do.
    """
    batch: list[RecordBlock] = []
    for block in blocks:
        stop = size = 0
        while stop < block.count and (stop == 0 or size < budget):
            size += block.move_bytes(stop, stop + 1)
            stop += 1
        if batch and not _continues(batch[-1], block):
            yield batch
            batch = []
        batch.append(block.slice(0, stop))
        budget -= size
        if budget <= 0:
            break
    yield batch


def _continues(before: RecordBlock, block: RecordBlock) -> bool:
    same = before.columns.keys() | {COUNTERS} == block.columns.keys() | {COUNTERS}
    return same and before.last_time <= block.first_time


def _move(draft: Draft, queue: QueueState, batch: list[RecordBlock]) -> None:
    counters = [counter for block in batch for counter in block.counters()]
    times = [time for block in batch for time in block.times()]
    payloads = [payload for block in batch for payload in block.payloads()]
    columns = {
        bit: cast("Column", [value for block in batch for value in block.columns[bit]])
        for bit in batch[0].columns
        if bit != COUNTERS
    }
    draft.move(queue, counters, times, payloads, columns)
    attempted = [counter for counter in counters if counter in queue.attempts]
    if attempted:
        draft.lease(queue, attempted, [queue.attempts[c] for c in attempted], 0)


# Closing.


def finish(log: Log) -> None:
    """Leave a clean end: everything durable and witnessed, nothing to scan on the next open."""
    log.sync_tail()
    log.write_seal()
    log.tail.trim()
    log.sync_tail()
    for queue in log.state.queues.values():
        # Nobody can have seen a counter that is not durable by now.
        queue.genesis.reserved_upto = queue.reserved_durable = 0
    try:
        write_index(log, log.tail.file.number)
        write_checkpoint(log, clean=True)
    except OSError as error:
        if error.errno not in SPACE_ERRNOS | PASSING_ERRNOS:
            raise
        logger.warning("%s: closed without a clean checkpoint: %s", log.path, error)
