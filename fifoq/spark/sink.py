"""The sink: what Spark writes into a queue, a job or a micro-batch at a time, exactly once.

Tasks write staged parts; the driver names them in one manifest, which is the commit point; the
store's owner takes it in, together with how far its writer is. If nobody owns the store, the
driver does for as long as that takes. So a retried task, a second attempt beside the first, a
retried batch and a restarted query add nothing twice, and an aborted job adds nothing.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import fifoq.sync
from fifoq.spark.access import REMOTE_SCHEME
from fifoq.spark.handover import (
    POLL_SECONDS,
    Patience,
    SinkRefused,
    check_earlier,
    patience,
    wait_until_taken_in,
)
from fifoq.spark.local import LocalAccess, local_path
from fifoq.spark.options import OptionError, Options, target_of
from fifoq.spark.rows import check_columns
from fifoq.spark.staged import (
    PartFile,
    discard_leftovers,
    discard_prefix,
    make_directory,
    publish,
    staged_path,
)
from fifoq.staged import (
    FORMAT_VERSION,
    Manifest,
    Part,
    check_writer,
    decode_manifest,
    decode_progress,
    manifest_name,
    part_name,
    part_prefix,
    state_name,
)
from store import AlreadyOpen, FifoqError, InvalidName

BATCH_PROPERTY: Final = "streaming.sql.batchId"
QUERY_PROPERTY: Final = "sql.streaming.queryId"
UNKNOWN_QUERY: Final = "unknown"

STREAM_OPTIONS: Final = ("path", "queue", "writer", "ingestTimeout")
JOB_OPTIONS: Final = (*STREAM_OPTIONS, "batch")
SPARKS_OWN: Final = ("checkpointLocation", "queryName")
"""What Spark hands a sink beside its own options."""


class Sink(msgspec.Struct, frozen=True):
    """Where a job or a query writes to. Plain values: Spark sends it to its tasks."""

    path: str
    queue: str
    store: str
    writer: str
    batch: int
    """Of a job; each micro-batch of a stream has its own."""
    run: str
    """Tells the parts of one job from those of another."""
    once: bool
    wait: Patience

    @property
    def directory(self) -> Path:
        return staged_path(self.path)


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote, as plain values."""

    partition: int
    run: str
    name: str = ""
    size: int = 0
    blocks: int = 0
    records: int = 0


Messages = Sequence[WriterCommitMessage | None]


class JobWriter(DataSourceArrowWriter):
    """One job: `df.write.format("fifoq")`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_part(self._sink, iterator, self._sink.batch, self._sink.run)

    def commit(self, messages: Messages) -> None:
        commit(self._sink, _written(messages), self._sink.batch)

    def abort(self, messages: Messages) -> None:
        _discard_run(self._sink, self._sink.batch, self._sink.run)


class StreamWriter(DataSourceStreamArrowWriter):
    """One query: `df.writeStream.format("fifoq")`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(BATCH_PROPERTY) or 0)
        query = context.getLocalProperty(QUERY_PROPERTY) or UNKNOWN_QUERY
        return write_part(self._sink, iterator, batch, query)

    def commit(self, messages: Messages, batchId: int) -> None:
        commit(self._sink, _written(messages), batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        for run in {message.run for message in _written(messages)}:
            _discard_run(self._sink, batchId, run)


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> JobWriter:
    """The writer of one job. OptionError, ColumnError: nothing was written."""
    given = _lower(options)
    job = f"job-{uuid.uuid4().hex}"
    if "batch" in given and "writer" not in given:
        raise OptionError("batch", "it says which batch of a writer this is; name the `writer` too")
    if "writer" in given and "batch" not in given:
        raise OptionError(
            "writer",
            "a job by that name needs the option `batch` too, a number that rises from job to job: "
            "a job with the same number adds nothing. Without both, each job adds its records.",
        )
    _refuse_unknown(given, JOB_OPTIONS)
    once = "writer" not in given
    sink = _sink(given, schema, overwrite, writer=given.get("writer", job), run=job, once=once)
    return JobWriter(sink)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamWriter:
    """The writer of a query. OptionError, ColumnError: nothing was written."""
    given = _lower(options)
    _refuse_unknown(given, STREAM_OPTIONS)
    if "writer" not in given:
        raise OptionError(
            "writer",
            'it is missing; give the query a name of its own: .option("writer", "nightly"). '
            "Batches are told apart by it, and Spark tells a sink nothing else that lasts.",
        )
    sink = _sink(given, schema, overwrite, writer=given["writer"], run="", once=False)
    return StreamWriter(sink)


def _refuse_unknown(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    names = {name.lower() for name in (*known, *SPARKS_OWN)}
    for name in given:
        if name not in names:
            raise OptionError(name, f"there is no such option; there are {', '.join(known)}.")


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _sink(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
    *,
    writer: str,
    run: str,
    once: bool,
) -> Sink:
    if overwrite:
        raise OptionError("mode", 'a queue is only added to: .mode("append"), outputMode("append")')
    check_columns(schema)
    target = target_of(options)
    if target.path.startswith(REMOTE_SCHEME):
        raise OptionError(
            "path",
            f"{target.path} is a server; the sink writes to a directory that the driver and all "
            f"executors share. Give the store's directory.",
        )
    try:
        check_writer(writer)
    except InvalidName as error:
        raise OptionError("writer", str(error)) from None
    # Tasks may have another current directory.
    path = os.path.abspath(local_path(target.path))
    found = Options(options)
    batch = found.number("batch", 0) or 0
    wait = patience(found.duration("ingestTimeout"), stream=not run)
    store = _store_at(path)
    directory = staged_path(path)
    make_directory(directory)
    discard_leftovers(directory)
    return Sink(
        path,
        target.queue,
        store,
        writer,
        batch,
        run,
        once,
        wait,
    )


def _store_at(path: str) -> str:
    """The id of the store there, which is made if there is none."""
    try:
        access = LocalAccess(path)
    except FifoqError:
        # No store yet, or none that is sound: opening makes one, or says what is wrong.
        try:
            fifoq.sync.open_store(path, cursor_cap_bytes=sys.maxsize).close()
        except AlreadyOpen:
            # Somebody is just making it.
            time.sleep(POLL_SECONDS)
        access = LocalAccess(path)
    try:
        return access.store_id
    finally:
        access.close()


def batch_is_known(path: str, queue: str, writer: str, batch: int) -> bool:
    """Whether a batch of that writer is in the queue, or will be: then another adds nothing."""
    path = local_path(path)
    if (staged_path(path) / manifest_name(queue, writer, batch)).exists():
        return True
    try:
        access = LocalAccess(path)
    except FifoqError:
        return False
    try:
        progress = decode_progress(access.state(state_name(queue, writer, once=False)))
    finally:
        access.close()
    return progress is not None and progress.batch >= batch


# In tasks.


def write_part(sink: Sink, batches: Iterable[pa.RecordBatch], batch: int, run: str) -> Written:
    """Write one task's records; durable on return. If it raises, no file is left."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    # Attempts are numbered anew by a driver that was restarted: the number alone is not enough.
    number = context.taskAttemptId() if context is not None else 0
    attempt = f"{number}-{uuid.uuid4().hex[:12]}"
    if not sink.directory.is_dir():
        raise FileNotFoundError(
            f"{sink.directory}: this executor does not see it. Nothing was written. The sink needs "
            f"a path to the store that the driver and all executors share."
        )
    file = PartFile(sink.directory, part_name(sink.writer, batch, run, partition, attempt))
    try:
        for records in batches:
            file.add(records)
        part = file.finish()
    except BaseException:
        file.discard()
        raise
    if part is None:
        return Written(partition, run)
    return Written(partition, run, part.name, part.size, part.blocks, part.records)


# On the driver.


def commit(sink: Sink, written: Sequence[Written], batch: int) -> None:
    """Make a batch exist, and wait until it is in the queue, or for the time given.

    SinkRefused: it, or an earlier one of the query, was set aside. Whatever else happens once the
    manifest is there, the batch will be in the queue, so waiting too long is no failure.
    """
    parts = [
        Part(message.name, message.size, message.blocks, message.records)
        for message in sorted(written, key=lambda message: message.partition)
        if message.records
    ]
    runs = {message.run for message in written}
    if parts:
        # A job's run is its own, and the next job of that writer has another.
        query = "" if sink.run or runs == {UNKNOWN_QUERY} else min(runs)
        if query:
            check_earlier(sink.path, sink.queue, sink.writer, batch, query)
        ours = Manifest(
            FORMAT_VERSION,
            sink.store,
            sink.queue,
            sink.writer,
            batch,
            parts,
            query=query,
            once=sink.once,
        )
        if not publish(sink.directory, ours):
            _check_same_query(sink, ours)
    for run in runs:
        _discard_run(sink, batch, run)
    if parts:
        wait_until_taken_in(sink.path, sink.queue, sink.writer, batch, sink.wait)


def _published(sink: Sink, batch: int) -> Manifest | None:
    """The manifest of the batch that is there, ours or an earlier one."""
    path = sink.directory / manifest_name(sink.queue, sink.writer, batch)
    try:
        return decode_manifest(path.read_bytes())
    except FileNotFoundError:
        return None


def _discard_run(sink: Sink, batch: int, run: str) -> None:
    """Remove what one run of a batch wrote, but for parts that a manifest names.

    Spark also aborts a batch whose commit failed after the manifest was there, and that one stays.
    """
    there = _published(sink, batch)
    names = [part.name for part in there.parts] if there is not None else []
    discard_prefix(sink.directory, part_prefix(sink.writer, batch, run), but=names)


def _check_same_query(sink: Sink, ours: Manifest) -> None:
    """SinkRefused if the batch that is there is another query's, which has the same writer name."""
    there = _published(sink, ours.batch)
    if there is None or not there.query or there.query == ours.query:
        return
    _discard_run(sink, ours.batch, ours.query)
    raise SinkRefused(
        f"{sink.directory}: writer {sink.writer!r} is used by another query, {there.query}, whose "
        f"batch {ours.batch} waits to be taken in. Nothing of this one's was written. Give each "
        f"query a writer name of its own."
    )


def _written(messages: Messages) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]
