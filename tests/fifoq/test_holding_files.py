"""Consumers on real files: another process reads and says how far it is, and is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import fifoq
import fifoq.sync
from fifoq.consumers import read_positions
from store import Reader
from tests.fifoq.loops import on_each_loop, until

READ_AND_SAY = """
import sys
from fifoq.consumers import Position, id_text, write_position
from store import Reader

path, checkpoint = sys.argv[1:]
with Reader(path) as reader:
    counters = [c for block in reader.blocks("main") for c in block.counters()]
    here = Position(
        queue="main", counter=counters[0], store=id_text(reader.store_id), checkpoint=checkpoint
    )
    write_position(path, "other-process", here)
    print(counters[-1] + 1, id_text(reader.store_id), flush=True)
sys.stdin.read()
"""


def kept(path: Path) -> list[int]:
    with Reader(str(path)) as reader:
        return [c for block in reader.blocks("main") for c in block.counters()]


@on_each_loop
async def test_a_consumer_that_is_killed_holds_until_its_checkpoint_proves_more(
    tmp_path: Path,
) -> None:
    path, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    async with fifoq.open(path, segment_bytes=1 << 16, durability="os") as queue:
        for _ in range(30):
            await queue.put_many([b"x" * 1000] * 20)
        await queue.flush()
        command = [sys.executable, "-c", READ_AND_SAY, str(path), str(checkpoint)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = await asyncio.to_thread(process.stdout.readline)
            process.kill()
        end, store_id = said.split()
        assert end == "601"
        assert list(read_positions(str(path))) == ["other-process"]
        assert await queue.remove_upto(600) == 600
        await queue.put(b"there is a tail")
        await until(lambda: queue.stats().consumers, pause=0.02)
        assert queue.stats().consumers[0].lag_records == 601
        assert kept(path) == list(range(1, 602))
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        offset = f'{{"counter": {end}, "store": "{store_id}"}}'
        (checkpoint / "offsets/0").write_text(f"v1\n{{}}\n{offset}")
        (checkpoint / "commits/0").write_text("v1\n{}")
        await until(lambda: len(list(path.glob("*.log"))) <= 2, pause=0.02)
        assert kept(path)[-1] == 601
        assert queue.stats().consumers[0].counter == 601


def test_blocking_code_removes_up_to_a_counter(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many([b"a", b"b", b"c"])
        delivery = queue.lease()
        assert queue.remove_upto(2) == 2
        assert delivery.state == "removed"
        assert queue.take() == b"c"
