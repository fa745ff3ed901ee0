"""A real process that reads with cursors is killed again and again, and no position is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import fifoq.sync

KILLS = 8
READER = """
import asyncio, sys
import fifoq

async def main(path):
    async with fifoq.open(path, segment_bytes=1 << 16) as q:
        one, many = await q.cursor("one"), await q.cursor("many")

        async def member():
            while True:
                async with many.lease():
                    await asyncio.sleep(0)

        members = [asyncio.create_task(member()) for _ in range(4)]
        number = len(q)
        while True:
            await q.put_many([b"%09d" % (number + at) * 50 for at in range(5)])
            number += 5
            await one.take_many(3)
            await one.commit()
            print(one.committed, many.committed, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def test_no_committed_position_is_lost_by_a_kill(tmp_path: Path) -> None:
    random = Random(1)
    path = tmp_path / "store"
    for _ in range(KILLS):
        command = [sys.executable, "-c", READER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(random.randint(3, 40))]
            process.kill()
            lines += process.stdout.readlines()
        whole = [text.split() for text in lines if text.endswith("\n")]
        told = max((int(one), int(many)) for one, many in whole)
        with fifoq.sync.open(path, segment_bytes=1 << 16) as queue:
            one, many = queue.cursor("one", "latest"), queue.cursor("many", "latest")
            assert one.position >= told[0] > 1
            assert many.position >= told[1]
            for cursor in (one, many):
                lag = cursor.lag().records
                counters = [record.key.counter for record in cursor.records(wait=False)]
                assert counters == sorted(set(counters))
                assert len(counters) == lag
                cursor.seek(counter=cursor.committed)
