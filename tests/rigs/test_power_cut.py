"""T7: the power goes while a real writer works on a real file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tests.rigs.conftest import NotRun
from tests.rigs.cuts import Outcome, Plan
from tests.rigs.mounts import assert_runs_private
from tests.support.figures import record

EXT4_OPTIONS = ("", "data=writeback", "commit=1000", "nodelalloc")
SEED = int(os.environ.get("FIFOQ_SEED", "20251117"))
CONTROL_CUTS_MAX = 20
"""A store that leaves out a sync is found out within so many cuts; two or three are usual."""

DEEP = (pytest.mark.deep, pytest.mark.timeout(7200))


def cut(plan: Plan, name: str) -> Outcome:
    """Run a plan in its own mount namespace and record its figures."""
    printed = assert_runs_private("tests.rigs.cuts", msgspec.json.encode(plan).decode())
    outcome = msgspec.json.decode(printed, type=Outcome)
    record(
        name,
        cuts=outcome.cuts,
        confirmed=outcome.confirmed,
        names_taken=outcome.names_taken,
        violations=len(outcome.violations),
        seed=plan.seed,
        interrupted=str(outcome.interrupted),
    )
    return outcome


@pytest.mark.parametrize(
    ("kind", "options", "cuts"),
    [
        pytest.param("ext4", EXT4_OPTIONS, 200, id="suite"),
        pytest.param("ext4", EXT4_OPTIONS, 5_000, id="deep-ext4", marks=DEEP),
        pytest.param("xfs", ("",), 2_000, id="deep-xfs", marks=DEEP),
    ],
)
def test_what_was_confirmed_outlives_a_power_cut_at_any_moment(
    tmp_path: Path,
    not_run: NotRun,
    kind: Literal["ext4", "xfs"],
    options: tuple[str, ...],
    cuts: int,
) -> None:
    not_run.unless_mounts_work()
    not_run.unless_installed(f"mkfs.{kind}")
    plan = Plan(directory=str(tmp_path), seed=SEED, cuts=cuts, kind=kind, options=options)
    outcome = cut(plan, f"power cuts on {kind}")
    assert outcome.violations == []
    assert outcome.cuts == cuts
    # Creation, recovery, upkeep and ordinary commits were all hit.
    assert {"open", "put", "take", "commit", "rotate"} <= outcome.interrupted.keys()


@pytest.mark.parametrize("mutant", ["datasync", "sync_dir"])
def test_a_store_that_leaves_out_a_sync_is_found_out(
    tmp_path: Path, not_run: NotRun, mutant: Literal["datasync", "sync_dir"]
) -> None:
    """The control: without it, a rig that sees nothing would look like a store that loses nothing.

    The kernel here happens to sync names with contents, so for `sync_dir` it is the names taken
    away after each cut that show the mistake.
    """
    not_run.unless_mounts_work()
    plan = Plan(
        directory=str(tmp_path), seed=SEED, cuts=CONTROL_CUTS_MAX, mutant=mutant, stop_early=True
    )
    outcome = cut(plan, f"control without {mutant}")
    assert outcome.violations != []


def test_a_store_under_eatmydata_is_found_out(
    tmp_path: Path, not_run: NotRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same control with the syncs taken away from outside, below our own code."""
    not_run.unless_mounts_work()
    not_run.unless_installed("eatmydata")
    plan = Plan(directory=str(tmp_path), seed=SEED, cuts=CONTROL_CUTS_MAX, stop_early=True)
    monkeypatch.setenv("LD_PRELOAD", "libeatmydata.so")
    outcome = cut(plan, "control under eatmydata")
    assert outcome.violations != []
