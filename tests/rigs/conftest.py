"""Rigs need root, loop devices and tools. What cannot run here is counted and printed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.rigs.mounts import why_no_mounts

NOT_RUN = "not run"


class NotRun:
    """Notes for the end of the session what did not run and why, so that no figure hides it."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def note(self, reason: str) -> None:
        """A part of this test does not run."""
        self._request.node.user_properties.append((NOT_RUN, reason))

    def unless_installed(self, tool: str) -> None:
        """The whole test does not run without that tool."""
        if shutil.which(tool) is None:
            self.skip(f"{tool} is not installed")

    def unless_mounts_work(self) -> None:
        """The whole test does not run without private mounts of loop devices."""
        reason = why_no_mounts()
        if reason is not None:
            self.skip(reason)

    def skip(self, reason: str) -> None:
        self.note(reason)
        pytest.skip(reason)


@pytest.fixture
def not_run(request: pytest.FixtureRequest) -> NotRun:
    return NotRun(request)


def _notes(reporter: TerminalReporter) -> Iterator[str]:
    for reports in list(reporter.stats.values()):
        for report in reports:
            # User properties are on every report of a test; its end is where they are complete.
            if getattr(report, "when", None) == "teardown":
                for name, reason in report.user_properties:
                    if name == NOT_RUN:
                        yield f"{report.nodeid}: {reason}"


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    notes = sorted(_notes(terminalreporter))
    terminalreporter.section("rigs")
    terminalreporter.line(f"{len(notes)} rigs or parts of rigs did not run here")
    for note in notes:
        terminalreporter.line(f"not run: {note}")
