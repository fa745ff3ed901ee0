"""Timers and asks by an id under every crash: each happens once, in time or late, never twice."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context
from fifoq.testing import Machine, crash_matrix

MINUTE = 60.0
TICKS = 4


class Tick(Struct, frozen=True, tag=True):
    """The n-th reminder."""

    number: int


class Add(Struct, frozen=True, tag=True):
    """Add to the sum, and say what it is."""

    amount: int


class GetCount(Struct, frozen=True, tag=True):
    """How many reminders were there?"""


class Seen(Struct):
    """What the clock remembers."""

    ticks: int = 0
    sum: int = 0


Message = Tick | Add | GetCount


class Clock(Actor[Message]):
    """Reminds itself a minute later, some times; and adds."""

    state: Seen

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        match message:
            case Tick(number=number):
                self.state.ticks += 1
                if number < TICKS:
                    ctx.schedule(Tick(number + 1), delay=MINUTE)
            case Add(amount=amount):
                self.state.sum += amount
                ctx.reply(self.state.sum)
            case GetCount():
                ctx.reply(self.state.ticks)


async def reminders(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        clock = await system.spawn(Clock, name="clock", durable=True)
        await clock.tell(Tick(1))
        machine.notes.append("told")
        await asyncio.sleep(TICKS * MINUTE)


async def every_reminder_comes_once(machine: Machine) -> None:
    began = machine.seconds
    async with ActorSystem("data") as system:
        clock = await system.spawn(Clock, name="clock", durable=True)
        await asyncio.sleep(TICKS * MINUTE)
        count = await clock.ask(GetCount(), returns=int)
    assert count == TICKS or not (count or machine.notes), count
    assert machine.seconds - began < (TICKS + 1) * MINUTE


def test_every_timer_rings_once_whatever_crashes() -> None:
    report = crash_matrix(reminders, every_reminder_comes_once, power=True, states_max=3)
    assert report.points >= 30


async def asks(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        await system.spawn(Clock, name="clock", durable=True)
        for number in (1, 2, 3):
            answer = await system.ask("clock", Add(number), id=f"ask-{number}", returns=int)
            machine.notes.append(answer)


async def every_ask_has_one_answer(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        await system.spawn(Clock, name="clock", durable=True)
        answers = [
            await system.ask("clock", Add(number), id=f"ask-{number}", returns=int)
            for number in (1, 2, 3)
        ]
    assert answers == [1, 3, 6]
    assert machine.notes == answers[: len(machine.notes)]


def test_whoever_asks_again_after_a_crash_gets_the_first_answer() -> None:
    report = crash_matrix(asks, every_ask_has_one_answer, power=True, states_max=3)
    assert report.points >= 20


async def keyed(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        clocks = await system.keyed(KeyedClock, name="clocks", active_max=2, durable=True)
        for number in range(1, 7):
            await clocks.tell(f"key-{number % 3}", Tick(TICKS))
            machine.notes.append(number)


class KeyedClock(Clock):
    """One for each key."""

    def __init__(self, key: str) -> None:
        self.key = key


async def every_key_has_its_messages(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        clocks = await system.keyed(KeyedClock, name="clocks", active_max=2, durable=True)
        counts = [await clocks.ask(f"key-{number}", GetCount(), returns=int) for number in range(3)]
    assert len(machine.notes) <= sum(counts) <= len(machine.notes) + 1
    assert max(counts) - min(counts) <= 1


def test_keyed_actors_come_back_with_what_waits_for_them() -> None:
    report = crash_matrix(keyed, every_key_has_its_messages, power=True, states_max=3)
    assert report.points >= 30
