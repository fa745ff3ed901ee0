"""The demonstration runs as a user runs it, and keeps what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLOSING_LINE = "Nothing confirmed was lost, nothing was torn, nothing was invented."


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "store_demo.py"), *arguments]


def environment(scratch: Path, encoding: str) -> dict[str, str]:
    settings = {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "PYTHONIOENCODING": encoding}
    return {"PATH": "/usr/bin:/bin", **settings}


@pytest.mark.parametrize(
    ("encoding", "whole", "begun", "absent"), [("utf-8", *"■□·"), ("ascii", *"#o.")]
)
def test_the_demo_kills_a_writer_three_times_and_every_promise_is_kept(
    tmp_path: Path, encoding: str, whole: str, begun: str, absent: str
) -> None:
    done = subprocess.run(
        command(),
        cwd=ROOT,
        env=environment(tmp_path, encoding),
        capture_output=True,
        encoding=encoding,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert all(len(line) < 80 for line in done.stdout.splitlines())
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[-1] == CLOSING_LINE
    lives = [line.split(":")[0] for line in lines if line.startswith("Life")]
    assert lives == ["Life 1", "Life 2", "Life 3"]
    said = [line for line in lines if line.startswith("writer said")]
    found = [line for line in lines if line.startswith("found")]
    assert len(said) == len(found) == 3
    for line in said:
        assert re.search(f"({whole} )+[{whole}{begun}]  ", line)
    for line in found:
        assert re.search(f"({whole} )+[{whole}{absent}]  ", line)
    assert any(line.endswith("records: sound") for line in lines)
    assert not done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_demo_without_a_traceback_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C goes to the demo and to its writer, as a terminal sends it."""
    demo = subprocess.Popen(
        command(),
        cwd=ROOT,
        env={**environment(tmp_path, "utf-8"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    assert demo.stdout is not None
    while not demo.stdout.readline().startswith("Life 1"):
        pass
    os.killpg(demo.pid, signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert output.rstrip().endswith("interrupted; the writer is dead and its files are gone")
    assert not errors
    assert list(tmp_path.iterdir()) == []
    # Every process of the session is gone, so there is nobody left to send anything to.
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, signal.SIGTERM)


def test_help_tells_what_the_demo_does() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, check=True, timeout=60)
    assert "kill -9" in done.stdout
    assert "Exit status" in done.stdout
