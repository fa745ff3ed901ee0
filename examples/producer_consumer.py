"""A service with an intake and a pool of workers, which SIGTERM or Ctrl-C stops without a loss.

On the signal nobody gets a new record, records in hand are finished, and the store is closed, all
within a deadline. Exit status: 0 everything in hand was finished; 1 a worker was cut short, and its
record is in the queue for the next start. Run it: python examples/producer_consumer.py [DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile

import fifoq

WORKERS = 4
WORK_SECONDS = 0.02


async def take_in(q: fifoq.Queue[bytes]) -> int:
    """Stands for whatever brings the service its work; returns how much it confirmed."""
    count = 0
    try:
        while True:
            await q.put(b"order %d" % (count + 1))
            # Only now may the sender be told that it is safe.
            count += 1
            await asyncio.sleep(WORK_SECONDS / WORKERS)
    except fifoq.QueueClosed:
        return count


async def work(q: fifoq.Queue[bytes], seconds: float) -> int:
    """Handle one record after the other until the queue is shut down; returns how many."""
    count = 0
    while True:
        try:
            delivery = await q.lease()
        except fifoq.QueueClosed:
            return count
        if not count:
            print(f"a worker begins with {delivery.item!r}", flush=True)
        try:
            await asyncio.sleep(seconds)  # your handler
        except BaseException:
            delivery.nack()  # back to its place: also when the deadline cuts us short
            raise
        await delivery.ack()
        count += 1


async def stop(tasks: list[asyncio.Task[int]], q: fifoq.Queue[bytes], seconds: float) -> int:
    """Let everybody finish what is in hand, then close; the number of those who could not."""
    # Not `shutdown()` alone: that lets the workers empty the queue first, however long it takes.
    q.shutdown(immediate=True)
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    # A disk that hangs must not keep the process alive; what was confirmed is safe either way.
    await q.close(timeout=seconds)
    return len(late)


async def serve(path: str, work_seconds: float, deadline_seconds: float) -> int:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    q = await fifoq.open(path, maxsize=1000)  # the intake waits when workers fall behind
    print(f"found {len(q)} records; serving until SIGTERM", flush=True)
    intake = asyncio.create_task(take_in(q))
    workers = [asyncio.create_task(work(q, work_seconds)) for _ in range(WORKERS)]
    await told.wait()
    late = await stop([intake, *workers], q, deadline_seconds)
    handled = sum(task.result() for task in workers if not task.cancelled())
    print(f"took in {intake.result()}, handled {handled}, {len(q)} wait; {late} cut short")
    return 1 if late else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", help="of the store; a temporary one if not given")
    parser.add_argument("--work", type=float, default=WORK_SECONDS, help="seconds for each record")
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds to stop in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = given.directory or f"{scratch}/store"
        return asyncio.run(serve(path, given.work, given.deadline))


if __name__ == "__main__":
    sys.exit(main())
