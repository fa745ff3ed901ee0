"""Letters: messages of durable actors as they lie in the store, and the types that they have.

A letter is a record of the queue of all mailboxes: msgpack of `[to, message]`, or of
`[to, message, headers]` where something came along. Nothing here waits or touches a file.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from actors import Actor
from store import ItemTooLarge

LETTER_BYTES_MAX: Final = 16 << 20
"""No letter is larger, as no record of a queue is."""

UNWRITABLE: Final = (TypeError, msgspec.MsgspecError, OverflowError, UnicodeEncodeError)
"""What msgspec raises for a value that can not be written."""

_encode = msgspec.msgpack.Encoder().encode
_NOTHING: Final[Mapping[str, str]] = types.MappingProxyType({})
# What msgpack writes in front of an array of so many.
_TWO: Final = b"\x92"
_THREE: Final = b"\x93"


class Letter(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """To whom, what, and what came along."""

    to: str
    message: msgspec.Raw
    given: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """What came along, be it nothing."""
        return _NOTHING if self.given is None else self.given


decode_letter: Final = msgspec.msgpack.Decoder(Letter).decode
"""The letter in a payload. MsgspecError if it is none."""


def address(to: str) -> bytes:
    """How a letter begins that is for this actor and has no headers; its message follows."""
    return _TWO + _encode(to)


def write_letter(to: str, message: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """The payload of a letter whose message is encoded already. ItemTooLarge."""
    if headers:
        payload = b"".join((_THREE, _encode(to), message, _encode(dict(headers))))
    else:
        payload = address(to) + message
    check_size(to, payload)
    return payload


def check_size(to: str, payload: bytes) -> None:
    """ItemTooLarge for a letter that no queue takes."""
    if len(payload) > LETTER_BYTES_MAX:
        raise ItemTooLarge(
            f"a letter to actor {to!r} of {len(payload)} bytes is over the limit of "
            f"{LETTER_BYTES_MAX}. Nothing was told."
        )


def encode_untyped(to: str, message: object) -> bytes:
    """A message to an actor whose type nobody knows here. TypeError if it can not be written."""
    try:
        return _encode(message)
    except UNWRITABLE as error:
        raise _unwritable(to, message, error) from None


class Messages:
    """What one class of actors takes: encodes, checks and decodes its messages."""

    __slots__ = ("_decode", "_kinds", "decode", "text")

    def __init__(self, kind: type[Actor[Any]]) -> None:
        union = message_type(kind)
        self.text = _text(union)
        self._kinds = _classes(union)
        try:
            self.decode = self._decode = msgspec.msgpack.Decoder(union).decode
        except TypeError as error:
            raise TypeError(
                f"{kind.__name__} takes {self.text}, which can not be told apart on disk: {error}. "
                f"Nothing was spawned. Give the Structs of a union tag=True."
            ) from None

    def encode(self, to: str, message: object) -> bytes:
        """The message as bytes. TypeError, with what is expected, if it is of another type."""
        if not isinstance(message, self._kinds):
            raise TypeError(
                f"actor {to!r} takes {self.text}, not {type(message).__name__}. Nothing was told."
            )
        try:
            encoded = _encode(message)
            # A wrong field must be refused now, not when somebody handles it.
            self._decode(encoded)
        except UNWRITABLE as error:
            raise _unwritable(to, message, error) from None
        return encoded


def message_type(kind: type[Actor[Any]]) -> Any:
    """The type argument of `Actor` of which a class is made. TypeError if it gave none."""
    for base in kind.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            origin = get_origin(generic)
            if isinstance(origin, type) and issubclass(origin, Actor):
                (found,) = get_args(generic) or (None,)
                if found is not None and not hasattr(found, "__bound__"):
                    return found
    raise TypeError(
        f"{kind.__name__} does not say which messages it takes. Nothing was spawned. Derive it "
        f"from Actor[...] with their type, such as Actor[Deposit | Withdraw]."
    )


def _classes(union: Any) -> tuple[type, ...]:
    """The classes of which a message is one."""
    if get_origin(union) in (Union, types.UnionType):
        return tuple(kind for part in get_args(union) for kind in _classes(part))
    origin = get_origin(union)
    if isinstance(origin, type):
        return (origin,)
    # What is no class, as a Literal, is checked by decoding.
    return (union,) if isinstance(union, type) else (object,)


def _text(union: Any) -> str:
    if get_origin(union) in (Union, types.UnionType):
        return " | ".join(map(_text, get_args(union)))
    return union.__name__ if isinstance(union, type) and not get_args(union) else str(union)


def _unwritable(to: str, message: object, error: Exception) -> TypeError:
    return TypeError(
        f"a {type(message).__name__} for actor {to!r} can not be written: {why_unwritable(error)}. "
        f"Nothing was told."
    )


def why_unwritable(error: Exception) -> str:
    """What an error of `UNWRITABLE` says: it names fields and types, never values."""
    return error.reason if isinstance(error, UnicodeEncodeError) else str(error)
