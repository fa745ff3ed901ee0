"""Typed columns: from what is kept with a queue, without the Python type."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from fifoq import SchemaMismatch
from fifoq.codec import schema_shape
from fifoq.spark.typed import TypedColumns
from tests.spark.support import error_of, read, stream

NOW = datetime.datetime(2026, 11, 17, 12, 30, tzinfo=datetime.UTC)


class Colour(enum.Enum):
    RED = "red"


class Line(msgspec.Struct):
    sku: str
    amount: int
    price: float | None = None


class Order(msgspec.Struct):
    id: int
    at: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    lines: list[Line]
    tags: dict[str, str] = {}
    timestamp: str = "the buyer's"
    parent: Order | None = None


class Everything(msgspec.Struct):
    moment: datetime.datetime
    day: datetime.date
    clock: datetime.time
    span: datetime.timedelta
    number: uuid.UUID
    exact: decimal.Decimal
    raw: bytes
    colour: Colour
    yes: bool
    ratio: float | int
    either: int | str
    pair: tuple[int, str]
    anything: Any
    counts: dict[int, int]
    maybe: Line | None = None


def columns_of(type: Any) -> TypedColumns:
    return TypedColumns("main", schema_shape(type))


def rows(type: Any, *items: Any) -> list[dict[str, Any]]:
    columns = columns_of(type)
    arrays = columns.arrays([msgspec.msgpack.encode(item) for item in items], 1, len(items))
    return [{name: array[i].as_py() for name, array in arrays.items()} for i in range(len(items))]


def test_each_kind_of_field_has_a_type_of_spark() -> None:
    types = {name: found.simpleString() for name, found in columns_of(Everything).fields.items()}
    assert types == {
        "moment": "string",
        "day": "date",
        "clock": "string",
        "span": "string",
        "number": "string",
        "exact": "string",
        "raw": "binary",
        "colour": "string",
        "yes": "boolean",
        "ratio": "double",
        "either": "string",
        "pair": "string",
        "anything": "string",
        "counts": "map<string,bigint>",
        "maybe": "struct<sku:string,amount:bigint,price:double>",
    }


def test_values_come_as_they_were_put() -> None:
    item = Everything(
        moment=NOW,
        day=datetime.date(2026, 1, 2),
        clock=datetime.time(1, 2),
        span=datetime.timedelta(seconds=3),
        number=uuid.UUID(int=7),
        exact=decimal.Decimal("1.50"),
        raw=b"\x00\xff",
        colour=Colour.RED,
        yes=True,
        ratio=3,
        either="x",
        pair=(1, "b"),
        anything={"a": [1, None]},
        counts={1: 2},
    )
    (row,) = rows(Everything, item)
    assert row == {
        "moment": "2026-11-17T12:30:00+00:00",
        "day": datetime.date(2026, 1, 2),
        "clock": "01:02:00",
        "span": "PT3S",
        "number": str(uuid.UUID(int=7)),
        "exact": "1.50",
        "raw": b"\x00\xff",
        "colour": "red",
        "yes": True,
        "ratio": 3.0,
        "either": '"x"',
        "pair": '[1,"b"]',
        "anything": '{"a":[1,null]}',
        "counts": [("1", 2)],
        "maybe": None,
    }


def test_a_type_without_fields_is_one_column() -> None:
    assert rows(list[int], [1, 2], []) == [{"item": [1, 2]}, {"item": []}]
    assert rows(str | None, "a", None) == [{"item": "a"}, {"item": None}]


def test_a_type_that_holds_itself_ends_as_json() -> None:
    parent = Order(1, NOW, [])
    (row,) = rows(Order, Order(2, NOW, [], parent=parent))
    assert msgspec.json.decode(row["parent"])["id"] == 1


def test_a_record_of_another_type_is_told() -> None:
    columns = columns_of(Order)
    with pytest.raises(SchemaMismatch, match="from counter 5 to 6 is not of the queue's type"):
        columns.arrays([msgspec.msgpack.encode({"id": "one"}), b""], 5, 6)


def test_a_typed_queue_is_a_table_of_its_fields(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, type=Order, queue="orders") as queue:
        queue.put(Order(1, NOW, [Line("a", 2, 1.5), Line("b", 1)], {"k": "v"}))
        queue.put(Order(2, NOW, []), headers={"trace": "x"})
    frame = read(spark, path, queue="orders", typed="true", includeHeaders="true")
    assert frame.columns == [
        *("counter", "timestamp", "key"),
        *("id", "at", "lines", "tags", "timestamp_", "parent"),
        "headers",
    ]
    first, second = frame.collect()
    assert (first.counter, first.id, first.tags, first.timestamp_) == (
        1,
        1,
        {"k": "v"},
        "the buyer's",
    )
    assert [tuple(line) for line in first.lines] == [("a", 2, 1.5), ("b", 1, None)]
    assert first.at == NOW.replace(tzinfo=None)
    assert (second.id, second.lines, second.headers) == (2, [], {"trace": "x"})
    total = frame.selectExpr("sum(aggregate(lines, 0L, (sum, line) -> sum + line.amount))")
    assert total.collect()[0][0] == 3
    assert stream(spark, path, queue="orders", typed="true").columns == frame.columns[:-1]


def test_a_queue_whose_type_was_never_kept_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"plain")
    told = error_of(lambda: read(spark, tmp_path / "store", typed="true"))
    assert "option typed: queue 'main' has no type. Read it without the option." in told
