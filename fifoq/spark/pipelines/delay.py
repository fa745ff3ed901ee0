"""How long records waited: put to take, from the log alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fifoq.spark.pipelines.report import Cell, Report, Table, utc
from fifoq.spark.pipelines.segments import (
    NS_PER_SECOND,
    Numbers,
    check_queue,
    directory_of,
    over_segments,
    put_times,
    segments_of,
)
from store import Reader
from store.blocks import ACKED, TAKEN, RemovedBlock
from store.replay import frame_blocks

ROWS_MAX: Final = 64 << 10
"""Rows of one Arrow batch."""
_COLUMNS: Final = "queue STRING, minute LONG, delay LONG"
_TITLES: Final = ("queue", "minute (UTC)", "taken", "p50 s", "p95 s", "p99 s", "max s")


class DelayRow(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a queue that were taken or acked in one minute. Delays are seconds."""

    queue: str
    minute: int
    """Seconds since the epoch, at the minute's begin."""
    count: int
    p50: float
    p95: float
    p99: float
    longest: float


class Delays(Report, frozen=True, kw_only=True):
    """What `delays` found. `unknown` counts removals whose records are no longer retained."""

    rows: list[DelayRow]
    unknown: int

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [
                row.queue,
                utc(row.minute, minutes=True),
                row.count,
                row.p50,
                row.p95,
                row.p99,
                row.longest,
            ]
            for row in self.rows
        ]
        gone = f" ({self.unknown:,} more are no longer retained)" if self.unknown else ""
        return Table(f"From put to take, by minute of the take{gone}", _TITLES, rows)


def delays(spark: SparkSession, path: str, *, queue: str | None = None) -> Delays:
    """p50, p95 and p99 of put → take for each minute and queue, or for one queue.

    Reads what is retained in the store at `path`, live or not, without a lock: the frames that tell
    of removals, and the put times of the removed records. What the owner has reclaimed is not
    there: keep segments (`retention`) to look further back. A record that was given back after a
    cancelled take counts each time that it was taken.
    """
    directory = directory_of(path)
    rows = over_segments(spark, directory, _Removals(directory, check_queue(queue)), _COLUMNS)
    known = F.col("delay") >= 0
    points = F.percentile_approx("delay", [0.5, 0.95, 0.99], 10_000)
    found = (
        rows.groupBy("queue", "minute", known.alias("known"))
        .agg(F.count("*").alias("count"), points.alias("points"), F.max("delay").alias("longest"))
        .orderBy("queue", "minute")
        .collect()
    )
    return Delays(
        rows=[
            DelayRow(
                queue=row["queue"],
                minute=row["minute"],
                count=row["count"],
                p50=row["points"][0] / NS_PER_SECOND,
                p95=row["points"][1] / NS_PER_SECOND,
                p99=row["points"][2] / NS_PER_SECOND,
                longest=row["longest"] / NS_PER_SECOND,
            )
            for row in found
            if row["known"]
        ],
        unknown=sum(row["count"] for row in found if not row["known"]),
    )


class _Removals:
    """The work of one task: a row for each removed record, with a delay of -1 if unknown."""

    def __init__(self, path: str, queue: str | None) -> None:
        self._path = path
        self._queue = queue

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = list(segments_of(batches))
        if not numbers:
            return
        with Reader(self._path) as reader:
            for number in numbers:
                for queue, (counters, times) in self._removed(reader, number).items():
                    put = put_times(reader, queue, counters)
                    delay = np.where(put > 0, np.maximum(times - put, 0), -1)
                    minute = times // (60 * NS_PER_SECOND) * 60
                    for at in range(0, len(delay), ROWS_MAX):
                        part = slice(at, at + ROWS_MAX)
                        yield _batch(queue, minute[part], delay[part])

    def _removed(self, reader: Reader, number: int) -> dict[str, tuple[Numbers, Numbers]]:
        """Counters that a segment says were taken or acked, rising, and when."""
        pieces: defaultdict[str, list[tuple[Numbers, Numbers]]] = defaultdict(list)
        for frame in reader.frames(number):
            for _, block in frame_blocks(frame, self._queue):
                if isinstance(block, RemovedBlock) and block.reason in (TAKEN, ACKED):
                    for first, last, _ in block.ranges:
                        counters = np.arange(first, last + 1, dtype=np.int64)
                        pieces[block.queue].append((counters, np.full_like(counters, block.time)))
        found = {}
        for queue, parts in pieces.items():
            counters = np.concatenate([part[0] for part in parts])
            times = np.concatenate([part[1] for part in parts])
            order = np.argsort(counters, kind="stable")
            found[queue] = counters[order], times[order]
        return found


def _batch(queue: str, minute: Numbers, delay: Numbers) -> pa.RecordBatch:
    names = pa.DictionaryArray.from_arrays(np.zeros(len(minute), np.int8), [queue]).cast(
        pa.string()
    )
    return pa.RecordBatch.from_arrays(
        [names, pa.array(minute), pa.array(delay)], names=["queue", "minute", "delay"]
    )
