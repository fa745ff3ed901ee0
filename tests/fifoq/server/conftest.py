"""No test of a server depends on how long something takes."""

from __future__ import annotations

import pytest

from tests.fifoq.server.support import Deadlines


@pytest.fixture(autouse=True)
def deadlines(monkeypatch: pytest.MonkeyPatch) -> Deadlines:
    """Servers of this process drop nobody before the test says that the time is up."""
    found = Deadlines()
    monkeypatch.setattr("fifoq.server.connection.timeout", found.timeout)
    return found
