"""Look at what put_for_ever.py left behind, without taking anything.

Run it: python examples/what_is_left.py
"""

import asyncio

import fifoq


async def main() -> None:
    async with fifoq.open("data/numbers") as q:
        numbers = [int(record.item) async for record in q.browse()]
        print(f"{len(numbers)} records, the last is {max(numbers, default=0)}")
        print("none is missing:", numbers == list(range(1, len(numbers) + 1)))


asyncio.run(main())
