"""A bank whose accounts are durable actors, and systems on a simulated disk."""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

import pytest
from msgspec import Struct

from fifoq import Actor, ActorSystem, Context, DurableMailbox, Ref
from tests.fifoq.support import PATH, Bench, set_time

DURABLE_MODULES = ("asks", "burying", "timers")


class Deposit(Struct, tag=True, frozen=True):
    """Add to the balance."""

    amount: int


class Transfer(Struct, tag=True, frozen=True):
    """Take from the balance and give it to another account."""

    to: str
    amount: int


class Balance(Struct, tag=True, frozen=True):
    """Ask how much there is."""


class Boom(Struct, tag=True, frozen=True):
    """Change everything, then fail; `times` times, if it is given."""

    times: int = 1_000_000


class Hang(Struct, tag=True, frozen=True):
    """Never come back."""


Message = Deposit | Transfer | Balance | Boom | Hang


class AccountState(Struct):
    """What an account remembers."""

    balance: int = 0
    handled: int = 0


class Account(Actor[Message]):
    """Does as it is told."""

    state: AccountState

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        self.state.handled += 1
        match message:
            case Deposit(amount):
                self.state.balance += amount
            case Transfer(to, amount):
                self.state.balance -= amount
                ctx.tell(to, Deposit(amount))
            case Balance():
                ctx.reply(self.state.balance)
            case Boom(times):
                self.state.balance = -1
                ctx.tell("bob", Deposit(1000))
                ctx.reply("never")
                if ctx.attempt <= times:
                    raise ValueError("boom")
            case Hang():
                self.state.balance = -1
                await asyncio.sleep(1e9)
            case _:
                assert_never(message)


AT_ONCE = DurableMailbox(retry_backoff=0)
"""Retries without waiting."""


class Town(Bench):
    """Opens systems on one disk, one after another."""

    def system(self, **options: Any) -> ActorSystem:
        return ActorSystem(PATH, **self._given({"stop_timeout": 5, **options}))

    def after_crash(self) -> Town:
        twin = self.files.copy()
        twin.process_crash()
        return Town(twin)


async def account(system: ActorSystem, name: str = "alice", **options: Any) -> Ref[Message]:
    return await system.spawn(Account, name=name, durable=True, **options)


async def balance(ref: Ref[Message]) -> int:
    return await ref.ask(Balance(), returns=int)


def wall_follows_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock goes as the virtual one of the running loop does."""
    start = 2 * 10**18

    def read() -> int:
        return start + round(asyncio.get_running_loop().time() * 1e9)

    set_time(monkeypatch, read)

    class Time:
        time_ns = staticmethod(read)

        @staticmethod
        def time() -> float:
            return read() / 1e9

    for module in DURABLE_MODULES:
        monkeypatch.setattr(f"fifoq.durable.{module}.time", Time)
    monkeypatch.setattr("actors.timers.time", Time)
