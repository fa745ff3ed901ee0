"""Tests of the queue run in virtual time on a simulated disk: nothing sleeps, nothing is left."""

from __future__ import annotations

from zlib import crc32

import pytest

from actors.testing import VirtualTimeLoop
from tests.fifoq.support import Bench


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """Half of the tests, always the same ones, begin with a writer like a ring."""
    return Bench(begins=crc32(request.node.nodeid.encode()) % 2 == 0)
