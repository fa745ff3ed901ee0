"""Dead letters of actors, and running one again to see why it died."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from actors import Reply, Terminated
from actors.testing import settle
from fifoq import Actor, Context, DurableMailbox
from fifoq.durable import burying, reproduce
from fifoq.durable.letters import write_letter
from tests.durable.support import (
    AT_ONCE,
    Account,
    Balance,
    Boom,
    Deposit,
    Message,
    Town,
    Transfer,
    account,
    balance,
)

pytestmark = pytest.mark.anyio


class Mended(Account):
    """What the author of Account wrote afterwards."""

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        if isinstance(message, Boom):
            self.state.balance += 1
            return
        await super().receive(message, ctx)


async def test_a_dead_letter_runs_again_against_the_state_that_it_met(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        await alice.tell(Deposit(5))
        await alice.tell(Boom())
        await alice.tell(Deposit(100))
        assert await balance(alice) == 105
    async with town.system() as system:
        letters = await system.dead_letters()
        assert len(letters) == 1
        (dead,) = await letters.list("alice")
        assert not await letters.list("bob")
    assert (dead.actor, dead.kind) == ("alice", "tests.durable.support:Account")
    assert (dead.letter.attempts, dead.letter.cause) == (4, "max-retries")
    assert (dead.letter.error_type, dead.letter.reason) == ("ValueError", "boom")
    assert 'raise ValueError("boom")' in dead.letter.traceback
    assert repr(dead) == "<DeadMessage 1 of 'alice': ValueError>"
    with pytest.raises(ValueError, match="boom"):
        await reproduce(dead, Account)
    found = await reproduce(dead, Account, raises=False)
    assert (found.before.balance, found.state.balance) == (5, -1)
    assert found.told == [("bob", Deposit(1000))]
    assert (found.replies, repr(found.error)) == (["never"], "ValueError('boom')")
    mended = await reproduce(dead, Mended)
    assert (mended.before.balance, mended.state.balance, mended.error) == (5, 6, None)


async def test_a_dead_letter_is_told_again_or_purged(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        for _ in range(2):
            await alice.tell(Boom())
        assert await balance(alice) == 0
        await alice.stop()
        letters = await system.dead_letters()
        first, second = await letters.list(count=10)
        assert [dead.counter for dead in await letters.list(start=second.counter)] == [2]
        assert len(await letters.list(count=1)) == 1
        assert len(await letters.list("alice", count=1)) == 1
        assert await letters.purge(dry_run=True) == await letters.replay(dry_run=True) == 2
        assert await letters.purge(second.counter) == 1
        mended = await system.spawn(Mended, name="alice", durable=True)
        assert await letters.replay(first.counter) == 1
        await settle()
        assert await balance(mended) == 1
        assert len(letters) == 0


async def test_what_does_not_decode_is_a_dead_letter_at_once(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        post = system._office.post  # type: ignore[union-attr]
        wrong = msgspec.msgpack.encode({"type": "Deposit", "amount": "ten"})
        await post.queue.put(write_letter("alice", wrong))
        await post.queue.put(b"\xc1 no letter at all")
        assert await balance(alice) == 0
        (dead,) = await (await system.dead_letters()).list()
        assert dead.letter.cause == "rejected"
        assert dead.letter.reason.startswith("it is not a Deposit | Transfer")
        assert (alice.stats().failed, len(post.queue)) == (0, 1)
        assert len(post.absent[""]) == 1


async def test_a_large_state_stays_at_home(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burying, "STATE_BYTES_MAX", 10)
    async with town.system() as system:
        alice = await account(system, mailbox=DurableMailbox(max_retries=0))
        await alice.tell(Boom())
        assert await balance(alice) == 0
        (dead,) = await (await system.dead_letters()).list()
        assert dead.state is None
        assert int(dead.letter.told["state_bytes"]) > 10


class Busy(Struct):
    count: int = 0


class Everything(Actor[Balance | Terminated]):
    """Does all that a handler can."""

    async def on_start(self, ctx: Context[Balance | Terminated]) -> None:
        ctx.tell("nobody", Balance())
        assert ctx.find("nobody") is None

    async def receive(
        self, message: Balance | Terminated, ctx: Context[Balance | Terminated]
    ) -> None:
        if ctx.attempt == 1:
            raise ValueError("first")
        ctx.tell(ctx.self_ref, Balance())
        ctx.schedule(Balance(), delay=1)
        ctx.schedule(Balance(), to="other", delay=1)
        ctx.schedule(Balance(), to=ctx.self_ref, delay=1)
        ctx.unschedule("x")
        ctx.watch(ctx.self_ref)
        ctx.unwatch(ctx.self_ref)
        ctx.stop()
        assert isinstance(ctx.defer_reply(), Reply)
        assert not ctx.headers
        ctx.spawn(Everything)


async def test_what_a_handler_does_is_noted_and_goes_nowhere(town: Town) -> None:
    async with town.system() as system:
        options: Any = DurableMailbox(max_retries=0)
        ref = await system.spawn(Everything, name="all", durable=True, mailbox=options)
        await ref.tell(Balance())
        await asyncio.sleep(1)
        (dead,) = await (await system.dead_letters()).list()
    found = await reproduce(dead, Everything, raises=False)
    assert repr(found.error) == "ValueError('first')"
    later = msgspec.structs.replace(dead, letter=msgspec.structs.replace(dead.letter, attempts=2))
    found = await reproduce(later, Everything, raises=False)
    assert isinstance(found.error, RuntimeError)
    assert found.told == [("all", Balance())]
    assert found.scheduled == [("all", Balance()), ("other", Balance()), ("all", Balance())]
    assert (found.before, found.state) == (None, None)


async def test_what_transfers_can_be_reproduced_without_a_bank(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        await alice.tell(Transfer("bob", 3))
        assert await balance(alice) == -3


async def test_stats_count_dead_letters_and_time_handlers(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=AT_ONCE)
        await alice.tell(Deposit(1))
        with pytest.raises(ValueError, match="boom"):
            await alice.ask(Boom())
        stats = alice.stats()
        assert (stats.dead_letters, stats.failed, stats.handled) == (1, 4, 1)
        assert None not in (stats.handler_p99, stats.delay_p50)
        await alice.stop()
        assert system.stats().dead_letters == 1
