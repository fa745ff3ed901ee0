"""Replay a day: put what came yesterday into another queue, to be handled once more.

Run it: python examples/spark_replay.py
"""

from __future__ import annotations

import datetime
import tempfile

from pyspark.sql import SparkSession

import fifoq.spark
import fifoq.sync


def replay(spark: SparkSession, path: str, day: datetime.date) -> int:
    """Put the records of that day (UTC) into the queue "again"; returns how many there were."""
    following = day + datetime.timedelta(days=1)
    records = (
        spark.read.format("fifoq")
        .option("startingTimestamp", f"{day}T00:00:00Z")
        .option("endingTimestamp", f"{following}T00:00:00Z")
        .load(path)
    )
    records.select("data").write.format("fifoq").option("queue", "again").mode("append").save(path)
    return records.count()


def main(spark: SparkSession, path: str, day: datetime.date) -> None:
    # Without `retention` what is taken goes when its segment is reclaimed.
    with fifoq.sync.open(path, retention="all") as queue:
        queue.put_many([b"order %d" % number for number in range(1, 6)])
        print("handled:", queue.take_many(5))

    print("replayed:", replay(spark, path, day))

    with fifoq.sync.open(path, queue="again") as queue:
        print("once more:", queue.take_many(5))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        today = datetime.datetime.now(datetime.UTC).date()
        main(fifoq.spark.session(), f"{scratch}/store", today)
