"""Between items and bytes: plain bytes, or one msgspec type with its schema's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from fifoq.errors import SchemaMismatch
from fifoq.options import QueueOptions
from store import FormatError, Retention
from store.compression import Compression, compression_of

T = TypeVar("T")

HEADERS_MAX: Final = 16
HEADER_NAME_BYTES_MAX: Final = 64
HEADER_VALUE_BYTES_MAX: Final = 512
HEADERS_BYTES_MAX: Final = 8 << 10
"""What a put may give; the last one is all of them, encoded."""
OWN_PREFIX: Final = "fifoq."
"""Names that begin so are the queue's own."""

_encode_map = msgspec.msgpack.Encoder().encode
_decode_map = msgspec.msgpack.Decoder(dict[str, str]).decode


class Kept(msgspec.Struct, omit_defaults=True):
    """What is kept with a queue: options that were given, and what its type looks like.

    `schema` is the hash of `shape`, which other readers of the log make columns of.
    """

    options: dict[str, Any] = {}
    schema: str | None = None
    shape: list[Any] | None = None
    aside: bool = False
    """Whether records may wait for a time, which whoever opens the queue has to look for."""


NOTHING_KEPT: Final = msgspec.json.encode(Kept())
"""What a queue without a type and with no option but the defaults would keep."""
_kept = msgspec.json.Decoder(Kept)
_DEFAULTS: Final = QueueOptions()


class Codec(Generic[T]):
    """Encodes and decodes the items of one queue."""

    __slots__ = ("_decode", "_encode", "_name", "_type", "aside", "schema", "shape", "typed")

    def __init__(self, type: type[T] | None, kept: Kept, name: str, *, empty: bool = False) -> None:
        """`empty` says that the queue holds nothing that could be of another type."""
        self.typed = type is not None and type is not bytes
        self._type = type
        self._name = name
        self.schema, self.shape = kept.schema, kept.shape
        self.aside = kept.aside
        if self.typed:
            self.shape = schema_shape(type)
            self.schema = _hash(self.shape)
            if kept.schema not in (None, self.schema) and not empty:
                raise SchemaMismatch(
                    f"queue {name!r} was made for another type (schema {kept.schema}) than "
                    f"{type!r:.80} (schema {self.schema}) and is not empty. Nothing was changed. "
                    f"Open it with the type it was made for and drain it, or without one for the "
                    f"bytes; once it is empty it takes another type."
                )
            self._encode = msgspec.msgpack.Encoder().encode
            self._decode = msgspec.msgpack.Decoder(cast(Any, type)).decode

    @property
    def type(self) -> Any:
        """What the queue was opened with; None for bytes."""
        return self._type

    def require(self, type: Any) -> None:
        """SchemaMismatch unless this is the type that the queue is open with."""
        if type is not (self._type or bytes):
            raise SchemaMismatch(
                f"queue {self._name!r} is open with {self._type or bytes!r:.80}, not with "
                f"{type!r:.80}. Nothing was changed."
            )

    def encode(self, item: T) -> bytes:
        if self.typed:
            try:
                # A wrong item must be refused now, not when somebody takes it.
                encoded = self._encode(item)
                self._decode(encoded)
            except (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError) as error:
                wanted = getattr(self._type, "__name__", repr(self._type))
                raise msgspec.ValidationError(
                    f"queue {self._name!r} takes {wanted:.80}: {error}. Nothing was stored."
                ) from error
            return encoded
        return item if type(item) is bytes else _as_bytes(item)  # type: ignore[return-value]

    def encode_many(self, items: Iterable[T]) -> Sequence[bytes]:
        if isinstance(items, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"items is a list of records, not one {type(items).__name__}")
        if self.typed:
            return [self.encode(item) for item in items]
        payloads = list(items)
        if list(map(type, payloads)).count(bytes) != len(payloads):
            return [_as_bytes(payload) for payload in payloads]
        return cast(Sequence[bytes], payloads)

    def decode(self, payload: bytes) -> T:
        """The item. SchemaMismatch if the bytes are none: the record stays where it is."""
        if not self.typed:
            return cast(T, payload)
        try:
            return cast(T, self._decode(payload))
        except msgspec.MsgspecError as error:
            raise SchemaMismatch(
                f"queue {self._name!r}: the oldest record is not of the queue's type ({error}). "
                f"Nothing was changed. Open the queue without a type to take its bytes."
            ) from error

    def decode_many(self, payloads: list[bytes]) -> list[T]:
        return list(map(self.decode, payloads)) if self.typed else cast("list[T]", payloads)

    def configuration(self, options: QueueOptions) -> bytes:
        """What is to be kept with the queue."""
        given = {
            name: value
            for name in QueueOptions.__struct_fields__
            if name != "durability"
            and (value := getattr(options, name)) != getattr(_DEFAULTS, name)
        }
        return msgspec.json.encode(Kept(given, self.schema, self.shape, self.aside))


def read_kept(configuration: bytes | None) -> Kept:
    """What is kept with a queue. Settings that this version does not know are left out."""
    if configuration is None:
        return Kept()
    kept = _kept.decode(configuration)
    known = QueueOptions.__struct_fields__
    kept.options = {name: value for name, value in kept.options.items() if name in known}
    limits = kept.options.get("retention")
    if isinstance(limits, dict):
        kept.options["retention"] = msgspec.convert(limits, Retention)
    return kept


def kept_with_aside(configuration: bytes | None) -> bytes | None:
    """The same, with a note that records may wait for a time; None if it has that already."""
    kept = Kept() if configuration is None else _kept.decode(configuration)
    if kept.aside:
        return None
    kept.aside = True
    return msgspec.json.encode(kept)


def kept_retention(configuration: bytes | None) -> str | Retention:
    """How long removed records of a queue stay that nobody has opened yet."""
    if configuration is None or b'"retention"' not in configuration:
        return "acked"
    retention: str | Retention = read_kept(configuration).options.get("retention", "acked")
    return retention


def kept_compression(configuration: bytes | None) -> Compression | None:
    """How a queue compresses that nobody has opened yet; None also if this machine cannot."""
    if configuration is None or b'"compression"' not in configuration:
        return None
    options = read_kept(configuration).options
    try:
        return compression_of(options.get("compression"), options.get("compression_level"))
    except ValueError:
        return None


def schema_hash(type: Any) -> str:
    """A short hash of what the type looks like as JSON schema; the names of classes do not count.

    TypeError for a type that msgspec cannot describe.
    """
    return _hash(schema_shape(type))


def schema_shape(type: Any) -> list[Any]:
    """JSON schemas of the type and of its parts, to which a `$ref` of "0" and so on refers.

    TypeError for a type that msgspec cannot describe.
    """
    try:
        (schema,), parts = msgspec.json.schema_components([type], ref_template="{name}")
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"type={type!r:.80} is nothing that msgspec can encode and check: {error}. Nothing was "
            f"changed. Use a msgspec Struct, a dataclass, or builtin types such as dict[str, int]."
        ) from None
    numbers = {name: str(number) for number, name in enumerate(parts)}
    return [_without_names(part, numbers) for part in (schema, *parts.values())]


def _hash(shape: list[Any]) -> str:
    encoded = msgspec.json.encode(shape, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]


def _without_names(part: Any, numbers: dict[str, str]) -> Any:
    """The same schema with classes numbered, and without titles and descriptions."""
    if isinstance(part, dict):
        return {
            key: numbers.get(value, value) if key == "$ref" else _without_names(value, numbers)
            for key, value in part.items()
            if key not in ("title", "description")
        }
    if isinstance(part, list):
        return [_without_names(entry, numbers) for entry in part]
    return part


def encode_headers(headers: dict[str, str]) -> bytes:
    """Headers of a put as msgpack. TypeError unless they are strings, ValueError over a limit."""
    if not isinstance(headers, dict) or not all(
        isinstance(text, str) for pair in headers.items() for text in pair
    ):
        raise TypeError("headers is a dict of strings to strings. Nothing was stored.")
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"{len(headers)} headers are over the limit of {HEADERS_MAX}. {_NOTHING}")
    for at, (name, value) in enumerate(headers.items(), 1):
        _check_header(at, name, value)
    encoded = _encode_map(headers)
    if len(encoded) > HEADERS_BYTES_MAX:
        raise ValueError(
            f"headers of {len(encoded)} bytes are over the limit of {HEADERS_BYTES_MAX} for all of "
            f"them. {_NOTHING}"
        )
    return encoded


_NOTHING: Final = "Nothing was stored."


def _check_header(at: int, name: str, value: str) -> None:
    """ValueError for a header that is over a limit. It says which, and shows nothing of it."""
    try:
        name_bytes, value_bytes = len(name.encode()), len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(
            f"header {at} has a lone surrogate, which no file holds. {_NOTHING}"
        ) from None
    if not 0 < name_bytes <= HEADER_NAME_BYTES_MAX:
        raise ValueError(
            f"header {at}: a name of {name_bytes} bytes is not one of 1 to "
            f"{HEADER_NAME_BYTES_MAX}. {_NOTHING}"
        )
    if value_bytes > HEADER_VALUE_BYTES_MAX:
        raise ValueError(
            f"header {at}: a value of {value_bytes} bytes is over the limit of "
            f"{HEADER_VALUE_BYTES_MAX}. {_NOTHING}"
        )
    if name.startswith(OWN_PREFIX):
        raise ValueError(f"header {at}: names that begin with {OWN_PREFIX} are taken. {_NOTHING}")


def encode_own_headers(headers: dict[str, str]) -> bytes:
    """Headers that the queue itself gives a record; what limits a put does not bind them."""
    return _encode_map(headers)


def decode_headers(encoded: bytes | None) -> dict[str, str]:
    """Headers as they were given. FormatError if these bytes never were any."""
    if not encoded:
        return {}
    try:
        return _decode_map(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(
            f"a record's headers are not what a queue writes ({error}). Its data is not harmed: "
            f"take it without looking at them."
        ) from None


def _as_bytes(item: object) -> bytes:
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise TypeError(
        f"an item of a queue without a type is bytes, not {type(item).__name__}. Nothing was "
        f"stored. Encode it, or open the queue with type=."
    )
