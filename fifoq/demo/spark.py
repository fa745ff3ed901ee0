"""Spark in a process of its own: drains the ledger into Parquet whenever it is told to.

`python -m fifoq.demo.spark STORE DIRECTORY` says `ready` when Spark runs. For each line of its
stdin it drains what there is and says the number of rows so far; when stdin ends it writes
what the table holds to `DIRECTORY/rows.json` and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import fifoq.spark
from fifoq.demo.books import Row

QUEUE: Final = "ledger"


def drain(spark: SparkSession, store: str, directory: str) -> int:
    """One run over all there is; the number of rows that it brought."""
    entries = (
        spark.readStream.format("fifoq")
        .option("queue", QUEUE)
        .option("typed", "true")
        .option("consumer", "demo")
        .option("checkpoint", f"{directory}/checkpoint")
        .load(store)
    )
    query = (
        entries.writeStream.format("parquet")
        .option("path", f"{directory}/table")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def table_rows(spark: SparkSession, directory: str) -> list[Row]:
    """What the table holds, in the order of the ledger."""
    table = spark.read.parquet(f"{directory}/table").orderBy("counter")
    columns = ("life", "client", "number", "account", "cents", "balance")
    found = table.select(*columns).toArrow().to_pydict()
    return [
        Row((life, client, number), *rest)
        for life, client, number, *rest in zip(*(found[name] for name in columns), strict=True)
    ]


def parquet_bytes(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory, "table").glob("*.parquet"))


def main(store: str, directory: str) -> None:
    # Ctrl-C reaches everybody; the demonstration itself says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spark = fifoq.spark.session("fifoq demo", conf={"spark.sql.streaming.pollingDelay": "10ms"})
    rows = 0
    print("ready", flush=True)
    for _ in sys.stdin:
        rows += drain(spark, store, directory)
        print(rows, flush=True)
    found = {"rows": table_rows(spark, directory), "bytes": parquet_bytes(directory)}
    Path(directory, "rows.json").write_text(json.dumps(found))
    print("done", flush=True)
    # Spark's own end takes a second, and nothing is left to be written.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
