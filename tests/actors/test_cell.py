"""The life of one actor: restarts, backoff, and stops that come at any point of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from actors import Actor, ActorStopped, ActorSystem, Batch, Context, Ref, Supervision
from actors.testing import settle
from tests.actors.support import AT_ONCE, ColumnMailbox, Columns, Message, Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def test_a_restart_makes_a_new_object_that_goes_on_with_the_mailbox(
    system: ActorSystem,
) -> None:
    made: list[Recorder] = []
    log: list[Message] = []

    def factory() -> Recorder:
        made.append(Recorder(log))
        return made[-1]

    ref = await system.spawn(factory, supervision=AT_ONCE)
    for message in (1, "boom", 2):
        await ref.tell(message)
    await settle()
    assert log == ["start", 1, "boom", "stop", "start", 2]
    assert len(made) == 2
    stats = ref.stats()
    assert (stats.handled, stats.failed, stats.restarts) == (2, 1, 1)


async def test_resuming_keeps_the_object(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, supervision=Supervision(strategy="resume"))
    for message in ("boom", "boom", 2):
        await ref.tell(message)
    await settle()
    assert log == ["start", "boom", "boom", 2]
    assert (ref.stats().failed, ref.stats().restarts) == (2, 0)


async def test_stopping_on_a_failure_discards_the_rest(system: ActorSystem) -> None:
    log: list[Message] = []
    rules = Supervision(by_error={ValueError: "stop"})
    ref = await system.spawn(Recorder, log, supervision=rules)
    for message in ("boom", 1, 2):
        await ref.tell(message)
    await settle()
    assert log == ["start", "boom", "stop"]
    assert (ref.stats().undelivered, ref.stats().state) == (2, "stopped")


async def test_a_restart_waits_for_its_backoff_while_messages_come_in(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Recorder, [], supervision=Supervision(backoff_seconds=2, jitter=0))
    await ref.tell("boom")
    await settle()
    assert repr(ref) == "<Ref 'recorder-1' depth=0 restarting>"
    assert await ref.ask("get") == ["start", "boom", "stop", "start", "get"]
    assert asyncio.get_running_loop().time() == 2


async def test_a_stop_during_the_backoff_still_handles_what_waits(system: ActorSystem) -> None:
    log: list[Message] = []
    rules = Supervision(backoff_seconds=2, jitter=0)
    ref = await system.spawn(Recorder, log, supervision=rules)
    for message in ("boom", 1):
        await ref.tell(message)
    await settle()
    assert await ref.stop(timeout=5) == 0
    assert log == ["start", "boom", "stop", "start", 1, "stop"]


async def test_a_deadline_during_the_backoff_ends_it(system: ActorSystem) -> None:
    log: list[Message] = []
    rules = Supervision(backoff_seconds=9, jitter=0)
    ref = await system.spawn(Recorder, log, supervision=rules)
    for message in ("boom", 1):
        await ref.tell(message)
    await settle()
    assert await ref.stop(timeout=5) == 1
    assert log == ["start", "boom", "stop"]
    assert asyncio.get_running_loop().time() == 5


async def test_an_actor_that_fails_while_it_stops_is_restarted_to_handle_the_rest(
    system: ActorSystem,
) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, supervision=AT_ONCE)
    for message in ("boom", 1):
        await ref.tell(message)
    assert await ref.stop() == 0
    assert log == ["start", "boom", "stop", "start", 1, "stop"]


async def test_an_actor_stopped_before_its_first_step_does_not_start(system: ActorSystem) -> None:
    class Parent(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            child = ctx.spawn(Recorder, log)
            ctx.tell(child, 1)
            ctx.reply(await child.stop(0))

    log: list[Message] = []
    ref = await system.spawn(Parent)
    assert await ref.ask("go") == 1
    assert log == []


async def test_a_handler_that_fails_when_it_is_cancelled_still_ends(system: ActorSystem) -> None:
    class Stubborn(Recorder):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            try:
                await asyncio.sleep(1e9)
            finally:
                raise OSError("in the way out")

    ref = await system.spawn(Stubborn, [], supervision=AT_ONCE)
    asking = asyncio.create_task(ref.ask(1))
    await settle()
    await ref.stop(1)
    with pytest.raises(OSError, match="in the way out"):
        await asking
    assert ref.stats().restarts == 0


async def test_a_constructor_that_fails_at_a_restart_is_supervised(system: ActorSystem) -> None:
    made = 0

    def factory() -> Recorder:
        nonlocal made
        made += 1
        if made in (2, 3):
            raise OSError("not now")
        return Recorder([])

    ref = await system.spawn(factory, supervision=AT_ONCE)
    await ref.tell("boom")
    assert await ref.ask("get") == ["start", "get"]
    assert (made, ref.stats().restarts) == (4, 3)


class Owner(Actor[object]):
    """Hands columns on, and has a child that fails when told so."""

    def __init__(self, log: list[object], refs: list[Ref[Message]]) -> None:
        self.log, self.refs = log, refs

    async def on_start(self, ctx: Context[object]) -> None:
        self.log.append("start")
        rules = Supervision(strategy="escalate")
        self.refs.append(ctx.spawn(Recorder, [], supervision=rules))

    async def on_batch(self, batch: Columns, ctx: Context[object]) -> None:
        self.log.append(batch.values)
        for waiter in batch.waiters:
            waiter.set_result("done")


async def test_a_batch_that_arrives_with_a_childs_failure_is_handled_after_the_restart(
    system: ActorSystem,
) -> None:
    log: list[object] = []
    refs: list[Ref[Message]] = []
    mailbox = ColumnMailbox()
    ref = await system.spawn(Owner, log, refs, mailbox=mailbox, supervision=AT_ONCE)
    await settle()
    refs[0].tell_nowait("boom")
    waiting = mailbox.add_awaited(1)
    assert await waiting == "done"
    await settle()
    assert log.count("start") == 2
    assert log.count([1]) == 1
    assert ref.stats().restarts == 1


async def test_a_batch_in_hand_is_discarded_if_the_childs_failure_stops_the_actor(
    system: ActorSystem,
) -> None:
    class Failing(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            self.child = ctx.spawn(Recorder, [], supervision=Supervision(strategy="escalate"))

        async def on_batch(self, batch: Batch[str], ctx: Context[str]) -> None:
            ctx.tell(self.child, "boom")
            await asyncio.sleep(1)
            ctx.reply("handled")

    ref = await system.spawn(Failing, supervision=Supervision(strategy="stop"))
    first = asyncio.create_task(ref.ask("a"))
    await settle()
    second = asyncio.create_task(ref.ask("b"))
    await settle()
    assert ref.stats().depth == 1
    assert await first == "handled"
    with pytest.raises(ActorStopped) as caught:
        await second
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_childs_failure_during_a_batch_does_not_wait_for_the_next_batch(
    system: ActorSystem,
) -> None:
    """The runtime used to look at it only after the mailbox had handed out something."""

    class Busy(Actor[str]):
        async def on_batch(self, batch: Batch[str], ctx: Context[str]) -> None:
            child = ctx.spawn(Recorder, [], supervision=Supervision(strategy="escalate"))
            ctx.tell(child, "boom")
            await asyncio.sleep(1)

    ref = await system.spawn(Busy, supervision=AT_ONCE)
    await ref.tell("go")
    await asyncio.sleep(2)
    assert ref.stats().restarts == 1


async def test_a_batch_taken_in_the_turn_of_a_childs_failure_is_not_interrupted(
    system: ActorSystem,
) -> None:
    """The cancellation that ends the wait must not reach the handler of what had arrived."""

    class Mean(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            outcomes.append(mailbox.add_awaited(1))
            raise OSError("right after it")

    class Parent(Actor[object]):
        async def on_start(self, ctx: Context[object]) -> None:
            log.append("start")
            rules = Supervision(strategy="escalate")
            children.append(ctx.spawn(Mean, supervision=rules))

        async def on_batch(self, batch: Columns, ctx: Context[object]) -> None:
            await asyncio.sleep(1)
            log.append(batch.values)
            for waiter in batch.waiters:
                waiter.set_result("done")

    log: list[object] = []
    children: list[Ref[str]] = []
    outcomes: list[asyncio.Future[str]] = []
    mailbox = ColumnMailbox()
    ref = await system.spawn(Parent, mailbox=mailbox, supervision=AT_ONCE)
    await children[0].tell("now")
    await settle()
    assert await outcomes[0] == "done"
    assert log == ["start", "start", [1]]
    assert (ref.stats().restarts, ref.stats().undelivered) == (1, 0)


class Spawner(Recorder):
    """Has a child from the start, and fails by `fail`."""

    children: ClassVar[list[Ref[Message]]] = []

    async def on_start(self, ctx: Context[Message]) -> None:
        await super().on_start(ctx)
        rules = Supervision(strategy="escalate")
        self.children.append(ctx.spawn(SlowToStop, self.log, supervision=rules))

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        if message == "fail":
            raise OSError("parent")


class SlowToStop(Recorder):
    """Takes a second to stop."""

    async def on_stop(self, ctx: Context[Message]) -> None:
        await asyncio.sleep(1)
        self.log.append("child stop")


async def test_a_child_that_fails_while_its_parent_restarts_does_not_restart_it_again(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Spawner, [], supervision=AT_ONCE)
    child = Spawner.children[-1]
    for message in ("wait", "boom"):
        await child.tell(message)
    await settle()
    await ref.tell("fail")
    await asyncio.sleep(10)
    assert child.stats().failed == 1
    assert ref.stats().restarts == 1


async def test_a_shorter_deadline_reaches_the_child_that_its_parent_waits_for(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Spawner, [])
    await Spawner.children[-1].tell("hang")
    stopping = asyncio.create_task(ref.stop(60))
    await settle()
    await ref.stop(3)
    await stopping
    assert asyncio.get_running_loop().time() == 4


async def test_a_parent_waits_for_its_child_though_the_system_is_cancelled() -> None:
    system = await ActorSystem().start()
    log: list[Message] = []
    await system.spawn(Spawner, log)
    await settle()
    (root,) = (task for task in asyncio.all_tasks() if task.get_name() == "actors")
    root.cancel()
    await system.wait_until_stopped()
    assert log == ["start", "start", "child stop", "stop"]
