"""The sparse index: answers never lie behind the wanted record, and damage is noticed."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.blocks import MOVED, RECORDS
from store.checksum import CRC32C, check_function, segment_seed
from store.errors import DamageError
from store.index import (
    INDEX_HEADER_BYTES,
    INDEX_INTERVAL_BYTES,
    INDEX_MAGIC,
    MovedEntry,
    QueueIndex,
    SegmentIndex,
)

STORE_ID = bytes(range(16))
CHECK = check_function(CRC32C)

steps = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(80, 6000)), min_size=1, max_size=40
)


def filled(found: list[tuple[int, int, int]]) -> tuple[SegmentIndex, list[tuple[int, int, int]]]:
    """An index of blocks that rise by these steps, and (first counter, time, offset) of each."""
    index, blocks = SegmentIndex(80), []
    counter, time, offset = 1, 1000, 80
    for count, later, size in found:
        time += later
        index.note("orders", RECORDS, counter, counter + count - 1, time, offset)
        blocks.append((counter, time, offset))
        counter += count
        offset += size
    index.length = offset
    return index, blocks


@given(steps)
def test_a_look_up_by_counter_starts_at_or_before_its_block(
    found: list[tuple[int, int, int]],
) -> None:
    index, blocks = filled(found)
    entries = index.queues["orders"]
    for counter, _, offset in blocks:
        start = entries.offset_of_counter(counter)
        assert start is not None
        assert start <= offset
        assert offset - start < INDEX_INTERVAL_BYTES + 6000
    assert entries.offset_of_counter(0) == 80
    assert entries.offset_of_counter(10**6) == entries.offsets[-1]


@given(steps)
def test_there_is_at_most_one_entry_for_each_4_kib(found: list[tuple[int, int, int]]) -> None:
    index, _ = filled(found)
    offsets = index.queues["orders"].offsets.tolist()
    assert INDEX_INTERVAL_BYTES == 4096
    assert all(later - earlier >= 4096 for earlier, later in pairwise(offsets))
    assert len(offsets) <= 1 + index.length // 4096


@given(steps, st.integers(999, 1200))
def test_a_look_up_by_time_starts_at_or_before_the_first_such_record(
    found: list[tuple[int, int, int]], time: int
) -> None:
    index, blocks = filled(found)
    start = index.queues["orders"].counter_at_time(time)
    later = [counter for counter, moment, _ in blocks if moment >= time]
    assert start <= later[0] if later else start <= blocks[-1][0]


@given(steps)
def test_the_next_offset_is_the_next_entry(found: list[tuple[int, int, int]]) -> None:
    index, _ = filled(found)
    offsets = index.queues["orders"].offsets.tolist()
    entries = index.queues["orders"]
    assert [entries.next_offset(offset) for offset in offsets] == [*offsets[1:], None]
    assert entries.next_offset(0) == offsets[0]


def test_an_empty_index_knows_nothing() -> None:
    entries = QueueIndex()
    assert entries.offset_of_counter(5) is None
    assert entries.counter_at_time(5) == 0
    assert entries.next_offset(0) is None


def test_every_moved_block_has_an_entry_of_its_own() -> None:
    index = SegmentIndex(80)
    index.note("orders", MOVED, 5, 9, 1, 80)
    index.note("orders", MOVED, 1, 3, 1, 88)
    assert index.queues["orders"].moved == [MovedEntry(5, 9, 80), MovedEntry(1, 3, 88)]
    assert not index.queues["orders"].offsets


@given(steps)
def test_an_index_comes_back_as_it_was(found: list[tuple[int, int, int]]) -> None:
    index, _ = filled(found)
    index.note("orders", MOVED, 1, 2, 3, 4)
    index.note("other", RECORDS, 1, 2, 3, 4)
    again = SegmentIndex.decode(index.encode(STORE_ID, 3), STORE_ID, 3)
    assert again.length == index.length
    assert again.queues == index.queues
    assert list(again.queues) == ["orders", "other"]


def test_entries_of_queues_are_compared_by_value() -> None:
    assert QueueIndex() == QueueIndex()
    assert QueueIndex() != filled([(1, 1, 80)])[0].queues["orders"]
    assert QueueIndex() != "something else"


DATA = filled([(1, 1, 5000), (2, 0, 80), (3, 1, 9000)])[0].encode(STORE_ID, 3)


def test_a_cut_index_is_damage() -> None:
    for size in range(len(DATA)):
        with pytest.raises(DamageError):
            SegmentIndex.decode(DATA[:size], STORE_ID, 3)


def test_any_flipped_bit_is_noticed() -> None:
    for bit in range(len(DATA) * 8):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError):
            SegmentIndex.decode(bytes(data), STORE_ID, 3)


def test_an_index_of_another_segment_or_store_is_damage() -> None:
    for store_id, number in ((STORE_ID, 4), (bytes(16), 3)):
        with pytest.raises(DamageError, match="index checksum does not match"):
            SegmentIndex.decode(DATA, store_id, number)


def resealed(body: bytes) -> bytes:
    head = struct.pack("<8sQI", INDEX_MAGIC, 80, len(body))
    seed = segment_seed(CHECK, STORE_ID, 3)
    return head + struct.pack("<I", CHECK(body, CHECK(head, seed))) + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x81",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"orders": [b"1234567", b"", b"", []]}),
        msgspec.msgpack.encode({"orders": [bytes(16), bytes(16), bytes(8), []]}),
        b"\x81\xa1\xff" + msgspec.msgpack.encode([b"", b"", b"", []]),
        b"\x81\xa1a\x95\xc4\x00\xc4\x00\xc4\x00\x90" + b"\x91" * 5000,
    ],
)
def test_a_body_that_makes_no_sense_is_damage(body: bytes) -> None:
    with pytest.raises(DamageError, match="index does not decode") as caught:
        SegmentIndex.decode(resealed(body), STORE_ID, 3)
    assert caught.value.offset == INDEX_HEADER_BYTES
