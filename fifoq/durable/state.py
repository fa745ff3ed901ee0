"""The state of durable actors: a msgspec Struct, written whole when its bytes have changed.

What is kept is msgpack of `[version, fields]`. Fields that were added since have their defaults,
fields that are gone are left out; for anything else a class raises its `state_version` and has a
classmethod `migrate_state(version, fields)` that makes the fields, or the state, of today.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec

from actors import Actor
from fifoq.errors import SchemaMismatch

_encode = msgspec.msgpack.Encoder().encode


class _Kept(msgspec.Struct, array_like=True):
    version: int
    fields: msgspec.Raw


_decode_kept: Final = msgspec.msgpack.Decoder(_Kept).decode
_decode_fields: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class States:
    """How one class of actors keeps its state; `kind` is None if it has none."""

    __slots__ = ("_actor", "_decode", "_front", "encode", "kind", "version")

    def __init__(self, actor: type[Actor[Any]]) -> None:
        self._actor = actor
        self.kind = state_type(actor)
        self.version: int = getattr(actor, "state_version", 1)
        self.encode = _encode
        # What msgpack writes in front of the second of two.
        self._front = b"\x92" + _encode(self.version)
        if self.kind is not None:
            self._decode = msgspec.msgpack.Decoder(self.kind).decode
            try:
                self.kind()
            except TypeError as error:
                raise TypeError(
                    f"the state of {actor.__name__}, {self.kind.__name__}, needs a default for "
                    f"every field: {error}. Nothing was spawned."
                ) from None

    def first(self) -> bytes:
        """The bytes of a state that nobody has changed yet."""
        assert self.kind is not None
        return self.encode(self.kind())

    def decode(self, encoded: bytes) -> Any:
        """A state from its bytes of this version."""
        return self._decode(encoded)

    def keep(self, encoded: bytes) -> bytes:
        """What is written for a state with these bytes."""
        return self._front + encoded

    def restore(self, name: str, kept: bytes) -> bytes:
        """The bytes of a state that was written, by whatever version. SchemaMismatch."""
        try:
            found = _decode_kept(kept)
            fields: Any = found.fields
            if found.version != self.version:
                migrate = getattr(self._actor, "migrate_state", None)
                if migrate is None:
                    raise SchemaMismatch(
                        f"the state of actor {name!r} is of version {found.version}, and "
                        f"{self._actor.__name__} has state_version {self.version} and no "
                        f"migrate_state. Nothing was changed."
                    )
                fields = self._migrated(name, migrate, found)
            return self.encode(self._decode(fields))
        except msgspec.MsgspecError as error:
            raise SchemaMismatch(
                f"the state of actor {name!r} is not a {self._actor.__name__}'s ({error}). Nothing "
                f"was changed. Raise its state_version and write a migrate_state."
            ) from error

    def _migrated(self, name: str, migrate: Callable[..., object], found: _Kept) -> bytes:
        fields = _decode_fields(found.fields)
        try:
            return _encode(migrate(found.version, fields))
        except Exception as error:
            raise SchemaMismatch(
                f"migrate_state of {self._actor.__name__} failed with {type(error).__name__} for "
                f"the state of actor {name!r}, of version {found.version}. Nothing was changed."
            ) from error


def state_type(actor: type[Actor[Any]]) -> type[msgspec.Struct] | None:
    """The type that a class says its `state` has; None if it says nothing. TypeError if wrong."""
    for base in actor.__mro__:
        found = inspect.get_annotations(base).get("state")
        if found is None:
            continue
        if isinstance(found, str):
            found = _resolve(base, found)
        if not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
            raise TypeError(
                f"the state of {base.__name__} is annotated as {found!r:.80}, which is no msgspec "
                f"Struct. Nothing was spawned."
            )
        return found
    return None


def _resolve(base: type[Any], text: str) -> Any:
    """What an annotation means; only this one, since others may name what is there for checkers."""
    functions = [value for value in vars(base).values() if inspect.isfunction(value)]
    # Those of its methods: a class that was made by `exec` has no module to look up.
    known = functions[0].__globals__ if functions else vars(sys.modules[base.__module__])
    try:
        annotated = SimpleNamespace(__annotations__={"state": text})
        return get_type_hints(annotated, known, dict(vars(base)))["state"]
    except NameError as error:
        raise TypeError(
            f"the state of {base.__name__} is annotated as {text!r}: {error}. Nothing was spawned. "
            f"Define it in the same module."
        ) from None
