"""Spark's part of the demonstration: what is drained comes once, in the order of the ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from fifoq.demo.service import Entry
from fifoq.demo.spark import drain, parquet_bytes, table_rows

ROOT = Path(__file__).parents[2]


def test_entries_are_drained_once_and_read_back_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    entries = [Entry(1, n % 3, n, n % 2, n, n * 2) for n in range(1, 51)]
    with fifoq.sync.open(store, queue="ledger", type=Entry, retention="all") as ledger:
        ledger.put_many(entries[:30])
        ledger.flush()
        assert drain(spark, store, str(tmp_path)) == 30
        ledger.put_many(entries[30:])
    assert drain(spark, store, str(tmp_path)) == 20
    assert drain(spark, store, str(tmp_path)) == 0
    rows = table_rows(spark, str(tmp_path))
    assert [(*row.name, row.account, row.cents, row.balance) for row in rows] == [
        (e.life, e.client, e.number, e.account, e.cents, e.balance) for e in entries
    ]
    assert parquet_bytes(str(tmp_path)) > 0


@pytest.mark.deep
def test_all_of_it_with_a_spark_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fifoq.demo", "--seconds", "2", "--report", "report.html"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows in Parquet" in done.stdout
    assert "in Parquet" in (tmp_path / "report.html").read_text()
