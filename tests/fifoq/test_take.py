"""Taking, peeking, browsing; and what cancelling does to each."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

import fifoq.line
from actors.testing import settle
from fifoq import QueueClosed, QueueEmpty
from tests.fifoq.support import Bench, cancelled, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_take_waits_for_a_record(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        takers = [await started(q.take()) for _ in range(3)]
        await q.put_many([b"a", b"b", b"c"])
        assert await asyncio.gather(*takers) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_take_that_times_out_changes_nothing(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        with pytest.raises(TimeoutError):
            await q.take(timeout=1.0)
        with pytest.raises(TimeoutError):
            await q.lease(timeout=1.0)
        with pytest.raises(QueueEmpty, match="nothing that is ready"):
            q.take_nowait()
        await q.put(b"a")
        assert await q.take(timeout=1.0) == b"a"


@pytest.mark.parametrize("durability", LEVELS)
async def test_take_many_takes_one_to_that_many(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        with pytest.raises(ValueError, match="below 1"):
            await q.take_many(0)
        waiting = await started(q.take_many(5))
        await q.put(b"a")
        assert await waiting == [b"a"]
        await q.put_many([b"1" * 10, b"2" * 10, b"3" * 10])
        assert await q.take_many(9, max_bytes=25) == [b"1" * 10, b"2" * 10]
        assert await q.take_many(9, max_bytes=1) == [b"3" * 10]


@pytest.mark.parametrize("many", [False, True])
async def test_a_take_cancelled_before_sealing_leaves_its_record(bench: Bench, many: bool) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        put = await started(q.put(b"d"))
        take = await started(q.take_many(2) if many else q.take())
        assert len(q) == (1 if many else 2)
        await cancelled(take)
        assert len(q) == 3
        bench.runner.let_go()
        await put
        assert await drained(q) == [b"a", b"b", b"c", b"d"]


async def test_a_take_cancelled_after_sealing_has_its_record_restored(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        take = await started(q.take_many(2))
        await cancelled(take)
        assert await started(q.put(b"d"))
        bench.runner.let_go()
        await settle()
        assert q.stats().total_take_count == 0
    async with bench.open() as q:
        assert await drained(q) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("way", ["take", "lease"])
async def test_no_window_passes_a_record_that_is_on_its_way_back(bench: Bench, way: str) -> None:
    """Calls of the same turn got what was behind a record that a blocking caller gave back."""

    async def next_item() -> Any:
        return await q.take() if way == "take" else (await q.lease()).item

    async with bench.open(durability="memory") as q:
        await q.put_many([b"a", b"b", b"c"])
        records = await q.take_records(1)
        # The first opens a window for those who follow in this turn.
        calls = [next_item(), q.restore(records), next_item()]
        found = await asyncio.gather(*calls)
        assert found == [b"b", None, b"a"]


async def test_no_window_passes_the_record_of_a_taker_that_left_after_sealing(
    bench: Bench,
) -> None:
    """The same for a queue that is in memory now and was not when the taker came."""
    async with bench.open(durability="sync") as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        leaving = await started(q.take())
        q.configure(durability="memory")
        first = asyncio.ensure_future(q.take())
        leaving.cancel()
        second = asyncio.ensure_future(q.take())
        await settle()
        bench.runner.let_go()
        assert [await first, await second] == [b"b", b"a"]
        assert leaving.cancelled()


async def test_a_lease_that_waited_opens_no_window_past_a_record_on_its_way_back(
    bench: Bench,
) -> None:
    """Nor does one that was under way when its queue's durability was changed to memory."""

    async def two_items() -> list[bytes]:
        return [(await q.lease()).item, (await q.lease()).item]

    async with bench.open(durability="sync") as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        leaving = asyncio.ensure_future(q.take())
        leases = await started(two_items())
        q.configure(durability="memory")
        await cancelled(leaving)
        bench.runner.let_go()
        assert await leases == [b"b", b"a"]


async def test_a_lease_that_waited_does_not_hide_what_was_taken_meanwhile(bench: Bench) -> None:
    """The window that it opened made the next lease forget a removal: the record came again."""

    async def two_leases() -> None:
        await q.lease()
        await q.lease()

    async with bench.open(durability="sync") as q:
        await q.put_many([b"a", b"b", b"c", b"d"])
        bench.runner.hold()
        leases = await started(two_leases())
        q.configure(durability="memory")
        assert q.take_nowait() == b"b"
        bench.runner.let_go()
        await leases
    async with bench.open() as q:
        assert await drained(q) == [b"a", b"c", b"d"]


async def test_a_lease_of_what_was_given_back_does_not_hide_what_was_taken(bench: Bench) -> None:
    """The same for the window of a lease whose record did not come from the run."""
    async with bench.open(durability="memory") as q:
        await q.put_many([b"a", b"b", b"c", b"d"])
        records = await q.take_records(1)
        assert q.take_nowait() == b"b"
        await q.restore(records)
        assert [(await q.lease()).item, (await q.lease()).item] == [b"a", b"c"]
    async with bench.open() as q:
        assert await drained(q) == [b"a", b"c", b"d"]


async def test_closing_waits_for_what_is_restored(bench: Bench) -> None:
    """The record of a taker who left was to come back with the next frame; there was none."""
    q = await bench.open()
    await q.put(b"a")
    bench.runner.hold()
    take = await started(q.take())
    await cancelled(take)
    close = await started(q.close())
    bench.runner.let_go()
    await close
    async with bench.open() as q:
        assert await drained(q) == [b"a"]


async def test_a_take_cancelled_when_it_was_committed_gets_its_record_back(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        take = await started(q.take())
        bench.runner.step()
        await asyncio.sleep(0)
        take.cancel()
        await settle()
        assert take.cancelled()
        bench.runner.let_go()
        await settle()
        assert await drained(q) == [b"a"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_woken_taker_that_is_cancelled_passes_its_turn_on(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        first, second, third = [await started(q.take()) for _ in range(3)]
        await cancelled(second)
        q.put_nowait(b"a")
        first.cancel()
        await settle()
        if durability != "memory":
            await q.flush()
        assert await third == b"a"


async def test_peek_passes_its_wake_up_on(bench: Bench) -> None:
    """A peek that had waited for the disk left the taker behind it asleep."""
    async with bench.open() as q:
        await q.put(b"a")
    async with bench.open() as q:
        bench.runner.hold()
        peek = asyncio.ensure_future(q.peek())
        take = await started(q.take())
        bench.runner.let_go()
        assert await peek == b"a"
        assert await asyncio.wait_for(take, 5) == b"a"
        assert await q.peek() is None


@pytest.mark.parametrize("level", ["memory", "sync"])
@pytest.mark.parametrize("how", ["take", "take_many", "lease"])
async def test_takers_are_served_in_the_order_in_which_they_came(
    bench: Bench, level: Literal["memory", "sync"], how: str
) -> None:
    """One that was woken in vain went to the end of the line."""
    served: list[int] = []
    async with bench.open(durability=level) as q:

        async def serve(number: int) -> None:
            if how == "lease":
                await (await q.lease()).ack()
            else:
                await (q.take() if how == "take" else q.take_many(1))
            served.append(number)

        takers = [await started(serve(number)) for number in range(7)]
        for burst in (3, 1, 2, 1):
            for _ in range(burst):
                q.put_nowait(b"x")
            await settle()
        await asyncio.gather(*takers)
    assert served == list(range(7))


async def test_a_backlog_is_read_from_disk_in_order(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(fifoq.line, "CACHE_BYTES_MAX", 2000)
    monkeypatch.setattr("fifoq.jobs.READ_RECORDS", 10)
    items = [b"%d" % n * (n % 7) for n in range(300)]
    async with bench.open(durability="memory") as q:
        for at in range(0, 300, 30):
            await q.put_many(items[at : at + 30])
            await q.flush()
        assert q.gap is not None
        found = await q.take_many(50)
        assert 1 <= len(found) <= 50
        assert found + await drained(q) == items


async def test_take_nowait_comes_to_what_is_only_on_disk(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("fifoq.jobs.READ_RECORDS", 1)
    items = [b"%d" % n for n in range(6)]
    async with bench.open() as q:
        for item in items:
            await q.put(item)
    async with bench.open(durability="memory") as q:
        found = []
        while len(q):
            try:
                found.append(q.take_nowait())
            except QueueEmpty:
                assert q.gap is not None
                await settle()
        assert found == items


@pytest.mark.parametrize("durability", LEVELS)
async def test_browse_shows_everything_and_changes_nothing(
    bench: Bench, durability: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("fifoq.browse.PAGE_RECORDS", 3)
    async with bench.open(durability=durability) as q:
        for n in range(10):
            await q.put(b"%d" % n)
        await q.take()
        delivery = await q.lease()
        found = [(r.key.counter, r.item) async for r in q.browse()]
        assert found == [(n + 1, b"%d" % n) for n in range(1, 10)]
        assert [r.item async for r in q.browse(9)] == [b"8", b"9"]
        assert [r async for r in q.browse(50)] == []
        delivery.nack(delay=0)
        assert len(q) == 9


async def test_async_for_ends_at_shutdown_and_at_close(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])

        async def collect() -> list[bytes]:
            return [item async for item in q]

        reader = await started(collect())
        await q.put(b"c")
        await settle()
        assert not reader.done()
        q.shutdown()
        assert await reader == [b"a", b"b", b"c"]
    q = await bench.open()
    reader = await started(collect())
    await q.close()
    assert await reader == []


async def test_shutdown_drains_or_stops_at_once(bench: Bench) -> None:
    async with bench.open(maxsize=2) as q:
        await q.put_many([b"a", b"b"])
        waiting = await started(q.put(b"c"))
        q.shutdown()
        assert "shut down" in repr(q)
        with pytest.raises(QueueClosed, match="shut down"):
            await waiting
        with pytest.raises(QueueClosed):
            q.put_nowait(b"x")
        assert await q.take() == b"a"
        q.shutdown(immediate=True)
        with pytest.raises(QueueClosed):
            await q.take()
    async with bench.open() as q:
        assert await drained(q) == [b"b"]


async def test_a_drained_queue_ends_for_takers_when_the_last_lease_is_acked(bench: Bench) -> None:
    """A taker waited for ever for a leased record that was acked after the shutdown."""
    async with bench.open(durability="memory") as q:
        await q.put(b"a")
        delivery = await q.lease()
        take = await started(q.take())
        q.shutdown()
        await settle()
        assert not take.done()
        await delivery.ack()
        with pytest.raises(QueueClosed, match="is empty"):
            await take


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_take_returns_when_its_removal_has_its_level(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"a")
        await q.flush()
        bench.runner.hold()
        take = await started(q.take())
        assert take.done() == (durability == "memory")
        bench.runner.let_go()
        assert await take == b"a"


@pytest.mark.parametrize("durability", ["os", "sync"])
async def test_what_was_taken_does_not_come_back_after_a_crash(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b", b"c"])
        assert await q.take() == b"a"
        assert await q.take() == b"b"
        async with bench.after_crash().open() as again:
            assert await drained(again) == [b"c"]
