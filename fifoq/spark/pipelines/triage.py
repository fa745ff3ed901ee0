"""Dead letters by what went wrong: how many, since when, and what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from fifoq.burying import PREFIX, SUFFIX
from fifoq.spark.access import opened
from fifoq.spark.pipelines.report import Cell, Report, Table, utc
from store.genesis import check_name

NS_PER_SECOND: Final = 1_000_000_000
SAMPLE_CHARACTERS: Final = 40
REASON_CHARACTERS: Final = 60
"""What the table for people shows of a payload, and of a reason."""
_TITLES: Final = (
    *("cause", "error", "reason", "records", "attempts", "first (UTC)", "last (UTC)", "sample"),
)
_GROUP: Final = ("cause", "error", "reason")


class TriageRow(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that ended the same way. Times are seconds since the epoch."""

    cause: str
    """`rejected`, `max-retries` or `expired`; empty for what was put there by hand."""
    error: str
    """The type of the exception, if there was one."""
    reason: str
    count: int
    attempts: int
    """How often one of them was leased, at the most."""
    first: int
    last: int
    """When the first and the last of them were moved."""
    samples: list[bytes]
    counters: list[int]
    """The oldest ones: their data, and their counters among the dead letters."""


class Triage(Report, frozen=True, kw_only=True):
    """What `triage` found, the most frequent first."""

    queue: str
    rows: list[TriageRow]

    @property
    def records(self) -> int:
        return sum(row.count for row in self.rows)

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [
                *(row.cause or "-", row.error or "-", _short(row.reason, REASON_CHARACTERS) or "-"),
                *(row.count, row.attempts, utc(row.first), utc(row.last)),
                _short(repr(row.samples[0])[2:-1], SAMPLE_CHARACTERS) if row.samples else "-",
            ]
            for row in self.rows
        ]
        return Table(f"{self.records:,} dead letters of queue {self.queue!r}", _TITLES, rows)


def triage(
    spark: SparkSession,
    path: str,
    *,
    queue: str = "main",
    samples: int = 3,
    options: Mapping[str, str] | None = None,
) -> Triage:
    """Group the dead letters of `queue` that nobody has taken by cause, error and reason.

    Of each group the `samples` oldest payloads are kept. Reads beside a live owner and changes
    nothing. `path` may be a directory or the address of a frame server, with what that needs in
    `options` (`token`). Without dead letters there are no rows.
    """
    if samples < 0:
        raise ValueError(f"samples={samples} is below 0")
    name = check_name(queue.removesuffix(SUFFIX))
    given = dict(options or {})
    with opened(path, given) as access:
        if access.queue(name).exists and not access.queue(name + SUFFIX).exists:
            return Triage(queue=name, rows=[])
    source = spark.read.format("fifoq").options(**given).option("queue", name + SUFFIX)
    letters = source.option("includeHeaders", "true").option("records", "pending").load(path)
    found = (
        letters.select(
            "counter",
            "data",
            F.coalesce(_header("cause"), F.lit("")).alias("cause"),
            F.coalesce(_header("error_type"), F.lit("")).alias("error"),
            F.coalesce(_header("reason"), F.lit("")).alias("reason"),
            F.coalesce(_header("attempts").cast("int"), F.lit(0)).alias("attempts"),
            F.coalesce(
                (_header("time").cast("long") / NS_PER_SECOND).cast("long"),
                F.unix_timestamp("timestamp"),
            ).alias("moved"),
        )
        .withColumn("rank", F.row_number().over(Window.partitionBy(*_GROUP).orderBy("counter")))
        .withColumn("oldest", F.when(F.col("rank") <= samples, F.struct("counter", "data")))
        .groupBy(*_GROUP)
        .agg(
            F.count("*").alias("count"),
            F.max("attempts").alias("attempts"),
            F.min("moved").alias("first"),
            F.max("moved").alias("last"),
            # Null for all but the oldest, and nulls are not collected.
            F.sort_array(F.collect_list("oldest")).alias("oldest"),
        )
        .orderBy(F.desc("count"), *_GROUP)
        .collect()
    )
    return Triage(
        queue=name,
        rows=[
            TriageRow(
                cause=row["cause"],
                error=row["error"],
                reason=row["reason"],
                count=row["count"],
                attempts=row["attempts"],
                first=row["first"],
                last=row["last"],
                samples=[bytes(each["data"]) for each in row["oldest"]],
                counters=[each["counter"] for each in row["oldest"]],
            )
            for row in found
        ],
    )


def _header(name: str) -> Column:
    return F.col("headers").getItem(f"{PREFIX}{name}")


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
