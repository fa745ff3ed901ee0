"""What the terminal shows: the run while it goes on, and the closing report."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fifoq.demo.charts import HEIGHTS, PLAIN_HEIGHTS, rates, slices, sparkline
from fifoq.demo.running import Run, Sample
from fifoq.demo.service import ACCOUNTS, CLIENTS

CELLS: Final = 30
EVENTS: Final = 6
WINDOW_SECONDS: Final = 15.0
"""How much of the past the live view shows."""


class View:
    """Shows a run: redrawn in place on a terminal, one line for each event elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.run: Run | None = None
        self._told = 0
        self._live: Live | None = None
        try:
            HEIGHTS.encode(console.encoding)
            self.heights, self.kill = HEIGHTS, "✗"
        except UnicodeEncodeError:
            self.heights, self.kill = PLAIN_HEIGHTS, "x"

    def __enter__(self) -> View:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def look(self) -> None:
        """Something has changed."""
        if self.run is None:
            return
        if self._live is not None:
            self._live.update(self._now(self.run))
            return
        for second, text in self.run.events[self._told :]:
            self.console.print(f"{second:5.1f} s  {text}")
        self._told = len(self.run.events)

    def _now(self, run: Run) -> RenderableType:
        last = run.samples[-1] if run.samples else Sample(0, 0, 0, 0, 0)
        title = Text(f"fifoq demo  service {run.life} of {run.lives}  {run.second:4.1f} s", "bold")
        begin = max(0.0, run.second - WINDOW_SECONDS)

        def row(name: str, text: str, value: Callable[[Sample], int], *, rate: bool) -> None:
            points = [(s.second, float(value(s))) for s in run.samples]
            points = rates(points) if rate else points
            shown = [(second - begin, each) for second, each in points]
            cells = slices(shown, CELLS, max(run.second - begin, 3.0))
            now = f"{points[-1][1]:,.0f}/s" if rate and points else ""
            stages.add_row(name, Text(sparkline(cells, self.heights), "cyan"), now, text)

        stages = Table(box=None, pad_edge=False, show_header=False)
        row("clients", f"{last.confirmed:,} confirmed", lambda s: s.confirmed, rate=True)
        row("queue", f"{last.waiting:,} orders wait", lambda s: s.waiting, rate=False)
        row("actors", f"{last.handled:,} handled", lambda s: s.handled, rate=True)
        row("Parquet", f"{last.rows:,} rows, Spark {run.spark}", lambda s: s.rows, rate=False)
        events = [Text(f"{second:5.1f} s  {text}") for second, text in run.events[-EVENTS:]]
        return Group(title, stages, *events)

    def close(self, run: Run, report: str) -> None:
        """The closing report."""
        outcome = run.outcome
        assert outcome is not None
        put = self.console.print
        end = run.samples[-1].second
        put("\n[bold]What came through[/]")
        points = [(s.second, float(s.confirmed)) for s in run.samples]
        handled = [(s.second, float(s.handled)) for s in run.samples]
        for name, found in (("confirmed", rates(points)), ("handled", rates(handled))):
            cells = sparkline(slices(found, CELLS, end), self.heights)
            top = max(value for _, value in found)
            put(f"  {name:<10} [cyan]{self._killed(cells, run, end)}[/]  up to {top:,.0f}/s")
        depth = [(s.second, float(s.waiting)) for s in run.samples]
        cells = sparkline(slices(depth, CELLS, end), self.heights)
        most = max(s.waiting for s in run.samples)
        put(f"  {'waiting':<10} [cyan]{self._killed(cells, run, end)}[/]  up to {most:,}")
        waits = statistics.quantiles([each * 1000 for each in run.books.seconds()], n=100)
        put(
            f"  {len(run.books.confirmed):,} orders of {CLIENTS} clients were confirmed, each on "
            f"the disk first:\n  waited {waits[49]:.1f} ms (median), {waits[98]:.1f} ms (p99)"
        )
        for kill, opened in zip(run.books.kills, run.books.opened[1:], strict=True):
            put(
                f"  {self.kill} kill -9 at {run.second_of(kill.moment):.1f} s with "
                f"{kill.under_way} puts under way; opened again in {opened * 1000:.0f} ms"
            )
        put(
            f"  {ACCOUNTS} durable actors; {outcome.commits:,} commits, "
            f"{outcome.log_bytes / 1e6:.1f} MB of log in {outcome.segments} segments"
        )
        if outcome.parquet_bytes is not None:
            put(
                f"  Spark: {outcome.rows:,} rows in Parquet, "
                f"{outcome.parquet_bytes / 1e3:,.0f} kB, by {run.drains} "
                f"{'drain' if run.drains == 1 else 'drains'}"
            )
        if more := outcome.rows - len(run.books.confirmed):
            put(f"  {more:,} rows more than were confirmed: under way at the kill or at the end")
        put("\n[bold]What was promised[/]")
        for text, broken in outcome.promises:
            sign = f"[red]broken {broken} times[/]" if broken else "[green]kept[/]"
            put(f"  {text:<56} {sign}")
        verdict = "Nothing confirmed was lost, each is there exactly once, nothing was invented."
        if outcome.kept:
            put(f"\n[bold green]{verdict}[/]")
        else:
            put("\n[bold red]A promise was broken.[/]")
        put(f"Report with charts: {report}", soft_wrap=True)

    def _killed(self, cells: str, run: Run, end: float) -> str:
        """The chart with a sign where the service was killed."""
        for kill in run.books.kills:
            place = min(CELLS - 1, int(run.second_of(kill.moment) * CELLS / end))
            cells = f"{cells[:place]}{self.kill}{cells[place + 1 :]}"
        return cells
