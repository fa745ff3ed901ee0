"""A work queue: retries for what fails, dead letters for what always does.

Run it: python examples/work_queue.py
"""

import asyncio
import tempfile

import fifoq

ADDRESSES = {b"tea": "Lisbon", b"coffee": "Oslo"}


async def handle(orders: fifoq.Queue[bytes]) -> None:
    async with orders.lease(timeout=0.2) as delivery:
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
        except TimeoutError:
            pass  # what was left is on its way to the dead letters


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        # One more attempt after the first, a moment later.
        orders = await store.queue("orders", max_retries=1, retry_backoff=0.05)
        await orders.put_many([b"tea", b"cake", b"", b"coffee"])
        await work(orders)
        dead = await store.dead_letters("orders")
        for letter in await dead.list():
            print(f"dead after {letter.attempts}: {letter.payload!r}, {letter.reason}")
        ADDRESSES[b"cake"] = "Vienna"  # the fix
        print(await dead.replay(2), "replayed,", await dead.purge(), "purged")
        await work(orders)
        print(len(orders), "orders,", len(dead), "dead letters")


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
