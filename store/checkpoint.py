"""Checkpoints: the whole state of the store as of one frame, so that opening need not scan.

    magic: 8 | version: u16 | byte order: u16 | algorithm: u8, 3 zeros | store id: 16 |
    number: u64 | body bytes: u32 | body checksum: u32 | header checksum: u32, 4 zeros

The body is JSON, readable with any pager; genesis is in it under the seed's names. Two copies
are overwritten in turn, so one of them is always whole. A file may be longer than its body: the
rest is space held for the time when the disk is full, as much as removals in any order can need.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from store.checksum import CRC32C, check_function
from store.errors import DamageError, FormatError
from store.frames import ENDIAN_MARK, FORMAT_VERSION, zlib_or_crc32c_matches
from store.genesis import GenesisView
from store.packing import unpack

CHECKPOINT_MAGIC: Final = b"FIFOQCHK"
CHECKPOINT_NAMES: Final = ("checkpoint.a", "checkpoint.b")
BODY_BYTES_MAX: Final = 1 << 30

_HEADER = struct.Struct("<8sHHB3x16sQIII4x")
CHECKPOINT_HEADER_BYTES: Final = _HEADER.size
_CHECKED_BYTES: Final = CHECKPOINT_HEADER_BYTES - 8


class SegmentEntry(msgspec.Struct, array_like=True, gc=False):
    """What the checkpoint keeps of a segment: enough to open it without reading it."""

    number: int
    length: int
    first_sequence: int
    created_at: int
    last_time: int
    record_count: int
    record_weight: int
    record_frame_bytes: int


class SpanEntry(msgspec.Struct, array_like=True, gc=False):
    """Counters first..last of a queue are in `segment`; that many of them are live."""

    first: int
    last: int
    segment: int
    live: int
    weight: int
    moved: bool


class QueueEntry(msgspec.Struct, rename="camel", omit_defaults=True):
    """One queue: genesis for people and recovery, then where its records are.

    What has a default came later than version 1 of the format and is left out if it says nothing.
    """

    name: str
    genesis: GenesisView
    genesis_segment: int
    configuration_segment: int
    retained: bool
    spans: list[SpanEntry]
    removed: list[tuple[int, int]]
    packed: list[tuple[int, bytes]]
    attempts: list[tuple[int, int]]
    held: int = 0


class StateEntry(msgspec.Struct, array_like=True, gc=False):
    """Where the newest value of a name lies; `present` is false for a deleted one."""

    segment: int
    offset: int
    weight: int
    present: bool


class UnloggedEntry(msgspec.Struct, array_like=True, gc=False):
    """Where removals are that only checkpoints hold, because the disk was full.

    They are among the removed counters first..last of the queue. `record_count` of them weighed
    `weight`; reason and time are those of the newest.
    """

    queue: str
    reason: int
    time: int
    first: int
    last: int
    record_count: int
    weight: int


class Checkpoint(msgspec.Struct, rename="camel"):
    """State of the store after frame `sequence`, which ends at `offset` of `segment`."""

    number: int
    clean: bool
    written_at: int
    segment: int
    offset: int
    sequence: int
    last_checksum: int
    segments: list[SegmentEntry]
    queues: list[QueueEntry]
    states: dict[str, StateEntry]
    damage: list[tuple[int, int, int]]
    unlogged: list[UnloggedEntry]


_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint, store_id: bytes) -> bytes:
    """Header and JSON body."""
    check = check_function(CRC32C)
    body = msgspec.json.encode(checkpoint)
    head = _HEADER.pack(
        CHECKPOINT_MAGIC,
        FORMAT_VERSION,
        ENDIAN_MARK,
        CRC32C,
        store_id,
        checkpoint.number,
        len(body),
        check(body, 0),
        0,
    )[:_CHECKED_BYTES]
    return head + struct.pack("<I4x", check(head, 0)) + body


def removed_bytes(checkpoint: Checkpoint) -> int:
    """How much of the body the removed counters of all queues are."""
    return sum(
        len(msgspec.json.encode(queue.removed)) + len(msgspec.json.encode(queue.packed))
        for queue in checkpoint.queues
        if queue.removed or queue.packed
    )


def body_bytes(header: bytes) -> int:
    """Length of the body behind a header. DamageError or FormatError if it is not sound."""
    return int(_unpack(header)[3])


def decode_checkpoint(data: bytes) -> tuple[bytes, Checkpoint]:
    """Store id and state. DamageError if anything is broken, FormatError for a newer format."""
    algorithm, store_id, number, length, body_checksum = _unpack(data)
    body = data[CHECKPOINT_HEADER_BYTES : CHECKPOINT_HEADER_BYTES + length]
    if len(body) < length:
        raise DamageError(CHECKPOINT_HEADER_BYTES, f"body has {len(body)} of {length} bytes")
    if check_function(algorithm)(body, 0) != body_checksum:
        raise DamageError(CHECKPOINT_HEADER_BYTES, "checkpoint body checksum does not match")
    try:
        checkpoint = _decoder.decode(body)
        for queue in checkpoint.queues:
            queue.removed, queue.packed = list(unpack(queue.removed, queue.packed)), []
    except (ValueError, RecursionError) as error:
        raise DamageError(CHECKPOINT_HEADER_BYTES, f"body does not decode: {error}") from None
    except DamageError as error:
        raise DamageError(CHECKPOINT_HEADER_BYTES, error.reason) from None
    if checkpoint.number != number:
        raise DamageError(CHECKPOINT_HEADER_BYTES, "body and header have different numbers")
    return store_id, checkpoint


def _unpack(data: bytes) -> tuple[int, bytes, int, int, int]:
    if len(data) < CHECKPOINT_HEADER_BYTES:
        raise DamageError(0, f"checkpoint has {len(data)} of {CHECKPOINT_HEADER_BYTES} bytes")
    magic, version, endian, algorithm, store_id, number, length, body_checksum, checksum = (
        _HEADER.unpack_from(data)
    )
    if magic != CHECKPOINT_MAGIC or not zlib_or_crc32c_matches(data[:_CHECKED_BYTES], checksum):
        raise DamageError(0, "checkpoint header checksum does not match")
    if version != FORMAT_VERSION or endian != ENDIAN_MARK:
        raise FormatError(
            f"checkpoint format {version} (byte order mark {endian:#06x}) is not the format "
            f"{FORMAT_VERSION} of this version. Nothing was changed. Use a newer fifoq."
        )
    if length > BODY_BYTES_MAX:
        raise DamageError(0, f"body length {length} is over the limit {BODY_BYTES_MAX}")
    return algorithm, store_id, number, length, body_checksum
