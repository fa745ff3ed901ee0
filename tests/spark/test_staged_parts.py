"""From Arrow to staged parts and back: every payload and header, whatever the batch looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.codec import decode_headers
from fifoq.spark import staged
from fifoq.spark.staged import PartFile, blocks_of
from fifoq.staged import FORMAT_VERSION, Manifest, Part
from fifoq.staged_files import Place, StagedFiles
from store import ItemTooLarge
from store.blocks import HEADERS
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
        patch.setattr(staged, "BLOCK_RECORDS", sizes[0])
        patch.setattr(staged, "BLOCK_BYTES", sizes[1])
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
    monkeypatch.setattr(staged, "RECORD_BYTES_MAX", 3)
    with pytest.raises(ItemTooLarge, match="column data: a record of 4 bytes is over the limit"):
        taken_apart(batch_of(pa.array([b"1234"])))
    with pytest.raises(ValueError, match="column data: 1 rows are null"):
        taken_apart(batch_of(pa.array([b"1", None])))
    with pytest.raises(ValueError, match="column headers: headers is a dict of strings"):
        taken_apart(batch_of(pa.array([b"1"]), pa.array([[("k", None)]], MAP)))


def test_a_part_is_read_back_from_any_block_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "BLOCK_RECORDS", 3)
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
