"""Several commands on one store at the same time, and commands that are ended in mid-work."""

from __future__ import annotations

import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from fifoq.cli import access
from fifoq.view import View
from store import FifoqError
from tests.cli.support import PATIENCE_SECONDS, command, environment, here, owner


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def test_commands_that_want_a_free_store_at_the_same_time_take_turns(tmp_path: Path) -> None:
    putting = [start("put", tmp_path, f"record {number}") for number in range(4)]
    for each in putting:
        out, err = each.communicate(timeout=PATIENCE_SECONDS)
        assert (each.returncode, err) == (0, b"")
        assert int(out) in range(1, 5)
    assert sorted(here("take", tmp_path, "-a").lines) == [f"record {n}" for n in range(4)]


def test_a_command_that_owns_a_store_can_be_asked_by_another(tmp_path: Path) -> None:
    here("put", tmp_path, "first")
    following = start("take", tmp_path, "--follow")
    with following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"first\n"
        here("put", tmp_path, "second")
        assert following.stdout.readline() == b"second\n"
        following.send_signal(signal.SIGTERM)
        assert following.wait(PATIENCE_SECONDS) == 143


def test_a_store_whose_owner_cannot_be_asked_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "BUSY_SECONDS", 0.0)
    with owner(tmp_path):
        (tmp_path / "owner.sock").unlink()
        said = here("take", tmp_path, status=5)
        assert said.err.startswith(f"fifoq: {tmp_path}")
        assert said.err.count("\n") == 1
        # Looking goes on as ever.
        assert here("queues", tmp_path).lines == ["main", "orders"]


def put_so_far(path: Path) -> int:
    try:
        with closing(View(str(path))) as view:
            return view.stats("main").total_put_count
    except FifoqError:
        # It is being made.
        return 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_put_that_is_interrupted_says_how_far_it_came(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    putting = start("put", tmp_path, "-")
    with putting:
        assert putting.stdin is not None
        assert putting.stderr is not None
        putting.stdin.write(b"one\ntwo\nhalf of a thr")
        putting.stdin.flush()
        while put_so_far(tmp_path) < 2:
            pass
        putting.send_signal(number)
        assert putting.wait(PATIENCE_SECONDS) == status
        assert putting.stderr.read() == b"fifoq: 2 records put before it ended\n"
    assert here("take", tmp_path, "-a").lines == ["one", "two"]
