"""The format "fifoq": what Spark makes of its name, in the driver and in its Python processes."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from fifoq.description import QueueDescription
from fifoq.spark.access import opened
from fifoq.spark.columns import Columns
from fifoq.spark.options import (
    STREAM,
    OptionError,
    ScanOptions,
    StreamOptions,
    scan_options,
    stream_options,
)


class FifoqSource(DataSource):
    """A queue as a table, a stream and a sink. Its methods are called by Spark."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "fifoq"

    def schema(self) -> StructType:
        """The columns that the options ask for. The store must be there."""
        # Nobody says yet whether it becomes a table or a stream.
        streaming = {name.lower() for name in STREAM} & {name.lower() for name in self.options}
        options = stream_options(self.options) if streaming else scan_options(self.options)
        return self._columns(options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The queue as a table."""
        from fifoq.spark.scan import ScanReader

        options = scan_options(self.options)
        return ScanReader(options, self._columns(options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The queue as a stream."""
        from fifoq.spark.stream import StreamReader

        options = stream_options(self.options)
        return StreamReader(options, self._columns(options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The queue as the sink of a table."""
        from fifoq.spark.sink import make_writer

        writer: DataSourceWriter = make_writer(dict(self.options), schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The queue as the sink of a stream."""
        from fifoq.spark.sink import make_stream_writer

        writer: DataSourceStreamWriter = make_stream_writer(dict(self.options), schema, overwrite)
        return writer

    def _columns(self, options: ScanOptions | StreamOptions) -> Columns:
        target = options.target
        with opened(target.path, target.remote) as access:
            view = access.queue(target.queue)
            if isinstance(options, ScanOptions):
                _check_queue(view, access.queues())
        return Columns(view, options.reading)


def _check_queue(view: QueueDescription, there: list[str]) -> None:
    """OptionError for a queue that is not there while others are: that is a slip of the pen."""
    if there and not view.exists:
        raise OptionError(
            "queue", f"{view.name!r} is not in this store; there are {', '.join(there)}."
        )
