"""The simulated machine: any program with stores runs on it, and it can be killed and unplugged."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

import fifoq
from fifoq import Actor, ActorSystem, Context
from fifoq.testing import Machine, Probe, Stuck


async def put_some(machine: Machine) -> None:
    async with fifoq.open("data/orders") as q:
        for number in range(3):
            await q.put(b"%d" % number)
            machine.notes.append(number)


async def left() -> list[bytes]:
    async with fifoq.open("data/orders") as q:
        return [record.item async for record in q.browse()]


def test_stores_are_on_the_machine_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = Machine()
    machine.run(put_some(machine))
    assert machine.run(left()) == [b"0", b"1", b"2"]
    assert machine.notes == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []
    assert Machine().run(left()) == []
    assert asyncio.run(left()) == []
    assert (tmp_path / "data/orders").is_dir()


def test_others_look_at_a_store_of_the_machine_too() -> None:
    async def main() -> int:
        async with fifoq.open("data") as q:
            await q.put(b"x")
            async with fifoq.open_store("data", read_only=True) as store:
                return (await (await store.queue("main")).stats()).current_size

    assert Machine().run(main()) == 1


def test_time_and_chance_are_the_machine_s_and_nobody_else_s() -> None:
    async def main() -> list[float]:
        seen = [time.time(), float(time.time_ns()), random.random()]
        await asyncio.sleep(24 * 3600)
        return [*seen, time.time()]

    real = time.time()
    before = random.getstate()
    machine = Machine()
    first = machine.run(main())
    assert first[0] == 1767225600.0
    assert first[1] == 1767225600e9
    assert first[3] == first[0] + 24 * 3600
    assert machine.seconds == 24 * 3600
    assert machine.run(main())[0] == first[3]
    assert Machine().run(main()) == first
    assert Machine(seed=1).run(main())[2] != first[2]
    assert real <= time.time() < real + 600
    assert random.getstate() == before


def test_what_was_delayed_comes_in_time_also_after_a_restart() -> None:
    async def late() -> None:
        async with fifoq.open("data") as q:
            await q.put(b"x", delay=3600)
            await asyncio.sleep(1800)

    async def take() -> bytes:
        async with fifoq.open("data") as q:
            return await q.take()

    machine = Machine()
    machine.run(late())
    assert machine.run(take()) == b"x"
    assert 3600 <= machine.seconds < 3601


def test_a_killed_process_leaves_what_it_wrote_and_a_power_cut_what_it_synced() -> None:
    async def main(machine: Machine) -> tuple[Machine, list[Machine]]:
        async with fifoq.open("data/orders") as q:
            await q.put(b"synced")
            await q.put(b"written", durability="os")
            await q.put(b"held", durability="memory")
            machine.notes.append("three")
            return machine.killed(), list(machine.unplugged(states_max=5))

    machine = Machine()
    killed, unplugged = machine.run(main(machine))
    assert killed.run(left()) == [b"synced", b"written"]
    assert killed.notes == ["three"]
    found = [each.run(left()) for each in unplugged]
    assert 2 <= len(found) <= 5
    assert found[0] == [b"synced"]
    assert [b"synced", b"written"] in found
    assert machine.run(left()) == [b"synced", b"written", b"held"]


def test_a_full_disk_is_told() -> None:
    async def main() -> None:
        async with fifoq.open("data") as q:
            with pytest.raises(fifoq.DiskFull):
                await q.put_many([bytes(1 << 20)] * 12)
            await q.put(b"there is room for this")

    Machine(capacity=8 << 20).run(main())


def test_a_program_that_can_not_go_on_and_a_second_one_at_once_are_told() -> None:
    machine = Machine()

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    async def nested() -> None:
        with pytest.raises(RuntimeError, match="runs a program already"):
            machine.run(stuck())

    with pytest.raises(Stuck):
        machine.run(stuck())
    machine.run(nested())
    assert repr(machine) == "<Machine seconds=0.000 notes=0 off>"


class Clerk(Actor[str]):
    """Tells whoever has the name of the probe."""

    async def receive(self, message: str, ctx: Context[str]) -> None:
        ctx.tell("probe", message.upper())


def test_a_probe_hears_of_a_step_of_a_durable_actor() -> None:
    async def main() -> None:
        async with ActorSystem("data") as system:
            probe = await Probe[str].spawn(system)
            clerk = await system.spawn(Clerk, name="clerk", durable=True)
            await clerk.tell("tea")
            await probe.expect("TEA")
            await probe.expect_nothing(seconds=60)

    Machine().run(main())
