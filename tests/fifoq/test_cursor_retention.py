"""Retention and cursors together: what stays, for whom, and what can be read again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import fifoq
from fifoq import Retention, holding
from store import Log
from store.keeping import held_bytes
from tests.fifoq.support import Bench, cancelled, started
from tests.fifoq.test_cursor import rest
from tests.fifoq.test_holding import ITEM, SMALL, kept, quiet

pytestmark = pytest.mark.anyio

NANOSECONDS = 10**9


async def consumed(bench: Bench, count: int, **options: Any) -> Any:
    """A store whose queue had that many records, ten to a segment, all of them taken."""
    store = await bench.open_store(**SMALL)
    queue = await store.queue(**options)
    for _ in range(count):
        await queue.put(ITEM)
    await queue.remove_upto(count)
    await quiet()
    return store


@pytest.mark.parametrize(
    ("retention", "first"),
    [
        ("acked", 51),
        ("all", 1),
        (Retention(max_segments=2), 31),
        (Retention(max_bytes=35_000), 21),
        (Retention(max_segments=0, min_segments=1), 41),
        (Retention(max_segments=0, min_segments=0), 51),
        (Retention(max_bytes=0, min_segments=3), 21),
    ],
)
async def test_earliest_is_what_retention_has_kept(
    bench: Bench, retention: Any, first: int
) -> None:
    store = await consumed(bench, 55, retention=retention)
    async with store:
        queue = await store.queue()
        assert kept(store) == list(range(first, 56))
        cursor = await queue.cursor("late")
        assert cursor.position == first
        assert len(await rest(cursor)) == 56 - first
        if first > 1:
            with pytest.raises(fifoq.RangeGone) as raised:
                await cursor.seek(counter=first - 1)
            assert raised.value.oldest == first


async def test_max_age_lets_old_segments_go_and_a_cursor_keeps_them(bench: Bench) -> None:
    store = await consumed(bench, 35, retention=Retention(max_age=3600, min_segments=0))
    async with store:
        queue = await store.queue()
        assert kept(store)[0] == 1
        slow = await queue.cursor("slow", 12)
        # Records have the time of the real clock, and the log that of the bench.
        bench.clock.set_wall(queue.stats().last_put_time + 2 * 3600 * NANOSECONDS)
        for _ in range(10):
            await queue.put(ITEM)
        await queue.remove_upto(45)
        await quiet()
        assert kept(store)[0] == 11
        assert len(await rest(slow)) == 34
        await slow.commit()
        for _ in range(10):
            await queue.put(ITEM)
        await quiet()
        assert kept(store)[0] > 30


async def test_what_is_retained_can_be_read_again_by_time_after_a_crash(bench: Bench) -> None:
    async with bench.open(retention="all") as queue:
        await queue.put_many([b"a", b"b"])
        await queue.take_many(2)
        first = (await queue.put(b"c")).timestamp
        await queue.take()
        crashed = bench.after_crash()
    async with crashed.open() as queue:
        moment = datetime.fromtimestamp(first // NANOSECONDS, UTC)
        cursor = await queue.cursor("replay", moment)
        assert (await rest(cursor))[-1] == b"c"
        assert await cursor.seek(timestamp=first) <= 3


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("what", ["open", "seek", "delete"])
async def test_whoever_leaves_while_a_cursor_is_made_moved_or_deleted(
    bench: Bench, what: str, steps: int
) -> None:
    """It is done or not, as a whole; and everybody sees the same."""
    async with bench.open(retention="all") as queue:
        await queue.put_many([b"%d" % number for number in range(1, 6)])
        cursor = await queue.cursor("reader") if what != "open" else None
        bench.runner.hold()
        work: Any
        if cursor is None:
            work = queue.cursor("reader", 3)
        else:
            work = cursor.seek(counter=3) if what == "seek" else cursor.delete()
        task = asyncio.ensure_future(work)
        for _ in range(steps):
            await asyncio.sleep(0)
            bench.runner.step()
        if not task.done():
            await cancelled(task)
        bench.runner.let_go()
        await queue.flush()
        names = queue.cursors()
        crashed = bench.after_crash()
        there = await queue.cursor("reader")
        position, items = there.position, await rest(there)
        assert position in (1, 3)
        assert items == [b"%d" % number for number in range(position, 6)]
    async with crashed.open() as queue:
        assert queue.cursors() == names
        if names:
            assert (await queue.cursor("reader")).position == position


async def test_one_who_waits_while_the_cursor_is_moved_by_another_goes_on(bench: Bench) -> None:
    async with bench.open(retention="all") as queue:
        await queue.put_many([b"1", b"2"])
        cursor = await queue.cursor("reader", "latest")
        waiting = [await started(cursor.lease()) for _ in range(2)]
        await cursor.seek(counter=1)
        assert {(await member).item for member in waiting} == {b"1", b"2"}


async def test_many_cursors_that_hold_nothing_are_not_weighed_one_by_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new one asked for the bytes of all: a thousand cursors took minutes to make."""
    asked: list[int] = []

    def counted(log: Log, holds: Mapping[str, int]) -> int:
        asked.append(len(holds))
        return held_bytes(log, holds)

    monkeypatch.setattr(holding, "held_bytes", counted)
    async with bench.open_store() as store:
        for number in range(20):
            queue = await store.queue(f"q{number}")
            await queue.put(b"x")
            await queue.cursor("reader")
        assert len(asked) <= 3 * 20
        (stats,) = queue.stats().consumers
        assert (stats.held_bytes, stats.lag_records) == (0, 1)
