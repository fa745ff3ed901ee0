"""Leases: acked once, or back at their place."""

from __future__ import annotations

import asyncio

import pytest

from actors.testing import settle
from fifoq import QueueClosed, StaleLease
from tests.fifoq.support import Bench, cancelled, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_an_acked_record_is_gone(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b"])
        delivery = await q.lease()
        assert (delivery.item, delivery.attempt, delivery.key.counter) == (b"a", 1, 1)
        assert (len(q), q.stats().ready, q.stats().leased) == (2, 1, 1)
        assert "leased" in repr(delivery)
        assert await delivery.ack()
        assert not await delivery.ack()
        assert len(q) == 1
        with pytest.raises(StaleLease, match="has ended"):
            delivery.nack(delay=0)
    async with bench.open() as q:
        assert await drained(q) == [b"b"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_nacked_record_is_back_at_its_place(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b", b"c"])
        first, second = await q.lease(), await q.lease()
        second.nack(delay=0)
        first.nack(delay=0)
        assert await q.peek() == b"a"
        again = await q.lease()
        assert (again.item, again.attempt) == (b"a", 2)
        with pytest.raises(StaleLease):
            await first.ack()
        with pytest.raises(StaleLease):
            first.extend(5)
        assert await q.take_many(5) == [b"b", b"c"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_lease_ends_in_time(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b"])
        short, long = await q.lease(seconds=5), await q.lease(seconds=50)
        waiting = await started(q.lease())
        await asyncio.sleep(4.9)
        assert not waiting.done()
        await asyncio.sleep(0.2)
        again = await waiting
        assert (again.item, again.attempt) == (b"a", 2)
        with pytest.raises(StaleLease, match="expired"):
            await short.ack()
        long.extend(100)
        with pytest.raises(ValueError, match="not above 0"):
            long.extend(0)
        await asyncio.sleep(60)
        assert await long.ack()


async def test_leases_come_back_by_reopening_and_count_on(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
        await q.lease()
    async with bench.open() as q:
        delivery = await q.lease()
        assert (delivery.item, delivery.attempt) == (b"a", 2)
        delivery.nack(delay=0)
    async with bench.open() as q:
        assert (await q.lease()).attempt == 3


@pytest.mark.parametrize("durability", LEVELS)
async def test_acks_may_come_in_any_order(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many(b"%d" % n for n in range(10))
        deliveries = [await q.lease() for _ in range(10)]
        for n in (3, 0, 9, 5, 4, 7):
            assert await deliveries[n].ack()
        assert len(q) == 4
    async with bench.open() as q:
        assert await drained(q) == [b"1", b"2", b"6", b"8"]


async def test_async_with_acks_extends_and_gives_back(bench: Bench) -> None:
    async with bench.open(lease_seconds=10, retry_backoff=0) as q:
        await q.put_many([b"a", b"b"])
        async with q.lease() as d:
            await asyncio.sleep(1000)
            assert d.item == b"a"
        assert d.state == "acked"
        with pytest.raises(KeyError):
            async with q.lease() as d:
                raise KeyError
        assert d.state == "nacked"
        async with q.lease(seconds=5, auto_extend=False) as d:
            await asyncio.sleep(6)
        assert d.state == "expired"
        async with q.lease() as d:
            assert d.attempt == 3
            await d.ack()
        assert q.empty()


async def test_extension_ends_with_its_limit(bench: Bench) -> None:
    async with bench.open(durability="memory") as q:
        await q.put(b"a")
        async with q.lease(seconds=1000) as d:
            await asyncio.sleep(13 * 3600)
            assert d.state == "expired"


async def test_the_error_of_a_block_goes_on_when_the_store_is_gone(bench: Bench) -> None:
    """A cancellation became QueueClosed when the store was closed beside the handler."""
    q = await bench.open()
    await q.put(b"a")

    async def handle() -> None:
        async with q.lease():
            await asyncio.sleep(1e9)

    handler = await started(handle())
    await q.close()
    handler.cancel()
    await settle()
    assert handler.cancelled()


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_lease_that_is_cancelled_gives_its_record_back(bench: Bench, sealed: bool) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        other = None if sealed else await started(q.put(b"b"))
        lease = await started(q.lease()._lease())
        await cancelled(lease)
        assert len(q) == 1
        bench.runner.let_go()
        if other is not None:
            await other
        assert (await q.lease()).attempt == 1


async def test_an_ack_that_is_cancelled_is_applied_and_may_be_repeated(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        delivery = await q.lease()
        bench.runner.hold()
        ack = await started(delivery.ack())
        await cancelled(ack)
        bench.runner.let_go()
        await settle()
        assert not await delivery.ack()
        assert q.empty()


async def test_a_lease_out_at_close_is_refused_afterwards(bench: Bench) -> None:
    q = await bench.open()
    await q.put(b"a")
    delivery = await q.lease()
    await q.close()
    with pytest.raises(QueueClosed):
        await delivery.ack()
    await asyncio.sleep(100)


async def test_an_acked_lease_makes_room(bench: Bench) -> None:
    async with bench.open(durability="memory", maxsize=1) as q:
        await q.put(b"a")
        delivery = await q.lease()
        put = await started(q.put(b"b"))
        assert not put.done()
        await delivery.ack()
        await put


async def test_marks_are_exact_when_acks_and_puts_mix(bench: Bench) -> None:
    """An ack between puts of one window hid the highest size."""
    async with bench.open(durability="memory") as q:
        q.put_nowait(b"a")
        delivery = await q.lease()
        for _ in range(4):
            q.put_nowait(b"b")
        await delivery.ack()
        assert q.stats().high_water_mark == 5
        assert q.stats().low_water_mark == 1


async def test_a_record_is_delayed_then_ready_then_leased_then_gone(bench: Bench) -> None:
    async with bench.open() as q:

        def counts() -> tuple[int, int, int]:
            stats = q.stats()
            return stats.delayed, stats.ready, stats.leased

        await q.put(b"a", delay=5)
        assert counts() == (1, 0, 0)
        await asyncio.sleep(6)
        assert counts() == (0, 1, 0)
        delivery = await q.lease()
        assert (counts(), delivery.state) == ((0, 0, 1), "leased")
        delivery.nack(delay=5)
        assert (counts(), delivery.state) == ((1, 0, 0), "nacked")
        delivery = await q.lease()
        assert await delivery.ack()
        assert (counts(), delivery.state) == ((0, 0, 0), "acked")


async def test_each_hand_out_is_a_delivery_of_its_own_and_earlier_ones_are_stale(
    bench: Bench,
) -> None:
    async with bench.open() as q:
        key = await q.put(b"a")
        first = await q.lease(seconds=5)
        await asyncio.sleep(6)
        second = await q.lease()
        assert (first.key, second.key) == (key, key)
        assert (first.attempt, second.attempt) == (1, 2)
        with pytest.raises(StaleLease):
            await first.ack()
        assert await second.ack()


async def test_a_lease_lasts_thirty_seconds_unless_it_says_otherwise(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        delivery = await q.lease()
        await asyncio.sleep(29.9)
        assert delivery.state == "leased"
        await asyncio.sleep(0.2)
        assert delivery.state == "expired"


async def test_the_ack_floor_is_below_the_first_record_that_is_not_acked(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b", b"c", b"d"])
        deliveries = [await q.lease() for _ in range(3)]
        floors = []
        for n in (2, 0, 1):
            await deliveries[n].ack()
            floors.append(q.stats().ack_floor)
        assert floors == [0, 1, 3]
    async with bench.open() as q:
        assert q.stats().ack_floor == 3
