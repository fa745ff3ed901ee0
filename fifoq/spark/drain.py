"""One drain: what is staged goes through Spark to where it belongs, and what that proves.

Blocking calls into Spark and the file system, for a thread that may wait. A drain is a query that
runs over everything there is and ends; its checkpoint is the only memory that it needs.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fifoq.consumers import local_path, proved
from fifoq.spark.session import register
from store import FifoqError

SINK_LOG: Final = "_spark_metadata"
"""Where Spark's file sink notes which files are whole; readers of the table go by it."""
WAIT_SECONDS: Final = 0.2

Pipeline = Callable[[int, DataFrame], object]
"""Gets the number of a batch and its records. A batch may come again: it must then add nothing."""
Transform = Callable[[DataFrame], DataFrame]
Session = SparkSession | Callable[[], SparkSession]
"""A session, or how to get one when it is needed: starting Spark takes seconds."""


class DrainError(FifoqError):
    """A drain cannot be begun, or did not end well; what is staged stays as it is."""


class DrainPlan(msgspec.Struct, frozen=True, kw_only=True):
    """From which queue a drain reads, and where it puts what it reads."""

    path: str
    queue: str
    store: str
    consumer: str
    checkpoint: str
    to: str | Pipeline
    transform: Transform | None = None
    partition_by: tuple[str, ...] = ()
    file_bytes: int
    batch_bytes: int

    @property
    def table(self) -> str | None:
        """The directory of the Parquet table, if that is where it goes."""
        return self.to if isinstance(self.to, str) else None


class Drained(msgspec.Struct, frozen=True):
    """What one drain did."""

    records: int
    batches: int
    seconds: float


class Drain:
    """Runs the drains of one plan, one at a time."""

    def __init__(self, spark: Session, plan: DrainPlan) -> None:
        self._given = spark
        self._spark: SparkSession | None = None
        self._plan = plan
        self._query: StreamingQuery | None = None
        self._stopping = False

    def check(self) -> None:
        """DrainError if table and checkpoint do not belong together: records would be skipped."""
        plan = self._plan
        root = local_path(plan.checkpoint)
        if root is None:
            raise DrainError(
                f"checkpoint {plan.checkpoint!r} is not a local path. Nothing was drained. What it "
                f"proves must be readable without Spark; give a directory of this machine."
            )
        table = local_path(plan.table) if plan.table is not None else None
        if table is None:
            return
        written = _batches(Path(table) / SINK_LOG)
        planned = _batches(Path(root) / "offsets")
        if written and (not planned or max(planned) < max(written)):
            raise DrainError(
                f"{table} was written by a query whose checkpoint is not at {root}: it has batch "
                f"{max(written)}, and the checkpoint ends before. Nothing was drained. A new "
                f"checkpoint counts from 0 again, and the table would skip what it takes for known "
                f"batches. Bring the checkpoint back, or drain into another table."
            )

    def run(self, first: int) -> Drained:
        """Drain everything there is, from counter `first` on if there is no checkpoint yet."""
        began = time.monotonic()
        self.check()
        self._query = query = self._start(first)
        try:
            # Spark takes fractions of a second, though its signature does not say so.
            while not query.awaitTermination(WAIT_SECONDS):  # type: ignore[arg-type]
                if self._stopping:
                    query.stop()
        finally:
            self._query = None
        progress = query.recentProgress
        records = sum(int(entry["numInputRows"]) for entry in progress)
        batches = len({int(entry["batchId"]) for entry in progress if entry["numInputRows"]})
        return Drained(records, batches, time.monotonic() - began)

    def _start(self, first: int) -> StreamingQuery:
        plan = self._plan
        if self._spark is None:
            given = self._given
            self._spark = given if isinstance(given, SparkSession) else given()
            register(self._spark)
        frame = (
            self._spark.readStream.format("fifoq")
            .options(**source_options(plan, first))
            .load(plan.path)
        )
        if plan.transform is not None:
            frame = plan.transform(frame)
        writer = frame.writeStream.option("checkpointLocation", plan.checkpoint).trigger(
            availableNow=True
        )
        to = plan.to
        if not isinstance(to, str):
            return writer.foreachBatch(lambda batch, number: _call(to, number, batch)).start()
        if plan.partition_by:
            writer = writer.partitionBy(*plan.partition_by)
        return writer.format("parquet").start(to)

    def stop(self) -> None:
        """Let the drain that is under way end early; what it has not committed comes again."""
        self._stopping = True

    def proved(self, above: int) -> int | None:
        """Up to which counter (below it) everything is where it belongs, if that is news.

        On return that is durable: what the query wrote, and its proof.
        """
        plan = self._plan
        counter = proved(plan.checkpoint, plan.store, plan.queue, above=above)
        if counter is not None and plan.table is not None:
            table = local_path(plan.table)
            if table is not None:
                sync_file_system(table)
        return counter


def source_options(plan: DrainPlan, first: int) -> dict[str, str]:
    return {
        "queue": plan.queue,
        "consumer": plan.consumer,
        "checkpoint": plan.checkpoint,
        "startingPosition": str(first),
        "partitionBytes": str(plan.file_bytes),
        "maxBytesPerTrigger": str(plan.batch_bytes),
    }


def _call(to: Pipeline, number: int, batch: DataFrame) -> None:
    to(number, batch)


def _batches(directory: Path) -> list[int]:
    """Numbers of the batches that Spark logged there; what it compacted counts."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = (name.removesuffix(".compact") for name in os.listdir(directory))
        return [int(name) for name in names if name.isdigit()]
    return []


def sync_file_system(path: str) -> None:
    """Make everything durable that was written to the file system of a directory.

    Spark leaves that to the kernel, and names none of the files that it wrote.
    """
    if sys.platform != "linux":
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc: Any = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
