"""Blocks: one queue's part of a frame, column by column.

    kind: u8 | time width: u8 | queue: u16 | detail: u32 | count: u32 | bytes: u32 |
    first: u64 | time: u64 | columns

`queue` is the index of the queue's genesis entry in the same frame. `bytes` is the whole block,
a multiple of 8, and so is each column. Kinds:

records, moved  end offsets (i32, count + 1, the first is 0), put times, optional columns, then
                all payloads back to back: offsets and payloads are an Arrow binary column.
                Compressed, they are preceded by the algorithm and their bytes (u32 each)
removed         first counter, last counter and weight of each range (u64 each); `detail` is why
leases          counters (u64), attempts (u32); `time` is the deadline
state           a byte that is 0 for a deleted name, names and values as offset columns

Times are `time` plus a column of u32 or u64 differences; a column that would be all zeros is
absent. An optional column that nobody uses costs nothing.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from store.compression import BadData, decompress
from store.errors import DamageError, FormatError
from store.frames import aligned
from store.keys import COUNTER_MAX, Key

RECORDS: Final = 1
MOVED: Final = 2
REMOVED: Final = 3
LEASES: Final = 4
STATE: Final = 5

TAKEN: Final = 1
ACKED: Final = 2
EXPIRED: Final = 3
DROPPED: Final = 4
DEAD_LETTERED: Final = 5
PURGED: Final = 6
REASONS: Final = {
    TAKEN: "taken",
    ACKED: "acked",
    EXPIRED: "expired",
    DROPPED: "dropped",
    DEAD_LETTERED: "dead-lettered",
    PURGED: "purged",
}

NO_QUEUE: Final = 0xFFFF

# Optional columns of records, in the order in which they lie in the block.
COUNTERS: Final = 1
DELIVER_AT: Final = 2
EXPIRES_AT: Final = 4
PRIORITY: Final = 8
HEADERS: Final = 16
DEDUP_ID: Final = 32
ORDERING_KEY: Final = 64
COMPRESSED: Final = 128
U64_COLUMNS: Final = (COUNTERS, DELIVER_AT, EXPIRES_AT)
_BYTES_COLUMNS: Final = (HEADERS, DEDUP_ID, ORDERING_KEY)
_COLUMNS_KNOWN: Final = 255
OPTIONAL_COLUMNS: Final = frozenset((2, 4, 8, 16, 32, 64))
"""The columns that a caller may give; counters are the log's own."""
STATE_WEIGHT: Final = 16
"""What a state entry weighs beside its name and value when live bytes are estimated."""

RECORD_WEIGHT: Final = 16
"""What a record weighs beside its payload when live bytes are estimated."""

HEADER = struct.Struct("<BBHIIIQQ")
BLOCK_HEADER_BYTES: Final = HEADER.size
_ITEM_BYTES: Final = {"Q": 8, "I": 4, "i": 4, "B": 1}
_TIME_CODES: Final[dict[int, Literal["I", "Q"] | None]] = {0: None, 4: "I", 8: "Q"}

if sys.byteorder != "little":
    raise ImportError("store reads and writes columns in place and needs a little-endian machine")
assert array("i").itemsize == 4
assert array("I").itemsize == 4
assert array("Q").itemsize == 8

Column = Sequence[int] | Sequence[bytes]


def state_weight(name: str, value: bytes | None) -> int:
    """What a state entry weighs in the estimate of live bytes."""
    return STATE_WEIGHT + len(name) + len(value or b"")


def records_weight(payload_bytes: int, count: int) -> int:
    """What `count` records with that many payload bytes weigh in the estimate of live bytes."""
    return payload_bytes + count * RECORD_WEIGHT


class RecordBlock(msgspec.Struct, frozen=True):
    """Records of one queue as they lie in the log: end offsets and one payload buffer.

    `offsets` has count + 1 entries of 4 bytes. Records with no `COUNTERS` column are numbered
    from `first` on without a gap.
    """

    queue: str
    kind: int
    first: int
    count: int
    time: int
    offsets: memoryview
    payload: memoryview
    time_differences: memoryview | None
    columns: dict[int, memoryview | list[bytes]]
    algorithm: int = 0
    """If it is not 0, `payload` is compressed by it, and must be decompressed to be of use."""

    def decompressed(self) -> RecordBlock:
        """The block with its payloads as they were put.

        DamageError unless they are as many bytes as the offsets say; FormatError if the algorithm
        is unknown, or not there on this machine.
        """
        if not self.algorithm:
            return self
        try:
            payload = decompress(self.payload, self.algorithm, self.offsets[-1])
        except BadData as error:
            raise DamageError(0, str(error)) from None
        return msgspec.structs.replace(self, payload=memoryview(payload), algorithm=0)

    @property
    def last(self) -> int:
        counters = self.columns.get(COUNTERS)
        return int(counters[-1]) if counters is not None else self.first + self.count - 1

    def counters(self) -> Sequence[int]:
        column = self.columns.get(COUNTERS)
        if isinstance(column, memoryview):
            return column.tolist()
        return range(self.first, self.first + self.count)

    @property
    def first_time(self) -> int:
        differences = self.time_differences
        return self.time if differences is None else int(self.time + differences[0])

    @property
    def last_time(self) -> int:
        differences = self.time_differences
        return self.time if differences is None else int(self.time + differences[-1])

    def times(self) -> Sequence[int]:
        """Put time of each record, in nanoseconds since the epoch."""
        if self.time_differences is None:
            return [self.time] * self.count
        return [self.time + difference for difference in self.time_differences]

    def payloads(self) -> list[bytes]:
        ends = self.offsets.tolist()
        data = bytes(self.payload[ends[0] : ends[-1]])
        if ends[0]:
            ends = [end - ends[0] for end in ends]
        return [data[start:end] for start, end in pairwise(ends)]

    def keys(self) -> list[Key]:
        return list(map(Key, self.counters(), self.times()))

    def record_bytes(self, index: int) -> int:
        return int(self.offsets[index + 1] - self.offsets[index])

    def move_bytes(self, start: int, stop: int) -> int:
        """About what those records take when they are written again."""
        size = records_weight(self.offsets[stop] - self.offsets[start], stop - start)
        for column in self.columns.values():
            if isinstance(column, list):
                size += sum(map(len, column[start:stop]))
            else:
                size += column.itemsize * (stop - start)
        return size

    def slice(self, start: int, stop: int) -> RecordBlock:
        """The records from index `start` up to `stop`, sharing the same payload buffer."""
        if start == 0 and stop == self.count:
            return self
        assert not self.algorithm, "decompress it first"
        counters = self.counters()[start:stop]
        differences = self.time_differences
        return RecordBlock(
            self.queue,
            self.kind,
            counters[0],
            stop - start,
            self.time,
            self.offsets[start : stop + 1],
            self.payload,
            None if differences is None else differences[start:stop],
            {bit: column[start:stop] for bit, column in self.columns.items()},
        )


class RemovedBlock(msgspec.Struct, frozen=True):
    """Counter ranges that were removed at `time`, each (first, last, weight)."""

    queue: str
    reason: int
    time: int
    ranges: list[tuple[int, int, int]]


class LeaseBlock(msgspec.Struct, frozen=True):
    """Records that were handed out until `deadline`."""

    queue: str
    deadline: int
    counters: list[int]
    attempts: list[int]


class StateBlock(msgspec.Struct, frozen=True):
    """Newest values by name; None means deleted."""

    time: int
    entries: list[tuple[str, bytes | None]]


Block = RecordBlock | RemovedBlock | LeaseBlock | StateBlock


class BlockHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a block, with its place in the body."""

    kind: int
    width: int
    queue: int
    detail: int
    count: int
    size: int
    first: int
    time: int
    at: int


def block_headers(body: memoryview, block_count: int, genesis_bytes: int) -> Iterator[BlockHeader]:
    """The block headers of a body that passed its checksum, with sizes checked."""
    at, end = 0, len(body) - genesis_bytes
    for _ in range(block_count):
        if at + BLOCK_HEADER_BYTES > end:
            raise DamageError(at, "a block's header runs past the body")
        kind, width, queue, detail, count, size, first, time = HEADER.unpack_from(body, at)
        if size < BLOCK_HEADER_BYTES or size % 8 or at + size > end or not 0 < count <= size:
            raise DamageError(at, f"a block of {count} entries cannot have {size} bytes")
        if first > COUNTER_MAX:
            raise DamageError(at, f"counter {first} is over the limit {COUNTER_MAX}")
        yield BlockHeader(kind, width, queue, detail, count, size, first, time, at)
        at += size
    if at != end:
        raise DamageError(at, "the blocks do not fill the body")


def decode_block(body: memoryview, header: BlockHeader, names: Sequence[str]) -> Block:
    """Decode one block of a body that passed its checksum; no payload is copied.

    Those that are compressed stay so until `RecordBlock.decompressed`.
    """
    view = _View(body[header.at : header.at + header.size])
    if header.kind == STATE:
        return _decode_state(view, header)
    try:
        queue = names[header.queue]
    except IndexError:
        raise DamageError(header.at, f"queue index {header.queue} has no genesis entry") from None
    if header.kind in (RECORDS, MOVED):
        return _decode_records(view, header, queue)
    if header.kind == REMOVED:
        numbers = view.take("Q", header.count * 3).tolist()
        third = header.count
        triples = zip(numbers[:third], numbers[third:-third], numbers[-third:], strict=True)
        return RemovedBlock(queue, header.detail, header.time, list(triples))
    if header.kind == LEASES:
        counters = view.take("Q", header.count).tolist()
        attempts = view.take("I", header.count).tolist()
        return LeaseBlock(queue, header.time, counters, attempts)
    raise FormatError(f"block kind {header.kind} is from a newer version")


def _decode_records(view: _View, header: BlockHeader, queue: str) -> RecordBlock:
    if header.detail & ~_COLUMNS_KNOWN:
        raise FormatError(f"record columns {header.detail:#x} are from a newer version")
    count = header.count
    offsets = view.take("i", count + 1)
    if header.width not in _TIME_CODES:
        raise DamageError(header.at, f"time column is {header.width} bytes wide")
    code = _TIME_CODES[header.width]
    differences = view.take(code, count) if code is not None else None
    columns: dict[int, memoryview | list[bytes]] = {}
    for bit in (*U64_COLUMNS, PRIORITY, *_BYTES_COLUMNS):
        if header.detail & bit:
            if bit in U64_COLUMNS:
                columns[bit] = view.take("Q", count)
            elif bit == PRIORITY:
                columns[bit] = view.take("B", count)
            else:
                columns[bit] = view.take_bytes(count)
    algorithm, stored = 0, offsets[-1]
    if header.detail & COMPRESSED:
        algorithm, stored = view.take("I", 2)
        if not algorithm:
            raise DamageError(header.at, "payloads are compressed by nothing")
    payload = view.rest(stored)
    if offsets[0] != 0 or offsets[-1] < 0:
        raise DamageError(header.at, "end offsets do not fit the payload")
    return RecordBlock(
        queue,
        header.kind,
        header.first,
        count,
        header.time,
        offsets,
        payload,
        differences,
        columns,
        algorithm,
    )


def _decode_state(view: _View, header: BlockHeader) -> StateBlock:
    present = view.take("B", header.count)
    try:
        names = [name.decode() for name in view.take_bytes(header.count)]
    except UnicodeDecodeError:
        raise DamageError(header.at, "a state's name is not UTF-8") from None
    values = view.take_bytes(header.count)
    entries = [
        (name, value if there else None)
        for name, value, there in zip(names, values, present, strict=True)
    ]
    return StateBlock(header.time, entries)


class _View:
    """Reads columns one after another, never past the block's end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = BLOCK_HEADER_BYTES

    def take(self, code: Literal["Q", "I", "i", "B"], count: int) -> memoryview:
        size = count * _ITEM_BYTES[code]
        if self._at + size > len(self._data):
            raise DamageError(self._at, "a column runs past its block")
        column = self._data[self._at : self._at + size].cast(code)
        self._at += aligned(size)
        return column

    def take_bytes(self, count: int) -> list[bytes]:
        ends = self.take("i", count + 1).tolist()
        data = self.rest(ends[-1])
        self._at += aligned(ends[-1])
        pairs = list(pairwise(ends))
        if ends[0] != 0 or any(start > end for start, end in pairs):
            raise DamageError(self._at, "end offsets go back")
        return [bytes(data[start:end]) for start, end in pairs]

    def rest(self, size: int) -> memoryview:
        if size < 0 or self._at + size > len(self._data):
            raise DamageError(self._at, "a column runs past its block")
        return self._data[self._at : self._at + size]
