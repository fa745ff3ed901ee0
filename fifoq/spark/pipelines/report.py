"""Tables and bars for people: drawn by rich on a terminal, plain text anywhere else."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

BAR_WIDTH: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

Cell = str | int | float | None


class Table(msgspec.Struct, frozen=True):
    """A title, the names of the columns, and the rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline found, for people: `str` is a table as plain text, `show` prints it."""

    def table(self) -> Table:
        """What it shows; each kind of report has its own."""
        raise AssertionError("a report alone shows nothing")

    def __str__(self) -> str:
        return text(self.table())

    def show(self, file: TextIO | None = None) -> None:
        """Print it as a table."""
        show(self.table(), file)


def show(found: Table, file: TextIO | None = None) -> None:
    """Print a table: to a terminal with rich, else as the plain text of `text`."""
    out = file if file is not None else sys.stdout
    if not out.isatty():
        print(text(found), file=out)
        return
    from rich import table
    from rich.console import Console

    drawn = table.Table(title=found.title, title_justify="left")
    for name, right in zip(found.columns, _numeric(found), strict=True):
        drawn.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in found.rows:
        drawn.add_row(*map(_cell, row))
    Console(file=out).print(drawn)


def text(found: Table) -> str:
    """The table as plain text, columns aligned."""
    cells = [list(found.columns), *([_cell(cell) for cell in row] for row in found.rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(found.columns))]
    right = _numeric(found)
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([found.title, *lines])


def bar(value: float, most: float, width: int = BAR_WIDTH) -> str:
    """A bar for `value`, full at `most`."""
    eighths = round(width * 8 * min(1.0, value / most)) if most > 0 else 0
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def utc(seconds: int, *, minutes: bool = False) -> str:
    """Seconds since the epoch as people write them; with `minutes`, up to those."""
    form = "%Y-%m-%d %H:%M" if minutes else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _numeric(found: Table) -> list[bool]:
    return [
        bool(found.rows)
        and all(row[at] is None or isinstance(row[at], int | float) for row in found.rows)
        for at in range(len(found.columns))
    ]


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) else value
