"""The pytest plugin: fixtures `crash_matrix` and `machine`, and the options that go with them.

It is there wherever fifoq is installed; `-p no:fifoq` leaves it out. The kit itself is loaded by
the first test that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fifoq.testing import CrashReport, Machine

_PROPERTY = "crash matrix"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the crash matrix."""
    group = parser.getgroup("fifoq")
    group.addoption("--crash-at", metavar="POINT", help="try this crash alone, as a failure says")
    group.addoption(
        "--crash-part", metavar="I/N", type=_part, default=None, help="try a part of the crashes"
    )


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--crash-part is like 2/4, not {text!r}")
    return int(number), int(count)


@pytest.fixture
def machine() -> Machine:
    """A simulated machine: `machine.run(program())`."""
    from fifoq.testing import Machine

    return Machine()


@pytest.fixture
def crash_matrix(request: pytest.FixtureRequest) -> Callable[..., CrashReport]:
    """`fifoq.testing.crash_matrix`, which tells its progress and counts by pytest.

    `--crash-at` and `--crash-part` say which crashes; a failure says how to run that one again.
    """
    from fifoq.testing import CrashFailure, crash_matrix

    def run(scenario: Any, invariant: Any, **options: Any) -> CrashReport:
        given = {"at": request.config.getoption("--crash-at")}
        given["part"] = request.config.getoption("--crash-part")
        chosen = {name: value for name, value in given.items() if value is not None}
        options = {"progress": _teller(request.config), **options, **chosen}
        try:
            report = crash_matrix(scenario, invariant, **options)
        except CrashFailure as failure:
            failure.add_note(f"pytest {request.node.nodeid} --crash-at={failure.at}")
            raise
        request.node.user_properties.append((_PROPERTY, str(report)))
        return report

    return run


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Says a line at once, past what pytest captures."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")

    def tell(line: str) -> None:
        if reporter is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(line)

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what every matrix went through."""
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            if name == _PROPERTY:
                terminalreporter.write_line(f"{_PROPERTY} of {report.nodeid}: {value}")
