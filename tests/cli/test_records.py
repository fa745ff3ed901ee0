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
        (["put", "x", "text", "--delay", "soon"], "--delay"),
        (["take", "x", "--count", "0"], "--count"),
        (["take"], "PATH"),
        (["tako", "x"], "tako"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_made(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint in here(*arguments, status=2).err
    assert list(tmp_path.iterdir()) == []


def test_what_the_queue_refuses_is_one_line(tmp_path: Path) -> None:
    said = here("put", tmp_path, "x", "-q", "Not Allowed", status=1)
    assert said.err.startswith("fifoq: ")
    assert said.err.count("\n") == 1
    assert here("put", tmp_path, "x", "-q", "?", "--json", status=1).json["kind"] == "InvalidName"


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
