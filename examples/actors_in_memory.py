"""Actors in memory: an account that replies, an audit that works in batches, a failure survived.

Run it: python examples/actors_in_memory.py
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from msgspec import Struct

from actors import (
    Actor,
    ActorSystem,
    Batch,
    BatchOptions,
    Context,
    MailboxOptions,
    Ref,
    Supervision,
)


class Deposit(Struct, frozen=True):
    amount: int


class Withdraw(Struct, frozen=True):
    amount: int


class GetBalance(Struct, frozen=True):
    pass


AccountMessage = Deposit | Withdraw | GetBalance


class Overdrawn(Exception):
    """There is not that much in the account."""


class Audit(Actor[str]):
    """Writes down what happened, many lines at once."""

    async def on_batch(self, batch: Batch[str], ctx: Context[str]) -> None:
        print(f"audit, {len(batch)} lines, closed by {batch.closed_by}: {', '.join(batch)}")


class Account(Actor[AccountMessage]):
    """Owns a balance: no other code changes it."""

    def __init__(self, audit: Ref[str]) -> None:
        self.audit = audit
        self.balance = 0

    async def receive(self, message: AccountMessage, ctx: Context[AccountMessage]) -> None:
        match message:
            case Deposit(amount=amount):
                self.balance += amount
                ctx.tell(self.audit, f"+{amount}")
            case Withdraw(amount=amount):
                if amount > self.balance:
                    raise Overdrawn(f"{amount} is more than {self.balance}")
                self.balance -= amount
                ctx.tell(self.audit, f"-{amount}")
                ctx.reply(self.balance)
            case GetBalance():
                ctx.reply(self.balance)
            case _:
                assert_never(message)


async def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # the failure below is on purpose
    async with ActorSystem() as system:
        batches = MailboxOptions(batch=BatchOptions(count_max=3, linger_seconds=0.05))
        audit = await system.spawn(Audit, name="audit", mailbox=batches)
        # An overdraft says nothing against the actor: it goes on with the balance it has.
        rules = Supervision(by_error={Overdrawn: "resume"})
        alice = await system.spawn(Account, audit, name="alice", supervision=rules)
        for amount in (10, 20, 30):
            await alice.tell(Deposit(amount))
        print("left after a withdrawal:", await alice.ask(Withdraw(15), timeout=1.0))
        try:
            await alice.ask(Withdraw(1000), timeout=1.0)
        except Overdrawn as error:
            print("refused:", error)
        print("balance:", await alice.ask(GetBalance(), returns=int, timeout=1.0))
        print(alice)
    print(system)


if __name__ == "__main__":
    asyncio.run(main())
