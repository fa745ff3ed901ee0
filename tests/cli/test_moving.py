"""Verbs that move what is there, on free stores and on live ones."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import fifoq.sync
from tests.cli.conftest import Live
from tests.cli.support import here


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """Three dead letters of the queue main."""
    with fifoq.sync.open_store(tmp_path) as store:
        queue = store.queue("main")
        for number in range(3):
            queue.put(f"order {number}".encode(), headers={"trace": str(number)})
            try:
                raise ValueError(f"no {number}")
            except ValueError as error:
                queue.lease().reject(f"reason {number}", error=error)
    return tmp_path


def test_dead_letters_are_listed_without_their_payloads(failed: Path) -> None:
    head, *rows = here("dlq", "list", failed).lines
    assert head.split() == ["dlq", "was", "attempts", "cause", "error", "since", "size", "reason"]
    assert [row.split()[:5] for row in rows] == [
        [str(n), str(n), "1", "rejected", "ValueError"] for n in (1, 2, 3)
    ]
    told = [json.loads(line) for line in here("dlq", "list", failed, "--json").lines]
    assert [each["reason"] for each in told] == ["reason 0", "reason 1", "reason 2"]
    assert b"order" not in here("dlq", "list", failed, "--json").out
    assert len(here("dlq", "list", failed, "-n", "1", "--from", "2").lines) == 2


def test_one_is_shown_whole(failed: Path) -> None:
    said = here("dlq", "show", failed, "2").lines
    assert "header trace      1" in said
    assert "order 1" in said
    assert said[-1] == "ValueError: no 1"
    told = here("dlq", "show", failed, "2", "--json").json
    assert (told["data"], told["attempts"]) == ("order 1", 1)
    assert "no dead letter 9" in here("dlq", "show", failed, "9", status=3).err
    assert (
        "holds dead letters itself" in here("dlq", "list", failed, "-q", "main.dlq", status=1).err
    )


def test_one_of_a_typed_queue_is_shown_as_json(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path) as store:
        queue = store.queue("jobs", type=Job)
        queue.put(Job(7))
        queue.lease().reject("no")
    assert '{"number":7}' in here("dlq", "show", tmp_path, "1", "-q", "jobs").lines
    told = here("dlq", "show", tmp_path, "1", "-q", "jobs", "--json").json
    assert told["data"] == {"number": 7}


class Job(msgspec.Struct):
    number: int


def test_some_or_all_are_replayed_or_purged(failed: Path) -> None:
    assert "name counters, or give --all" in here("dlq", "replay", failed, status=2).err
    said = here("dlq", "purge", failed, "--all", "--dry-run").lines
    assert said == ["3 dead letters would be purged"]
    assert here("dlq", "replay", failed, "1").lines == ["1 dead letter replayed"]
    assert here("take", failed).lines == ["order 0"]
    assert here("dlq", "purge", failed, "2", "--json").json == {
        "queue": "main",
        "purged": 1,
        "dry_run": False,
    }
    here("dlq", "purge", failed, "2", status=3)
    assert here("dlq", "replay", failed, "-a").lines == ["1 dead letter replayed"]
    assert here("take", failed, "--all").lines == ["order 2"]


def test_the_owner_of_a_live_store_replays_and_purges(live: Live) -> None:
    live.do("fail failing x")
    live.do("fail failing y")
    here("dlq", "replay", live.path, "1", "-q", "failing")
    assert live.do("take failing") == "x"
    here("dlq", "purge", live.path, "-a", "-q", "failing")
    assert live.do("size failing.dlq") == "0"


def test_a_cursor_is_made_moved_and_deleted(tmp_path: Path) -> None:
    here("put", tmp_path, "a", "b", "c")
    said = here("seek", tmp_path, "audit", "--earliest", status=3)
    assert said.err == "fifoq: queue 'main' has no cursor 'audit'. Nothing was changed.\n"
    assert here("seek", tmp_path, "audit", "--earliest", "--make").lines == ["audit: at 1, made"]
    assert here("seek", tmp_path, "audit", "--counter", "3").lines == ["audit: at 3, was at 1"]
    time = json.loads(here("tail", tmp_path, "-n", "3", "--json").lines[0])["time"]
    assert here("seek", tmp_path, "audit", "--time", time).lines == ["audit: at 1, was at 3"]
    assert here("seek", tmp_path, "audit", "--latest").lines == ["audit: at 4, was at 1"]
    told = here("seek", tmp_path, "audit", "--counter", "2", "--json").json
    assert told["moved"] == {"counter": 2, "before": 4}
    assert "beyond the end" in here("seek", tmp_path, "audit", "--counter", "9", status=1).err
    assert here("seek", tmp_path, "audit", "--forget").lines == ["audit: deleted"]
    assert here("cursors", tmp_path).out == b""
    for wrong in (["--earliest", "--latest"], [], ["--time", "noon"]):
        here("seek", tmp_path, "audit", *wrong, status=2)


def test_a_queue_that_is_mistyped_is_told_and_not_made(tmp_path: Path) -> None:
    here("put", tmp_path, "a")
    told = "fifoq: there is no queue 'mian'. Nothing was changed. There are: main.\n"
    for verb, *rest in (
        ["take"],
        ["seek", "audit", "--earliest"],
        ["seek", "audit", "--forget"],
        ["dlq", "replay", "--all"],
        ["dlq", "purge", "1", "--dry-run"],
        ["dlq", "list"],
        ["dlq", "show", "1"],
        ["cursors"],
        ["peek"],
        ["tail"],
        ["explain", "1"],
        ["stats"],
        ["inspect"],
    ):
        words = [verb, rest.pop(0)] if verb == "dlq" else [verb]
        said = here(*words, tmp_path, *rest, "-q", "mian", status=3)
        assert (said.out, said.err) == (b"", told)
        as_json = here(*words, tmp_path, *rest, "-q", "mian", "--json", status=3).json
        assert (as_json["kind"], as_json["status"]) == ("NotThere", 3)
    none = here("dlq", "replay", tmp_path, "--all", status=3)
    assert none.lines == ["0 dead letters replayed"]
    assert here("queues", tmp_path).lines == ["main"]
    empty = here("dlq", "list", tmp_path)
    assert (empty.out, empty.err) == (b"", "")


def test_a_queue_that_its_owner_has_just_opened_is_there(live: Live) -> None:
    """Readers of the files see a commit only a moment later: the owner is asked before it is said
    that there is no such queue."""
    assert live.do("size opened") == "0"
    for words in (["dlq", "list"], ["cursors"], ["tail"]):
        said = here(*words, live.path, "-q", "opened")
        assert (said.out, said.err) == (b"", "")
    assert "nothing to show" in here("peek", live.path, "-q", "opened", status=3).err
    assert here("explain", live.path, "1", "-q", "opened", status=3).lines == ["opened 1: not put"]


def test_a_cursor_of_a_live_store_is_moved_by_its_owner(live: Live) -> None:
    for text in "abc":
        live.do(f"put sought {text}")
    here("seek", live.path, "audit", "-q", "sought", "--latest", "--make")
    assert here("seek", live.path, "audit", "-q", "sought", "--counter", "2").lines == [
        "audit: at 2, was at 4"
    ]


def test_space_is_given_back_when_it_is_asked_for(tmp_path: Path, live: Live) -> None:
    with fifoq.sync.open_store(tmp_path, segment_bytes=1 << 16) as store:
        queue = store.queue("main")
        queue.put_many([bytes(1000)] * 400)
        queue.take_many(390)
    done = here("compact", tmp_path, "--json").json
    assert done["segments_removed"] >= 0
    assert len(here("inspect", tmp_path, "--json").json["segments"]) <= 2
    assert "given back" in here("compact", live.path).lines[0]
