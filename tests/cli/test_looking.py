"""Verbs that look: what they print of a free store, and that a live one is not disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

import fifoq.sync
from fifoq.cli import access
from tests.cli.conftest import Live
from tests.cli.support import PATIENCE_SECONDS, command, environment, here
from tests.cli.support import fifoq as run


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Five records, two of them taken, a cursor behind, dead letters, a typed queue."""
    with fifoq.sync.open_store(tmp_path) as store:
        queue = store.queue("main", max_retries=0, retention="all")
        queue.cursor("audit")
        queue.put_many([b"1", b"2"], headers={"trace": "7"})
        queue.put_many([b"3", b"\xff\x1b[2J", b"5"])
        assert queue.take_many(2) == [b"1", b"2"]
        letters = store.queue("work")
        letters.put(b"poison", headers={"trace": "8"})
        letters.lease().reject("cannot read it", error=ValueError("bad"))
        typed = store.queue("typed", type=dict[str, int])
        typed.put({"a": 1})
        typed.schedule("daily", {"b": 2}, every=86400)
    return tmp_path


def test_peek_shows_what_take_would_give_and_changes_nothing(filled: Path) -> None:
    assert here("peek", filled).out == b"3\n"
    assert here("peek", filled, "-n", "9").out == b"3\n\xff\x1b[2J\n5\n"
    assert here("peek", filled, "-n", "9", "--from", "5", "--null").out == b"5\0"
    assert here("peek", filled, "-q", "typed").out == b'{"a":1}\n'
    assert here("peek", filled, "-q", "typed", "--raw").out == b"\x81\xa1a\x01\n"
    (line,) = here("peek", filled, "--long").lines
    assert line.split("  ")[0] == "3"
    assert line.endswith("1 B  3")
    lines = here("peek", filled, "-n", "3", "--json").lines
    assert [json.loads(line).get("base64") for line in lines] == [None, "/xtbMko=", None]
    assert "nothing to show" in here("peek", filled, "--from", "6", status=3).err


def test_tail_shows_the_newest_taken_or_not(filled: Path) -> None:
    assert here("tail", filled, "-n", "2").out == b"\xff\x1b[2J\n5\n"
    assert here("tail", filled).out == b"1\n2\n3\n\xff\x1b[2J\n5\n"
    assert here("tail", filled, "-n", "0").out == b""
    first = json.loads(here("tail", filled, "--json").lines[0])
    assert first["headers"] == {"trace": "7"}


def test_tail_follows_a_live_store_and_ends_when_nobody_reads(live: Live) -> None:
    live.do("put followed first")
    tail = subprocess.Popen(
        command("tail", live.path, "-f", "-q", "followed"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == b"first\n"
        live.do("put followed second")
        live.do("take followed")
        assert tail.stdout.readline() == b"second\n"
        tail.stdout.close()
        while tail.poll() is None:
            live.do("put followed more")
        assert (tail.wait(PATIENCE_SECONDS), tail.stderr.read()) == (141, b"")


def test_tail_waits_for_a_queue_that_is_not_there_yet_and_says_so(live: Live) -> None:
    live.do("put main x")
    tail = subprocess.Popen(
        command("tail", live.path, "-f", "-q", "yet"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        said = tail.stderr.readline().decode()
        assert said.startswith("fifoq: there is no queue 'yet'. Nothing was changed. There are: ")
        assert said.endswith(". It is waited for.\n")
        live.do("put yet first")
        assert tail.stdout.readline() == b"first\n"
        tail.send_signal(signal.SIGINT)
        assert (tail.wait(PATIENCE_SECONDS), tail.stderr.read()) == (130, b"")


def test_stats_of_a_free_store_come_from_its_files(filled: Path) -> None:
    title, head, *rows = here("stats", filled).lines
    assert title == f"{filled}: 4 queues, 1 segment, read from its files"
    assert head.split()[:3] == ["queue", "size", "leased"]
    assert [row.split()[:2] for row in rows] == [
        ["main", "3"],
        ["typed", "1"],
        ["work", "0"],
        ["work.dlq", "1"],
    ]
    one = here("stats", filled, "-q", "main").lines
    assert ["total_take_count", "2"] in [line.split() for line in one]
    told = here("stats", filled, "--json").json
    assert (told["owner"], told["queues"][0]["high_water_mark"]) == (None, 5)
    assert "no queue 'none'" in here("stats", filled, "-q", "none", status=3).err


def test_stats_of_a_live_store_come_from_its_owner_unless_it_is_stuck(live: Live) -> None:
    live.do("put main x")
    told = here("stats", live.path, "-q", "main", "--json").json
    assert told["owner"] == live.process.process.pid
    assert told["queues"][0]["ready"] >= 1
    assert told["queues"][0]["writer"]
    os.kill(live.process.process.pid, signal.SIGSTOP)
    try:
        stuck = here("stats", live.path, "-q", "main", "--json").json
    finally:
        os.kill(live.process.process.pid, signal.SIGCONT)
    assert stuck["owner"] is None
    assert stuck["queues"][0]["total_put_count"] == told["queues"][0]["total_put_count"]


def test_an_owner_that_is_stuck_is_not_waited_for_for_ever(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue makes whoever puts wait, so a put had no limit; a stopped owner was no end."""
    monkeypatch.setattr(access, "BUSY_SECONDS", 0.3)
    os.kill(live.process.process.pid, signal.SIGSTOP)
    try:
        said = here("put", live.path, "x", status=5).err
    finally:
        os.kill(live.process.process.pid, signal.SIGCONT)
    assert "does not answer. Nothing was changed" in said


def test_queues_are_names_for_scripts_and_a_table_for_people(filled: Path) -> None:
    names = here("queues", filled).lines
    assert {"main", "typed", "work", "work.dlq"} <= set(names)
    assert names == sorted(names)
    assert [row.split()[0] for row in here("queues", filled, "--long").lines[1:]] == names
    assert {q["name"]: q["size"] for q in here("queues", filled, "--json").json}["main"] == 3


def test_cursors_and_how_far_they_are_behind(filled: Path) -> None:
    (told,) = here("cursors", filled, "--json").json
    assert (told["queue"], told["name"], told["counter"], told["lag"]) == ("main", "audit", 1, 5)
    assert here("cursors", filled).lines[1].split()[:5] == ["main", "audit", "cursor", "1", "5"]
    assert here("cursors", filled, "-q", "typed").out == b""


def test_inspect_tells_segments_options_types_and_schedules(filled: Path) -> None:
    told = here("inspect", filled, "--json").json
    assert [segment["number"] for segment in told["segments"]] == [1]
    by_name = {queue["name"]: queue for queue in told["queues"]}
    assert by_name["main"]["options"] == {"max_retries": 0, "retention": "all"}
    assert by_name["typed"]["schedules"] == ["daily"]
    assert by_name["typed"]["shape"][0]["type"] == "object"
    assert told["cursors"][0]["name"] == "audit"
    assert 'options        {"max_retries":0,"retention":"all"}' in here("inspect", filled).lines
    assert here("inspect", filled, "-q", "typed", "--json").json["name"] == "typed"
    here("inspect", filled, "-q", "none", status=3)


def test_explain_takes_a_counter_or_a_key(filled: Path) -> None:
    assert here("explain", filled, "1").lines[0] == "main 1: taken"
    key = json.loads(here("tail", filled, "-n", "1", "--json").lines[0])["key"]
    assert here("explain", filled, key).lines[0] == "main 5: there"
    told = here("explain", filled, "1", "-q", "work", "--json").json
    assert (told["state"], told["dead_letter"]) == ("dead-lettered", ["work.dlq", 1])
    assert here("explain", filled, "99", status=3).lines == ["main 99: not put"]
    assert "neither a counter nor a key" in here("explain", filled, "0", status=2).err


def test_explain_asks_the_owner_what_only_it_knows(live: Live) -> None:
    counter = live.do("put explained x")
    line = here("explain", live.path, counter, "-q", "explained").lines[0]
    assert line == f"explained {counter}: ready"


def test_colours_and_tables_are_left_out_where_nobody_sees_them(filled: Path) -> None:
    assert b"\x1b" not in run("stats", filled, NO_COLOR="1").stdout
