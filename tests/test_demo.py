"""The demonstration runs as a user runs it, and keeps what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLOSING_LINE = "Nothing confirmed was lost, nothing was torn, nothing was invented."


def test_the_demo_kills_a_writer_three_times_and_every_promise_is_kept(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "store_demo.py")],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[-1] == CLOSING_LINE
    assert [line.split(":")[0] for line in lines if line.startswith("Life")] == [
        "Life 1",
        "Life 2",
        "Life 3",
    ]
    assert any(line.endswith("records: sound") for line in lines)
    assert not done.stderr
    assert list(tmp_path.iterdir()) == []
