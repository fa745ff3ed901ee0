"""What is put by hand into a typed queue that nobody has open is checked against its shape."""

from __future__ import annotations

import datetime
import enum
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import fifoq.sync
from fifoq.codec import schema_shape
from fifoq.control.shapes import type_of
from tests.cli.support import here


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(msgspec.Struct):
    name: str
    count: int = 1


class Order(msgspec.Struct):
    id: int
    lines: list[Line]
    at: datetime.datetime
    colour: Colour = Colour.RED
    note: str | None = None
    data: bytes = b""
    prices: dict[str, float] = {}


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Point(msgspec.Struct, array_like=True):
    x: int
    y: int


NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
VALUES: list[tuple[Any, Any]] = [
    (Order, Order(1, [Line("a"), Line("b", 2)], NOW, Colour.BLUE, "x", b"\xff", {"a": 1.5})),
    (Tree, Tree("a", [Tree("b", [Tree("c")])])),
    (Cat | Dog, Dog("rex")),
    (Point, Point(1, 2)),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (list[int | None], [1, None]),
    (tuple[int, str], (1, "a")),
    (Literal["a", 3], 3),
    (int, 7),
    (Any, {"a": [1]}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_whatever_the_type_takes_its_shape_takes_too(kind: Any, value: Any) -> None:
    made = type_of(schema_shape(kind))
    text = msgspec.json.encode(value)
    encoded = msgspec.msgpack.encode(msgspec.json.decode(text, type=made))
    if kind == dict[int, str]:
        # Text in JSON; a queue of these must be filled by its program.
        return
    assert msgspec.msgpack.decode(encoded, type=kind) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Order, b'{"id": 1, "lines": []}'),
        (Order, b'{"id": "1", "lines": [], "at": "2026-01-02T00:00:00Z"}'),
        (Order, b'{"id": 1, "lines": [{"count": 2}], "at": "2026-01-02T00:00:00Z"}'),
        (dict[str, int], b'{"a": "b"}'),
        (list[int], b'["a"]'),
        (int, b'"x"'),
    ],
)
def test_what_the_type_refuses_its_shape_refuses_too(kind: Any, text: bytes) -> None:
    for each in (kind, type_of(schema_shape(kind))):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=each)


def test_a_record_of_another_type_does_not_get_into_a_free_store(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, type=Line) as queue:
        queue.put(Line("first"))
    said = here("put", tmp_path, '{"count": 2}', status=1)
    assert "missing required field `name`" in said.err
    here("put", tmp_path, '{"name": "second", "count": 2}')
    with fifoq.sync.open(tmp_path, type=Line) as queue:
        assert queue.take_many(9) == [Line("first"), Line("second", 2)]
