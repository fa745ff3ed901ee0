"""The Spark source against a Parquet scan of the same records, in the same session.

Nothing here is imported before a row of it runs. Without PySpark or Java its rows are absent.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import fifoq.sync
from fifoq.bench.measure import PAYLOAD_BYTES, Absent, Row, Setting, duration, rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 5_000_000
BACKLOG = 1_000_000
PUT_RECORDS = 1000
PLANNED_TRIGGERS = 21
TRIGGER_RECORDS = 2_500_000
WARM_UPS = 4
"""Rounds that are not counted: Java compiles what it runs often."""
ROUNDS_MAX = 3
GROWTH = 10

Rows = list[Row | Absent]
Measure = Callable[["SparkSession", Setting], list[Row]]


def needing_spark(name: str, measure: Measure) -> Callable[[Setting], Rows]:
    """Rows that need a session: the one that runs, or one for them alone."""

    def rows(setting: Setting) -> Rows:
        try:
            with _session() as spark:
                return list(measure(spark, setting))
        except ImportError:
            return [Absent(name, "pip install 'fifoq[spark]'")]
        except _NoJava as error:
            return [Absent(name, str(error))]

    return rows


class _NoJava(Exception):
    """There is no Java; the message says what to install."""


@contextmanager
def _session() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    import fifoq.spark

    running = SparkSession.getActiveSession()
    if running is not None:
        fifoq.spark.register(running)
        yield running
        return
    try:
        spark = fifoq.spark.session("fifoq bench", conf={"spark.driver.memory": "2g"})
    except fifoq.spark.JavaMissing as error:
        raise _NoJava(str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


def fill(path: Path, count: int) -> None:
    """Put so many records, all different: Parquet would keep equal ones once."""
    with fifoq.sync.open(path, durability="os") as queue:
        for start in range(0, count, PUT_RECORDS):
            data = os.urandom(min(PUT_RECORDS, count - start) * PAYLOAD_BYTES)
            queue.put_many(
                [data[at : at + PAYLOAD_BYTES] for at in range(0, len(data), PAYLOAD_BYTES)]
            )


def scan(spark: SparkSession, setting: Setting) -> list[Row]:
    """All records to a sink that drops them, their number, and their length."""
    from fifoq.bench.spark_rows import ReadySource, RowsSource

    spark.dataSource.register(RowsSource)
    spark.dataSource.register(ReadySource)
    count = setting.count(RECORDS)
    with setting.fresh("store") as path, setting.fresh("parquet") as parquet:
        fill(path, count)

        def ours(columns: str = "", source: str = "fifoq") -> DataFrame:
            reader = spark.read.format(source)
            return (reader.schema(columns) if columns else reader).load(str(path))

        ours().write.option("compression", "none").parquet(str(parquet))
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: _drop(ours()),
            "parquet": lambda: _drop(spark.read.parquet(str(parquet))),
            "ours, count": lambda: ours("counter LONG").count(),
            "ours, length": lambda: _length(ours("data BINARY")),
            "parquet, length": lambda: _length(spark.read.parquet(str(parquet))),
            "ready batches": lambda: _length(ours("data BINARY", ReadySource.name())),
            "rows": lambda: _drop(ours(source=RowsSource.name())),
        }
        found = _in_turns(setting, sides)
    return [
        _ratio("Spark scan to noop, of Parquet", found, "ours", "parquet", count, 0.6),
        _ratio("  count, of a Parquet scan", found, "ours, count", "parquet", count, 0.6),
        _ratio(
            "  sum(length(data)), of Parquet", found, "ours, length", "parquet, length", count, 0.6
        ),
        _ratio("    of what Spark allows", found, "ours, length", "ready batches", count, 0.75),
        _ratio("  of the same source yielding rows", found, "ours", "rows", count, 5.0),
    ]


def stream(spark: SparkSession, setting: Setting) -> list[Row]:
    """Batches of a running query, without its first ones, against a scan of the same records."""
    count = setting.count(RECORDS)
    limit = setting.count(TRIGGER_RECORDS)
    with setting.fresh("store") as path:
        fill(path, count)
        found = _in_turns(setting, {"scan": partial(_scan, spark, path)})
        rates = []
        for turn in range(_warm_ups(setting) + min(setting.rounds, ROUNDS_MAX)):
            with setting.fresh(f"checkpoint{turn}") as checkpoint:
                rates.append(_streamed(spark, path, checkpoint, limit))
        rates = rates[_warm_ups(setting) :]
    of_scan = count / statistics.median(found["scan"])
    of_stream = statistics.median(rates)
    return [
        Row(
            "Spark stream, of a batch scan",
            of_stream / of_scan,
            "×",
            0.7,
            True,
            f"{rate(of_stream)} against {rate(of_scan)} (batch scan)",
            {"per_second": of_stream, "yardstick_per_second": of_scan},
        )
    ]


def _streamed(spark: SparkSession, path: Path, checkpoint: Path, limit: int) -> float:
    """Records per second of the batches behind the first."""
    frame = spark.readStream.format("fifoq").option("maxRecordsPerTrigger", str(limit))
    query = (
        frame.load(str(path))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    steady = batches[1:] or batches
    seconds = sum(each.durationMs["triggerExecution"] for each in steady) / 1000
    return sum(each.numInputRows for each in steady) / seconds


def plan(setting: Setting) -> Rows:
    """What the stream's reader does for one trigger: where it ends, and its partitions."""
    name = "Spark trigger planned, backlog of 1,000,000"
    try:
        from pyspark.sql.streaming.datasource import ReadMaxRows

        from fifoq.spark.source import FifoqSource
    except ImportError:
        return [Absent(name, "pip install 'fifoq[spark]'")]
    with setting.fresh("store") as path:
        fill(path, setting.count(BACKLOG))
        source = FifoqSource({"path": str(path), "maxRecordsPerTrigger": str(10**9)})
        reader = source.streamReader(source.schema())
        offset = reader.initialOffset()
        taken = []
        for _ in range(PLANNED_TRIGGERS):
            start = time.perf_counter()
            end = reader.latestOffset(offset, ReadMaxRows(10**9))
            reader.partitions(offset, end)
            taken.append(time.perf_counter() - start)
        reader.stop()
    median = statistics.median(taken)
    return [
        Row(
            name,
            median * 1000,
            "ms",
            20.0,
            False,
            f"the first one {duration(taken[0])}",
            {"seconds": median, "first_seconds": taken[0]},
        )
    ]


def growth(spark: SparkSession, setting: Setting) -> list[Row]:
    """Ten times the records: time for each of them, and memory of a task that reads them all."""
    small, large = setting.count(BACKLOG), setting.count(BACKLOG) * GROWTH
    seconds: dict[int, float] = {}
    megabytes: dict[int, float] = {}
    for count in (small, large):
        with setting.fresh("store") as path:
            fill(path, count)
            side = partial(_scan, spark, path)
            found = _in_turns(setting, {"scan": side})
            seconds[count] = statistics.median(found["scan"]) / count
            megabytes[count] = _task_megabytes(path)
    return [
        Row(
            f"Spark scan of {large:,}, time per record of {small:,}",
            seconds[large] / seconds[small],
            "×",
            1.2,
            False,
            f"{duration(seconds[large])} against {duration(seconds[small])} for each record",
            {"seconds": seconds[large], "yardstick_seconds": seconds[small]},
        ),
        Row(
            "  more memory of a task that reads them all",
            max(0.0, megabytes[large] - megabytes[small]),
            "MB",
            32.0,
            False,
            f"{megabytes[large]:.0f} MB against {megabytes[small]:.0f} MB at the most",
            {"megabytes": megabytes[large], "yardstick_megabytes": megabytes[small]},
        ),
    ]


def _task_megabytes(path: Path) -> float:
    """The peak of a process that reads the whole store as one task does."""
    command = [sys.executable, "-m", "fifoq.bench.spark_rows", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def _scan(spark: SparkSession, path: Path) -> None:
    _drop(spark.read.format("fifoq").load(str(path)))


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _length(frame: DataFrame) -> object:
    return frame.selectExpr("sum(length(data))").collect()


def _in_turns(setting: Setting, sides: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each side, round by round, once Java has seen all of them."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    warm_ups = _warm_ups(setting)
    for turn in range(warm_ups + min(setting.rounds, ROUNDS_MAX)):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if turn >= warm_ups:
                found[name].append(time.perf_counter() - start)
    return found


def _warm_ups(setting: Setting) -> int:
    return 0 if setting.quick else WARM_UPS


def _ratio(
    name: str, found: dict[str, list[float]], ours: str, other: str, count: int, target: float
) -> Row:
    pairs = zip(found[ours], found[other], strict=True)
    mine, theirs = (count / statistics.median(found[side]) for side in (ours, other))
    return Row(
        name,
        statistics.median(their / my for my, their in pairs),
        "×",
        target,
        True,
        f"{rate(mine)} against {rate(theirs)} ({other.partition(',')[0]})",
        {"per_second": mine, "yardstick_per_second": theirs},
    )
