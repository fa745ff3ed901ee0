"""The sink adds each record once: real Spark jobs, real queues, free and owned by somebody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import fifoq.sync
from fifoq.spark.sink import make_stream_writer, make_writer, write_part
from tests.support.figures import record

COUNT = 4000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def numbers(spark: SparkSession, count: int = COUNT, partitions: int = 3) -> DataFrame:
    """Rows 0..count-1 in order, with their number as data."""
    return spark.range(0, count, 1, partitions).select(f.col("id").cast("string").alias("data"))


def write(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("fifoq").mode("append").options(**options).save(str(path))


def payloads(path: Path, queue: str = "main") -> list[bytes]:
    with fifoq.sync.open(path, queue=queue) as q:
        return [record.item for record in q.browse()]


def expected(count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def left(path: Path) -> list[str]:
    return sorted(os.listdir(path / "staged"))


def test_a_job_adds_its_rows_in_order_to_a_store_that_it_makes(
    spark: SparkSession, store: Path
) -> None:
    write(numbers(spark, 0), store, queue="orders")
    assert payloads(store, "orders") == []
    write(numbers(spark), store, queue="orders")
    assert payloads(store, "orders") == expected()
    assert left(store) == []


def test_binary_data_and_headers_come_as_they_are(spark: SparkSession, store: Path) -> None:
    rows = [(b"\x00\xff", {"k": "v", "ü": "ö"}), (b"", None), (b"x" * 70_000, {})]
    frame = spark.createDataFrame(rows, "data BINARY, headers MAP<STRING,STRING>").coalesce(1)
    write(frame, store)
    with fifoq.sync.open(store) as q:
        records = list(q.browse())
    assert [record.item for record in records] == [data for data, _ in rows]
    assert [record.headers for record in records] == [headers or {} for _, headers in rows]


def test_attributes_come_as_they_are_and_null_says_nothing(
    spark: SparkSession, store: Path
) -> None:
    with fifoq.sync.open(store, priorities=True):
        pass
    soon = datetime.now(UTC).replace(microsecond=1) + timedelta(days=1)
    rows = [
        (b"plain", None, None, None),
        (b"last", 9, None, "k"),
        (b"first", 0, datetime(2001, 1, 1, tzinfo=UTC), "ü"),
        (b"later", 5, soon, None),
    ]
    schema = "data BINARY, priority INT, deliver_at TIMESTAMP, ordering_key STRING"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    write(frame, store)
    with fifoq.sync.open(store) as q:
        write(frame.where("data <> 'first'"), store)
        assert (len(q), q.stats().delayed) == (7, 2)
    reader = spark.read.format("fifoq").option("includeAttributes", "true").load(str(store))
    found = reader.select(*("data", "priority", "ordering_key"), reader.deliver_at == f.lit(soon))
    others = [(b"plain", 5, None, None), (b"last", 9, "k", None), (b"later", 5, None, True)]
    expected = [*others[:2], (b"first", 0, "ü", None), *others[2:], *others]
    assert [tuple(row) for row in found.orderBy("counter").collect()] == expected
    with fifoq.sync.open(store) as q:
        assert [q.take(timeout=30) for _ in range(3)] == [b"first", b"plain", b"plain"]


def test_rows_whose_ids_the_window_knows_are_left_out(spark: SparkSession, store: Path) -> None:
    rows = [(b"a", "1"), (b"again", "1"), (b"b", "2"), (b"plain", None), (b"plain", None)]
    frame = spark.createDataFrame(rows, "data BINARY, dedup_id STRING").coalesce(1)
    write(frame, store)
    with fifoq.sync.open(store) as q:
        write(frame.where("dedup_id IS NOT NULL"), store)
        keys = q.put_many([b"x", b"x"], dedup_ids=["2", "1"])
        assert [key.counter for key in keys] == [2, 1]
    assert payloads(store) == [b"a", b"b", b"plain", b"plain"]


def test_priorities_for_a_queue_without_are_refused_with_the_job(
    spark: SparkSession, store: Path
) -> None:
    write(spark.sql("SELECT 'a' AS data, 5 AS priority"), store)
    with pytest.raises(PySparkException, match="queue 'main' has no priorities, and the column"):
        write(spark.sql("SELECT 'b' AS data, 1 AS priority"), store)
    assert payloads(store) == [b"a"]


def test_a_queue_that_this_process_owns_gets_the_rows_while_it_goes_on(
    spark: SparkSession, store: Path
) -> None:
    with fifoq.sync.open(store) as q:
        q.put(b"before")
        write(numbers(spark), store)
        q.put(b"after")
        assert [record.item for record in q.browse()] == [b"before", *expected(), b"after"]
    assert left(store) == []


def test_a_named_job_that_runs_again_adds_nothing(spark: SparkSession, store: Path) -> None:
    for _ in range(2):
        write(numbers(spark, 100), store, writer="nightly", batch="1")
    write(numbers(spark, 100), store, writer="nightly", batch="2")
    assert payloads(store) == expected(100) * 2


def test_what_nobody_takes_in_is_durable_and_comes_with_the_next_open(
    spark: SparkSession, store: Path
) -> None:
    with fifoq.sync.open_store(store) as owner:
        intake = owner._store._staged
        owner._thread.run(intake.stop)
        write(numbers(spark, 100), store, ingestTimeout="0.2")
        assert owner.queues() == []
        assert len([name for name in left(store) if name.endswith(".manifest")]) == 1
    # The first open after it takes it in, a moment later.
    with fifoq.sync.open(store) as q:
        assert [q.take(timeout=30) for _ in range(100)] == expected(100)
    assert left(store) == []


def test_a_job_of_which_one_task_fails_for_good_adds_nothing(
    spark: SparkSession, store: Path
) -> None:
    write(numbers(spark, 5), store)
    broken = (
        numbers(spark)
        .select(
            f.when(f.col("data") == "3999", f.raise_error(f.lit("broken"))).otherwise(f.col("data"))
        )
        .toDF("data")
    )
    with pytest.raises(PySparkException):
        write(broken, store)
    assert payloads(store) == expected(5)
    assert left(store) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'a' AS data, 1 AS id", r"column id: the sink takes data BINARY"),
        ("1 AS data", r"column data: it is INT, and BINARY \(or STRING, as UTF-8\) is expected"),
        ("'a' AS text", r"column data is missing"),
        ("'a' AS data, map('k', 1) AS headers", r"MAP<STRING,INT>, and MAP<STRING,STRING>"),
        ("'a' AS data, 1L AS priority", r"column priority: it is BIGINT, and INT is expected"),
        ("'a' AS data, 1 AS deliver_at", r"column deliver_at: it is INT, and TIMESTAMP is"),
        (
            "'a' AS data, localtimestamp() AS deliver_at",
            r"column deliver_at: it is TIMESTAMP_NTZ, and TIMESTAMP is expected",
        ),
        ("'a' AS data, 1 AS ordering_key", r"column ordering_key: it is INT, and STRING is"),
        ("'a' AS data, 1 AS dedup_id", r"column dedup_id: it is INT, and STRING is expected"),
    ],
)
def test_wrong_columns_are_named_before_anything_is_written(
    spark: SparkSession, store: Path, columns: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT {columns}"), store)
    assert not store.exists()


def test_a_null_is_refused_and_nothing_is_added(spark: SparkSession, store: Path) -> None:
    with pytest.raises(PySparkException, match="column data: 1 rows are null"):
        write(spark.sql("SELECT CAST(NULL AS BINARY) AS data"), store)
    assert payloads(store) == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("10 AS priority", "column priority: 10 is not one of 0"),
        ("'' AS ordering_key", "column ordering_key: a key of 0 bytes"),
        ("'' AS dedup_id", "column dedup_id: an id of 0 bytes"),
        ("TIMESTAMP '1960-01-01' AS deliver_at", "column deliver_at: -3"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_added(
    spark: SparkSession, store: Path, column: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT 'a' AS data, {column}"), store)
    assert payloads(store) == []
    assert left(store) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"writer": "Bad Name", "batch": "1"}, "option writer: writer name 'Bad Name'"),
        ({"writer": "w"}, "option writer: a job by that name needs the option `batch`"),
        ({"batch": "1"}, "option batch: it says which batch of a writer"),
        ({"writer": "w", "batch": "x"}, "option batch: 'x' is not a whole number"),
        ({"ingestTimeout": "soon"}, "option ingestTimeout: 'soon' is not a duration"),
        ({"batches": "1"}, "option batches: there is no such option"),
        ({"queue": "A B"}, "option queue"),
    ],
)
def test_wrong_options_are_named(
    spark: SparkSession, store: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(message)):
        write(numbers(spark, 1), store, **options)
    assert not store.exists()


# Streams.


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory of text files, each a micro-batch of 100 numbers."""
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


def add_file(directory: Path, number: int) -> None:
    lines = "\n".join(str(n) for n in range(number * 100, number * 100 + 100))
    drafted = directory.parent / f"draft-{number}"
    drafted.write_text(lines)
    os.utime(drafted, (1_700_000_000 + number, 1_700_000_000 + number))
    drafted.rename(directory / f"{number:04}.txt")


def stream(
    spark: SparkSession, source: Path, store: Path, checkpoint: Path, **options: str
) -> None:
    """Run what is there, one file a batch, to its end."""
    frame = (
        spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    ).select(f.col("value").alias("data"))
    query = (
        frame.writeStream.format("fifoq")
        .options(**{"writer": "w", "checkpointLocation": str(checkpoint), **options})
        .trigger(availableNow=True)
        .start(str(store))
    )
    query.awaitTermination()


def test_a_stream_adds_each_batch_once_though_its_commits_were_lost(
    spark: SparkSession, source: Path, store: Path, tmp_path: Path
) -> None:
    """A restart without the checkpoint's commit entry runs the last batch again."""
    checkpoint = tmp_path / "checkpoint"
    for number in range(2):
        add_file(source, number)
    stream(spark, source, store, checkpoint)
    assert payloads(store) == expected(200)
    for entry in (checkpoint / "commits").iterdir():
        if entry.name.strip(".").split(".")[0] == "1":
            entry.unlink()
    with fifoq.sync.open(store) as q:
        stream(spark, source, store, checkpoint)
        assert [record.item for record in q.browse()] == expected(200)
    add_file(source, 2)
    stream(spark, source, store, checkpoint)
    assert payloads(store) == expected(300)
    assert left(store) == []


def test_a_stream_needs_a_writer(
    spark: SparkSession, source: Path, store: Path, tmp_path: Path
) -> None:
    add_file(source, 0)
    frame = spark.readStream.format("text").load(str(source)).selectExpr("value AS data")
    writer = (
        frame.writeStream.format("fifoq")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(PySparkException, match="option writer: it is missing"):
        writer.start(str(store)).awaitTermination()


def test_a_new_checkpoint_with_an_old_writer_name_is_refused_aloud(
    spark: SparkSession, source: Path, store: Path, tmp_path: Path
) -> None:
    """Its batches are numbered from 0 again: taken for known ones, they would vanish."""
    add_file(source, 0)
    stream(spark, source, store, tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(PySparkException, match="belongs to the query"):
        stream(spark, source, store, tmp_path / "two")
    stream(spark, source, store, tmp_path / "three", writer="w3")
    assert payloads(store) == expected(100) * 2


def test_only_the_attempt_that_spark_counts_is_in_the_queue(tmp_path: Path) -> None:
    """A task may be lost after it wrote all of its part, or run twice beside itself."""
    path = tmp_path / "store"
    schema = StructType([StructField("data", BinaryType())])
    writer = make_writer({"path": str(path), "writer": "w", "batch": "0"}, schema, False)
    rows = pa.record_batch([pa.array([b"a", b"b"])], names=["data"])
    writer.write(iter([rows]))
    counted = writer.write(iter([rows]))
    writer.write(iter([rows]))
    assert len(left(path)) == 3
    writer.commit([counted])
    assert left(path) == []
    assert payloads(path) == [b"a", b"b"]


def test_a_batch_that_two_drivers_commit_at_once_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    options = {"path": str(path), "writer": "w"}
    schema = StructType([StructField("data", StringType())])
    writer = make_stream_writer({**options, "ingestTimeout": "0"}, schema, False)
    rows = pa.record_batch([pa.array(["a", "b"])], names=["data"])
    sink = writer._sink
    first = write_part(sink, [rows], 3, "q")
    second = write_part(sink, [rows], 3, "q")
    with fifoq.sync.open_store(path) as owner:
        owner._thread.run(owner._store._staged.stop)
        writer.commit([first], 3)
        writer.commit([second], 3)
        assert len(left(path)) == 2
    writer = make_stream_writer(options, schema, False)
    for _ in range(2):
        writer.commit([write_part(sink, [rows], 3, "q")], 3)
        assert payloads(path) == [b"a", b"b"]


def test_tasks_whose_workers_are_killed_in_the_middle_add_nothing_twice(tmp_path: Path) -> None:
    """A driver of its own, since this session's tasks are not tried again."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_tasks", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    killed = [line for line in (tmp_path / "killed").read_text().splitlines() if line]
    assert len(killed) == 2 + 2 * 2, "each partition of the job, and of two micro-batches"
    assert payloads(tmp_path / "store", "job") == expected(2000)
    assert sorted(payloads(tmp_path / "store", "stream"), key=int) == expected(400)
    assert left(tmp_path / "store") == []
    record("sink tasks whose worker was killed", count=len(killed))
