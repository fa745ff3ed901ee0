"""Durable timers: set with a step, told when their time has come, over restarts."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct

from actors.testing import settle
from fifoq import Actor, Context
from tests.durable.support import Deposit, Town, account, balance, wall_follows_loop

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
