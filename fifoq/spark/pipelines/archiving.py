"""The archive: sealed segments as Parquet by date, each record once; and its way back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TextIO

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fifoq.consumers import Position, check_consumer_name
from fifoq.description import QueueDescription
from fifoq.spark.access import Access, opened
from fifoq.spark.consumer import ConsumerInUse
from fifoq.spark.drain import sync_file_system
from fifoq.spark.pipelines.report import Cell, Report, Table
from fifoq.spark.pipelines.shelf import ArchiveError, Shelf, Unit
from fifoq.spark.sink import batch_is_known
from store.genesis import check_name

_TITLES: Final = ("queue", "segment", "first", "last", "records")
_RECORD: Final = (
    "counter LONG, timestamp TIMESTAMP, key BINARY, data BINARY, headers MAP<STRING,STRING>"
)


class Archived(Report, frozen=True, kw_only=True):
    """What one run of `archive` added.

    `dropped` counts units of a killed run that were begun anew. `missing` are ranges of counters
    between the archive's that were reclaimed before they came here, or were never given out.
    """

    units: list[Unit]
    dropped: int
    missing: list[tuple[int, int]]

    @property
    def records(self) -> int:
        return sum(unit.records for unit in self.units)

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [unit.queue, unit.segment, unit.first, unit.last, unit.records] for unit in self.units
        ]
        title = f"Archived {self.records:,} records"
        if self.missing:
            ranges = ", ".join(f"{first} to {last}" for first, last in self.missing)
            title += f"; not there any more, or never: {ranges}"
        return Table(title, _TITLES, rows)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What `replay` put into a queue; 0 records if one of that name was made before."""

    queue: str
    path: str
    records: int

    def __str__(self) -> str:
        return f"Replayed {self.records:,} records into queue {self.queue!r} of {self.path}"

    def show(self, file: TextIO | None = None) -> None:
        """Print it."""
        print(self, file=file)


def archive(
    spark: SparkSession,
    path: str,
    target: str,
    *,
    queue: str = "main",
    tail: bool = False,
    consumer: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Archived:
    """Add to the archive at `target` what the queue's sealed segments hold and it does not.

    `target` becomes Parquet, by queue, date of the put (UTC) and unit. Run it as often as you like:
    each record is there once, also after a run that was killed. With `tail` the segment that is
    still being written is archived too, as far as it goes now. As a `consumer` of that name the
    archive holds the log from the first counter on that it lacks. `path` may be a directory or the
    address of a frame server, with what that needs in `options` (`token`). ArchiveError if another
    run is at work or the archive is of another store. When the job fails, for instance because the
    owner reclaimed a segment meanwhile, the next run begins anew what this one began.
    """
    shelf = Shelf(target)
    given = dict(options or {})
    with shelf.in_use(), opened(path, given) as access:
        store = access.store_id
        view = access.queue(check_name(queue))
        if consumer is not None:
            _check_consumer(access, check_consumer_name(consumer), queue)
        shelf.check_store(queue, store)
        dropped = shelf.drop_planned(queue)
        before = [(unit.first, unit.last) for unit in shelf.units(queue)]
        newest = max((span.segment for span in view.spans), default=0)
        planned = [
            Unit(queue=queue, store=store, segment=span.segment, first=first, last=last)
            for span in view.spans
            if tail or span.segment < newest
            for first, last in without(span.first, span.last, before)
        ]
        done = _write(spark, path, given, shelf, planned) if planned else []
        units = shelf.units(queue)
        if consumer is not None:
            access.set_position(consumer, _position(units, view, store))
        missing = _missing(units, view)
    return Archived(units=done, dropped=dropped, missing=missing)


def _check_consumer(access: Access, name: str, queue: str) -> None:
    """ConsumerInUse if the position is a query's, or of another queue."""
    before = access.position(name)
    if before is None or before.store != access.store_id:
        return
    if before.checkpoint or before.queue != queue:
        raise ConsumerInUse(
            f"consumer={name!r}: somebody else has a position of that name, in queue "
            f"{before.queue!r} with the checkpoint {before.checkpoint!r}. Nothing was archived. "
            f"Choose another name."
        )


def _write(
    spark: SparkSession, path: str, options: dict[str, str], shelf: Shelf, planned: list[Unit]
) -> list[Unit]:
    shelf.write(planned)
    source = spark.read.format("fifoq").options(**options).option("includeHeaders", "true")
    queue, ends = planned[0].queue, (planned[0].first, planned[-1].last)
    records = source.option("queue", queue).load(path).where(F.col("counter").between(*ends))
    (
        records.select("counter", "timestamp", "key", "data", "headers")
        .mapInArrow(_Sorter(planned), f"{_RECORD}, unit STRING")
        .withColumn("queue", F.lit(queue))
        .withColumn("date", F.to_date(F.to_utc_timestamp("timestamp", F.current_timezone())))
        .write.mode("append")
        .partitionBy("queue", "date", "unit")
        .parquet(str(shelf.path))
    )
    # Before anybody is told: the log may be freed by it.
    sync_file_system(str(shelf.path))
    counts = _counts(spark, shelf, planned)
    done = [
        msgspec.structs.replace(unit, records=counts.get(unit.id, 0), state="done")
        for unit in planned
    ]
    shelf.write(done)
    return done


class _Sorter:
    """The work of one task: which unit each record is for; those of none are left out."""

    def __init__(self, units: list[Unit]) -> None:
        self._firsts = np.array([unit.first for unit in units])
        self._lasts = np.array([unit.last for unit in units])
        self._ids = [unit.id for unit in units]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = pa.array(self._ids)
        for batch in batches:
            counters = batch.column("counter").to_numpy()
            at = np.searchsorted(self._firsts, counters, side="right") - 1
            wanted = (at >= 0) & (counters <= self._lasts[at])
            units = ids.take(pa.array(np.maximum(at, 0)))
            yield batch.append_column("unit", units).filter(pa.array(wanted))


def _counts(spark: SparkSession, shelf: Shelf, units: list[Unit]) -> dict[str, int]:
    """Records of each unit, as the files themselves say."""
    wanted = F.col("unit").isin([unit.id for unit in units]) & (F.col("queue") == units[0].queue)
    table = spark.read.schema(f"{_RECORD}, {_PARTITIONS}").parquet(str(shelf.path)).where(wanted)
    return {row["unit"]: row["count"] for row in table.groupBy("unit").count().collect()}


_PARTITIONS: Final = "queue STRING, date DATE, unit STRING"
_REPLAY_BATCH: Final = 1


def without(first: int, last: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of first..last when ranges, in the order of their begin, are taken away."""
    left = []
    for low, high in ranges:
        if high < first or low > last:
            continue
        if low > first:
            left.append((first, low - 1))
        first = max(first, high + 1)
    return [*left, (first, last)] if first <= last else left


def _missing(units: list[Unit], view: QueueDescription) -> list[tuple[int, int]]:
    """Gaps in the archive that the store cannot fill any more."""
    if not units:
        return []
    kept = [(unit.first, unit.last) for unit in units]
    kept += [(span.first, span.last) for span in view.spans]
    return without(1, max(unit.last for unit in units), sorted(kept))


def _position(units: list[Unit], view: QueueDescription, store: str) -> Position:
    """The first counter that the store has and the archive has not."""
    kept = [(unit.first, unit.last) for unit in units]
    lacking = [first for span in view.spans for first, _ in without(span.first, span.last, kept)]
    counter = min(lacking, default=view.next)
    now = time.time_ns() // 1_000_000
    return Position(queue=view.name, counter=counter, store=store, written_at=now)


def archived(spark: SparkSession, target: str, *, queue: str | None = None) -> DataFrame:
    """The archive as a table, with the columns `queue`, `date` and `unit` beside the record's own.

    Only units that are complete: what a killed run left behind is not there.
    """
    shelf = Shelf(target)
    units = [unit for unit in shelf.units(queue) if unit.state == "done"]
    if not units:
        raise ArchiveError(f"{shelf.path}: nothing is archived there. Nothing was changed.")
    keys = [f"{unit.queue}/{unit.id}" for unit in units]
    table = spark.read.schema(f"{_RECORD}, {_PARTITIONS}").parquet(str(shelf.path))
    return table.where(F.concat_ws("/", "queue", "unit").isin(keys))


def replay(
    spark: SparkSession,
    target: str,
    path: str,
    *,
    queue: str = "main",
    into: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    name: str | None = None,
) -> Replayed:
    """Put archived records of `queue` back into a queue, in their order, in one atomic write.

    They get new counters and times; data and headers are as they were. `into` is the queue to fill,
    by default the same name; `since` and `until`, with a time zone each, bound the time of the
    first put. `path` is a store's directory, which may be in use by its owner. With a `name` the
    replay happens once: another one of that name adds nothing.
    """
    for option, moment in (("since", since), ("until", until)):
        if moment is not None and moment.tzinfo is None:
            raise ValueError(f"{option}={moment} has no time zone")
    records = archived(spark, target, queue=check_name(queue))
    if since is not None:
        records = records.where(F.col("timestamp") >= F.lit(since))
    if until is not None:
        records = records.where(F.col("timestamp") < F.lit(until))
    goal = check_name(into or queue)
    if name is not None and batch_is_known(path, goal, name, _REPLAY_BATCH):
        return Replayed(queue=goal, path=path, records=0)
    count = records.count()
    writer = records.orderBy("counter").select("data", "headers").write.format("fifoq")
    if name is not None:
        writer = writer.option("writer", name).option("batch", str(_REPLAY_BATCH))
    writer.option("queue", goal).mode("append").save(path)
    return Replayed(queue=goal, path=path, records=count)
