"""The report: a table with drawn bars for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fifoq.bench.measure import Absent, Row, rate
from fifoq.bench.peers import RATES, PeerResult

BAR_CELLS = 20
TARGET_CELL = 10
"""The bar of a row that just meets its target ends here."""
WIDE_COLUMNS = 140
"""Below this width figures stand under a row's name."""
PLAIN_COLUMNS = 160
"""Width where the output is no terminal: nothing is cut that a log would then lack."""


class Report(msgspec.Struct, frozen=True):
    """All that a run found."""

    place: dict[str, str]
    rows: list[Row]
    absent: list[Absent]
    peers: list[PeerResult]

    @property
    def missed(self) -> list[Row]:
        """Rows that do not reach their target."""
        return [row for row in self.rows if not row.met]


def as_json(report: Report) -> str:
    """Everything, with a verdict in each row."""
    found = msgspec.to_builtins(report)
    for row, plain in zip(report.rows, found["rows"], strict=True):
        plain["met"] = row.met
    return json.dumps(_rounded(found), indent=2, ensure_ascii=False)


def print_table(report: Report, stream: TextIO) -> None:
    """Draw the report."""
    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        console = Console(file=stream, highlight=False, width=PLAIN_COLUMNS)
    if report.rows:
        console.print(_rows_table(report.rows, wide=console.width >= WIDE_COLUMNS))
    if report.peers:
        console.print(_peers_table(report.peers))
    for absent in report.absent:
        console.print(Text(f"absent: {absent.name} ({absent.why})"))
    console.print(Text("  ".join(f"{name}: {value}" for name, value in report.place.items())))
    if report.rows:
        missed = len(report.missed)
        console.print(Text(f"{len(report.rows) - missed} rows met their target, {missed} missed"))


def bar(row: Row) -> str:
    """How much of its target a row reaches; it comes up to the mark only if that is met."""
    filled = max(1, round(min(row.share * TARGET_CELL, BAR_CELLS)))
    filled = max(filled, TARGET_CELL) if row.met else min(filled, TARGET_CELL - 1)
    cells = "█" * filled + " " * (BAR_CELLS - filled)
    return f"{cells[:TARGET_CELL]}│{cells[TARGET_CELL:]}"


def _rows_table(rows: Sequence[Row], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("workload", no_wrap=wide, overflow="fold")
    for title in ("measured", "target"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("target at │", no_wrap=True)
    if wide:
        table.add_column("figures of this machine")
    for row in rows:
        colour = "green" if row.met else "red"
        below = f"\n  {row.detail}" if row.detail and not wide else ""
        table.add_row(
            Text("met" if row.met else "MISSED", style=colour),
            Text.assemble(row.name, (below, "dim")),
            Text(f"{_short(row.value)} {row.unit}"),
            Text(f"{'≥' if row.more else '≤'} {row.target:g}"),
            Text(bar(row), style=colour),
            *([Text(row.detail)] if wide else []),
        )
    return table


def _peers_table(peers: Sequence[PeerResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("peer", no_wrap=True)
    for title in RATES.values():
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("lost on kill -9")
    table.add_column("lost on a power cut")
    for peer in peers:
        rates = [peer.rates.get(name) for name in RATES]
        table.add_row(
            Text(peer.name),
            *(Text("–" if found is None else rate(found)) for found in rates),
            Text(peer.lost_on_kill),
            Text(peer.lost_on_power_cut),
        )
    return table


def _short(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _rounded(found: object) -> object:
    """Six digits: the rest is noise, and diffs of two runs stay readable."""
    match found:
        case float():
            return float(f"{found:.6g}")
        case dict():
            return {name: _rounded(value) for name, value in found.items()}
        case list():
            return [_rounded(value) for value in found]
        case _:
            return found
