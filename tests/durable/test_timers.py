"""Durable timers: set with a step, told when their time has come, over restarts."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec import Struct

from actors import Router
from actors.testing import settle
from fifoq import Actor, ActorSystem, Context
from fifoq.durable.letters import write_letter
from fifoq.durable.steps import Step
from fifoq.durable.timers import DUE_HEADER, EVERY_HEADER, NAME_HEADER
from tests.durable.support import AT_ONCE, Deposit, Town, account, balance, wall_follows_loop

pytestmark = pytest.mark.anyio


class Heard(Struct):
    names: list[str] = []
    times: list[float] = []


class Clock(Actor[str]):
    """Sets timers as it is told, and notes what they tell it and when."""

    state: Heard

    async def receive(self, message: str, ctx: Context[str]) -> None:
        self.state.names.append(message)
        self.state.times.append(asyncio.get_running_loop().time())
        match message:
            case "once":
                ctx.schedule("rang", delay=5)
            case "often":
                ctx.schedule("tick", every=10, name="beat")
            case "sooner":
                ctx.schedule("tock", delay=1, name="beat")
            case "quiet":
                ctx.unschedule("beat")
            case "both":
                ctx.schedule("never", delay=1, name="x")
                ctx.unschedule("x")
                ctx.schedule("again", delay=1, name="x")
            case "fail":
                ctx.schedule("never", delay=1)
                ctx.unschedule("beat")
                raise ValueError("fail")
            case "others":
                ctx.schedule(Deposit(5), to="alice", delay=60)
            case "get":
                ctx.reply(self.state.names)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_follows_loop(monkeypatch)


async def test_a_timer_rings_when_its_time_has_come(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("once")
        await asyncio.sleep(4.9)
        assert await ref.ask("get") == ["once", "get"]
        await asyncio.sleep(0.2)
        assert await ref.ask("get") == ["once", "get", "rang", "get"]


async def test_timers_go_on_over_restarts(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        for message in ("once", "often", "others"):
            await ref.tell(message)
        await settle()
        town = town.after_crash()
    await asyncio.sleep(25)
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await asyncio.sleep(1)
        # Both came due while nobody ran; the one that repeats itself rings once for that.
        told = await ref.ask("get")
        assert sorted(told[3:]) == ["get", "rang", "tick"]  # type: ignore[index]
        await asyncio.sleep(10)
        assert (await ref.ask("get"))[6:] == ["tick", "get"]  # type: ignore[index]
        await asyncio.sleep(40)
        assert await balance(await account(system)) == 5


async def test_a_timer_is_replaced_by_one_of_its_name_and_can_be_forgotten(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("often")
        await asyncio.sleep(25)
        await ref.tell("sooner")
        await asyncio.sleep(20)
        assert await ref.ask("get") == ["often", "tick", "tick", "sooner", "tock", "get"]
        await ref.tell("often")
        await settle()
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("quiet")
        await asyncio.sleep(30)
        assert (await ref.ask("get"))[6:] == ["often", "quiet", "get"]  # type: ignore[index]
        timers = system._office.timers  # type: ignore[union-attr]
        assert len(timers._queue) == 0
        assert not timers._named


async def test_what_is_set_and_forgotten_in_one_frame_never_rings(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("both")
        await asyncio.sleep(5)
        assert await ref.ask("get") == ["both", "again", "get"]
        await asyncio.gather(ref.tell("often"), ref.tell("quiet"))
        await asyncio.sleep(30)
        assert (await ref.ask("get"))[3:] == ["often", "quiet", "get"]  # type: ignore[index]


async def test_a_handler_that_fails_sets_and_forgets_nothing(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("often")
        await ref.tell("fail")
        await asyncio.sleep(9.9)
        assert await ref.ask("get") == ["often", "get"]
        await asyncio.sleep(1)
        assert await ref.ask("get") == ["often", "get", "tick", "get"]


async def test_a_durable_timer_needs_a_durable_actor(town: Town) -> None:
    class Setter(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            with pytest.raises(TypeError, match="is in memory alone"):
                ctx.schedule("x", to="memory", delay=1)
            ctx.reply("refused")

    class Plain(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None: ...

    async with town.system() as system:
        await system.spawn(Plain, name="memory")
        ref = await system.spawn(Setter, name="setter", durable=True)
        assert await ref.ask("go") == "refused"


async def test_what_is_no_letter_is_in_no_timers_way(town: Town) -> None:
    async with town.system() as system:
        queue = system._office.timers._queue  # type: ignore[union-attr]
        await queue.put(b"\xc1", delay=1)
        await queue.put(b"\xc1", delay=1000)
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("once")
        await asyncio.sleep(10)
        assert await ref.ask("get") == ["once", "rang", "get"]
        assert len(queue) == 2
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        assert await ref.ask("get") == ["once", "rang", "get", "get"]


@pytest.mark.parametrize("wrong", [{"every": 1e-10}, {"delay": 1e12}, {"delay": float("nan")}])
async def test_times_that_no_clock_has_are_refused(town: Town, wrong: dict[str, float]) -> None:
    class Setter(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            with pytest.raises(ValueError, match="Nothing was changed"):
                ctx.schedule("x", name="t", **wrong)
            ctx.schedule("far", delay=1 << 33, every=1 << 33)
            ctx.reply("refused")

    for _ in range(2):
        async with town.system() as system:
            ref = await system.spawn(Setter, name="setter", durable=True)
            assert await ref.ask("go") == "refused"
            await asyncio.sleep(1)


@pytest.mark.parametrize("every", ["1e-10", "1e300", "nan", "x"])
@pytest.mark.parametrize("due", ["0", "9" * 30, "x"])
async def test_numbers_on_disk_that_nobody_could_ask_for_end_nothing(
    town: Town, every: str, due: str
) -> None:
    for _ in range(2):
        async with town.system() as system:
            queue = system._office.timers._queue  # type: ignore[union-attr]
            for more in ({}, {NAME_HEADER: "n"}):
                headers = {EVERY_HEADER: every, DUE_HEADER: due, **more}
                await queue.put(write_letter("nobody", b"\xa1x", headers))
            ref = await system.spawn(Clock, name="clock", durable=True)
            await asyncio.sleep(0.005)
            assert "get" in await ref.ask("get")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["bad name", "", "/"])
async def test_a_timer_needs_the_name_of_an_actor(town: Town, name: str) -> None:
    class Setter(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            with pytest.raises(ValueError, match="can not be the name of a durable actor"):
                ctx.schedule("x", to=name, delay=1)
            ctx.reply("refused")

    async with town.system() as system:
        ref = await system.spawn(Setter, name="setter", durable=True)
        assert await ref.ask("go") == "refused"


async def test_a_timer_may_have_an_empty_name(town: Town) -> None:
    """It was kept under no name and looked for under one: it never rang."""

    class Setter(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            if message == "go":
                ctx.schedule("replaced", to="clock", delay=1, name="")
                ctx.schedule("rang", to="clock", delay=1, name="")

    async with town.system() as system:
        clock = await system.spawn(Clock, name="clock", durable=True)
        setter = await system.spawn(Setter, name="setter", durable=True)
        await setter.tell("go")
        await asyncio.sleep(2)
        assert await clock.ask("get") == ["rang", "get"]


async def test_a_timer_with_a_name_is_for_one_actor(town: Town) -> None:
    class Setter(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            with pytest.raises(ValueError, match="'n' would be for 2"):
                ctx.schedule("x", to="all", delay=1, name="n")
            with pytest.raises(TypeError, match="is in memory alone"):
                ctx.schedule("x", to=mixed, delay=1)
            ctx.schedule("rang", to="all", delay=1)

    async with town.system() as system:
        pool = await system.pool(Clock, size=2, name="all", durable=True, routing="broadcast")
        memory = await system.spawn(Setter, name="memory")
        mixed: Router[str] = Router([*pool.members, memory], routing="broadcast")
        setter = await system.spawn(Setter, name="setter", durable=True, mailbox=AT_ONCE)
        await setter.tell("go")
        await asyncio.sleep(2)
        for member in pool.members:
            assert await member.ask("get") == ["rang", "get"]


@pytest.mark.parametrize("last", ["quiet", "often", "sooner"])
@pytest.mark.parametrize("first", ["step", "ring"])
async def test_a_timer_that_rings_while_a_step_changes_it_stays_one(
    town: Town, last: str, first: str
) -> None:
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        await ref.tell("often")
        await asyncio.sleep(9)
        with _Held(system) as held:
            if first == "step":
                await ref.tell(last)
            await asyncio.sleep(2)
            if first == "ring":
                await ref.tell(last)
                await settle()
        await held.steps.flush()
        assert len(held.timers._queue) == len(held.timers._named) == (last != "quiet")
        await asyncio.sleep(11)
        told = await ref.ask("get")
        ticks = ["tick"] if first == "ring" else []
        after = {"quiet": [], "often": ["tick"], "sooner": ["tock"]}[last]
        assert sorted(told) == sorted(["often", last, *ticks, *after, "get"])  # type: ignore[call-overload]


@pytest.mark.parametrize("seed", range(12))
async def test_there_is_one_timer_of_a_name_whatever_comes_first(town: Town, seed: int) -> None:
    chance = random.Random(seed)
    async with town.system() as system:
        ref = await system.spawn(Clock, name="clock", durable=True)
        timers = system._office.timers  # type: ignore[union-attr]
        last = "quiet"
        for _ in range(12):
            with _Held(system) as held:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(chance.choice((0, 0, 1, 9, 10, 11)))
                    last = chance.choice(("often", "often", "sooner", "quiet"))
                    await ref.tell(last)
                await asyncio.sleep(chance.choice((0, 1, 10)))
            await held.steps.flush()
            assert len(timers._queue) == len(timers._named) <= (last != "quiet")
            await asyncio.sleep(chance.choice((0, 1, 10)))
            assert last != "often" or len(timers._named) == 1
    async with town.system() as system:
        timers = system._office.timers  # type: ignore[union-attr]
        assert len(timers._queue) == len(timers._named) <= (last != "quiet")


class _Held:
    """Steps wait for one that is under way, as long as this lasts."""

    def __init__(self, system: ActorSystem) -> None:
        office = system._office
        assert office is not None
        self.steps, self.timers = office.post.steps, office.timers

    def __enter__(self) -> _Held:
        assert not self.steps._under_way
        self.steps._under_way = [Step()]
        return self

    def __exit__(self, *_: object) -> None:
        self.steps._under_way = []
        self.steps._submit()
