"""The test command: `python -m tests.run [--deep] [--figures[=FILE]] [pytest arguments]`.

Without arguments the whole suite runs, on one worker more than there are cores. `--deep` adds the
long programme. `--figures` then measures coverage and runs the benchmarks too, and writes all
counts to RELIABILITY.json, or to FILE, with the date and the commit; it does so only if nothing
failed. The counts of a deep run are a part of their own there, under `deep`: each kind of run
leaves the other's figures alone.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests import cover

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "RELIABILITY.json"

SECTIONS = ("command", "date", "commit", "tests", "coverage", "jobs", "benchmarks", "deep")

Figure = int | float | str
NO_COUNTS = ("seed", "total", "burst")
"""Figures that mean nothing when they are added up."""
LARGEST_OF_ALL = (
    *("worst", "worst_lag_ms", "slowest_seconds", "original_seconds"),
    *("memory_growth_bytes", "reopened_growth_bytes", "disk_growth_bytes"),
)


class Tally:
    """Counts how tests ended, whichever worker ran them."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter(passed=0, failed=0, skipped=0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1


def main(arguments: list[str]) -> int:
    """Run pytest; returns its exit status, or 1 if coverage is not complete."""
    wanted = [argument for argument in arguments if argument.partition("=")[0] == "--figures"]
    kept = (ROOT / wanted[-1].partition("=")[2]) if wanted and "=" in wanted[-1] else FIGURES
    deep = "--deep" in arguments
    rest = [argument for argument in arguments if argument not in ("--deep", *wanted)]
    os.environ["FIFOQ_DEEP"] = "1" if deep else ""
    # The README links the file that this run is about to write.
    os.environ["FIFOQ_WRITES_FIGURES"] = "1" if wanted else ""
    defaults = [] if deep else ["-m", "not deep"]
    if not any(argument.startswith("-n") for argument in rest):
        # One more than there are cores: those that kill, sync or wait for Spark leave them idle.
        defaults += ["-n", str(1 + (os.cpu_count() or 1)), "--dist", "loadgroup"]
    # Started in the background of a shell, this would ignore Ctrl-C, and so would every program
    # that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        recorded = Path(scratch) / "figures"
        recorded.touch()
        os.environ["FIFOQ_FIGURES"] = str(recorded)
        status = int(pytest.main([*defaults, *rest], plugins=[tally]))
        lines = recorded.read_text().splitlines()
    if not wanted or status:
        return status
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found: dict[str, object] = {
        **_origin(arguments),
        "tests": dict(tally.outcomes),
        "jobs": added_up(lines),
    }
    if deep:
        return _write(kept, {**before, "deep": found})
    status, found["coverage"] = cover.measure()
    if status == 0:
        # What was counted stays, whatever becomes of the benchmarks.
        before.pop("benchmarks", None)
        _write(kept, {**before, **found})
        found["benchmarks"] = _benchmarks()
        _write(kept, {**before, **found})
    return status


def _write(path: Path, report: dict[str, object]) -> int:
    ordered = {name: report[name] for name in SECTIONS if name in report}
    path.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n")
    print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    return 0


def added_up(lines: list[str]) -> dict[str, dict[str, Figure]]:
    """Figures by job; those of a test that ran in parts become one."""
    jobs: dict[str, dict[str, Figure]] = {}
    for line in lines:
        figures = json.loads(line)
        job = jobs.setdefault(figures.pop("name"), {})
        for name, value in figures.items():
            job[name] = _together(name, job.get(name), value)
    return dict(sorted(jobs.items()))


def _together(name: str, before: Figure | None, value: Figure) -> Figure:
    if before is None or (before == value and name in NO_COUNTS):
        return value
    if isinstance(before, str) or isinstance(value, str) or name in NO_COUNTS:
        parts = str(before).split(", ")
        return before if str(value) in parts else f"{before}, {value}"
    return max(before, value) if name in LARGEST_OF_ALL else before + value


def _origin(arguments: list[str]) -> dict[str, str]:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "command": " ".join(["./dev test", *arguments]),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": described.stdout.strip(),
    }


def _benchmarks() -> object:
    """The rows of the benchmarks, as they say them; a missed target is told, not hidden."""
    command = [sys.executable, "-m", "benchmarks", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
