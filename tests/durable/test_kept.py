"""Letters that something odd happens to: none is lost, none waits for ever, none dies unhandled."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Struct

from actors import Supervision
from actors.testing import settle
from fifoq import Actor, Context
from tests.durable.support import (
    AT_ONCE,
    Account,
    Deposit,
    Town,
    Transfer,
    account,
    balance,
)
from tests.fifoq.support import started

pytestmark = pytest.mark.anyio

handled: list[int] = []


class Noting(Actor[Deposit]):
    """Notes what it handles, and stops after each message if it is told to."""

    def __init__(self, *, stops: bool = False) -> None:
        self._stops = stops

    async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
        handled.append(message.amount)
        if self._stops:
            ctx.stop()


@pytest.fixture(autouse=True)
def nothing_handled() -> None:
    handled.clear()


async def test_an_actor_that_could_not_be_made_keeps_no_letters_from_the_next(town: Town) -> None:
    """Its mailbox had taken them over, and nobody ever looked into it."""

    class Batching(Account):
        async def on_batch(self, batch: object, ctx: object) -> None: ...

    def fail() -> Account:
        raise ValueError("not now")

    async with town.system() as system:
        await (await account(system, "bob")).tell(Transfer("alice", 5))
    async with town.system() as system:
        with pytest.raises(ValueError):
            await system.spawn(fail, name="alice", durable=True)
        with pytest.raises(TypeError):
            await system.spawn(Batching, name="alice", durable=True)
        assert await balance(await account(system)) == 5


class Picky(Struct, tag=True):
    """Refuses some numbers while it is made, in a way that msgspec knows nothing of."""

    number: int
    wrong = 0

    def __post_init__(self) -> None:
        if self.number == Picky.wrong:
            raise KeyError(self.number)


async def test_whatever_keeps_a_message_from_being_decoded_it_is_a_dead_letter(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that was not msgspec's own left the message in nobody's hand."""

    class Picked(Actor[Picky]):
        async def receive(self, message: Picky, ctx: Context[Picky]) -> None:
            handled.append(message.number)

    class Teller(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            ctx.tell("picked", Picky(message.amount))

    async with town.system() as system:
        teller = await system.spawn(Teller, name="teller", durable=True)
        for number in (1, 2, 3):
            await teller.tell(Deposit(number))
        await system.flush()
        monkeypatch.setattr(Picky, "wrong", 2)
        await system.spawn(Picked, name="picked", durable=True)
        await settle()
        (dead,) = await (await system.dead_letters()).list()
        assert handled == [1, 3]
        assert (dead.letter.cause, dead.letter.error_type) == ("rejected", "KeyError")


@pytest.mark.parametrize("strategy", ["restart", "resume"])
async def test_a_handler_that_fails_has_deferred_no_reply(town: Town, strategy: Any) -> None:
    """Its message was taken for one whose asker has left, and removed."""

    class Later(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            reply = ctx.defer_reply()
            if ctx.attempt < 3:
                raise ValueError("boom")
            asyncio.get_running_loop().call_later(1, reply.resolve, ctx.attempt)

    rules = Supervision(strategy=strategy)
    async with town.system() as system:
        later = await system.spawn(
            Later, name="later", durable=True, mailbox=AT_ONCE, supervision=rules
        )
        assert await later.ask(Deposit(1), timeout=5) == 3
        await settle()
        assert not later.cell.promises


async def test_an_attempt_that_never_began_does_not_count(town: Town) -> None:
    """Stops while they were written could make dead letters of messages that nobody handled."""
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Transfer("bob", 7))
    async with town.system() as system:
        town.runner.hold()
        spawning = await started(account(system, "bob"))
        post: Any = system._office.post  # type: ignore[union-attr]
        while not post.attempts_of(2):
            assert await town.step()
        # It is on its way to the disk.
        stopping = await started(spawning.result().stop(0))
        town.runner.let_go()
        await stopping
    async with town.system() as system:
        assert not system._office.post.attempts_of(2)  # type: ignore[union-attr]
        assert await balance(await account(system, "bob")) == 7


async def test_a_keyed_actor_that_stops_by_itself_is_followed_by_another(town: Town) -> None:
    """What it had not handled waited on disk until somebody told the key something else."""
    async with town.system() as system:
        keyed = await system.keyed(lambda key: Noting(stops=True), name="keyed", durable=True)
        await asyncio.gather(*(keyed.tell("a", Deposit(number)) for number in range(5)))
        await asyncio.sleep(1)
        assert handled == [0, 1, 2, 3, 4]


async def test_what_a_killed_keyed_actor_leaves_is_handled_by_the_next(town: Town) -> None:
    class Hanging(Noting):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            if not handled:
                handled.append(-1)
                await asyncio.sleep(1e9)
            await super().receive(message, ctx)

    async with town.system() as system:
        keyed = await system.keyed(lambda key: Hanging(), name="keyed", durable=True)
        await asyncio.gather(*(keyed.tell("a", Deposit(number)) for number in range(3)))
        await keyed.ref("a").stop(0)
        await asyncio.sleep(1)
        assert handled == [-1, 0, 1, 2]


async def test_a_keyed_actor_that_its_supervision_stops_has_its_attempts(town: Town) -> None:
    times: list[float] = []

    class Failing(Noting):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            if not message.amount:
                times.append(asyncio.get_running_loop().time())
                raise ValueError("boom")
            await super().receive(message, ctx)

    async with town.system() as system:
        rules = Supervision(strategy="stop")
        keyed = await system.keyed(
            lambda key: Failing(), name="keyed", durable=True, supervision=rules
        )
        await asyncio.gather(*(keyed.tell("a", Deposit(number)) for number in range(3)))
        await asyncio.sleep(10)
        assert handled == [1, 2]
        assert len(await system.dead_letters()) == 1
        # Each waits longer for the next one, as if the actor had gone on.
        pauses = [later - sooner for sooner, later in pairwise(times)]
        assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(pauses))


async def test_whoever_asks_a_keyed_actor_that_stops_is_answered_by_the_next(town: Town) -> None:
    """The first one knew the asker, and told it of its own end."""

    class Stopping(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            ctx.reply(message.amount)
            if not message.amount:
                ctx.stop()
                await asyncio.sleep(1)

    async with town.system() as system:
        keyed = await system.keyed(lambda key: Stopping(), name="keyed", durable=True)
        first = await started(keyed.ask("a", Deposit(0)))
        second = await started(keyed.ask("a", Deposit(2)))
        assert (await first, await second) == (0, 2)
