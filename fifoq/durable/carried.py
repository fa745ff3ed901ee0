"""What is carried along with messages: context variables, chosen by name, and the trace.

Their values, which are strings, are headers of a letter: they go through the disk with it, and are
there in its handler, in whatever process that runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import Context, ContextVar, Token, copy_context
from typing import Final

traceparent: ContextVar[str] = ContextVar("traceparent")
"""The trace that whatever happens now is a part of, as W3C Trace Context writes it."""

HEADER_NAME: Final = "traceparent"
VALUE_BYTES_MAX: Final = 4096
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_NOTHING: Final[dict[str, str]] = {}

Tokens = list[tuple[ContextVar[str], Token[str]]]


class Carried:
    """The variables that one system carries."""

    __slots__ = ("_by_name", "_variables")

    def __init__(self, variables: Sequence[ContextVar[str]] = ()) -> None:
        self._variables = (*variables, traceparent)
        self._by_name = {variable.name: variable for variable in self._variables}
        if len(self._by_name) < len(self._variables):
            raise ValueError("two variables of the context have the same name")
        for name in self._by_name:
            if name.startswith("fifoq."):
                raise ValueError(f"names that begin with fifoq. are taken, such as {name!r}")

    def headers(self) -> dict[str, str]:
        """What the caller's context holds of them. TypeError for a value that is no string."""
        found = _NOTHING
        for variable in self._variables:
            value = variable.get(None)
            if value is None:
                continue
            if found is _NOTHING:
                found = {}
            found[variable.name] = _checked(variable.name, value)
        if found and not _TRACEPARENT.fullmatch(found.get(HEADER_NAME, "")):
            # As the standard has it: one that is malformed is as good as none.
            found.pop(HEADER_NAME, None)
        return found

    def others(self) -> Context:
        """The caller's context without them: an actor has those of its messages alone."""
        found = copy_context()
        if not any(variable in found for variable in self._variables):
            return found
        others = Context()
        for variable, value in found.items():
            if variable not in self._variables:
                others.run(variable.set, value)
        return others

    def enter(self, headers: Mapping[str, str]) -> Tokens:
        """Let the context have what came along, until `leave`."""
        return [
            (variable, variable.set(headers[name]))
            for name, variable in self._by_name.items()
            if name in headers
        ]

    def leave(self, tokens: Tokens) -> None:
        """The context is as it was before `enter`."""
        for variable, token in reversed(tokens):
            variable.reset(token)


def _checked(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"context variable {name!r} holds a {type(value).__name__}, not a str")
    if len(value.encode()) > VALUE_BYTES_MAX:
        raise ValueError(f"context variable {name!r} holds over {VALUE_BYTES_MAX} bytes")
    return value
