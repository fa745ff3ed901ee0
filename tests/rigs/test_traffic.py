"""T13 in virtual time: the traffic tells nothing wrong, however the machine stalls."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

import fifoq
from actors.testing import VirtualTimeLoop
from fifoq.testing.simfiles import SimFiles
from tests.rigs.crashes import tell
from tests.rigs.traffic import SEGMENT_BYTES, WAIT_SECONDS, Job, Traffic
from tests.support.figures import record
from tests.support.history import History
from tests.support.runners import SlowRunner

SEED = int(os.environ.get("FIFOQ_SEED", "20261117"))
CALL_SECONDS = 0.00002
STALLS = 0.01
JOB_SECONDS = (0.0, 0.0, 0.0002, 0.002)


async def work(history: History, seed: int, operations: int) -> None:
    """Two lives of a store: traffic on one that is new, and a look at what it left."""
    loop, random = asyncio.get_running_loop(), Random(seed)
    assert isinstance(loop, VirtualTimeLoop)

    def say(*event: object) -> None:
        tell(history, list(event), "close")
        # Whoever stalls in between sees all its timers end at once.
        loop.now += WAIT_SECONDS * 1.1 if random.random() < STALLS else CALL_SECONDS

    def runner(*arguments: object) -> SlowRunner:
        made = SlowRunner(*arguments)  # type: ignore[arg-type]
        made.delay = lambda: random.choice(JOB_SECONDS)
        return made

    files = SimFiles()
    for number, count in enumerate((operations, 1)):
        job = Job(path="/data", seed=seed, operations=count, first_item=1 + (number << 40))
        async with fifoq.open_store(
            "/data", files=files, runner=runner, segment_bytes=SEGMENT_BYTES
        ) as store:
            await Traffic(job, say).run(store)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_traffic_on_a_machine_that_stalls_has_no_anomaly(seed: int) -> None:
    """A timer that ended in the turn in which a call returned once hid what the call had taken.

    To the history it looked as if later records had passed it, in one of many runs under load.
    """
    history = History()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work(history, seed, operations=12_000))
    record(f"T13 stalls {seed - SEED}", operations=history.op_count, seed=seed)
    assert history.violations == []
    assert history.confirmed_count > 5_000
