"""Three levels in one queue, and what each has reached. Run it: python examples/durability.py"""

from __future__ import annotations

import asyncio
import tempfile

import fifoq


async def main(path: str) -> None:
    q = await fifoq.open(path, durability="memory")
    await q.put(b"page viewed")
    print("here at once:", await q.peek())
    await q.put(b"order paid", durability="sync")
    print("outside, after a sync put:", await seen_outside(path))
    await q.put(b"page viewed")
    await q.flush()
    print("outside, after a flush:", await seen_outside(path))
    await q.close()


async def seen_outside(path: str) -> int:
    """What is durable, and so visible to another process."""
    async with fifoq.open_store(path, read_only=True) as store:
        return (await (await store.queue()).stats()).current_size


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(f"{scratch}/store"))
