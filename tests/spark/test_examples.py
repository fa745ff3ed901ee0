"""The examples of Spark, run in the session of these tests."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import spark_micro_batches, spark_replay, spark_sql


def test_a_queue_is_asked_in_sql(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark_sql.main(spark, str(tmp_path / "store"))
    assert capsys.readouterr().out.splitlines() == [
        "customer 1: 34 orders, 1717.00",
        "customer 0: 33 orders, 1683.00",
        "customer 2: 33 orders, 1650.00",
        "99 wait",
        "the largest of the last ten: 10000",
    ]


def test_a_day_is_replayed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    orders = [b"order %d" % number for number in range(1, 6)]
    spark_replay.main(spark, str(tmp_path / "store"), today)
    assert capsys.readouterr().out.splitlines() == [
        f"handled: {orders}",
        "replayed: 5",
        f"once more: {orders}",
    ]
    assert spark_replay.replay(spark, str(tmp_path / "store"), datetime.date(2001, 2, 3)) == 0


def test_a_stream_is_cut_into_batches(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark_micro_batches.main(spark, str(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "1000 records, then 1500 behind",
        "1000 records, then 500 behind",
        "500 records, then 0 behind",
        "2500 in Parquet",
    ]
