"""Tests of durable actors run in virtual time on a simulated disk: nothing sleeps."""

from __future__ import annotations

import pytest

from actors.testing import VirtualTimeLoop
from tests.durable.support import Town


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def town() -> Town:
    return Town()
