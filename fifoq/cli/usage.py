"""What is said of wrong arguments: which one, what it was, and what it may be."""

from __future__ import annotations

import copy
from typing import Any, Final

import typer
from typer.core import TyperCommand

_KINDS: Final = {
    "float": "number",
    "float range": "number",
    "int": "whole number",
    "int range": "whole number",
}
"""What people call typer's types of numbers."""


class VerbCommand(TyperCommand):
    """A verb whose numbers are refused in words that say which numbers it takes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.type.name in _KINDS:
                # A copy: types without a range are the same object for every option.
                parameter.type = _readable(copy.copy(parameter.type))


def _readable(kind: Any) -> Any:
    convert = kind.convert

    def readable(value: Any, parameter: Any, context: Any) -> Any:
        try:
            return convert(value, parameter, context)
        except typer.BadParameter:
            raise typer.BadParameter(refusal(kind, value), ctx=context, param=parameter) from None

    kind.convert = readable
    return kind


def refusal(
    kind: Any, value: object, *, above: float | None = None, most: float | None = None
) -> str:
    """Why a number is not taken. `above` and `most` are bounds that its type does not know."""
    word = _KINDS[kind.name]
    try:
        number = float(str(value))
        is_one = number == number and (word == "number" or number.is_integer())
    except (ValueError, OverflowError):
        is_one = False
    wrong = f"{value} is out of range" if is_one else f"{str(value)!r} is not a {word}"
    least = getattr(kind, "min", None) if above is None else None
    allowed = _range(least, above, getattr(kind, "max", None) or most)
    return f"{wrong}; give {allowed}" if allowed else wrong


def _range(least: float | None, above: float | None, most: float | None) -> str:
    if least is not None:
        return f"{least} or more" if most is None else f"{least} to {most}"
    if above is not None:
        return f"more than {above}" + ("" if most is None else f", at most {most}")
    return "" if most is None else f"at most {most}"


def usage_text(error: Any) -> str:
    """A usage error in one line, the argument first, as it is typed."""
    if type(error) is not typer.BadParameter:
        return str(error.format_message())
    name = error.param_hint or (_typed(error.param) if error.param is not None else "")
    return f"{name}: {error.message}" if name else str(error.message)


def _typed(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return str(max(parameter.opts, key=len))
