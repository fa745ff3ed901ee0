"""Segment headers and frames: how commits lie in a segment.

A segment is a header, then frames back to back, each starting at a multiple of 8. A frame is
one commit:

    header (40 bytes, with its own checksum)
    blocks, each a multiple of 8 bytes
    genesis entries of the touched queues
    checksum of blocks and genesis entries (u32), then zeros up to a multiple of 8

Integers are little-endian. The header's checksum is seeded with the frame's place; the body's
starts from the header's, so a body is only valid behind its own header. `previous` is the body
checksum of the frame before, across segments, so a dropped or swapped frame breaks the chain.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from store.checksum import ALGORITHMS, CRC32C, Buffer, Check, check_function, place_seed
from store.errors import DamageError, FormatError

FORMAT_VERSION: Final = 1
ENDIAN_MARK: Final = 0x0102
SEGMENT_MAGIC: Final = b"FIFOQLOG"
FRAME_MAGIC: Final = b"FQF1"
ALIGNMENT: Final = 8

BODY_BYTES_MAX: Final = 64 << 20
BLOCK_COUNT_MAX: Final = 0xFFFF
SEQUENCE_MAX: Final = 2**63 - 1

FLAG_SEAL: Final = 1
"""An empty frame that only witnesses: everything up to its `durable_upto` is on disk."""
_FLAGS_KNOWN: Final = FLAG_SEAL

ALGORITHM_AT: Final = 12
"""Offset of the checksum algorithm in a segment header."""

_SEGMENT = struct.Struct("<8sHHB3x16sQQQQQII")
_HEADER = struct.Struct("<4sIQQIHHII")
_HEAD = struct.Struct("<4sIQQIHHI")
"""A frame header without its checksum."""
_U32 = struct.Struct("<I")
_HEADER_AND_CHECKSUM = struct.Struct(f"<{_HEAD.size}sI")
_EMPTY: Final = bytearray()
_NO_HEADER: Final = bytes(_HEADER.size)
_PADS: Final = tuple(bytes(count) for count in range(ALIGNMENT))
_NO_TRAILERS: Final = tuple(bytes(_U32.size + count) for count in range(ALIGNMENT))
"""Room for the checksum and what fills up the last bytes behind it."""
SEGMENT_HEADER_BYTES: Final = _SEGMENT.size
FRAME_HEADER_BYTES: Final = _HEADER.size
TRAILER_BYTES: Final = _U32.size


class SegmentHeader(msgspec.Struct, frozen=True, gc=False):
    """What a segment says of itself and of the one before it."""

    store_id: bytes
    number: int
    created_at: int
    first_sequence: int
    previous_number: int
    previous_length: int
    previous_checksum: int
    algorithm: int

    def encode(self) -> bytes:
        check = check_function(self.algorithm)
        head = _SEGMENT.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            ENDIAN_MARK,
            self.algorithm,
            self.store_id,
            self.number,
            self.created_at,
            self.first_sequence,
            self.previous_number,
            self.previous_length,
            self.previous_checksum,
            0,
        )[:-TRAILER_BYTES]
        return head + _U32.pack(check(head, 0))

    @classmethod
    def decode(cls, data: bytes) -> SegmentHeader:
        """Read a header. FormatError for a newer format, DamageError for anything broken."""
        if len(data) < SEGMENT_HEADER_BYTES:
            raise DamageError(0, f"segment header has {len(data)} of {SEGMENT_HEADER_BYTES} bytes")
        fields = _SEGMENT.unpack_from(data)
        magic, version, endian, algorithm = fields[:4]
        checksum = fields[-1]
        if magic != SEGMENT_MAGIC:
            raise DamageError(0, f"segment magic is {magic!r}")
        intact = zlib_or_crc32c_matches(data[: SEGMENT_HEADER_BYTES - TRAILER_BYTES], checksum)
        if not intact:
            raise DamageError(0, "segment header checksum does not match")
        if version != FORMAT_VERSION or endian != ENDIAN_MARK:
            raise FormatError(
                f"segment format {version} (byte order mark {endian:#06x}) is not the format "
                f"{FORMAT_VERSION} of this version. Nothing was changed. Use a newer fifoq."
            )
        check_function(algorithm)
        (store_id, number, created_at, first_sequence, *previous) = fields[4:-1]
        previous_number, previous_length, previous_checksum = previous
        return cls(
            store_id,
            number,
            created_at,
            first_sequence,
            previous_number,
            previous_length,
            previous_checksum,
            algorithm,
        )


def zlib_or_crc32c_matches(data: Buffer, checksum: int) -> bool:
    """Whether either algorithm gives `checksum`: the algorithm byte itself may be what rotted."""
    return any(check_function(algorithm)(data, 0) == checksum for algorithm in ALGORITHMS)


def find_algorithm(data: bytes) -> int:
    """The algorithm of the segment whose header this is, sound or not.

    It is the one that, put into its place, makes the header's checksum right. If none does, the
    byte that is there, or the default where that makes no sense.
    """
    if len(data) >= SEGMENT_HEADER_BYTES:
        head = bytearray(data[: SEGMENT_HEADER_BYTES - TRAILER_BYTES])
        (checksum,) = _U32.unpack_from(data, len(head))
        for algorithm, check in ALGORITHMS.items():
            head[ALGORITHM_AT] = algorithm
            if check(head, 0) == checksum:
                return algorithm
    byte = data[ALGORITHM_AT : ALGORITHM_AT + 1]
    return byte[0] if byte and byte[0] in ALGORITHMS else CRC32C


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a frame, already checked against its own checksum and place."""

    body_bytes: int
    sequence: int
    durable_upto: int
    previous: int
    flags: int
    block_count: int
    genesis_bytes: int
    checksum: int

    @property
    def frame_bytes(self) -> int:
        return frame_bytes(self.body_bytes)


def frame_bytes(body_bytes: int) -> int:
    """Size on disk of a frame whose blocks and genesis entries have `body_bytes`."""
    return aligned(FRAME_HEADER_BYTES + body_bytes + TRAILER_BYTES)


def aligned(count: int) -> int:
    """`count` rounded up to a multiple of 8."""
    return (count + 7) & ~7


def encode_frame(
    parts: list[Buffer],
    genesis: bytes,
    *,
    block_count: int,
    flags: int,
    sequence: int,
    durable_upto: int,
    previous: int,
    check: Check,
    seed: int,
    offset: int,
    expected_bytes: int | None = None,
) -> tuple[bytearray, int]:
    """Assemble one frame for `offset` of the segment with that seed.

    Returns the bytes and the body checksum, which the next frame carries as `previous`. TypeError
    if the body has other than `expected_bytes`: a part is not as long as its block says.
    """
    pad = 0 if expected_bytes is None else -(expected_bytes + TRAILER_BYTES) % ALIGNMENT
    # One copy of everything: header and checksum are written into their places afterwards.
    frame = _EMPTY.join([_NO_HEADER, *parts, genesis, _NO_TRAILERS[pad]])
    body_end = len(frame) - pad - TRAILER_BYTES
    body_bytes = body_end - FRAME_HEADER_BYTES
    if expected_bytes is None:
        frame += _PADS[-(body_bytes + TRAILER_BYTES) % ALIGNMENT]
    elif body_bytes != expected_bytes:
        raise TypeError(f"a body of {expected_bytes} bytes has {body_bytes}")
    head = _HEAD.pack(
        FRAME_MAGIC,
        body_bytes,
        sequence,
        durable_upto,
        previous,
        flags,
        block_count,
        len(genesis),
    )
    header_checksum = check(head, place_seed(check, seed, offset))
    body_checksum = check(memoryview(frame)[FRAME_HEADER_BYTES:body_end], header_checksum)
    _HEADER_AND_CHECKSUM.pack_into(frame, 0, head, header_checksum)
    _U32.pack_into(frame, body_end, body_checksum)
    return frame, body_checksum


def decode_header(data: Buffer, at: int, *, check: Check, seed: int, offset: int) -> FrameHeader:
    """Read the frame header at index `at` of `data`, which lies at `offset` of the segment.

    At least FRAME_HEADER_BYTES must be there. DamageError if they are not a frame's header
    that belongs to this place; only then are its lengths believed.
    """
    (magic, body_bytes, sequence, durable_upto, previous, flags, block_count, genesis, checksum) = (
        _HEADER.unpack_from(data, at)
    )
    if magic != FRAME_MAGIC:
        raise DamageError(offset, "no frame starts here")
    with memoryview(data) as view:
        seen = check(view[at : at + FRAME_HEADER_BYTES - 4], place_seed(check, seed, offset))
    if seen != checksum:
        raise DamageError(offset, "frame header checksum does not match")
    if body_bytes > BODY_BYTES_MAX or genesis > body_bytes:
        raise DamageError(offset, f"body length {body_bytes} is over the limit {BODY_BYTES_MAX}")
    if flags & ~_FLAGS_KNOWN:
        raise FormatError(f"frame flags {flags:#x} at byte {offset} are from a newer version")
    return FrameHeader(
        body_bytes, sequence, durable_upto, previous, flags, block_count, genesis, checksum
    )


def check_body(
    data: Buffer, at: int, header: FrameHeader, *, check: Check, offset: int
) -> tuple[memoryview, int]:
    """The body of the frame whose header is at index `at`, and its checksum.

    All of the frame's bytes must be in `data`. DamageError if body and checksum disagree.
    """
    start = at + FRAME_HEADER_BYTES
    end = start + header.body_bytes
    body = memoryview(data)[start:end]
    (stored,) = _U32.unpack_from(data, end)
    if check(body, header.checksum) != stored:
        raise DamageError(offset, f"checksum of frame {header.sequence} does not match")
    return body, stored
