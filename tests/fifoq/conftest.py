"""Tests of the queue run in virtual time on a simulated disk: nothing sleeps, nothing is left."""

from __future__ import annotations

import pytest

from tests.fifoq.support import Bench
from tests.support.virtual import VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def bench() -> Bench:
    return Bench()
