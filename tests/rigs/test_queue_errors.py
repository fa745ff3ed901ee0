"""Queues on real disks that are full, failing, read-only or stuck, and with wrong users."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fifoq
from fifoq.ring_writer import WRITER_VARIABLE
from fifoq.writer import Writer
from tests.rigs import mounts
from tests.rigs.conftest import NotRun
from tests.rigs.queue_scenes import item
from tests.support.figures import record

MODULE = "tests.rigs.queue_scenes"


def assert_plays(name: str, directory: Path, *around: str) -> str:
    """Play a scene in a process of its own; returns what it printed."""
    command = [*around, sys.executable, "-X", "dev", "-m", MODULE, name, str(directory)]
    done = subprocess.run(
        command, cwd=mounts.ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("disk", ["tmpfs", "ext4"])
@pytest.mark.parametrize("scene", ["full_sync", "full_leases", "full_memory"])
def test_a_full_disk_refuses_puts_drains_and_takes_puts_again(
    tmp_path: Path, not_run: NotRun, writer: str, scene: str, disk: str
) -> None:
    not_run.unless_mounts_work()
    mounts.assert_runs_private(MODULE, scene, str(tmp_path), disk)


@pytest.mark.parametrize("scene", ["read_only", "dead_disk"])
def test_a_disk_that_stops_writing_stops_the_queue_and_keeps_what_was_confirmed(
    tmp_path: Path, not_run: NotRun, writer: str, scene: str
) -> None:
    not_run.unless_mounts_work()
    mounts.assert_runs_private(MODULE, scene, str(tmp_path), "ext4")


def test_nobody_gets_a_store_while_the_kernel_writes_for_an_owner_who_was_killed(
    tmp_path: Path, not_run: NotRun
) -> None:
    """The lock goes with the process, and a write that the kernel has begun does not."""
    not_run.unless_mounts_work()
    not_run.unless_rings_work()
    not_run.unless_installed("fsfreeze")
    mounts.assert_runs_private(MODULE, "late_write", str(tmp_path))


@pytest.mark.parametrize("number", [1, 3, 8, 12, 20, 45])
def test_a_sync_that_fails_stops_the_queue_and_a_reopen_has_what_was_confirmed(
    tmp_path: Path, not_run: NotRun, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls of a thread; what a ring writes is no call, and fails with `dead_disk`."""
    not_run.unless_installed("strace")
    monkeypatch.setenv(WRITER_VARIABLE, Writer.kind)
    strace = shutil.which("strace")
    assert strace is not None
    printed = assert_plays(
        "failing_sync",
        tmp_path,
        *(strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"),
        *("-e", f"inject=fdatasync:error=EIO:when={number}"),
    )
    confirmed = [int(line) for line in printed.splitlines() if line.isdigit()]
    assert confirmed or "failed while opening" in printed

    async def look() -> list[bytes]:
        async with fifoq.open(tmp_path / "store") as queue:
            return [found.item async for found in queue.browse()]

    found = asyncio.run(look())
    assert found[: len(confirmed)] == [item(number) for number in confirmed]
    assert len(found) <= len(confirmed) + 1


@pytest.mark.parametrize("scene", ["owners", "fork", "threads", "closed_loop"])
def test_a_queue_belongs_to_one_process_one_thread_and_one_loop(
    tmp_path: Path, writer: str, scene: str
) -> None:
    assert_plays(scene, tmp_path)


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.5, id="suite"), pytest.param(5.0, id="deep", marks=pytest.mark.deep)]
)
def test_a_disk_that_hangs_does_not_hang_the_loop(
    tmp_path: Path, not_run: NotRun, writer: str, seconds: float
) -> None:
    not_run.unless_mounts_work()
    not_run.unless_installed("fsfreeze")
    printed = mounts.assert_runs_private(MODULE, "frozen_disk", str(tmp_path), str(seconds))
    lag = float(printed.partition("lag_ms=")[2])
    record(f"C14 frozen disk, {writer}", seconds=seconds, worst_lag_ms=lag)


@pytest.mark.parametrize(
    "hangs", [pytest.param(6, id="suite"), pytest.param(60, id="deep", marks=pytest.mark.deep)]
)
def test_a_disk_that_begins_to_hang_at_any_moment_does_not_hold_up_the_loop(
    tmp_path: Path, not_run: NotRun, writer: str, hangs: int
) -> None:
    """A write that the loop started itself waited for the journal, in 3 of 40 hangs."""
    not_run.unless_mounts_work()
    not_run.unless_installed("fsfreeze")
    printed = mounts.assert_runs_private(MODULE, "hanging_disk", str(tmp_path), str(hangs))
    lag = float(printed.partition("lag_ms=")[2])
    record(f"C14 hanging disk, {writer}", hangs=hangs, worst_lag_ms=lag)
