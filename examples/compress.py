"""A queue that compresses, and how much less it needs. Run it: python examples/compress.py

It works in a temporary directory and leaves nothing behind.
"""

import asyncio
import tempfile
from pathlib import Path

import fifoq


def size(path: Path) -> int:
    return sum(segment.stat().st_size for segment in path.glob("*.log"))


async def main() -> None:
    events = [b'{"event":"page_view","user":%d,"ms":%d}' % (n % 50, n) for n in range(10_000)]
    with tempfile.TemporaryDirectory() as scratch:
        plain, small = Path(scratch) / "plain", Path(scratch) / "small"
        async with fifoq.open(plain) as q:
            await q.put_many(events)
        async with fifoq.open(small, compression="zlib") as q:
            await q.put_many(events)
            print(q.stats().bytes, "bytes were put")
        print("on disk less than a quarter:", size(small) * 4 < size(plain))
        async with fifoq.open(small) as q:  # the option is kept with the queue
            print(await q.take(), q.options.compression)
            q.configure(compression=None)  # from now on; what is there stays as it is


asyncio.run(main())
