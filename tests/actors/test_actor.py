"""What an actor's author may rely on: hooks, context, children."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors import Actor, ActorStopped, ActorSystem, Context, MailboxOptions, Ref, Supervision
from actors.testing import settle
from tests.actors.support import AT_ONCE, Message, Recorder

pytestmark = pytest.mark.anyio


class Parent(Recorder):
    """Spawns a child that it calls `child` by `spawn`; passes everything else on if it has one."""

    child: Ref[Message] | None = None
    child_supervision = Supervision(strategy="escalate")

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        await super().receive(f"parent {message}", ctx)
        if message == "spawn":
            rules = self.child_supervision
            self.child = ctx.spawn(Recorder, self.log, name="child", supervision=rules)
            ctx.reply(self.child)
        elif self.child is not None:
            ctx.tell(self.child, message)


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def test_the_base_class_handles_nothing(system: ActorSystem) -> None:
    with pytest.raises(TypeError, match="Actor has neither receive nor on_batch"):
        await system.spawn(Actor)
    ref = await system.spawn(Recorder, [])
    context = Context(ref.cell, ref.cell.told._reply)
    with pytest.raises(TypeError, match="Actor has no receive"):
        await Actor[str]().receive("a", context)


async def test_hooks_that_are_not_written_do_nothing(system: ActorSystem) -> None:
    class Plain(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.reply(ctx.self_ref)

    ref = await system.spawn(Plain)
    assert await ref.ask("who") is ref
    await ref.stop()


async def test_a_message_told_by_an_actor_needs_no_room(system: ActorSystem) -> None:
    class Flood(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            for number in range(message):
                ctx.tell(sink, number)

    log: list[Message] = []
    sink = await system.spawn(Recorder, log, mailbox=MailboxOptions(size_max=1))
    flood = await system.spawn(Flood)
    await flood.tell(20)
    await settle()
    assert log == ["start", *range(20)]


async def test_telling_an_actor_that_has_stopped_fails_the_handler(system: ActorSystem) -> None:
    parent = await system.spawn(Parent, [], supervision=AT_ONCE)
    child = await parent.ask("spawn", returns=Ref)
    await child.stop()
    with pytest.raises(ActorStopped):
        await parent.ask(1)


async def test_children_are_named_after_their_parent_and_stop_before_its_on_stop(
    system: ActorSystem,
) -> None:
    log: list[Message] = []
    parent = await system.spawn(Parent, log, name="parent")
    child = await parent.ask("spawn", returns=Ref)
    assert child.name == "parent/child"
    await parent.tell(1)
    await parent.stop()
    assert log == ["start", "parent spawn", "start", "parent 1", 1, "stop", "stop"]
    assert child.stats().state == "stopped"


async def test_a_child_shares_the_deadline_of_its_parent(system: ActorSystem) -> None:
    parent = await system.spawn(Parent, [])
    child = await parent.ask("spawn", returns=Ref)
    for message in ("hang", 1, 2):
        await parent.tell(message)
    await parent.stop(timeout=4)
    assert asyncio.get_running_loop().time() == 4
    assert child.stats().undelivered == 3


async def test_what_a_child_escalates_fails_its_parent_between_two_messages(
    system: ActorSystem,
) -> None:
    log: list[Message] = []
    parent = await system.spawn(Parent, log, supervision=AT_ONCE)
    child = await parent.ask("spawn", returns=Ref)
    await parent.tell("boom")
    await settle()
    assert child.stats().state == "stopped"
    assert (parent.stats().restarts, parent.stats().failed) == (1, 0)
    again = await parent.ask("spawn", returns=Ref)
    assert again is not child


async def test_a_parent_that_handles_a_message_finishes_it_first(system: ActorSystem) -> None:
    class Busy(Parent):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await super().receive(message, ctx)
            if message == "boom":
                await asyncio.sleep(1)
                self.log.append("finished")

    log: list[Message] = []
    parent = await system.spawn(Busy, log, supervision=AT_ONCE)
    await parent.ask("spawn")
    for message in ("boom", 1):
        await parent.tell(message)
    await asyncio.sleep(2)
    assert log[-5:] == ["stop", "finished", "stop", "start", "parent 1"]


async def test_a_restarting_parent_stops_its_children(system: ActorSystem) -> None:
    class Failing(Parent):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await super().receive(message, ctx)
            if message == "fail":
                raise OSError("parent")

    log: list[Message] = []
    parent = await system.spawn(Failing, log, supervision=AT_ONCE)
    child = await parent.ask("spawn", returns=Ref)
    await parent.tell("fail")
    await settle()
    assert child.stats().state == "stopped"
    assert log[-4:] == ["fail", "stop", "stop", "start"]


async def test_a_resuming_parent_goes_on_without_the_child(system: ActorSystem) -> None:
    parent = await system.spawn(Parent, [], supervision=Supervision(strategy="resume"))
    await parent.ask("spawn")
    await parent.tell("boom")
    await settle()
    assert parent.stats().restarts == 0
    assert isinstance(await parent.ask("spawn"), Ref)


async def test_a_child_whose_start_fails_is_supervised(system: ActorSystem) -> None:
    starts: list[int] = []

    class Shy(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            starts.append(len(starts))
            if len(starts) < 3:
                raise OSError("not yet")

        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.reply(len(starts))

    class Bold(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.reply(ctx.spawn(Shy, supervision=Supervision(strategy="resume")))

    parent = await system.spawn(Bold, name="bold")
    child = await parent.ask("spawn", returns=Ref)
    assert child.name == "bold/shy-1"
    assert await child.ask("how many") == 3


async def test_an_actor_that_closes_down_spawns_no_more(system: ActorSystem) -> None:
    raised: list[Exception] = []

    class Late(Recorder):
        async def on_stop(self, ctx: Context[Message]) -> None:
            try:
                ctx.spawn(Recorder, self.log)
            except ActorStopped as error:
                raised.append(error)

    ref = await system.spawn(Late, [])
    await ref.stop()
    assert len(raised) == 1
    assert system.stats().actors == {}
