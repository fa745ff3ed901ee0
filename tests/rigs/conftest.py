"""Rigs need root, loop devices and tools. What cannot run here is counted and printed."""

from __future__ import annotations

import shutil

import pytest

from fifoq.ring_writer import WRITER_VARIABLE
from fifoq.uring import Ring
from tests.rigs.mounts import why_no_mounts
from tests.rigs.summary import NOT_RUN


def rings_work() -> bool:
    try:
        Ring().close()
    except OSError:
        return False
    return True


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

    def unless_rings_work(self) -> None:
        """The whole test does not run without io_uring."""
        if not rings_work():
            self.skip("there is no io_uring here")

    def skip(self, reason: str) -> None:
        self.note(reason)
        pytest.skip(reason)


@pytest.fixture
def not_run(request: pytest.FixtureRequest) -> NotRun:
    return NotRun(request)


@pytest.fixture(params=["io_uring", "thread"])
def writer(request: pytest.FixtureRequest, not_run: NotRun, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each writer in turn; stores that are opened from here on, also in other processes, use it."""
    kind = str(request.param)
    if kind == "io_uring":
        not_run.unless_rings_work()
    monkeypatch.setenv(WRITER_VARIABLE, kind)
    return kind
