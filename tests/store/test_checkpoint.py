"""Checkpoints: round trip, cut anywhere, flip any bit, newer formats."""

from __future__ import annotations

import struct

import msgspec
import pytest

from store.checkpoint import (
    BODY_BYTES_MAX,
    CHECKPOINT_HEADER_BYTES,
    Checkpoint,
    QueueEntry,
    SegmentEntry,
    SpanEntry,
    StateEntry,
    UnloggedEntry,
    body_bytes,
    decode_checkpoint,
    encode_checkpoint,
    removed_bytes,
)
from store.checksum import CRC32C, check_function
from store.errors import DamageError, FormatError
from store.genesis import Genesis, GenesisView

STORE_ID = bytes(range(16))
CHECK = check_function(CRC32C)
CHECKPOINT = Checkpoint(
    number=9,
    clean=False,
    written_at=1_700_000_000_000,
    segment=2,
    offset=4096,
    sequence=77,
    last_checksum=0xFFFF_FFFF,
    segments=[SegmentEntry(2, 4096, 1, 2, 3, 4, 5, 6)],
    queues=[
        QueueEntry(
            name="orders",
            genesis=GenesisView.of(Genesis("orders", next_counter=2**62), b"{}"),
            genesis_segment=2,
            configuration_segment=1,
            retained=True,
            spans=[SpanEntry(1, 3, 2, 2, 99, False)],
            removed=[(2, 2)],
            packed=[],
            attempts=[(3, 1)],
        )
    ],
    states={"timer/ä": StateEntry(2, 80, 30, True), "gone": StateEntry(2, 80, 4, False)},
    damage=[(1, 80, 160)],
    unlogged=[UnloggedEntry("orders", 1, 5, 2, 2, 1, 33)],
)
DATA = encode_checkpoint(CHECKPOINT, STORE_ID)


def test_a_checkpoint_comes_back_as_it_was() -> None:
    assert decode_checkpoint(DATA) == (STORE_ID, CHECKPOINT)
    assert body_bytes(DATA) == len(DATA) - CHECKPOINT_HEADER_BYTES


def test_what_lies_behind_the_body_is_not_read() -> None:
    assert decode_checkpoint(DATA + b"an older, longer body") == (STORE_ID, CHECKPOINT)


def test_a_cut_checkpoint_is_damage() -> None:
    for size in range(len(DATA)):
        with pytest.raises(DamageError):
            decode_checkpoint(DATA[:size])


def test_any_flipped_bit_is_noticed_or_lies_in_the_zeros() -> None:
    unused = range(CHECKPOINT_HEADER_BYTES - 4, CHECKPOINT_HEADER_BYTES)
    for bit in range(len(DATA) * 8):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        if bit // 8 in unused:
            assert decode_checkpoint(bytes(data)) == (STORE_ID, CHECKPOINT)
        else:
            with pytest.raises(DamageError):
                decode_checkpoint(bytes(data))


def resealed(
    body: bytes,
    *,
    version: int = 1,
    order: int = 0x0102,
    algorithm: int = CRC32C,
    length: int | None = None,
) -> bytes:
    """A checkpoint of any body with checksums that fit it."""
    length = len(body) if length is None else length
    head = struct.pack(
        "<8sHHB3x16sQII",
        b"FIFOQCHK",
        version,
        order,
        algorithm,
        STORE_ID,
        9,
        length,
        CHECK(body, 0),
    )
    return head + struct.pack("<I4x", CHECK(head, 0)) + body


BODY = DATA[CHECKPOINT_HEADER_BYTES:]


def test_a_sound_checkpoint_of_a_newer_format_is_refused_as_such() -> None:
    assert decode_checkpoint(resealed(BODY)) == (STORE_ID, CHECKPOINT)
    with pytest.raises(FormatError, match=r"checkpoint format 2 .* Nothing was changed"):
        decode_checkpoint(resealed(BODY, version=2))
    with pytest.raises(FormatError, match="0x0201"):
        decode_checkpoint(resealed(BODY, order=0x0201))
    with pytest.raises(FormatError, match="checksum algorithm 9 is unknown"):
        decode_checkpoint(resealed(BODY, algorithm=9))


def test_a_length_over_the_limit_is_refused_before_it_is_believed() -> None:
    with pytest.raises(DamageError, match="is over the limit"):
        body_bytes(resealed(b"", length=BODY_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[", b'"\xff"', BODY[:-1], b"[" * 50_000, b'{"x":' * 50_000]
)
def test_a_body_that_makes_no_sense_is_damage(body: bytes) -> None:
    with pytest.raises(DamageError, match="body does not decode") as caught:
        decode_checkpoint(resealed(body))
    assert caught.value.offset == CHECKPOINT_HEADER_BYTES


def test_a_body_with_another_number_than_its_header_is_damage() -> None:
    with pytest.raises(DamageError, match="different numbers"):
        decode_checkpoint(resealed(BODY.replace(b'"number":9', b'"number":8')))


def with_packed(packed: list[tuple[int, bytes]]) -> bytes:
    queue = msgspec.structs.replace(CHECKPOINT.queues[0], packed=packed)
    return encode_checkpoint(msgspec.structs.replace(CHECKPOINT, queues=[queue]), STORE_ID)


def test_packed_counters_are_ranges_again_when_read() -> None:
    _, checkpoint = decode_checkpoint(with_packed([(0, bytes([4, 0, 6, 0])), (1, b"\1\0\1\0")]))
    assert checkpoint.queues[0].removed == [(2, 2), (4, 6), (65537, 65537)]
    assert checkpoint.queues[0].packed == []


def test_packed_counters_that_make_no_sense_are_damage() -> None:
    with pytest.raises(DamageError, match="a piece of 1 bytes") as caught:
        decode_checkpoint(with_packed([(0, b"?")]))
    assert caught.value.offset == CHECKPOINT_HEADER_BYTES


def test_the_share_of_removed_counters_is_what_the_body_lacks_without_them() -> None:
    packed = [(0, bytes([4, 0, 6, 0]))]
    queue = msgspec.structs.replace(CHECKPOINT.queues[0], packed=packed)
    bare = msgspec.structs.replace(queue, removed=[], packed=[])
    full = msgspec.structs.replace(CHECKPOINT, queues=[queue, bare])
    empty = msgspec.structs.replace(CHECKPOINT, queues=[bare, bare])
    difference = len(encode_checkpoint(full, STORE_ID)) - len(encode_checkpoint(empty, STORE_ID))
    assert removed_bytes(full) == difference + len("[][]")
    assert removed_bytes(empty) == 0
