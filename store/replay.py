"""Turning frames back into state: used by recovery, by readers and by the check."""

from __future__ import annotations

from store.blocks import (
    MOVED,
    Block,
    BlockHeader,
    LeaseBlock,
    RecordBlock,
    RemovedBlock,
    StateBlock,
    block_headers,
    decode_block,
    records_weight,
    state_weight,
)
from store.errors import DamageError
from store.frames import FLAG_SEAL
from store.genesis import Genesis, decode_genesis
from store.index import SegmentIndex
from store.segment import Frame
from store.state import QueueState, State


def apply_frame(state: State, segment: int, frame: Frame, index: SegmentIndex | None) -> list[str]:
    """Apply one frame and note its blocks in `index`; returns the queues that it touched.

    DamageError if a frame with sound checksums makes no sense: then a writer was wrong.
    """
    header, body = frame.header, frame.body
    place = state.segments[segment]
    place.length = frame.end
    if header.flags & FLAG_SEAL:
        return []
    try:
        entries = decode_genesis(body, header.genesis_bytes)
        names = [entry.name for entry in entries]
        holds_records = False
        for block_header in block_headers(body, header.block_count, header.genesis_bytes):
            block = decode_block(body, block_header, names)
            if isinstance(block, RecordBlock):
                holds_records = True
                _apply_records(state, segment, frame.offset, block_header, block, index)
            elif isinstance(block, RemovedBlock):
                queue = state.queue(block.queue)
                for first, last, weight in block.ranges:
                    state.remove(queue, first, last, weight)
            elif isinstance(block, LeaseBlock):
                _apply_leases(state.queue(block.queue), block)
            else:
                _apply_states(state, segment, frame.offset, block)
        for entry in entries:
            _apply_genesis(state, segment, entry)
    except DamageError as error:
        raise DamageError(frame.offset, f"frame {header.sequence}: {error.reason}") from None
    if holds_records:
        place.record_frame_bytes += header.frame_bytes
    return names


def _apply_records(
    state: State,
    segment: int,
    offset: int,
    header: BlockHeader,
    block: RecordBlock,
    index: SegmentIndex | None,
) -> None:
    queue = state.queue(block.queue)
    last = block.last
    if block.kind == MOVED:
        counters = block.counters()
        weights = [records_weight(block.record_bytes(i), 1) for i in range(block.count)]
        state.move(queue, segment, counters, weights)
    else:
        if block.first < queue.genesis.next_counter:
            raise DamageError(header.at, f"counter {block.first} of {block.queue!r} comes again")
        weight = records_weight(block.offsets[-1], block.count)
        state.put(queue, segment, block.first, block.count, weight, block.last_time)
    if index is not None:
        index.note(block.queue, header.kind, block.first, last, block.time, offset)


def _apply_leases(queue: QueueState, block: LeaseBlock) -> None:
    for counter, attempt in zip(block.counters, block.attempts, strict=True):
        if queue.is_live(counter):
            queue.attempts[counter] = attempt


def _apply_states(state: State, segment: int, offset: int, block: StateBlock) -> None:
    for name, value in block.entries:
        weight = state_weight(name, value)
        state.set_state(name, segment, offset, weight, value is not None)


def _apply_genesis(state: State, segment: int, entry: Genesis) -> None:
    queue = state.queue(entry.name)
    floor = queue.genesis.floor
    if entry.floor > floor:
        # Removals whose frames were reclaimed: only a scan without checkpoint meets them.
        state.remove(queue, floor + 1, entry.floor, 0)
    # Counters that this state never saw (skipped, or in a reclaimed segment) are not live. If
    # they are moved later, that brings them back.
    state.skip_counters(queue, entry.next_counter - 1)
    if queue.genesis.floor > entry.floor:
        queue.removed.add(entry.floor + 1, queue.genesis.floor)
    state.set_genesis(queue, entry, segment)
    queue.reserved_durable = max(queue.reserved_durable, entry.reserved_upto)


def frame_blocks(frame: Frame, queue: str | None = None) -> list[tuple[int, Block]]:
    """Blocks of a frame with their kinds; only those of one queue if it is named.

    Payloads that are compressed stay so: `readable` is for those who want them.

    DamageError, with the frame's place, if they do not decode.
    """
    header, body = frame.header, frame.body
    if header.flags & FLAG_SEAL:
        return []
    try:
        names = [entry.name for entry in decode_genesis(body, header.genesis_bytes)]
        if queue is not None and queue not in names:
            return []
        return [
            (block_header.kind, decode_block(body, block_header, names))
            for block_header in block_headers(body, header.block_count, header.genesis_bytes)
            if queue is None
            or (block_header.queue < len(names) and names[block_header.queue] == queue)
        ]
    except DamageError as error:
        raise DamageError(frame.offset, f"frame {header.sequence}: {error.reason}") from None


def readable(frame: Frame, block: RecordBlock) -> RecordBlock:
    """A frame's block with its payloads decompressed; DamageError with the frame's place."""
    try:
        return block.decompressed()
    except DamageError as error:
        sequence = frame.header.sequence
        raise DamageError(frame.offset, f"frame {sequence}: {error.reason}") from None


def extend_index(index: SegmentIndex, frame: Frame) -> None:
    """Note the record blocks of a frame without applying them."""
    for kind, block in frame_blocks(frame):
        if isinstance(block, RecordBlock):
            index.note(block.queue, kind, block.first, block.last, block.time, frame.offset)
    index.length = frame.end
