"""The benchmark: every row runs, small, and verdicts follow from figures; speed is not judged."""

from __future__ import annotations

import asyncio
import importlib.metadata
import io
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fifoq import cli
from fifoq.bench.backlog import copy_store
from fifoq.bench.command import command
from fifoq.bench.machine import mounted, peak_megabytes, place, wake_ups
from fifoq.bench.measure import (
    Absent,
    Compared,
    Group,
    Row,
    Setting,
    alternate,
    duration,
    percentile,
    rate,
    ratio_row,
)
from fifoq.bench.peer import Peer
from fifoq.bench.peers import PEERS, RATES, PeerResult, is_installed, measure_peer
from fifoq.bench.progress import steps
from fifoq.bench.report import TARGET_CELL, Report, as_json, bar, print_table
from fifoq.bench.rows import GROUPS
from fifoq.bench.yardsticks import SqliteQueue, bare_append, open_sqlite, take_first

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/bench.md").read_text()
ROWS = {
    "put-memory": ["put, memory"],
    "take-memory": ["take of a backlog, memory"],
    "put-then-take": ["all puts, then all takes, memory"],
    "pipe": ["producer and consumer, memory"],
    "put-many-memory": ["put_many of 100, memory"],
    "put-many-os": ["put_many of 100 from 8 tasks, os"],
    "put-many-sync": ["put_many of 100, sync"],
    "busy-loop": [
        "sync put, loop busy in turns of 0.2 ms: p99",
        "sync put, loop busy in turns of 1 ms: p99",
    ],
    "one-sync": ["one producer, sync", "  p50 of one put"],
    "64-sync": ["64 producers, sync", "  of the limit"],
    "lease-ack": ["lease + ack, memory"],
    "64-lease": ["64 consumers, lease + ack, sync"],
    "delayed": ["delayed record, put", "delayed record, memory"],
    "put-nowait": ["put_nowait"],
    "staging-put": ["staging buffer: put, memory", "  put_many of 100, sync"],
    "actor-tell": ["actor tell → handled, in memory", "  of pykka"],
    "actor-ask": ["actor ask → reply, in memory"],
    "durable-actors": ["durable actors, sync: tell → handled", "  messages for each sync"],
    "durable-spawn": ["durable actors spawned"],
    "durable-idle": ["20 idle durable actors"],
    "disk-bytes": ["disk bytes per payload byte, put_many"],
    "compression": [
        "compression, zlib: bytes on disk",
        "  put_many of 100 from 8 tasks, os",
        "compression, zstd: bytes on disk",
        "  put_many of 100 from 8 tasks, os",
    ],
    "open-backlog": [
        "open, backlog of 2,000",
        "  more memory, first take included",
        "open, backlog of 20,000",
        "  more memory, first take included",
    ],
    "idle": ["idle queue: wake-ups in a second", "  CPU in a second"],
    "import": ["import fifoq"],
}
MET = Row("a", 2.0, "×", 1.0, True)
MISSED = Row("b", 2.0, "×", 1.0, False)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, rounds=1, quick=True)


# Those of Spark run with the other tests of its session.
HERE = [group for group in GROUPS if not group.name.startswith("spark-")]


@pytest.mark.parametrize("group", HERE, ids=lambda group: group.name)
def test_every_row_runs_small_and_leaves_nothing_behind(group: Group, setting: Setting) -> None:
    found = group.run(setting)
    measured = [row for row in found if isinstance(row, Row)]
    assert [row.name for row in measured] == ROWS[group.name][: len(measured)]
    # Only what other people's packages are needed for may be missing.
    assert len(found) == len(ROWS[group.name])
    assert [row.why for row in found if isinstance(row, Absent)] in (
        [],
        ["pip install pykka"],
        ["pip install 'fifoq[spark]'"],
    )
    for row in measured:
        # Wake-ups are counted against another queue's, and may be fewer.
        assert row.value >= 0 or row.unit == "more"
        assert row.target > 0
        assert row.figures
    assert list(setting.scratch.iterdir()) == []


def test_every_row_is_explained_on_the_page_and_nothing_else_is() -> None:
    rows = PAGE.partition("\n## Rows\n")[2]
    names = [line.split("`")[1] for line in rows.splitlines() if line.startswith("| `")]
    assert names == [group.name for group in GROUPS]


@given(
    value=st.floats(min_value=0, max_value=1e9),
    target=st.floats(min_value=1e-3, max_value=1e6),
    more=st.booleans(),
)
def test_a_bar_comes_up_to_the_mark_exactly_when_the_target_is_met(
    value: float, target: float, more: bool
) -> None:
    row = Row("a", value, "×", target, more)
    assert row.met == (value >= target if more else value <= target)
    before, after = bar(row).split("│")
    assert (before == "█" * TARGET_CELL) == row.met
    assert "█" in before
    assert row.met or "█" not in after


def test_a_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_the_medians() -> None:
    compared = Compared([1.0, 2.0, 4.0], [1.0, 1.0, 8.0])
    row = ratio_row("a", compared, count=10, target=1.0, yardstick="bare")
    assert row.value == 1.0
    assert row.figures == {"per_second": 5.0, "yardstick_per_second": 10.0}
    assert row.detail == "5 /s against 10 /s (bare)"


def test_the_two_sides_take_turns(tmp_path: Path) -> None:
    order = []

    async def side(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    setting = Setting(tmp_path, rounds=3)
    compared = asyncio.run(alternate(setting, partial(side, "a", 1.0), partial(side, "b", 2.0)))
    assert order == ["a", "b"] * 3
    assert compared == Compared([1.0] * 3, [2.0] * 3)


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 2.0), (75, 3.0), (99, 4.0), (100, 4.0), (0, 1.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == value


def test_figures_are_said_with_three_digits_and_a_unit() -> None:
    assert [rate(value) for value in (12.34, 12345, 1234567)] == ["12.3 /s", "12.3 k/s", "1.23 M/s"]
    found = [duration(seconds) for seconds in (2, 0.0123456, 0.000123456, 1.5e-7)]
    assert found == ["2 s", "12.3 ms", "123 µs", "150 ns"]


def group_of(row: Row) -> Group:
    return Group(row.name, lambda _: [row])


def command_line(groups: Sequence[Group], *arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(command(lambda: groups))
    done = CliRunner().invoke(app, arguments)
    # Errors come in a frame, broken at its width.
    return done.exit_code, done.stdout, " ".join(done.stderr.replace("│", "").split())


@pytest.mark.parametrize(
    ("row", "arguments", "status"),
    [(MET, ["--strict"], 0), (MISSED, ["--strict"], 1), (MISSED, [], 0)],
)
def test_a_missed_target_is_the_exit_status_only_where_that_is_asked_for(
    row: Row, arguments: list[str], status: int, tmp_path: Path
) -> None:
    found = command_line([group_of(row)], "--quick", f"--dir={tmp_path}", *arguments)
    assert found[0] == status
    assert ("MISSED" in found[1]) == (row is MISSED)
    assert list(tmp_path.iterdir()) == []


def test_only_the_rows_that_are_named_run(tmp_path: Path) -> None:
    groups = [group_of(Row(name, 1, "×", 1, True)) for name in "abc"]
    arguments = ["--quick", "--json", f"--dir={tmp_path}"]
    status, output, _ = command_line(groups, *arguments, "--rows", "c,a")
    assert status == 0
    assert [row["group"] for row in json.loads(output)["rows"]] == ["a", "c"]
    status, output, errors = command_line(groups, *arguments, "--rows", "a", "--rows", "d")
    assert (status, output) == (2, "")
    assert "no row is called d" in errors


def test_scripts_get_json_alone_on_stdout_and_nothing_on_stderr(tmp_path: Path) -> None:
    arguments = ["bench", "--quick", "--json", "--rows", "put-nowait", f"--dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "fifoq.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert set(found) == {"place", "rows", "absent", "peers"}
    (row,) = found["rows"]
    assert set(row) == {*Row.__struct_fields__, "met"}
    assert row["met"] == (row["value"] >= row["target"])
    assert done.stderr == ""


def test_the_version_is_that_of_the_installed_package() -> None:
    done = CliRunner().invoke(cli.app, ["version"])
    assert done.stdout == f"{importlib.metadata.version('fifoq')}\n"


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    status, _, errors = command_line([], f"--dir={tmp_path / 'missing'}")
    assert status == 2
    assert "does not exist" in errors


def test_the_module_has_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fifoq.bench", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "--strict" in done.stdout


def test_importing_fifoq_loads_neither_the_benchmark_nor_the_command_line() -> None:
    code = "import sys, fifoq; print([m for m in sys.modules if m in %r])"
    wanted = ("fifoq.bench", "fifoq.cli", "typer", "rich")
    done = subprocess.run(
        [sys.executable, "-c", code % (wanted,)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


def report(**changes: object) -> Report:
    peer = PeerResult("other", {"put": 1500.0}, "nothing", "everything")
    fields = {
        "place": {"disk": "vda"},
        "rows": [MET, MISSED],
        "absent": [Absent("third", "pip install third")],
        "peers": [peer],
    }
    return Report(**(fields | changes))  # type: ignore[arg-type]


def test_the_table_says_verdicts_peers_what_is_absent_and_the_place() -> None:
    stream = io.StringIO()
    print_table(report(), stream)
    text = stream.getvalue()
    assert "2 rows" not in text
    for part in (
        *("met     a", "MISSED  b", "2.00 ×", "≥ 1", "≤ 1", "1.5 k/s", "everything"),
        *("absent: third (pip install third)", "disk: vda", "1 rows met their target, 1 missed"),
    ):
        assert part in text, part


@pytest.mark.parametrize("columns", [80, 139, 140, 200])
def test_a_narrow_terminal_gets_figures_below_the_name_rather_than_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    print_table(report(rows=[Row("put", 1.0, "×", 1.0, True, "1 M/s against 2 M/s")]), stream)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    (line,) = [line for line in lines if line.startswith("met")]
    assert ("1 M/s against 2 M/s" in line) == (columns >= 140)
    assert any("1 M/s against 2 M/s" in line for line in lines)
    assert max(map(len, lines)) <= columns


def test_json_holds_the_verdict_of_each_row() -> None:
    found = json.loads(as_json(report()))
    assert [row["met"] for row in found["rows"]] == [True, False]
    assert found["absent"] == [{"name": "third", "why": "pip install third"}]
    assert found["peers"][0]["rates"] == {"put": 1500.0}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_shown_on_a_terminal_only(
    stream: io.StringIO, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(steps(["first", "second"], str)) == ["first", "second"]
    assert ("second" in stream.getvalue()) == shown
    assert shown or stream.getvalue() == ""


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_is_measured_where_it_is_installed_and_told_absent_elsewhere(
    peer: Peer, setting: Setting
) -> None:
    found = measure_peer(peer, setting)
    if is_installed(peer):
        assert isinstance(found, PeerResult), found
        assert {"put", "take"} <= set(found.rates) <= set(RATES)
        assert all(per_second > 0 for per_second in found.rates.values())
        assert ("synced" in found.rates) <= found.lost_on_power_cut.startswith("nothing")
    else:
        assert found == Absent(peer.name, peer.install)
        assert "pip install" in peer.install
    assert list(setting.scratch.iterdir()) == []


def test_a_peer_that_fails_is_told_absent_with_its_error(setting: Setting) -> None:
    def measure(path: Path, setting: Setting) -> dict[str, float]:
        (path / "left").touch()
        raise ValueError("no such option")

    found = measure_peer(Peer("other", measure, "", ""), setting)
    assert found == Absent("other", "failed: ValueError('no such option')")
    assert list(setting.scratch.iterdir()) == []


def test_a_peer_without_its_program_is_absent() -> None:
    peer = Peer("other", lambda *_: {}, "", "", modules=("json",), programs=("no-such-program",))
    assert not is_installed(peer)
    assert is_installed(peer._replace(programs=()))
    assert not is_installed(peer._replace(modules=("no_such_module",), programs=()))


def test_the_sqlite_yardstick_commits_what_waits_together_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"

    async def put_all() -> None:
        queue = SqliteQueue(path)
        await asyncio.gather(*(queue.put(b"%d" % number) for number in range(64)))
        await queue.put_many([b"a", b"b"])
        await queue.close()

    asyncio.run(put_all())
    connection = open_sqlite(path)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    found = [take_first(connection) for _ in range(67)]
    assert found == [*(b"%d" % number for number in range(64)), b"a", b"b", None]
    connection.close()


def test_the_sqlite_yardstick_tells_its_tasks_what_went_wrong(tmp_path: Path) -> None:
    async def put_wrong_and_right() -> None:
        queue = SqliteQueue(tmp_path / "queue.db")
        with pytest.raises(sqlite3.Error, match="NOT NULL"):
            await queue.put_many([b"a", None])  # type: ignore[list-item]
        await queue.put(b"b")
        await queue.close()

    asyncio.run(put_wrong_and_right())
    connection = open_sqlite(tmp_path / "queue.db")
    assert [take_first(connection), take_first(connection)] == [b"b", None]
    connection.close()


def test_the_bare_yardstick_appends_every_piece(tmp_path: Path) -> None:
    path = tmp_path / "bare"
    assert len(bare_append(path, b"abc", 5, sync=True)) == 5
    assert path.read_bytes() == b"abc" * 5


def test_a_copy_of_a_store_shares_sealed_segments_and_no_other_file(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    for name in ("1.log", "1.idx", "2.log", "checkpoint.a"):
        (original / name).write_text(name)
    copy_store(original, copy)
    shared = {file.name: file.samefile(original / file.name) for file in copy.iterdir()}
    assert shared == {"1.log": True, "1.idx": False, "2.log": False, "checkpoint.a": False}
    assert (copy / "2.log").read_text() == "2.log"


def test_the_place_is_told_in_full(setting: Setting) -> None:
    found = place(setting)
    assert {"disk", "file system", "append + fdatasync", "loop", "python", "kernel"} <= set(found)
    assert all(found.values())
    assert list(setting.scratch.iterdir()) == []
    assert mounted(Path("/proc/self"))[0] == "proc"


def test_the_process_knows_what_it_used() -> None:
    before = peak_megabytes()
    kept = bytearray(64 << 20)
    kept[::4096] = b"x" * len(kept[::4096])
    assert peak_megabytes() >= before
    assert peak_megabytes() > 64
    assert wake_ups() > 0
