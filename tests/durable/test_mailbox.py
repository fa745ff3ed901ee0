"""Durable mailboxes: what was told is there after a restart, in order, typed, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from actors import ActorStopped, MailboxFull, MailboxOptions, NameTaken
from actors.testing import settle
from fifoq import (
    Actor,
    ActorSystem,
    Context,
    DurabilityError,
    DurableMailbox,
    FifoqError,
    ItemTooLarge,
)
from fifoq.durable import box as box_module
from tests.durable.support import (
    AT_ONCE,
    Account,
    Balance,
    Boom,
    Deposit,
    Hang,
    Town,
    Transfer,
    account,
    balance,
)
from tests.fifoq.support import started

pytestmark = pytest.mark.anyio


async def test_what_was_told_is_handled_after_a_restart(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Hang())
        await alice.tell(Deposit(10))
        await system.stop(0)
    async with town.system() as system:
        alice = await account(system, mailbox=DurableMailbox(max_retries=0))
        await alice.tell(Deposit(5))
        await settle()
        assert alice.stats().depth == 3
        assert alice.stats().handled == 0
        await system.stop(0)


async def test_a_tell_returns_when_it_is_durable_and_not_before(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await settle()
        town.runner.hold()
        telling = await started(alice.tell(Deposit(10)))
        assert not telling.done()
        town.runner.let_go()
        await telling
        after = town.after_crash()
    async with after.system() as system:
        assert await balance(await account(system)) == 10


async def test_messages_are_handled_in_the_order_of_telling(town: Town) -> None:
    class Note(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            seen.append(message)

    seen: list[int] = []
    async with town.system() as system:
        ref = await system.spawn(Note, name="note", durable=True)
        await asyncio.gather(*(ref.tell(number) for number in range(300)))
        ref.tell_nowait(300)
        telling = await started(ref.tell(301))
        ref.tell_exempt(302)
        await telling
        await settle()
    assert seen == list(range(303))


async def test_only_what_the_actor_takes_is_told(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        with pytest.raises(TypeError) as wrong:
            await alice.tell("hello")  # type: ignore[arg-type]
        assert str(wrong.value) == (
            "actor 'alice' takes Deposit | Transfer | Balance | Boom | Hang, not str. Nothing was "
            "told."
        )
        with pytest.raises(TypeError, match="Expected `int`, got `str`"):
            await alice.tell(Deposit("ten"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"surrogates not allowed\. Nothing was told"):
            await alice.tell(Transfer("caf\udce9", 1))
        with pytest.raises(TypeError, match="takes"):
            await alice.ask(17)  # type: ignore[call-overload]
        assert await balance(alice) == 0


async def test_classes_that_can_not_last_are_refused(town: Town) -> None:
    class Left(Struct):
        pass

    class Right(Struct):
        pass

    class Untagged(Actor[Left | Right]):
        async def receive(self, message: Left | Right, ctx: Context[Left | Right]) -> None: ...

    class Untyped(Actor):  # type: ignore[type-arg]
        async def receive(self, message: Any, ctx: Context[Any]) -> None: ...

    class Batching(Actor[int]):
        async def on_batch(self, batch: Any, ctx: Context[int]) -> None: ...

    async with town.system() as system:
        for kind, words in (
            (Untagged, "Give the Structs of a union tag=True"),
            (Untyped, "does not say which messages it takes"),
            (Batching, "one message at a time, in receive"),
        ):
            with pytest.raises(TypeError, match=words):
                await system.spawn(kind, name="x", durable=True)
        for name in (None, "", "a b", "/a", "x" * 300):
            with pytest.raises(ValueError, match="durable actor"):
                await system.spawn(Account, name=name, durable=True)
        await account(system, "x")
        with pytest.raises(NameTaken):
            await account(system, "x")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_retries": -1}, "max_retries is -1"),
        ({"retry_backoff": -1}, "retry_backoff is -1"),
        ({"retry_backoff": float("nan")}, "retry_backoff is nan"),
        ({"retry_backoff": 31}, "between 0 and retry_backoff_max, 30"),
        ({"retry_backoff_max": float("inf")}, "retry_backoff_max, inf"),
        ({"size_max": 0}, "size_max is 0"),
        ({"overflow": "spill"}, "overflow is 'spill'"),
    ],
)
def test_an_option_without_sense_is_refused(options: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DurableMailbox(**options)


async def test_a_full_mailbox_makes_tellers_wait(town: Town) -> None:
    async with town.system(stop_timeout=0) as system:
        alice = await account(system, mailbox=MailboxOptions(size_max=2))
        await alice.tell(Hang())
        await alice.tell(Deposit(1))
        third = await started(alice.tell(Deposit(1)))
        fourth = await started(alice.tell(Deposit(1)))
        with pytest.raises(MailboxFull):
            alice.tell_nowait(Deposit(1))
        fourth.cancel()
        await settle()
        assert not third.done()
        with pytest.raises(ActorStopped):
            await asyncio.gather(third, alice.stop(0))


@pytest.mark.parametrize("overflow", ["fail", "drop-oldest", "drop-newest"])
async def test_a_full_mailbox_does_as_it_is_told(town: Town, overflow: Any) -> None:
    async with town.system(stop_timeout=0) as system:
        alice = await account(system, mailbox=MailboxOptions(size_max=2, overflow=overflow))
        await alice.tell(Hang())
        await alice.tell(Deposit(1))
        if overflow == "fail":
            with pytest.raises(MailboxFull):
                await alice.tell(Deposit(10))
        else:
            await alice.tell(Deposit(10))
        await settle()
        assert alice.stats().depth == 2
        assert alice.stats().dropped == (overflow != "fail")
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        box: Any = alice._mailbox
        await settle()
        deposits = [letter for _, letter in box.loaded]
        assert (b"\x0a" in bytes(deposits[0].message)) == (overflow == "drop-oldest")
        await system.stop(0)


async def test_a_backlog_is_read_as_it_is_handled(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_module, "LOADED_MAX", 10)
    monkeypatch.setattr(box_module, "FETCH_COUNT", 7)
    async with town.system(stop_timeout=0) as system:
        alice = await account(system)
        await alice.tell(Hang())
        for amount in range(100):
            await alice.tell(Deposit(amount))
        box: Any = alice._mailbox
        assert len(box.loaded) <= 10
        assert len(box) == 101
        bob = await account(system, "bob")
        await bob.tell(Deposit(1))
        assert await balance(bob) == 1

    class Patient(Account):
        async def receive(self, message: Any, ctx: Context[Any]) -> None:
            if not isinstance(message, Hang):
                await super().receive(message, ctx)

    async with town.system() as system:
        alice = await system.spawn(Patient, name="alice", durable=True)
        assert await balance(alice) == sum(range(100))


async def test_letters_to_nobody_wait_until_there_is_somebody(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Transfer("carol", 7))
        assert await balance(alice) == -7
        carol = await account(system, "carol")
        assert await balance(carol) == 7
        await alice.tell(Transfer("dave", 8))
        assert await balance(alice) == -15
    async with town.system() as system:
        assert await balance(await account(system, "dave")) == 8


async def test_an_actor_that_stopped_goes_on_when_it_is_spawned_again(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Deposit(3))
        await alice.tell(Hang())
        await alice.tell(Deposit(4))
        await settle()
        assert await alice.stop(0) == 0
        with pytest.raises(ActorStopped):
            await alice.tell(Deposit(1))
        with pytest.raises(ActorStopped):
            alice.tell_nowait(Deposit(1))
        again = await account(system)
        await settle()
        assert again.stats().depth == 2
        await system.stop(0)


async def test_a_stop_finishes_the_message_in_hand_and_leaves_the_rest(town: Town) -> None:
    class Slow(Account):
        async def receive(self, message: Any, ctx: Context[Any]) -> None:
            await asyncio.sleep(1)
            await super().receive(message, ctx)

    async with town.system(stop_timeout=30) as system:
        alice = await system.spawn(Slow, name="alice", durable=True)
        for _ in range(5):
            await alice.tell(Deposit(1))
        await asyncio.sleep(1.5)
    async with town.system() as system:
        alice = await system.spawn(Account, name="alice", durable=True)
        assert await balance(alice) == 5
        assert alice.stats().handled == 4


async def test_a_letter_may_be_as_large_as_a_record(town: Town) -> None:
    class Blob(Actor[bytes]):
        async def receive(self, message: bytes, ctx: Context[bytes]) -> None:
            ctx.reply(len(message))

    async with town.system() as system:
        ref = await system.spawn(Blob, name="blob", durable=True)
        assert await ref.ask(b"x" * (1 << 20)) == 1 << 20
        with pytest.raises(ItemTooLarge, match="Nothing was told"):
            await ref.tell(b"x" * (17 << 20))


async def test_a_system_without_a_path_is_in_memory() -> None:
    async with ActorSystem() as system:
        alice, bob = await account(system), await account(system, "bob")
        await alice.tell(Transfer("bob", 5))
        await alice.tell(Boom(times=1))
        await asyncio.sleep(1)
        assert (await balance(alice), await balance(bob)) == (-1, 1005)
    async with ActorSystem() as system:
        assert await balance(await account(system)) == 0


async def test_actors_in_memory_live_beside_durable_ones(town: Town) -> None:
    class Ear(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            heard.append(message.amount)
            if message.amount == 1:
                ctx.tell("alice", Deposit(100))

    heard: list[int] = []
    async with town.system() as system:
        await system.spawn(Ear, name="ear")
        alice = await account(system)
        await alice.tell(Transfer("ear", 1))
        await settle()
        assert heard == [1]
        assert await balance(alice) == 99


async def test_children_are_durable_too(town: Town) -> None:
    class Parent(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            self.child = ctx.spawn(Account, name="child", durable=True)

        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.tell(self.child, Deposit(5))

    for expected in (5, 10):
        async with town.system() as system:
            parent = await system.spawn(Parent, name="parent", durable=True)
            await parent.tell("go")
            await settle()
            assert "parent/child" in system.stats().actors
            reply = await system.ask("parent/child", Balance(), id=f"ask-{expected}", returns=int)
            assert reply == expected


async def test_a_store_that_fails_stops_the_system(town: Town) -> None:
    system = await town.system().start()
    alice = await account(system)
    await alice.tell(Deposit(1))
    await settle()
    town.files.fail_next_datasync("ghost")
    with pytest.raises(DurabilityError):
        await alice.tell(Deposit(2))
    with pytest.raises(FifoqError):
        await system.wait_until_stopped()
    with pytest.raises((ActorStopped, FifoqError)):
        await alice.tell(Deposit(3))


async def test_letters_that_are_in_memory_alone_are_not_overlooked(town: Town) -> None:
    """At `memory` a letter is there before it is written: one that waited was taken for gone."""
    async with town.system(durability="memory") as system:
        alice = await account(system)
        await alice.tell(Transfer("bob", 1))
        await settle()
        await alice.stop()
        await alice_is_told(system)
        bob = await account(system, "bob")
        assert await balance(bob) == 3


async def alice_is_told(system: ActorSystem) -> None:
    office: Any = system._office
    await office.post.queue.put(office.letter("bob", None, Deposit(2)))
    await settle()
    assert office.post.queue.tail
