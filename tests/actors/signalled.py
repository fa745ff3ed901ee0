"""A service for the tests of signals: python -m tests.actors.signalled RUNNER WORK DEADLINE.

An actor works on each message until the service is refused by its own actors (WORK is `drain`), or
for ever; another is told of what was done. What is printed is what a test may rely on.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import anyio
import uvloop

from actors import Actor, ActorStopped, ActorSystem, Context, Ref


class Ledger(Actor[str]):
    """Hears of what was done; it is older, and so still there while the worker drains."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def receive(self, message: str, ctx: Context[str]) -> None:
        self.lines.append(message)

    async def on_stop(self, ctx: Context[str]) -> None:
        print("ledger", *self.lines, flush=True)


class Worker(Actor[int]):
    def __init__(self, ledger: Ref[str], done: asyncio.Event | None = None) -> None:
        self.ledger, self.done = ledger, done

    async def receive(self, message: int, ctx: Context[int]) -> None:
        if self.done is not None:
            print("begin", message, flush=True)
            await self.done.wait()
        await self.ledger.tell(str(message))


async def feed(worker: Ref[int], other: Ref[int]) -> None:
    """Goes on until it is refused: what comes after the signal must not be taken."""
    for number in (1, 2):
        await worker.tell(number)
    with suppress(ActorStopped):
        while True:
            await other.tell(0)
            # Paced: the signal comes from another process, at a moment that nobody here knows.
            await asyncio.sleep(0.01)
    print("refused", flush=True)


async def main(work: str, deadline: float) -> int:
    done = asyncio.Event()
    async with ActorSystem() as system:
        ledger = await system.spawn(Ledger, name="ledger")
        other = await system.spawn(Worker, ledger, name="other")
        worker = await system.spawn(Worker, ledger, done, name="worker")
        # Its first step comes after the next line has begun to listen.
        feeding = asyncio.create_task(feed(worker, other))
        if work == "drain":
            feeding.add_done_callback(lambda _: done.set())
        status = await system.run_until_signal(deadline=deadline)
        await feeding
        return status


if __name__ == "__main__":
    runners = {"asyncio": asyncio.run, "uvloop": uvloop.run}
    runner, work, deadline = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if runner == "anyio":
        sys.exit(anyio.run(main, work, deadline))
    sys.exit(runners[runner](main(work, deadline)))
