"""Work on the segments of a store, one task for each: what their frames say of the queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fifoq.spark.access import REMOTE_SCHEME
from fifoq.spark.local import local_path
from store import RangeGone, Reader
from store.blocks import COUNTERS, RecordBlock
from store.genesis import check_name

NS_PER_SECOND: Final = 1_000_000_000
GAP_MAX: Final = 10_000
"""Counters further apart than this are looked up each on its own, not by reading through."""

Numbers = npt.NDArray[np.int64]
T = TypeVar("T")


def directory_of(path: str) -> str:
    """The store's directory. ValueError for an address: a server shows records, not frames."""
    if path.startswith(REMOTE_SCHEME):
        raise ValueError(
            f"{path}: this pipeline reads the segments themselves and needs the store's directory, "
            f"on a path that the executors can read. Nothing was changed."
        )
    return local_path(path)


def over_segments(
    spark: SparkSession,
    path: str,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: str,
) -> DataFrame:
    """What `work` makes of each segment that is there now; it gets batches of column `segment`."""
    with Reader(path) as reader:
        numbers = sorted(reader.state.segments)
    rows = spark.createDataFrame([(number,) for number in numbers], "segment LONG")
    return rows.repartition(max(1, len(numbers)), "segment").mapInArrow(work, columns)


def segments_of(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("segment").to_pylist()


def check_queue(queue: str | None) -> str | None:
    return None if queue is None else check_name(queue)


def counters_of(block: RecordBlock) -> Numbers:
    column = block.columns.get(COUNTERS)
    if isinstance(column, memoryview):
        return np.frombuffer(column, np.int64)
    return np.arange(block.first, block.first + block.count, dtype=np.int64)


def times_of(block: RecordBlock) -> Numbers:
    if block.time_differences is None:
        return np.full(block.count, block.time, np.int64)
    return np.asarray(block.time_differences).astype(np.int64) + block.time


def put_times(reader: Reader, queue: str, counters: Numbers) -> Numbers:
    """When each of the counters, which rise, was put (ns); 0 where that record is not retained."""
    found = np.zeros(len(counters), np.int64)
    if not len(counters):
        return found
    starts = np.flatnonzero(np.diff(counters, prepend=counters[0]) > GAP_MAX).tolist()
    for start, stop in zip([0, *starts], [*starts, len(counters)], strict=True):
        _fill(reader, queue, counters[start:stop], found[start:stop])
    return found


def _fill(reader: Reader, queue: str, counters: Numbers, found: Numbers) -> None:
    first, last = int(counters[0]), int(counters[-1])
    while first <= last:
        try:
            for block in reader.blocks(queue, first, last):
                there = counters_of(block)
                low, high = np.searchsorted(counters, [there[0], there[-1] + 1])
                at = np.searchsorted(there, counters[low:high])
                same = there[at] == counters[low:high]
                found[low:high][same] = times_of(block)[at[same]]
                first = block.last + 1
            return
        except RangeGone as gone:
            first = max(first + 1, gone.oldest)
