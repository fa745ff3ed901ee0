"""A durable queue in ten lines. Run it: python examples/quick_start.py

It makes `data/orders` in the current directory; delete that when you have seen enough.
"""

import asyncio

import fifoq


async def main() -> None:
    async with fifoq.open("data/orders") as q:  # makes the store, or recovers it
        await q.put(b"first")  # on the disk when it returns
        await q.put_many([b"second", b"third"])  # one commit: all of it or none of it
        print(await q.take())  # b'first'
        async with q.lease() as delivery:  # acked at the end of the block, back on an exception
            print(delivery.item, delivery.attempt)  # b'second' 1
        print(await q.peek(), len(q))  # b'third' 1
        print(await q.take(timeout=1.0))  # b'third'


asyncio.run(main())
