"""Leasing many at once: one commit for their attempts, one for their acks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fifoq.sync
from fifoq import StaleLease
from tests.fifoq.support import Bench, cancelled, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_many_are_leased_and_acked_in_one_commit_each(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"%d" % n for n in range(5)])
        before = q.stats().commits
        deliveries = await q.lease_many(3)
        assert [(d.item, d.attempt) for d in deliveries] == [(b"0", 1), (b"1", 1), (b"2", 1)]
        assert q.stats().leased == 3
        assert await q.ack_many(deliveries) == 3
        assert await q.ack_many(deliveries) == 0
        assert await q.ack_many([]) == 0
        await q.flush()
        assert q.stats().commits - before <= (2 if durability != "memory" else 1)
        assert (len(q), q.stats().leased) == (2, 0)
    async with bench.open() as q:
        assert await drained(q) == [b"3", b"4"]


async def test_no_more_than_was_asked_for_and_at_least_one(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"x" * 10] * 4)
        assert len(await q.lease_many(10, max_bytes=25)) == 2
        assert len(await q.lease_many(10, max_bytes=1)) == 1
        assert len(await q.lease_many(10)) == 1
        with pytest.raises(TimeoutError):
            await q.lease_many(10, timeout=1)
        with pytest.raises(ValueError, match="below 1"):
            q.lease_many(0)
        with pytest.raises(ValueError, match="not above 0"):
            q.lease_many(1, seconds=0)


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_block_acks_what_is_left_and_gives_back_on_an_error(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability, retry_backoff=0, lease_seconds=5) as q:
        await q.put_many([b"a", b"b", b"c"])
        deliveries: list[fifoq.Delivery[bytes]] = []

        async def fail() -> None:
            async with q.lease_many(2) as leased:
                deliveries.extend(leased)
                await leased[0].ack()
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        assert [d.state for d in deliveries] == ["acked", "nacked"]
        async with q.lease_many(5) as deliveries:
            # Longer than a lease: the block extends them.
            await asyncio.sleep(60)
            assert [(d.item, d.attempt) for d in deliveries] == [(b"b", 2), (b"c", 1)]
        assert not len(q)


async def test_a_stale_one_among_them_changes_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
        first, second = await q.lease_many(2)
        first.nack(delay=0)
        with pytest.raises(StaleLease):
            await q.ack_many([second, first])
        assert second.state == "leased"
        with pytest.raises(ValueError, match="twice"):
            await q.ack_many([second, second])
        assert await second.ack()


@pytest.mark.parametrize("acked", [False, True])
async def test_what_was_leased_elsewhere_is_not_acked_here(bench: Bench, acked: bool) -> None:
    async with bench.open_store() as store:
        mine, other = await store.queue("mine"), await store.queue("other")
        await mine.put_many([b"a", b"b"])
        await other.put(b"x")
        delivery, foreign = await mine.lease(), await other.lease()
        member = await (await mine.cursor("reader")).lease()
        if acked:
            await foreign.ack()
        for stranger in (foreign, member):
            with pytest.raises(ValueError, match=r"was not leased from it.*Nothing was changed"):
                await mine.ack_many([delivery, stranger])
        assert (delivery.state, mine.stats().leased, other.stats().leased) == (
            "leased",
            1,
            int(not acked),
        )
        assert await mine.ack_many([delivery]) == 1


@pytest.mark.parametrize("steps", range(4))
async def test_a_caller_that_leaves_leaves_all_of_them(bench: Bench, steps: int) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        leasing = await started(q.lease_many(2))
        for _ in range(min(steps, 1)):
            await asyncio.sleep(0)
        await cancelled(leasing)
        bench.runner.let_go()
        await q.flush()
        again = await q.lease_many(3)
        assert [(d.item, d.attempt) for d in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]


async def test_lanes_and_keys_hold_for_many(bench: Bench) -> None:
    async with bench.open(priorities=True) as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a", priority=1)
        await q.put(b"b1", ordering_key="b", priority=2)
        deliveries = await q.lease_many(10)
        assert [d.item for d in deliveries] == [b"a1", b"b1"]
        await q.ack_many(deliveries)
        assert [d.item for d in await q.lease_many(10)] == [b"a2"]


async def test_what_may_not_be_tried_again_is_buried_on_the_way(bench: Bench) -> None:
    async with bench.open(max_retries=0) as q:
        await q.put_many([b"a", b"b"])
        await q.lease()
    bench.crash()
    async with bench.open() as q:
        assert [d.item for d in await q.lease_many(5)] == [b"b"]
        await q.flush()
        assert q.stats().dead_lettered == 1


def test_threads_lease_many_as_well(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path) as queue:
        queue.put_many([b"a", b"b", b"c"], ttl=60)
        first, second = queue.lease_many(2)
        with first as delivery:
            assert delivery.item == b"a"
        assert queue.ack_many([second]) == 1
        assert queue.take() == b"c"
        key = queue.put(b"later", delay=60)
        assert queue.cancel(key)


async def test_wrong_limits_claim_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
        with pytest.raises(TypeError, match="max_bytes='1' is not a whole number"):
            await q.lease_many(2, max_bytes="1")  # type: ignore[arg-type]
        assert (q.stats().ready, q.stats().leased) == (2, 0)
        assert await drained(q) == [b"a", b"b"]
