"""Put one number after the other and print each one that is safe. Made to be killed.

Run it: python examples/put_for_ever.py
"""

import asyncio

import fifoq


async def main() -> None:
    async with fifoq.open("data/numbers") as q:
        number = q.stats().total_put_count  # goes on where the last run ended
        while True:
            number += 1
            await q.put(b"%d" % number)
            print(number, flush=True)


asyncio.run(main())
