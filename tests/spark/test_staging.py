"""A staging buffer brings each record to its table once, when it is due, and frees the log."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import fifoq
from examples import events_to_parquet
from fifoq.spark import StagingBuffer
from fifoq.spark.drain import DrainError

ROOT = Path(__file__).parents[2]
NEVER: dict[str, Any] = {"drain_records": 1 << 40, "drain_bytes": 1 << 40, "drain_seconds": 1e9}


def payload(number: int) -> bytes:
    return (b"%d" % number).ljust(1000)


def table_of(spark: SparkSession, path: Path) -> list[tuple[int, bytes]]:
    rows = spark.read.parquet(str(path)).select("counter", "data").orderBy("counter").collect()
    return [(row.counter, bytes(row.data)) for row in rows]


async def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def test_records_are_in_the_table_once_and_a_restart_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    async def run(start: int) -> None:
        buffer = StagingBuffer(
            tmp_path / "store", spark, to=tmp_path / "table", file_bytes=60_000, **NEVER
        )
        async with buffer:
            assert buffer.stats().waiting == 0
            await buffer.put(payload(start))
            await buffer.put_many([payload(n) for n in range(start + 1, start + 50)])
            for first in range(start + 50, start + 200, 50):
                await buffer.put_many([payload(n) for n in range(first, first + 50)])
            assert buffer.stats().waiting == 200
            assert not buffer.stats().draining
        stats = buffer.stats()
        assert (stats.waiting, stats.removed_records, stats.drains) == (0, 200, 1)
        assert stats.drained_records == 200
        assert stats.queue.total_put_count == start + 200
        assert stats.drained_upto == start + 200

    for start in (0, 200):
        asyncio.run(run(start))
    assert table_of(spark, tmp_path / "table") == [(n + 1, payload(n)) for n in range(400)]
    files = list((tmp_path / "table").glob("*.parquet"))
    assert len(files) >= 2 * 3, "file_bytes splits a drain into files"


@pytest.mark.parametrize(
    "limit", [{"drain_records": 50}, {"drain_bytes": 5_000}, {"drain_seconds": 0.2}]
)
def test_a_drain_begins_by_itself_when_one_is_due(
    spark: SparkSession, tmp_path: Path, limit: dict[str, Any]
) -> None:
    async def run() -> None:
        buffer = StagingBuffer(
            tmp_path / "store", spark, to=tmp_path / "table", **{**NEVER, **limit}
        )
        async with buffer:
            if "drain_seconds" not in limit:
                await buffer.put(b"x" * 100)
                await asyncio.sleep(0.5)
                assert buffer.stats().drains == 0
                assert not buffer.stats().draining
            await buffer.put_many([b"x" * 100] * 60)
            await eventually(lambda: buffer.stats().drains == 1)
            assert len(buffer) == 0

    asyncio.run(run())


def test_what_spark_does_not_keep_up_with_makes_puts_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Single-flight as well: while one drain runs no other begins, however much is due."""
    running: list[int] = []
    most: list[int] = []
    go = threading.Event()

    def slow(batch_id: int, frame: DataFrame) -> None:
        running.append(batch_id)
        most.append(len(running))
        go.wait(60)
        running.pop()

    async def run() -> None:
        buffer = StagingBuffer(
            tmp_path / "store",
            spark,
            to=slow,
            **{**NEVER, "drain_records": 10},
            pressure_high=100,
            pressure_low=20,
        )
        async with buffer:
            await buffer.put_many([b"x"] * 100)
            await eventually(lambda: bool(running))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await buffer.put(b"waits")
            assert buffer.stats().queue.under_pressure
            put = asyncio.ensure_future(buffer.put(b"comes"))
            go.set()
            await put
        assert len(buffer) == 0

    asyncio.run(run())
    assert max(most) == 1


def test_a_pipeline_that_fails_is_tried_again_and_gets_the_same_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[int, list[bytes]]] = []

    def pipeline(batch_id: int, frame: DataFrame) -> None:
        calls.append((batch_id, [bytes(row.data) for row in frame.collect()]))
        if len(calls) == 1:
            raise ValueError("not yet")

    async def run() -> None:
        buffer = StagingBuffer(
            tmp_path / "store", spark, to=pipeline, **{**NEVER, "drain_seconds": 0.1}
        )
        async with buffer:
            await buffer.put_many([b"a", b"b"])
            await eventually(lambda: buffer.stats().failures == 1)
            stats = buffer.stats()
            assert stats.waiting == 2
            assert stats.last_error is not None
            # Meanwhile puts go on; they belong to a later batch.
            await buffer.put(b"c")
            await eventually(lambda: len(buffer) == 0)
            assert buffer.stats().last_error is None

    asyncio.run(run())
    assert calls[0] == calls[1] == (0, [b"a", b"b"])
    assert [payload for _, batch in calls[1:] for payload in batch] == [b"a", b"b", b"c"]


def test_what_a_killed_run_had_proved_is_removed_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Ended between the drain and the removal."""

    async def first() -> None:
        buffer = StagingBuffer(tmp_path / "store", spark, to=tmp_path / "table", **NEVER)
        await buffer.open()
        await buffer.put_many([b"a", b"b"])
        await asyncio.to_thread(buffer._drain.run, 1)
        await buffer.close(drain=False)

    async def second() -> None:
        async with StagingBuffer(
            tmp_path / "store", spark, to=tmp_path / "table", **NEVER
        ) as buffer:
            stats = buffer.stats()
            assert (stats.waiting, stats.removed_records, stats.drains) == (0, 2, 0)

    asyncio.run(first())
    asyncio.run(second())
    assert [data for _, data in table_of(spark, tmp_path / "table")] == [b"a", b"b"]


def test_threads_stage_through_the_blocking_face(spark: SparkSession, tmp_path: Path) -> None:
    with StagingBuffer.blocking(
        tmp_path / "store",
        lambda: spark,
        to=tmp_path / "table",
        transform=lambda frame: frame.select(
            "counter", "data", (f.col("counter") % 2).alias("odd")
        ),
        partition_by="odd",
        **NEVER,
    ) as buffer:
        threads = [
            threading.Thread(target=lambda n=n: buffer.put_many([b"%d" % n] * 50)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert buffer.put(b"last").counter == 201
        assert len(buffer) == 201
        assert buffer.drain().records == 201
        assert buffer.stats().waiting == 0
    assert [counter for counter, _ in table_of(spark, tmp_path / "table")] == list(range(1, 202))
    assert (tmp_path / "table/odd=0").is_dir()


def test_a_table_without_its_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A new checkpoint counts batches from 0, and the table would skip them as known."""

    async def run() -> None:
        async with StagingBuffer(
            tmp_path / "store", spark, to=tmp_path / "table", **NEVER
        ) as buffer:
            await buffer.put(b"a")

    asyncio.run(run())
    shutil.rmtree(tmp_path / "store.checkpoint")
    with pytest.raises(DrainError, match="Bring the checkpoint back, or drain into another table"):
        asyncio.run(run())
    # The refusal left nothing open.
    with fifoq.sync.open(tmp_path / "store") as queue:
        assert len(queue) == 0


@pytest.mark.parametrize(
    "wrong", [{"drain_records": 0}, {"drain_seconds": -1.0}, {"consumer": "Not A Name"}]
)
def test_wrong_arguments_are_named(
    spark: SparkSession, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises((ValueError, fifoq.InvalidName), match=r"is not (above 0|allowed)"):
        StagingBuffer(tmp_path / "store", spark, to=tmp_path / "table", **wrong)
    assert not (tmp_path / "store").exists()


def test_the_service_of_the_tutorial_prints_what_the_page_says(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The session is ours, and others need it still.
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    events_to_parquet.main(str(tmp_path))
    assert capsys.readouterr().out.splitlines() == said_by_the_tutorial()


@pytest.mark.deep
def test_the_service_of_the_tutorial_is_a_program_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/events_to_parquet.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == said_by_the_tutorial()


def said_by_the_tutorial() -> list[str]:
    page = (ROOT / "docs/tutorial/events_to_parquet.md").read_text()
    return page.partition("for 2,000 more:\n\n```\n")[2].partition("```")[0].splitlines()
