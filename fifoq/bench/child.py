"""A backlog, in processes of their own: `python -m fifoq.bench.child fill|open PATH [COUNT]`.

`fill` puts so many records and ends without a close, as a crash would. `open` prints the seconds
of the open, the seconds of the first take, and by how many megabytes the peak of resident memory
grew over both.
"""

from __future__ import annotations

import os
import sys
import time

import uvloop

import fifoq
from fifoq.bench.machine import peak_megabytes
from fifoq.bench.measure import records

FILL_RECORDS = 1000


async def fill(path: str, count: int) -> None:
    """Put `count` records in batches and flush them."""
    queue = await fifoq.open(path, durability="os")
    for start in range(0, count, FILL_RECORDS):
        await queue.put_many(records(min(FILL_RECORDS, count - start)))
    await queue.flush()
    os._exit(0)


async def open_once(path: str) -> None:
    """Measure one open and the first take."""
    # Imported and compiled by now: what grows from here on is the queue's.
    before = peak_megabytes()
    start = time.perf_counter()
    queue = await fifoq.open(path)
    opened = time.perf_counter()
    await queue.take()
    taken = time.perf_counter()
    print(opened - start, taken - opened, peak_megabytes() - before)
    await queue.close()


def main(arguments: list[str]) -> None:
    """Do what the first argument says."""
    match arguments:
        case ["fill", path, count]:
            uvloop.run(fill(path, int(count)))
        case ["open", path]:
            uvloop.run(open_once(path))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
