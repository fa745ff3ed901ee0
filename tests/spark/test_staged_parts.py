"""From Arrow to staged parts and back: every payload and header, whatever the batch looks like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.attributes import Attributes, attributes_in
from fifoq.codec import decode_headers
from fifoq.spark import rows as rows_of
from fifoq.spark import staged
from fifoq.spark.rows import blocks_of
from fifoq.spark.staged import PartFile
from fifoq.staged import FORMAT_VERSION, Manifest, Part
from fifoq.staged_files import Place, StagedFiles
from store import ItemTooLarge
from store.blocks import DEDUP_ID, DELIVER_AT, HEADERS, ORDERING_KEY, PRIORITY
from store.osfiles import OsFiles

MAP = pa.map_(pa.string(), pa.string())


def batch_of(data: pa.Array, headers: pa.Array | None = None) -> pa.RecordBatch:
    columns = {"data": data, **({} if headers is None else {"headers": headers})}
    return pa.record_batch(list(columns.values()), names=list(columns))


def taken_apart(batch: pa.RecordBatch) -> list[tuple[bytes, dict[str, str]]]:
    found: list[tuple[bytes, dict[str, str]]] = []
    for block in blocks_of(batch):
        headers: Any = block.columns.get(HEADERS) or [b""] * block.count
        found += zip(block.payloads(), map(decode_headers, headers), strict=True)
    return found


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.none()
            | st.dictionaries(st.text(min_size=1, max_size=3), st.text(max_size=3), max_size=2),
        ),
        max_size=30,
    ),
    start=st.integers(0, 30),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 100)),
)
def test_rows_come_back_as_they_were(
    rows: list[tuple[bytes, dict[str, str] | None]],
    start: int,
    kind: pa.DataType,
    sizes: tuple[int, int],
) -> None:
    data = pa.array([data for data, _ in rows], kind)
    headers = pa.array([None if kept is None else list(kept.items()) for _, kept in rows], MAP)
    expected = [(data, kept or {}) for data, kept in rows[start:]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_of, "BLOCK_RECORDS", sizes[0])
        patch.setattr(rows_of, "BLOCK_BYTES", sizes[1])
        # A slice has offsets that do not begin at 0.
        assert taken_apart(batch_of(data, headers).slice(start)) == expected
        counts = [block.count for block in blocks_of(batch_of(data))]
    assert sum(counts) == len(rows)
    assert all(0 < count <= sizes[0] for count in counts)


def test_text_is_stored_as_utf_8() -> None:
    assert taken_apart(batch_of(pa.array(["ü", ""]))) == [("ü".encode(), {}), (b"", {})]


def test_what_no_record_can_be_is_refused_with_its_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_of, "RECORD_BYTES_MAX", 3)
    with pytest.raises(ItemTooLarge, match="column data: a record of 4 bytes is over the limit"):
        taken_apart(batch_of(pa.array([b"1234"])))
    with pytest.raises(ValueError, match="column data: 1 rows are null"):
        taken_apart(batch_of(pa.array([b"1", None])))
    with pytest.raises(ValueError, match="column headers: headers is a dict of strings"):
        taken_apart(batch_of(pa.array([b"1"]), pa.array([[("k", None)]], MAP)))


def attributed(**columns: pa.Array) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    data = pa.array([b""] * count)
    return pa.record_batch([data, *columns.values()], names=["data", *columns])


def test_attributes_of_rows_become_columns_and_what_says_nothing_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_of, "BLOCK_RECORDS", 3)
    now = datetime.now(UTC).replace(microsecond=7)
    later = [None, None, now, now + timedelta(days=1), now + timedelta(days=9), None]
    batch = attributed(
        priority=pa.array([0, 5, None, None, 9, 1], pa.int32()),
        deliver_at=pa.array(later, pa.timestamp("us", "Europe/Vienna")),
        ORDERING_KEY=pa.array(["ü", None, "a" * 255, None, None, None]),
        dedup_id=pa.array([None, None, None, "1", None, "ü"]),
    )
    first, second = blocks_of(batch)
    assert dict(attributes_in(first)) == {
        1: Attributes(priority=0, ordering_key="ü".encode()),
        3: Attributes(ordering_key=b"a" * 255),
    }, "what has come already is delivered at once"
    assert dict(attributes_in(second)) == {
        1: Attributes(deliver_at=nanoseconds(now) + 86_400 * 10**9, dedup_id=b"1"),
        2: Attributes(priority=9, deliver_at=nanoseconds(now) + 9 * 86_400 * 10**9),
        3: Attributes(priority=1, dedup_id="ü".encode()),
    }
    assert set(first.columns) == {PRIORITY, ORDERING_KEY}
    assert set(second.columns) == {PRIORITY, DELIVER_AT, DEDUP_ID}


def nanoseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("priority", pa.array([5, 10], pa.int32()), "priority: 10 is not one of 0"),
        ("priority", pa.array([-1, 5], pa.int32()), "priority: -1 is not one of 0"),
        ("ordering_key", pa.array(["", "a"]), "ordering_key: a key of 0 bytes is not one of 1"),
        ("ordering_key", pa.array(["ü" * 128]), "ordering_key: a key of 256 bytes is not one"),
        (
            "ordering_key",
            pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()),
            "ordering_key: a key is not UTF-8",
        ),
        ("dedup_id", pa.array(["a", "ü" * 128]), "dedup_id: an id of 256 bytes is not one of 1"),
        (
            "deliver_at",
            pa.array([-5_000_000, 5], pa.timestamp("us", "UTC")),
            "deliver_at: -5 seconds since 1970 are not 0 or more",
        ),
        (
            "deliver_at",
            pa.array([None, (1 << 62) + 1], pa.timestamp("us", "UTC")),
            "deliver_at: 4611686018427 seconds since 1970 are not",
        ),
    ],
)
def test_a_wrong_attribute_is_refused_with_its_column(
    name: str, column: pa.Array, message: str
) -> None:
    with pytest.raises(ValueError, match=f"column {message}.*Nothing of this job is in the queue"):
        list(blocks_of(attributed(**{name: column})))


def test_a_part_is_read_back_from_any_block_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_of, "BLOCK_RECORDS", 3)
    directory = tmp_path / "staged"
    staged.make_directory(directory)
    numbers = [b"%d" % number for number in range(20)]
    parts = []
    for name, some in (("a.part", numbers[:11]), ("b.part", numbers[11:])):
        file = PartFile(directory, name)
        file.add(batch_of(pa.array(some)))
        part = file.finish()
        assert part is not None
        parts.append(part)
    manifest = Manifest(FORMAT_VERSION, "", "main", "w", 0, parts)
    files = StagedFiles(OsFiles(), str(tmp_path))
    blocks, place = files.read(manifest, Place(), 1 << 20)
    assert place is None
    assert [payload for block in blocks for payload in block.payloads()] == numbers
    for count in range(len(blocks) + 1):
        rest, _ = files.read(manifest, files.place_of(manifest, count), 1 << 20)
        assert [block.payloads() for block in rest] == [
            block.payloads() for block in blocks[count:]
        ]


def test_a_part_without_records_leaves_no_file(tmp_path: Path) -> None:
    file = PartFile(tmp_path, "a.part")
    file.add(batch_of(pa.array([], pa.binary())))
    assert file.finish() is None
    assert list(tmp_path.iterdir()) == []


def test_old_parts_that_no_manifest_names_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old.part", "named.part", "x.draft"):
        (tmp_path / name).write_bytes(b"")
    manifest = Manifest(FORMAT_VERSION, "", "main", "w", 0, [Part("named.part", 16, 0, 0)])
    assert staged.publish(tmp_path, manifest)
    assert not staged.publish(tmp_path, manifest), "the second of two is told"
    staged.discard_leftovers(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4, "nothing is old yet"
    monkeypatch.setattr(staged, "LEFTOVER_SECONDS", -1.0)
    (tmp_path / "y.refused").write_bytes(b"")
    staged.discard_leftovers(tmp_path)
    assert (tmp_path / "old.part").exists(), "somebody has to look at what was refused first"
    (tmp_path / "y.refused").unlink()
    staged.discard_leftovers(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["main~w~00000000000000000000.manifest", "named.part"]
