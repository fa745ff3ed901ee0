"""Progress of a long run, on stderr and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Step = TypeVar("Step")


def steps(work: Sequence[Step], name: Callable[[Step], str]) -> Iterator[Step]:
    """Each step in turn, shown while the caller does it."""
    if not work:
        return
    with Progress(
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
        # It draws between steps only: a thread that redraws would take the interpreter's lock
        # from whatever is being measured.
        auto_refresh=False,
    ) as progress:
        task = progress.add_task("", total=len(work))
        for step in work:
            progress.update(task, description=name(step), refresh=True)
            yield step
            progress.advance(task)
