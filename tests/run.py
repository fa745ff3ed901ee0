"""The test command: `python -m tests.run [--deep] [--figures] [pytest arguments]`.

Without arguments the whole suite runs on all cores. `--deep` adds the long programme. `--figures`
writes the counts that tests recorded to RELIABILITY.json, with the date and the commit.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FIGURES = Path(__file__).parent.parent / "RELIABILITY.json"


def main(arguments: list[str]) -> int:
    """Run pytest; returns its exit status."""
    deep = "--deep" in arguments
    keep = "--figures" in arguments
    rest = [argument for argument in arguments if argument not in ("--deep", "--figures")]
    os.environ["FIFOQ_DEEP"] = "1" if deep else ""
    defaults = [] if deep else ["-m", "not deep"]
    if not any(argument.startswith("-n") for argument in rest):
        defaults += ["-n", str(os.cpu_count() or 1), "--dist", "worksteal"]
    with tempfile.TemporaryDirectory() as scratch:
        recorded = Path(scratch) / "figures"
        recorded.touch()
        os.environ["FIFOQ_FIGURES"] = str(recorded)
        status = int(pytest.main([*defaults, *rest]))
        if keep and status == 0:
            _write_figures(recorded.read_text().splitlines(), deep=deep)
    return status


def _write_figures(lines: list[str], *, deep: bool) -> None:
    """Add up the figures of tests that ran in parts, and keep them for people."""
    jobs: dict[str, dict[str, int | float | str]] = {}
    for line in lines:
        figures = json.loads(line)
        job = jobs.setdefault(figures.pop("name"), {})
        for name, value in figures.items():
            before = job.get(name)
            adds = isinstance(before, int | float) and isinstance(value, int | float)
            job[name] = before + value if adds else value
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    report = {
        "command": "./dev test --deep --figures" if deep else "./dev test --figures",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": commit,
        "jobs": dict(sorted(jobs.items())),
    }
    FIGURES.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
