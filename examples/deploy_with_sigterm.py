"""A service of actors that ends well: SIGTERM or SIGINT drains it within a deadline.

Workers take requests and tell a ledger what they did. At the signal nothing new is taken, what is
in hand is finished, and the exit status says whether all of it was. Run it, and stop it with
Ctrl-C or `kill`: python examples/deploy_with_sigterm.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from actors import Actor, ActorStopped, ActorSystem, Context, Ref


class Ledger(Actor[int]):
    """Counts what was done. It is older than the workers, so it stops after them."""

    def __init__(self) -> None:
        self.done = 0

    async def receive(self, message: int, ctx: Context[int]) -> None:
        self.done += 1

    async def on_stop(self, ctx: Context[int]) -> None:
        print(f"ledger: {self.done} done", flush=True)  # here you would close a file


class Worker(Actor[int]):
    def __init__(self, ledger: Ref[int], seconds: float) -> None:
        self.ledger = ledger
        self.seconds = seconds

    async def receive(self, message: int, ctx: Context[int]) -> None:
        print(f"worker begins with {message}", flush=True)
        await asyncio.sleep(self.seconds)  # your work
        ctx.tell(self.ledger, message)


async def take_in(workers: Ref[int]) -> int:
    """Stands for whatever brings work: a socket, a poll, a schedule."""
    number = 0
    while True:
        try:
            await workers.tell(number + 1)
        except ActorStopped:
            return number  # the system drains: this one was not taken
        number += 1
        await asyncio.sleep(0.01)


async def main(work: float, deadline: float) -> int:
    async with ActorSystem() as system:
        ledger = await system.spawn(Ledger, name="ledger")
        workers = await system.pool(Worker, ledger, work, size=2, name="workers")
        intake = asyncio.create_task(take_in(workers))
        status = await system.run_until_signal(deadline=deadline)
        print(f"took in {await intake}, status {status}", flush=True)
        return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, default=0.02, help="seconds for each request")
    parser.add_argument("--deadline", type=float, default=25.0, help="seconds to drain")
    chosen = parser.parse_args()
    sys.exit(asyncio.run(main(chosen.work, chosen.deadline)))
