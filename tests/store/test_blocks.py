"""Blocks: round trip of every kind, and structure that does not hold together is damage."""

from __future__ import annotations

import importlib.util
import struct
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import blocks as b
from store.blocks import (
    BLOCK_HEADER_BYTES,
    COUNTERS,
    MOVED,
    Block,
    Column,
    LeaseBlock,
    RecordBlock,
    RemovedBlock,
    StateBlock,
    block_headers,
    decode_block,
)
from store.checksum import Buffer
from store.encoding import encode_block, encode_leases, encode_records, encode_removed, encode_state
from store.errors import DamageError, FormatError
from store.keys import COUNTER_MAX, Key

NAMES = ["orders", "other"]
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
small = st.binary(max_size=20)


def joined(*found: Sequence[Buffer]) -> bytes:
    return b"".join(b"".join(parts) for parts in found)


def decoded(body: bytes, count: int = 1, genesis: bytes = b"") -> list[Block]:
    view = memoryview(body + genesis)
    return [decode_block(view, head, NAMES) for head in block_headers(view, count, len(genesis))]


def the_records(body: bytes) -> RecordBlock:
    (block,) = decoded(body)
    assert isinstance(block, RecordBlock)
    return block


@st.composite
def record_blocks(
    draw: st.DrawFn,
) -> tuple[list[bytes], list[int], dict[int, Column]]:
    """Payloads, put times and optional columns."""
    payloads = draw(st.lists(small, min_size=1, max_size=12))
    count = len(payloads)
    step = draw(st.sampled_from([0, 5, 2**33]))
    times = [1000]
    for _ in payloads[1:]:
        times.append(times[-1] + draw(st.integers(0, step)))
    columns: dict[int, Column] = {}
    for bit in (b.COUNTERS, b.DELIVER_AT, b.EXPIRES_AT):
        if draw(st.booleans()):
            columns[bit] = sorted(draw(st.sets(u64, min_size=count, max_size=count)))
    if draw(st.booleans()):
        columns[b.PRIORITY] = draw(st.lists(st.integers(0, 255), min_size=count, max_size=count))
    for bit in (b.HEADERS, b.DEDUP_ID, b.ORDERING_KEY):
        if draw(st.booleans()):
            columns[bit] = draw(st.lists(small, min_size=count, max_size=count))
    return payloads, times, columns


def listed(column: memoryview | list[bytes]) -> Column:
    return column.tolist() if isinstance(column, memoryview) else column


@given(record_blocks(), st.integers(0, 12), st.integers(0, 12))
def test_records_come_back_whole_and_in_slices(
    made: tuple[list[bytes], list[int], dict[int, Column]], start: int, stop: int
) -> None:
    payloads, times, columns = made
    parts, payload_bytes = encode_records(
        payloads, queue=1, first=7, time=times[0], times=times, columns=columns
    )
    body = joined(parts)
    assert len(body) % 8 == 0
    assert payload_bytes == sum(map(len, payloads))
    block = the_records(body)
    counters = [int(c) for c in columns.get(COUNTERS, range(7, 7 + len(payloads)))]
    start = min(start, len(payloads) - 1)
    stop = max(start + 1, min(stop, len(payloads)))
    for part, low, high in ((block, 0, len(payloads)), (block.slice(start, stop), start, stop)):
        assert part.queue == "other"
        assert part.count == high - low
        assert part.payloads() == payloads[low:high]
        assert list(part.times()) == times[low:high]
        assert part.last_time == times[high - 1]
        assert list(part.counters()) == counters[low:high]
        assert part.last == counters[high - 1]
        assert part.keys() == list(map(Key, counters[low:high], times[low:high]))
        assert [part.record_bytes(i) for i in range(part.count)] == list(
            map(len, payloads[low:high])
        )
        assert {bit: listed(found) for bit, found in part.columns.items()} == {
            bit: list(found[low:high]) for bit, found in columns.items()
        }
    again = block.slice(start, stop)
    assert again.slice(0, again.count) is again
    assert again.slice(0, 1).payloads() == payloads[start : start + 1]


@given(record_blocks(), st.integers(0, 12), st.integers(0, 12))
def test_a_decoded_block_or_slice_becomes_bytes_again(
    made: tuple[list[bytes], list[int], dict[int, Column]], start: int, stop: int
) -> None:
    payloads, times, columns = made
    if COUNTERS in columns:
        # A slice names its first one in its header, where none over the limit may stand.
        columns[COUNTERS] = range(9, 9 + 2 * len(payloads), 2)
    parts, _ = encode_records(
        payloads, queue=1, first=7, time=times[0], times=times, columns=columns
    )
    block = the_records(joined(parts))
    assert joined(encode_block(block, queue=1)) == joined(parts)
    start = min(start, len(payloads) - 1)
    part = block.slice(start, max(start + 1, min(stop, len(payloads))))
    again = the_records(joined(encode_block(part, queue=1)))
    assert again.offsets[0] == 0
    assert (again.first, again.count) == (part.first, part.count)
    assert again.keys() == part.keys()
    assert again.payloads() == part.payloads()
    assert {bit: listed(found) for bit, found in again.columns.items()} == {
        bit: listed(found) for bit, found in part.columns.items()
    }


def test_equal_times_and_unused_columns_cost_nothing() -> None:
    bare, _ = encode_records([b"12345678"], queue=0, first=1, time=5)
    same, _ = encode_records([b"12345678"], queue=0, first=1, time=5, times=[5], columns={})
    assert joined(bare) == joined(same)
    assert len(joined(bare)) == BLOCK_HEADER_BYTES + 8 + 8


def test_a_moved_block_is_a_block_of_records_with_counters() -> None:
    parts, _ = encode_records(
        [b"a", b"b"], queue=0, first=3, time=1, times=[1, 2], columns={COUNTERS: [3, 9]}, kind=MOVED
    )
    block = the_records(joined(parts))
    assert (block.kind, block.first, block.last, block.counters()) == (MOVED, 3, 9, [3, 9])


@given(st.lists(st.tuples(u64, u64, u64), min_size=1, max_size=9), u64, u32)
def test_removals_come_back(ranges: list[tuple[int, int, int]], time: int, reason: int) -> None:
    ranges = [(first % COUNTER_MAX, last, weight) for first, last, weight in ranges]
    body = joined(encode_removed(ranges, queue=1, time=time, reason=reason))
    assert decoded(body) == [RemovedBlock("other", reason, time, ranges)]


@given(st.lists(st.tuples(st.integers(0, COUNTER_MAX), u32), min_size=1, max_size=9), u64)
def test_leases_come_back(pairs: list[tuple[int, int]], deadline: int) -> None:
    counters, attempts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    body = joined(encode_leases(counters, attempts, queue=0, deadline=deadline))
    assert decoded(body) == [LeaseBlock("orders", deadline, counters, attempts)]


@given(st.lists(st.tuples(st.text(max_size=9), st.none() | small), min_size=1, max_size=9), u64)
def test_states_come_back(entries: list[tuple[str, bytes | None]], time: int) -> None:
    assert decoded(joined(encode_state(entries, time=time))) == [StateBlock(time, entries)]


def test_blocks_follow_each_other_up_to_the_genesis_entries() -> None:
    records, _ = encode_records([b"a"], queue=0, first=1, time=1)
    removed = encode_removed([(1, 1, 17)], queue=0, time=2, reason=b.ACKED)
    found = decoded(joined(records, removed), 2, b"genesis")
    assert [type(block) for block in found] == [RecordBlock, RemovedBlock]


# Structure that does not hold together.

RECORDS_BODY = joined(
    encode_records(
        [b"one", b"three"],
        queue=0,
        first=1,
        time=1,
        times=[1, 2],
        columns={COUNTERS: [1, 5], b.PRIORITY: [1, 2], b.HEADERS: [b"h", b"hh"]},
    )[0]
)


def patched(body: bytes, at: int, code: str, value: int) -> bytes:
    data = bytearray(body)
    struct.pack_into("<" + code, data, at, value)
    return bytes(data)


def test_a_cut_body_is_damage() -> None:
    for size in range(len(RECORDS_BODY)):
        with pytest.raises(DamageError):
            decoded(RECORDS_BODY[:size])


HEADER_DAMAGE = [
    (8, "I", 0, "a block of 0 entries"),
    (8, "I", 2**32 - 1, "a block of 4294967295 entries"),
    (12, "I", 24, "cannot have 24 bytes"),
    (12, "I", len(RECORDS_BODY) - 4, "cannot have"),
    (12, "I", len(RECORDS_BODY) + 8, "cannot have"),
    (16, "Q", COUNTER_MAX + 1, "is over the limit"),
    (1, "B", 3, "time column is 3 bytes wide"),
    (2, "H", 2, "queue index 2 has no genesis entry"),
    (8, "I", 100, "a column runs past its block"),
    (32, "i", 1, "end offsets do not fit the payload"),
    (40, "i", -1, "a column runs past its block"),
    (40, "i", 1000, "a column runs past its block"),
]


@pytest.mark.parametrize(("at", "code", "value", "reason"), HEADER_DAMAGE)
def test_a_header_that_does_not_fit_is_damage(at: int, code: str, value: int, reason: str) -> None:
    with pytest.raises(DamageError, match=reason):
        decoded(patched(RECORDS_BODY, at, code, value))


def test_bytes_between_blocks_and_genesis_entries_are_damage() -> None:
    with pytest.raises(DamageError, match="the blocks do not fill the body"):
        decoded(RECORDS_BODY + bytes(8), 1, b"genesis")


def test_end_offsets_of_a_column_that_go_back_are_damage() -> None:
    body = joined(encode_state([("ab", b"v"), ("cd", b"w")], time=1))
    names = BLOCK_HEADER_BYTES + 8
    assert struct.unpack_from("<3i", body, names) == (0, 2, 4)
    for at, value in ((names, 1), (names + 4, 5), (names + 4, -1)):
        with pytest.raises(DamageError, match="end offsets go back"):
            decoded(patched(body, at, "i", value))


def test_a_name_that_is_not_utf_8_is_damage() -> None:
    body = joined(encode_state([("ab", b"v")], time=1))
    with pytest.raises(DamageError, match="a state's name is not UTF-8"):
        decoded(body.replace(b"ab", b"\xff\xfe"))


def test_kinds_and_columns_of_a_newer_version_are_refused_as_such() -> None:
    for kind in (0, 6, 255):
        with pytest.raises(FormatError, match=f"block kind {kind} is from a newer version"):
            decoded(patched(RECORDS_BODY, 0, "B", kind))
    with pytest.raises(FormatError, match="record columns 0x100 are from a newer version"):
        decoded(patched(RECORDS_BODY, 4, "I", 256))


def test_a_big_endian_machine_is_refused_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are cast in place: there they would be written in the wrong order, unnoticed."""
    monkeypatch.setattr(sys, "byteorder", "big")
    spec = importlib.util.find_spec("store.blocks")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match="little-endian"):
        spec.loader.exec_module(module)


@pytest.mark.parametrize("step", [0, 7, 2**33])
def test_runs_of_times_are_the_same_bytes_as_a_time_for_each_record(step: int) -> None:
    runs = [(2, 1000), (1, 1000 + step), (4, 1000 + 3 * step)]
    times = [time for count, time in runs for _ in range(count)]
    payloads = [b"p"] * len(times)
    as_runs, _ = encode_records(payloads, queue=0, first=1, time=1000, time_runs=runs)
    one_by_one, _ = encode_records(payloads, queue=0, first=1, time=1000, times=times)
    assert joined(as_runs) == joined(one_by_one)
    assert list(the_records(joined(as_runs)).times()) == times


@pytest.mark.parametrize("length", [0, 3])
def test_a_known_length_gives_the_same_bytes_as_one_that_is_looked_for(length: int) -> None:
    payloads = [b"abc"[:length]] * 5
    known, size = encode_records(payloads, queue=0, first=1, time=9, item_bytes=length)
    found, _ = encode_records(payloads, queue=0, first=1, time=9)
    assert joined(known) == joined(found)
    assert size == 5 * length
