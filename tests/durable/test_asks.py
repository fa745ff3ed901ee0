"""Asks: answers come with their step, and by an id also to whoever asks again after a restart."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from actors import (
    ActorStopped,
    AskTimeout,
    MailboxFull,
    MailboxOptions,
    NoReply,
    Reply,
    SystemStopped,
)
from actors.testing import settle
from fifoq import Actor, ActorSystem, AskFailed, Context, DiskFull
from store import FifoqError
from tests.durable.support import (
    AT_ONCE,
    Account,
    Balance,
    Boom,
    Deposit,
    Hang,
    Message,
    Town,
    account,
    balance,
    wall_follows_loop,
)
from tests.fifoq.support import SmallDisk, started

pytestmark = pytest.mark.anyio


async def test_a_handler_that_does_not_reply_says_so(town: Town) -> None:
    async with town.system() as system:
        with pytest.raises(NoReply):
            await (await account(system)).ask(Deposit(1))


async def test_an_ask_that_ran_out_of_time_leaves_nothing_behind(town: Town) -> None:
    async with town.system(stop_timeout=0) as system:
        alice = await account(system)
        await alice.tell(Hang())
        with pytest.raises(AskTimeout):
            await alice.ask(Deposit(5), timeout=1)
        await settle()
        assert alice.stats().depth == 1
        box: Any = alice._mailbox
        assert not box.asked
        assert len(system._office.post.queue) == 1  # type: ignore[union-attr]
        await alice.stop(0)


async def test_an_answer_that_comes_late_goes_nowhere(town: Town) -> None:
    class Slow(Actor[Balance]):
        async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
            await asyncio.sleep(10)
            ctx.reply("late")

    async with town.system() as system:
        ref = await system.spawn(Slow, name="slow", durable=True)
        with pytest.raises(AskTimeout):
            await ref.ask(Balance(), timeout=1)
        await asyncio.sleep(20)
        assert (ref.stats().handled, ref.stats().depth) == (1, 0)
        box: Any = ref._mailbox
        assert not box.asked


async def test_a_deferred_reply_comes_after_the_step(town: Town) -> None:
    class Later(Actor[Message]):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            promises.append(ctx.defer_reply())

    promises: list[Reply] = []
    async with town.system() as system:
        ref = await system.spawn(Later, name="later", durable=True)
        asking = await started(ref.ask(Balance()))
        assert ref.stats().handled == 1
        assert not asking.done()
        promises[0].resolve(17)
        assert await asking == 17


async def test_askers_hear_that_the_actor_stopped_and_their_messages_go(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Hang())
        asking = await started(alice.ask(Deposit(5), timeout=None))
        await alice.stop(0)
        with pytest.raises(ActorStopped):
            await asking
        await settle()
        assert len(system._office.post.queue) == 1  # type: ignore[union-attr]


async def test_what_was_asked_in_an_earlier_life_is_not_handled(town: Town) -> None:
    """However many wait: most of them are not in memory when the actor stops."""
    system = await town.system().start()
    alice = await account(system)
    await alice.tell(Hang())
    asking = [await started(alice.ask(Deposit(5), timeout=None)) for _ in range(4)]
    box: Any = alice._mailbox
    box.unloaded.extend(record.counter for record, _ in box.loaded)
    box.loaded.clear()
    await alice.tell(Deposit(1))
    await system.stop(0)
    for asked in asking:
        with pytest.raises(ActorStopped):
            await asked
    async with town.system() as system:
        ref = await system.spawn(Unhung, name="alice", durable=True)
        assert await balance(ref) == 1
        assert len(system._office.post.queue) == 0  # type: ignore[union-attr]


class Unhung(Account):
    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        if not isinstance(message, Hang):
            await super().receive(message, ctx)


async def test_a_dead_letter_that_was_asked_is_handled_when_it_is_replayed(town: Town) -> None:
    class Mended(Account):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            self.state.balance += 1
            if isinstance(message, Boom) and failing:
                raise ValueError("not yet")

    failing = [True]
    async with town.system() as system:
        ref = await system.spawn(Mended, name="a", durable=True, mailbox=AT_ONCE)
        with pytest.raises(ValueError, match="not yet"):
            await ref.ask(Boom())
        failing.clear()
        assert await (await system.dead_letters()).replay() == 1
        await settle()
        assert system._tree.cells["a"]._actor.state.balance == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest"])
async def test_whoever_asked_what_is_dropped_hears_so(town: Town, overflow: Any) -> None:
    async with town.system(stop_timeout=0) as system:
        alice = await account(system, mailbox=MailboxOptions(size_max=2, overflow=overflow))
        await alice.tell(Hang())
        first = await started(alice.ask(Balance(), timeout=None))
        second = await started(alice.ask(Balance(), timeout=None))
        await settle()
        dropped, kept = (first, second) if overflow == "drop-oldest" else (second, first)
        with pytest.raises(MailboxFull):
            await dropped
        box: Any = alice._mailbox
        assert (len(box.asked), kept.done()) == (1, False)
        await alice.stop(0)
        with pytest.raises(ActorStopped):
            await kept


async def test_the_reply_to_an_ask_with_an_id_is_not_deferred(town: Town) -> None:
    class Later(Actor[Message]):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            ctx.defer_reply()

    async with town.system() as system:
        ref = await system.spawn(Later, name="later", durable=True, mailbox=AT_ONCE)
        with pytest.raises(AskFailed, match="can not defer its reply to an ask with an id"):
            await system.ask(ref, Balance(), id="a")


async def test_whoever_asks_again_with_the_id_gets_the_same_answer(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Deposit(5))
        assert await system.ask(alice, Balance(), id="a", returns=int) == 5
        await alice.tell(Deposit(5))
        assert await system.ask(alice, Balance(), id="a", returns=int) == 5
        assert await system.ask(alice, Balance(), id="b") == 10
        with pytest.raises(msgspec.ValidationError):
            await system.ask(alice, Balance(), id="a", returns=str)
    async with town.system() as system:
        assert await system.ask("alice", Balance(), id="a") == 5
        assert await system.forget("a")
        assert not await system.forget("a")
        alice = await account(system)
        assert await system.ask(alice, Balance(), id="a") == 10


async def test_an_ask_goes_on_over_restarts(town: Town) -> None:
    """The asker dies before anybody handled its message; whoever asks again gets the answer."""
    async with town.system() as system:
        with pytest.raises(AskTimeout):
            await system.ask("alice", Deposit(5), id="pay-17", timeout=1)
        twin = town.after_crash()
    async with twin.system() as system:
        alice = await account(system)
        with pytest.raises(AskFailed, match="NoReply") as failed:
            await system.ask(alice, Deposit(5), id="pay-17")
        assert failed.value.id == "pay-17"
        assert await balance(alice) == 5
        # Two who ask at once wait for one answer.
        both = await asyncio.gather(
            *(system.ask(alice, Balance(), id="both", returns=int) for _ in range(2))
        )
        assert both == [5, 5]


async def test_an_ask_whose_message_fails_has_no_answer(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        for _ in range(2):
            with pytest.raises(AskFailed, match="ValueError: boom"):
                await system.ask(alice, Boom(), id="x")
        assert alice.stats().failed == 4


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("caf\udce9"), Mute()])
async def test_an_error_that_can_not_be_written_is_a_failure_like_others(
    town: Town, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    # A report of the test with that text could not be sent either.
    caplog.set_level(logging.CRITICAL, "actors")

    class Odd(Account):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            if isinstance(message, Boom):
                raise error
            await super().receive(message, ctx)

    async with town.system() as system:
        odd = await system.spawn(Odd, name="odd", durable=True, mailbox=AT_ONCE)
        with pytest.raises(AskFailed, match=type(error).__name__):
            await system.ask(odd, Boom(), id="x")
        assert len(await (await system.dead_letters()).list()) == 1
        assert await balance(odd) == 0
        assert len(system._office.post.queue) == 0  # type: ignore[union-attr]


async def test_a_stopped_system_leaves_nobody_waiting(town: Town) -> None:
    async with town.system() as system:
        asking = await started(system.ask("nobody", Balance(), id="a", timeout=None))
    with pytest.raises(SystemStopped):
        await asking
    with pytest.raises(SystemStopped, match="it can not ask"):
        await system.ask("nobody", Balance(), id="a")
    with pytest.raises(SystemStopped, match="it can not flush"):
        await system.flush()


async def test_a_store_that_fails_leaves_nobody_waiting(town: Town) -> None:
    class Two(Account):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await asyncio.sleep(1)
            self.state.balance += 1
            town.files.fail_next_datasync("ghost")
            ctx.reply(self.state.balance)

    system = await town.system().start()
    two = await system.spawn(Two, name="two", durable=True)
    first = await started(two.ask(Balance(), timeout=None))
    by_id = await started(system.ask(two, Balance(), id="a", timeout=None))
    second = await started(two.ask(Balance(), timeout=None))
    with pytest.raises(FifoqError):
        await system.wait_until_stopped()
    for asking in (first, by_id):
        with pytest.raises(FifoqError):
            await asking
    with pytest.raises((ActorStopped, FifoqError)):
        await second


async def test_askers_of_steps_that_a_full_disk_refuses_hear_of_the_stop() -> None:
    class SmallTown(SmallDisk, Town):
        pass

    class Hoarder(Actor[bytes]):
        state: Hoard

        async def receive(self, message: bytes, ctx: Context[bytes]) -> None:
            self.state.seen = message
            ctx.reply(len(message))

    town = SmallTown()
    system = await town.system().start()
    ref = await system.spawn(Hoarder, name="hoarder", durable=True)
    town.runner.hold()
    asking = await started(ref.ask(b"x" * 4_000_000, timeout=None))
    await town.step()
    town.fill()
    town.runner.let_go()
    await asyncio.sleep(1)
    assert ref.stats().handled == 1
    with suppress(DiskFull):
        await system.stop()
    with pytest.raises(FifoqError):
        await asking


class Hoard(msgspec.Struct):
    seen: bytes = b""


async def test_answers_are_kept_for_a_while(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_follows_loop(monkeypatch)
    async with town.system(answers_kept=100) as system:
        alice = await account(system)
        assert await system.ask(alice, Balance(), id="old") == 0
        await alice.tell(Deposit(1))
        await asyncio.sleep(99)
        assert await system.ask(alice, Balance(), id="old") == 0
        await asyncio.sleep(2)
        assert await system.ask(alice, Balance(), id="young") == 1
        assert await system.ask(alice, Balance(), id="old") == 1
        await asyncio.sleep(200)
    async with town.system(answers_kept=100) as system:
        await settle()
        log = system.store._committer.log
        assert log is not None
        kept = [name for name, entry in log.state.states.items() if entry.present]
        assert not [name for name in kept if name.startswith("ask/")]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_answers_are_kept_for_no_time_that_makes_no_sense(seconds: float) -> None:
    with pytest.raises(ValueError, match="answers_kept="):
        ActorSystem(answers_kept=seconds)


async def test_what_can_not_be_asked_is_refused(town: Town) -> None:
    class Odd(Actor[Balance]):
        async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
            ctx.reply(object())

    async with town.system() as system:
        alice = await account(system)
        with pytest.raises(TypeError, match="takes Deposit"):
            await system.ask(alice, "x", id="a")  # type: ignore[misc]
        with pytest.raises(ValueError, match="an id of 0 bytes"):
            await system.ask(alice, Balance(), id="")
        memory = await system.spawn(Odd, name="odd")
        with pytest.raises(TypeError, match="not a durable one"):
            await system.ask(memory, Balance(), id="a")
        odd = await system.spawn(Odd, name="even", durable=True, mailbox=AT_ONCE)
        with pytest.raises(AskFailed, match="can not be kept"):
            await system.ask(odd, Balance(), id="a")
