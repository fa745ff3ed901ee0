"""The frame of every verb: how it is added, how it ends, and what a mistake looks like.

A mistake of the user's is one line on stderr and a status, never a traceback; with `--json` it is
an object on stdout, where a script looks for the answer.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from fifoq.cli.usage import VerbCommand, usage_text

P = ParamSpec("P")
R = TypeVar("R")


class Status(IntEnum):
    """What the exit status of every verb says; `MEANINGS` has the words."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    DAMAGED = 4
    IN_USE = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANINGS: Final = {
    Status.DONE: "it was done",
    Status.FAILED: "it was not done; the line on stderr says why",
    Status.USAGE: "the arguments make no sense; nothing was begun",
    Status.NOTHING: "what was asked for is not there: a record, a cursor, a queue, a store",
    Status.DAMAGED: "the store is damaged where it was read",
    Status.IN_USE: "another process owns the store, and could not be asked, or did not answer",
    Status.INTERRUPTED: "Ctrl-C",
    Status.BROKEN_PIPE: "whoever read the output has gone",
    Status.TERMINATED: "SIGTERM",
}


_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""What wrong arguments raise: typer has no name of its own for it."""
_HELP_WANTED: Final = "NoArgsIsHelpError"
"""The kind of it that is no mistake: a group that was called with nothing shows its help."""


class Ended(Exception):
    """A verb ends here with a status, and says why if there is anything to say."""

    def __init__(self, status: Status, message: str = "", *, kind: str = "Nothing") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class _Verbs(TyperGroup):
    """A group of verbs in which wrong arguments end as every other mistake does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta.setdefault(__name__, "--json" in args)
        with _one_message(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _one_message(ctx):
            return super().invoke(ctx)


@contextmanager
def _one_message(ctx: Any) -> Iterator[None]:
    """Tell of wrong arguments in one message, and where to read on."""
    try:
        yield
    except _UsageError as error:
        kind = type(error).__name__
        if kind == _HELP_WANTED:
            raise
        told: Any = error
        message, as_json = usage_text(told), ctx.meta[__name__]
        if not as_json:
            place = (told.ctx or ctx).command_path
            message = f"{message.rstrip('.')}. Try: {place} --help"
        _tell(Ended(Status.USAGE, message, kind=kind), as_json)
        raise typer.Exit(Status.USAGE) from None


def make_app(help: str, *, name: str | None = None) -> typer.Typer:
    """An app, or a group of verbs."""
    return typer.Typer(
        name=name,
        cls=_Verbs,
        help=help,
        no_args_is_help=True,
        add_completion=name == "fifoq",
        # Help as plain text: it is read in pipes as well, and rich alone would take longer to
        # import than everything else.
        rich_markup_mode=None,
        # A traceback drawn with every local value would print users' records.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def verb(
    app: typer.Typer, name: str, *, example: str
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Add a function to an app as a verb. `example` is a command that one can type."""

    def add(function: Callable[P, None]) -> Callable[P, None]:
        guarded = guard(function)
        epilog = "Example:\n\n" + "\n\n".join(example.strip().splitlines())
        app.command(name, cls=VerbCommand, epilog=epilog)(guarded)
        return guarded

    return add


def guard(function: Callable[P, None]) -> Callable[P, None]:
    """The function, with whatever it raises turned into a status and one line."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = bool(kwargs.get("json"))
        try:
            _check_queues(kwargs.get("queue"))
            function(*args, **kwargs)
            sys.stdout.flush()
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            _leave_stdout()
            raise typer.Exit(Status.BROKEN_PIPE) from None
        except KeyboardInterrupt:
            raise typer.Exit(Status.INTERRUPTED) from None
        except Exception as error:
            ended = _as_end(error)
            if ended is None:
                raise
            _tell(ended, as_json)
            raise typer.Exit(ended.status) from None

    return guarded


def _check_queues(given: Any) -> None:
    """InvalidName before anything is begun, a new store for instance."""
    if given is not None:
        # Here: help needs none of it.
        from store.genesis import check_name

        for name in given if isinstance(given, list) else [given]:
            check_name(name)


def run(function: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run a coroutine to its end. Ctrl-C and SIGTERM cancel it, so it leaves things in order."""

    # Here: help needs none of it.
    import asyncio

    async def main() -> R:
        task = asyncio.current_task()
        assert task is not None
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await function()
        except asyncio.CancelledError:
            if terminated:
                raise Ended(Status.TERMINATED) from None
            raise

    return asyncio.run(main())


def _as_end(error: Exception) -> Ended | None:
    """How a verb ends that raised this; None for a mistake of ours, which needs its traceback."""
    # Here: help needs none of it.
    from fifoq.control.client import NoAnswer, Refused
    from fifoq.control.messages import NotThere
    from store import AlreadyOpen, CorruptionError, FifoqError, InvalidName

    if isinstance(error, Ended):
        return error
    kind = error.kind if isinstance(error, Refused) else type(error).__name__
    status = Status.FAILED
    if isinstance(error, CorruptionError) or kind == CorruptionError.__name__:
        status = Status.DAMAGED
    elif isinstance(error, AlreadyOpen | NoAnswer) or kind == "QueueIsOpen":
        status = Status.IN_USE
    elif isinstance(error, NotThere) or kind == NotThere.__name__:
        status = Status.NOTHING
    elif kind == InvalidName.__name__:
        status = Status.USAGE
    elif not isinstance(error, FifoqError | OSError | ValueError | TimeoutError):
        return None
    return Ended(status, _os_text(error) if isinstance(error, OSError) else str(error), kind=kind)


def _os_text(error: OSError) -> str:
    """What the system refused, and of which file, where nobody has put it into words."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return (
        f"{os.fsdecode(error.filename)}: {error.strerror}. It was not done. Check that the path is "
        f"right, and that this user may read and write there."
    )


def _tell(ended: Ended, as_json: bool) -> None:
    if not str(ended):
        return
    if as_json:
        import msgspec

        told = {"error": str(ended), "kind": ended.kind, "status": int(ended.status)}
        print(msgspec.json.encode(told).decode(), flush=True)
    else:
        print(f"fifoq: {one_line(str(ended))}", file=sys.stderr)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _leave_stdout() -> None:
    """Let the interpreter end without telling of the pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
