"""SIGTERM to a process with durable actors: what is in hand ends, the rest waits on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fifoq import ActorSystem
from tests.durable.signalled import Work, Worker

ROOT = Path(__file__).parents[2]
COUNT = 20


@pytest.mark.parametrize(("seconds", "deadline", "status"), [(0.05, 30.0, 0), (600.0, 0.1, 1)])
def test_a_signal_leaves_every_message_done_or_on_disk(
    tmp_path: Path, seconds: float, deadline: float, status: int
) -> None:
    arguments = (str(tmp_path / "store"), str(COUNT), str(seconds), str(deadline))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.durable.signalled", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    begun: list[str] = []
    while (line := process.stdout.readline()) != "told\n":
        begun.append(line)
    while not begun:
        begun.append(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (status, False), errors
    begun += output.splitlines()
    handled = asyncio.run(finish(str(tmp_path / "store")))
    # In order, each once; a message that was cut short was the first again.
    assert handled == list(range(COUNT))
    if status:
        assert begun == ["begin 0\n"]


async def finish(path: str) -> object:
    """What the next process does: it goes on where the last one stopped."""
    async with ActorSystem(path) as system:
        worker = await system.spawn(Worker, 0.0, name="worker", durable=True)
        numbers = await worker.ask(Work(-1), returns=list)
        return numbers[:-1]
