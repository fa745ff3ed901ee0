"""`fifoq top`: rates from snapshots, a frame for every terminal, and one real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from rich.console import Console

from fifoq.cli.rates import HISTORY_MAX, History, sparkline
from fifoq.cli.top_view import frame
from fifoq.cli.watching import Snapshot
from fifoq.stats import QueueStats
from fifoq.view import ReadOnlyStats
from tests.cli.conftest import Live
from tests.cli.support import PATIENCE_SECONDS, command, environment, here

SECOND = 10**9


def stats(name: str, *, put: int = 0, taken: int = 0) -> ReadOnlyStats:
    return ReadOnlyStats(
        name=name,
        current_size=put - taken,
        high_water_mark=put,
        high_water_time=1,
        low_water_mark=0,
        low_water_time=1,
        last_put_time=1,
        last_take_time=1,
        total_put_count=put,
        total_take_count=taken,
        average_delay=None,
        bytes=100 * (put - taken),
        segments=1,
    )


def snapshot(seconds: float, *queues: ReadOnlyStats) -> Snapshot:
    by_name: dict[str, QueueStats | ReadOnlyStats] = {queue.name: queue for queue in queues}
    return Snapshot(path="store", time=int(seconds * SECOND), process=None, queues=by_name)


def drawn(history: History, width: int, height: int = 40, *, plain: bool = False) -> list[str]:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(frame(history, width=width, height=height, plain=plain))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_rates_are_what_came_between_two_looks() -> None:
    history = History()
    history.add(snapshot(10, stats("a", put=100)))
    assert (history.queues[0].put_rate, history.put_rate) == (None, 0.0)
    history.add(snapshot(12, stats("a", put=140, taken=10), stats("b", put=5)))
    assert [(q.put_rate, q.take_rate) for q in history.queues] == [(20.0, 5.0), (None, None)]
    assert (history.put_rate, history.take_rate) == (20.0, 5.0)
    assert list(history.sizes("a")) == [100.0, 130.0]
    # The owner was asked before and has gone: its files know less.
    history.add(snapshot(13, stats("a", put=139, taken=10)))
    assert history.queues[0].put_rate == 0.0
    assert list(history.sizes("b")) == []


def test_history_is_bounded() -> None:
    history = History()
    for second in range(HISTORY_MAX + 10):
        history.add(snapshot(second, stats("a", put=second)))
    assert len(history.sizes("a")) == len(history.puts()) == HISTORY_MAX


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([0, 0], "▁▁"), ([0, 1, 50, 100], "▁▂▅█"), ([5], "█"), ([1, 2, 3, 9], "▃█")],
)
def test_a_sparkline_ends_with_the_newest_value(values: list[float], shown: str) -> None:
    assert sparkline(values, 4 if len(shown) > 2 else 2) == shown


def test_a_sparkline_without_unicode() -> None:
    assert sparkline([0, 50, 100], 10, plain=True) == "_+%"
    assert sparkline([1], 0) == ""


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 300])
def test_a_frame_fits_any_terminal_and_keeps_what_matters_most(width: int) -> None:
    history = History()
    history.add(snapshot(1, stats("orders", put=10)))
    history.add(snapshot(2, stats("orders", put=1_234_567, taken=5)))
    lines = drawn(history, width)
    assert max(map(len, lines)) <= width
    if width >= 80:
        head = next(line for line in lines if line.startswith("queue"))
        assert {"size", "put/s", "take/s", "p99", "pressure"} <= set(head.split())
        row = next(line for line in lines if line.startswith("orders"))
        assert "1,234,562" in row
        assert row.endswith("▂█")


def test_of_too_many_queues_the_busiest_are_shown() -> None:
    history = History()
    history.add(snapshot(1, *(stats(f"q{n:02}", put=1) for n in range(30))))
    history.add(snapshot(2, *(stats(f"q{n:02}", put=1 + n) for n in range(30))))
    lines = drawn(history, 100, height=10)
    assert len(lines) <= 10
    assert [line.split()[0] for line in lines if line.startswith("q") and line[1].isdigit()] == [
        *("q25", "q26", "q27", "q28", "q29")
    ]
    assert lines[-1] == "and 25 queues more that do less"


def test_in_a_pipe_there_are_frames_or_objects(live: Live) -> None:
    live.do("put main x")
    first, second = here("top", live.path, "-n", "2", "-i", "0.1", "--json").lines
    assert json.loads(first)["queues"][0]["put_rate"] is None
    assert json.loads(second)["queues"][0]["put_rate"] == 0.0
    lines = here("top", live.path, "-n", "1", "-q", "main").lines
    assert f"owned by process {live.process.process.pid}" in lines[0]
    assert len([line for line in lines if line.startswith("main")]) == 1
    assert not [line for line in lines if line.startswith("orders")]
    here("top", live.path / "none", status=3)
    mistyped = here("top", live.path, "-n", "1", "-q", "mian", status=3)
    assert mistyped.err.startswith("fifoq: there is no queue 'mian'. Nothing was changed. There")
    assert mistyped.out == b""


def test_in_a_terminal_it_draws_until_q_and_leaves_it_as_it_was(live: Live) -> None:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    before = termios.tcgetattr(theirs)
    variables = environment(TERM="xterm-256color", LANG="C.UTF-8")
    top = subprocess.Popen(
        command("top", live.path, "-i", "0.1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
    )
    shown = b""
    try:
        shown = read_until(terminal, lambda text: text.count(b"orders") >= 2)
        os.write(terminal, b"q")
        assert top.wait(PATIENCE_SECONDS) == 0
        shown += read_until(terminal, lambda text: b"\x1b[?1049l" in text)
    finally:
        top.kill()
        top.wait()
        after = termios.tcgetattr(theirs)
        os.close(theirs)
        os.close(terminal)
    assert b"\x1b[?1049h" in shown
    assert re.search("owned by process [0-9]+", shown.decode())
    assert after == before


def read_until(descriptor: int, enough: object) -> bytes:
    assert callable(enough)
    text = b""
    while not enough(text):
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_SECONDS)
        assert ready, text
        text += os.read(descriptor, 65536)
    return text


def test_nothing_is_drawn_of_a_store_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no store here" in here("top", tmp_path, status=3).err
