"""The sparse index of a segment: where a queue's records start, one entry for about 4 KiB.

A queue's ordinary blocks rise in counter and in offset together, so an entry is (counter, time,
offset of the frame) and a look-up is a bisection and a short walk. Moved blocks do not rise, so
each has an entry of its own, with its last counter.

The index of a segment that is no longer written lies beside it in a `.idx` file. It holds nothing
that the segment does not: lost or damaged, it is built again.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Final

import msgspec

from store.blocks import MOVED
from store.checksum import CRC32C, check_function, segment_seed
from store.errors import DamageError

INDEX_INTERVAL_BYTES: Final = 4096
INDEX_MAGIC: Final = b"FIFOQIDX"
INDEX_BODY_BYTES_MAX: Final = 256 << 20

_HEADER = struct.Struct("<8sQII")
INDEX_HEADER_BYTES: Final = _HEADER.size


class MovedEntry(msgspec.Struct, array_like=True, gc=False):
    """A moved block: counters between first and last, not all of them, in the frame there."""

    first: int
    last: int
    offset: int


class QueueIndex:
    """Entries of one queue in one segment."""

    __slots__ = ("counters", "moved", "offsets", "times")

    def __init__(self) -> None:
        self.counters = array("Q")
        self.times = array("Q")
        self.offsets = array("Q")
        self.moved: list[MovedEntry] = []

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QueueIndex):
            return NotImplemented
        return (self.counters, self.times, self.offsets, self.moved) == (
            other.counters,
            other.times,
            other.offsets,
            other.moved,
        )

    def offset_of_counter(self, counter: int) -> int | None:
        """Offset of a frame at or before the one that holds `counter`."""
        at = bisect_right(self.counters, counter) - 1
        return self.offsets[max(at, 0)] if self.offsets else None

    def counter_at_time(self, time: int) -> int:
        """A counter at or before the first record put at `time` or later."""
        at = bisect_right(self.times, time) - 1
        # The entry found may start with records of exactly that time, so step back past equals.
        while at > 0 and self.times[at] >= time:
            at -= 1
        return self.counters[max(at, 0)] if self.counters else 0

    def next_offset(self, offset: int) -> int | None:
        """Offset of the first entry behind `offset`."""
        at = bisect_right(self.offsets, offset)
        return self.offsets[at] if at < len(self.offsets) else None

    def is_noted_from(self, end: int, offset: int) -> bool:
        """Whether every frame of the queue from `end` on has an entry, seen from `offset`.

        A frame that starts less than an interval behind the entry before it has none.
        """
        at = bisect_right(self.offsets, offset)
        return at > 0 and end - self.offsets[at - 1] >= INDEX_INTERVAL_BYTES


class _QueueEntries(msgspec.Struct, array_like=True):
    counters: bytes
    times: bytes
    offsets: bytes
    moved: list[MovedEntry]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(dict[str, _QueueEntries])


class SegmentIndex:
    """Entries of all queues of one segment, for its frames below `length`."""

    __slots__ = ("length", "queues")

    def __init__(self, length: int) -> None:
        self.length = length
        self.queues: dict[str, QueueIndex] = {}

    def note(self, queue: str, kind: int, first: int, last: int, time: int, offset: int) -> None:
        """Note a block of records in the frame at `offset`."""
        entries = self.queues.get(queue)
        if entries is None:
            entries = self.queues[queue] = QueueIndex()
        if kind == MOVED:
            entries.moved.append(MovedEntry(first, last, offset))
        elif not entries.offsets or offset - entries.offsets[-1] >= INDEX_INTERVAL_BYTES:
            entries.counters.append(first)
            entries.times.append(time)
            entries.offsets.append(offset)

    def encode(self, store_id: bytes, number: int) -> bytes:
        check = check_function(CRC32C)
        body = _encode(
            {
                name: _QueueEntries(
                    entries.counters.tobytes(),
                    entries.times.tobytes(),
                    entries.offsets.tobytes(),
                    entries.moved,
                )
                for name, entries in self.queues.items()
            }
        )
        head = _HEADER.pack(INDEX_MAGIC, self.length, len(body), 0)[:-4]
        checksum = check(body, check(head, segment_seed(check, store_id, number)))
        return head + struct.pack("<I", checksum) + body

    @classmethod
    def decode(cls, data: bytes, store_id: bytes, number: int) -> SegmentIndex:
        """Read an index of that segment. DamageError if it is anything else."""
        if len(data) < INDEX_HEADER_BYTES:
            raise DamageError(0, f"index has {len(data)} of {INDEX_HEADER_BYTES} bytes")
        check = check_function(CRC32C)
        magic, length, body_bytes, checksum = _HEADER.unpack_from(data)
        body = data[INDEX_HEADER_BYTES:]
        start = check(data[: INDEX_HEADER_BYTES - 4], segment_seed(check, store_id, number))
        if magic != INDEX_MAGIC or len(body) != body_bytes or check(body, start) != checksum:
            raise DamageError(0, "index checksum does not match")
        index = cls(length)
        try:
            stored = _decoder.decode(body)
            for name, entries in stored.items():
                queue = index.queues[name] = QueueIndex()
                queue.counters.frombytes(entries.counters)
                queue.times.frombytes(entries.times)
                queue.offsets.frombytes(entries.offsets)
                if not len(queue.counters) == len(queue.times) == len(queue.offsets):
                    raise ValueError(f"columns of {name!r} have different lengths")
                queue.moved = entries.moved
        except (ValueError, RecursionError) as error:
            raise DamageError(INDEX_HEADER_BYTES, f"index does not decode: {error}") from None
        return index
