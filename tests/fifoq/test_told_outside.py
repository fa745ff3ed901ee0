"""What stats tell those who only look: services that ask before they put, and other processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fifoq


@pytest.mark.parametrize("durability", ["memory", "os", "sync"])
def test_the_high_water_mark_of_a_commit_is_never_below_its_size(
    tmp_path: Path, durability: str
) -> None:
    """Marks were those seen in memory before the commit, and its own records were not among them.

    A reader in another process was told of a queue with 15 records that never had more than 14.
    """

    async def run() -> None:
        async with fifoq.open(tmp_path, durability=durability) as q:
            for count in (1, 3, 2, 5):
                await q.put_many([b"x"] * count)
                await q.flush()
                async with fifoq.open_store(tmp_path, read_only=True) as store:
                    seen = await (await store.queue("main")).stats()
                assert seen.high_water_mark is not None
                assert seen.high_water_mark >= seen.current_size
            assert q.stats().high_water_mark == 11

    asyncio.run(run())


def test_the_low_water_mark_of_a_commit_is_never_above_its_size(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            await q.put_many([b"x"] * 5)
            for _ in range(5):
                await q.take()
        async with fifoq.open_store(tmp_path, read_only=True) as store:
            seen = await (await store.queue("main")).stats()
        assert (seen.current_size, seen.low_water_mark, seen.high_water_mark) == (0, 0, 5)

    asyncio.run(run())


def test_stats_tell_pressure_to_one_who_never_waits_and_that_it_has_gone(tmp_path: Path) -> None:
    """It was noticed by puts alone: a service that refused because of it never heard of its end."""

    async def run() -> None:
        async with fifoq.open(tmp_path, pressure_high=4, pressure_low=2) as q:
            for _ in range(4):
                assert not q.stats().under_pressure
                await q.submit(b"x")
            assert q.stats().under_pressure
            await q.take()
            assert q.stats().under_pressure
            await q.take()
            assert not q.stats().under_pressure

    asyncio.run(run())
