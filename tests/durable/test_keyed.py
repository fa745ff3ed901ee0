"""Keyed actors, pools and routers of durable actors, and a system that drains."""

from __future__ import annotations

import asyncio
from random import Random
from typing import ClassVar

import pytest
from msgspec import Struct

from actors import Keyed, Terminated
from actors.testing import settle
from fifoq import Actor, ActorSystem, Context, DurableMailbox
from tests.durable.support import (
    Account,
    Balance,
    Boom,
    Deposit,
    Message,
    Town,
    Transfer,
    account,
    balance,
    wall_follows_loop,
)
from tests.fifoq.support import Cuts

pytestmark = pytest.mark.anyio


async def accounts(system: ActorSystem, **options: float) -> Keyed[Message]:
    return await system.keyed(lambda _: Account(), name="accounts", durable=True, **options)  # type: ignore[arg-type]


async def test_what_a_keyed_actor_knows_outlives_its_passivation(town: Town) -> None:
    async with town.system() as system:
        keyed = await accounts(system, idle_seconds=5)
        await keyed.tell("alice", Deposit(5))
        await asyncio.sleep(11)
        assert (keyed.stats().active, keyed.stats().passivated) == (0, 1)
        assert await keyed.ask("alice", Balance()) == 5
        assert keyed.stats().activated == 2


async def test_a_step_tells_keyed_actors_that_are_not_there(town: Town) -> None:
    """By name and by ref: the letter is part of the step, and activates whom it is for."""

    class Teller(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            ctx.tell(keyed.ref("by-ref"), message)
            ctx.tell("accounts/by-name", message)

    async with town.system() as system:
        keyed = await accounts(system)
        teller = await system.spawn(Teller, name="teller", durable=True)
        await teller.tell(Deposit(3))
        await settle()
        assert keyed.stats().active == 2
        assert [await keyed.ask(key, Balance()) for key in ("by-ref", "by-name")] == [3, 3]


async def test_letters_of_an_earlier_life_activate_keyed_actors(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        for key in ("bob", "carol"):
            await alice.tell(Transfer(f"accounts/{key}", 7))
        await settle()
        assert await balance(alice) == -14
    async with town.system() as system:
        keyed = await accounts(system, active_max=1)
        await asyncio.sleep(1)
        assert keyed.stats().activated == 2
        assert [await keyed.ask(key, Balance()) for key in ("bob", "carol")] == [7, 7]


async def test_a_crash_loses_nothing_that_a_keyed_actor_was_told(town: Town) -> None:
    system = await town.system().start()
    keyed = await accounts(system)
    for number in range(20):
        await keyed.tell(f"k{number % 4}", Deposit(number))
    after = town.after_crash()
    async with after.system() as again:
        keyed = await accounts(again)
        found = [await keyed.ask(f"k{number}", Balance(), returns=int) for number in range(4)]
        assert found == [sum(range(number, 20, 4)) for number in range(4)]
    await system.stop(0)


class Wind(Struct, tag=True, frozen=True):
    pass


class Ring(Struct, tag=True, frozen=True):
    pass


class Clock(Actor[Wind | Ring]):
    """Rings a minute after it was wound."""

    rung = 0

    async def receive(self, message: Wind | Ring, ctx: Context[Wind | Ring]) -> None:
        if isinstance(message, Wind):
            ctx.schedule(Ring(), delay=60)
        else:
            Clock.rung += 1


async def test_a_timer_activates_the_actor_that_set_it(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_follows_loop(monkeypatch)
    monkeypatch.setattr(Clock, "rung", 0)
    async with town.system() as system:
        keyed = await system.keyed(lambda _: Clock(), name="clocks", durable=True, idle_seconds=5)
        await keyed.tell("a", Wind())
        await asyncio.sleep(30)
        assert (keyed.stats().active, Clock.rung) == (0, 0)
        await asyncio.sleep(35)
        assert (keyed.stats().activated, Clock.rung) == (2, 1)


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_while_keyed_actors_come_and_go(town: Town, seed: int) -> None:
    random = Random(seed)
    keys = [f"k{number}" for number in range(12)]
    async with town.system(durability="memory") as system:
        keyed = await accounts(system, idle_seconds=0.02, active_max=3)

        async def send(sender: int) -> None:
            for _ in range(25):
                if random.random() < 0.5:
                    await keyed.tell(random.choice(keys), Deposit(1))
                else:
                    there = f"accounts/{random.choice(keys)}"
                    await keyed.tell(random.choice(keys), Transfer(there, random.randrange(9)))
                    told.append(1)
                if random.random() < 0.3:
                    await asyncio.sleep(random.choice((0, 0.01, 0.05)))

        told: list[int] = []
        await asyncio.gather(*(send(sender) for sender in range(5)))
        await asyncio.sleep(1)
        total = 0
        for key in keys:
            total += await keyed.ask(key, Balance(), returns=int)
        assert total == 125 - len(told)
        assert keyed.stats().active <= 3


async def test_a_pool_of_durable_actors_keeps_what_it_was_told(town: Town) -> None:
    async with town.system() as system:
        pool = await system.pool(Account, size=3, name="pool", durable=True, routing="broadcast")
        await pool.tell(Deposit(2))

        class Teller(Actor[Deposit]):
            async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
                ctx.tell(pool, message)
                ctx.tell("pool", Deposit(10))

        teller = await system.spawn(Teller, name="teller", durable=True)
        await teller.tell(Deposit(5))
        await settle()
        assert [await member.ask(Balance()) for member in pool.members] == [17, 17, 17]
        with pytest.raises(TypeError, match="a broadcast has many answers"):
            await system.ask("pool", Balance(), id="once")
    async with town.system() as system:
        pool = await system.pool(
            Account, size=3, name="pool", durable=True, routing="by-key", key=lambda _: "a"
        )
        assert [await member.ask(Balance()) for member in pool.members] == [17, 17, 17]
        assert await system.ask(pool, Balance(), id="once") == 17
        assert await system.ask("pool", Balance(), id="by name") == 17


async def test_a_pool_counts_the_dead_letters_of_its_members(town: Town) -> None:
    async with town.system() as system:
        once = DurableMailbox(max_retries=0)
        pool = await system.pool(Account, size=2, name="pool", durable=True, mailbox=once)
        for _ in range(3):
            await pool.tell(Boom())
        await settle()
        assert (pool.stats().dead_letters, system.stats().dead_letters) == (3, 3)


async def test_a_step_tells_keyed_actors_in_memory_by_name(town: Town) -> None:
    """Not through the store, where nobody would ever fetch it."""

    class Teller(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            ctx.tell("memory/a", message)

    class Note(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            noted.append(message.amount)

    noted: list[int] = []
    async with town.system() as system:
        await system.keyed(lambda _: Note(), name="memory")
        teller = await system.spawn(Teller, name="teller", durable=True)
        await teller.tell(Deposit(8))
        await settle()
        assert noted == [8]


class Guard(Actor[Deposit | Terminated]):
    """Watches one that stops by itself."""

    seen: ClassVar[list[Terminated]] = []

    async def on_start(self, ctx: Context[Deposit | Terminated]) -> None:
        ctx.watch(ctx.spawn(Account, name="child", durable=True))

    async def receive(
        self, message: Deposit | Terminated, ctx: Context[Deposit | Terminated]
    ) -> None:
        if isinstance(message, Terminated):
            self.seen.append(message)


async def test_a_durable_actor_is_told_that_another_has_ended(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "seen", [])
    async with town.system() as system:
        await system.spawn(Guard, name="guard", durable=True)
        child = system.find("guard/child")
        assert child is not None
        await child.stop()
        await settle()
        assert Guard.seen == [Terminated(name="guard/child", generation=0)]


async def test_an_ask_with_an_id_reaches_a_keyed_actor(town: Town) -> None:
    async with town.system() as system:
        keyed = await accounts(system)
        await keyed.tell("alice", Deposit(4))
        await keyed.ref("alice").stop()
        assert await system.ask(keyed.ref("alice"), Balance(), id="a") == 4
        memory = await system.keyed(lambda _: Account(), name="memory")
        with pytest.raises(TypeError, match="'memory/x' is not a durable one"):
            await system.ask(memory.ref("x"), Balance(), id="b")


async def test_a_step_that_ends_while_the_system_drains_tells_through_the_disk(town: Town) -> None:
    """The ref is closed to the outside by then; the letter still belongs to the step."""

    class Slow(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            await asyncio.sleep(1)
            ctx.tell(older, message)

    async with town.system() as system:
        older = await account(system)
        slow = await system.spawn(Slow, name="slow", durable=True)
        await slow.tell(Deposit(6))
        await slow.tell(Deposit(60))
        await settle()
        assert await system.stop(5) == 0
        assert system.stats().cut_short == 0
    async with town.system() as system:
        assert await balance(await account(system)) == 6
        older = await account(system, "other")
        again = await system.spawn(Slow, name="slow", durable=True)
        await asyncio.sleep(2)
        assert (await balance(older), again.stats().handled) == (60, 1)


class Branch(Account):
    """An account that pays to others by their refs, which are those of keys."""

    keyed: ClassVar[Keyed[Message]]

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        if isinstance(message, Transfer):
            self.state.balance -= message.amount
            ctx.tell(self.keyed.ref(message.to), Deposit(message.amount))
        else:
            await super().receive(message, ctx)


async def branches(system: ActorSystem) -> Keyed[Message]:
    Branch.keyed = await system.keyed(lambda _: Branch(), name="b", durable=True, active_max=2)
    return Branch.keyed


async def test_what_keyed_actors_tell_each_other_survives_a_cut_at_any_moment(town: Town) -> None:
    """A message that went to a key in memory, after the step, would be lost by some of the cuts."""
    names = ("x", "y", "z")
    async with town.system() as system:
        keyed = await branches(system)
        for name in names:
            await keyed.tell(name, Deposit(100))
    with Cuts(town.files, limit=1, samples=1) as cuts:
        async with town.system() as system:
            keyed = await branches(system)
            for number in range(4):
                await keyed.tell(names[number % 3], Transfer(names[(number + 1) % 3], 1 + number))
            await asyncio.sleep(1)
    for disk in cuts.disks[:: max(1, len(cuts.disks) // 14)]:
        async with Town(disk).system() as system:
            keyed = await branches(system)
            await asyncio.sleep(1)
            found = [await keyed.ask(name, Balance(), returns=int) for name in names]
            assert sum(found) == 300
