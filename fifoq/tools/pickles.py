"""Pickles, taken apart and never loaded: where one ends, and plain values of dicts, lists, numbers.

A pickle is a program, and loading one runs it. Here its operations are only read. Those that could
call something are not known here at all.
"""

from __future__ import annotations

import pickletools
from typing import Any, BinaryIO, Final

from store import FormatError

_CONSTANTS: Final = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("INT", "LONG", "UNICODE", "BINFLOAT", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
}
_IGNORED: Final = {"PROTO", "FRAME"}
_REMEMBERED: Final = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"}
_FETCHED: Final = {"BINGET", "LONG_BINGET", "GET"}


def skip_pickle(file: BinaryIO) -> None:
    """Read one pickle to its end. FormatError if it has none."""
    try:
        for _ in pickletools.genops(file):
            pass
    except (ValueError, UnicodeDecodeError, IndexError) as error:
        raise FormatError(f"this is no pickle: {error}") from None


def plain_value(data: bytes) -> Any:
    """The value of a pickle that holds nothing but dicts, lists, texts and numbers.

    FormatError for any other: nothing of it is run.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name in _CONSTANTS:
                stack.append(argument)
            elif name in ("EMPTY_DICT", "EMPTY_LIST"):
                stack.append({} if name == "EMPTY_DICT" else [])
            elif name == "MARK":
                marks.append(len(stack))
            elif name in ("APPENDS", "SETITEMS"):
                start = marks.pop()
                values, stack[start:] = stack[start:], []
                _add(stack[-1], values)
            elif name == "APPEND":
                _add(stack[-2], [stack.pop()])
            elif name == "SETITEM":
                value, key = stack.pop(), stack.pop()
                _add(stack[-1], [key, value])
            elif name in _REMEMBERED:
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif name in _FETCHED:
                stack.append(memo[int(str(argument))])
            elif name == "STOP":
                return stack.pop()
            elif name not in _IGNORED:
                raise FormatError(f"a pickle that does {name} is not read")
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise FormatError(f"this is no pickle of plain values: {error}") from None
    raise FormatError("a pickle that never stops")


def _add(to: Any, values: list[Any]) -> None:
    if isinstance(to, list):
        to.extend(values)
    else:
        to.update(zip(values[::2], values[1::2], strict=True))
