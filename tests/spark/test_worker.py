"""What a worker does once: its memory stays with it from batch to batch."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from fifoq.spark.worker import keep_memory

SIZE = 4 << 20
PAGES = SIZE // resource.getpagesize()
TIMES = 50


def faults_of_a_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pages that are met anew while memory is taken and given back again and again."""
    list(batches)
    keep_memory()
    bytearray(SIZE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TIMES):
        bytearray(SIZE)
    met = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    yield pa.RecordBatch.from_pydict({"met": [met]})


def test_a_worker_meets_its_pages_once(spark: SparkSession) -> None:
    """Each batch met them anew, and that took a third of the time of reading."""
    frame = spark.range(1).repartition(1).mapInArrow(faults_of_a_task, "met LONG")
    (row,) = frame.collect()
    assert row.met < 3 * PAGES
