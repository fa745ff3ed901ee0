"""Rows for a queue: which columns the sink takes, and how rows become blocks of records.

Payloads stay in Arrow's own buffers, and so do numbers: no Python object is made for a record, but
for those that have headers, an ordering key or an id.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from fifoq.attributes import (
    DEDUP_ID_BYTES_MAX,
    ORDERING_KEY_BYTES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    SECONDS_MAX,
)
from fifoq.codec import encode_headers
from store import ItemTooLarge, RecordBlock
from store.blocks import DEDUP_ID, DELIVER_AT, HEADERS, ORDERING_KEY, PRIORITY, RECORDS

BLOCK_RECORDS: Final = 16384
BLOCK_BYTES: Final = 1 << 20
"""A block closes with the record that would bring it over these."""
RECORD_BYTES_MAX: Final = 16 << 20
"""No record may be larger; it is also what a queue takes by default."""

EXPECTED: Final = {
    "data": "BINARY (or STRING, as UTF-8)",
    "headers": "MAP<STRING,STRING>",
    "ordering_key": "STRING",
    "priority": "INT",
    "deliver_at": "TIMESTAMP",
    "dedup_id": "STRING",
}
"""The columns that there may be, and their types."""
_TAKES: Final = "the sink takes " + ", ".join(f"{name} {kind}" for name, kind in EXPECTED.items())
_NOTHING: Final = "Nothing of this job is in the queue."
_US: Final = 1_000_000

BlockColumns = dict[int, memoryview | list[bytes]]


class ColumnError(ValueError):
    """A column that the sink does not take; nothing was written."""


def check_columns(schema: StructType) -> None:
    """ColumnError unless there is `data`, and no other column than those that may be there."""
    fields = {field.name.lower(): field for field in schema.fields}
    if "data" not in fields:
        raise ColumnError(
            f"column data is missing: {_TAKES}, all but data if need be, and was given "
            f"{schema.simpleString()}. Nothing was written."
        )
    for name, field in fields.items():
        expected = EXPECTED.get(name)
        if expected is None:
            raise ColumnError(
                f"column {field.name}: {_TAKES}, and no other. Nothing was written. Select those, "
                f"with what else is to be kept inside data."
            )
        if not _fits(name, field.dataType):
            raise ColumnError(
                f"column {field.name}: it is {field.dataType.simpleString().upper()}, and "
                f"{expected} is expected. Nothing was written. Cast it."
            )


def _fits(name: str, kind: DataType) -> bool:
    match name:
        case "data":
            return isinstance(kind, BinaryType | StringType)
        case "priority":
            return isinstance(kind, IntegerType)
        case "deliver_at":
            # Not TIMESTAMP_NTZ: nobody knows when that is.
            return isinstance(kind, TimestampType)
        case "ordering_key" | "dedup_id":
            return isinstance(kind, StringType)
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    )


# In tasks.


def blocks_of(batch: pa.RecordBatch) -> Iterator[RecordBlock]:
    """The rows of a batch as blocks; payloads are not copied. ValueError, ItemTooLarge."""
    given = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
    data = given.pop("data")
    if data.null_count:
        raise ValueError(
            f"column data: {data.null_count} rows are null, and a record has bytes. {_NOTHING} "
            f"Filter them out, or coalesce them to an empty value."
        )
    if not batch.num_rows:
        return
    data = data.cast(pa.binary())
    _, offset_buffer, payload_buffer = data.buffers()
    ends = np.frombuffer(offset_buffer, np.int32)[data.offset : data.offset + len(data) + 1]
    payload = memoryview(payload_buffer) if payload_buffer is not None else memoryview(b"")
    largest = int(np.diff(ends).max())
    if largest > RECORD_BYTES_MAX:
        raise ItemTooLarge(
            f"column data: a record of {largest} bytes is over the limit of {RECORD_BYTES_MAX}. "
            f"{_NOTHING}"
        )
    for start, stop in _pieces(ends):
        first = int(ends[start])
        count = stop - start
        columns = {name: column.slice(start, count) for name, column in given.items()}
        yield RecordBlock(
            "",
            RECORDS,
            1,
            count,
            0,
            (ends[start : stop + 1] - first).data,
            payload[first : int(ends[stop])],
            None,
            _block_columns(columns),
        )


def _pieces(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Index ranges of records for one block each."""
    start, count = 0, len(ends) - 1
    while start < count:
        fits = int(np.searchsorted(ends, int(ends[start]) + BLOCK_BYTES, "right")) - 1
        stop = min(count, start + BLOCK_RECORDS, max(fits, start + 1))
        yield start, stop
        start = stop


def _block_columns(given: dict[str, pa.Array]) -> BlockColumns:
    """The optional columns of a block; those in which nothing is said are left out."""
    columns: BlockColumns = {}
    for name, (bit, make) in _OPTIONAL.items():
        column = given.get(name)
        if column is not None and column.null_count < len(column):
            made = make(column)
            if made is not None:
                columns[bit] = made
    return columns


def _due_times(column: pa.Array) -> memoryview | None:
    """In nanoseconds since the epoch; 0, which means at once, for what has come already."""
    times = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(0)
    due = times.to_numpy(zero_copy_only=False)
    low, high = int(due.min()), int(due.max())
    if low < 0 or high > SECONDS_MAX * _US:
        wrong = (low if low < 0 else high) / _US
        raise ValueError(
            f"column deliver_at: {wrong:.0f} seconds since 1970 are not 0 or more, and at most "
            f"{SECONDS_MAX}. {_NOTHING}"
        )
    nanoseconds = due.astype(np.uint64) * np.uint64(1000)
    nanoseconds[nanoseconds <= time.time_ns()] = 0
    return nanoseconds.data if nanoseconds.any() else None


def _priorities(column: pa.Array) -> memoryview | None:
    lanes = column.fill_null(PRIORITY_DEFAULT).to_numpy(zero_copy_only=False)
    for lane in (int(lanes.min()), int(lanes.max())):
        if not 0 <= lane <= PRIORITY_MAX:
            raise ValueError(
                f"column priority: {lane} is not one of 0 (first) to {PRIORITY_MAX} (last). "
                f"{_NOTHING}"
            )
    return lanes.astype(np.uint8).data if (lanes != PRIORITY_DEFAULT).any() else None


def _headers(column: pa.Array) -> list[bytes] | None:
    try:
        encoded = [encode_headers(dict(pairs)) if pairs else b"" for pairs in column.to_pylist()]
    except (TypeError, ValueError) as error:
        raise ValueError(f"column headers: {error} {_NOTHING}") from None
    return encoded if any(encoded) else None


def _ordering_keys(column: pa.Array) -> list[bytes]:
    return _texts("ordering_key", "a key", column, ORDERING_KEY_BYTES_MAX)


def _dedup_ids(column: pa.Array) -> list[bytes]:
    return _texts("dedup_id", "an id", column, DEDUP_ID_BYTES_MAX)


def _texts(name: str, what: str, column: pa.Array, bytes_max: int) -> list[bytes]:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise ValueError(f"column {name}: {what} is not UTF-8. {_NOTHING}") from None
    texts = column.cast(pa.binary())
    sizes = pc.min_max(pc.binary_length(texts)).as_py()
    for size in sizes.values():
        if not 0 < size <= bytes_max:
            raise ValueError(
                f"column {name}: {what} of {size} bytes is not one of 1 to {bytes_max}. "
                f"{_NOTHING} Null stands for none."
            )
    return list(texts.fill_null(b"").to_pylist())


_OPTIONAL: Final = {
    "deliver_at": (DELIVER_AT, _due_times),
    "priority": (PRIORITY, _priorities),
    "headers": (HEADERS, _headers),
    "ordering_key": (ORDERING_KEY, _ordering_keys),
    "dedup_id": (DEDUP_ID, _dedup_ids),
}
