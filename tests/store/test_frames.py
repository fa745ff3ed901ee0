"""Frames and segment headers: round trip, cut anywhere, flip any bit, at another place."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.checksum import CRC32, CRC32C, check_function, place_seed, segment_seed
from store.errors import DamageError, FormatError
from store.frames import (
    BODY_BYTES_MAX,
    FLAG_SEAL,
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    FrameHeader,
    SegmentHeader,
    aligned,
    check_body,
    decode_header,
    encode_frame,
    frame_bytes,
)

CHECK = check_function(CRC32C)
SEED = segment_seed(CHECK, bytes(16), 1)
OFFSET = 80


class Made(NamedTuple):
    data: bytes
    checksum: int


def frame(
    blocks: bytes = b"", genesis: bytes = b"", *, offset: int = OFFSET, flags: int = 0
) -> Made:
    data, checksum = encode_frame(
        [blocks],
        genesis,
        block_count=1 if blocks else 0,
        flags=flags,
        sequence=7,
        durable_upto=6,
        previous=0xABCD,
        check=CHECK,
        seed=SEED,
        offset=offset,
    )
    return Made(bytes(data), checksum)


def read(data: bytes, *, offset: int = OFFSET, seed: int = SEED) -> tuple[FrameHeader, bytes, int]:
    header = decode_header(data, 0, check=CHECK, seed=seed, offset=offset)
    body, checksum = check_body(data, 0, header, check=CHECK, offset=offset)
    return header, bytes(body), checksum


@given(st.binary(max_size=100), st.binary(max_size=40), st.integers(0, 3))
def test_a_frame_comes_back_as_it_was(blocks: bytes, genesis: bytes, before: int) -> None:
    made = frame(blocks, genesis)
    assert len(made.data) == frame_bytes(len(blocks) + len(genesis))
    assert len(made.data) % 8 == 0
    padded = bytes(before) + made.data + b"what follows"
    header = decode_header(padded, before, check=CHECK, seed=SEED, offset=OFFSET)
    body, checksum = check_body(padded, before, header, check=CHECK, offset=OFFSET)
    assert bytes(body) == blocks + genesis
    assert checksum == made.checksum
    assert header.frame_bytes == len(made.data)
    assert (header.sequence, header.durable_upto, header.previous) == (7, 6, 0xABCD)
    assert (header.body_bytes, header.genesis_bytes) == (len(blocks + genesis), len(genesis))


def test_any_flipped_bit_is_noticed_or_lies_in_the_padding() -> None:
    made = frame(b"blocks!!", b"gen")
    used = FRAME_HEADER_BYTES + 11 + 4
    assert used < len(made.data)
    for bit in range(len(made.data) * 8):
        data = bytearray(made.data)
        data[bit // 8] ^= 1 << bit % 8
        if bit // 8 < used:
            with pytest.raises(DamageError) as caught:
                read(bytes(data))
            assert caught.value.offset == OFFSET
        else:
            assert read(bytes(data)) == read(made.data)


def test_a_frame_is_good_at_its_own_place_alone() -> None:
    made = frame(b"blocks!!", b"gen")
    for offset, seed in (
        (OFFSET + 8, SEED),
        (OFFSET, segment_seed(CHECK, bytes(16), 2)),
        (OFFSET, segment_seed(CHECK, b"another store id", 1)),
    ):
        with pytest.raises(DamageError, match="frame header checksum does not match"):
            read(made.data, offset=offset, seed=seed)


def test_a_body_is_good_behind_its_own_header_alone() -> None:
    one, other = frame(b"blocks!!", b"gen"), frame(b"blocks!!", b"gen", flags=FLAG_SEAL)
    with pytest.raises(DamageError, match="checksum of frame 7 does not match"):
        read(one.data[:FRAME_HEADER_BYTES] + other.data[FRAME_HEADER_BYTES:])


def test_bytes_without_the_magic_are_no_frame() -> None:
    with pytest.raises(DamageError, match="no frame starts here"):
        read(bytes(FRAME_HEADER_BYTES))


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """The frame with other bytes in its header and a header checksum that fits them."""
    head = bytearray(data[: FRAME_HEADER_BYTES - 4])
    head[at : at + len(value)] = value
    checksum = CHECK(head, place_seed(CHECK, SEED, OFFSET))
    return bytes(head) + struct.pack("<I", checksum) + data[FRAME_HEADER_BYTES:]


def test_lengths_over_the_limit_are_refused_before_they_are_believed() -> None:
    made = frame(b"blocks!!", b"gen")
    with pytest.raises(DamageError, match=f"body length {BODY_BYTES_MAX + 1} is over the limit"):
        read(resealed(made.data, 4, struct.pack("<I", BODY_BYTES_MAX + 1)))
    with pytest.raises(DamageError, match="body length 11"):
        read(resealed(made.data, 32, struct.pack("<I", 12)))


def test_a_seal_frame_is_known_and_any_other_flag_is_from_a_newer_version() -> None:
    assert read(frame(flags=FLAG_SEAL).data)[0].flags == FLAG_SEAL
    for bit in range(1, 16):
        with pytest.raises(FormatError, match="newer version"):
            read(frame(flags=1 << bit).data)


@given(st.integers(0, 10_000))
def test_sizes_are_rounded_up_to_a_multiple_of_8(count: int) -> None:
    assert aligned(count) % 8 == 0
    assert 0 <= aligned(count) - count < 8


# Segment headers.

u64 = st.integers(0, 2**64 - 1)
segment_headers = st.builds(
    SegmentHeader,
    store_id=st.binary(min_size=16, max_size=16),
    number=u64,
    created_at=u64,
    first_sequence=u64,
    previous_number=u64,
    previous_length=u64,
    previous_checksum=st.integers(0, 2**32 - 1),
    algorithm=st.sampled_from([CRC32, CRC32C]),
)
HEADER = SegmentHeader(bytes(range(16)), 2, 3, 4, 1, 4096, 0xBEEF, CRC32C)


@given(segment_headers)
def test_a_segment_header_comes_back_as_it_was(header: SegmentHeader) -> None:
    data = header.encode()
    assert len(data) == SEGMENT_HEADER_BYTES
    assert SegmentHeader.decode(data + b"what follows") == header


def test_a_cut_segment_header_is_damage() -> None:
    data = HEADER.encode()
    for size in range(len(data)):
        with pytest.raises(DamageError, match=f"segment header has {size} of"):
            SegmentHeader.decode(data[:size])


def test_any_flipped_bit_of_a_segment_header_is_noticed() -> None:
    data = HEADER.encode()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError):
            SegmentHeader.decode(bytes(flipped))


@pytest.mark.parametrize(
    ("at", "value"), [(8, b"\2\0"), (10, b"\1\2"), (12, b"\7")], ids=["version", "order", "check"]
)
def test_a_sound_header_of_a_newer_format_is_refused_as_such(at: int, value: bytes) -> None:
    data = bytearray(HEADER.encode()[:-4])
    data[at : at + len(value)] = value
    with pytest.raises(FormatError):
        SegmentHeader.decode(bytes(data) + struct.pack("<I", CHECK(data, 0)))
