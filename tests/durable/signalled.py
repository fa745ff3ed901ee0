"""A service for the test of signals: python -m tests.durable.signalled PATH COUNT SECONDS DEADLINE.

Tells a durable actor COUNT messages, each of which takes SECONDS, and drains at a signal.
"""

from __future__ import annotations

import asyncio
import sys

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context


class Work(Struct, tag=True, frozen=True):
    number: int


class Done(Struct):
    numbers: list[int] = []


class Worker(Actor[Work]):
    """Remembers what it has done."""

    state: Done

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def receive(self, message: Work, ctx: Context[Work]) -> None:
        print("begin", message.number, flush=True)
        await asyncio.sleep(self.seconds)
        self.state.numbers.append(message.number)
        ctx.reply(self.state.numbers)


async def main(path: str, count: int, seconds: float, deadline: float) -> int:
    async with ActorSystem(path) as system:
        serving = asyncio.create_task(system.run_until_signal(deadline=deadline))
        worker = await system.spawn(Worker, seconds, name="worker", durable=True)
        for number in range(count):
            await worker.tell(Work(number))
        print("told", flush=True)
        return await serving


if __name__ == "__main__":
    path, count, *seconds = sys.argv[1:]
    sys.exit(asyncio.run(main(path, int(count), *map(float, seconds))))
