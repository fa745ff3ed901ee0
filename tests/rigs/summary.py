"""The lines at the end of a test run that say which rigs did not run, and why.

A skip is easily overlooked, and a reliability figure from a run with skips is not one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

NOT_RUN = "not run"
"""The user property of a test that, or a part of which, did not run; its value is the reason."""
RIGS = "tests/rigs/"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # The end of a test is where its properties are complete, and each test has one.
    ends = [report for report in _reports(terminalreporter) if report.when == "teardown"]
    if not any(report.nodeid.startswith(RIGS) for report in ends):
        return
    notes = sorted(
        f"{report.nodeid}: {reason}"
        for report in ends
        for name, reason in report.user_properties
        if name == NOT_RUN
    )
    terminalreporter.section("rigs")
    terminalreporter.line(f"{len(notes)} rigs did not run here")
    for note in notes:
        terminalreporter.line(f"not run: {note}")


def _reports(reporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in reporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))
