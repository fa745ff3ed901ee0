"""The crash matrix finds what a crash can break, names it, and finds nothing where all holds."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fifoq
from fifoq.testing import CrashFailure, Machine, NotRepeatable, Stuck, crash_matrix
from fifoq.testing.simfiles import SimFiles

ROOT = Path(__file__).parents[3]
PLUGIN = "fifoq.pytest_plugin"


async def orders(machine: Machine) -> None:
    async with fifoq.open("data") as q:
        for number in range(4):
            await q.put(b"%d" % number)
            machine.notes.append(b"%d" % number)


async def weak_orders(machine: Machine) -> None:
    """Says that it is durable what is in memory alone."""
    async with fifoq.open("data", durability="memory") as q:
        for number in range(4):
            await q.put(b"%d" % number)
            machine.notes.append(b"%d" % number)


async def nothing_is_lost(machine: Machine) -> None:
    async with fifoq.open("data") as q:
        found = [record.item async for record in q.browse()]
    assert found == [b"0", b"1", b"2", b"3"][: len(found)]
    assert len(found) >= len(machine.notes), found


async def filled(machine: Machine) -> None:
    async with fifoq.open_store("data") as store:
        await (await store.queue("orders")).put_many([b"a", b"b", b"c"])


async def moved_in_two_steps(machine: Machine) -> None:
    async with fifoq.open_store("data") as store:
        orders, bills = await store.queue("orders"), await store.queue("bills")
        for _ in range(3):
            await bills.put(await orders.take())


async def moved_at_once(machine: Machine) -> None:
    async with fifoq.open_store("data") as store:
        orders, bills = await store.queue("orders"), await store.queue("bills")
        for _ in range(3):
            async with store.transaction() as tx:
                delivery = await tx.lease(orders)
                tx.put(bills, delivery.item)
                tx.ack(delivery)


async def each_is_somewhere_once(machine: Machine) -> None:
    async with fifoq.open_store("data") as store:
        found = [
            record.item
            for name in ("bills", "orders")
            async for record in (await store.queue(name)).browse()
        ]
    assert found == [b"a", b"b", b"c"]


def test_what_is_confirmed_survives_every_kill_and_every_power_cut() -> None:
    killed = crash_matrix(orders, nothing_is_lost)
    both = crash_matrix(orders, nothing_is_lost, power=True)
    assert killed.points == killed.states >= 10
    assert both.points > killed.points
    assert both.states > 3 * both.points


def test_a_promise_that_is_not_kept_is_found_and_named_so_that_it_can_be_tried_again() -> None:
    with pytest.raises(CrashFailure) as caught:
        crash_matrix(weak_orders, nothing_is_lost)
    failure = caught.value
    assert isinstance(failure.__cause__, AssertionError)
    lines = str(failure).splitlines()
    assert lines[0].startswith(f"crash at {failure.at}, killed before disk call ")
    assert "the invariant does not hold: AssertionError: []" in lines[0]
    assert lines[-1] == (
        f'This one alone: crash_matrix(..., at="{failure.at}"), or pytest --crash-at={failure.at}'
    )
    with pytest.raises(CrashFailure) as again:
        crash_matrix(weak_orders, nothing_is_lost, at=failure.at)
    assert str(again.value) == str(failure)
    before = str(int(failure.at) - 1)
    assert crash_matrix(orders, nothing_is_lost, at=before, power=True).points == 1


def test_what_only_a_power_cut_breaks_is_found_by_power_alone() -> None:
    async def unsynced(machine: Machine) -> None:
        async with fifoq.open("data", durability="os") as q:
            await q.put(b"0")
            machine.notes.append(b"0")
            await q.put(b"1")

    assert crash_matrix(unsynced, nothing_is_lost).points
    with pytest.raises(CrashFailure, match="power cut before") as caught:
        crash_matrix(unsynced, nothing_is_lost, power=True)
    point, _, state = caught.value.at.partition(".")
    assert int(point) >= 1
    assert int(state) >= 1
    with pytest.raises(CrashFailure) as again:
        crash_matrix(unsynced, nothing_is_lost, power=True, at=caught.value.at)
    assert again.value.at == caught.value.at


def test_a_disk_that_ignores_syncs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what holds above holds because of the syncs."""
    monkeypatch.setattr(SimFiles, "datasync", lambda files, handle: None)
    assert crash_matrix(orders, nothing_is_lost).points
    with pytest.raises(CrashFailure, match="power cut before"):
        crash_matrix(orders, nothing_is_lost, power=True)


def test_two_steps_lose_what_one_transaction_does_not() -> None:
    with pytest.raises(CrashFailure):
        crash_matrix(moved_in_two_steps, each_is_somewhere_once, prepare=filled)
    report = crash_matrix(moved_at_once, each_is_somewhere_once, prepare=filled, power=True)
    assert report.points >= 10
    assert str(report).startswith(f"{report.points} crash points, {report.states} states, ")


def test_a_restart_that_does_not_survive_a_crash_is_found_by_two_of_them() -> None:
    async def comes_back_carelessly(machine: Machine) -> None:
        """Takes what is left, and then puts it back: right, if nothing happens in between."""
        async with fifoq.open_store("data") as store:
            orders = await store.queue("orders")
            left = [await orders.take() for _ in range(len(orders))]
            await orders.put_many(left)
        await each_is_somewhere_once(machine)

    once = crash_matrix(moved_at_once, comes_back_carelessly, prepare=filled)
    with pytest.raises(CrashFailure, match="and once more while it came back") as caught:
        crash_matrix(moved_at_once, comes_back_carelessly, prepare=filled, twice=True)
    with pytest.raises(CrashFailure) as again:
        crash_matrix(
            moved_at_once, comes_back_carelessly, prepare=filled, twice=True, at=caught.value.at
        )
    assert str(again.value) == str(caught.value)
    twice = crash_matrix(moved_at_once, each_is_somewhere_once, prepare=filled, twice=True)
    assert (twice.points, twice.states) == (once.points, 2 * once.states)


def test_parts_go_through_all_of_it_together() -> None:
    whole = crash_matrix(orders, nothing_is_lost, power=True)
    parts = [
        crash_matrix(orders, nothing_is_lost, power=True, part=(number, 3)) for number in (1, 2, 3)
    ]
    assert sum(part.points for part in parts) == whole.points
    assert sum(part.states for part in parts) == whole.states


@pytest.mark.parametrize("wrong", [{"part": (0, 0)}, {"part": (3, 2)}, {"states_max": 0}])
def test_parts_and_states_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        crash_matrix(orders, nothing_is_lost, **wrong)


def test_a_restart_that_hangs_is_a_failure() -> None:
    async def waits_for_ever(machine: Machine) -> None:
        async with fifoq.open("data") as q:
            await q.take()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(CrashFailure) as caught:
        crash_matrix(orders, waits_for_ever)
    assert isinstance(caught.value.__cause__, (Stuck, TimeoutError))


def test_a_scenario_that_is_not_the_same_again_and_a_state_that_is_not_there_are_told() -> None:
    runs: list[None] = []

    async def grows(machine: Machine) -> None:
        runs.append(None)
        async with fifoq.open("data") as q:
            for _ in runs:
                await q.put(b"x")

    async def anything(machine: Machine) -> None:
        pass

    with pytest.raises(NotRepeatable, match="a variable that outlives the function"):
        crash_matrix(grows, anything)
    with pytest.raises(ValueError, match="there is no state '99999' among"):
        crash_matrix(orders, anything, at="99999")


def test_what_the_scenario_raises_is_raised_as_it_is() -> None:
    async def broken(machine: Machine) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        crash_matrix(broken, nothing_is_lost)


def test_a_long_matrix_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fifoq.testing.matrix.PROGRESS_SECONDS", 0.0)
    told: list[str] = []
    report = crash_matrix(orders, nothing_is_lost, progress=told.append)
    assert len(told) == report.points
    assert told[0].startswith("crash matrix: at change 1 of ")
    assert told[-1].endswith(f" of the disk, {report.states} states hold")
    crash_matrix(orders, nothing_is_lost, at="3")
    assert capsys.readouterr().err.startswith("crash matrix: at change 3 of ")


def test_what_restarts_log_is_heard_of_one_state_alone(caplog: pytest.LogCaptureFixture) -> None:
    crash_matrix(orders, nothing_is_lost, power=True)
    assert caplog.records == []
    for point in range(1, 20):
        crash_matrix(orders, nothing_is_lost, power=True, at=str(point))
    assert {record.name for record in caplog.records} == {"store"}


SUITE = """
import fifoq

async def scenario(machine):
    async with fifoq.open("data", durability="memory") as q:
        await q.put(b"x")
        machine.notes.append(b"x")

async def holds(machine):
    async with fifoq.open("data") as q:
        assert len(q) <= 1

async def fails(machine):
    async with fifoq.open("data") as q:
        assert len(q) >= len(machine.notes)

def test_it_holds(crash_matrix):
    assert crash_matrix(scenario, holds, power=True).points

def test_it_fails(crash_matrix):
    crash_matrix(scenario, fails)

def test_it_runs(machine):
    machine.run(scenario(machine))
"""


def pytest_says(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", PLUGIN, *arguments]
    # Other people's plugins take longer to load than all of this to run.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_the_plugin_is_registered() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"fifoq": PLUGIN}


def test_the_plugin_brings_fixtures_says_the_counts_and_how_to_try_one_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    said = pytest_says(tmp_path)
    assert "1 failed, 2 passed" in said
    assert "crash matrix of test_suite.py::test_it_holds: " in said
    # With CI set pytest's summary says it a second time, in a line of its own making.
    (again,) = set(re.findall(r"pytest (\S+::test_it_fails --crash-at=\S+)", said))
    alone = pytest_says(tmp_path, *again.split())
    assert "1 failed" in alone
    assert again in alone
    assert "3 passed" in pytest_says(tmp_path, "--crash-part=7/90")
    assert "--crash-part is like 2/4" in pytest_says(tmp_path, "--crash-part=3/2")
