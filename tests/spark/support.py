"""Stores for Spark to read, and what tests ask of frames and queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fifoq.sync

SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": 64 << 10}
"""So that a few thousand records make several segments."""


def fill(path: Path, payloads: list[bytes], *, batch: int = 100, **options: Any) -> None:
    """Put them in batches into the queue "main" of a store that is then closed."""
    with fifoq.sync.open(path, **{**SMALL_SEGMENTS, **options}) as queue:
        for start in range(0, len(payloads), batch):
            queue.put_many(payloads[start : start + batch])


def numbered(count: int, first: int = 1) -> list[bytes]:
    """Payloads of different lengths that name their counter."""
    return [b"%d " % n + b"." * (n % 97) for n in range(first, first + count)]


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("fifoq").options(**given).load(str(path))


def stream(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("fifoq").options(**given).load(str(path))


def counters(frame: DataFrame) -> list[int]:
    """Counters in the order of the partitions."""
    return [row.counter for row in frame.select("counter").collect()]


def error_of(run: Callable[[], object]) -> str:
    """What the exception says that it must raise."""
    try:
        run()
    except Exception as error:
        return str(error)
    raise AssertionError("nothing was raised")


def finished(query: StreamingQuery, seconds: float = 120) -> None:
    """Wait for the end of a query; its error is raised."""
    assert query.awaitTermination(int(seconds)), query.status


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Look until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)
