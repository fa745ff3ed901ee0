"""Delayed jobs: put now, handed out later; cancelled in time; too old for anybody."""

import asyncio
import tempfile
import time

import fifoq

STEP = 0.1


async def main(path: str) -> None:
    async with fifoq.open(path) as jobs:
        start = time.monotonic()
        await jobs.put(b"send the reminder", delay=2 * STEP)
        await jobs.put(b"send the welcome")  # is there at once
        await jobs.put(b"offer of the minute", ttl=STEP)  # nobody gets it later than that
        report = await jobs.put(b"make the report", delay=3 * STEP)
        print(len(jobs), "jobs,", jobs.stats().delayed, "of them for later")

        print(await jobs.cancel(report))  # True: it was still waiting
        print((await jobs.take()).decode())
        await asyncio.sleep(STEP)
        print((await jobs.take()).decode())  # waits for it; the offer has expired meanwhile
        print("not too early:", time.monotonic() - start >= 2 * STEP)
        print(jobs.stats().expired, "expired,", len(jobs), "left")

        await jobs.put(b"call back tomorrow", delay=24 * 3600)

    async with fifoq.open(path) as jobs:  # tomorrow may be after a restart
        print(jobs.stats().delayed, "waits after a restart")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(f"{scratch}/jobs"))
