"""Progress of a long verb, on stderr and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is, or 0 where nobody knows."""


@contextmanager
def progress(verb: str, unit: Literal["records", "bytes"]) -> Iterator[Progress | None]:
    """A bar while the block runs; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    # Here: most verbs never need it, and it takes a while to import.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    counts: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn(verb), BarColumn(), counts, TimeRemainingColumn())
    with Bars(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(verb, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total or None)
