"""Blocks become record batches whole: the same records, and no Python object for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.codec import encode_headers
from fifoq.spark import arrow
from fifoq.spark.arrow import Batches
from fifoq.spark.columns import Columns
from fifoq.spark.local import LocalAccess
from fifoq.spark.options import scan_options
from store.blocks import COUNTERS, HEADERS, MOVED, RECORDS, RecordBlock, block_headers, decode_block
from store.encoding import encode_records
from store.keys import Key
from tests.spark.support import fill, numbered


def made(
    payloads: list[bytes],
    first: int,
    time: int,
    times: list[int] | None = None,
    counters: list[int] | None = None,
    headers: list[bytes] | None = None,
) -> RecordBlock:
    """A block as it comes out of a log."""
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if counters is not None:
        columns[COUNTERS] = counters
    if headers is not None:
        columns[HEADERS] = headers
    parts, _ = encode_records(
        payloads,
        queue=0,
        first=first,
        time=time,
        times=times,
        columns=columns or None,
        kind=MOVED if counters else RECORDS,
    )
    body = memoryview(b"".join(parts))
    (header,) = block_headers(body, 1, 0)
    block = decode_block(body, header, ["main"])
    assert isinstance(block, RecordBlock)
    return block


@st.composite
def blocks(draw: st.DrawFn) -> list[RecordBlock]:
    """Blocks in order: with and without gaps, differing times and headers; whole and sliced."""
    found = []
    counter, time = 1, 1_700_000_000_000_000_000
    for _ in range(draw(st.integers(1, 6))):
        payloads = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=8))
        count = len(payloads)
        counter += draw(st.integers(0, 3))
        steps = draw(st.lists(st.integers(0, 5000), min_size=count, max_size=count))
        times = [time + sum(steps[: i + 1]) for i in range(count)]
        gaps = draw(st.none() | st.lists(st.integers(1, 3), min_size=count, max_size=count))
        counters = None if gaps is None else [counter + sum(gaps[:i]) for i in range(count)]
        headers = draw(st.none() | st.just([encode_headers({"n": str(i)}) for i in range(count)]))
        if draw(st.booleans()):
            times = [time] * count
        block = made(payloads, counter, time, times, counters, headers)
        start = draw(st.integers(0, count - 1))
        found.append(block.slice(start, draw(st.integers(start + 1, count))))
        counter, time = block.last + 1, times[-1]
    return found


def all_columns(headers: bool = True) -> Batches:
    options = scan_options({"path": "x", "includeHeaders": str(headers)})
    view = type("View", (), {"name": "main", "schema": None, "shape": None})()
    columns = Columns(view, options.reading)
    return columns.batches(columns.schema())


@given(found=blocks())
@settings(deadline=None)
def test_a_batch_holds_what_its_blocks_hold(found: list[RecordBlock]) -> None:
    table = pa.Table.from_batches(list(all_columns().of(found)))
    counters = [counter for block in found for counter in block.counters()]
    times = [time for block in found for time in block.times()]
    assert table["counter"].to_pylist() == counters
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [time // 1000 for time in times]
    assert table["data"].to_pylist() == [data for block in found for data in block.payloads()]
    assert table["key"].to_pylist() == [bytes(key) for key in map(Key, counters, times)]
    for batch in table.to_batches():
        batch.validate(full=True)


@given(found=blocks(), data=st.data())
@settings(deadline=None)
def test_ranges_that_are_left_out_are_left_out(
    found: list[RecordBlock], data: st.DataObject
) -> None:
    counters = [counter for block in found for counter in block.counters()]
    gone = data.draw(st.sets(st.sampled_from(counters)))
    ranges = [(counter, counter) for counter in sorted(gone)]
    batches = list(all_columns(False).of(found, ranges))
    assert all(batch.num_rows for batch in batches)
    kept = [counter for batch in batches for counter in batch["counter"].to_pylist()]
    assert kept == [counter for counter in counters if counter not in gone]


def test_headers_come_record_by_record() -> None:
    block = made([b"a", b"b"], 1, 5, headers=[encode_headers({"x": "1"}), b""])
    plain = made([b"c"], 3, 5)
    (batch,) = all_columns().of([block, plain])
    assert batch["headers"].to_pylist() == [[("x", "1")], [], []]


def test_a_batch_closes_at_so_many_rows_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def many() -> Iterator[RecordBlock]:
        return (made([b"x" * 10] * 10, 1 + 10 * i, 5) for i in range(10))

    assert [batch.num_rows for batch in all_columns().of(many())] == [100]
    monkeypatch.setattr(arrow, "BATCH_ROWS", 25)
    assert [batch.num_rows for batch in all_columns().of(many())] == [30, 30, 30, 10]
    monkeypatch.setattr(arrow, "BATCH_ROWS", 1000)
    monkeypatch.setattr(arrow, "BATCH_BYTES", 400)
    assert [batch.num_rows for batch in all_columns().of(many())] == [40, 40, 20]


@pytest.mark.parametrize("compression", [None, "zlib", "zstd"])
def test_no_python_object_is_made_for_a_record(tmp_path: Path, compression: str | None) -> None:
    """What is allocated while reading 20,000 records in 20 blocks, the batches being kept."""
    options = {"segment_bytes": 64 << 20, "compression": compression}
    fill(tmp_path / "store", numbered(20_000), batch=1000, **options)
    access = LocalAccess(str(tmp_path / "store"))
    pieces = access.pieces("main", 1, 20_000, piece_bytes=1 << 30)
    makes = all_columns(False)
    for _ in range(2):
        before = sys.getallocatedblocks()
        found = [batch for piece in pieces for batch in makes.of(access.read("main", piece))]
        more = sys.getallocatedblocks() - before
        assert sum(batch.num_rows for batch in found) == 20_000
    assert [data for batch in found for data in batch["data"].to_pylist()] == numbered(20_000)
    access.close()
    assert more < 1000
