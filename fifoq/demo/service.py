"""The service that is killed: clients, a durable queue, durable actors. A process of its own.

`python -m fifoq.demo.service STORE LIFE` serves until it is killed, or until SIGTERM: then clients
stop, everything that waits is handled, and it ends. On stdout it keeps the books.

How an order gets into the ledger exactly once, whenever the process dies:

- `await orders.put(order)` returns when the order is on the disk. Only then is the client told.
- A dispatcher leases it, tells the account's actor, and acks. Killed in between, the order comes
  again; the actor knows it, because its number is not above the last one of that client.
- The actor's step is atomic: its new balance, its memory of that number and the removal of the
  message are one commit. The entry is put before that, with the order's name as `dedup_id`: if
  the step has to be repeated, the entry is not.
- Spark's checkpoint says up to which entry the table has them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Final

import msgspec
import uvloop

import fifoq
from fifoq.demo.books import BEGUN, CONFIRMED, HANDLED, OPENED, say

CLIENTS: Final = 64
ACCOUNTS: Final = 64
DISPATCHERS: Final = 32
PRESSURE_HIGH: Final = 1_000
"""From so many waiting orders on clients wait longer, until half of them are handled."""
THINK_SECONDS: Final = 0.02


class Order(msgspec.Struct, frozen=True, tag=True):
    """What a client wants: add some cents to an account."""

    life: int
    client: int
    number: int
    account: int
    cents: int

    @property
    def id(self) -> str:
        return f"{self.life}-{self.client}-{self.number}"


class Balance(msgspec.Struct, frozen=True, tag=True):
    """Ask an account what it has."""


class Entry(msgspec.Struct, frozen=True):
    """A line of the ledger: an order that was done, and the balance after it."""

    life: int
    client: int
    number: int
    account: int
    cents: int
    balance: int


class AccountState(msgspec.Struct):
    """What an account knows; it is saved with each step."""

    balance: int = 0
    last: dict[int, tuple[int, int]] = {}
    """Of each client the life and number of its last order here."""


class Account(fifoq.Actor[Order | Balance]):
    """An account: a durable actor."""

    state: AccountState

    def __init__(self, ledger: fifoq.Queue[Entry] | None = None) -> None:
        self.ledger = ledger

    async def receive(self, message: Order | Balance, ctx: fifoq.Context[Order | Balance]) -> None:
        match message:
            case Balance():
                ctx.reply(self.state.balance)
            case Order():
                await self._handle(message)

    async def _handle(self, order: Order) -> None:
        if (order.life, order.number) <= self.state.last.get(order.client, (0, 0)):
            return  # it came again, after a kill between the tell and the ack
        assert self.ledger is not None
        balance = self.state.balance + order.cents
        entry = Entry(order.life, order.client, order.number, order.account, order.cents, balance)
        await self.ledger.put(entry, dedup_id=order.id)
        self.state.balance = balance
        self.state.last[order.client] = (order.life, order.number)
        say(HANDLED, (order.life, order.client, order.number))


async def open_accounts(
    system: fifoq.ActorSystem, ledger: fifoq.Queue[Entry] | None
) -> list[fifoq.Ref[Order | Balance]]:
    """Every account, with the state that it had."""
    return [
        await system.spawn(Account, ledger, name=f"account-{number}", durable=True)
        for number in range(ACCOUNTS)
    ]


async def serve(path: str, life: int) -> None:
    """Until SIGTERM, or until somebody kills it."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    begun = time.perf_counter()
    async with fifoq.ActorSystem(path) as system:
        orders = await system.store.queue("orders", type=Order, pressure_high=PRESSURE_HIGH)
        ledger = await system.store.queue("ledger", type=Entry, retention="all")
        accounts = await open_accounts(system, ledger)
        say(OPENED, (life, 0, int((time.perf_counter() - begun) * 1e6)))
        dispatchers = [asyncio.create_task(dispatch(orders, accounts)) for _ in range(DISPATCHERS)]
        clients = [asyncio.create_task(order(orders, life, n)) for n in range(CLIENTS)]
        await told.wait()
        for client in clients:
            client.cancel()
        await asyncio.wait(clients)
        orders.shutdown()  # dispatchers get what is left, then QueueClosed
        await asyncio.gather(*dispatchers)
        for account in accounts:
            # An answer comes after everything that was told before.
            await account.ask(Balance(), timeout=30.0)


async def order(orders: fifoq.Queue[Order], life: int, client: int) -> None:
    """A client: an order, the confirmation, a moment to think, the next one."""
    number = 0
    while True:
        number += 1
        account, cents = client % ACCOUNTS, 1 + number % 100
        name = (life, client, number)
        say(BEGUN, name)
        # One order of each account is out at a time, so that clients' orders stay in order.
        await orders.put(Order(*name, account, cents), ordering_key=str(account))
        say(CONFIRMED, name)
        await asyncio.sleep(THINK_SECONDS)


async def dispatch(orders: fifoq.Queue[Order], accounts: list[fifoq.Ref[Order | Balance]]) -> None:
    """Hand orders to their accounts until the queue is shut down and empty."""
    while True:
        try:
            async with orders.lease() as delivery:
                await accounts[delivery.item.account].tell(delivery.item)
        except fifoq.QueueClosed:
            return


if __name__ == "__main__":
    # Ctrl-C reaches everybody; the demonstration itself says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # With nobody left to read the books, it ends at the next line of them.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if not os.isatty(1):
        uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
