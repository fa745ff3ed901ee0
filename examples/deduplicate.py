"""Puts that may come twice, and records that do not. Run it: python examples/deduplicate.py

It works in a temporary directory and leaves nothing behind.
"""

import asyncio
import tempfile
from pathlib import Path

import fifoq


async def receive(q: fifoq.Queue[bytes], request: str, order: bytes) -> fifoq.Key:
    """What a service does with a request whose sender repeats it until there is an answer."""
    return await q.put(order, dedup_id=request)


async def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "orders"
        async with fifoq.open(path, dedup_window=3600) as q:  # an hour instead of 5 minutes
            first = await receive(q, "request-1", b"two apples")
            again = await receive(q, "request-1", b"two apples")  # the answer was lost
            print(again == first, len(q))
            print(await q.take())
        async with fifoq.open(path) as q:  # after a restart, or a crash
            late = await receive(q, "request-1", b"two apples")
            print(late == first, len(q))
            await receive(q, "request-2", b"a pear")
            print(len(q), q.stats().duplicates)


asyncio.run(main())
