"""Drain a queue into Parquet by a stream whose batches have a size.

Run it: python examples/spark_micro_batches.py
"""

from __future__ import annotations

import json
import tempfile

from pyspark.sql import SparkSession

import fifoq.spark
import fifoq.sync


def main(spark: SparkSession, directory: str) -> None:
    path, checkpoint = f"{directory}/store", f"{directory}/checkpoint"
    with fifoq.sync.open(path) as queue:
        queue.put_many([b"event %d" % number for number in range(2500)])

    events = (
        spark.readStream.format("fifoq")
        .option("maxRecordsPerTrigger", "1000")
        .option("consumer", "archive")
        .option("checkpoint", checkpoint)
        .load(path)
    )
    query = (
        events.writeStream.format("parquet")
        .option("path", f"{directory}/events")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    for progress in query.recentProgress:
        behind = json.loads(progress.sources[0].latestOffset)
        print(f"{progress.numInputRows} records, then {behind['lagRecords']} behind")
    print(spark.read.parquet(f"{directory}/events").count(), "in Parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(fifoq.spark.session(), scratch)
