"""Lanes: urgent records first, each lane in order; and keys: one record of each at a time."""

import asyncio
import tempfile

import fifoq


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        mail = await store.queue("mail", priorities=True)
        await mail.put(b"newsletter", priority=9)
        await mail.put(b"receipt 1")  # lane 5, where nothing is said
        await mail.put(b"password reset", priority=0)
        await mail.put(b"receipt 2")
        print([letter.decode() for letter in await mail.take_many(10)])

        # Turns by shares instead of the most urgent first: lane 0 gets four for each one of lane 5.
        weights = (4, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        fair = await store.queue("fair", priorities=True, priority_weights=weights)
        await fair.put_many([b"a"] * 8, priority=0)
        await fair.put_many([b"b"] * 8)
        print(b"".join(await fair.take_many(10)).decode())

        # Any number of consumers side by side, and still one order for each account.
        moves = await store.queue("moves")
        for account, amount in (("ann", b"+5"), ("ann", b"-3"), ("bob", b"+1")):
            await moves.put(amount, ordering_key=account)
        first, second = await moves.lease(), await moves.lease()
        print(first.item, second.item)  # ann's second one waits until her first is done
        await moves.ack_many([first, second])
        print((await moves.lease()).item)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(f"{scratch}/store"))
