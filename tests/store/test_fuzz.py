"""Decoders fed with mutated bytes whose checksums were made to fit.

Nothing but DamageError and FormatError may come out, and no length that somebody wrote may make
us allocate much more than the input has. Every failure prints the seed that repeats it:
`FIFOQ_FUZZ_SEED=<seed>`. `FIFOQ_DEEP=1` runs fifty times as long.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from store.blocks import (
    ACKED,
    COUNTERS,
    DEDUP_ID,
    DELIVER_AT,
    HEADERS,
    MOVED,
    PRIORITY,
    RecordBlock,
    block_headers,
    decode_block,
)
from store.checkpoint import (
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
)
from store.checksum import CRC32C, Buffer, check_function, place_seed, segment_seed
from store.compression import ZLIB, Compression
from store.encoding import compressed, encode_leases, encode_records, encode_removed, encode_state
from store.errors import DamageError, FormatError
from store.frames import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    check_body,
    decode_header,
    encode_frame,
)
from store.genesis import Genesis, GenesisView, decode_genesis, encode_genesis
from store.index import INDEX_HEADER_BYTES, SegmentIndex
from store.replay import apply_frame
from store.segment import Frame
from store.segment_state import SegmentState
from store.state import State

CHECK = check_function(CRC32C)
STORE_ID = bytes(range(16))
SEED = segment_seed(CHECK, STORE_ID, 1)
OFFSET = 80

DEEP = bool(os.environ.get("FIFOQ_DEEP"))
ROUNDS = 50_000 * (50 if DEEP else 1)
TRACED_ROUNDS = 4_000
PEAK_BYTES_MAX = 1 << 20
FUZZ_SEED = int(os.environ.get("FIFOQ_FUZZ_SEED", "20240601"))

NUMBERS = [0, 1, 2, 3, 4, 7, 8, 16, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31]
NUMBERS += [2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def mutated(data: bytes, random: Random, others: list[bytes]) -> bytes:
    """A few random changes, most of which keep the length."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(found) + 1)
        kind = random.randrange(10)
        if kind < 3 and at < len(found):
            found[at] ^= 1 << random.randrange(8)
        elif kind < 6:
            size = random.choice((1, 2, 4, 8))
            at -= at % size
            number = random.choice(NUMBERS) + random.choice((0, 0, 1, -1))
            found[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")
        elif kind == 6:
            found[at : at + random.randrange(20)] = b""
        elif kind == 7:
            found[at:at] = random.randbytes(random.randrange(1, 17))
        elif kind == 8:
            other = random.choice(others)
            start = random.randrange(len(other))
            piece = other[start : start + random.randrange(1, 40)]
            found[at : at + len(piece)] = piece
        else:
            found[at : at + 8] = random.choice((bytes(8), b"\xff" * 8))
    return bytes(found)


# One function for each decoder: fix the checksums, decode, and use what came out.


def use_segment_header(data: bytes) -> None:
    head = data[: SEGMENT_HEADER_BYTES - 4]
    header = SegmentHeader.decode(head + struct.pack("<I", CHECK(head, 0)))
    assert SegmentHeader.decode(header.encode()) == header


def use_body(body: memoryview, block_count: int, genesis_bytes: int) -> None:
    names = [entry.name for entry in decode_genesis(body, genesis_bytes)]
    for header in block_headers(body, block_count, genesis_bytes):
        block = decode_block(body, header, names)
        if isinstance(block, RecordBlock):
            block = block.decompressed()
            assert len(block.payloads()) == block.count
            assert len(block.keys()) == block.count
            part = block.slice(block.count // 2, block.count)
            assert part.last == block.last
            assert part.last_time == block.last_time


def use_blocks(data: bytes) -> None:
    """The blocks alone, with sound genesis entries behind them."""
    count = data[0] % 8
    genesis = GENESIS if len(data) % 2 else encode_genesis([Genesis("a")] * 3)
    use_body(memoryview(data[1:] + genesis), count, len(genesis))


def use_genesis(data: bytes) -> None:
    decode_genesis(memoryview(data), len(data))


def framed(data: bytes) -> Frame:
    """A frame read from bytes in which both checksums are made to fit first."""
    if len(data) < FRAME_HEADER_BYTES:
        raise DamageError(0, "the caller sees to that")
    head = data[: FRAME_HEADER_BYTES - 4]
    checksum = CHECK(head, place_seed(CHECK, SEED, OFFSET))
    data = head + struct.pack("<I", checksum) + data[FRAME_HEADER_BYTES:]
    header = decode_header(data, 0, check=CHECK, seed=SEED, offset=OFFSET)
    end = FRAME_HEADER_BYTES + header.body_bytes
    if len(data) < header.frame_bytes:
        raise DamageError(0, "the caller sees to that")
    stored = CHECK(data[FRAME_HEADER_BYTES:end], checksum)
    data = data[:end] + struct.pack("<I", stored)
    body, checksum = check_body(data, 0, header, check=CHECK, offset=OFFSET)
    return Frame(OFFSET, header, body, checksum)


def use_frame(data: bytes) -> None:
    frame = framed(data)
    use_body(frame.body, frame.header.block_count, frame.header.genesis_bytes)


def use_replay(data: bytes) -> None:
    """What recovery does with a frame, and the checkpoint's entries of it."""
    frame = framed(data)
    state = State()
    state.segments[1] = SegmentState(1, OFFSET, 1, 0)
    index = SegmentIndex(OFFSET)
    names = apply_frame(state, 1, frame, index)
    state.disagreements(names)
    for queue in state.queues.values():
        queue.entry()


def use_checkpoint(data: bytes) -> None:
    head, body = bytearray(data[:CHECKPOINT_HEADER_BYTES]), data[CHECKPOINT_HEADER_BYTES:]
    if len(head) == CHECKPOINT_HEADER_BYTES:
        if len(data) % 4:
            struct.pack_into("<I", head, 40, len(body))
        struct.pack_into("<I", head, 44, CHECK(body, 0))
        struct.pack_into("<I", head, 48, CHECK(head[:48], 0))
    body_bytes(bytes(head))
    store_id, checkpoint = decode_checkpoint(bytes(head) + body)
    again = decode_checkpoint(encode_checkpoint(checkpoint, store_id))
    assert again == (store_id, checkpoint)


def use_index(data: bytes) -> None:
    head, body = data[: INDEX_HEADER_BYTES - 8], data[INDEX_HEADER_BYTES:]
    head += struct.pack("<I", len(body))
    checksum = struct.pack("<I", CHECK(body, CHECK(head, segment_seed(CHECK, STORE_ID, 1))))
    index = SegmentIndex.decode(head + checksum + body, STORE_ID, 1)
    for entries in index.queues.values():
        entries.offset_of_counter(5)
        entries.counter_at_time(5)
        entries.next_offset(5)


# Sound inputs to begin with.

GENESIS = encode_genesis(
    [Genesis("a", next_counter=9, queue_size=3, configuration=b"{}"), Genesis("b", floor=2)]
)
BLOCKS: list[list[Buffer]] = [
    encode_records([b"one", b"", b"three"], queue=0, first=3, time=5)[0],
    encode_records(
        [b"x", b"yy"],
        queue=1,
        first=9,
        time=5,
        times=[5, 2**40],
        columns={COUNTERS: [9, 12], DELIVER_AT: [1, 2], PRIORITY: [1, 2]},
        kind=MOVED,
    )[0],
    encode_records([b"z"], queue=0, first=9, time=5, columns={HEADERS: [b"h"], DEDUP_ID: [b"id"]})[
        0
    ],
    compressed(
        encode_records([b"again and again " * 99], queue=0, first=10, time=5)[0],
        1,
        Compression(ZLIB, 9),
    )
    or [],
    encode_removed([(1, 2, 40), (4, 4, 20)], queue=0, time=1, reason=ACKED),
    encode_leases([3, 4, 5], [1, 2, 3], queue=0, deadline=99),
    encode_state([("name", b"value"), ("gone", None)], time=1),
]
PLAIN_BLOCKS = [b"".join(parts) for parts in BLOCKS]


def a_frame(blocks: list[bytes]) -> bytes:
    data, _ = encode_frame(
        list(blocks),
        GENESIS,
        block_count=len(blocks),
        flags=0,
        sequence=1,
        durable_upto=0,
        previous=0,
        check=CHECK,
        seed=SEED,
        offset=OFFSET,
    )
    return bytes(data)


def a_checkpoint() -> bytes:
    entry = QueueEntry(
        name="a",
        genesis=GenesisView.of(Genesis("a"), b"{}"),
        genesis_segment=1,
        configuration_segment=1,
        retained=False,
        spans=[SpanEntry(1, 3, 1, 2, 30, False)],
        removed=[(2, 2)],
        packed=[(0, bytes([4, 0, 4, 0, 9, 0, 12, 0])), (2, bytes(9) + b"\xa5" + bytes(8182))],
        attempts=[(3, 1)],
    )
    checkpoint = Checkpoint(
        number=3,
        clean=False,
        written_at=1,
        segment=1,
        offset=800,
        sequence=5,
        last_checksum=6,
        segments=[SegmentEntry(1, 800, 1, 2, 3, 4, 5, 6)],
        queues=[entry],
        states={"x": StateEntry(1, 80, 9, True)},
        damage=[(1, 80, 90)],
        unlogged=[UnloggedEntry("a", 1, 2, 2, 9, 3, 51)],
    )
    return encode_checkpoint(checkpoint, STORE_ID)


def an_index() -> bytes:
    index = SegmentIndex(80_000)
    for step in range(5):
        index.note("a", 1, step * 10 + 1, step * 10 + 9, step, 80 + step * 5000)
    index.note("b", MOVED, 3, 7, 1, 80)
    return index.encode(STORE_ID, 1)


FRAMES = [a_frame(PLAIN_BLOCKS), *(a_frame([block]) for block in PLAIN_BLOCKS), a_frame([])]
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "segment header": (
        use_segment_header,
        [SegmentHeader(STORE_ID, 2, 3, 4, 1, 800, 5, CRC32C).encode()],
    ),
    "blocks": (
        use_blocks,
        [b"\7" + b"".join(PLAIN_BLOCKS), *(b"\1" + block for block in PLAIN_BLOCKS)],
    ),
    "genesis": (use_genesis, [GENESIS, encode_genesis([])]),
    "frame": (use_frame, FRAMES),
    "replay": (use_replay, FRAMES),
    "checkpoint": (use_checkpoint, [a_checkpoint()]),
    "index": (use_index, [an_index()]),
}


def run(name: str, rounds: int, seed: int) -> int:
    """Mutate and decode; returns how many inputs were accepted whole."""
    use, corpus = TARGETS[name]
    random = Random(f"{name} {seed}")
    accepted = 0
    for step in range(rounds):
        data = mutated(random.choice(corpus), random, corpus)
        try:
            accepted += accepts(use, data)
        except BaseException as error:
            error.add_note(f"{name}, round {step}, FIFOQ_FUZZ_SEED={seed}: {data.hex()}")
            raise
    return accepted


def accepts(use: Callable[[bytes], None], data: bytes) -> bool:
    try:
        use(data)
    except (DamageError, FormatError):
        return False
    return True


@pytest.mark.parametrize("name", TARGETS)
def test_sound_inputs_are_accepted(name: str) -> None:
    use, corpus = TARGETS[name]
    assert [data for data in corpus if not accepts(use, data)] == []


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_decode_or_are_damage(name: str) -> None:
    accepted = run(name, ROUNDS, FUZZ_SEED)
    # Most changes hit a value and not the structure: if few are accepted, checksums do not fit.
    assert accepted > ROUNDS // 100


@pytest.mark.parametrize("name", TARGETS)
def test_no_length_makes_a_decoder_allocate_much(name: str) -> None:
    run(name, 100, FUZZ_SEED)
    tracemalloc.start()
    try:
        run(name, TRACED_ROUNDS, FUZZ_SEED + 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES_MAX
