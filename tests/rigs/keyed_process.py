"""A process with many keyed actors of which few are there at a time, which says what it needs.

    python -m tests.rigs.keyed_process KEYS ACTIVE

tells one message to each key, and prints its memory in KiB after a fifth of them and at the end.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

from actors import Actor, ActorSystem, Context

PAGE_KIB = 4


class Counter(Actor[int]):
    """Counts what all of them were told."""

    handled = 0

    def __init__(self, key: str) -> None:
        self.key = key

    async def receive(self, message: int, ctx: Context[int]) -> None:
        Counter.handled += 1


def memory_kib() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB


async def main(keys: int, active_max: int) -> None:
    async with ActorSystem() as system:
        keyed = await system.keyed(Counter, name="keyed", active_max=active_max)
        for number in range(keys):
            await keyed.tell(str(number), number)
            if number in (keys // 5, keys - 1):
                stats = keyed.stats()
                print(memory_kib(), stats.active, stats.activated)
    print(Counter.handled)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
