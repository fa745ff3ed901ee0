"""Pools and routers: who gets a message, and what becomes of a member that fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

import pytest

from actors import (
    Actor,
    ActorStopped,
    ActorSystem,
    AskTimeout,
    Context,
    MailboxOptions,
    Ref,
    Router,
    Routing,
    Supervision,
)
from actors.testing import settle
from tests.actors.support import AT_ONCE

pytestmark = pytest.mark.anyio


class Worker(Actor[str]):
    """Notes its name with each message; `boom` raises, `wait…` waits a second."""

    def __init__(self, log: list[tuple[str, str]]) -> None:
        self.log = log

    async def receive(self, message: str, ctx: Context[str]) -> None:
        self.log.append((ctx.self_ref.name, message))
        if message.startswith("wait"):
            await asyncio.sleep(1)
        if message == "boom":
            raise ValueError("boom")
        ctx.reply(ctx.self_ref.name)


Log = list[tuple[str, str]]


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=5) as system:
        yield system


async def test_round_robin_takes_one_after_the_other(system: ActorSystem) -> None:
    pool = await system.pool(Worker, [], size=3, name="pool")
    found = [await pool.ask("who") for _ in range(4)]
    assert found == ["pool/1", "pool/2", "pool/3", "pool/1"]
    assert [member.name for member in pool.members] == ["pool/1", "pool/2", "pool/3"]


async def test_least_loaded_passes_over_those_that_are_busy(system: ActorSystem) -> None:
    log: Log = []
    pool = await system.pool(Worker, log, size=3, name="pool", routing="least-loaded")
    for number in range(3):
        await pool.tell(f"wait {number}")
        await settle()
    assert sorted(name for name, _ in log) == ["pool/1", "pool/2", "pool/3"]
    await pool.members[0].tell("x")
    await pool.members[1].tell("x")
    await pool.tell("here")
    await pool.stop()
    assert ("pool/3", "here") in log


async def test_a_key_has_its_member_and_keeps_it_when_another_is_gone(system: ActorSystem) -> None:
    pool = await system.pool(
        Worker, [], size=4, name="pool", routing="by-key", key=lambda message: message
    )
    keys = [f"customer {number}" for number in range(400)]
    before = {key: await pool.ask(key) for key in keys}
    assert before == {key: await pool.ask(key) for key in keys}
    spread = Counter(before.values())
    assert len(spread) == 4
    assert min(spread.values()) > 40
    await pool.members[1].stop()
    after = {key: await pool.ask(key) for key in keys}
    moved = [key for key in keys if after[key] != before[key]]
    assert {before[key] for key in moved} == {"pool/2"}
    assert len(moved) == spread["pool/2"]


async def test_the_member_of_a_key_is_the_same_in_every_process(system: ActorSystem) -> None:
    """Whatever the seed of Python's own hash is."""
    pool = await system.pool(
        Worker, [], size=3, name="pool", routing="by-key", key=lambda message: message
    )
    found = [cast("str", await pool.ask(key))[-1] for key in ("a", "b", "c", "d", "e", "f")]
    assert "".join(found) == "133322"


async def test_a_broadcast_reaches_all_and_can_not_be_asked(system: ActorSystem) -> None:
    log: Log = []
    pool = await system.pool(Worker, log, size=3, name="pool", routing="broadcast")
    await pool.tell("a")
    pool.tell_nowait("b")
    await settle()
    assert sorted(log) == [(f"pool/{number}", word) for number in (1, 2, 3) for word in "ab"]
    with pytest.raises(TypeError, match="'pool' is a broadcast: ask its members"):
        await pool.ask("who")
    assert [await member.ask("who") for member in pool.members] == ["pool/1", "pool/2", "pool/3"]


async def test_a_broadcast_goes_on_when_a_member_stops_under_it(system: ActorSystem) -> None:
    log: Log = []
    options = MailboxOptions(size_max=1)
    pool = await system.pool(Worker, log, size=2, name="pool", routing="broadcast", mailbox=options)
    for message in ("wait", "next"):
        await pool.members[0].tell(message)
        await settle()
    telling = asyncio.create_task(_tell(pool, "all"))
    await settle()
    stopping = asyncio.create_task(pool.members[0].stop())
    await telling
    await stopping
    await settle()
    assert ("pool/2", "all") in log
    assert ("pool/1", "all") not in log


async def test_a_pool_is_told_by_its_name(system: ActorSystem) -> None:
    """What was told so went to the parent of the members, which dropped it."""

    class Teller(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.tell("pool", message)
            ctx.schedule("later", to="pool", delay=1)

    log: Log = []
    pool = await system.pool(Worker, log, size=2, name="pool")
    assert system.find("pool") is pool
    teller = await system.spawn(Teller)
    await teller.tell("now")
    await asyncio.sleep(2)
    assert log == [("pool/1", "now"), ("pool/2", "later")]


async def _tell(ref: Ref[str], message: str) -> None:
    await ref.tell(message)


async def test_a_member_that_fails_is_restarted_and_the_pool_goes_on(system: ActorSystem) -> None:
    log: Log = []
    pool = await system.pool(Worker, log, size=2, name="pool", supervision=AT_ONCE)
    await pool.tell("boom")
    await settle()
    assert [member.generation for member in pool.members] == [1, 0]
    assert pool.generation == 1
    assert [await pool.ask("who") for _ in range(2)] == ["pool/2", "pool/1"]
    stats = pool.stats()
    assert (stats.handled, stats.failed, stats.restarts) == (2, 1, 1)


async def test_what_a_member_escalates_makes_the_pool_anew(system: ActorSystem) -> None:
    rules = Supervision(strategy="escalate")
    pool = await system.pool(Worker, [], size=2, name="pool", supervision=rules)
    first = pool.members
    await pool.tell("boom")
    await asyncio.sleep(1)
    assert [await pool.ask("who") for _ in range(2)] == ["pool/2", "pool/1"]
    assert all(old is not new for old, new in zip(first, pool.members, strict=True))
    assert pool.cell.restarts == 1


async def test_members_that_have_stopped_are_passed_over_until_none_is_left(
    system: ActorSystem,
) -> None:
    pool = await system.pool(Worker, [], size=2, name="pool")
    await pool.members[0].stop()
    assert [await pool.ask("who") for _ in range(2)] == ["pool/2", "pool/2"]
    await pool.members[1].stop()
    with pytest.raises(ActorStopped, match="'pool'"):
        await pool.tell("who")
    assert repr(pool) == "<Ref 'pool' depth=0 stopped>"


async def test_a_pool_stops_with_what_waits_handled(system: ActorSystem) -> None:
    log: Log = []
    pool = await system.pool(Worker, log, size=2, name="pool")
    for number in range(4):
        await pool.tell(f"wait {number}")
    waiting = asyncio.create_task(pool.wait_until_stopped())
    assert await pool.stop() == 0
    await waiting
    assert len(log) == 4
    assert system.find("pool/1") is None
    with pytest.raises(ActorStopped):
        await pool.tell("late")


async def test_a_pool_whose_member_does_not_start_is_not_there(system: ActorSystem) -> None:
    class Failing(Worker):
        async def on_start(self, ctx: Context[str]) -> None:
            raise OSError("no start")

    with pytest.raises(OSError, match="no start"):
        await system.pool(Failing, [], size=2, name="pool")
    assert system.stats().actors == {}


async def test_a_router_serves_refs_of_any_kind(system: ActorSystem) -> None:
    pool = await system.pool(Worker, [], size=2, name="pool")
    keyed = await system.keyed(lambda key: Worker([]), name="keyed")
    single = await system.spawn(Worker, [], name="single")
    router: Router[str] = Router([pool, keyed.ref("a"), single], name="all")
    found = [await router.ask("who") for _ in range(4)]
    assert found == ["pool/1", "keyed/a", "single", "pool/2"]
    assert router.stats().handled == 4
    least: Router[str] = Router(router.members, routing="least-loaded")
    assert await least.ask("who") == "pool/1"
    with pytest.raises(AskTimeout):
        await router.ask("wait", timeout=0.5)
    with pytest.raises(TypeError, match="'all' is a router, not an actor"):
        _ = router.cell
    assert await router.stop() == 0
    await router.wait_until_stopped()
    assert (await keyed.ask("a", "who"), router.generation) == ("keyed/a", 0)


@pytest.mark.parametrize(
    ("routing", "keyed", "reason"),
    [
        ("by-key", False, "of use only together"),
        ("round-robin", True, "of use only together"),
        ("sideways", False, "routing is 'sideways'"),
    ],
)
def test_a_routing_without_sense_is_refused(routing: Routing, keyed: bool, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Router([], routing=routing, key=str if keyed else None)


async def test_a_pool_has_at_least_one_member(system: ActorSystem) -> None:
    with pytest.raises(ValueError, match="size is 0"):
        await system.pool(Worker, [], size=0, name="pool")
