"""NDJSON and msgpack: an export as one object after another. Bytes in, values out.

A header, then rows, then an end that counts them. A stream without header and end, as people write
them by hand, is read as well. In NDJSON a payload that is UTF-8 is `data`, any other `base64`; in
msgpack it is always `data`, as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from fifoq.attributes import PRIORITY_DEFAULT
from fifoq.tools.rows import End, Header, Row
from store import FormatError

T = TypeVar("T")
StreamFormat = Literal["ndjson", "msgpack"]
Item = Header | Row | End

OBJECT_BYTES_MAX: Final = 256 << 20
"""No object is longer: what never ends must not fill the memory."""


class _JsonRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row whose payload is text, or else bytes."""

    queue: str = ""
    counter: int = 0
    timestamp: int = 0
    data: str = ""
    base64: bytes | None = None
    headers: dict[str, str] = {}
    deliver_at: int = 0
    expires_at: int = 0
    priority: int = PRIORITY_DEFAULT
    ordering_key: str = ""
    dedup_id: str = ""
    attempt: int = 0


class _Kind(msgspec.Struct):
    """The fields that tell what an object is."""

    fifoq_export: int | None = None
    fifoq_end: int | None = None


_json = msgspec.json.Encoder()
_pack = msgspec.msgpack.Encoder()
_FIELDS: Final = [name for name in Row.__struct_fields__ if name != "data"]


def encode(format: StreamFormat, item: Item) -> bytes:
    """One object as it stands in the stream."""
    if format == "msgpack":
        return _pack.encode(item)
    return _json.encode(_as_json(item) if isinstance(item, Row) else item) + b"\n"


def encode_rows(format: StreamFormat, rows: Sequence[Row]) -> bytes:
    return b"".join([encode(format, row) for row in rows])


def _as_json(row: Row) -> _JsonRow:
    others = {name: getattr(row, name) for name in _FIELDS}
    try:
        return _JsonRow(data=row.data.decode(), **others)
    except UnicodeDecodeError:
        return _JsonRow(base64=row.data, **others)


def decode(format: StreamFormat, data: bytes, number: int) -> Item:
    """One object. FormatError, with its number in the stream, if it is none of ours."""
    try:
        kind = _decode(format, _Kind, data)
        if kind.fifoq_export is not None:
            return _checked(_decode(format, Header, data))
        if kind.fifoq_end is not None:
            return _decode(format, End, data)
        if format == "msgpack":
            return _decode(format, Row, data)
        row = _decode(format, _JsonRow, data)
        payload = row.data.encode() if row.base64 is None else row.base64
        return Row(data=payload, **{name: getattr(row, name) for name in _FIELDS})
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"object {number} of the {format} stream: {error}") from None


def _checked(header: Header) -> Header:
    if header.fifoq_export != 1:
        raise FormatError(f"the export's format {header.fifoq_export} is from a newer version")
    return header


def _decode(format: StreamFormat, type: type[T], data: bytes) -> T:
    if format == "msgpack":
        return msgspec.msgpack.decode(data, type=type)
    return msgspec.json.decode(data, type=type)


def items(format: StreamFormat, chunks: Iterable[bytes]) -> Iterator[Item]:
    """The objects of a stream that comes in chunks. FormatError where it makes no sense."""
    for number, data in enumerate(split(format, chunks), 1):
        yield decode(format, data, number)


def split(format: StreamFormat, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of each object; what is behind the last whole one must be empty."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        at = 0
        while (end := _end_of(format, rest, at)) is not None:
            data = rest[at:end]
            at = end
            if format == "msgpack" or data.strip():
                yield data
        rest = rest[at:]
        if len(rest) > OBJECT_BYTES_MAX:
            raise FormatError(f"an object is over {OBJECT_BYTES_MAX} bytes: this is no {format}")
    if format == "ndjson":
        if rest.strip():
            yield rest
    elif rest:
        raise FormatError(f"the {format} stream ends within an object")


def _end_of(format: StreamFormat, data: bytes, at: int) -> int | None:
    if format == "msgpack":
        return msgpack_end(data, at)
    end = data.find(b"\n", at)
    return end + 1 if end >= 0 else None


def msgpack_end(data: bytes, at: int) -> int | None:
    """Where the msgpack object at `at` ends; None if `data` ends before it does. FormatError."""
    left = 1
    while left:
        if at >= len(data):
            return None
        code = data[at]
        at += 1
        left -= 1
        if code <= 0x7F or code >= 0xE0 or code in (0xC0, 0xC2, 0xC3):
            continue
        if code <= 0x8F:
            left += 2 * (code & 15)
        elif code <= 0x9F:
            left += code & 15
        elif code <= 0xBF:
            at += code & 31
        elif code in _FIXED:
            at += _FIXED[code]
        elif code in _COUNTED:
            width, times, extra = _COUNTED[code]
            if at + width > len(data):
                return None
            count = int.from_bytes(data[at : at + width], "big")
            at += width
            if times:
                left += times * count
            else:
                at += count + extra
        else:
            raise FormatError(f"byte {code:#x} begins no msgpack object")
    return at if at <= len(data) else None


_FIXED: Final = dict(
    zip(
        (0xCA, 0xCB, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8),
        (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17),
        strict=True,
    )
)
"""Bytes behind the first one, of numbers and small extensions."""
_COUNTED: Final = {
    first + index: (width, times, extra)
    for first, widths, times, extra in (
        (0xC4, (1, 2, 4), 0, 0),  # Bytes.
        (0xC7, (1, 2, 4), 0, 1),  # Extensions.
        (0xD9, (1, 2, 4), 0, 0),  # Texts.
        (0xDC, (2, 4), 1, 0),  # Arrays.
        (0xDE, (2, 4), 2, 0),  # Maps.
    )
    for index, width in enumerate(widths)
}
"""Width of the count, objects or (0) bytes that each counts, bytes besides."""
