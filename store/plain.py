"""Plain puts: the commit of one queue's next records, without a draft.

Nearly every commit under load is this one thing, and a draft is made for all the others. What is
written and what the state becomes is the same, byte for byte; only the zeros ahead may come
earlier. Whatever is out of the ordinary (a gap in the counters, a new segment, no room, removals to
repeat, compression) is left to a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from store.blocks import RECORDS, records_weight
from store.checksum import Buffer
from store.encoding import block_bytes, encode_records
from store.errors import ItemTooLarge, StaleDraft
from store.frames import BODY_BYTES_MAX, encode_frame, frame_bytes
from store.genesis import GENESIS_BYTES_MAX, Genesis, encode_genesis
from store.given import UNENCODABLE, clamped_runs
from store.packing import put_growth
from store.plan import resize
from store.state import QueueState
from store.upkeep import rotation_due

if TYPE_CHECKING:
    from store.log import Log

Marks = tuple[int, int, int, int]
"""High water mark, its time, low water mark, its time."""


ROOM_SHARE: Final = 8
"""What is left of the zeros ahead when more are written: one part in so many."""


class PlainPut(msgspec.Struct, frozen=True, eq=False):
    """One frame of one queue's next records, ready to be written at the end of the log."""

    queue: QueueState
    genesis: Genesis
    first: int
    record_count: int
    weight: int
    time: int
    last_time: int
    growth: int
    frame: bytearray
    checksum: int
    sequence: int
    offset: int


def prepare(
    log: Log,
    queue: QueueState,
    payloads: Sequence[Buffer],
    *,
    first: int,
    time_runs: Sequence[tuple[int, int]],
    item_bytes: int | None = None,
    marks: Marks | None = None,
    now: int,
    sync: bool,
) -> PlainPut | None:
    """The frame of the queue's next records; None if a draft must do it. Touches no file."""
    genesis, state = queue.genesis, log.state
    count = len(payloads)
    last = first + count - 1
    if (
        first != genesis.next_counter
        or not genesis.next_counter <= last <= queue.plain_upto
        or not (sync or last <= queue.reserved_durable)
        or type(payloads) is not list
        or state.unlogged
        or queue.removed
        or not queue.genesis_segment
        or state.queues.get(queue.name) is not queue
    ):
        return None
    time = genesis.last_put_time
    if len(time_runs) > 1 or time_runs[0][1] < time:
        time_runs = clamped_runs(time_runs, time, count)
    time, last_time = time_runs[0][1], time_runs[-1][1]
    try:
        if item_bytes is None:
            lengths = list(map(len, payloads))
            if lengths.count(lengths[0]) == count:
                item_bytes = lengths[0]
        parts, payload_bytes = encode_records(
            payloads, queue=0, first=first, time=time, time_runs=time_runs, item_bytes=item_bytes
        )
    except (*UNENCODABLE, ItemTooLarge):
        return None
    after = genesis.__copy__()
    after.next_counter = last + 1
    after.queue_bytes += payload_bytes
    after.total_put_count += count
    after.last_put_time = last_time
    if marks is None:
        resize(after, count, now)
    else:
        after.queue_size += count
        high, after.high_water_time, low, after.low_water_time = marks
        after.high_water_mark, after.low_water_mark = high, low
    entries = encode_genesis([after])
    block = block_bytes(parts)
    size = frame_bytes(block + len(entries))
    growth = put_growth(genesis.queue_size, genesis.floor, first, count)
    if (
        block + GENESIS_BYTES_MAX > BODY_BYTES_MAX
        or log.needed + growth > log.held
        or rotation_due(log, size, now)
        or not log.tail.has_room(size)
    ):
        return None
    sequence, file = log.sequence + 1, log.tail.file
    try:
        frame, checksum = encode_frame(
            parts,
            entries,
            block_count=1,
            flags=0,
            sequence=sequence,
            durable_upto=log.durable_upto,
            previous=log.checksum,
            check=file.check,
            seed=file.seed,
            offset=log.tail.length,
            expected_bytes=block + len(entries),
        )
    except (TypeError, MemoryError):
        # Something that is not bytes, or a view of larger items: a draft says what. Without memory
        # whoever commits the draft can refuse it.
        return None
    weight = records_weight(payload_bytes, count)
    return PlainPut(
        queue,
        after,
        first,
        count,
        weight,
        time,
        last_time,
        growth,
        frame,
        checksum,
        sequence,
        log.tail.length,
    )


def commit(log: Log, put: PlainPut, *, sync: bool) -> None:
    """Write what was prepared, and sync it if asked to. Errors are those of `Log.commit`."""
    if not is_current(log, put):
        raise StaleDraft(
            "the log went on since the put was prepared. Nothing was stored. Prepare it anew and "
            "commit it at once; a store is used by one thread at a time."
        )
    # Before the room runs out: the put that finds none is a draft's, which takes twice as long.
    room = room_for(log, put)
    if not log.tail.has_room(room):
        log.make_room(room, reserve=False)
    append(log, put, sync=sync)


def is_current(log: Log, put: PlainPut) -> bool:
    """Whether the log is still where the frame belongs."""
    return put.sequence == log.sequence + 1 and put.offset == log.tail.length


def room_for(log: Log, put: PlainPut) -> int:
    """Bytes that the zeros ahead should have for the frame, and for the next ones."""
    return len(put.frame) + log.tail.ahead_bytes // ROOM_SHARE


def append(log: Log, put: PlainPut, *, sync: bool) -> None:
    """Write the frame, for which there is room, note it, and sync it if it is to be."""
    status = log.status
    log.write(put.frame)
    note(log, put)
    if sync:
        log.sync_tail()
    log.status = status


def note(log: Log, put: PlainPut) -> None:
    """The frame was appended: let the state say what it says."""
    log.needed += put.growth
    queue, first, count = put.queue, put.first, put.record_count
    number = log.tail.file.number
    index = log.cache.tail_index(number)
    log.state.put(queue, number, first, count, put.weight, put.last_time)
    if index is not None:
        index.note(queue.name, RECORDS, first, first + count - 1, put.time, put.offset)
    log.state.set_genesis(queue, put.genesis, number)
    log.state.segments[number].record_frame_bytes += len(put.frame)
    log.note_frame(index, len(put.frame), put.checksum)
