"""The batch source: which counters a scan needs, and how its tasks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from fifoq.description import QueueDescription
from fifoq.spark.access import Access, opened
from fifoq.spark.columns import Columns
from fifoq.spark.filters import Bounds, narrowed
from fifoq.spark.options import OptionError, ScanOptions
from fifoq.spark.plan import PiecesPartition, partition_of, plan
from fifoq.spark.worker import keep_memory, spare_collections
from store import RangeGone


class ScanReader(DataSourceReader):
    """Plans in one process and reads in others; holds plain values alone."""

    def __init__(self, options: ScanOptions, columns: Columns, schema: StructType) -> None:
        self._options = options
        self._batches = columns, schema
        columns.batches(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what bounds counter and timestamp; the rest is left to Spark."""
        self._bounds, rest = narrowed(self._bounds, filters)
        return rest

    def partitions(self) -> list[InputPartition]:
        """What is retained within the bounds, as of now."""
        options = self._options
        target = options.target
        with opened(target.path, target.remote) as access:
            view = access.queue(target.queue)
            first, last = self._range(access, view)
            without: list[tuple[int, int]] = []
            if options.pending and first <= last:
                first = max(first, view.floor + 1)
                without = access.removed(target.queue, first, last)
            groups = plan(access, target.queue, first, last, options.reading)
            schema = self._batches[1]
            return [
                partition_of(
                    access,
                    target.queue,
                    pieces,
                    _within(without, pieces[0].first, pieces[-1].last),
                    schema,
                )
                for pieces in groups
            ]

    def _range(self, access: Access, view: QueueDescription) -> tuple[int, int]:
        """First and last counter that options and filters leave."""
        options = self._options
        self._check_counters(view)
        first = max(options.first or view.first, view.first)
        last = min(options.last or view.next - 1, view.next - 1)
        bounds = self._bounds.within(options.since, options.until)
        if bounds.since is not None:
            first = max(first, access.seek(view.name, bounds.since))
        if bounds.until is not None:
            last = min(last, access.seek(view.name, bounds.until) - 1)
        if bounds.first is not None:
            first = max(first, bounds.first)
        if bounds.last is not None:
            last = min(last, bounds.last)
        return first, last

    def _check_counters(self, view: QueueDescription) -> None:
        """OptionError if the range that was asked for is not there."""
        options = self._options
        newest = view.next - 1
        for option, counter in (
            ("startingCounter", options.first),
            ("endingCounter", options.last),
        ):
            if counter is not None and counter > newest + (option == "startingCounter"):
                raise OptionError(
                    option,
                    f"{counter} is behind the end of queue {view.name!r}: its last counter is "
                    f"{newest}. Nothing was read.",
                )
        if options.first is None or options.pending or options.first == view.next:
            return
        at = next((span.first for span in view.spans if span.last >= options.first), view.next)
        if at > options.first > 1:
            gone = RangeGone(view.name, options.first, at)
            raise OptionError("startingCounter", str(gone)) from gone

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition."""
        if not isinstance(partition, PiecesPartition):
            # What Spark makes up where nothing was planned.
            return
        target = self._options.target
        columns, schema = self._batches
        keep_memory()
        with opened(target.path, target.remote, partition.store_id) as access:
            blocks = chain.from_iterable(
                access.read(target.queue, piece) for piece in partition.pieces
            )
            batches = columns.batches(schema, partition.attempts)
            yield from batches.of(blocks, partition.without)
        spare_collections()


def _within(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    return [each for each in ranges if each[0] <= last and each[1] >= first]
