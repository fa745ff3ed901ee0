"""Tables and bars for people: drawn by rich on a terminal, plain text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, TextIO

BAR_WIDTH: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

Cell = str | int | float | None


def show(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], file: TextIO | None = None
) -> None:
    """Print a table: to a terminal with rich, else as the plain text of `text`."""
    out = file if file is not None else sys.stdout
    if not out.isatty():
        print(text(title, columns, rows), file=out)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name, right in zip(columns, _numeric(columns, rows), strict=True):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(file=out).print(table)


def text(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """The table as plain text, columns aligned."""
    cells = [list(columns), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    right = _numeric(columns, rows)
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([title, *lines])


def bar(value: float, most: float, width: int = BAR_WIDTH) -> str:
    """A bar for `value`, full at `most`."""
    eighths = round(width * 8 * min(1.0, value / most)) if most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _numeric(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    return [
        bool(rows) and all(row[at] is None or isinstance(row[at], int | float) for row in rows)
        for at in range(len(columns))
    ]


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else value
