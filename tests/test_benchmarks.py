"""The benchmarks run, small, and every row is there; how fast they are is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.store import Row

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
    "  more memory",
    "open, backlog of 2,000 in frames of 1000",
    "  more memory",
    "open, 20 queues",
    "  more memory",
]


def test_every_row_is_measured_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--quick", "--json", f"--directory={tmp_path}"],
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
        assert set(row) == {*Row._fields, "met"}
        assert row["value"] >= 0
        assert isinstance(row["met"], bool)
    assert {"file system", "fdatasync of an append", "cores", "python"} <= set(found["place"])
    assert list(tmp_path.iterdir()) == []


def test_a_row_is_met_on_the_right_side_of_its_target() -> None:
    assert Row("", 2.0, "×", 1.0, True, "").met
    assert not Row("", 2.0, "×", 1.0, False, "").met
