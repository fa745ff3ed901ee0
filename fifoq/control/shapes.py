"""A type made from the shape that is kept of a queue's own, to check what is put by hand.

The shape is JSON schema without the names of classes. Where it says more than a type can, what is
left out is not checked: whatever the queue's own type takes, this one takes as well.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any, Final, Literal, Union

import msgspec

_FORMATS: Final[dict[str, Any]] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_PLAIN: Final[dict[str, Any]] = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict[str, Any],
    "array": list[Any],
}


def type_of(shape: list[Any]) -> Any:
    """The type that a shape describes, as far as msgspec can have it; Any if not at all."""
    parts = {str(number): part for number, part in enumerate(shape[1:])}
    made = _type(shape[0], parts, ())
    try:
        msgspec.msgpack.Decoder(made)
    except TypeError:
        # For instance several kinds of objects that only their fields tell apart.
        return Any
    return made


def _type(schema: dict[str, Any], parts: dict[str, Any], within: tuple[str, ...]) -> Any:
    reference = schema.get("$ref")
    if reference is not None:
        if reference in within or reference not in parts:
            # A part of itself.
            return Any
        return _type(parts[reference], parts, (*within, reference))
    if "anyOf" in schema:
        return Union[tuple(_type(each, parts, within) for each in schema["anyOf"])]  # noqa: UP007
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "const" in schema:
        return Literal[schema["const"]]
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        return _object(schema, parts, within)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        # Keys may be numbers, which are text in JSON and not in msgpack: those are not checked.
        return dict[Any, _type(schema["additionalProperties"], parts, within)]  # type: ignore[misc]
    if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        return list[_type(schema["items"], parts, within)]  # type: ignore[misc]
    if kind == "string":
        return bytes if "contentEncoding" in schema else _FORMATS.get(schema.get("format", ""), str)
    return _PLAIN.get(kind, Any) if isinstance(kind, str) else Any


def _object(schema: dict[str, Any], parts: dict[str, Any], within: tuple[str, ...]) -> Any:
    required = schema.get("required", ())
    fields: list[Any] = []
    names = {}
    for at, (name, field) in enumerate(schema["properties"].items()):
        # Names of fields may be anything; those of attributes may not.
        own = f"field_{at}"
        names[own] = name
        made = _type(field, parts, within)
        if name in required:
            fields.append((own, made))
        else:
            fields.append((own, Union[made, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
    return msgspec.defstruct("Shape", fields, rename=names, kw_only=True)
