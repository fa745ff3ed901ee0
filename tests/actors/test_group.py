"""Group restarts: who is taken along, in which order, and what becomes of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors import Actor, ActorStopped, ActorSystem, Context, Ref, Scope, Supervision
from actors.group import IN_HAND_SECONDS
from actors.testing import settle

pytestmark = pytest.mark.anyio

Log = list[str]


class Member(Actor[str]):
    """Notes what happens to it in a list shared by all; `boom` raises, `wait` waits a second."""

    def __init__(self, name: str, log: Log) -> None:
        self.name, self.log = name, log

    async def on_restart(self, error: Exception, ctx: Context[str]) -> None:
        self.log.append(f"{self.name} again: {error}")

    async def on_start(self, ctx: Context[str]) -> None:
        await asyncio.sleep(0)
        self.log.append(f"+{self.name}")

    async def on_stop(self, ctx: Context[str]) -> None:
        await asyncio.sleep(0)
        self.log.append(f"-{self.name}")

    async def receive(self, message: str, ctx: Context[str]) -> None:
        match message:
            case "boom":
                raise ValueError(f"boom in {self.name}")
            case "wait":
                await asyncio.sleep(1)
            case "hang":
                await asyncio.sleep(1e9)
        self.log.append(f"{self.name} {message}")
        ctx.reply(self.name)


def rules(scope: Scope, **options: float) -> Supervision:
    return Supervision(scope=scope, **{"backoff_seconds": 0, "jitter": 0, **options})  # type: ignore[arg-type]


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def spawned(system: ActorSystem, log: Log, supervision: Supervision) -> list[Ref[str]]:
    """Three siblings, a, b and c, at the top of the system."""
    refs = [
        await system.spawn(Member, name, log, name=name, supervision=supervision) for name in "abc"
    ]
    log.clear()
    return refs


async def test_one_for_all_stops_the_youngest_first_and_starts_the_oldest_first(
    system: ActorSystem,
) -> None:
    log: Log = []
    a, b, c = await spawned(system, log, rules("one-for-all"))
    for ref in (c, b, a):
        ref.tell_nowait("boom" if ref is b else "first")
        ref.tell_nowait("second")
    await settle()
    restart = ["-c", "-b", "-a"]
    for name in "abc":
        restart += [f"{name} again: boom in b", f"+{name}"]
    assert [line for line in log if line[-4:] not in ("irst", "cond")] == restart
    assert log.index("+b") < log.index("b second")
    assert sorted(line for line in log if "second" in line) == ["a second", "b second", "c second"]
    assert [ref.generation for ref in (a, b, c)] == [1, 1, 1]
    assert [ref.stats().failed for ref in (a, b, c)] == [0, 1, 0]


async def test_rest_for_one_takes_along_only_those_that_were_spawned_later(
    system: ActorSystem,
) -> None:
    log: Log = []
    a, b, c = await spawned(system, log, rules("rest-for-one"))
    await b.tell("boom")
    await settle()
    assert log == ["-c", "-b", "b again: boom in b", "+b", "c again: boom in b", "+c"]
    assert [ref.generation for ref in (a, b, c)] == [0, 1, 1]


async def test_one_for_one_takes_nobody_along(system: ActorSystem) -> None:
    log: Log = []
    refs = await spawned(system, log, rules("one-for-one"))
    await refs[1].tell("boom")
    await settle()
    assert log == ["-b", "b again: boom in b", "+b"]
    assert [ref.generation for ref in refs] == [0, 1, 0]


async def test_the_children_of_one_parent_are_a_group_of_their_own(system: ActorSystem) -> None:
    log: Log = []

    class Parent(Member):
        async def on_start(self, ctx: Context[str]) -> None:
            for name in "xy":
                ctx.spawn(Member, name, log, name=name, supervision=rules("one-for-all"))

    parent = await system.spawn(Parent, "parent", log, name="parent")
    other = await system.spawn(Member, "other", log)
    await settle()
    log.clear()
    child = system.find("parent/x", Member)
    assert child is not None
    await child.tell("boom")
    await settle()
    assert [line for line in log if line[0] in "+-"] == ["-y", "-x", "+x", "+y"]
    assert (parent.generation, other.generation) == (0, 0)


async def test_a_sibling_finishes_the_message_in_hand_first(system: ActorSystem) -> None:
    log: Log = []
    a, _, c = await spawned(system, log, rules("one-for-all"))
    asking = asyncio.create_task(c.ask("wait"))
    await settle()
    await a.tell("boom")
    assert await asking == "c"
    await settle()
    assert log[:4] == ["c wait", "-c", "-b", "-a"]


async def test_a_message_in_hand_that_takes_too_long_is_cut_short(system: ActorSystem) -> None:
    """Otherwise siblings that wait for each other's replies would never restart."""
    log: Log = []
    a, _, c = await spawned(system, log, rules("one-for-all"))
    asking = asyncio.create_task(c.ask("hang", timeout=None))
    await settle()
    await c.tell("next")
    await a.tell("boom")
    with pytest.raises(ActorStopped):
        await asking
    assert asyncio.get_running_loop().time() == IN_HAND_SECONDS
    await settle()
    assert log[:3] == ["-c", "-b", "-a"]
    assert log[-1] == "c next"


async def test_the_backoff_of_the_one_that_failed_holds_for_all(system: ActorSystem) -> None:
    log: Log = []
    a, b, _ = await spawned(system, log, rules("one-for-all", backoff_seconds=2))
    await a.tell("boom")
    await settle()
    assert log == ["-c", "-b", "-a"]
    assert await b.ask("hello") == "b"
    assert asyncio.get_running_loop().time() == 2


async def test_restarts_of_siblings_count_for_all_of_them(system: ActorSystem) -> None:
    """Members that fail in turn are one group that fails too often."""
    log: Log = []
    refs = await spawned(system, log, rules("one-for-all", max_restarts=2))
    for ref in refs[:2]:
        await ref.tell("boom")
        await settle()
    await refs[2].tell("boom")
    with pytest.raises(ValueError, match="boom in c"):
        await system.wait_until_stopped()
    assert [ref.generation for ref in refs] == [2, 2, 2]


async def test_two_siblings_that_fail_at_once_restart_the_group_without_a_dead_end(
    system: ActorSystem,
) -> None:
    log: Log = []
    a, b, c = await spawned(system, log, rules("one-for-all"))
    a.tell_nowait("boom")
    c.tell_nowait("boom")
    await settle()
    assert [await ref.ask("hello") for ref in (a, b, c)] == ["a", "b", "c"]
    assert a.generation == b.generation == c.generation


async def test_a_member_whose_start_fails_leads_the_next_round(system: ActorSystem) -> None:
    fail = False

    class Fragile(Member):
        async def on_start(self, ctx: Context[str]) -> None:
            nonlocal fail
            if fail:
                fail = False
                raise OSError("not yet")
            await super().on_start(ctx)

    log: Log = []
    refs = [
        await system.spawn(Fragile, name, log, supervision=rules("one-for-all")) for name in "ab"
    ]
    fail = True
    await refs[1].tell("boom")
    await settle()
    assert [await ref.ask("hello") for ref in refs] == ["a", "b"]
    assert [ref.generation for ref in refs] == [2, 2]


async def test_a_member_that_is_stopped_during_the_backoff_is_not_waited_for(
    system: ActorSystem,
) -> None:
    log: Log = []
    a, b, c = await spawned(system, log, rules("one-for-all", backoff_seconds=5))
    await a.tell("boom")
    await settle()
    assert await b.stop(1) == 0
    assert await c.ask("hello") == "c"
    assert asyncio.get_running_loop().time() == 5


async def test_a_leader_that_is_stopped_during_the_backoff_lets_the_others_go_on(
    system: ActorSystem,
) -> None:
    log: Log = []
    a, b, _ = await spawned(system, log, rules("one-for-all", backoff_seconds=5))
    await a.tell("boom")
    await settle()
    await a.stop(1)
    assert await b.ask("hello") == "b"
    assert asyncio.get_running_loop().time() == 1


async def test_a_sibling_in_its_own_backoff_is_taken_along(system: ActorSystem) -> None:
    log: Log = []
    single = rules("one-for-one", backoff_seconds=3)
    a = await system.spawn(Member, "a", log, supervision=single)
    b = await system.spawn(Member, "b", log, supervision=rules("one-for-all"))
    await a.tell("boom")
    await settle()
    await b.tell("boom")
    await settle()
    assert [await ref.ask("hello") for ref in (a, b)] == ["a", "b"]
    assert [ref.generation for ref in (a, b)] == [2, 1]


async def test_a_stop_of_the_system_ends_a_group_restart(system: ActorSystem) -> None:
    log: Log = []
    refs = await spawned(system, log, rules("one-for-all", backoff_seconds=9))
    await refs[0].tell("boom")
    for ref in refs:
        await ref.tell("left")
    await settle()
    assert await system.stop(1) == 3
    assert asyncio.get_running_loop().time() == 1


async def test_an_actor_that_fails_too_often_may_just_stop(system: ActorSystem) -> None:
    supervision = Supervision(max_restarts=1, backoff_seconds=0, exhausted="stop")
    ref = await system.spawn(Member, "a", [], supervision=supervision)
    for _ in range(2):
        await ref.tell("boom")
    await settle()
    assert (ref.stats().state, ref.generation) == ("stopped", 1)
    assert await system.stop() == 0
