"""T6, T7 and T13 for queues: traffic of many tasks through the public API, killed or cut off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from tests.rigs.conftest import NotRun, rings_work
from tests.rigs.crashes import Outcome, Plan
from tests.rigs.mounts import ROOT, assert_runs_private
from tests.support.figures import record

EXT4_OPTIONS = ("", "data=writeback", "commit=1000", "nodelalloc")
SEED = int(os.environ.get("FIFOQ_SEED", "20261117"))
CONTROL_CUTS_MAX, CONTROL_OPERATIONS = 20, 300
"""Queues that are not synced are found out within so many cuts, each after so many calls."""
DEEP = (pytest.mark.deep, pytest.mark.timeout(7200))
EVERYTHING = {"ack", "flush", "lease", "put", "take"}


def crash(plan: Plan, name: str) -> Outcome:
    """Run a plan in a process of its own and record its figures."""
    text = msgspec.json.encode(plan).decode()
    if plan.power:
        printed = assert_runs_private("tests.rigs.crashes", text)
    else:
        command = [sys.executable, "-m", "tests.rigs.crashes", text]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    outcome = msgspec.json.decode(printed, type=Outcome)
    record(
        name,
        crashes=outcome.crashes,
        operations=outcome.operations,
        confirmed=outcome.confirmed,
        violations=len(outcome.violations),
        seed=plan.seed,
        interrupted=", ".join(outcome.interrupted),
        rings=outcome.rings,
    )
    return outcome


@pytest.mark.parametrize(
    "kills",
    [pytest.param(500, id="suite"), pytest.param(20_000, id="deep", marks=DEEP)],
)
def test_queues_whose_process_is_killed_keep_what_they_confirmed(
    tmp_path: Path, kills: int
) -> None:
    plan = Plan(directory=str(tmp_path), seed=SEED, crashes=kills)
    outcome = crash(plan, "T6 queues killed")
    assert outcome.violations == []
    assert outcome.rings or not rings_work()
    assert outcome.crashes >= kills
    assert set(outcome.interrupted) >= EVERYTHING


@pytest.mark.parametrize(
    "cuts",
    [pytest.param(200, id="suite"), pytest.param(5_000, id="deep", marks=DEEP)],
)
def test_queues_whose_power_is_cut_keep_what_they_confirmed(
    tmp_path: Path, not_run: NotRun, cuts: int
) -> None:
    not_run.unless_mounts_work()
    plan = Plan(directory=str(tmp_path), seed=SEED, crashes=cuts, power=True, options=EXT4_OPTIONS)
    outcome = crash(plan, "T7 queues without power")
    assert outcome.violations == []
    assert outcome.rings or not rings_work()
    assert outcome.crashes >= cuts
    assert set(outcome.interrupted) >= EVERYTHING


@pytest.mark.parametrize("writer", ["io_uring", "thread"])
def test_queues_that_leave_out_the_sync_are_found_out(
    tmp_path: Path, not_run: NotRun, writer: Literal["io_uring", "thread"]
) -> None:
    """The control: a rig that sees nothing would look like queues that lose nothing."""
    not_run.unless_mounts_work()
    if writer == "io_uring":
        not_run.unless_rings_work()
    plan = control(tmp_path, writers=(writer,), mutant="datasync")
    outcome = crash(plan, f"control: queues without datasync, {writer}")
    assert outcome.violations != []
    assert outcome.rings or writer == "thread"


def control(directory: Path, **options: Any) -> Plan:
    return Plan(
        directory=str(directory),
        seed=SEED,
        crashes=CONTROL_CUTS_MAX,
        operations=CONTROL_OPERATIONS,
        power=True,
        stop_early=True,
        **options,
    )


def test_queues_under_eatmydata_are_found_out(
    tmp_path: Path, not_run: NotRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It eats the calls of a thread; what a ring writes is no call."""
    not_run.unless_mounts_work()
    not_run.unless_installed("eatmydata")
    monkeypatch.setenv("LD_PRELOAD", "libeatmydata.so")
    plan = control(tmp_path, writers=("thread",))
    assert crash(plan, "control: queues under eatmydata").violations != []


@pytest.mark.parametrize(
    ("crashes", "operations"),
    [
        pytest.param(12, 17_500, id="suite"),
        pytest.param(500, 100_000, id="deep", marks=DEEP),
    ],
)
def test_long_histories_of_concurrent_callers_have_no_anomaly(
    tmp_path: Path, crashes: int, operations: int
) -> None:
    plan = Plan(directory=str(tmp_path), seed=SEED, crashes=crashes, operations=operations)
    outcome = crash(plan, "T13 histories")
    assert outcome.violations == []
    assert outcome.operations >= crashes * operations
