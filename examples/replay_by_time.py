"""Read yesterday's records again from a live queue, by time, while its service goes on.

Run it: python examples/replay_by_time.py [DIRECTORY]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime

import fifoq


async def replay(path: str) -> list[bytes]:
    # Records that were taken stay for a week, or until they are 10 GB.
    kept = fifoq.Retention(max_age=7 * 24 * 3600, max_bytes=10 << 30)
    async with fifoq.open(path, retention=kept) as q:
        await q.put_many([b"early 1", b"early 2"])
        await asyncio.sleep(0.01)
        since = datetime.now(UTC)  # stands for yesterday, 0:00
        await q.put_many([b"order 1", b"order 2", b"order 3"])
        for _ in range(5):
            await q.take()  # the service has done them all
        print(f"{len(q)} records wait")

        cursor = await q.cursor("replay", since)
        lag = await cursor.lag()
        print(f"{lag.records} records to read again")
        again = []
        async for record in cursor.records(wait=False):  # without that it waits for new ones
            print(f"{record.key.counter} {record.item!r}")
            again.append(record.item)

        await cursor.seek(counter=1)
        print(f"and from the beginning: {await cursor.take()!r}")
        await cursor.delete()  # or what it has not read is kept for it
    return again


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/store"
        assert asyncio.run(replay(path)) == [b"order 1", b"order 2", b"order 3"]


if __name__ == "__main__":
    main()
