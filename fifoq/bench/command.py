"""The command: `fifoq bench`, `python -m fifoq.bench`, and `./dev bench` with more rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fifoq.bench.measure import Group

Rows = Annotated[
    list[str] | None,
    typer.Option("--rows", metavar="NAME", help="Only these rows; repeat it, or part by commas."),
]
Peers = Annotated[bool, typer.Option("--peers", help="Also measure every installed peer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Strict = Annotated[bool, typer.Option("--strict", help="Status 1 when a row misses its target.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small counts, to see that it runs.")]
Directory = Annotated[
    Path,
    typer.Option(
        "--dir",
        help="Where the scratch directory is made and deleted.",
        exists=True,
        file_okay=False,
        writable=True,
    ),
]


def command(load: Callable[[], Sequence[Group]]) -> Callable[..., None]:
    """A command over the rows that `load` gives; nothing is imported before it runs."""

    def bench(
        rows: Rows = None,
        peers: Peers = False,
        json: Json = False,
        strict: Strict = False,
        quick: Quick = False,
        directory: Directory = Path(),
    ) -> None:
        """Measure the queue against yardsticks in the same run, and say which targets it meets."""
        # Here and not above: `fifoq --help` and the other verbs need none of it.
        from fifoq.bench.report import as_json, print_table
        from fifoq.bench.running import measure

        groups = _chosen(load(), rows)
        report = measure(groups, directory, peers=peers, quick=quick)
        if json:
            print(as_json(report))
        else:
            print_table(report, sys.stdout)
        raise typer.Exit(1 if strict and report.missed else 0)

    return bench


def run(load: Callable[[], Sequence[Group]]) -> None:
    """The command as a program of its own."""
    # Plain errors: a traceback drawn with every local value would print the records.
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command(load))
    app()


def queue_rows() -> Sequence[Group]:
    """The rows of the queue."""
    from fifoq.bench.rows import GROUPS

    return GROUPS


def _chosen(groups: Sequence[Group], names: list[str] | None) -> Sequence[Group]:
    if not names:
        return groups
    wanted = [name for part in names for name in part.split(",")]
    known = {group.name for group in groups}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"no row is called {', '.join(unknown)}; there are {', '.join(sorted(known))}",
            param_hint="--rows",
        )
    return [group for group in groups if group.name in wanted]
