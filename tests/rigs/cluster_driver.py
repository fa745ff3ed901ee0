"""A driver program for a cluster: reads a queue by its address alone and prints what it found.

python -m tests.rigs.cluster_driver MASTER ADDRESS HIDDEN SCRATCH
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import fifoq.spark
from tests.support.java import QUICK

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def main(master: str, address: str, hidden: str, scratch: str) -> None:
    token = os.environ.pop("FIFOQ_TOKEN")
    spark = fifoq.spark.session("cluster test", master, CONF)
    table = spark.read.format("fifoq").options(token=token, numPartitions="2").load(address)
    columns = "place STRING, seen BOOLEAN, first LONG, last LONG, count LONG, digest STRING"
    # As a barrier: both executors run a task at the same time.
    tasks = table.mapInArrow(look(hidden), columns, barrier=True).collect()
    found = {
        "driver_sees": sees(hidden),
        "tasks": [task.asDict() for task in tasks],
        "streamed": stream(spark, address, token, scratch),
    }
    print(json.dumps(found))
    spark.stop()


def stream(spark: SparkSession, address: str, token: str, scratch: str) -> list[int]:
    """Everything, by a streaming query with a named position; first, last and count of counters."""
    checkpoint, out = f"{scratch}/checkpoint", f"{scratch}/out"
    query = (
        spark.readStream.format("fifoq")
        .options(token=token, consumer="etl", checkpoint=checkpoint, numPartitions="2")
        .load(address)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    counters = sorted(row.counter for row in spark.read.parquet(out).select("counter").collect())
    return [counters[0], counters[-1], len(counters)]


def look(hidden: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What one task read, where it ran, and whether it could have read the files."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        digest = hashlib.sha256()
        counters: list[int] = []
        for batch in batches:
            counters += batch.column("counter").to_pylist()
            digest.update(b"".join(batch.column("data").to_pylist()))
        row = {
            "place": os.getcwd(),
            "seen": sees(hidden),
            "first": min(counters),
            "last": max(counters),
            "count": len(counters),
            "digest": digest.hexdigest(),
        }
        yield pa.RecordBatch.from_pylist([row])

    return work


def sees(directory: str) -> bool:
    return os.path.isdir(directory) and bool(os.listdir(directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
