"""Atomic steps: ack, state, messages and replies happen together, or none of them does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from actors import Supervision
from actors.testing import settle
from fifoq import Actor, Context, DiskFull, DurableMailbox, SchemaMismatch
from fifoq.durable.post import STATE_PREFIX
from fifoq.testing.simfiles import SimFiles
from tests.durable.support import (
    AT_ONCE,
    Account,
    AccountState,
    Balance,
    Boom,
    Deposit,
    Hang,
    Message,
    Town,
    Transfer,
    account,
    balance,
)
from tests.fifoq.support import Cuts, SmallDisk, started

pytestmark = pytest.mark.anyio


async def test_a_handler_that_fails_has_done_nothing(town: Town) -> None:
    async with town.system() as system:
        alice, bob = await account(system, mailbox=AT_ONCE), await account(system, "bob")
        await alice.tell(Deposit(5))
        with pytest.raises(ValueError, match="boom"):
            await alice.ask(Boom())
        assert await balance(alice) == 5
        assert await balance(bob) == 0
        assert alice.stats().failed == 4


async def test_a_message_that_failed_is_tried_again_first_and_later_each_time(town: Town) -> None:
    loop = asyncio.get_running_loop()
    tried: list[tuple[int, float]] = []

    class Picky(Account):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            if isinstance(message, Boom):
                tried.append((ctx.attempt, loop.time()))
            else:
                tried.append((0, loop.time()))
            await super().receive(message, ctx)

    mailbox = DurableMailbox(retry_backoff=1, retry_backoff_max=60)
    async with town.system() as system:
        alice = await system.spawn(Picky, name="alice", durable=True, mailbox=mailbox)
        boom = await started(alice.ask(Boom(times=3), timeout=100))
        after = await started(alice.ask(Balance(), timeout=100))
        assert await boom == "never"
        assert await after == -1
    assert [attempt for attempt, _ in tried] == [1, 2, 3, 4, 0]
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(tried)]
    assert 0.5 <= pauses[0] <= 1 <= pauses[1] <= 2 <= pauses[2] <= 4
    assert pauses[3] == 0


async def test_attempts_are_counted_over_restarts(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system, mailbox=DurableMailbox(retry_backoff=20))
        await alice.tell(Boom(times=2))
        await asyncio.sleep(5)
        assert alice.stats().failed == 1
    async with town.system() as system:
        alice = await account(system, mailbox=DurableMailbox(retry_backoff=0))
        assert await balance(alice) == -1
        # The second attempt failed here, the third did not.
        assert alice.stats().failed == 1


async def test_no_effect_is_seen_before_the_step_is_committed(town: Town) -> None:
    class Ear(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            heard.append(message.amount)

    heard: list[int] = []
    async with town.system() as system:
        await system.spawn(Ear, name="ear")
        alice, bob = await account(system), await account(system, "bob")
        await settle()
        town.runner.hold()
        await started(alice.tell(Transfer("bob", 3)))
        await started(alice.tell(Transfer("ear", 4)))
        asking = await started(alice.ask(Balance()))
        await town.step()
        await town.step()
        # All three are handled now, and nobody knows.
        handled = alice.stats().handled
        seen = bob.stats().handled, list(heard), asking.done()
        twin = town.after_crash()
        town.runner.let_go()
        assert (handled, seen) == (3, (0, [], False))
        assert await asking == -7
        await settle()
        assert (bob.stats().handled, heard) == (1, [4])
    async with twin.system() as system:
        alice, bob = await account(system), await account(system, "bob")
        await asyncio.sleep(1)
        assert (await balance(alice), await balance(bob)) == (-7, 3)


async def test_every_cut_leaves_whole_steps(town: Town) -> None:
    """Cut power or process before each change of the disk: the sum of all accounts is the same."""
    names = ("alice", "bob", "carol")
    async with town.system() as system:
        for name in names:
            await (await account(system, name)).tell(Deposit(100))
        await settle()
    told = 0
    counted: list[int] = []
    with Cuts(town.files, limit=4, samples=2) as cuts:
        async with town.system() as system:
            refs = [await account(system, name) for name in names]
            for number in range(4):
                sender, receiver = refs[number % 3], names[(number + 1) % 3]
                await sender.tell(Transfer(receiver, 1 + number))
                told += 1
            await settle()
            counted = [await balance(ref) for ref in refs]
    assert sum(counted) == 300
    seen = set()
    for disk in cuts.disks[:: max(1, len(cuts.disks) // 60)]:
        seen.add(await sums_after(disk, names))
    assert {total for total, _ in seen} == {300}
    # Some cuts were before the last step, some behind it.
    assert len(seen) > 1


async def sums_after(disk: SimFiles, names: tuple[str, ...]) -> tuple[int, int]:
    """The sum of all balances once everything is handled, and how many messages ever were."""
    async with Town(disk).system() as system:
        refs = [await account(system, name) for name in names]
        # A message that a balance follows is handled by then, and what it told is told.
        for _ in range(2):
            balances = [await balance(ref) for ref in refs]
        handled = 0
        for name in names:
            actor: Any = system._tree.cells[name]._actor
            handled += actor.state.handled
        return sum(balances), handled


async def test_steps_wait_for_a_disk_that_is_full() -> None:
    class SmallTown(SmallDisk, Town):
        pass

    class Hoarder(Actor[bytes]):
        state: Hoard

        async def receive(self, message: bytes, ctx: Context[bytes]) -> None:
            self.state.seen = message
            ctx.reply(len(message))

    town = SmallTown()
    async with town.system() as system:
        ref = await system.spawn(Hoarder, name="hoarder", durable=True)
        town.runner.hold()
        asking = await started(ref.ask(b"x" * 4_000_000, timeout=None))
        await town.step()
        town.fill()
        town.runner.let_go()
        await asyncio.sleep(1)
        assert ref.stats().handled == 1
        assert not asking.done()
        town.empty()
        assert await asking == 4_000_000
    async with town.system() as system:
        ref = await system.spawn(Hoarder, name="hoarder", durable=True)
        actor: Any = system._tree.cells["hoarder"]._actor
        assert len(actor.state.seen) == 4_000_000
        assert ref.stats().depth == 0


async def test_a_stop_does_not_wait_for_ever_for_a_disk_that_is_full() -> None:
    class SmallTown(SmallDisk, Town):
        pass

    class Hoarder(Actor[bytes]):
        state: Hoard

        async def receive(self, message: bytes, ctx: Context[bytes]) -> None:
            handled.append(len(message))
            self.state.seen = message

    handled: list[int] = []
    town = SmallTown()
    system = await town.system().start()
    ref = await system.spawn(Hoarder, name="hoarder", durable=True)
    town.runner.hold()
    await started(ref.tell(b"x" * 4_000_000))
    await town.step()
    town.fill()
    town.runner.let_go()
    await asyncio.sleep(1)
    with suppress(DiskFull):
        await system.stop()
    town.empty()
    async with town.system() as system:
        await system.spawn(Hoarder, name="hoarder", durable=True)
        await settle()
        # What was not committed never happened: it is handled again.
        assert handled == [4_000_000] * 2
        actor: Any = system._tree.cells["hoarder"]._actor
        assert len(actor.state.seen) == 4_000_000


class Hoard(Struct):
    seen: bytes = b""


async def test_state_is_written_only_when_it_changed(town: Town) -> None:
    class Reader(Actor[Balance]):
        state: AccountState

        async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
            ctx.reply(self.state.balance)

    async with town.system() as system:
        ref = await system.spawn(Reader, name="reader", durable=True)
        await ref.ask(Balance())
        log = system.store._committer.log
        assert log is not None
        assert STATE_PREFIX + "reader" not in log.state.states
        alice = await account(system)
        await balance(alice)
        assert STATE_PREFIX + "alice" in log.state.states


class Old(Struct):
    cents: int = 1234


class OldAccount(Actor[Balance]):
    state: Old

    async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
        self.state.cents += 1


class Newer(Struct):
    cents: int = 0
    currency: str = "EUR"


class NewerAccount(OldAccount):
    state: Newer  # type: ignore[assignment]

    async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
        ctx.reply(f"{self.state.cents} {self.state.currency}")


class Newest(Struct):
    amount: float = 0.0


class NewestAccount(Actor[Balance]):
    state: Newest
    state_version = 2

    @classmethod
    def migrate_state(cls, version: int, fields: dict[str, Any]) -> Newest:
        assert version == 1
        return Newest(fields["cents"] / 100)

    async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
        ctx.reply(self.state.amount)


class Unmigrated(NewestAccount):
    migrate_state = None  # type: ignore[assignment]


class Mismigrated(NewestAccount):
    @classmethod
    def migrate_state(cls, version: int, fields: dict[str, Any]) -> Newest:
        return Newest(fields["nothing"])


class Misread(Actor[Balance]):
    state: Mistyped

    async def receive(self, message: Balance, ctx: Context[Balance]) -> None: ...


class Mistyped(Struct):
    cents: list[str] = msgspec.field(default_factory=list)


async def test_state_of_an_older_class_is_read_by_a_newer_one(town: Town) -> None:
    async with town.system() as system:
        ref = await system.spawn(OldAccount, name="a", durable=True)
        await ref.tell(Balance())
        await settle()
    async with town.system() as system:
        newer = await system.spawn(NewerAccount, name="a", durable=True)
        assert await newer.ask(Balance()) == "1235 EUR"
        await newer.stop()
        with pytest.raises(SchemaMismatch, match=r"no migrate_state\. Nothing was changed"):
            await system.spawn(Unmigrated, name="a", durable=True)
        with pytest.raises(SchemaMismatch, match="failed with KeyError") as failed:
            await system.spawn(Mismigrated, name="a", durable=True)
        assert isinstance(failed.value.__cause__, KeyError)
        with pytest.raises(SchemaMismatch, match="Raise its state_version"):
            await system.spawn(Misread, name="a", durable=True)
        newest = await system.spawn(NewestAccount, name="a", durable=True)
        assert await newest.ask(Balance()) == 12.35


async def test_states_that_can_not_be_kept_are_refused(town: Town) -> None:
    class NoDefault(Struct):
        amount: int

    class Needy(Account):
        state: NoDefault  # type: ignore[assignment]

    class Plain(Account):
        state: dict[str, int]  # type: ignore[assignment]

    Needy.__annotations__["state"] = NoDefault
    Plain.__annotations__["state"] = dict
    async with town.system() as system:
        with pytest.raises(TypeError, match="needs a default for every field"):
            await system.spawn(Needy, name="a", durable=True)
        with pytest.raises(TypeError, match="no msgspec Struct"):
            await system.spawn(Plain, name="a", durable=True)
        Needy.__annotations__["state"] = "Nowhere"
        with pytest.raises(TypeError, match="Define it in the same module"):
            await system.spawn(Needy, name="b", durable=True)


async def test_hooks_are_steps_too(town: Town) -> None:
    class Opener(Account):
        async def on_start(self, ctx: Context[Message]) -> None:
            self.state.balance += 1
            ctx.tell("bob", Deposit(10))

        async def on_stop(self, ctx: Context[Message]) -> None:
            self.state.balance += 100
            ctx.tell("bob", Deposit(1000))

    for expected in (1, 102):
        async with town.system() as system:
            alice = await system.spawn(Opener, name="alice", durable=True)
            assert await balance(alice) == expected
    async with town.system() as system:
        assert await balance(await account(system, "bob")) == 2020


async def test_a_context_ends_with_its_handler(town: Town) -> None:
    class Keeper(Actor[Balance]):
        async def receive(self, message: Balance, ctx: Context[Balance]) -> None:
            kept.append(ctx)

    kept: list[Context[Balance]] = []
    async with town.system() as system:
        ref = await system.spawn(Keeper, name="keeper", durable=True)
        await ref.tell(Balance())
        await settle()
        with pytest.raises(RuntimeError, match="so has its step"):
            kept[0].tell(ref, Balance())
        with pytest.raises(RuntimeError, match="so has its step"):
            kept[0].reply(1)


async def test_a_cancelled_handler_leaves_everything_as_it_was(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        await alice.tell(Deposit(7))
        hanging = await started(alice.ask(Hang(), timeout=None))
        await alice.stop(0)
        with pytest.raises(Exception, match="not handled to its end"):
            await hanging
        again = await account(system)
        # Nobody waits for the one that hung: it is not handled again.
        assert await balance(again) == 7


async def test_what_kills_the_process_each_time_ends_as_a_dead_letter(town: Town) -> None:
    async with town.system(stop_timeout=0) as system:
        alice = await account(system)
        await alice.tell(Hang())
        await alice.tell(Deposit(1))
        town = town.after_crash()
    for life in range(5):
        system = await town.system(stop_timeout=0).start()
        alice = await account(system)
        await asyncio.sleep(1)
        if life < 4:
            assert alice.stats().depth == 2
            following = town.after_crash()
            await system.stop(0)
            town = following
    assert await balance(alice) == 1
    letters = await system.store.dead_letters("actors/mailboxes")
    (letter,) = await letters.list()
    assert (letter.cause, letter.attempts) == ("max-retries", 4)
    assert letter.reason == "the process ended each time while it was handled"
    await system.stop()


async def test_stops_in_good_order_are_no_attempts(town: Town) -> None:
    for life in range(6):
        async with town.system(stop_timeout=0) as system:
            alice = await account(system)
            if life == 0:
                await alice.tell(Hang())
            await asyncio.sleep(1)
            assert alice.stats().depth == 1
            assert not await (await system.dead_letters()).list()


class Sloppy(Account):
    """Writes into its state what does not belong there."""

    wrong: Any = "ten"

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        if isinstance(message, Deposit):
            self.state.balance = self.wrong
        else:
            await super().receive(message, ctx)


@pytest.mark.parametrize("wrong", ["ten", object()])
async def test_a_state_that_could_not_be_restored_is_a_failure(town: Town, wrong: Any) -> None:
    Sloppy.wrong = wrong
    async with town.system() as system:
        ref = await system.spawn(Sloppy, name="sloppy", durable=True, mailbox=AT_ONCE)
        await ref.tell(Deposit(1))
        assert await balance(ref) == 0
        assert ref.stats().failed == 4
    async with town.system() as system:
        assert await balance(await account(system, "sloppy")) == 0


@pytest.mark.parametrize("strategy", ["stop", "escalate", "resume"])
async def test_whatever_the_supervision_says_the_message_is_not_lost(
    town: Town, strategy: Any
) -> None:
    supervision = Supervision(strategy=strategy)
    system = await town.system().start()
    alice = await account(system, mailbox=AT_ONCE, supervision=supervision)
    await alice.tell(Deposit(7))
    await alice.tell(Boom(times=2))
    await asyncio.sleep(1)
    if strategy == "resume":
        assert await balance(alice) == -1
        assert alice.stats().restarts == 0
        await system.stop()
        return
    if strategy == "escalate":
        with pytest.raises(ValueError, match="boom"):
            await system.wait_until_stopped()
        system = await town.system().start()
    alice = await account(system, mailbox=AT_ONCE)
    assert await balance(alice) == -1
    # It failed once before, and once more now.
    assert alice.stats().failed == 1
    await system.stop()
