"""Watch the queues of a live store from another process: no lock, and no word with its owner.

Run it: python examples/stats_poller.py [DIRECTORY]
Without a directory it starts a small service as a second process and watches that.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile

import fifoq

LOOKS = 5
SECONDS = 0.25
WIDTH = 30


async def poll(path: str) -> None:
    async with fifoq.open_store(path, read_only=True) as store:
        for _ in range(LOOKS):
            for name in await store.queues():
                queue = await store.queue(name)
                print(line(await queue.stats()))
            print(flush=True)
            await asyncio.sleep(SECONDS)


def line(stats: fifoq.ReadOnlyStats) -> str:
    """One queue: what waits now, against the most that ever waited."""
    most = stats.high_water_mark or 0
    filled = round(WIDTH * stats.current_size / most) if most else 0
    bar = ("#" * filled).ljust(WIDTH, ".")
    counts = f"in {stats.total_put_count:>4}  out {stats.total_take_count:>4}"
    return f"{stats.name:<8} {bar} {stats.current_size:>4} of at most {most:>4}  {counts}"


async def serve(path: str) -> None:
    """The service: orders come in bursts, and are billed one after the other."""
    async with fifoq.open_store(path) as store:
        orders, bills = await store.queue("orders"), await store.queue("bills")
        await orders.put_many([b"order"] * 40)
        print("serving", flush=True)
        while True:
            if len(orders) < 10:
                await orders.put_many([b"order"] * 30)
            await bills.put(await orders.take())
            if len(bills) > 4:
                await bills.take_many(4)
            await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--serve", action="store_true", help="be the service")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.directory))
    elif given.directory:
        asyncio.run(poll(given.directory))
    else:
        watch_a_service()


def watch_a_service() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, __file__, "--serve", scratch]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
            assert service.stdout is not None
            service.stdout.readline()
            try:
                asyncio.run(poll(scratch))
            finally:
                service.kill()


if __name__ == "__main__":
    main()
