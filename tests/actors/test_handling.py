"""From the mailbox to the handler: turns, batches, replies, mailboxes of a caller's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors import (
    Actor,
    ActorStopped,
    ActorSystem,
    Batch,
    BatchOptions,
    Context,
    HandlerCancelled,
    MailboxOptions,
    NoReply,
    Reply,
    Supervision,
)
from actors.handling import TURN_BATCHES, TURN_MESSAGES
from actors.memory import MemoryMailbox
from actors.testing import settle
from tests.actors.support import (
    AT_ONCE,
    Batches,
    ColumnMailbox,
    Columns,
    ListMailbox,
    Message,
    Recorder,
)

pytestmark = pytest.mark.anyio

RESUME = Supervision(strategy="resume")


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def test_others_get_a_turn_though_handlers_never_wait(system: ActorSystem) -> None:
    log: list[Message] = []
    ref = await system.spawn(Recorder, log, mailbox=MailboxOptions(size_max=10_000))
    await settle()
    for number in range(TURN_MESSAGES * 3):
        ref.tell_nowait(number)
    seen = []
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(len(log) - 1)
    assert seen == [TURN_MESSAGES, TURN_MESSAGES * 2, TURN_MESSAGES * 3]


async def test_others_get_a_turn_between_batches(system: ActorSystem) -> None:
    log: list[tuple[list[Message], str]] = []
    options = MailboxOptions(batch=BatchOptions(count_max=1))
    ref = await system.spawn(Batches, log, mailbox=options)
    await settle()
    for number in range(TURN_BATCHES * 3):
        ref.tell_nowait(number)
    seen = []
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(len(log))
    assert seen == [TURN_BATCHES, TURN_BATCHES * 2, TURN_BATCHES * 3]


async def test_batches_are_counted_by_what_closed_them(system: ActorSystem) -> None:
    log: list[tuple[list[Message], str]] = []
    options = MailboxOptions(batch=BatchOptions(count_max=2, linger_seconds=1))
    ref = await system.spawn(Batches, log, mailbox=options)
    for number in range(5):
        await ref.tell(number)
    await asyncio.sleep(5)
    await ref.tell(5)
    await settle()
    await ref.stop()
    assert log == [([0, 1], "full"), ([2, 3], "full"), ([4], "time"), ([5], "drain")]
    assert ref.stats().batches == {"full": 2, "time": 1, "drain": 1}
    assert ref.stats().handled == 6


async def test_a_reply_in_a_batch_goes_to_all_who_asked(system: ActorSystem) -> None:
    ref = await system.spawn(Batches, [])
    asks = [asyncio.create_task(ref.ask(number)) for number in range(2)]
    asyncio.get_running_loop().call_soon(ref.tell_nowait, 2)
    assert await asyncio.gather(*asks) == [3, 3]


async def test_each_asker_of_a_batch_may_get_its_own_reply_or_none(system: ActorSystem) -> None:
    class Doubling(Actor[int]):
        async def on_batch(self, batch: Batch[int], ctx: Context[int]) -> None:
            for index, number in enumerate(batch):
                if number:
                    batch.reply(index, number * 2)

    ref = await system.spawn(Doubling)
    found = await asyncio.gather(*(ref.ask(n) for n in range(3)), return_exceptions=True)
    assert found[1:] == [2, 4]
    assert isinstance(found[0], NoReply)


async def test_all_askers_of_a_failed_batch_get_the_exception(system: ActorSystem) -> None:
    ref = await system.spawn(Batches, [], supervision=AT_ONCE)
    asks = [ref.ask(message) for message in (1, "boom", 2)]
    found = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(outcome) for outcome in found] == [ValueError] * 3
    assert (ref.stats().failed, ref.stats().restarts) == (3, 1)
    assert await ref.ask(1) == 1


async def test_a_batch_that_the_deadline_interrupts_has_its_outcome(system: ActorSystem) -> None:
    ref = await system.spawn(Batches, [])
    asking = asyncio.create_task(ref.ask(1))
    await asyncio.sleep(0)
    ref.tell_nowait("hang")
    await settle()
    assert await ref.stop(timeout=1) == 1
    with pytest.raises(ActorStopped):
        await asking


async def test_a_deferred_reply_may_come_after_the_handler(system: ActorSystem) -> None:
    promised: list[Reply] = []

    class Deferring(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            promised.append(ctx.defer_reply())

    ref = await system.spawn(Deferring)
    await ref.tell("told")
    asks = [asyncio.create_task(ref.ask(name)) for name in ("value", "error", "stop")]
    await settle()
    assert not any(ask.done() for ask in asks)
    promised[0].resolve("to nobody")
    promised[1].resolve("late")
    promised[2].fail(KeyError("late"))
    assert await asks[0] == "late"
    with pytest.raises(KeyError):
        await asks[1]
    await ref.stop()
    with pytest.raises(ActorStopped):
        await asks[2]
    promised[3].resolve("too late")


async def test_deferred_replies_fail_with_the_object_that_promised_them(
    system: ActorSystem,
) -> None:
    class Deferring(Recorder):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            if message == "later":
                ctx.defer_reply()
            await super().receive(message, ctx)

    for rules, kept in ((RESUME, True), (AT_ONCE, False)):
        ref = await system.spawn(Deferring, [], supervision=rules)
        asking = asyncio.create_task(ref.ask("later"))
        await settle()
        await ref.tell("boom")
        await settle()
        assert asking.done() is not kept
        await ref.stop()
        with pytest.raises(ActorStopped if kept else ValueError):
            await asking


async def test_a_handler_that_awaits_what_was_cancelled_fails_and_the_actor_lives(
    system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            if message == "await":
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            ctx.reply("alive")

    ref = await system.spawn(Careless, name="careless", supervision=AT_ONCE)
    with pytest.raises(HandlerCancelled, match="'careless' awaited something") as caught:
        await ref.ask("await")
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert await ref.ask("hello") == "alive"
    assert caplog.messages == ["actor 'careless' failed: restart"]


class Owner(Actor[object]):
    """Takes columns, as the owner of a store does."""

    def __init__(self, log: list[list[int]]) -> None:
        self.log = log

    async def on_batch(self, batch: Columns, ctx: Context[object]) -> None:
        self.log.append(batch.values)
        if 13 in batch.values:
            raise OSError("no luck")
        if 99 in batch.values:
            await asyncio.sleep(1e9)
        for waiter in batch.waiters:
            waiter.set_result("done")
        ctx.reply("to nobody")


async def test_a_mailbox_of_the_callers_own_hands_out_what_it_likes(system: ActorSystem) -> None:
    log: list[list[int]] = []
    mailbox = ColumnMailbox()
    ref = await system.spawn(Owner, log, mailbox=mailbox)
    mailbox.add([1, 2, 3])
    assert await mailbox.add_awaited(4) == "done"
    mailbox.add([5])
    assert await ref.stop() == 0
    assert log == [[1, 2, 3, 4], [5]]
    stats = ref.stats()
    assert (stats.handled, stats.batches, stats.depth, stats.dropped) == (2, {}, 0, 0)


async def test_a_failed_batch_of_another_kind_tells_its_senders(system: ActorSystem) -> None:
    mailbox = ColumnMailbox()
    ref = await system.spawn(Owner, [], mailbox=mailbox, supervision=AT_ONCE)
    with pytest.raises(OSError, match="no luck"):
        await mailbox.add_awaited(13)
    assert await mailbox.add_awaited(1) == "done"
    assert (ref.stats().failed, ref.stats().restarts) == (1, 1)


async def test_the_rest_of_such_a_mailbox_is_discarded_at_the_deadline(
    system: ActorSystem,
) -> None:
    mailbox = ColumnMailbox()
    ref = await system.spawn(Owner, [], mailbox=mailbox)
    in_hand = mailbox.add_awaited(99)
    await settle()
    mailbox.add([1, 2])
    waiting = mailbox.add_awaited(3)
    assert await ref.stop(timeout=1) == 2
    for future in (in_hand, waiting):
        with pytest.raises(ActorStopped):
            await future


async def test_a_batch_that_can_not_fail_is_only_counted(system: ActorSystem) -> None:
    class Fragile(Actor[object]):
        async def on_batch(self, batch: list[int], ctx: Context[object]) -> None:
            raise OSError("no luck")

    mailbox = ListMailbox()
    ref = await system.spawn(Fragile, mailbox=mailbox, supervision=AT_ONCE)
    mailbox.add([1, 2, 3])
    await settle()
    assert ref.stats().failed == 3


async def test_an_actor_with_receive_gets_the_messages_of_any_mailbox_one_by_one(
    system: ActorSystem,
) -> None:
    log: list[Message] = []
    mailbox = ListMailbox()
    ref = await system.spawn(Recorder, log, mailbox=mailbox)
    mailbox.add([1, 2, 3])
    await settle()
    mailbox.add([4])
    await ref.stop()
    assert log == ["start", 1, 2, 3, 4, "stop"]
    assert ref.stats().handled == 4


async def test_what_such_a_mailbox_handed_out_and_nobody_handled_is_counted(
    system: ActorSystem,
) -> None:
    class Slow(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            await asyncio.sleep(1)

    mailbox = ListMailbox()
    ref = await system.spawn(Slow, mailbox=mailbox)
    mailbox.add([1, 2, 3, 4])
    await settle()
    mailbox.add([5, 6])
    assert ref.stats().depth == 3
    assert await ref.stop(timeout=1.5) == 5


class Wrapped:
    """A mailbox of the caller's own that refs can send to and that hands out batches."""

    def __init__(self) -> None:
        self._inner = MemoryMailbox(MailboxOptions(batch=BatchOptions(count_max=10)), "wrapped")
        self.put, self.put_nowait = self._inner.put, self._inner.put_nowait
        self.withdraw, self.close = self._inner.withdraw, self._inner.close
        self.discard, self.next_batch = self._inner.discard, self._inner.next_batch

    def __len__(self) -> int:
        return len(self._inner)


async def test_a_mailbox_of_the_callers_own_with_put_serves_tell_and_ask(
    system: ActorSystem,
) -> None:
    class Echo(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            if message < 0:
                raise ValueError(message)
            ctx.reply(message)

    ref = await system.spawn(Echo, mailbox=Wrapped(), supervision=RESUME)
    await ref.tell(0)
    asks = [ref.ask(number) for number in (1, -1, 2)]
    first, failed, last = await asyncio.gather(*asks, return_exceptions=True)
    assert (first, last) == (1, 2)
    assert isinstance(failed, ValueError)
    ref.tell_nowait(1)
    assert ref.stats().depth == 1
