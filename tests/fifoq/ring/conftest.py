"""Tests of a real ring: real files, and real time, since the kernel ends its writes in no other.

Where this machine has no ring, or the scratch directory lies on a file system without direct
writes, they are counted as not run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fifoq
from fifoq import Queue
from fifoq.uring import overwrites_in_place
from tests.fifoq.ring.support import runner_of
from tests.rigs.conftest import NotRun, not_run

__all__ = ["not_run"]


@pytest.fixture
def anyio_backend() -> str:
    """Real time: the kernel ends its writes in no other."""
    return "asyncio"


@pytest.fixture
def place(tmp_path: Path, not_run: NotRun) -> Path:
    """Where a store is written by a ring."""
    not_run.unless_rings_work()
    with (tmp_path / "probe").open("wb") as file:
        if not overwrites_in_place(file.fileno()):
            not_run.skip("the scratch directory is on neither ext4 nor XFS")
    return tmp_path / "store"


@pytest.fixture
async def queue(place: Path) -> AsyncIterator[Queue[bytes]]:
    """A queue whose next put goes through the ring."""
    async with fifoq.open(place) as queue:
        await queue.put(b"first")
        assert runner_of(queue).kind == "io_uring"
        yield queue
