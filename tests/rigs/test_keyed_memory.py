"""Keyed actors: memory is bounded by those that are there, not by the keys that there ever were."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rigs.driver import ROOT
from tests.support.figures import record

GROWTH_KIB_MAX = 12 << 10


@pytest.mark.parametrize(
    ("keys", "active"),
    [
        pytest.param(10_000, 100, id="suite"),
        pytest.param(100_000, 1000, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(1800)]),
    ],
)
def test_memory_does_not_grow_with_the_keys(keys: int, active: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rigs.keyed_process", str(keys), str(active)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1200,
    )
    early, late, (handled,) = (list(map(int, line.split())) for line in done.stdout.splitlines())
    assert (early[2], late[2], handled) == (keys // 5 + 1, keys, keys)
    assert max(early[1], late[1]) <= active
    growth = max(0, late[0] - early[0])
    record("keyed actors", keys=keys, active=active, kib=late[0], growth_kib=growth)
    assert growth <= GROWTH_KIB_MAX
