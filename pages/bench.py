"""The benchmarks page, made of a run: `python -m pages.bench` measures and writes it.

The run's JSON is kept beside the page, so that the page can be made again without measuring:
`python -m pages.bench --page`. Arguments after `--` go to `fifoq bench`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from fifoq.bench.measure import rate
from fifoq.bench.peers import RATES

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/benchmarks.md"
KEPT: Final = ROOT / "docs/assets/benchmarks.json"

HEAD: Final = """\
# Benchmarks

One run of the command below, on the machine that is named below. What is a ratio (×) compares two
things of that same run: it is the median of what the rounds gave, so it need not be the quotient of
the two medians beside it. Everything else holds for that machine alone. Run it on your disk: that
decides more than anything here. [What each row means](reference/bench.md).

| | |
|---|---|
{origin}

{verdict}. A target that was missed in this run stays in the table.{note}

## Against yardsticks

{rows}

## Beside others

Records per second, 100 bytes each. A rate means nothing without what is lost: compare those that
lose as much.

{peers}

{absent}
This page is made by `python -m pages.bench` from `docs/assets/benchmarks.json`, which is what the
command printed.
"""


def page(run: dict[str, Any]) -> str:
    """The page of a run: what `--json` printed, with `command`, `date` and perhaps a `note`.

    The note, written by hand, says what a reader must know: how many runs there were, and how
    quiet the machine was.
    """
    missed = [row for row in run["rows"] if not row["met"]]
    origin = {"command": f"`{run['command']}`", "date": run["date"], **run["place"]}
    absent = "".join(f"- {each['name']}: {each['why']}\n" for each in run["absent"])
    return HEAD.format(
        origin=_lines((name, str(value)) for name, value in origin.items()),
        verdict=f"{len(run['rows']) - len(missed)} rows met their target, {len(missed)} missed",
        note=f" {run['note']}" if run.get("note") else "",
        rows=_table(("row", "measured", "target", "", "figures"), map(_row, run["rows"])),
        peers=_table(
            ("peer", *RATES.values(), "lost on kill -9", "lost on a power cut"),
            map(_peer, run["peers"]),
        ),
        absent=f"Not measured in this run:\n\n{absent}\n" if absent else "",
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    sign = "≥" if row["more"] else "≤"
    verdict = "met" if row["met"] else "**missed**"
    measured = f"{_short(row['value'])} {row['unit']}"
    return row["name"].strip(), measured, f"{sign} {row['target']:g}", verdict, row["detail"]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _peer(peer: dict[str, Any]) -> tuple[str, ...]:
    rates = [peer["rates"].get(name) for name in RATES]
    said = ["–" if found is None else rate(found) for found in rates]
    return peer["name"], *said, peer["lost_on_kill"], peer["lost_on_power_cut"]


def _table(titles: tuple[str, ...], rows: Any) -> str:
    return _lines([titles, ("---",) * len(titles), *rows])


def _lines(rows: Any) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def measured(arguments: list[str]) -> dict[str, Any]:
    """Run the benchmark in a process of its own."""
    given = ["bench", "--peers", "--json", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "fifoq.bench", *given[1:]],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    command = " ".join(["fifoq", *given])
    return {"command": command, "date": datetime.date.today().isoformat(), **found}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pages.bench", description=__doc__)
    parser.add_argument("--page", action="store_true", help="only write the page, of the kept run")
    parser.add_argument("bench", nargs="*", help="for `fifoq bench`, after --")
    given = parser.parse_args(arguments)
    if not given.page:
        text = json.dumps(measured(given.bench), indent=2, ensure_ascii=False)
        KEPT.write_text(f"{text}\n")
    PAGE.write_text(page(json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
