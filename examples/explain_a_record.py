"""What became of my record? The log knows, also from another process.

Run it: python examples/explain_a_record.py [DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile

import fifoq


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        orders = await store.queue("orders")
        key = await orders.put(b"a book", headers={"customer": "alice"})
        delivery = await orders.lease()
        await delivery.nack()
        async with orders.lease():
            pass
        print(await store.explain(key, queue="orders"))

        await orders.put(b"no address")
        delivery = await orders.lease()
        await delivery.reject("nobody knows where to send it")
        told = await store.explain(2, queue="orders")
        assert told.dead_letter is not None
        queue, counter = told.dead_letter
        print(f"2: {told.state} after {told.attempts} attempts, it is {queue} {counter}")
        await outside(path, await orders.put(b"a pen"))


async def outside(path: str, key: fifoq.Key) -> None:
    """Another process sees the same, but who has a record only its owner knows."""
    async with fifoq.open_store(path, read_only=True) as store:
        # What was committed just now is seen about 0.1 s later.
        told = await store.explain(key, queue="orders")
        while told.state == "not put":
            await asyncio.sleep(0.02)
            told = await store.explain(key, queue="orders")
        print("from outside:", told.state)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(given.directory or f"{scratch}/store"))


if __name__ == "__main__":
    run()
