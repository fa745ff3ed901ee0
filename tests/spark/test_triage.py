"""Dead letters are grouped by what went wrong, with samples, and nothing of them is changed."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from fifoq.spark.pipelines import triage


def bury(path: Path) -> None:
    with fifoq.sync.open_store(path) as store:
        orders = store.queue("orders", max_retries=1, retry_backoff=0)
        orders.put_many([b"bad %d" % n for n in range(5)])
        for _ in range(5):
            orders.lease().reject("no such address")
        orders.put_many([b"slow 1", b"slow 2"])
        for _ in range(4):
            with pytest.raises(ValueError, match="too slow"), orders.lease():
                raise ValueError("too slow")
        store.queue("orders.dlq").put(b"by hand")


def test_dead_letters_are_grouped_with_samples(spark: SparkSession, tmp_path: Path) -> None:
    began = int(time.time())
    bury(tmp_path)
    found = triage(spark, str(tmp_path), queue="orders")
    assert [(row.cause, row.error, row.reason, row.count, row.attempts) for row in found.rows] == [
        ("rejected", "", "no such address", 5, 1),
        ("max-retries", "ValueError", "too slow", 2, 2),
        ("", "", "", 1, 0),
    ]
    first, second, last = found.rows
    assert first.samples == [b"bad 0", b"bad 1", b"bad 2"]
    assert first.counters == [1, 2, 3]
    assert second.samples == [b"slow 1", b"slow 2"]
    assert last.samples == [b"by hand"]
    assert began <= first.first <= first.last <= time.time()
    assert found.records == 8
    shown = io.StringIO()
    found.show(shown)
    lines = shown.getvalue().splitlines()
    assert lines[0] == "8 dead letters of queue 'orders'"
    assert lines[2].startswith("rejected     -           no such address        5         1  20")
    assert lines[2].endswith("  bad 0")
    with fifoq.sync.open(tmp_path, queue="orders.dlq") as letters:
        assert len(letters) == 8
        letters.take_many(5)
    less = triage(spark, str(tmp_path), queue="orders.dlq", samples=0)
    assert [(row.count, row.samples) for row in less.rows] == [(2, []), (1, [])]


def test_a_queue_without_dead_letters_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="samples=-1 is below 0"):
        triage(spark, str(tmp_path), samples=-1)
    with fifoq.sync.open(tmp_path):
        pass
    assert triage(spark, str(tmp_path)).rows == []
