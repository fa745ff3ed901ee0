"""A topic: orders of one customer stay in order while several workers share the rest.

Run it: python examples/partitioned_topic.py [DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile

import msgspec

import fifoq


class Order(msgspec.Struct):
    customer: str
    number: int


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        # The count is kept with the store; later opens need not say it.
        topic = await store.topic("orders", partitions=3, type=Order)
        partition, key = await topic.put(Order("alice", 1), key="alice")
        print("alice has partition", partition, "and her order is number", key.counter, "there")
        orders = [Order(name, number) for number in (2, 3) for name in ("alice", "bob", "carol")]
        # One commit over all partitions, or nothing.
        await topic.put_many(orders, key=lambda order: order.customer)
        try:
            await topic.put({"customer": "dave"}, key="dave")  # type: ignore[arg-type]
        except msgspec.ValidationError as error:
            print("refused:", error)
        seen: list[Order] = []
        async with asyncio.TaskGroup() as group:
            for at in range(topic.partitions):
                group.create_task(work(topic.partition(at), seen))
        for name in ("alice", "bob", "carol"):
            print(name, [order.number for order in seen if order.customer == name])


async def work(queue: fifoq.Queue[Order], seen: list[Order]) -> None:
    """One worker for each partition: what it takes comes in order."""
    while not queue.empty():
        async with queue.lease() as order:
            await asyncio.sleep(0)
            seen.append(order.item)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(given.directory or scratch))


if __name__ == "__main__":
    run()
