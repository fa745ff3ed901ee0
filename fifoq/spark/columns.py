"""Which columns a queue has for Spark, and which of them a query asked for."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from fifoq.description import QueueDescription
from fifoq.spark.arrow import ATTEMPTS, Batches, Ranges
from fifoq.spark.options import OptionError, Reading
from fifoq.spark.typed import TypedColumns

_KEYS: Final = {
    "counter": types.LongType(),
    "timestamp": types.TimestampType(),
    "key": types.BinaryType(),
}
_HEADERS: Final = types.MapType(types.StringType(), types.StringType())
_ATTRIBUTES: Final = {
    "priority": types.IntegerType(),
    "deliver_at": types.TimestampType(),
    "expires_at": types.TimestampType(),
    "ordering_key": types.StringType(),
    "dedup_id": types.StringType(),
    ATTEMPTS: types.IntegerType(),
}


class Columns:
    """The columns of a queue for one way of reading it. Plain values, fit to travel."""

    def __init__(self, view: QueueDescription, reading: Reading) -> None:
        """OptionError if `typed` is asked of a queue whose type is not known."""
        more = tuple(_ATTRIBUTES) if reading.attributes else ()
        self._typed = _typed_columns(view, more) if reading.typed else None
        self.types: dict[str, types.DataType] = dict(_KEYS)
        if self._typed is None:
            self.types["data"] = types.BinaryType()
        else:
            self.types |= self._typed.fields
        if reading.headers:
            self.types["headers"] = _HEADERS
        if reading.attributes:
            self.types |= _ATTRIBUTES

    def schema(self) -> types.StructType:
        """All of them."""
        return types.StructType(
            [types.StructField(name, spark_type) for name, spark_type in self.types.items()]
        )

    def batches(self, schema: types.StructType, attempts: Ranges = ()) -> Batches:
        """What makes the columns of `schema`, which may leave some out, in its order.

        `attempts` are those of counters that have some.

        ValueError for a column that there is not, or not of that type.
        """
        for field in schema.fields:
            there = self.types.get(field.name)
            if there is None:
                names = ", ".join(self.types)
                raise ValueError(f"schema: there is no column {field.name!r}; there are {names}.")
            if not _same_type(field.dataType, there):
                raise ValueError(
                    f"schema: column {field.name!r} is {there.simpleString()}, not "
                    f"{field.dataType.simpleString()}."
                )
        wanted = any(field.name in self._typed.fields for field in schema) if self._typed else False
        return Batches(arrow_schema(schema), self._typed if wanted else None, attempts)


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """The schema that Spark expects of our batches."""
    return to_arrow_schema(schema, timezone="UTC")


def _typed_columns(view: QueueDescription, more: tuple[str, ...]) -> TypedColumns:
    if view.shape is None:
        state = (
            "has no type"
            if view.schema is None
            else "was made before types were kept with it; open it once with its type"
        )
        raise OptionError("typed", f"queue {view.name!r} {state}. Read it without the option.")
    return TypedColumns(view.name, view.shape, more)


def _same_type(one: types.DataType, other: types.DataType) -> bool:
    return one.simpleString() == other.simpleString()
