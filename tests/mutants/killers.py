"""Samples of the suite that a mutant must not survive, besides whole small files of tests.

These samples drive the tools of the large tests (every cut, every failing call) over what is most
telling, so that the battery takes seconds. They are collected only when this file is named; the
catalogue lists what else belongs to the battery.
"""

from __future__ import annotations

import errno
import logging
from typing import Final, Literal

import pytest

from store import checkpoints
from tests.store.test_exhaustive import Explorer
from tests.store.test_io_errors import (
    Run,
    calls_of,
    check_classes,
    check_failing_recoveries,
    faults_at,
    go,
    reference_run,
)
from tests.support.workloads import OPERATIONS, STARTS

WORKLOADS: Final = (
    ("put_os", "put_os", "put_os"),
    ("put", "rotate", "take"),
    ("put_os", "put_os", "rotate"),
    ("put_os", "checkpoint", "put_os"),
    ("put", "put_os", "reopen"),
    ("reopen", "put_os", "put_os"),
    ("put", "reopen", "put"),
    ("put_os", "crash", "put"),
    ("put", "rotate", "put"),
    ("rotate", "rotate", "take"),
    ("set_state", "rotate", "set_state"),
    ("take", "take", "compact"),
    ("ack_newest", "ack_oldest"),
    ("put_many", "seal"),
)
CALL_STEP: Final = 13
RECOVERY_STEP: Final = 17


@pytest.fixture(autouse=True)
def _small_and_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints without slack, so that a torn one has tens of states; and no warnings."""
    monkeypatch.setattr(checkpoints, "SLACK_BYTES", 0)
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


@pytest.mark.parametrize("start", STARTS)
def test_single_operations_survive_every_cut(start: str) -> None:
    explorer = Explorer()
    explorer.cut(start, ())
    for operation in OPERATIONS:
        explorer.cut(start, (operation,))
    assert explorer.states


@pytest.mark.parametrize("workload", WORKLOADS, ids="-".join)
@pytest.mark.parametrize("start", ["empty", "used"])
def test_telling_workloads_survive_every_cut(start: str, workload: tuple[str, ...]) -> None:
    explorer = Explorer(thorough=True)
    for length in range(2, len(workload) + 1):
        explorer.cut(start, workload[:length])
    assert explorer.states


@pytest.mark.parametrize("workload", [(), ("put",), ("put_os", "put_os"), ("rotate",)])
def test_recoveries_survive_every_cut(workload: tuple[str, ...]) -> None:
    explorer = Explorer(cut_recovery=True)
    explorer.cut("empty", workload)
    explorer.cut("used", workload)
    assert explorer.states


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE, "short"])
def test_calls_may_fail(error: int | Literal["short"]) -> None:
    """A sample of the calls of the reference run, with more of the syncs where those fail."""
    names = calls_of(reference_run)
    for call, name in enumerate(names):
        if call % CALL_STEP and not (name == "datasync" and error == errno.EIO and call % 4 == 0):
            continue
        for fault in faults_at(call, name, error):
            run = Run(fault)
            try:
                go(run)
                check_classes(run, fault)
            except BaseException as failure:
                failure.add_note(f"{name}: {fault}")
                raise


def test_calls_of_an_opening_may_fail() -> None:
    check_failing_recoveries(step=RECOVERY_STEP)
