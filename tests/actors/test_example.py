"""The example runs as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_says_what_happened_and_loses_no_line_of_the_audit() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/actors_in_memory.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "audit, 3 lines, closed by full: +10, +20, +30",
        "left after a withdrawal: 45",
        "refused: 1000 is more than 45",
        "balance: 45",
        "<Ref 'alice' depth=0 running>",
        "audit, 1 lines, closed by drain: -15",
        "<ActorSystem actors=0 stopped>",
    ]
    assert not done.stderr
