"""Tests of the queue run in virtual time on a simulated disk: nothing sleeps, nothing is left."""

from __future__ import annotations

import pytest

from actors.testing import VirtualTimeLoop
from tests.fifoq.support import Bench


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def bench() -> Bench:
    return Bench()
