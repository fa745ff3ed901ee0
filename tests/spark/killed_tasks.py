"""Jobs whose tasks lose the worker that writes, once each; Spark tries them again.

python -m tests.spark.killed_tasks DIRECTORY
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as f

import fifoq.spark

TRIES = 4
KILL_SECONDS_MAX = 20.0


def main(root: Path) -> None:
    spark = fifoq.spark.session(
        "killed tasks",
        f"local[2,{TRIES}]",
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.local.dir": str(root / "local"),
            "spark.sql.warehouse.dir": str(root / "warehouse"),
            "spark.driver.memory": "512m",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        },
    )
    store = root / "store"

    def kill_the_writer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Kills, in the first attempt, the worker that has this task's part open."""
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and context.attemptNumber() == 0:
                pid = _writer_of(store / "staged", context.partitionId())
                with (root / "killed").open("a") as file:
                    file.write(f"{pid}\n")
                os.kill(pid, signal.SIGKILL)

    numbers = spark.range(0, 2000, 1, 2).select(f.col("id").cast("string").alias("data"))
    frame = numbers.mapInArrow(kill_the_writer, "data STRING")
    frame.write.format("fifoq").mode("append").option("queue", "job").save(str(store))

    source = root / "source"
    source.mkdir()
    for number in range(2):
        for half in range(2):
            start = number * 200 + half * 100
            text = "\n".join(map(str, range(start, start + 100)))
            path = root / "draft"
            path.write_text(text)
            moment = 1_700_000_000 + number * 2 + half
            os.utime(path, (moment, moment))
            path.rename(source / f"{number}-{half}.txt")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(str(source))
    frame = lines.selectExpr("value AS data").mapInArrow(kill_the_writer, "data STRING")
    query = (
        frame.writeStream.format("fifoq")
        .option("queue", "stream")
        .option("writer", "w")
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(store))
    )
    query.awaitTermination()
    spark.stop()


def _writer_of(directory: Path, partition: int) -> int:
    """The process that has a part of that partition open."""
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while time.monotonic() < deadline:
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                links = [os.readlink(link) for link in (process / "fd").iterdir()]
            except OSError:
                continue
            for link in links:
                path = Path(link)
                if path.parent == directory and path.name.split("~")[3] == str(partition):
                    return int(process.name)
        time.sleep(0.01)
    raise TimeoutError("nobody writes a part of this partition")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
