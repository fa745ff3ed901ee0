"""Export and import: what comes back is what went out, whole or interrupted, in every format."""

from __future__ import annotations

import asyncio
import gc
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fifoq
import fifoq.sync
from fifoq.control.messages import NotThere
from fifoq.tools import pouring, sinks, snapshot
from fifoq.tools.copying import TargetInside
from fifoq.tools.exporting import OtherExport, export_records, format_of
from fifoq.tools.importing import import_records
from fifoq.tools.rows import Row
from fifoq.tools.sinks import FORMATS, Format
from fifoq.tools.sources import Incomplete
from fifoq.tools.streams import encode, msgpack_end, split
from store import AlreadyOpen, FormatError, Reader, open_log
from tests.tools.support import build, make, rows_in, scratch, stores

EACH_FORMAT = pytest.mark.parametrize("format", FORMATS)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))

SOME = [Row(queue="main", counter=n, timestamp=n, data=b"%d" % n) for n in range(1, 301)]


@EACH_FORMAT
@FEW
@example(rows=[])
@given(rows=stores())
def test_what_is_imported_is_what_was_exported(format: Format, rows: list[Row]) -> None:
    """Every column of every record, keys included; through a file and through a pipe."""

    async def round_trip(directory: Path) -> None:
        await build(directory / "a", rows)
        target = directory / f"out.{format}"
        pipe = io.BytesIO()
        for to in (target, pipe):
            told = await export_records(directory / "a", to, queues=None, format=format)
            assert told.records == len(rows)
        pipe.seek(0)
        for name, source in (("b", target), ("c", pipe)):
            put = await import_records(source, directory / name, format=format)
            assert (put.records, put.resumed) == (len(rows), 0)
            assert rows_in(directory / name) == rows

    with scratch() as directory:
        asyncio.run(round_trip(directory))


class Interrupted(BaseException):
    """As a Ctrl-C comes: at any point, and nobody catches it."""


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, parts and commits of few records, so that there are many points to stop at."""
    monkeypatch.setattr(snapshot, "PAGE_RECORDS", 20)
    monkeypatch.setattr(snapshot, "PAGE_BYTES", 1)
    monkeypatch.setattr(sinks, "SAVE_BYTES", 500)
    monkeypatch.setattr(sinks, "PART_RECORDS", 20)
    monkeypatch.setattr(pouring, "COMMIT_RECORDS", 20)


def stopping(at: int):  # type: ignore[no-untyped-def]
    """A progress that stops the work when that many records are done."""

    def progress(done: int, total: int) -> None:
        if done >= at:
            raise Interrupted

    return progress


def pieces(path: Path, rows: list[Row]) -> None:
    """A store with those rows in blocks of ten: a block is the smallest page."""
    with fifoq.sync.open(path) as queue:
        for start in range(0, len(rows), 10):
            queue.put_many([row.data for row in rows[start : start + 10]])


@EACH_FORMAT
def test_an_export_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, format: Format, small_steps: None
) -> None:
    pieces(tmp_path / "a", SOME[:200])
    target = tmp_path / f"out.{format}"
    done = 0
    for stop in range(40, 200, 40):
        with pytest.raises(Interrupted):
            asyncio.run(export_records(tmp_path / "a", target, progress=stopping(stop)))
        assert not target.is_file()
    # What was put meanwhile is not part of it.
    with fifoq.sync.open(tmp_path / "a") as queue:
        queue.put(b"late")
    told = asyncio.run(export_records(tmp_path / "a", target))
    assert told.records == 200
    assert done <= told.resumed < 200
    assert told.resumed >= 100
    assert not list(tmp_path.glob("*.part*"))
    asyncio.run(import_records(target, tmp_path / "b"))
    found = rows_in(tmp_path / "b")
    assert [row.data for row in found] == [row.data for row in SOME[:200]]
    assert found == rows_in(tmp_path / "a")[:200]


@EACH_FORMAT
def test_an_import_that_was_interrupted_goes_on_and_doubles_nothing(
    tmp_path: Path, format: Format, small_steps: None
) -> None:
    make(tmp_path / "a", SOME)
    target = tmp_path / f"out.{format}"
    asyncio.run(export_records(tmp_path / "a", target))
    for stop in (20, 100, 120, 299):
        with pytest.raises(Interrupted):
            asyncio.run(import_records(target, tmp_path / "b", progress=stopping(stop)))
        # Usable in between: a whole number of commits, in order.
        found = rows_in(tmp_path / "b")
        assert found == SOME[: len(found)]
        assert len(found) >= stop
    told = asyncio.run(import_records(target, tmp_path / "b"))
    assert (told.records, told.keys_kept) == (300, True)
    assert rows_in(tmp_path / "b") == SOME
    # Once more: nothing is done twice, unless that is what one wants.
    assert asyncio.run(import_records(target, tmp_path / "b")).resumed == 300
    assert len(rows_in(tmp_path / "b")) == 300
    twice = asyncio.run(import_records(target, tmp_path / "b", again=True))
    assert (twice.records, twice.keys_kept) == (300, False)
    assert [row.data for row in rows_in(tmp_path / "b")] == [row.data for row in SOME] * 2


def test_a_reader_that_is_stopped_leaves_nothing_for_asyncio_to_tell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of the reading that was stopped once came out as one that nobody retrieved."""

    async def cancelled() -> None:
        reader, writer = os.pipe()
        with open(reader, "rb") as source:
            task = asyncio.ensure_future(import_records(source, tmp_path / "a", format="ndjson"))
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        os.close(writer)

    asyncio.run(cancelled())
    gc.collect()
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []


def test_an_export_is_not_mixed_with_another(tmp_path: Path, small_steps: None) -> None:
    pieces(tmp_path / "a", SOME)
    pieces(tmp_path / "b", SOME)
    target = tmp_path / "out.ndjson"
    with pytest.raises(Interrupted):
        asyncio.run(export_records(tmp_path / "a", target, progress=stopping(100)))
    with pytest.raises(OtherExport, match="another store"):
        asyncio.run(export_records(tmp_path / "b", target))
    with pytest.raises(OtherExport):
        asyncio.run(export_records(tmp_path / "a", target, removed=True))
    told = asyncio.run(export_records(tmp_path / "b", target, restart=True))
    assert (told.records, told.resumed) == (300, 0)
    with pytest.raises(OtherExport, match="it exists"):
        asyncio.run(export_records(tmp_path / "a", target))
    (tmp_path / "tables.parquet").mkdir()
    (tmp_path / "tables.parquet/mine").touch()
    with pytest.raises(OtherExport, match="it exists"):
        asyncio.run(export_records(tmp_path / "a", tmp_path / "tables.parquet", restart=True))


def test_an_export_does_not_go_into_the_store_it_comes_from(tmp_path: Path) -> None:
    """A file of somebody's between its own is none that a store would know."""
    make(tmp_path / "a", SOME[:3])
    (tmp_path / "link").symlink_to("a")
    before = sorted(tmp_path.rglob("*"))
    for target in ("a/out.ndjson", "a/deep/out.parquet", "link/out.msgpack", "x/../a/out.arrow"):
        with pytest.raises(TargetInside, match="Name a place elsewhere"):
            asyncio.run(export_records(tmp_path / "a", f"{tmp_path}/{target}"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_live_store_is_exported_and_only_read(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "a") as queue:
        queue.put_many([b"one", b"two"])
        queue.put(b"three", headers={"a": "b"}, delay=3600)
        with queue.lease():
            told = asyncio.run(export_records(tmp_path / "a", tmp_path / "out.ndjson"))
    assert told.records == 3
    asyncio.run(import_records(tmp_path / "out.ndjson", tmp_path / "b"))
    with fifoq.sync.open(tmp_path / "b") as queue:
        assert len(queue) == 3
        with queue.lease() as delivery:
            assert (delivery.item, delivery.attempt) == (b"one", 2)
        assert queue.take() == b"two"
        assert queue.stats().delayed == 1


def test_options_and_type_of_a_queue_come_along(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "a", type=list[int], priorities=True, maxsize=7) as queue:
        queue.put([1], priority=9)
        queue.put([2], priority=0)
    asyncio.run(export_records(tmp_path / "a", tmp_path / "out.msgpack"))
    asyncio.run(import_records(tmp_path / "out.msgpack", tmp_path / "b"))
    with pytest.raises(fifoq.SchemaMismatch):
        fifoq.sync.open(tmp_path / "b", type=list[str])
    with fifoq.sync.open(tmp_path / "b", type=list[int]) as queue:
        assert [queue.take(), queue.take()] == [[2], [1]]


def test_records_that_are_only_retained_come_along_if_asked_for(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "a", retention="all") as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.take()
    for removed, count in ((False, 2), (True, 3)):
        target = tmp_path / f"{removed}.ndjson"
        told = asyncio.run(export_records(tmp_path / "a", target, removed=removed))
        assert told.records == count


def test_what_people_write_by_hand_is_imported(tmp_path: Path) -> None:
    source = tmp_path / "mine.ndjson"
    source.write_text(
        '{"data": "plain"}\n\n'
        '{"base64": "AAH/", "headers": {"a": "b"}, "other": [1, {"x": null}]}\n'
        '{"queue": "bills", "data": "last"}'
    )
    told = asyncio.run(import_records(source, tmp_path / "a", queue="orders"))
    assert (told.records, told.keys_kept) == (3, False)
    with fifoq.sync.open(tmp_path / "a", queue="orders") as queue:
        with queue.lease() as first, queue.lease() as second:
            assert (first.item, second.item, second.headers) == (
                b"plain",
                b"\x00\x01\xff",
                {"a": "b"},
            )
        assert queue.take() == b"last"
    # Known again by its bytes; another source is not.
    assert asyncio.run(import_records(source, tmp_path / "a", queue="orders")).resumed == 3
    source.write_text('{"data": "new"}\n')
    assert asyncio.run(import_records(source, tmp_path / "a", queue="orders")).records == 1


def test_records_go_behind_what_is_there(tmp_path: Path) -> None:
    make(tmp_path / "a", SOME[:5])
    asyncio.run(export_records(tmp_path / "a", tmp_path / "out.ndjson"))
    with fifoq.sync.open(tmp_path / "b") as queue:
        queue.put(b"first")
    told = asyncio.run(import_records(tmp_path / "out.ndjson", tmp_path / "b"))
    assert not told.keys_kept
    rows = rows_in(tmp_path / "b")
    assert [row.counter for row in rows] == [1, *range(rows[1].counter, rows[1].counter + 5)]
    assert [row.data for row in rows] == [b"first", b"1", b"2", b"3", b"4", b"5"]


def test_a_source_that_stops_early_is_told_and_can_be_finished(tmp_path: Path) -> None:
    make(tmp_path / "a", SOME)
    asyncio.run(export_records(tmp_path / "a", tmp_path / "out.ndjson"))
    whole = (tmp_path / "out.ndjson").read_bytes()
    lines = whole.splitlines(keepends=True)
    cut = io.BytesIO(b"".join(lines[:101]))
    with pytest.raises(Incomplete, match="behind record 100"):
        asyncio.run(import_records(cut, tmp_path / "b", format="ndjson"))
    assert rows_in(tmp_path / "b") == SOME[:100]
    told = asyncio.run(import_records(io.BytesIO(whole), tmp_path / "b", format="ndjson"))
    assert (told.records, told.resumed) == (300, 100)
    assert rows_in(tmp_path / "b") == SOME
    cut.seek(0)
    told = asyncio.run(import_records(cut, tmp_path / "c", format="ndjson", partial=True))
    assert told.records == 100


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json\n", "object 1 of the ndjson stream"),
        ('{"data": 1}\n', "object 1 of the ndjson stream"),
        ('{"data": "a", "priority": 10}\n', "record 1: priority=10 is out of range"),
        ('{"data": "a", "queue": "NO"}\n', "queue name 'NO' is not allowed"),
        ('{"fifoq_export": 2, "id": "", "store": "", "queues": [], "exported_at": 1}', "newer"),
        ('{"data": "a"}\n{"fifoq_end": 2}\n', "ends with 2 records, and has 1"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.ndjson").write_text(text)
    with pytest.raises(fifoq.FifoqError, match=reason):
        asyncio.run(import_records(tmp_path / "bad.ndjson", tmp_path / "a"))


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, format: Format) -> None:
    (tmp_path / "bad").write_bytes(b"\xc1 nothing of the kind")
    with pytest.raises(FormatError):
        asyncio.run(import_records(tmp_path / "bad", tmp_path / "a", format=format))


def test_the_format_is_told_by_the_name_or_asked_for() -> None:
    assert [format_of(f"x.{format}") for format in FORMATS] == list(FORMATS)
    assert format_of("x.csv", "msgpack") == "msgpack"
    with pytest.raises(ValueError, match="tells no format"):
        format_of("x.csv")
    with pytest.raises(ValueError, match="none of"):
        format_of("x.csv", "csv")


@settings(max_examples=50, deadline=None)
@given(rows=stores(), width=st.integers(1, 50))
def test_a_stream_is_split_the_same_however_it_comes(rows: list[Row], width: int) -> None:
    for format in ("ndjson", "msgpack"):
        objects = [encode(format, row) for row in rows]
        whole = b"".join(objects)
        chunks = [whole[start : start + width] for start in range(0, len(whole), width)]
        assert list(split(format, chunks)) == objects
    for end in range(len(objects[0]) if objects else 0):
        assert msgpack_end(objects[0][:end], 0) is None


def test_an_export_that_finds_no_queue_says_which_there_are(tmp_path: Path) -> None:
    make(tmp_path / "a", [Row(queue="orders", counter=1, data=b"x")])
    with pytest.raises(NotThere, match="There are: orders"):
        asyncio.run(export_records(tmp_path / "a", tmp_path / "out.ndjson"))
    assert os.listdir(tmp_path) == ["a"]


def test_the_owner_of_a_live_store_is_asked_to_put(tmp_path: Path) -> None:
    rows = [
        Row(queue="main", counter=1, data=b"\xff", headers={"a": "b"}, ordering_key="k"),
        Row(queue="main", counter=9, data=b"later", deliver_at=2**62),
        Row(queue="other", counter=1, data=b"x" * (1 << 20), attempt=3),
    ]
    make(tmp_path / "a", rows)
    asyncio.run(export_records(tmp_path / "a", tmp_path / "out.msgpack", queues=None))
    with fifoq.sync.open_store(tmp_path / "b") as store:
        main = store.queue()
        main.put(b"first")
        with pytest.raises(pouring.QueueIsOpen, match="Stop the owner to import them as they are"):
            asyncio.run(import_records(tmp_path / "out.msgpack", tmp_path / "b"))
        for keep_keys in (False, True):
            # What is there already is not asked for again.
            told = asyncio.run(
                import_records(tmp_path / "out.msgpack", tmp_path / "b", keep_keys=keep_keys)
            )
            assert (told.records, told.keys_kept) == (3, False)
        assert told.resumed == 3
        assert [main.take(), main.take()] == [b"first", b"\xff"]
        assert main.stats().delayed == 1
        assert store.queue("other").take() == b"x" * (1 << 20)
        pipe = io.BytesIO(b'{"data": "by hand"}\n')
        asyncio.run(import_records(pipe, tmp_path / "b", format="ndjson"))
        assert main.take() == b"by hand"
    with Reader(str(tmp_path / "b")) as reader:
        marks = [name for name, entry in reader.state.states.items() if entry.present]
        # A pipe that nobody can know again leaves no mark.
        assert len([name for name in marks if name.startswith("import/")]) == 1


def test_an_import_into_a_live_store_goes_on_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_steps: None
) -> None:
    monkeypatch.setattr(pouring, "PAGE_RECORDS", 7)
    make(tmp_path / "a", SOME)
    asyncio.run(export_records(tmp_path / "a", tmp_path / "out.ndjson"))
    with fifoq.sync.open(tmp_path / "b") as queue:
        queue.put(b"first")
        for stop in (20, 100, 299):
            with pytest.raises(Interrupted):
                asyncio.run(
                    import_records(
                        tmp_path / "out.ndjson",
                        tmp_path / "b",
                        keep_keys=False,
                        progress=stopping(stop),
                    )
                )
        told = asyncio.run(import_records(tmp_path / "out.ndjson", tmp_path / "b", keep_keys=False))
        assert told.resumed >= 280
        assert [queue.take() for _ in range(301)] == [b"first", *(row.data for row in SOME)]
    # Begun with keys while nobody owned it, it is not gone on with by asking.
    with pytest.raises(Interrupted):
        asyncio.run(import_records(tmp_path / "out.ndjson", tmp_path / "c", progress=stopping(20)))
    with fifoq.sync.open(tmp_path / "c"), pytest.raises(pouring.QueueIsOpen, match="Stop the own"):
        asyncio.run(import_records(tmp_path / "out.ndjson", tmp_path / "c"))


def test_an_owner_that_cannot_be_asked_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pouring, "BUSY_SECONDS", 0.0)
    with open_log(tmp_path / "b"), pytest.raises(AlreadyOpen):
        asyncio.run(import_records(io.BytesIO(b"{}"), tmp_path / "b", format="ndjson"))
