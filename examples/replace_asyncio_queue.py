"""A program written for asyncio.Queue becomes durable where the queue is made, and nowhere else.

Run it: python examples/replace_asyncio_queue.py
"""

from __future__ import annotations

import asyncio
import tempfile

import fifoq

Queue = asyncio.Queue[str] | fifoq.AsyncioQueue[str]


async def worker(name: str, queue: Queue) -> None:
    while True:
        job = await queue.get()
        print(f"{name} did {job}")
        queue.task_done()


async def run(queue: Queue) -> None:
    for number in range(4):
        queue.put_nowait(f"job {number}")
    workers = [asyncio.create_task(worker(f"worker {i}", queue)) for i in range(2)]
    await queue.join()
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def before() -> None:
    await run(asyncio.Queue())


async def after(path: str) -> None:
    # `type=` because asyncio.Queue holds objects and a file holds bytes; any msgspec type will do.
    async with fifoq.open(path, type=str) as q:
        await run(q.as_asyncio())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print("asyncio.Queue:")
        asyncio.run(before())
        print("fifoq:")
        asyncio.run(after(f"{scratch}/jobs"))
