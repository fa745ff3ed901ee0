"""Readers, names and buffers at the edges of what Spark usually does, without a session."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMinRows,
)
from pyspark.sql.types import BinaryType, StructField, StructType

import fifoq.sync
from fifoq import QueueClosed
from fifoq.consumers import Position, read_position, write_position
from fifoq.spark import DrainError, StagingBuffer
from fifoq.spark.consumer import Consumer, ConsumerInUse
from fifoq.spark.handover import Patience, SinkRefused
from fifoq.spark.options import Target
from fifoq.spark.sink import (
    JobWriter,
    Sink,
    StreamWriter,
    batch_is_known,
    commit,
    make_stream_writer,
    make_writer,
    write_part,
)
from fifoq.spark.source import FifoqSource
from fifoq.spark.staged import LEFTOVER_SECONDS, discard_leftovers, make_directory, staged_path
from fifoq.spark.stream import StreamReader
from tests.spark.support import SMALL_SEGMENTS, fill, until

CRASH = """
import os, sys, fifoq.sync
queue = fifoq.sync.open(sys.argv[1], durability="memory")
queue.put_many([b"x" * 100] * 10)
queue.flush()
os._exit(0)
"""


def reader(path: Path, **options: str) -> StreamReader:
    source = FifoqSource({"path": str(path), **options})
    found = source.streamReader(source.schema())
    assert isinstance(found, StreamReader)
    return found


@pytest.mark.parametrize(
    ("option", "limit"),
    [
        (("minRecordsPerTrigger", "1000"), ReadMinRows(1000)),
        (("maxBytesPerTrigger", "500"), ReadMaxBytes(500)),
    ],
)
def test_the_lag_is_told_across_counters_that_a_crash_skipped(
    tmp_path: Path, option: tuple[str, str], limit: ReadLimit
) -> None:
    """The end of a batch lay in the gap, and asking for the lag there failed every restart."""
    path = tmp_path / "store"
    subprocess.run([sys.executable, "-c", CRASH, str(path)], check=True)
    found = reader(path, **{option[0]: option[1]})
    start = found.initialOffset()
    with fifoq.sync.open(path) as queue:
        assert queue.put(b"y" * 100).counter > 11
    # A fresh one sees what was committed just before.
    found = reader(path, **{option[0]: option[1]})
    start["counter"] = 11
    start["puts"] = 10
    assert found.latestOffset(start, limit)["counter"] >= 11
    told = found.reportLatestOffset()
    assert told is not None
    assert told["lagRecords"] <= 1
    assert 0 <= told["lagSeconds"] < 3600
    found.stop()


def test_what_is_reclaimed_before_there_is_a_position_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that starts with the oldest record looks which that is, and then says: keep it."""
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, [bytes(1000)] * 300, batch=10)
    oldest = min(path.glob("*.log"))

    class Late(Consumer):
        def __init__(self, *given: Any) -> None:
            if oldest.exists():
                with fifoq.sync.open(path, **SMALL_SEGMENTS) as queue:
                    queue.take_many(200)
                    for _ in range(10):
                        queue.put_many([bytes(1000)] * 10)
                    until(lambda: not oldest.exists())
            super().__init__(*given)

    monkeypatch.setattr("fifoq.spark.stream.Consumer", Late)
    found = reader(path, consumer="loader", checkpoint=str(checkpoint))
    start = found.initialOffset()
    assert 1 < start["counter"] <= 201
    end = found.latestOffset(start, ReadAllAvailable())
    rows = [
        counter
        for part in found.partitions(start, end)
        for batch in found.read(part)
        for counter in batch["counter"].to_pylist()
    ]
    assert rows == list(range(start["counter"], 401))
    position = read_position(str(path), "loader")
    assert position is not None
    assert position.counter == start["counter"]
    found.stop()


def test_an_unknown_argument_of_a_buffer_is_told_with_all_there_are(tmp_path: Path) -> None:
    with pytest.raises(TypeError) as told:
        StagingBuffer(tmp_path / "store", _no_session, to=str(tmp_path), drain_record=5)
    assert str(told.value).startswith(
        "unknown option 'drain_record'; a staging buffer has path, spark, to, transform, queue, "
    )
    for name in ("drain_records", "pressure_high", "segment_bytes"):
        assert name in str(told.value)
    assert not (tmp_path / "store").exists()


def test_the_name_of_an_archive_is_not_taken_over_and_that_of_a_lost_query_is(
    tmp_path: Path,
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    with fifoq.sync.open(path) as queue:
        queue.put(b"x")
    store = reader(path).initialOffset()["store"]
    position = Position(queue="main", counter=1, store=store, checkpoint="", query="", written_at=1)
    write_position(str(path), "night", position)
    stream = {"consumer": "night", "checkpoint": str(checkpoint)}
    with pytest.raises(ConsumerInUse, match="something that is no query"):
        reader(path, **stream).initialOffset()
    gone = Position(
        queue="other",
        counter=1,
        store=store,
        checkpoint=str(tmp_path / "deleted"),
        query="",
        written_at=1,
    )
    write_position(str(path), "night", gone)
    assert reader(path, **stream).initialOffset()["counter"] == 1


def test_a_token_is_in_no_text_of_a_target() -> None:
    assert "secret" not in repr(Target("fifoq://host:1", "main", {"token": "secret"}))


@pytest.mark.parametrize("use", ["put", "put_many", "put_nowait", "stats", "__len__"])
def test_a_buffer_that_is_not_open_says_so(tmp_path: Path, use: str) -> None:
    buffer = StagingBuffer(tmp_path / "store", _no_session, to=str(tmp_path / "table"))
    with pytest.raises(QueueClosed, match="not open"):
        getattr(buffer, use)()
    assert not hasattr(buffer, "nothing")


def test_a_close_that_is_cancelled_lets_the_store_go(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "store"
        buffer = await StagingBuffer(path, _no_session, to=str(tmp_path / "table")).open()
        closing = asyncio.ensure_future(buffer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        async with fifoq.open(path) as queue:
            assert queue.empty()

    asyncio.run(main())


def test_a_damaged_manifest_stops_no_new_writer(tmp_path: Path) -> None:
    """Which of the old parts it names is unknown, so all of them stay."""
    part, manifest = tmp_path / "w~0~run~0~1-a.part", tmp_path / "main~w~0.manifest"
    part.write_bytes(b"part")
    manifest.write_bytes(b"damaged")
    long_ago = time.time() - 2 * LEFTOVER_SECONDS
    os.utime(part, (long_ago, long_ago))
    discard_leftovers(tmp_path)
    assert part.exists()
    manifest.unlink()
    discard_leftovers(tmp_path)
    assert not part.exists()


def _no_session() -> SparkSession:
    raise AssertionError("nothing is to be drained")


def staged_sink(path: Path, *, run: str = "", batch: int = 0) -> Sink:
    with fifoq.sync.open(path):
        pass
    store = reader(path).initialOffset()["store"]
    make_directory(staged_path(str(path)))
    return Sink(str(path), "main", store, "w", batch, run, False, Patience(0.2, 0.2))


def batches(*payloads: bytes) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array(list(payloads), pa.binary())], ["data"])]


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    sink = staged_sink(path, run="job-1")

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(b"1", b"2")
        raise ValueError("the rest is not to be had")

    with pytest.raises(ValueError, match="the rest"):
        write_part(sink, failing(), 0, sink.run)
    assert os.listdir(staged_path(str(path))) == []


def test_an_abort_after_the_commit_point_takes_nothing_back(tmp_path: Path) -> None:
    """Spark aborts whenever a commit fails, also one that failed while it waited for the owner."""
    path = tmp_path / "store"
    sink = staged_sink(path, run="job-1")
    written = write_part(sink, batches(b"1", b"2"), 0, sink.run)
    # Of an owner that does not get to it in time.
    lock = LocalOwner(path)
    commit(sink, [written], 0)
    JobWriter(sink).abort([written])
    StreamWriter(sink).abort([written], 0)
    lock.close()
    with fifoq.sync.open(path) as queue:
        assert [queue.take(timeout=10), queue.take(timeout=10)] == [b"1", b"2"]


def test_a_batch_is_known_from_its_manifest_on(tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert not batch_is_known(str(path), "main", "w", 1)
    sink = staged_sink(path, run="job-1", batch=1)
    assert not batch_is_known(str(path), "main", "w", 1)
    lock = LocalOwner(path)
    commit(sink, [write_part(sink, batches(b"1"), 1, sink.run)], 1)
    assert batch_is_known(str(path), "main", "w", 1)
    lock.close()
    with fifoq.sync.open(path) as queue:
        assert queue.take(timeout=10) == b"1"
    assert os.listdir(staged_path(str(path))) == []
    assert [batch_is_known(str(path), "main", "w", batch) for batch in (0, 1, 2)] == [
        *(True, True, False)
    ]
    assert not batch_is_known(str(path), "main", "other", 1)


def test_a_micro_batch_waits_less_for_the_owner_than_a_job(tmp_path: Path) -> None:
    """Spark cannot interrupt a commit: while one waits, `query.stop()` does too."""
    schema = StructType([StructField("data", BinaryType())])
    options = {"path": str(tmp_path / "store"), "writer": "w"}
    assert make_stream_writer(options, schema, False)._sink.wait == Patience(1, 10)
    assert make_writer({**options, "batch": "1"}, schema, False)._sink.wait == Patience(60, 60)
    given = {**options, "ingestTimeout": "500ms"}
    assert make_stream_writer(given, schema, False)._sink.wait == Patience(0.5, 0.5)


def test_a_micro_batch_waits_longer_behind_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first does not wait for a loop that may wait for it; the next ones do not pile up."""
    path = tmp_path / "store"
    sink = msgspec.structs.replace(staged_sink(path), wait=Patience(0.0, 0.2))
    lock = LocalOwner(path)
    for number in range(3):
        commit(sink, [write_part(sink, batches(b"%d" % number), number, "q")], number)
    lock.close()
    waited = [entry.args[1] for entry in caplog.records if isinstance(entry.args, tuple)]
    assert waited == [0.0, 0.2, 0.2]
    # Nobody owns it now: who commits does, and takes in all that waits.
    commit(sink, [write_part(sink, batches(b"3"), 3, "q")], 3)
    with fifoq.sync.open(path) as queue:
        assert [queue.take(timeout=10) for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_a_batch_that_is_refused_when_nobody_waits_any_more_fails_the_next_one(
    tmp_path: Path,
) -> None:
    """Otherwise the query goes on behind a hole, and only the owner's log knows of it."""
    path = tmp_path / "store"
    sink = msgspec.structs.replace(staged_sink(path), wait=Patience(0.0, 10.0))
    lock = LocalOwner(path)
    written = write_part(sink, batches(b"0"), 0, "q")
    commit(sink, [written], 0)
    (sink.directory / written.name).write_bytes(b"not what was written")
    lock.close()
    with fifoq.sync.open(path):
        until(lambda: any(name.endswith(".refused") for name in os.listdir(sink.directory)))
    mine, other = (write_part(sink, batches(b"1"), 1, query) for query in ("q", "another"))
    with pytest.raises(SinkRefused, match="batch 0 of writer 'w' was refused after its commit"):
        commit(sink, [mine], 1)
    # It is nothing to another query, which may not use the name anyway once this one has.
    commit(sink, [other], 1)
    with fifoq.sync.open(path) as queue:
        assert queue.take(timeout=10) == b"1"


def test_a_second_query_with_the_same_writer_is_told_at_once(tmp_path: Path) -> None:
    """Its batch was dropped as one that was known, and nobody heard of it."""
    path = tmp_path / "store"
    sink = staged_sink(path)
    lock = LocalOwner(path)
    commit(sink, [write_part(sink, batches(b"1"), 0, "query-1")], 0)
    other = write_part(sink, batches(b"2"), 0, "query-2")
    with pytest.raises(SinkRefused, match="used by another query, query-1"):
        commit(sink, [other], 0)
    lock.close()
    with fifoq.sync.open(path) as queue:
        assert queue.take(timeout=10) == b"1"
        assert queue.empty()


def test_a_checkpoint_that_is_ahead_of_its_store_removes_nothing(tmp_path: Path) -> None:
    """A store brought back from an older copy lost what was put since."""
    path, checkpoint = tmp_path / "store", tmp_path / "store.checkpoint"
    with fifoq.sync.open(path) as queue:
        queue.put_many([b"x"] * 10)
    store = reader(path).initialOffset()["store"]
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "offsets/0").write_text(f'v1\n{{}}\n{{"counter":101,"store":"{store}"}}')
    (checkpoint / "commits/0").write_text("v1\n{}")

    async def main() -> None:
        with pytest.raises(DrainError, match="an older copy than the checkpoint"):
            await StagingBuffer(path, _no_session, to=lambda number, frame: None).open()
        async with fifoq.open(path) as queue:
            assert len(queue) == 10

    asyncio.run(main())


class LocalOwner:
    """Owns a store in a process that takes nothing in."""

    def __init__(self, path: Path) -> None:
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        os.close(self._directory)
