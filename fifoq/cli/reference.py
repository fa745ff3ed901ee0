"""The reference of the command line, made from the app itself: `python -m fifoq.cli.reference`.

A test compares docs/reference/cli.md with what this prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

import typer.main

from fifoq.cli.app import app
from fifoq.cli.frame import MEANINGS

INTRODUCTION: Final = """\
# The command line

`fifoq VERB PATH ...`, or `python -m fifoq`. The store's path comes first, the queue by `--queue`
(`main` if it is not given). Everything works on stores that nobody has open and on live ones, as
[live stores](../explanation/live_stores.md) explains; [watch a store](../how-to/watch_a_store.md)
shows `top`.

- What was asked for goes to stdout and everything else to stderr. Records end with a new line, with
  `--null` with a zero byte, and are bytes as they were put; on a terminal, what it would act upon
  is escaped.
- `--json` prints JSON: one object, or one a line where there may be many. A mistake is then an
  object too: `{"error": TEXT, "kind": NAME, "status": NUMBER}`.
- Of a queue that has a type, records are shown and put as JSON, with `--raw` as the bytes that the
  log has.
- A mistake is one line, never a traceback. Colours are for terminals, and `NO_COLOR` turns them
  off. Progress is shown on a terminal alone.
- `fifoq --install-completion` teaches your shell the verbs, the options and the names of queues.

This page is written by `python -m fifoq.cli.reference`.

## Exit status

| status | meaning |
|---|---|
"""


def page() -> str:
    """The whole page."""
    statuses = "".join(f"| {status.value} | {text} |\n" for status, text in MEANINGS.items())
    parts = [INTRODUCTION + statuses]
    parts += [_section(names, command) for names, command in verbs()]
    return "\n".join(parts)


def verbs() -> Iterator[tuple[list[str], Any]]:
    """Every verb with the words that name it, groups in place."""
    yield from _verbs([], typer.main.get_command(app))


def example_lines(command: Any) -> list[str]:
    """The examples of a verb, one command each."""
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip() and line != "Example:"]


def _verbs(names: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
    below: dict[str, Any] = getattr(command, "commands", {})
    if not below:
        yield names, command
    for name, each in below.items():
        yield from _verbs([*names, name], each)


def _section(names: list[str], command: Any) -> str:
    title = " ".join(names)
    rows = [(_name(each), each) for each in command.params if each.name != "help"]
    arguments = [name for name, each in rows if each.param_type_name == "argument"]
    usage = " ".join(["fifoq", title, *arguments, "[OPTIONS]"])
    told = inspect.cleandoc(command.help or "")
    table = "".join(f"| `{name}` | {_help(each)} |\n" for name, each in rows)
    examples = "\n".join(f"    {line}" for line in example_lines(command))
    head = f"## `{title}`\n\n{told}\n\n    {usage}\n\n"
    return f"{head}| argument or option | |\n|---|---|\n{table}\nExample:\n\n{examples}\n"


def _name(parameter: Any) -> str:
    """As a user types it."""
    if parameter.param_type_name == "argument":
        many = parameter.nargs != 1
        name = parameter.metavar or parameter.name.upper()
        return f"[{name}]..." if many else name if parameter.required else f"[{name}]"
    options = ", ".join([*sorted(parameter.opts, key=len), *parameter.secondary_opts])
    return options if parameter.is_flag else f"{options} {parameter.metavar or 'VALUE'}"


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    plain = default is None or callable(default) or default in (False, (), [])
    if default is True:
        default = f"`{parameter.opts[0]}`"
    told = "" if plain or parameter.required else f" Default: {default}."
    return text + told


if __name__ == "__main__":
    print(page(), end="")
