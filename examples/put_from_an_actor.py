"""A durable actor that gives work to a queue, and workers that are no actors.

Run it: python examples/put_from_an_actor.py
"""

from __future__ import annotations

import asyncio
import logging
import tempfile

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context, Queue


class Order(Struct, tag=True, frozen=True):
    item: str


class Parcel(Struct, frozen=True):
    number: int
    item: str


class Sold(Struct):
    count: int = 0


class Shop(Actor[Order]):
    state: Sold

    def __init__(self, parcels: Queue[Parcel]) -> None:
        self.parcels = parcels

    async def receive(self, message: Order, ctx: Context[Order]) -> None:
        self.state.count += 1
        # In one frame with the count and the ack of the order: each has one parcel.
        ctx.put(self.parcels, Parcel(self.state.count, message.item))
        if message.item == "vase" and ctx.attempt == 1:
            raise RuntimeError("dropped it")  # then there was no parcel, and it is tried again


async def open_shop(path: str) -> None:
    async with ActorSystem(path) as system:
        parcels = await system.store.queue("parcels", type=Parcel)
        shop = await system.spawn(Shop, parcels, name="shop", durable=True)
        for item in ("tea", "vase", "cake"):
            await shop.tell(Order(item))
        for _ in range(3):
            async with parcels.lease() as delivery:
                print(f"sent parcel {delivery.item.number}, {delivery.item.item}")
        print(len(parcels), "parcels are left")


if __name__ == "__main__":
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # the failure above is on purpose
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(open_shop(f"{scratch}/shop"))
