"""Arrow and Parquet: an export as tables. Needs pyarrow; the extra `spark` brings it.

A file is one table; an export to disk is a directory of them, as Spark writes it, since a finished
part can be kept when the rest is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from fifoq.tools.rows import Header, Row
from store import FifoqError, FormatError

TableFormat = Literal["arrow", "parquet"]

BATCH_RECORDS: Final = 8192
_HEADER: Final = b"fifoq"


class MissingPyArrow(FifoqError):
    """Arrow and Parquet need a package that is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "Arrow and Parquet need pyarrow, which is not installed. Nothing was changed. "
            "Install it (pip install pyarrow), or choose ndjson or msgpack."
        )


def require_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingPyArrow from None
    return pyarrow


def schema(header: Header | None) -> Any:
    """The columns of every table. Times are nanoseconds since the epoch, without a sign."""
    pa = require_pyarrow()
    fields = [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("counter", pa.int64(), nullable=False),
        pa.field("timestamp", pa.uint64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("deliver_at", pa.uint64()),
        pa.field("expires_at", pa.uint64()),
        pa.field("priority", pa.uint8(), nullable=False),
        pa.field("ordering_key", pa.string()),
        pa.field("dedup_id", pa.string()),
        pa.field("attempt", pa.uint32(), nullable=False),
    ]
    metadata = {_HEADER: msgspec.json.encode(header)} if header is not None else None
    return pa.schema(fields, metadata=metadata)


def batch_of(rows: Sequence[Row], table_schema: Any) -> Any:
    """A record batch of these rows. What a row does not have is null."""
    pa = require_pyarrow()
    columns = []
    for field in table_schema:
        values: list[Any] = [getattr(row, field.name) for row in rows]
        if field.name == "headers":
            values = [list(headers.items()) or None for headers in values]
        elif field.nullable:
            values = [value or None for value in values]
        columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=table_schema)


def open_writer(format: TableFormat, target: Any, table_schema: Any, *, stream: bool) -> Any:
    """Writes batches to a file object; close it for the table to be whole.

    `stream` is for a target that cannot be read again, such as a pipe.
    """
    pa = require_pyarrow()
    if format == "parquet":
        from pyarrow import parquet

        return parquet.ParquetWriter(target, table_schema)
    return (pa.ipc.new_stream if stream else pa.ipc.new_file)(target, table_schema)


def read_rows(format: TableFormat, source: Any) -> tuple[Header | None, Iterator[Row]]:
    """The header, if the table has one, and its rows. FormatError if it is no such table."""
    pa = require_pyarrow()
    try:
        if format == "parquet":
            from pyarrow import parquet

            file = parquet.ParquetFile(source)
            return _header_of(file.schema_arrow), _rows(file.iter_batches(BATCH_RECORDS))
        reader = _open_ipc(pa, source)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"this is no {format} table: {error}") from None
    return _header_of(reader.schema), _rows(reader)


def _open_ipc(pa: Any, source: Any) -> Any:
    """The batches of either kind of Arrow file."""
    try:
        file = pa.ipc.open_file(source)
        return _Batches(file)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


class _Batches:
    """A file of batches, one after the other."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.schema = file.schema

    def __iter__(self) -> Iterator[Any]:
        for index in range(self._file.num_record_batches):
            yield self._file.get_batch(index)


def _header_of(table_schema: Any) -> Header | None:
    found = (table_schema.metadata or {}).get(_HEADER)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=Header)
    except msgspec.MsgspecError as error:
        raise FormatError(f"the table's header is not one of ours: {error}") from None


def _rows(batches: Any) -> Iterator[Row]:
    for batch in batches:
        known = [name for name in batch.schema.names if name in Row.__struct_fields__]
        columns = [batch.column(name).to_pylist() for name in known]
        for values in zip(*columns, strict=True):
            given = {
                name: value for name, value in zip(known, values, strict=True) if value is not None
            }
            if isinstance(given.get("headers"), list):
                given["headers"] = dict(given["headers"])
            if isinstance(given.get("data"), str):
                given["data"] = given["data"].encode()
            try:
                yield msgspec.convert(given, Row)
            except msgspec.MsgspecError as error:
                raise FormatError(f"a row of the table is not one of ours: {error}") from None
