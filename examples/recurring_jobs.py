"""Recurring jobs that survive restarts: an interval, a cron line, and what happens after a pause.

Run it: python examples/recurring_jobs.py [DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time

import fifoq


async def service(path: str) -> None:
    """The first life: say what recurs, and work on what comes."""
    async with fifoq.open(path) as jobs:
        # Said again at every start: a schedule of that name and those times goes on as it was.
        await jobs.schedule("sweep", b"sweep the cache", every=0.2)
        weekdays = "0 6 * * mon-fri"
        await jobs.schedule("report", b"report", cron=weekdays, zone="Europe/Berlin")
        for _ in range(2):
            async with jobs.lease() as job:
                print(job.headers["schedule.name"], job.item, "attempt", job.attempt)
        for schedule in jobs.schedules():
            print(schedule.name, schedule.every or schedule.cron, "put", schedule.put_count)


async def next_service(path: str) -> None:
    """The second life: what was missed meanwhile is made up for by one job, not by many."""
    async with fifoq.open(path) as jobs:
        job = await jobs.lease()
        print("after the pause:", job.headers["schedule.name"], "and", len(jobs), "waits")
        await job.ack()
        await jobs.unschedule("sweep")
        print("left:", [schedule.name for schedule in jobs.schedules()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = given.directory or f"{scratch}/jobs"
        asyncio.run(service(path))
        time.sleep(1)  # closed while five sweeps come due
        asyncio.run(next_service(path))


if __name__ == "__main__":
    main()
