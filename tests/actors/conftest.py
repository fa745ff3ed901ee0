"""Tests of actors run in virtual time: nothing sleeps, and a dead end fails at once."""

from __future__ import annotations

import pytest

from actors.testing import VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}
