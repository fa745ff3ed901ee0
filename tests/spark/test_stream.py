"""The stream source: every record once and in order, by real queries on real files."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fifoq.sync
from fifoq.consumers import read_position
from tests.spark.support import (
    SMALL_SEGMENTS,
    error_of,
    fill,
    finished,
    numbered,
    stream,
    until,
)


class Seen:
    """A sink that keeps the counters of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [row.counter for row in frame.select("counter").collect()]

    @property
    def counters(self) -> list[int]:
        return [counter for batch in sorted(self.batches) for counter in self.batches[batch]]


def start(frame: DataFrame, seen: Seen, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def drain(frame: DataFrame, checkpoint: Path) -> Seen:
    """One availableNow run."""
    seen = Seen()
    finished(start(frame, seen, checkpoint))
    return seen


def offset_of(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    assert progress is not None
    found: dict[str, Any] = json.loads(progress.sources[0].endOffset)
    return found


def test_a_run_reads_what_is_there_in_batches_and_the_next_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(2500))
    frame = stream(spark, path, maxRecordsPerTrigger=1000)
    first = drain(frame, checkpoint)
    assert [len(batch) for batch in first.batches.values()] == [1000, 1000, 500]
    fill(path, numbered(30))
    second = drain(frame, checkpoint)
    assert first.counters + second.counters == list(range(1, 2531))
    # Nothing new: no batch.
    assert drain(frame, checkpoint).batches == {}


def test_offsets_are_counters_in_json_and_progress_tells_the_lag(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(1200))
    query = start(stream(spark, path, maxRecordsPerTrigger=1000), Seen(), checkpoint)
    finished(query)
    kept = (checkpoint / "offsets/0").read_text().splitlines()
    assert {"counter": 1001, "queue": "main", "puts": 1000}.items() <= json.loads(kept[2]).items()
    first, second = [json.loads(each.sources[0].latestOffset) for each in query.recentProgress]
    assert (first["counter"], first["lagRecords"]) == (1201, 200)
    assert first["lagSeconds"] > 0
    assert (second["counter"], second["lagRecords"], second["lagSeconds"]) == (1201, 0, 0)


def test_a_running_query_takes_what_is_put_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many(numbered(10))
        seen = Seen()
        query = start(
            stream(spark, tmp_path / "store"),
            seen,
            tmp_path / "checkpoint",
            processingTime="0 seconds",
        )
        try:
            until(lambda: len(seen.counters) == 10)
            queue.put_many(numbered(5))
            until(lambda: len(seen.counters) == 15)
            queue.take_many(12)
            queue.put(b"last")
            until(lambda: len(seen.counters) == 16)
        finally:
            query.stop()
        # A stream removes nothing, and what was taken it has read before.
        assert seen.counters == list(range(1, 17))
        assert len(queue) == 4


@pytest.mark.parametrize(
    ("position", "first"), [("earliest", 1), ("latest", 31), ("11", 11), ("time", 21)]
)
def test_a_new_query_starts_where_it_is_told(
    spark: SparkSession, tmp_path: Path, position: str, first: int
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    with fifoq.sync.open(path) as queue:
        keys = [queue.put(payload) for payload in numbered(30)]
    if position == "time":
        moment = datetime.timedelta(microseconds=keys[20].timestamp // 1000)
        position = (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + moment).isoformat()
    frame = stream(spark, path, startingPosition=position)
    found = drain(frame, checkpoint).counters
    if position == "latest":
        assert found == []
        fill(path, numbered(5))
        found = drain(frame, checkpoint).counters
    assert found == list(range(first, 36 if position == "latest" else 31))


def test_bytes_limit_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path, [bytes(1000)] * 120, batch=10)
    seen = drain(stream(spark, path, maxBytesPerTrigger="50k"), tmp_path / "checkpoint")
    assert seen.counters == list(range(1, 121))
    sizes = [len(batch) for batch in seen.batches.values()]
    assert max(sizes) <= 50
    assert len(sizes) <= 4


def test_a_batch_waits_for_enough_records_but_not_for_ever(
    spark: SparkSession, tmp_path: Path
) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many(numbered(3))
        seen = Seen()
        frame = stream(spark, tmp_path / "store", minRecordsPerTrigger=10, maxTriggerDelay="1h")
        query = start(frame, seen, tmp_path / "checkpoint", processingTime="0 seconds")
        try:
            # The reader has been asked where the first batch ends, and there is none.
            until(lambda: query.lastProgress is not None)
            assert seen.counters == []
            queue.put_many(numbered(7))
            until(lambda: len(seen.counters) == 10)
        finally:
            query.stop()
        # Not three and then seven.
        assert [batch for batch in seen.batches.values() if batch] == [list(range(1, 11))]
        queue.put(b"too few")
        hasty = stream(spark, tmp_path / "store", minRecordsPerTrigger=10, maxTriggerDelay="200ms")
        query = start(hasty, seen, tmp_path / "checkpoint", processingTime="0 seconds")
        try:
            # Not only handed to the sink: Spark repeats a batch whose end it has not noted.
            until(lambda: len(seen.counters) == 11)
            until((tmp_path / "checkpoint/commits" / str(max(seen.batches))).exists)
        finally:
            query.stop()
    # A run over what is there does not wait for more.
    fill(tmp_path / "store", [b"one more"])
    assert drain(frame, tmp_path / "checkpoint").counters == [12]


def test_a_batch_whose_end_spark_has_not_noted_comes_again_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A query that ends between the sink and the note: the same number, the same records."""
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(10))
    drain(stream(spark, path), checkpoint)
    fill(path, numbered(3))
    assert drain(stream(spark, path), checkpoint).batches == {1: [11, 12, 13]}
    for note in (checkpoint / "commits").glob("*1*"):
        note.unlink()
    fill(path, numbered(2))
    assert drain(stream(spark, path), checkpoint).batches == {1: [11, 12, 13], 2: [14, 15]}


def test_records_that_were_reclaimed_unread_fail_the_query_with_their_range(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(1000))
    drain(stream(spark, path), checkpoint)
    fill(path, numbered(2000))
    with fifoq.sync.open(path, **SMALL_SEGMENTS) as queue:
        queue.take_many(2500)
        queue.put_many(numbered(1000))
        until(lambda: len(list(path.glob("*.log"))) < 4)
    told = error_of(lambda: drain(stream(spark, path), checkpoint))
    assert "DataLoss: queue 'main': counters 1001 to " in told
    gone = int(told.partition("counters 1001 to ")[2].split()[0])
    assert 1001 < gone <= 2500
    assert "set failOnDataLoss to false" in told
    seen = drain(stream(spark, path, failOnDataLoss="false"), checkpoint)
    assert seen.counters == list(range(gone + 1, 4001))


def test_counters_that_a_crash_skipped_are_no_loss(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    crash = (
        "import os, sys, fifoq.sync\n"
        "queue = fifoq.sync.open(sys.argv[1], durability='memory')\n"
        "queue.put_many([b'x'] * 10)\n"
        "queue.flush()\n"
        "os._exit(0)\n"
    )
    seen: list[int] = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", crash, str(path)], check=True)
        seen += drain(stream(spark, path), checkpoint).counters
    fill(path, [b"end"])
    seen += drain(stream(spark, path), checkpoint).counters
    assert len(seen) == 21
    assert seen == sorted(set(seen))
    assert seen[-1] > 21


def test_a_checkpoint_of_another_store_or_queue_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    fill(tmp_path / "one", numbered(10))
    fill(tmp_path / "two", numbered(10))
    drain(stream(spark, tmp_path / "one"), checkpoint)
    told = error_of(lambda: drain(stream(spark, tmp_path / "two"), checkpoint))
    assert "the query's checkpoint (its checkpointLocation) was made with store " in told
    assert f"but {tmp_path}/two is store " in told
    fill(tmp_path / "one", numbered(10), queue="other")
    told = error_of(lambda: drain(stream(spark, tmp_path / "one", queue="other"), checkpoint))
    assert "was made with queue 'main', not 'other' of" in told


def test_a_consumer_tells_what_its_checkpoint_proves(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(25))
    frame = stream(spark, path, consumer="loader", checkpoint=checkpoint, maxRecordsPerTrigger=10)
    assert drain(frame, checkpoint).counters == list(range(1, 26))
    position = read_position(str(path), "loader")
    assert position is not None
    assert (position.queue, position.checkpoint) == ("main", str(checkpoint))
    assert position.query == json.loads((checkpoint / "metadata").read_text())["id"]
    # Spark says nothing of the last batch, so it is known by the next look at the checkpoint.
    assert position.counter in (21, 26)
    assert drain(frame, checkpoint).counters == []
    position = read_position(str(path), "loader")
    assert position is not None
    assert position.counter == 26


def test_a_consumer_belongs_to_one_query(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    fill(path, numbered(10))
    drain(stream(spark, path, consumer="loader", checkpoint=checkpoint), checkpoint)
    other = tmp_path / "other"
    frame = stream(spark, path, consumer="loader", checkpoint=other)
    told = error_of(lambda: drain(frame, other))
    assert f"'loader' belongs to the query with the checkpoint {checkpoint}" in told
    # Once that is deleted the name is free again.
    checkpoint.rename(tmp_path / "aside")
    assert drain(frame, other).counters == list(range(1, 11))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingCounter": 1}, "option startingCounter: it is for spark.read alone."),
        ({"startingPosition": "12"}, "option startingPosition: 12 is outside queue 'main'"),
        ({"startingPosition": "noon"}, "option startingPosition: 'noon' is not earliest, latest,"),
        ({"maxRecordsPerTrigger": 0}, "option maxRecordsPerTrigger: '0' is not a whole number"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is not a duration such as"),
        ({"consumer": "loader"}, "option checkpoint: it is missing, and a consumer needs it"),
        ({"consumer": "../x", "checkpoint": "/c"}, "option consumer: consumer name '../x' is not"),
        ({"checkpoint": "/c"}, "option consumer: it is missing, and checkpoint means nothing"),
        (
            {"consumer": "a", "checkpoint": "hdfs://x/y"},
            "option checkpoint: hdfs://x/y is not in a local file system",
        ),
        (
            {"minRecordsPerTrigger": 5, "maxRecordsPerTrigger": 4},
            "option minRecordsPerTrigger: 5 is over maxRecordsPerTrigger, which is 4.",
        ),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], told: str
) -> None:
    fill(tmp_path / "store", numbered(10))
    said = error_of(
        lambda: drain(stream(spark, tmp_path / "store", **options), tmp_path / "checkpoint")
    )
    assert told in said
