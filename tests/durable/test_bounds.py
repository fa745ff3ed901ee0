"""Odd uses of durable actors that used to grow, spin, wait or stop the system: each is bounded."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from msgspec import Struct

from actors import Router, Supervision, Terminated
from actors.testing import settle
from fifoq import Actor, Context, DiskFull, DurableMailbox
from store import StoreFailed
from tests.durable.support import (
    Balance,
    Deposit,
    Hang,
    Town,
    account,
    balance,
    wall_follows_loop,
)
from tests.fifoq.support import SmallDisk, started

pytestmark = pytest.mark.anyio

handled: list[int] = []


class Hoard(Struct):
    """Something large."""

    seen: bytes = b""


class Gated(Actor[Deposit]):
    """Handles nothing before the gate is open, then each with a step of so many bytes."""

    state: Hoard

    def __init__(self, gate: asyncio.Event, size: int = 1000) -> None:
        self._gate = gate
        self._size = size

    async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
        await self._gate.wait()
        handled.append(message.amount)
        self.state.seen = bytes([message.amount]) * self._size


@pytest.fixture(autouse=True)
def nothing_handled() -> None:
    handled.clear()


# Mailboxes.


@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest"])
async def test_a_full_mailbox_drops_what_is_told_without_waiting(town: Town, overflow: Any) -> None:
    gate = asyncio.Event()
    async with town.system() as system:
        mailbox = DurableMailbox(size_max=3, overflow=overflow)
        ref = await system.spawn(Gated, gate, name="gated", durable=True, mailbox=mailbox)
        for number in range(6):
            ref.tell_nowait(Deposit(number))
            await settle()
        assert (ref.stats().depth, ref.stats().dropped) == (3, 3)
        gate.set()
        await settle()
        assert handled == ([0, 4, 5] if overflow == "drop-oldest" else [0, 1, 2])


async def test_the_oldest_is_dropped_though_it_is_only_on_disk(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was dropped then, and the mailbox grew."""
    monkeypatch.setattr("fifoq.durable.box.LOADED_MAX", 2)
    monkeypatch.setattr("fifoq.durable.box.FETCH_COUNT", 2)
    gate = asyncio.Event()
    async with town.system() as system:
        mailbox = DurableMailbox(size_max=6, overflow="drop-oldest")
        ref = await system.spawn(Gated, gate, name="gated", durable=True, mailbox=mailbox)
        for number in range(20):
            await ref.tell(Deposit(number))
            await settle()
        await asyncio.gather(*(ref.tell(Deposit(number)) for number in range(20, 24)))
        await settle()
        assert ref.stats().depth == 6
        gate.set()
        await settle()
        assert handled == [0, 19, 20, 21, 22, 23]


async def test_nobody_else_gets_the_queues_of_the_actors(town: Town) -> None:
    async with town.system() as system:
        for name in ("actors/mailboxes", "actors/timers"):
            with pytest.raises(ValueError, match="belongs to the actors"):
                await system.store.queue(name)
            with pytest.raises(ValueError, match="belongs to the actors"):
                await system.store.lend(name)
        assert len(await system.store.dead_letters("actors/mailboxes")) == 0
    async with town.open_store() as store:
        assert len(await store.queue("actors/mailboxes")) == 0


# Steps.


async def test_large_steps_run_ahead_of_the_disk_by_their_bytes(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each actor had up to 128 of them in memory, however large."""
    monkeypatch.setattr("fifoq.durable.handling.AHEAD_BYTES_MAX", 3000)
    gate = asyncio.Event()
    async with town.system() as system:
        refs = [await system.spawn(Gated, gate, name=name, durable=True) for name in ("one", "two")]
        for number in range(20):
            await refs[number % 2].tell(Deposit(number))
        town.runner.hold()
        gate.set()
        await settle()
        steps = system._office.post.steps  # type: ignore[union-attr]
        ahead = steps.size
        town.runner.let_go()
        await asyncio.sleep(1)
        # What one has in hand comes on top.
        assert 3000 <= ahead < 6000
        assert sorted(handled) == list(range(20))
        assert steps.size == 0


async def test_timers_that_come_due_together_are_moved_some_at_a_time(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_follows_loop(monkeypatch)
    monkeypatch.setattr("fifoq.durable.timers.MOVED_MAX", 3)

    class Setting(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            if message.amount:
                handled.append(message.amount)
                return
            for number in range(1, 11):
                ctx.schedule(Deposit(number), delay=1)

    async with town.system() as system:
        await (await system.spawn(Setting, name="setting", durable=True)).tell(Deposit(0))
        await settle()
        town.runner.hold()
        await asyncio.sleep(2)
        steps = system._office.post.steps  # type: ignore[union-attr]
        moved = len(steps._under_way) + len(steps._waiting)
        town.runner.let_go()
        await asyncio.sleep(1)
        assert moved == 3
        assert handled == list(range(1, 11))


async def test_many_actors_stop_soon_though_the_disk_is_full() -> None:
    """Each waited for it by itself, five seconds, one after the other."""

    class SmallTown(SmallDisk, Town):
        pass

    gate = asyncio.Event()
    town = SmallTown()
    system = await town.system().start()
    for number in range(20):
        ref = await system.spawn(Gated, gate, 100_000, name=f"a{number}", durable=True)
        await ref.tell(Deposit(number))
    town.fill()
    gate.set()
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with suppress(DiskFull):
        await system.stop()
    # What all of them wait for together.
    assert len(handled) == 20
    assert loop.time() - began <= 31


async def test_an_actor_that_can_not_start_again_is_not_started_all_the_time(town: Town) -> None:
    """It was restarted without a pause, for ever: only handlers had one."""
    starts: list[float] = []

    class Failing(Actor[Deposit]):
        async def on_start(self, ctx: Context[Deposit]) -> None:
            starts.append(asyncio.get_running_loop().time())
            if 1 < len(starts) < 8:
                raise OSError("no connection")

        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            if ctx.attempt == 1:
                raise OSError("no connection")
            handled.append(message.amount)

    async with town.system() as system:
        ref = await system.spawn(Failing, name="failing", durable=True)
        await ref.tell(Deposit(1))
        await asyncio.sleep(1)
        assert 3 <= len(starts) <= 6
        await asyncio.sleep(30)
        assert (len(starts), handled) == (8, [1])


# Asks.


async def test_whoever_asked_by_an_id_hears_of_a_failed_store_at_once(town: Town) -> None:
    system = await town.system(stop_timeout=60).start()
    await (await account(system)).tell(Hang())
    asking = await started(system.ask("nobody", Balance(), id="1", timeout=None))
    system._office.post.steps._stop(StoreFailed("gone"))  # type: ignore[union-attr]
    with pytest.raises(StoreFailed):
        await asyncio.wait_for(asking, 1)
    with pytest.raises(StoreFailed):
        await system.stop(0)


async def test_old_answers_are_forgotten_some_at_a_time(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them were one step, which no frame held if they were very many."""
    monkeypatch.setattr("fifoq.durable.asks.FORGOTTEN_MAX", 3)
    async with town.system() as system:
        alice = await account(system)
        for number in range(10):
            await system.ask(alice, Balance(), id=str(number))
    async with town.system(answers_kept=0) as system:
        await system.flush()
        assert not system._office.asks._times  # type: ignore[union-attr]
        states = system.store.state.states
        assert not [name for name in states if name.startswith("ask/") and states[name].present]
        assert system._office.post.steps._added == 4  # type: ignore[union-attr]


async def test_an_answer_that_is_forgotten_while_it_is_read_is_asked_for_anew(town: Town) -> None:
    async with town.system() as system:
        alice = await account(system)
        assert await system.ask(alice, Balance(), id="x") == 0
        town.runner.hold()
        telling = await started(alice.tell(Deposit(5)))
        again = await started(system.ask(alice, Balance(), id="x"))
        forgetting = await started(system.forget("x"))
        town.runner.let_go()
        await telling
        assert (await forgetting, await again) == (True, 5)


# Watching, and what comes along.


class Strange(Exception):
    """Says nothing."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Dying(Actor[Exception]):
    """Fails as it is told."""

    async def receive(self, message: Exception, ctx: Context[Exception]) -> None:
        raise message


class Watcher(Actor[Balance | Terminated]):
    """Tells how the other one died."""

    def __init__(self, other: Any) -> None:
        self._other = other
        self._error: str | None = None

    async def on_start(self, ctx: Context[Balance | Terminated]) -> None:
        ctx.watch(self._other)

    async def receive(
        self, message: Balance | Terminated, ctx: Context[Balance | Terminated]
    ) -> None:
        if isinstance(message, Terminated):
            self._error = message.error
        ctx.reply(self._error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("\ud800"), "ValueError: \\ud800"),
        (Strange(), "Strange: no text could be made"),
    ],
    ids=["half a character", "no text"],
)
async def test_whatever_an_error_says_it_can_be_told(
    town: Town, caplog: pytest.LogCaptureFixture, error: Exception, text: str
) -> None:
    """It ended the system: a durable mailbox can not hold any text, and not every error has one."""
    # What it says could be printed no better.
    caplog.set_level(logging.CRITICAL, logger="actors")
    async with town.system() as system:
        rules = Supervision(strategy="stop")
        dying = await system.spawn(Dying, supervision=rules)
        watcher = await system.spawn(Watcher, dying, name="watcher", durable=True)
        await dying.tell(error)
        await settle()
        assert await watcher.ask(Balance()) == text


async def test_a_durable_actor_that_takes_no_end_watches_nobody(town: Town) -> None:
    class Blind(Actor[Balance]):
        async def receive(self, message: Balance, ctx: Any) -> None:
            try:
                ctx.watch(other)
            except TypeError as error:
                ctx.reply(str(error))

    async with town.system() as system:
        other = await account(system)
        blind = await system.spawn(Blind, name="blind", durable=True)
        assert "takes Balance, not Terminated" in str(await blind.ask(Balance()))
        await other.stop()
        assert blind.stats().failed == 0


async def test_an_actor_has_nothing_of_its_spawners_context(town: Town) -> None:
    """Messages that came with nothing had what was there when their actor was spawned."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    other: ContextVar[str] = ContextVar("other")
    seen: list[tuple[str, str]] = []

    class Seeing(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            seen.append((tenant.get(), other.get()))

    async with town.system(context=[tenant]) as system:

        async def spawn() -> Any:
            tenant.set("acme")
            other.set("kept")
            return await system.spawn(Seeing, name="seeing", durable=True)

        ref = await asyncio.create_task(spawn())
        await ref.tell(Deposit(1))
        tenant.set("emca")
        await ref.tell(Deposit(2))
        await settle()
        assert seen == [("nobody", "kept"), ("emca", "kept")]


async def test_a_broadcast_that_one_refuses_is_told_to_nobody(town: Town) -> None:
    """A handler that went on after the refusal told the others alone."""

    class Telling(Actor[Deposit]):
        async def receive(self, message: Deposit, ctx: Context[Deposit]) -> None:
            with suppress(TypeError):
                ctx.tell(router, message)
            ctx.reply(None)

    async with town.system() as system:
        alice = await account(system)
        watcher: Any = await system.spawn(Watcher, alice, name="watcher", durable=True)
        router = Router([alice, watcher], routing="broadcast")
        telling = await system.spawn(Telling, name="telling", durable=True)
        await telling.ask(Deposit(5))
        assert await balance(alice) == 0
