"""How much came and went, and how deep the queues were: from the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fifoq.spark.pipelines.report import Cell, Report, Table, bar, utc
from fifoq.spark.pipelines.segments import (
    NS_PER_SECOND,
    check_queue,
    directory_of,
    over_segments,
    segments_of,
)
from store import Reader
from store.blocks import RECORDS, RecordBlock, RemovedBlock
from store.genesis import decode_genesis
from store.replay import frame_blocks
from store.segment import Frame

_COLUMNS: Final = (
    "queue STRING, start LONG, put LONG, bytes LONG, removed LONG, sequence LONG, depth LONG, "
    "deepest LONG"
)
_TITLES: Final = ("queue", "from (UTC)", "put/s", "bytes/s", "removed/s", "depth", "deepest", "")


class RateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in one interval. `depth` is its size at the interval's last commit."""

    queue: str
    start: int
    """Seconds since the epoch."""
    put_count: int
    put_bytes: int
    removed_count: int
    depth: int
    deepest: int


class Rates(Report, frozen=True, kw_only=True):
    """What `rates` found; intervals in which a queue did nothing have no row."""

    rows: list[RateRow]
    seconds: int

    def table(self) -> Table:
        most = max((row.deepest for row in self.rows), default=0)
        rows: list[list[Cell]] = [
            [
                row.queue,
                utc(row.start),
                row.put_count / self.seconds,
                row.put_bytes / self.seconds,
                row.removed_count / self.seconds,
                row.depth,
                row.deepest,
                bar(row.depth, most),
            ]
            for row in self.rows
        ]
        return Table(f"Rates and depth, every {self.seconds} s", _TITLES, rows)


def rates(spark: SparkSession, path: str, *, queue: str | None = None, seconds: int = 60) -> Rates:
    """Puts, bytes and removals in each interval, and the depth at its end, by queue.

    Reads the frames that are retained in the store at `path`, live or not, without a lock. Depths
    are those that the commits themselves hold. What the owner has reclaimed is not there: keep
    segments (`retention`) to look further back. ValueError for an interval under a second.
    """
    if seconds < 1:
        raise ValueError(f"seconds={seconds} is below 1")
    directory = directory_of(path)
    work = _Frames(directory, check_queue(queue), seconds)
    rows = (
        over_segments(spark, directory, work, _COLUMNS)
        .groupBy("queue", "start")
        .agg(
            F.sum("put").alias("put"),
            F.sum("bytes").alias("bytes"),
            F.sum("removed").alias("removed"),
            F.max_by("depth", "sequence").alias("depth"),
            F.max("deepest").alias("deepest"),
        )
        .orderBy("queue", "start")
        .collect()
    )
    found = [
        RateRow(
            queue=row["queue"],
            start=row["start"],
            put_count=row["put"],
            put_bytes=row["bytes"],
            removed_count=row["removed"],
            depth=row["depth"],
            deepest=row["deepest"],
        )
        for row in rows
    ]
    return Rates(rows=found, seconds=seconds)


class _Interval:
    """What frames said of one queue in one interval."""

    __slots__ = ("bytes", "deepest", "depth", "put", "removed", "sequence")

    def __init__(self) -> None:
        self.put = self.bytes = self.removed = self.sequence = self.depth = self.deepest = 0


class _Frames:
    """The work of one task: a row for each queue and interval of a segment."""

    def __init__(self, path: str, queue: str | None, seconds: int) -> None:
        self._path = path
        self._queue = queue
        self._step = seconds * NS_PER_SECOND

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = list(segments_of(batches))
        if not numbers:
            return
        with Reader(self._path) as reader:
            for number in numbers:
                found: dict[tuple[str, int], _Interval] = {}
                for frame in reader.frames(number):
                    self._add(frame, found)
                if found:
                    yield _batch(found)

    def _add(self, frame: Frame, found: dict[tuple[str, int], _Interval]) -> None:
        blocks = frame_blocks(frame, self._queue)
        if not blocks:
            return
        sizes = {
            entry.name: entry.queue_size
            for entry in decode_genesis(frame.body, frame.header.genesis_bytes)
        }
        for kind, block in blocks:
            if isinstance(block, RemovedBlock):
                interval = self._at(found, block.queue, block.time)
                interval.removed += sum(last - first + 1 for first, last, _ in block.ranges)
            elif isinstance(block, RecordBlock) and kind == RECORDS:
                interval = self._at(found, block.queue, block.last_time)
                interval.put += block.count
                interval.bytes += block.offsets[-1]
            else:
                continue
            interval.sequence = frame.header.sequence
            interval.depth = sizes[block.queue]
            interval.deepest = max(interval.deepest, interval.depth)

    def _at(self, found: dict[tuple[str, int], _Interval], queue: str, time: int) -> _Interval:
        start = time // self._step * self._step // NS_PER_SECOND
        return found.setdefault((queue, start), _Interval())


def _batch(found: dict[tuple[str, int], _Interval]) -> pa.RecordBatch:
    columns: dict[str, list[str] | list[int]] = {
        "queue": [queue for queue, _ in found],
        "start": [start for _, start in found],
    }
    for name in ("put", "bytes", "removed", "sequence", "depth", "deepest"):
        columns[name] = [getattr(interval, name) for interval in found.values()]
    return pa.RecordBatch.from_pydict(columns)
