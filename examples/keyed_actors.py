"""One durable actor for each customer, of whom only a few are in memory at a time.

Run it: python examples/keyed_actors.py
"""

from __future__ import annotations

import asyncio
import tempfile

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context


class Add(Struct, tag=True, frozen=True):
    item: str


class Send(Struct, tag=True, frozen=True):
    """Give what is in the basket to another customer."""

    to: str


class Look(Struct, tag=True, frozen=True):
    pass


class Items(Struct):
    items: list[str] = []


class Basket(Actor[Add | Send | Look]):
    state: Items

    def __init__(self, customer: str) -> None:
        self.customer = customer

    async def receive(self, message: Add | Send | Look, ctx: Context[Add | Send | Look]) -> None:
        match message:
            case Add(item=item):
                self.state.items.append(item)
            case Send(to=to):
                # Part of this step, whether the other basket is in memory or not.
                for item in self.state.items:
                    ctx.tell(f"baskets/{to}", Add(item))
                self.state.items = []
            case Look():
                ctx.reply(self.state.items)


async def main(path: str) -> None:
    async with ActorSystem(path) as system:
        baskets = await system.keyed(
            Basket,
            name="baskets",
            durable=True,
            active_max=10,  # actors in memory at a time
            idle_seconds=300,
        )
        for number in range(100):
            await baskets.tell(f"customer-{number}", Add(f"tea {number}"))
        print("100 customers, at most 10 in memory:", baskets.stats().active <= 10)
        print("customer-3 has", await baskets.ask("customer-3", Look()))
        await baskets.tell("customer-3", Send("customer-4"))
        await baskets.ask("customer-3", Look())  # the order of a key: it was sent by now
    async with ActorSystem(path) as system:
        baskets = await system.keyed(Basket, name="baskets", durable=True)
        ref = baskets.ref("customer-4")  # good for ever, whoever comes and goes behind it
        print("after a restart", ref.name, "has", await ref.ask(Look()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(f"{scratch}/shop"))
