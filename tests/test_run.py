"""What the test command makes of the figures that tests recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import cover, run
from tests.support.figures import record


def test_figures_of_a_test_that_ran_in_parts_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts add up, the worst is the worst of all, and seeds are listed."""
    path = tmp_path / "figures"
    monkeypatch.setenv("FIFOQ_FIGURES", str(path))
    record("sweep", states=3, worst=1.5, seed=7, error="EIO")
    record("other", states=1, seed=7)
    record("sweep", states=4, worst=1.25, seed=8, error="ENOSPC")
    record("sweep", states=5, worst=1.0, seed=8, error="EIO")
    record("other", states=1, seed=7)
    assert run.added_up(path.read_text().splitlines()) == {
        "other": {"states": 2, "seed": 7},
        "sweep": {"states": 12, "worst": 1.5, "seed": "7, 8", "error": "EIO, ENOSPC"},
    }


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a short run without coverage and benchmarks writes its figures."""
    monkeypatch.setattr(cover, "measure", lambda: (0, {"percent": 100.0}))
    monkeypatch.setattr(run, "_benchmarks", lambda: {"rows": []})
    for variable in ("FIFOQ_DEEP", "FIFOQ_FIGURES", "FIFOQ_WRITES_FIGURES"):
        monkeypatch.setenv(variable, "")
    return tmp_path / "report"


def short_run(report: Path) -> list[str]:
    return [f"--figures={report}", "-n0", "-q", "tests/test_support/test_clock.py"]


def test_the_report_holds_tests_coverage_jobs_and_benchmarks(report: Path) -> None:
    arguments = short_run(report)
    assert run.main(arguments) == 0
    written = json.loads(report.read_text())
    assert list(written) == [
        *("command", "date", "commit", "tests", "coverage", "jobs", "benchmarks"),
    ]
    assert written["command"] == " ".join(["./dev test", *arguments])
    assert written["tests"] == {"passed": 4, "failed": 0, "skipped": 0}


def test_a_deep_run_and_the_suite_leave_each_others_figures_alone(report: Path) -> None:
    arguments = short_run(report)
    assert run.main(arguments) == 0
    suite = json.loads(report.read_text())
    assert run.main(["--deep", *arguments]) == 0
    both = json.loads(report.read_text())
    deep = both["deep"]
    assert both == {**suite, "deep": deep}
    assert list(deep) == ["command", "date", "commit", "tests", "jobs"]
    assert deep["command"] == " ".join(["./dev test --deep", *arguments])
    assert run.main(arguments) == 0
    assert json.loads(report.read_text())["deep"] == deep


@pytest.mark.parametrize("missing", ["tests/no_such_test.py", "coverage"])
def test_nothing_is_written_when_anything_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(cover, "measure", lambda: (2, {"percent": 99.9}))
    for variable in ("FIFOQ_DEEP", "FIFOQ_FIGURES", "FIFOQ_WRITES_FIGURES"):
        monkeypatch.setenv(variable, "")
    tests = "tests/test_support/test_clock.py" if missing == "coverage" else missing
    assert run.main([f"--figures={tmp_path / 'report'}", "-n0", "-q", tests]) != 0
    assert not (tmp_path / "report").exists()
