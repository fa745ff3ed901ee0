"""The demonstration runs as a user runs it, and would notice every promise that is broken."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from fifoq.demo import command as demo
from fifoq.demo.books import BEGUN, CONFIRMED, HANDLED, OPENED, Books, Name, Row, said
from fifoq.demo.charts import Line, chart, nice, rates, slices, sparkline
from fifoq.demo.service import CLIENTS

ROOT = Path(__file__).parents[1]
CLOSING_LINE = "Nothing confirmed was lost, each is there exactly once, nothing was invented."


def typed(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fifoq.demo", *arguments]


def environment(encoding: str = "utf-8") -> dict[str, str]:
    settings = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    return {"PATH": "/usr/bin:/bin", **settings}


@pytest.mark.parametrize(
    ("encoding", "heights", "kill"), [("utf-8", "▁▂▃▄▅▆▇█", "✗"), ("ascii", "_.-=+*#%", "x")]
)
def test_the_service_is_killed_in_the_middle_and_every_promise_is_kept(
    tmp_path: Path, encoding: str, heights: str, kill: str
) -> None:
    report = tmp_path / "report.html"
    done = subprocess.run(
        typed("--no-spark", "--seconds", "0.5", "--report", str(report)),
        cwd=tmp_path,
        env=environment(encoding),
        capture_output=True,
        encoding=encoding,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[-2:] == [CLOSING_LINE, f"Report with charts: {report}"]
    assert all(len(line) < 80 for line in lines[:-1])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    charts = [line.split()[1] for line in lines if line.startswith(("confirmed", "handled"))]
    assert len(charts) == 2
    for drawn in charts:
        assert re.fullmatch(f"[{re.escape(heights)}{kill}]{{30}}", drawn)
        assert drawn.count(kill) == 1
    (cut,) = re.findall(r"with (\d+) puts under way; opened again in \d+ ms", done.stdout)
    assert 0 <= int(cut) <= CLIENTS
    assert len([line for line in lines if line.endswith(" kept")]) == 8
    page = report.read_text()
    assert page.count("<svg") == 4
    assert page.count('class="kept"') == 8
    for drawing in re.findall(r"<svg.*?</svg>", page):
        xml.fromstring(drawing)
    assert not re.search(r"(src|href)=", page), "the page needs nothing but itself"


def test_the_verb_gives_the_figures_to_scripts_and_nothing_else(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fifoq.cli", "demo", "--no-spark", "--json"),
            *("--seconds", "0.3", "--report", str(report)),
        ],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["kept"]
    assert not any(found["promises"].values())
    assert found["rows"] >= found["confirmed"] > 0
    assert (found["spark"], len(found["kills"]), len(found["open_seconds"])) == (False, 1, 2)
    assert report.is_file()


def test_an_interrupt_ends_the_demo_without_a_traceback_and_leaves_nothing(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        typed("--no-spark", "--report", str(tmp_path / "report.html")),
        cwd=tmp_path,
        env={**environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    assert demo.stdout is not None
    while "has opened the store" not in demo.stdout.readline():
        pass
    service = children_of(demo.pid)
    assert service
    os.killpg(demo.pid, signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert output.rstrip().endswith("interrupted; the service is dead and its files are gone")
    assert not errors
    assert list(tmp_path.iterdir()) == []
    # The service is gone, as soon as the system has buried it.
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in service) and time.monotonic() < deadline:
        os.sched_yield()
    assert not any(Path(f"/proc/{pid}").exists() for pid in service)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("name", ["service", "spark"])
def test_a_process_that_ends_by_itself_is_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may be that of Spark, on a machine that has too much to do."""
    dies = tmp_path / "python"
    dies.write_text(
        f"#!/bin/sh\n[ $2 = fifoq.demo.{name} ] || exec sleep 60\n"
        "printf 'Traceback:\\nstore.DiskFull: no\\nStreamError: broken\\nmore\\n' >&2; exit 1\n"
    )
    dies.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dies))
    monkeypatch.setattr(demo, "_missing", lambda: None)
    work = tmp_path / "work"
    work.mkdir()
    assert demo.demonstrate(report=work / "report.html", spark=name == "spark") == 1
    log = work / "report.log"
    again = "Run it again, or without Spark: --no-spark." if name == "spark" else "Run it again."
    assert capfd.readouterr().err == (
        f"fifoq demo: the process of {name} ended by itself: StreamError: broken. "
        f"All that it said is in {log}. {again}\n"
    )
    assert log.read_text().endswith("more\n")
    assert list(work.iterdir()) == [log]


def test_a_service_that_nobody_listens_to_ends(tmp_path: Path) -> None:
    """The demonstration may be killed itself: nothing of it stays behind and works."""
    command = [sys.executable, "-m", "fifoq.demo.service", str(tmp_path / "store"), "1"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert service.stdout.read(1)
        service.stdout.close()
        try:
            assert service.wait(timeout=60) == -signal.SIGPIPE
        finally:
            service.kill()


def test_a_picture_holds_no_frame_of_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken in a terminal it was a hundred times as large, with every frame below the other."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert demo.console_for(picture=False, as_json=False).is_terminal
    assert not demo.console_for(picture=True, as_json=False).is_terminal


def test_help_tells_what_the_demo_does() -> None:
    done = subprocess.run(typed("--help"), capture_output=True, text=True, check=True, timeout=60)
    assert "SIGKILL" in done.stdout
    assert "Exit status" in done.stdout


def test_without_java_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Under this name the package has the function.
    session = importlib.import_module("fifoq.spark.session")

    class Ran(Exception):
        pass

    def refuse(*_: object, spark: bool, **__: object) -> None:
        assert not spark
        raise Ran

    monkeypatch.setattr(session, "_homes", lambda: iter(()))
    monkeypatch.setattr(demo, "Run", refuse)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Ran):
            demo.main(["--report", str(tmp_path / "report.html")])
    finally:
        signal.signal(signal.SIGTERM, before)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("Without Spark: Spark needs Java 17 or newer and none was found")
    assert len(told) == 2


FIRST, SECOND, THIRD = (1, 0, 1), (1, 0, 2), (1, 0, 3)
A, B, C = Row(FIRST, 0, 5, 5), Row(SECOND, 0, 7, 12), Row(THIRD, 0, 1, 13)


def kept_books() -> Books:
    """The first two were confirmed, the third only begun; all of it came cut in pieces."""
    lines: list[tuple[bytes, Name]] = [(OPENED, (1, 0, 2000)), (BEGUN, FIRST), (CONFIRMED, FIRST)]
    lines += [(HANDLED, FIRST), (BEGUN, SECOND), (CONFIRMED, SECOND), (BEGUN, THIRD)]
    data = b"".join(said(kind, name, 1_000) for kind, name in lines)
    books = Books()
    for start in range(0, len(data), 5):
        books.note(data[start : start + 5])
    books.note(b"P")
    books.note_kill(2_000)
    return books


@pytest.mark.parametrize(
    ("rows", "balance", "broken"),
    [
        ([A, B], 12, []),
        ([A, B, C], 13, []),
        ([A], 5, ["every confirmed order is in the table"]),
        (
            [A, B, B],
            19,
            [
                "none is there twice",
                "each balance in the table follows from the one before",
            ],
        ),
        ([A, B, Row((1, 1, 1), 0, 1, 13)], 13, ["none was invented"]),
        (
            [Row(SECOND, 0, 7, 7), Row(FIRST, 0, 5, 12)],
            12,
            ["each client's orders are in their order"],
        ),
        (
            [A, B._replace(balance=11)],
            12,
            ["each balance in the table follows from the one before"],
        ),
        ([A, B], 13, ["the actors' balances are the sums of the table"]),
    ],
)
def test_the_demo_would_notice_each_promise_that_is_broken(
    rows: list[Row], balance: int, broken: list[str]
) -> None:
    promises = kept_books().promises(rows, {0: balance})
    assert [text for text, count in promises if count] == broken
    assert len(promises) == 6


def test_the_books_know_what_a_kill_cut_short() -> None:
    books = kept_books()
    assert books.kills == [(2_000, 1)]
    assert books.opened == [0.002]
    assert books.handled == 1
    assert len(books.confirmed) == 2


def test_charts_show_what_they_are_given() -> None:
    assert sparkline([0, 1, 8], "abcdefgh") == "abh"
    assert sparkline([0, 0], "abc") == "aa"
    assert slices([(0.0, 2.0), (0.4, 4.0), (1.0, 8.0)], 2, 1.0) == [3.0, 8.0]
    assert rates([(0.0, 0.0), (0.5, 10.0), (1.0, 40.0)], 0.5) == [(0.0, 0), (0.5, 20), (1.0, 60)]
    assert [nice(value) for value in (0, 0.3, 1, 3, 97, 3_100)] == [1.0, 0.4, 1, 4, 100, 4_000]
    drawn = chart("A <b>", "unit", [Line("one", "red", [(0, 0), (2, 4)])], [(1, "kill")])
    assert "A &lt;b&gt;" in drawn
    svg = xml.fromstring(drawn[drawn.index("<svg") : drawn.index("</svg>") + 6])
    assert svg.find("polyline") is not None
    assert [text.text for text in svg.iter("text") if text.get("class") == "mark"] == ["kill"]
