"""Take an order and put its bill: both happen, or none does.

Run it: python examples/transaction.py
"""

import asyncio
import tempfile

import fifoq


async def bill_one(store: fifoq.Store, *, paper: bool) -> str:
    orders, bills = await store.queue("orders"), await store.queue("bills")
    async with store.transaction() as tx:
        order = await tx.lease(orders)
        tx.put(bills, b"bill for " + order.item)
        tx.ack(order)
        if not paper:
            raise RuntimeError(f"{order.item.decode()}: the printer is out of paper")
    again = f" at attempt {order.attempt}" if order.attempt > 1 else ""
    return f"billed {order.item.decode()}{again}"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        orders, bills = await store.queue("orders"), await store.queue("bills")
        await orders.put_many([b"tea", b"coffee"])
        for paper in (True, False, True):
            try:
                done = await bill_one(store, paper=paper)
            except RuntimeError as error:
                print(error)
                done = "rolled back"
            print(f"{done}: {count(len(orders), 'order')} left, {count(len(bills), 'bill')}")


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
