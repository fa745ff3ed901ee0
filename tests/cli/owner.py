"""An owner in a process of its own: opens a store, does what stdin says, closes at its end.

    put QUEUE TEXT      one record, at the queue's durability
    fail QUEUE TEXT     a record that becomes a dead letter at once
    size QUEUE          prints how many are in it
    take QUEUE          prints the oldest, or nothing there

Every command is answered with one line.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

import fifoq
from fifoq.control import listener
from fifoq.control.place import is_there

setattr(listener, "LISTEN_AFTER_SECONDS", 0.0)  # noqa: B010


class Order(msgspec.Struct):
    """What the queue `orders` holds."""

    name: str
    amount: int = 1


async def main(path: str) -> None:
    async with fifoq.open_store(path) as store:
        await store.queue("main")
        await store.queue("orders", type=Order)
        # Another process waits for the word, and is the one that loses patience.
        while not is_there(path):
            await asyncio.sleep(0.01)
        print("ready", os.getpid(), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(await do(store, *line.rstrip("\n").split(" ", 2)), flush=True)


async def do(store: fifoq.Store, verb: str, name: str, text: str = "") -> object:
    queue = store.opened.get(name) or await store.queue(name)
    if verb == "size":
        return len(queue)
    if verb == "take":
        return "nothing" if queue.empty() else (await queue.take()).decode()
    key = await queue.put(text.encode())
    if verb == "fail":
        delivery = await queue.lease()
        await delivery.reject(text)
    return key.counter


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
