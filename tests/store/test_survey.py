"""Reading a whole segment, damage and all: what is intact, what is not, which counters."""

from __future__ import annotations

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log
from store.blocks import records_weight
from store.checksum import CRC32C, check_function, segment_seed
from store.encoding import encode_records
from store.frames import SEGMENT_HEADER_BYTES, encode_frame
from store.genesis import Genesis, encode_genesis
from store.segment import segment_name
from store.survey import Survey, survey
from tests.store.conftest import PATH

SEGMENT = f"{PATH}/{segment_name(1)}"


@pytest.fixture
def frames(log: Log) -> list[tuple[int, int]]:
    """Three commits of orders, two records each; their first and end bytes."""
    places = []
    for _ in range(3):
        start = log.tail.length
        log.put("orders", [b"r" * 100] * 2)
        places.append((start, log.tail.length))
    return places


def read(log: Log, end: int | None = None) -> tuple[Survey, list[int]]:
    file = log.directory.open_segment(1, log.store_id)
    found, frames = survey(file, 0, log.tail.length if end is None else end)
    sequences = [frame.header.sequence for frame in frames]
    file.close()
    return found, sequences


def test_a_sound_segment_is_told_whole(log: Log, frames: list[tuple[int, int]]) -> None:
    found, sequences = read(log)
    assert found.sound
    assert sequences == [1, 2, 3]
    assert (found.frame_count, found.record_count) == (3, 6)
    assert (found.first_sequence, found.last_sequence, found.witness) == (1, 3, 2)
    assert found.last_checksum == log.checksum
    assert {name: list(seen) for name, seen in found.seen.items()} == {("orders", False): [(1, 6)]}


def test_behind_damage_the_next_intact_frame_is_found(
    log: Log, files: SimFiles, frames: list[tuple[int, int]]
) -> None:
    start, end = frames[1]
    files.flip_bit(SEGMENT, offset=start + 150, bit=0)
    found, sequences = read(log)
    assert sequences == [1, 3]
    assert found.damage == [(start, end, "checksum of frame 2 does not match")]
    assert list(found.seen["orders", False]) == [(1, 2), (5, 6)]


def test_damage_up_to_the_end_ends_there(
    log: Log, files: SimFiles, frames: list[tuple[int, int]]
) -> None:
    files.flip_bit(SEGMENT, offset=frames[1][0] + 150, bit=0)
    files.flip_bit(SEGMENT, offset=frames[2][0] + 150, bit=0)
    found, sequences = read(log)
    assert sequences == [1]
    assert found.damage == [
        (frames[1][0], frames[2][1], "checksum of frame 2 does not match"),
    ]


def test_zeros_behind_the_frames_are_a_stretch_of_their_own(
    log: Log, files: SimFiles, frames: list[tuple[int, int]]
) -> None:
    size = len(files.content(SEGMENT))
    found, _ = read(log, end=size)
    assert found.damage == [(log.tail.length, size, "no frame starts here")]


def test_moved_records_with_gaps_are_counted_one_by_one(log: Log) -> None:
    log.put("orders", [b"r" * 100] * 6)
    draft = log.draft()
    queue = log.queue("orders")
    draft.remove(queue, [(c, c, records_weight(100, 1)) for c in (2, 4)])
    log.commit(draft)
    start = log.tail.length
    draft = log.draft()
    draft.move(queue, [1, 3, 5], [0, 0, 0], [b"r" * 100] * 3)
    log.commit(draft)
    file = log.directory.open_segment(1, log.store_id)
    found, frames = survey(file, start, log.tail.length)
    assert len(list(frames)) == 1
    assert list(found.seen["orders", True]) == [(1, 1), (3, 3), (5, 5)]


def test_a_frame_that_makes_no_sense_is_damage_wherever_it_stands(
    log: Log, files: SimFiles, frames: list[tuple[int, int]]
) -> None:
    """Once as the frame that is read, once as the one that is looked for behind damage."""
    check = check_function(CRC32C)
    offset, sequence, previous = log.tail.length, log.sequence, log.checksum
    planted = bytearray()
    for _ in range(2):
        parts, _ = encode_records([b"b"], queue=7, first=2, time=0)
        sequence += 1
        frame, previous = encode_frame(
            parts,
            encode_genesis([Genesis("orders")]),
            block_count=1,
            flags=0,
            sequence=sequence,
            durable_upto=3,
            previous=previous,
            check=check,
            seed=segment_seed(check, log.store_id, 1),
            offset=offset + len(planted),
        )
        planted += frame
    files.damage(SEGMENT, offset, bytes(planted))
    found, sequences = read(log, end=offset + len(planted))
    assert sequences == [1, 2, 3]
    assert [(start, end) for start, end, _ in found.damage] == [(offset, offset + len(planted))]
    assert "has no genesis entry" in found.damage[0][2]


def test_a_frame_from_a_newer_version_is_told_as_such(
    log: Log, files: SimFiles, frames: list[tuple[int, int]]
) -> None:
    check = check_function(CRC32C)
    frame, _ = encode_frame(
        [],
        b"",
        block_count=0,
        flags=0x8000,
        sequence=4,
        durable_upto=3,
        previous=log.checksum,
        check=check,
        seed=segment_seed(check, log.store_id, 1),
        offset=log.tail.length,
    )
    files.damage(SEGMENT, log.tail.length, bytes(frame))
    found, _ = read(log, end=log.tail.length + len(frame))
    assert found.damage[0][0] == log.tail.length
    assert "from a newer version" in found.damage[0][2]


def test_reading_starts_behind_the_header(log: Log, frames: list[tuple[int, int]]) -> None:
    assert frames[0][0] == SEGMENT_HEADER_BYTES
    assert read(log)[1][0] == 1
