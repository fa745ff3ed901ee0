"""T6: a real writer process is killed again and again, and its store is opened by the next one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.rigs.conftest import NotRun
from tests.rigs.driver import Writers, kill_at_call
from tests.rigs.events import Dumped, Job, Started
from tests.rigs.lives import Tally, life_lengths
from tests.rigs.oracle import Oracle
from tests.support.figures import record

DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 0.001, 0.040
CALLS = {"fdatasync": 60, "pwrite64": 80, "fsync": 10, "ftruncate": 8, "unlinkat": 8}
"""Calls to be killed at, and how often a writer that was not killed makes each, about."""
STEPS_AT_CALL = 150
SEED = int(os.environ.get("FIFOQ_SEED", "20251117"))


def kill_at_random_moments(directory: Path, seed: int, total: int) -> Tally:
    """Kill writers between opening and 40 ms into their work."""
    random = Random(seed)
    tally = Tally()
    with Writers() as writers:
        for life, length in enumerate(life_lengths(random, total)):
            path = directory / f"store-{life}"
            oracle = Oracle(power=False)
            for _ in range(length):
                writers.start(Job(path=str(path), seed=random.getrandbits(32)), oracle)
                delay = random.uniform(DELAY_SECONDS_MIN, DELAY_SECONDS_MAX)
                after = Started if random.random() < 0.3 else Dumped
                writers.listen(oracle, delay, after=after)
                assert writers.kill(oracle), "the writer ended by itself"
            tally.add(oracle, f"seed {seed}, store {life}")
            shutil.rmtree(path, ignore_errors=True)
    return tally


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(470, id="suite"),
        pytest.param(20_000, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(7200)]),
    ],
)
def test_a_writer_that_is_killed_at_any_moment_keeps_what_it_confirmed(
    tmp_path: Path, kills: int
) -> None:
    tally = kill_at_random_moments(tmp_path, SEED, kills)
    record(
        "sigkill",
        kills=tally.crash_count,
        confirmed=tally.confirmed_count,
        violations=len(tally.violations),
        seed=SEED,
        interrupted=str(dict(tally.interrupted)),
    )
    assert tally.violations == []
    assert tally.crash_count == kills
    # The moments were spread: opening, upkeep and ordinary commits were all hit.
    assert {"open", "put", "take", "commit", "rotate"} <= tally.interrupted.keys()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(30, id="suite"),
        pytest.param(500, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(7200)]),
    ],
)
def test_a_writer_that_is_killed_at_a_certain_system_call_keeps_what_it_confirmed(
    tmp_path: Path, not_run: NotRun, kills: int
) -> None:
    not_run.unless_installed("strace")
    random = Random(SEED)
    oracle = Oracle(power=False)
    killed = 0
    for number in range(3 * kills):
        job = Job(path=str(tmp_path / f"store-{number // 10}"), seed=number, steps=STEPS_AT_CALL)
        if number % 10 == 0:
            oracle, earlier = Oracle(power=False), oracle
            oracle.violations = earlier.violations
        call = random.choice(list(CALLS))
        killed += kill_at_call(job, oracle, call, random.randint(1, CALLS[call]))
        if killed == kills:
            break
    record("sigkill at a call", kills=killed, violations=len(oracle.violations), seed=SEED)
    assert oracle.violations == []
    assert killed == kills


def test_a_store_that_was_set_back_is_found_out(tmp_path: Path) -> None:
    """The control: the oracle sees that an older copy lost what was confirmed since."""
    store, copy = tmp_path / "store", tmp_path / "copy"
    oracle = Oracle(power=False)
    with Writers() as writers:
        for seed in range(3):
            if seed == 1:
                shutil.copytree(store, copy)
            if seed == 2:
                shutil.rmtree(store)
                copy.rename(store)
                assert oracle.violations == []
            writers.start(Job(path=str(store), seed=seed), oracle)
            writers.listen(oracle, 2 * DELAY_SECONDS_MAX, after=Dumped)
            writers.kill(oracle)
    assert "lost" in oracle.violations[0]
