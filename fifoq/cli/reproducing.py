"""The work of `fifoq dlq run`: run a message again that killed its actor, and say what it did."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import typer

from actors import Actor
from fifoq.cli.letters import read_letters
from fifoq.cli.output import escaped, print_json, value_json
from fifoq.control.messages import NotThere
from fifoq.durable.dead import DeadMessage, Reproduced, read_dead
from fifoq.durable.post import MAILBOXES


def dead_message(path: str, counter: int) -> DeadMessage:
    """A dead letter of actors, from the files. NotThere"""
    found = read_letters(path, MAILBOXES, start=counter, count=1)
    if not found or found[0].key.counter != counter:
        raise NotThere(f"{path}: actors have no dead letter {counter} here. Nothing was run.")
    return read_dead(found[0])


def actor_class(named: str | None, dead: DeadMessage) -> Callable[..., Actor[Any]]:
    """The class that the user names. BadParameter: code is never loaded because a file says so."""
    if named is None:
        raise typer.BadParameter(
            f"name the class to run it with; the one that it died in is {dead.kind!r}",
            param_hint="--actor",
        )
    module, colon, name = named.partition(":")
    # As `python -m` finds modules.
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{named!r}: {error}", param_hint="--actor") from None
    if not (colon and isinstance(found, type) and issubclass(found, Actor)):
        raise typer.BadParameter(f"{named!r} is no class of actors", param_hint="--actor")
    return found


def print_run(dead: DeadMessage, found: Reproduced, *, json: bool) -> None:
    """What it met and what it did. Nothing of it has left the process."""
    error = found.error
    trace = "".join(traceback.format_exception(error)) if error is not None else ""
    told: dict[str, Any] = {
        "counter": dead.counter,
        "actor": dead.actor,
        "message": msgspec.Raw(value_json(dead.message)),
        "before": _plain(found.before),
        "after": _plain(found.state),
        "told": _plain(found.told),
        "puts": _plain(found.puts),
        "scheduled": _plain(found.scheduled),
        "replies": _plain(found.replies),
        "error": repr(error) if error is not None else None,
        "traceback": trace,
    }
    if json:
        print_json(told)
        return
    for name in ("actor", "message", "before", "after", "told", "puts", "scheduled", "replies"):
        value = told[name]
        text = value if name == "actor" else msgspec.json.encode(value)
        shown = escaped(text if isinstance(text, bytes) else text.encode()).decode()
        print(f"{name:<10} {shown}")
    print(f"\n{trace.rstrip()}" if error is not None else "\nit was handled")


def _plain(value: Any) -> Any:
    """As JSON can have it; what it cannot is shown as Python would."""
    return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
