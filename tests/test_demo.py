"""The demonstration runs as a user runs it, and keeps what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.demo import _SAID, ACK, ACK_DONE, PRODUCERS, PUT, PUT_DONE, Books

ROOT = Path(__file__).parents[1]
CLOSING_LINE = "Nothing confirmed was lost, nothing came twice, nothing was invented."


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "demo.py"), *arguments]


def environment(scratch: Path, encoding: str) -> dict[str, str]:
    settings = {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "PYTHONIOENCODING": encoding}
    return {"PATH": "/usr/bin:/bin", **settings}


@pytest.mark.parametrize(
    ("encoding", "heights", "end"), [("utf-8", "▁▂▃▄▅▆▇█", "✗"), ("ascii", "_.-=+*#%", "x")]
)
def test_the_demo_kills_a_service_three_times_and_every_promise_is_kept(
    tmp_path: Path, encoding: str, heights: str, end: str
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
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(len(line) < 80 for line in done.stdout.splitlines())
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[-1] == CLOSING_LINE
    lives = [line.split(":")[0] for line in lines if line.startswith("Life")]
    assert lives == ["Life 1", "Life 2", "Life 3"]
    charts = [line.split()[1] for line in lines if line.startswith("confirmed")]
    reopened = [line for line in lines if line.startswith("reopened")]
    cut = [re.findall(r"under way: (\d+)", line) for line in lines if line.startswith("cut short")]
    assert len(charts) == len(reopened) == len(cut) == 3
    assert all(re.fullmatch(f"[{re.escape(heights)}]{{24}}{end}", chart) for chart in charts)
    assert all(line.endswith("every confirmed one once, no acked one") for line in reopened)
    # Otherwise nothing was killed in the middle.
    assert all(1 <= int(puts) <= PRODUCERS and int(acks) <= 1 for puts, acks in cut)
    assert any(line.endswith("records: sound") for line in lines)
    assert any(line.endswith("records; as found") for line in lines)
    assert not done.stderr
    assert list(tmp_path.iterdir()) == []


FIRST, SECOND, THIRD = (1, 0, 1), (1, 0, 2), (1, 0, 3)


def books() -> Books:
    """The first was put and acked, the second put, the third only begun."""
    said = [(PUT, FIRST), (PUT_DONE, FIRST), (ACK, FIRST), (ACK_DONE, FIRST)]
    said += [(PUT, SECOND), (PUT_DONE, SECOND), (PUT, THIRD)]
    kept = Books()
    kept.note(b"".join(_SAID.pack(kind, *name, 0) for kind, name in said))
    return kept


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ([SECOND], []),
        ([SECOND, THIRD], []),
        ([SECOND, SECOND], ["1 records twice"]),
        ([THIRD], ["1 records confirmed, not acked, and gone"]),
        ([FIRST, SECOND], ["1 records acked, and there again"]),
        ([SECOND, (1, 1, 1)], ["1 records never put"]),
        ([THIRD, SECOND], ["1 records out of order"]),
    ],
)
def test_the_demo_would_notice_each_promise_that_is_broken(
    found: list[tuple[int, int, int]], broken: list[str]
) -> None:
    assert books().broken(found) == broken


def test_an_interrupt_ends_the_demo_without_a_traceback_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C goes to the demo and to its service, as a terminal sends it."""
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
    assert output.rstrip().endswith("interrupted; the service is dead and its files are gone")
    assert not errors
    assert list(tmp_path.iterdir()) == []
    # Every process of the session is gone, as soon as the system has buried them.
    deadline = time.monotonic() + 60
    while anybody_left(demo.pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not anybody_left(demo.pid)


def anybody_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_help_tells_what_the_demo_does() -> None:
    done = subprocess.run(command("--help"), capture_output=True, text=True, check=True, timeout=60)
    assert "kill -9" in done.stdout
    assert "Exit status" in done.stdout
