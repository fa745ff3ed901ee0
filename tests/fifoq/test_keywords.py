"""Options as editors and type checkers see them: the same names and types as at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import fifoq

ROOT = Path(__file__).parents[2]

SAMPLE = """
from typing import Unpack

import fifoq
import fifoq.sync


def wrap(**options: Unpack[fifoq.OpenKeywords]) -> fifoq.Opening[fifoq.Queue[bytes]]:
    return fifoq.open("x", **options)


async def main() -> None:
    wrap(maxsize=1, sync_every=3)
    wrap(maxsize="1")  # refused
    fifoq.open("x", maxsize=1, durability="os", sync_interval=None, retention=fifoq.Retention())
    fifoq.open("x", maxsze=1)  # refused
    fifoq.open("x", type=int, overflow="nope")  # refused
    fifoq.sync.open("x", durabilty="os")  # refused
    store = await fifoq.open_store("x", segment_bytes=1 << 20)
    fifoq.open_store("x", maxsize=1)  # refused
    queue = await store.queue("a", type=int, max_retries=None)
    await store.queue("a", max_retry=1)  # refused
    await store.topic("t", partitions=2, maxsize=3)
    await store.topic("t", partition=2)  # refused
    queue.configure(buffer_size=3)
    queue.configure(buffer=3)  # refused
"""


def test_the_keywords_are_those_of_the_options() -> None:
    queue, store = get_type_hints(fifoq.QueueOptions), get_type_hints(fifoq.StoreOptions)
    assert get_type_hints(fifoq.QueueKeywords) == queue
    assert get_type_hints(fifoq.StoreKeywords) == store
    seams = {"recover", "files", "clock", "runner"}
    assert set(get_type_hints(fifoq.OpenKeywords)) == queue.keys() | store.keys() | seams


def test_mypy_refuses_options_that_are_none(tmp_path: Path) -> None:
    """Wrong names and values were only seen when the program ran."""
    sample = tmp_path / "options_sample.py"
    sample.write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(sample)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    lines = SAMPLE.splitlines()
    assert found == {n for n, line in enumerate(lines, 1) if "# refused" in line}, done.stdout
