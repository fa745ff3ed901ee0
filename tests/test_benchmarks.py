"""The store's rows run, small, and every one is there; how fast they are is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import store as benchmark
from benchmarks.__main__ import all_rows
from fifoq.bench.measure import Row
from store import open_log

ROOT = Path(__file__).parents[1]
ROWS = [
    "sync commit of 100, of bare append + fdatasync",
    "  zero-fill ahead, of the same without it",
    "commit of 100 without sync",
    "  of a bare write of the same bytes",
    "encode, batches of 1000",
    "decode to a list",
    "scan to (offsets, buffer)",
    "disk bytes per payload byte, 100 × 100",
    "open, backlog of 2,000 in frames of 1",
    "  more memory, first take included",
    "open, backlog of 2,000 in frames of 1000",
    "  more memory, first take included",
    "open, backlog of 2,000 in 20 queues",
    "  more memory, first take included",
]


def test_every_row_is_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--quick", "--json", f"--dir={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["name"] for row in found["rows"]] == ROWS
    for row in found["rows"]:
        assert set(row) == {*Row.__struct_fields__, "met"}
        assert row["value"] >= 0
        assert isinstance(row["met"], bool)
    assert {"file system", "append + fdatasync", "cores", "python"} <= set(found["place"])
    assert list(tmp_path.iterdir()) == []


def test_the_rows_of_the_store_come_before_those_of_the_queue() -> None:
    names = [group.name for group in all_rows()]
    assert names[:4] == ["store-commits", "store-codec", "store-space", "store-opens"]
    assert "put-memory" in names[4:]
    assert len(set(names)) == len(names)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_store_that_could_not_be_filled_is_not_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fill(path: str) -> None:
        raise ValueError(f"no store in {path}")

    with pytest.raises(RuntimeError, match="ended with status 1"):
        benchmark._in_child(fill, str(tmp_path))
    assert "ValueError: no store in" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_many_queues_hold_as_many_records_as_they_say(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    benchmark._in_child(benchmark._many_queues(120, 20), path)
    with open_log(path) as log:
        sizes = [queue.genesis.queue_size for queue in log.state.queues.values()]
    assert sizes == [20] * 120
