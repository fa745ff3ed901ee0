"""Arguments and options that verbs share, so that each means the same everywhere."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from fifoq.cli.usage import refusal

DEFAULT_QUEUE: Final = "main"
_KEY = re.compile("^[0-9a-f]{32}$")


def _complete_queue(context: typer.Context) -> list[str]:
    """Names of the store's queues, for the shell."""
    from fifoq.view import View

    # While the option that is being completed lacks its value, nothing behind it is parsed.
    path = context.params.get("path") or next(iter(context.args), "")
    try:
        view = View(str(path))
    except Exception:
        # A shell that completes has no use for an error.
        return []
    try:
        return view.queues()
    finally:
        view.close()


StorePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The store's directory.", show_default=False)
]
QueueName = Annotated[
    str,
    typer.Option(
        "--queue", "-q", metavar="NAME", help="The queue.", autocompletion=_complete_queue
    ),
]
OneQueue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", metavar="NAME", help="Only this queue.", autocompletion=_complete_queue
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Null = Annotated[
    bool, typer.Option("--null", "-0", help="Records end with a zero byte, not with a new line.")
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Bytes as they are, also of a queue that has a type.")
]
Long = Annotated[bool, typer.Option("--long", "-l", help="Print counters, times and headers too.")]
CountOf = Annotated[int, typer.Option("--count", "-n", min=1, metavar="COUNT", help="How many.")]
KeyText = Annotated[
    str,
    typer.Argument(metavar="KEY", help="A record's counter, or its key of 32 hexadecimal digits."),
]


def counter_of(text: str) -> int:
    """The counter that a user means. BadParameter if it is none."""
    if _KEY.match(text.lower()):
        return int(text[:16], 16)
    if text.isdecimal() and int(text):
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither a counter nor a key of 32 hexadecimal digits")


def headers_of(pairs: list[str] | None) -> dict[str, str] | None:
    """Headers as `name=value`. BadParameter if one is not."""
    headers: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--header")
        headers[name] = value
    return headers or None


def seconds(option: typer.CallbackParam, value: float | None) -> float | None:
    """The same number, for the callback of an option. BadParameter for nan, inf and ages."""
    return _checked_seconds(option, value, above=False)


def seconds_above_0(option: typer.CallbackParam, value: float | None) -> float | None:
    """The same number. BadParameter for 0 as well."""
    return _checked_seconds(option, value, above=True)


def _checked_seconds(
    option: typer.CallbackParam, value: float | None, *, above: bool
) -> float | None:
    # Here: help needs none of it.
    from fifoq.attributes import SECONDS_MAX, check_seconds

    if value is not None:
        try:
            check_seconds(str(option.name), value, "Nothing was done.", above=above)
        except ValueError:
            bound = 0 if above else None
            told = refusal(option.type, value, above=bound, most=SECONDS_MAX)
            raise typer.BadParameter(told) from None
    return value


def given(**values: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}
