"""A driver that stages numbers into Parquet until all are there; to be killed and started again.

    python -m tests.spark.stager DIRECTORY COUNT

It says on its output what it is about to do, a line each. What was put before it was killed it
knows from the queue alone. At the end it writes what Spark finds in the table, and in which file,
to DIRECTORY/found.parquet.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pyarrow.parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import fifoq.spark
from fifoq.spark import StagingBuffer

BATCH = 500
DRAIN_RECORDS = 12_000


async def main(root: str, count: int) -> None:
    say("starting")
    spark = fifoq.spark.session(
        "stager",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.local.dir": f"{root}/local",
            "spark.sql.warehouse.dir": f"{root}/warehouse",
            "spark.driver.memory": "512m",
        },
    )
    buffer = StagingBuffer(
        f"{root}/store",
        spark,
        to=f"{root}/table",
        drain_records=DRAIN_RECORDS,
        drain_seconds=1.0,
        file_bytes=100_000,
        pressure_high=3 * DRAIN_RECORDS,
        segment_bytes=1 << 20,
    )
    async with buffer:
        say(f"ready {buffer.stats().queue.total_put_count}")
        number = buffer.stats().queue.total_put_count
        drains = 0
        while number < count:
            upto = min(number + BATCH, count)
            await buffer.put_many([b"%d" % n for n in range(number, upto)])
            number = upto
            stats = buffer.stats()
            if stats.drains != drains:
                drains = stats.drains
                say(f"drained {stats.drained_upto} of {number}")
            # A service that also does other things.
            await asyncio.sleep(0.002)
        say(f"closing {number}")
    stats = buffer.stats()
    pyarrow.parquet.write_table(found(spark, f"{root}/table"), f"{root}/found.parquet")
    say(f"done {stats.drains} drains, {stats.removed_records} removed")
    spark.stop()


def found(spark: SparkSession, table: str) -> pyarrow.Table:
    """The rows of the table, those of a file in the order in which they lie there."""
    number = f.col("data").cast("string").cast("long").alias("number")
    return (
        spark.read.parquet(table)
        .select(f.input_file_name().alias("file"), "counter", number)
        .toArrow()
    )


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
