"""The command: `./dev demo`, `fifoq demo`, `python -m fifoq.demo`."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

import fifoq.demo
from fifoq.demo.report import html
from fifoq.demo.running import ProcessEnded, Run
from fifoq.demo.view import View

SECONDS = 6.0
LIVES = 2
REPORT = "fifoq-demo.html"


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; the exit status says whether every promise was kept."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description=fifoq.demo.__doc__,
        epilog="Exit status: 0 every promise was kept, 1 one was broken, or it could not be run to "
        "its end, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seconds", type=float, default=SECONDS, help="of load in each life (%(default)s)")
    add("--report", default=REPORT, metavar="FILE", help="where the HTML goes (%(default)s)")
    add("--no-spark", action="store_true", help="read the ledger in Python instead")
    add("--json", action="store_true", help="print the figures as JSON, and nothing else")
    add("--picture", metavar="FILE", help="write what is shown as SVG too, without live view")
    given = parser.parse_args(arguments)
    return demonstrate(
        seconds=given.seconds,
        report=Path(given.report),
        spark=not given.no_spark,
        picture=Path(given.picture) if given.picture else None,
        as_json=given.json,
    )


def demonstrate(
    *,
    seconds: float = SECONDS,
    report: Path,
    spark: bool = True,
    picture: Path | None = None,
    as_json: bool = False,
) -> int:
    """All of it, in a temporary directory that is removed at the end."""
    console = console_for(picture=picture is not None, as_json=as_json)
    missing = _missing() if spark else None
    if missing:
        console.print(f"Without Spark: {missing}", soft_wrap=True)
    console.print(
        "Clients await the disk for each order → durable queue → durable actors → Spark."
        if console.encoding.startswith("utf")
        else "Clients await the disk for each order > durable queue > durable actors > Spark."
    )
    view = View(console)
    # What opening finds after a kill is told in the report, not between its lines.
    logging.getLogger("store").addHandler(logging.NullHandler())
    # Whoever stops it by SIGTERM wants it to clean up as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Beside the report, not in /tmp: that is often memory, which syncs nothing.
        with tempfile.TemporaryDirectory(prefix=".fifoq-demo-", dir=report.parent) as directory:
            run = Run(
                str(Path(directory).resolve()),
                seconds=seconds,
                lives=LIVES,
                spark=spark and not missing,
                look=view.look,
            )
            view.run = run
            try:
                with view:
                    outcome = asyncio.run(run.go())
            except ProcessEnded as ended:
                log = shutil.copy(ended.log, report.with_suffix(".log"))
                without = ", or without Spark: --no-spark" if ended.name == "spark" else ""
                told = f"{ended}. All that it said is in {log}. Run it again{without}."
                print(f"fifoq demo: {told}", file=sys.stderr)
                return 1
            report.write_text(html(run, "./dev demo"))
            view.close(run, str(report.resolve()))
            if as_json:
                print(json.dumps(figures(run, report), indent=2))
    except KeyboardInterrupt:
        console.print("\ninterrupted; the service is dead and its files are gone")
        return 130
    if picture:
        drawn = console.export_svg(title="./dev demo")
        # Fonts from elsewhere: the reader's own will do.
        picture.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))
    return 0 if outcome.kept else 1


def console_for(*, picture: bool, as_json: bool) -> Console:
    """Where it is shown: for a picture without the live view, whose every frame would be in it."""
    live = Console(highlight=False, quiet=as_json)
    if live.is_terminal and not picture:
        return live
    return Console(highlight=False, quiet=as_json, width=80, record=picture, force_terminal=False)


def figures(run: Run, report: Path) -> dict[str, Any]:
    """What a run found, for scripts."""
    assert run.outcome is not None
    waits = statistics.quantiles(run.books.seconds(), n=100)
    return {
        "kept": run.outcome.kept,
        "promises": dict(run.outcome.promises),
        "confirmed": len(run.books.confirmed),
        "rows": run.outcome.rows,
        "spark": run.with_spark,
        "drains": run.drains,
        "put_seconds_p50": round(waits[49], 6),
        "put_seconds_p99": round(waits[98], 6),
        "kills": [
            {"second": round(run.second_of(kill.moment), 3), "under_way": kill.under_way}
            for kill in run.books.kills
        ],
        "open_seconds": run.books.opened,
        "commits": run.outcome.commits,
        "log_bytes": run.outcome.log_bytes,
        "seconds": round(run.second, 3),
        "report": str(report.resolve()),
    }


def _missing() -> str | None:
    """Why Spark cannot run here, in one line; None if it can."""
    try:
        from fifoq.spark.session import JavaMissing, find_java
    except ImportError:
        return "pip install 'fifoq[spark]' brings what it needs"
    try:
        find_java()
    except JavaMissing as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
