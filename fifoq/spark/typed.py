"""Columns of a queue's type: from the JSON schemas kept with the queue to Spark's types and back.

Records of a typed queue are msgpack. What its type looks like is kept with the queue, so that a
reader needs no Python class: fields of a struct become columns, anything else one column `item`.
What has no type of its own in Spark (unions, recursive types) comes as a string of JSON.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from fifoq.errors import SchemaMismatch

FIXED: Final = ("counter", "timestamp", "key", "data", "headers")
"""Columns of every queue: a field of such a name gets an underscore behind its own."""
WHOLE: Final = "item"

Schema = dict[str, Any]
Convert = Callable[[Any], Any]

_decode = msgspec.msgpack.Decoder().decode
_FORMATS: Final[dict[str, types.DataType]] = {
    "date-time": types.TimestampType(),
    "date": types.DateType(),
}
_PLAIN: Final[dict[str, types.DataType]] = {
    "integer": types.LongType(),
    "number": types.DoubleType(),
    "boolean": types.BooleanType(),
    "string": types.StringType(),
}


class TypedColumns:
    """The columns that a shape means; picklable, since it is made anew from the shape."""

    def __init__(self, queue: str, shape: list[Any], more: tuple[str, ...] = ()) -> None:
        """`more` are names that are taken beside those of every queue."""
        self._queue, self._shape, self._more = queue, shape, more
        whole = _resolved(shape, shape[0])
        self._single = "properties" not in whole
        schemas = {WHOLE: shape[0]} if self._single else whole["properties"]
        self.fields: dict[str, types.DataType] = {}
        self._converts: dict[str, tuple[str, Convert]] = {}
        for name, schema in schemas.items():
            spark_type, convert = _typed(shape, schema, () if self._single else (id(whole),))
            column = _free_name(name, (*more, *self.fields))
            self.fields[column] = spark_type
            self._converts[column] = name, convert

    def __reduce__(self) -> tuple[object, ...]:
        return TypedColumns, (self._queue, self._shape, self._more)

    def arrays(self, payloads: list[bytes], first: int, last: int) -> dict[str, pa.Array]:
        """All columns of these records, which have the counters first..last.

        SchemaMismatch if one of them does not fit.
        """
        rows: dict[str, list[Any]] = {column: [] for column in self.fields}
        try:
            for payload in payloads:
                item = _decode(payload)
                for column, (name, convert) in self._converts.items():
                    value = item if self._single else item.get(name)
                    rows[column].append(None if value is None else convert(value))
            return {
                column: pa.array(rows[column], to_arrow_type(spark_type, timezone="UTC"))
                for column, spark_type in self.fields.items()
            }
        except (msgspec.MsgspecError, pa.ArrowException, *_UNFIT) as error:
            raise SchemaMismatch(
                f"queue {self._queue!r}: a record from counter {first} to {last} is not of the "
                f"queue's type ({error}). Nothing was changed. Read it without the option typed."
            ) from error


_UNFIT: Final = (AttributeError, TypeError, ValueError, KeyError, OverflowError)


def _free_name(name: str, taken: Iterable[str]) -> str:
    """The field's name, or one with underscores behind it: Spark does not tell case apart."""
    used = {*FIXED, *(column.lower() for column in taken)}
    while name.lower() in used:
        name += "_"
    return name


def _resolved(shape: list[Any], schema: Schema) -> Schema:
    """What a reference refers to; and of a type that may be None, the type."""
    while True:
        if "$ref" in schema:
            schema = shape[1 + int(schema["$ref"])]
        elif len(others := [each for each in schema.get("anyOf", ()) if not _is_null(each)]) == 1:
            schema = others[0]
        else:
            return schema


def _is_number(schema: Schema) -> bool:
    """Whether it is a number, or one of several kinds of them."""
    kinds = [each.get("type") for each in schema.get("anyOf", (schema,))]
    return "number" in kinds and set(kinds) <= {"number", "integer", "null"}


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def _typed(
    shape: list[Any], schema: Schema, outer: tuple[int, ...]
) -> tuple[types.DataType, Convert]:
    """Spark's type for a schema, and what turns a decoded value that is not None into one."""
    schema = _resolved(shape, schema)
    if id(schema) in outer:
        return types.StringType(), _json
    outer = (*outer, id(schema))
    kind = schema.get("type")
    if "enum" in schema:
        return _enumeration(schema["enum"])
    if kind == "string":
        return _text(schema)
    if _is_number(schema):
        return _PLAIN["number"], float
    if kind in _PLAIN:
        return _PLAIN[kind], _same
    if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        element, convert = _typed(shape, schema["items"], outer)
        return types.ArrayType(element), lambda value: [_or_none(convert, each) for each in value]
    if kind == "object" and schema.get("properties"):
        return _struct(shape, schema["properties"], outer)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        element, convert = _typed(shape, schema["additionalProperties"], outer)
        return types.MapType(types.StringType(), element), lambda value: [
            (_key(key), _or_none(convert, each)) for key, each in value.items()
        ]
    return types.StringType(), _json


def _struct(
    shape: list[Any], properties: dict[str, Schema], outer: tuple[int, ...]
) -> tuple[types.DataType, Convert]:
    fields = {name: _typed(shape, schema, outer) for name, schema in properties.items()}
    spark_type = types.StructType([types.StructField(name, t) for name, (t, _) in fields.items()])

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {name: _or_none(inner, value.get(name)) for name, (_, inner) in fields.items()}

    return spark_type, convert


def _enumeration(values: list[Any]) -> tuple[types.DataType, Convert]:
    for python, spark_type in ((str, types.StringType()), (int, types.LongType())):
        if all(type(value) is python for value in values):
            return spark_type, _same
    return types.StringType(), _json


def _text(schema: Schema) -> tuple[types.DataType, Convert]:
    if "contentEncoding" in schema:
        return types.BinaryType(), _same
    form = schema.get("format", "")
    if form == "date-time":
        return _FORMATS[form], _moment
    if form == "date":
        return _FORMATS[form], datetime.date.fromisoformat
    return types.StringType(), _as_text


def _same(value: Any) -> Any:
    return value


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


def _moment(value: Any) -> datetime.datetime:
    """A point in time; msgspec writes one without a zone as text, which is taken for UTC."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"{type(value).__name__} instead of a time")
    return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _json(key).strip('"')


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
