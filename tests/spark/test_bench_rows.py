"""The benchmark's rows of Spark run, small; how fast they are is not judged here."""

from __future__ import annotations

import builtins
import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fifoq.bench import spark as module
from fifoq.bench.measure import Absent, Group, Row, Setting
from fifoq.bench.rows import GROUPS
from fifoq.bench.spark_growth import peaks
from fifoq.bench.spark_rows import ReadySource
from fifoq.spark.session import JavaMissing
from tests.spark.support import fill, numbered, read

ROWS = {
    "spark-scan": [
        "Spark scan to noop, of Parquet",
        "  count, of a Parquet scan",
        "  sum(length(data)), of Parquet",
        "    of what Spark allows",
        "  of the same source yielding rows",
    ],
    "spark-stream": ["Spark stream, of a batch scan"],
    "spark-plan": ["Spark trigger planned, backlog of 1,000,000"],
    "spark-growth": [
        "Spark scan of 20,000, time per record of 2,000",
        "  more memory of a task that reads them all",
    ],
}
HERE = [group for group in GROUPS if group.name.startswith("spark-")]


@pytest.mark.parametrize("group", HERE, ids=lambda group: group.name)
def test_every_row_of_spark_runs_small_and_leaves_nothing_behind(
    spark: SparkSession, group: Group, tmp_path: Path
) -> None:
    found = group.run(Setting(tmp_path, rounds=1, quick=True))
    assert [row.name for row in found] == ROWS[group.name]
    for row in found:
        assert isinstance(row, Row)
        assert row.value >= 0
        assert row.figures
    assert list(tmp_path.iterdir()) == []
    # The session that ran before still runs.
    assert spark.range(3).count() == 3


def test_ready_batches_are_as_many_records_as_there_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "store", numbered(40_000), batch=1000, segment_bytes=64 << 20)
    spark.dataSource.register(ReadySource)
    frame = (
        spark.read.format(ReadySource.name()).schema("counter LONG").load(str(tmp_path / "store"))
    )
    counted = frame.selectExpr("count(*)", "count(DISTINCT counter)").collect()[0]
    assert counted[0] == 40_000 > counted[1]


def test_peaks_are_those_of_the_driver_and_of_a_worker(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "store", numbered(10))
    assert read(spark, tmp_path / "store").count() == 10
    driver, worker = peaks(os.getpid())
    assert 50 < worker < driver


def test_without_pyspark_the_rows_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def no_pyspark(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith(("pyspark", "fifoq.spark")):
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", no_pyspark)
    for group in HERE:
        (row,) = group.run(Setting(tmp_path, rounds=1, quick=True))
        assert isinstance(row, Absent)
        assert row.why == "pip install 'fifoq[spark]'"


def test_without_java_the_rows_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java() -> str:
        raise JavaMissing("Spark needs Java")

    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    # The package has a function of that name.
    monkeypatch.setattr(importlib.import_module("fifoq.spark.session"), "find_java", no_java)
    (row,) = module.needing_spark("a row", module.scan)(Setting(tmp_path, quick=True))
    assert row == Absent("a row", "Spark needs Java")
