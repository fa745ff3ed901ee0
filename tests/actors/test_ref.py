"""Refs: tell, ask and stop, as senders meet them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors import (
    Actor,
    ActorError,
    ActorStopped,
    ActorSystem,
    AskTimeout,
    Context,
    MailboxFull,
    MailboxOptions,
    NoReply,
    Supervision,
)
from actors.testing import settle
from tests.actors.support import AT_ONCE, Batches, ColumnMailbox, Message, Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def test_told_messages_are_handled_by_their_order(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log)
    for number in range(300):
        await ref.tell(number)
    await settle()
    assert log == ["start", *range(300)]
    assert ref.stats().handled == 300


async def test_telling_with_room_does_not_suspend(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    with pytest.raises(StopIteration):
        ref.tell(1).send(None)


async def test_telling_waits_while_the_mailbox_is_full(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [], mailbox=MailboxOptions(size_max=1))
    await ref.tell("wait")
    await settle()
    await ref.tell(1)
    with pytest.raises(MailboxFull):
        ref.tell_nowait(2)
    await ref.tell(3)
    assert asyncio.get_running_loop().time() == 1


async def test_an_ask_gets_the_reply_of_its_own_message(system: ActorSystem) -> None:
    class Echo(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            await asyncio.sleep(0)
            ctx.reply(message)
            ctx.reply("the first one counts")

    ref = await system.spawn(Echo)
    await ref.tell(-1)
    replies = await asyncio.gather(*(ref.ask(number, returns=int) for number in range(200)))
    assert replies == list(range(200))


async def test_a_reply_of_another_type_than_expected_is_refused(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    assert await ref.ask("get", returns=list) == ["start", "get"]
    with pytest.raises(TypeError, match="replied with a list, not a dict"):
        await ref.ask("get", returns=dict)


async def test_the_asker_gets_the_exception_of_the_handler(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [], supervision=AT_ONCE)
    with pytest.raises(ValueError, match="boom"):
        await ref.ask("boom")


async def test_an_ask_that_is_not_answered_says_so(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [], name="mute")
    with pytest.raises(NoReply, match="'mute' handled the message and did not reply"):
        await ref.ask(1)


async def test_an_ask_in_time_leaves_no_timer(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    assert await ref.ask("wait", timeout=2) == "waited"
    assert await ref.ask("wait", timeout=None) == "waited"
    assert asyncio.get_running_loop().time() == 2


async def test_an_ask_out_of_time_is_not_handled_later(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, name="slow")
    await ref.tell("wait")
    with pytest.raises(AskTimeout, match=r"'slow' did not reply within 0.5 seconds") as caught:
        await ref.ask(7, timeout=0.5)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, ActorError)
    assert (ref.stats().depth, caught.value.name, caught.value.seconds) == (0, "slow", 0.5)
    await ref.stop()
    assert 7 not in log


async def test_an_ask_out_of_time_while_it_is_handled_leaves_nothing(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    with pytest.raises(AskTimeout):
        await ref.ask("wait", timeout=0.5)
    assert await ref.ask("get") == ["start", "wait", "get"]


async def test_an_ask_out_of_time_while_it_waits_for_room_sends_nothing(
    system: ActorSystem,
) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, mailbox=MailboxOptions(size_max=1))
    await ref.tell("wait")
    await settle()
    await ref.tell(1)
    with pytest.raises(AskTimeout):
        await ref.ask(2, timeout=0.5)
    await ref.stop()
    assert log == ["start", "wait", 1, "stop"]


async def test_a_timeout_raised_by_the_handler_is_not_the_asks_own(system: ActorSystem) -> None:
    class Late(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            raise TimeoutError("the handler's own")

    ref = await system.spawn(Late, supervision=AT_ONCE)
    with pytest.raises(TimeoutError, match="the handler's own") as caught:
        await ref.ask(1)
    assert not isinstance(caught.value, AskTimeout)


async def test_a_cancelled_ask_is_not_handled_later(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log)
    await ref.tell("wait")
    asking = asyncio.create_task(ref.ask(7))
    await settle()
    asking.cancel()
    await settle()
    assert (asking.cancelled(), ref.stats().depth) == (True, 0)
    await ref.stop()
    assert 7 not in log


async def test_stopping_handles_what_waits_and_may_be_done_twice(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, name="a")
    for number in range(3):
        await ref.tell(number)
    assert repr(ref) == "<Ref 'a' depth=3 running>"
    assert [await ref.stop(), await ref.stop(0)] == [0, 0]
    assert log == ["start", 0, 1, 2, "stop"]
    assert (repr(ref), ref.name) == ("<Ref 'a' depth=0 stopped>", "a")
    for send in (ref.tell(1), ref.ask(1)):
        with pytest.raises(ActorStopped):
            await send
    with pytest.raises(ActorStopped):
        ref.tell_nowait(1)


async def test_at_the_deadline_every_message_left_has_its_outcome(
    system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, name="stuck")
    handled = asyncio.create_task(ref.ask("hang"))
    await settle()
    waiting = asyncio.create_task(ref.ask("secret"))
    await settle()
    await ref.tell("secret")
    await ref.tell("secret")
    assert await ref.stop(timeout=3) == 2
    assert asyncio.get_running_loop().time() == 3
    for ask in (handled, waiting):
        with pytest.raises(ActorStopped):
            await ask
    assert log == ["start", "hang", "stop"]
    assert ref.stats().undelivered == 2
    assert caplog.messages == ["actor 'stuck' stopped; 2 told messages were not handled"]


async def test_a_told_message_that_the_deadline_interrupts_is_undelivered(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Recorder, [])
    await ref.tell("hang")
    await settle()
    assert await ref.stop(timeout=0) == 1
    assert (ref.stats().handled, ref.stats().failed) == (0, 0)


async def test_a_shorter_timeout_may_follow_a_longer_one_and_not_undo_it(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Recorder, [])
    await ref.tell("hang")
    stops = [asyncio.create_task(ref.stop(seconds)) for seconds in (None, 60, 5, 600)]
    await asyncio.gather(*stops)
    assert asyncio.get_running_loop().time() == 5


async def test_cancelling_the_wait_for_a_stop_does_not_end_the_stop(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    await ref.tell("wait")
    stopping = asyncio.create_task(ref.stop())
    await settle()
    stopping.cancel()
    await asyncio.sleep(2)
    assert ref.stats().state == "stopped"


async def test_an_actor_may_stop_itself_and_handles_what_waits(system: ActorSystem) -> None:
    class Quitter(Recorder):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await super().receive(message, ctx)
            if message == "quit":
                ctx.stop()
            if message == "stop":
                self.log.append(await ctx.self_ref.stop())

    for word in ("quit", "stop"):
        log: list[Message] = []
        ref = await system.spawn(Quitter, log)
        await ref.tell(word)
        await ref.tell(2)
        await settle()
        assert ref.stats().state == "stopped"
        assert [entry for entry in log if entry != 0] == ["start", word, 2, "stop"]


async def test_an_actor_that_stops_for_a_failure_says_which(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [], supervision=Supervision(strategy="stop"))
    await ref.tell("boom")
    with pytest.raises(ActorStopped) as caught:
        await ref.ask(1)
    assert isinstance(caught.value.__cause__, ValueError)
    assert ref.stats().failed == 1


async def test_a_mailbox_without_put_can_not_be_told(system: ActorSystem) -> None:
    ref = await system.spawn(Batches, [], name="own", mailbox=ColumnMailbox())
    for send in (ref.tell(1), ref.ask(1)):
        with pytest.raises(TypeError, match="the mailbox of actor 'own' has no put"):
            await send
    with pytest.raises(TypeError):
        ref.tell_nowait(1)
