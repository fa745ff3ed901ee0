"""How `fifoq top` looks: one frame, drawn from what is known of the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fifoq.cli.output import SECOND, counted, duration, size_text
from fifoq.cli.rates import History, Rates, sparkline

SPARK_MIN: Final = 8
SPARK_MAX: Final = 60
HEAD_LINES: Final = 5
"""Lines of a frame that show no queue."""
COLUMNS: Final = {
    "size": 9,
    "ready": 9,
    "leased": 7,
    "delayed": 8,
    "put/s": 8,
    "take/s": 8,
    "p50": 8,
    "p95": 8,
    "p99": 8,
    "high": 9,
    "low": 7,
    "pressure": 8,
}
"""Columns and how wide they are, apart from the queue's name and its history."""
LEFT_OUT: Final = ("p95", "low", "delayed", "ready", "high", "leased", "p50")
"""Which go first where the terminal is narrow."""


def frame(history: History, *, width: int, height: int, plain: bool = False) -> RenderableType:
    """One frame of so many columns and lines."""
    assert history.last is not None
    shown = history.busiest(max(1, height - HEAD_LINES))
    name_width = max([len("queue"), *(len(queue.name) for queue in shown)])
    columns = _columns(width - name_width - SPARK_MIN - 2)
    used = name_width + 1 + sum(COLUMNS[name] + 1 for name in columns)
    spark_width = max(SPARK_MIN, min(SPARK_MAX, width - used))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("queue", width=name_width, no_wrap=True, style="cyan")
    for name in columns:
        table.add_column(name, justify="right", width=COLUMNS[name], no_wrap=True)
    table.add_column("size so far", width=spark_width, no_wrap=True, style="green")
    for queue in shown:
        cells = _cells(queue)
        spark = sparkline(history.sizes(queue.name), spark_width, plain=plain)
        table.add_row(queue.name, *(cells[name] for name in columns), spark)
    left_out = len(history.queues) - len(shown)
    note = Text(f"and {counted(left_out, 'queue')} more that do less" if left_out else "")
    return Group(_title(history, width), _totals(history, width, plain), Text(), table, note)


def _columns(room: int) -> list[str]:
    columns = list(COLUMNS)
    for name in LEFT_OUT:
        if sum(COLUMNS[each] + 1 for each in columns) <= room:
            break
        columns.remove(name)
    return columns


def _title(history: History, width: int) -> Text:
    last = history.last
    assert last is not None
    total = sum(queue.stats.bytes for queue in history.queues)
    clock = f"{datetime.fromtimestamp(last.time // SECOND, UTC):%H:%M:%S}"
    told = f": {last.summary()}, {size_text(total)}  "
    room = max(width - len(told) - len(clock), SPARK_MIN)
    path = last.path if len(last.path) <= room else "…" + last.path[1 - room :]
    parts = (path, "bold"), told, (clock, "dim")
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _totals(history: History, width: int, plain: bool) -> Text:
    room = max(0, min(SPARK_MAX, (width - 44) // 2))
    return Text.assemble(
        ("put/s ", "bold"),
        f"{_rate(history.put_rate):>7} ",
        (sparkline(history.puts(), room, plain=plain).ljust(room), "green"),
        ("  take/s ", "bold"),
        f"{_rate(history.take_rate):>7} ",
        (sparkline(history.takes(), room, plain=plain).ljust(room), "yellow"),
        no_wrap=True,
        overflow="crop",
    )


def _cells(queue: Rates) -> dict[str, str | Text]:
    stats = queue.stats

    def count(name: str) -> str:
        value = getattr(stats, name, None)
        return "-" if value is None else f"{value:,}"

    pressed = getattr(stats, "under_pressure", None)
    pressure = "-" if pressed is None else Text("PRESSED", "bold red") if pressed else "no"
    return {
        "size": f"{queue.size:,}",
        "ready": count("ready"),
        "leased": count("leased"),
        "delayed": count("delayed"),
        "put/s": _rate(queue.put_rate),
        "take/s": _rate(queue.take_rate),
        "p50": duration(getattr(stats, "delay_p50", None)),
        "p95": duration(getattr(stats, "delay_p95", None)),
        "p99": duration(getattr(stats, "delay_p99", None)),
        "high": count("high_water_mark"),
        "low": count("low_water_mark"),
        "pressure": pressure,
    }


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"
