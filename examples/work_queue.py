"""A work queue: retries for what fails, dead letters for what always does.

Run it: python examples/work_queue.py
"""

import asyncio
import tempfile

import fifoq

ADDRESSES = {b"tea": "Lisbon", b"coffee": "Oslo"}


async def handle(orders: fifoq.Queue[bytes]) -> None:
    async with orders.lease() as delivery:
        if delivery.item == b"":
            await delivery.reject("an empty order")
            return
        address = ADDRESSES[delivery.item]  # an exception: back to its place, for another attempt
        print(f"{delivery.item.decode()} goes to {address}")


async def work(orders: fifoq.Queue[bytes]) -> None:
    while len(orders):
        try:
            await handle(orders)
        except KeyError as error:
            print(f"no address for {error}")


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        orders = await store.queue("orders", max_retries=1)  # one more attempt after the first
        await orders.put_many([b"tea", b"cake", b"", b"coffee"])
        await work(orders)
        dead = await store.queue("orders.dlq")
        async for letter in dead.browse():
            attempts, reason = (
                letter.headers[f"fifoq.dlq.{name}"] for name in ("attempts", "reason")
            )
            print(f"dead after {attempts}: {letter.item!r}, {reason}")


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
