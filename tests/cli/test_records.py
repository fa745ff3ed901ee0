"""Putting and taking by hand: free stores, live ones, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from fifoq.control.place import SOCKET_NAME
from tests.cli.support import PATIENCE_SECONDS, command, environment, fifoq, here, owner


def test_what_is_put_comes_out_in_order_each_with_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "made" / "here"
    assert fifoq("put", path, "one", "two").stdout == b"1\n2\n"
    assert fifoq("put", path, "-", input=b"three\n\nfive").stdout == b"3 records\n"
    assert fifoq("take", path).stdout == b"one\n"
    assert fifoq("take", path, "-n", "3", "--null").stdout == b"two\0three\0\0"
    assert fifoq("take", path, "--all").stdout == b"five\n"
    assert list(path.glob(SOCKET_NAME)) == []


def test_bytes_come_through_as_they_are(tmp_path: Path) -> None:
    data = bytes(range(256))
    fifoq("put", tmp_path, "--whole", input=data)
    fifoq("put", tmp_path, "--null", input=data)
    assert here("take", tmp_path).out == data + b"\n"
    rest = b"\n".join(data.split(b"\0")[1:]) + b"\n"
    assert here("take", tmp_path, "--all").out == b"\n" + rest


def test_an_empty_queue_is_told_by_the_status(tmp_path: Path) -> None:
    here("put", tmp_path, "x", "-q", "other")
    here("put", tmp_path, "y")
    here("take", tmp_path)
    said = here("take", tmp_path, status=3)
    assert (said.out, said.err) == (b"", "fifoq: queue 'main' has nothing to take.\n")
    assert here("take", tmp_path, "--all").out == b""
    told = here("take", tmp_path, "--json", status=3).json
    assert told == {
        "error": "queue 'main' has nothing to take.",
        "kind": "QueueEmpty",
        "status": 3,
    }


def test_nothing_but_a_put_makes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "none"
    for verb in ("take", "stats", "queues"):
        said = here(verb, path, status=3)
        assert said.err == f"fifoq: {path}: there is no store here. Nothing was changed.\n"
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["put", "x", "text", "--header", "novalue"], "'novalue' is not NAME=VALUE"),
        (["put", "x", "-", "text"], "`-` stands alone"),
        (
            ["put", "x", "text", "--delay", "soon"],
            "--delay: 'soon' is not a number; give 0 or more",
        ),
        (
            ["put", "x", "text", "--delay", "nan"],
            "--delay: 'nan' is not a number; give 0 to 8589934592",
        ),
        (
            ["put", "x", "text", "--delay", "inf"],
            "--delay: inf is out of range; give 0 to 8589934592",
        ),
        (
            ["put", "x", "text", "--ttl", "0"],
            "--ttl: 0.0 is out of range; give more than 0, at most",
        ),
        (
            ["put", "x", "text", "--ttl", "-1"],
            "--ttl: -1.0 is out of range; give more than 0, at most",
        ),
        (["put", "x", "text", "--priority", "99"], "--priority: 99 is out of range; give 0 to 9"),
        (["put", "x", "text", "--queue", "Not Allowed"], "queue name 'Not Allowed' is not allowed"),
        (["import", "x", "-", "--queue", "?"], "queue name '?' is not allowed"),
        (["export", "x", "-", "-q", "main", "-q", "?"], "queue name '?' is not allowed"),
        (["put", "x", "text", "--dedup-id", ""], "dedup_id has 0 bytes"),
        (["put", "x", "text", "--ordering-key", "k" * 256], "ordering_key has 256 bytes"),
        (["put", "x", "text", "-H", f"a={'x' * 70000}"], "header"),
        (["put", "x", "text", "--priority", "a"], "--priority: 'a' is not a whole number; give 0"),
        (["take", "x", "--count", "0"], "--count: 0 is out of range; give 1 or more"),
        (["take", "x", "-n", "1.5"], "--count: '1.5' is not a whole number; give 1 or more"),
        (["dlq", "show", "x", "abc"], "COUNTER: 'abc' is not a whole number; give 1 or more"),
        (["dlq", "purge", "x", "1", "0"], "COUNTER: 0 is out of range; give 1 or more"),
        (["top", "x", "--interval", "abc"], "--interval: 'abc' is not a number; give 0.1 or more"),
        (["top", "x", "-i", "0.01"], "--interval: 0.01 is out of range; give 0.1 or more"),
        (["spark", "rates", "x", "--seconds", "x"], "--seconds: 'x' is not a whole number; give 1"),
        (["demo", "--seconds", "0"], "--seconds: 0 is out of range; give 0.1 or more"),
        (["seek", "x", "c", "--time", "noon"], "--time: 'noon' is no time such as"),
        (["take", "x", "--wait", "nan"], "--wait: 'nan' is not a number; give 0 to"),
        (["top", "x", "--interval", "nan"], "--interval: 'nan' is not a number; give 0.1 to"),
        (["take"], "PATH"),
        (["tako", "x"], "tako"),
        (["dlq", "lost", "x"], "lost"),
        (["dlq", "--nothing"], "--nothing"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_made(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = here(*arguments, status=2).err
    assert complaint in said
    assert said.startswith("fifoq: ")
    assert said.count("\n") == 1
    told = here(*arguments, "--json", status=2)
    assert (told.err, told.json["status"]) == ("", 2)
    assert complaint in told.json["error"]
    assert list(tmp_path.iterdir()) == []


def test_what_the_queue_refuses_is_one_line(tmp_path: Path) -> None:
    for wrong, status in ((("-q", "Not Allowed"), 2), (("--priority", "3"), 1)):
        said = here("put", tmp_path, "x", *wrong, status=status)
        assert said.err.startswith("fifoq: ")
        assert said.err.count("\n") == 1
    assert here("put", tmp_path, "x", "-q", "?", "--json", status=2).json["kind"] == "InvalidName"


def test_a_record_carries_what_it_was_given(tmp_path: Path) -> None:
    given = ("-H", "trace=7", "-H", "from=me=you", "--ttl", "3600", "--dedup-id", "a")
    first = here("put", tmp_path, "x", *given, "--json").json
    assert here("put", tmp_path, "again", *given, "--json").json == first
    here("put", tmp_path, "later", "--delay", "3600")
    said = here("take", tmp_path, "--all", "--json")
    (record,) = [json.loads(line) for line in said.lines]
    assert record["headers"] == {"trace": "7", "from": "me=you"}
    assert (record["data"], record["key"]) == ("x", first["records"][0]["key"])


def test_a_live_store_is_asked_and_its_owner_sees_what_was_done(tmp_path: Path) -> None:
    with owner(tmp_path) as live:
        assert (tmp_path / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
        assert here("put", tmp_path, "one", "two").lines == ["1", "2"]
        assert live.do("size main") == "2"
        assert here("take", tmp_path).lines == ["one"]
        assert live.do("take main") == "two"
        assert here("take", tmp_path, status=3).out == b""
        assert here("put", tmp_path, "x", "-q", "new").lines == ["1"]
        seen = here("stats", tmp_path, "--json").json
        assert seen["owner"] == live.process.pid
        assert [q["name"] for q in seen["queues"]] == ["main", "new", "orders"]
        refused = here("put", tmp_path, "x", "--priority", "3", "--json", status=1).json
        assert (refused["kind"], refused["status"]) == ("ValueError", 1)
    assert list(tmp_path.glob(SOCKET_NAME)) == []


def test_a_queue_with_a_type_takes_and_shows_json(tmp_path: Path) -> None:
    with owner(tmp_path) as live:
        here("put", tmp_path, '{"name": "apple", "amount": 3}', "-q", "orders")
        said = here("put", tmp_path, '{"nome": "pear"}', "-q", "orders", status=1)
        assert "missing required field `name`" in said.err
        assert live.do("size orders") == "1"
        taken = here("take", tmp_path, "-q", "orders", "--json").json
        assert taken["data"] == {"name": "apple", "amount": 3}
        here("put", tmp_path, '{"name": "fig"}', "-q", "orders")
    assert here("take", tmp_path, "-q", "orders").lines == ['{"name":"fig","amount":1}']


def test_a_record_whose_taker_dies_before_it_is_printed_stays_in_the_queue(tmp_path: Path) -> None:
    with owner(tmp_path) as live:
        live.do("put main precious")
        # A pipe that nobody reads: the taker holds the record and cannot print it.
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as closed:
            done = subprocess.run(
                command("take", tmp_path),
                stdout=closed,
                stderr=subprocess.PIPE,
                env=environment(),
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        assert (done.returncode, done.stderr) == (141, b"")
        assert here("take", tmp_path).lines == ["precious"]


def test_a_taker_whose_reader_stalls_locks_nobody_out(tmp_path: Path) -> None:
    lines = b"\n".join(b"%d" % number + b"." * 500 for number in range(1000))
    fifoq("put", tmp_path, "-", input=lines)
    stalled = subprocess.Popen(
        command("take", tmp_path, "--follow"), stdout=subprocess.PIPE, env=environment()
    )
    with stalled:
        # It owns the store, and the rest is far more than a pipe holds.
        assert stalled.stdout is not None
        assert stalled.stdout.readline()[:2] == b"0."
        assert here("put", tmp_path, "beside", "-q", "other").lines == ["1"]
        stalled.terminate()
        assert stalled.wait(PATIENCE_SECONDS) == 143
    assert here("take", tmp_path, "-q", "other").lines == ["beside"]
    assert len(here("take", tmp_path, "--all").lines) == 1000


def test_a_taker_that_is_killed_while_it_waits_takes_nothing(tmp_path: Path) -> None:
    with owner(tmp_path) as live:
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            waiting = subprocess.Popen(
                command("take", tmp_path, "--follow"), stdout=subprocess.PIPE, env=environment()
            )
            with waiting:
                assert waiting.stdout is not None
                live.do("put main first")
                assert waiting.stdout.readline() == b"first\n"
                # Before that it would come again: it was printed and not acked.
                while live.do("size main") != "0":
                    pass
                waiting.send_signal(number)
                assert waiting.wait(PATIENCE_SECONDS) == status
            live.do("put main mine")
            assert live.do("take main") == "mine"


def test_the_socket_of_a_dead_owner_is_no_obstacle(tmp_path: Path) -> None:
    with owner(tmp_path) as live:
        live.do("put main left")
        live.process.kill()
        live.process.wait()
    assert (tmp_path / SOCKET_NAME).exists()
    assert here("take", tmp_path).lines == ["left"]


def test_the_socket_of_a_dead_owner_disturbs_no_tool(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with owner(path) as live:
        live.do("put main left")
        live.process.kill()
        live.process.wait()
    assert here("verify", path).lines[-1].startswith("sound")
    assert b"left" in here("export", path, "-").out
    backup, restored, repaired = (tmp_path / name for name in ("backup", "restored", "repaired"))
    here("backup", path, backup)
    here("repair", path, repaired)
    # A backup is a store as well: one may have owned it, and died.
    with owner(backup) as live:
        live.process.kill()
        live.process.wait()
    here("restore", backup, restored)
    for each in (backup, restored, repaired):
        assert (each / SOCKET_NAME).exists() == (each == backup)
        assert here("verify", each).lines[-1].startswith("sound")
    assert here("peek", restored).lines == here("peek", repaired).lines == ["left"]
    with owner(path):
        # The next owner has a socket of its own in its place.
        assert here("take", path).lines == ["left"]
    assert not (path / SOCKET_NAME).exists()
