"""A bank in 40 lines: accounts are durable actors. Kill it at any moment: no money is lost or made.

Run it, more than once: python examples/bank.py
Kill it wherever its disk changes, in memory: python examples/bank.py --crash
"""

from __future__ import annotations

import asyncio
import sys

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context, Ref
from fifoq.testing import Machine, crash_matrix, settle


class Transfer(Struct, frozen=True, tag=True):
    id: int
    to: str
    amount: int


class Credit(Struct, frozen=True, tag=True):
    id: int
    amount: int


class GetBalance(Struct, frozen=True, tag=True):
    pass


AccountMessage = Transfer | Credit | GetBalance


class AccountState(Struct):
    balance: int = 100


class Account(Actor[AccountMessage]):
    """Owns a balance. What a message does to it, and what it tells others, is one step."""

    state: AccountState

    async def receive(self, message: AccountMessage, ctx: Context[AccountMessage]) -> None:
        match message:
            case Transfer(id=id, to=to, amount=amount):
                if amount <= self.state.balance:
                    self.state.balance -= amount
                    ctx.tell(to, Credit(id, amount))
            case Credit(amount=amount):
                self.state.balance += amount
            case GetBalance():
                ctx.reply(self.state.balance)


async def open_accounts(system: ActorSystem) -> list[Ref[AccountMessage]]:
    names = ("alice", "bob", "carol")
    return [await system.spawn(Account, name=name, durable=True) for name in names]


async def balances_of(accounts: list[Ref[AccountMessage]]) -> list[int]:
    return [await account.ask(GetBalance(), returns=int) for account in accounts]


async def main() -> None:
    async with ActorSystem("data/bank") as system:
        alice, bob, carol = await open_accounts(system)
        await alice.tell(Transfer(1, "bob", 30))  # returns when it can not be lost any more
        await bob.tell(Transfer(2, "carol", 20))
        print("alice, bob and carol have", await balances_of([alice, bob, carol]))
    async with ActorSystem("data/bank") as system:
        accounts = await open_accounts(system)
        print("after a restart they have", sum(await balances_of(accounts)), "together")


async def busy_day(machine: Machine) -> None:
    async with ActorSystem("bank") as system:
        alice, bob, _ = await open_accounts(system)
        for id in range(5):
            await alice.tell(Transfer(id, "bob", 10))
            await bob.tell(Transfer(id, "carol", 10))


async def no_money_is_lost_or_made(machine: Machine) -> None:
    async with ActorSystem("bank") as system:
        accounts = await open_accounts(system)
        await settle()  # what is on its way arrives
        balances = await balances_of(accounts)
    assert sum(balances) == 300, f"the bank has {balances}"


if __name__ == "__main__":
    if "--crash" in sys.argv:
        print(crash_matrix(busy_day, no_money_is_lost_or_made, power=True))
    else:
        asyncio.run(main())
