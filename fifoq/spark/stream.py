"""The stream source: offsets, limits of a trigger, and the position of a named consumer.

An offset is the next counter to read: every record below it belongs to earlier batches. The reader
lives in a process of its own beside the driver; its `read` runs in others, on partitions alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fifoq.description import QueueDescription
from fifoq.spark.access import Access, Piece, open_access, opened
from fifoq.spark.columns import Columns
from fifoq.spark.consumer import Consumer
from fifoq.spark.loss import Loss, LossFinder
from fifoq.spark.offsets import Offset, check_offset
from fifoq.spark.options import OptionError, Start, StreamOptions
from fifoq.spark.plan import (
    PiecesPartition,
    counter_after,
    partition_of,
    plan,
    records_between,
)
from fifoq.spark.worker import keep_memory, spare_collections
from store import RangeGone, RecordBlock

logger = logging.getLogger("fifoq.spark")

_SECOND = 1_000_000_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches. What it holds open is opened when it is first needed, and never travels."""

    def __init__(self, options: StreamOptions, columns: Columns, schema: StructType) -> None:
        self._options = options
        self._batches = columns, schema
        columns.batches(schema)
        self._access: Access | None = None
        self._consumer: Consumer | None = None
        self._target: int | None = None
        """The end of an availableNow run."""
        self._losses = LossFinder()
        self._waiting_since: float | None = None
        self._planned: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_access": None, "_consumer": None}

    # Offsets.

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        offset = self._first_offset()
        self._hold(offset)
        if self._consumer is not None:
            # Until there was a position the owner was free to reclaim what this one begins with.
            self._close()
            offset = self._first_offset()
            self._hold(offset)
        return offset.as_dict()

    def _first_offset(self) -> Offset:
        access, view = self._look()
        counter = self._start(access, view, self._options.start)
        puts = self._losses.puts(access, view, counter)
        return Offset(counter, access.store_id, view.name, puts)

    def _start(self, access: Access, view: QueueDescription, start: Start) -> int:
        match start.kind:
            case "earliest":
                return view.first
            case "latest":
                return view.next
            case "time":
                return access.seek(view.name, start.value)
        if not 1 <= start.value <= view.next:
            raise OptionError(
                "startingPosition",
                f"{start.value} is outside queue {view.name!r}: its last counter is "
                f"{view.next - 1}. Nothing was read.",
            )
        oldest = next((span.first for span in view.spans if span.last >= start.value), view.next)
        if start.value == 1 or oldest <= start.value:
            return max(start.value, view.first)
        raise OptionError("startingPosition", str(RangeGone(view.name, start.value, oldest)))

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is what the run reads."""
        # A new access waits for the seal of what was confirmed just before.
        self._close()
        self._target = self._look()[1].next

    def getDefaultReadLimit(self) -> ReadLimit:
        """A limit that says that there are some; `latestOffset` applies all of them."""
        options = self._options
        if options.records_max is not None:
            return ReadMaxRows(options.records_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        if options.records_min:
            return ReadMinRows(options.records_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the batch that begins at `start` ends; `start` itself if there is none yet."""
        begin = Offset.of(start)
        access, view = self._look()
        check_offset(begin, access.store_id, view, self._options)
        self._hold(begin)
        available = view.next if self._target is None else max(self._target, begin.counter)
        end = available
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(access, view, begin.counter, available)
        loss = self._loss(access, view, begin, end)
        if end == begin.counter:
            self._planned = begin
            return start
        self._planned = self._losses.following(access, view, begin, end, loss)
        return self._planned.as_dict()

    def _limited(self, access: Access, view: QueueDescription, begin: int, available: int) -> int:
        options = self._options
        waiting = records_between(view, begin, available - 1)
        if self._target is None and waiting < options.records_min:
            now = time.monotonic()
            if self._waiting_since is None or not waiting:
                self._waiting_since = now
            if now - self._waiting_since < options.delay_seconds:
                return begin
        self._waiting_since = None
        end = available
        if options.records_max is not None and waiting > options.records_max:
            end = min(end, counter_after(view, begin, options.records_max))
        if options.bytes_max is not None:
            size = options.bytes_max
            pieces = access.pieces(view.name, begin, end - 1, piece_bytes=size, total_bytes=size)
            if pieces and pieces[-1].last + 1 < end:
                end = pieces[-1].last + 1
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: the newest offset, and how far behind it the query is."""
        access, view = self._look()
        planned = self._planned
        begin = view.next if planned is None else planned.counter
        behind = records_between(view, begin, view.next - 1)
        seconds = 0.0
        # The next counter may be one that a crash skipped: what waits begins behind it.
        first = next((max(begin, span.first) for span in view.spans if span.last >= begin), None)
        if behind and first is not None:
            with suppress(RangeGone):
                oldest = next(access.blocks(view.name, first, view.next - 1), None)
                if oldest is not None:
                    seconds = max(0.0, (time.time_ns() - oldest.time) / _SECOND)
        return {
            "counter": view.next,
            "store": access.store_id,
            "queue": view.name,
            "lagRecords": behind,
            "lagSeconds": round(seconds, 3),
        }

    # Batches.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What the batch start..end reads. It may be one that was planned before a restart."""
        begin, stop = Offset.of(start), Offset.of(end)
        access, view = self._look()
        check_offset(begin, access.store_id, view, self._options)
        if stop.counter > view.next:
            # Planned by a reader that saw more than this one does yet.
            self._close()
            access, view = self._look()
        check_offset(stop, access.store_id, view, self._options)
        self._hold(begin)
        self._loss(access, view, begin, stop.counter)
        self._planned = stop
        groups = plan(access, view.name, begin.counter, stop.counter - 1, self._options.reading)
        schema = self._batches[1]
        return [partition_of(access, view.name, pieces, (), schema) for pieces in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition, in a process that knows nothing else."""
        assert isinstance(partition, PiecesPartition)
        target = self._options.target
        columns, schema = self._batches
        keep_memory()
        with opened(target.path, target.remote, partition.store_id) as access:
            blocks = chain.from_iterable(self._blocks(access, piece) for piece in partition.pieces)
            yield from columns.batches(schema, partition.attempts).of(blocks)
        spare_collections()

    def _blocks(self, access: Access, piece: Piece) -> Iterator[RecordBlock]:
        name = self._options.target.queue
        first = piece.first
        while first <= piece.last:
            try:
                for block in access.read(name, replace(piece, first=first)):
                    yield block
                    first = block.last + 1
                return
            except RangeGone as gone:
                if self._options.fail_on_loss:
                    raise
                first = max(gone.oldest, first + 1)

    # What has been read.

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything below `end`, which its checkpoint proves."""
        if self._consumer is not None:
            self._consumer.advance()

    def stop(self) -> None:
        """Write down what is proved, and let go."""
        try:
            if self._consumer is not None:
                self._consumer.advance()
        finally:
            self._close()

    def _hold(self, offset: Offset) -> None:
        """Have a position that keeps what is not read yet, before anything is planned."""
        options = self._options
        if options.consumer is None or options.checkpoint is None:
            return
        if self._consumer is None:
            assert self._access is not None
            self._consumer = Consumer(self._access, options.consumer, options.checkpoint, offset)
        self._consumer.advance()

    def _loss(self, access: Access, view: QueueDescription, begin: Offset, end: int) -> Loss | None:
        """What is missing there. DataLoss, unless the options say to go on."""
        loss = self._losses.find(access, view, begin, end)
        if loss is not None:
            if self._options.fail_on_loss:
                raise loss.error()
            logger.warning("%s", loss.warning)
        return loss

    def _look(self) -> tuple[Access, QueueDescription]:
        """The store and the queue as they are now."""
        target = self._options.target
        if self._access is None:
            self._access = open_access(target.path, target.remote)
        else:
            self._access.refresh()
        return self._access, self._access.queue(target.queue)

    def _close(self) -> None:
        access, self._access, self._consumer = self._access, None, None
        if access is not None:
            access.close()
