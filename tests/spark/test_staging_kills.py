"""Drivers killed at random moments: the table holds every record once, and the log is freed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pyarrow.parquet
import pytest

from tests.support.figures import record

COUNT = 200_000
COUNT_EACH = 60_000
"""With more kills there are more records: every life must have something left to do."""
LIFE_SECONDS_MAX = 240.0
SEED = 4


class Driver:
    """A stager in a process group of its own."""

    def __init__(self, root: Path, count: int) -> None:
        with (root / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stager", str(root), str(count)],
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._seen = b""

    def wait_for(self, word: str, count: int = 1, seconds: float = LIFE_SECONDS_MAX) -> str:
        """The line that begins so for the `count`th time."""
        deadline = time.monotonic() + seconds
        assert self.process.stdout is not None
        while True:
            lines = [line for line in self._seen.decode().splitlines() if line.startswith(word)]
            if len(lines) >= count:
                return lines[count - 1]
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, left))
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert more, f"no {word!r} in {self._seen!r}; ended: {self.process.poll()}"
            self._seen += more

    def kill(self, *, group: bool) -> None:
        """End it at once: with its Java, or alone, so that Java lives on for a moment."""
        if group:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.deep)])
def test_a_killed_driver_loses_and_doubles_nothing(java: None, tmp_path: Path, kills: int) -> None:
    random = Random(SEED)
    count = max(COUNT, kills * COUNT_EACH)
    moments = []
    for life in range(kills):
        driver = Driver(tmp_path, count)
        started = driver.wait_for("ready")
        # While the first drain is begun, or while the next one after a few runs, is committed, or
        # is removed: at a moment that nobody chose.
        drains = random.choice((0, 1, 1, 2)) if life else 1
        if drains:
            driver.wait_for("drained", drains)
        pause = random.uniform(0.0, 4.0)
        time.sleep(pause)
        assert driver.process.poll() is None, "it was done before it was killed"
        driver.kill(group=bool(life % 2))
        moments.append((started, drains, round(pause, 2)))
    last = Driver(tmp_path, count)
    last.wait_for("done", seconds=2 * LIFE_SECONDS_MAX)
    assert last.process.wait() == 0
    assert last.process.stdout is not None
    last.process.stdout.close()

    table = pyarrow.parquet.read_table(tmp_path / "found.parquet")
    files, counters, numbers = (
        table.column(name).to_pylist() for name in ("file", "counter", "number")
    )
    assert sorted(numbers) == list(range(count)), moments
    assert len(set(counters)) == count, moments
    # In order within each file, and numbers in the order of their counters.
    seen: dict[str, tuple[int, int]] = {}
    for file, counter, number in zip(files, counters, numbers, strict=True):
        assert seen.get(file, (0, -1)) < (counter, number), moments
        assert seen.get(file, (0, -1))[1] < number
        seen[file] = (counter, number)
    segments = list((tmp_path / "store").glob("*.log"))
    assert len(segments) <= 2, "what the checkpoint proves is freed"
    record("staging drivers killed", kills=kills, records=count, files=len(seen))
