"""Errors that a real kernel gives, through the real files: full, read-only, vanished, limited."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from store import open_log
from tests.rigs import mounts, scenarios
from tests.rigs.conftest import NotRun
from tests.rigs.scenarios import OPTIONS, payload


def assert_plays(name: str, directory: Path) -> str:
    """Play a scene; returns what it printed."""
    done = scenarios.run(name, directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_plays_with_mounts(name: str, directory: Path, not_run: NotRun) -> None:
    not_run.unless_mounts_work()
    mounts.assert_runs_private("tests.rigs.scenarios", name, str(directory))


@pytest.mark.parametrize("disk", ["full_tmpfs", "full_ext4"])
def test_a_full_disk_refuses_puts_drains_to_empty_and_takes_puts_again_when_there_is_space(
    tmp_path: Path, not_run: NotRun, disk: str
) -> None:
    assert_plays_with_mounts(disk, tmp_path, not_run)


def test_acks_in_random_order_empty_a_disk_that_is_full(tmp_path: Path, not_run: NotRun) -> None:
    assert_plays_with_mounts("acks_in_random_order", tmp_path, not_run)


def test_a_read_only_disk_is_refused_and_nothing_changes(tmp_path: Path, not_run: NotRun) -> None:
    assert_plays_with_mounts("read_only", tmp_path, not_run)


def test_a_disk_that_vanishes_stops_the_store_and_loses_nothing(
    tmp_path: Path, not_run: NotRun
) -> None:
    assert_plays_with_mounts("vanished_disk", tmp_path, not_run)


def test_a_limit_on_file_size_is_a_full_disk(tmp_path: Path) -> None:
    assert_plays("file_size_limit", tmp_path)


def test_a_limit_on_open_files_refuses_only_what_needs_one(tmp_path: Path) -> None:
    assert_plays("open_files_limit", tmp_path)


@pytest.mark.parametrize("number", [1, 2, 5, 9, 14, 40])
def test_a_sync_that_fails_stops_the_store_and_a_reopen_finds_all_that_was_confirmed(
    tmp_path: Path, not_run: NotRun, number: int
) -> None:
    """The first syncs belong to making the store, the later ones to commits and to rotation."""
    not_run.unless_installed("strace")
    strace = shutil.which("strace")
    assert strace is not None
    done = subprocess.run(
        [
            *(strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"),
            *("-e", f"inject=fdatasync:error=EIO:when={number}"),
            *(sys.executable, "-m", "tests.rigs.scenarios", "failing_sync", str(tmp_path)),
        ],
        cwd=mounts.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    confirmed = [line for line in done.stdout.splitlines() if line.isdigit()]
    assert confirmed or "failed while opening" in done.stdout or number < 4
    with open_log(str(tmp_path / "store"), options=OPTIONS) as log:
        found = [found for _, found in log.take("orders", 1000)]
        log.put("orders", [b"goes on"])
    # Confirmed ones all, and at the most the one whose sync failed behind them.
    assert found[: len(confirmed)] == [payload(number) for number in range(len(confirmed))]
    assert found[len(confirmed) :] in ([], [payload(len(confirmed))])
