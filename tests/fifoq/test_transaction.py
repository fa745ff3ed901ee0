"""Transactions: puts, leases and acks of several queues in one frame, or none of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import fifoq
from actors.testing import settle
from fifoq import DiskFull, ItemTooLarge, Queue, QueueClosed, QueueFull, StaleLease, Store
from fifoq.options import Overflow
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench, Cuts, SmallDisk, cancelled, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


class NoLuck(Exception):
    """What goes wrong inside a transaction."""


async def two_queues(store: Store, **options: Any) -> tuple[Queue[bytes], Queue[bytes]]:
    return await store.queue("orders", **options), await store.queue("bills", **options)


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_record_moves_on_in_one_frame(bench: Bench, durability: str) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store, durability=durability)
        await orders.put_many([b"a", b"b"])
        log = store._committer.log
        assert log is not None
        async with store.transaction() as tx:
            delivery = await tx.lease(orders)
            tx.put(bills, b"bill of " + delivery.item, headers={"from": "orders"})
            tx.put(bills, b"copy")
            tx.ack(delivery)
            assert "puts=2 acks=1 open" in repr(tx)
            assert (len(orders), len(bills)) == (2, 0)
            assert orders.stats().leased == 1
            before = log.sequence
        assert log.sequence == before + 1
        assert [key.counter for key in tx.keys] == [1, 2]
        assert delivery.state == "acked"
        assert (len(orders), len(bills)) == (1, 2)
        assert orders.stats().leased == 0
        assert not await delivery.ack()
        async with bills.lease() as bill:
            assert bill.headers == {"from": "orders"}
            assert bill.key == tx.keys[0]
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        assert await drained(orders) == [b"b"]
        assert await drained(bills) == [b"copy"]


async def test_the_strongest_level_of_its_queues_counts(bench: Bench) -> None:
    async with bench.open_store(sync_interval=None) as store:
        weak = await store.queue("weak", durability="memory")
        strong = await store.queue("strong", durability="sync")
        await store.flush()
        log = store._committer.log
        assert log is not None
        async with store.transaction() as tx:
            tx.put(weak, b"a")
        assert log.durable_upto < log.sequence
        async with store.transaction() as tx:
            tx.put(weak, b"b")
            tx.put(strong, b"c")
        assert log.durable_upto == log.sequence
        async with store.transaction() as tx:
            tx.put(weak, b"d", durability="sync")
        assert log.durable_upto == log.sequence


@pytest.mark.parametrize("durability", LEVELS)
async def test_an_exception_rolls_everything_back(bench: Bench, durability: str) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store, durability=durability)
        await orders.put_many([b"a", b"b"])
        tx = store.transaction()

        async def fail() -> None:
            async with tx:
                tx.ack(await tx.lease(orders))
                tx.put(bills, b"x")
                raise NoLuck

        with pytest.raises(NoLuck):
            await fail()
        delivery = tx._leased[0]
        assert (len(orders), len(bills)) == (2, 0)
        assert (orders.stats().leased, tx.keys) == (0, [])
        with pytest.raises(StaleLease, match="rolled back"):
            await delivery.ack()
        again = await orders.lease()
        assert (again.item, again.attempt) == (b"a", 2)


async def test_what_was_leased_outside_can_be_acked_and_stays_leased_otherwise(
    bench: Bench,
) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        await orders.put_many([b"a", b"b"])
        async with orders.lease() as first, store.transaction() as tx:
            tx.ack(first)
            tx.put(bills, b"x")
        second = await orders.lease()

        async def fail() -> None:
            async with store.transaction() as tx:
                tx.ack(second)
                raise NoLuck

        with pytest.raises(NoLuck):
            await fail()
        assert (second.state, orders.stats().leased) == ("leased", 1)
        assert await second.ack()
        assert len(orders) == 0


async def test_what_is_neither_acked_nor_nacked_is_back_at_its_place(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        orders.configure(retry_backoff=0)
        await orders.put_many([b"a", b"b", b"c", b"d"])
        outside = await orders.lease()
        async with store.transaction() as tx:
            await tx.lease(orders)
            assert await tx.take(orders) == b"c"
            tx.nack(outside)
            tx.put(bills, b"x")
        assert outside.state == "nacked"
        assert await drained(orders) == [b"a", b"b", b"d"]


async def test_a_lease_of_a_long_transaction_is_kept(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store, lease_seconds=5)
        await orders.put(b"a")
        async with store.transaction() as tx:
            delivery = await tx.lease(orders)
            await asyncio.sleep(60)
            tx.put(bills, b"x")
            tx.ack(delivery)
        assert (len(orders), len(bills)) == (0, 1)


async def test_a_lease_that_ended_before_the_commit_changes_nothing(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        await orders.put_many([b"a", b"b"])
        good, short = await orders.lease(), await orders.lease(seconds=5)

        async def ack_late() -> None:
            async with store.transaction() as tx:
                tx.ack(good)
                tx.ack(short)
                tx.put(bills, b"x")
                await asyncio.sleep(6)

        with pytest.raises(StaleLease):
            await ack_late()
        assert (len(orders), len(bills)) == (2, 0)
        assert good.state == "leased"
        assert await orders.peek() == b"b"


async def test_misuse_is_told_and_changes_nothing(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        await orders.put_many([b"a", b"b"])
        tx = store.transaction()
        with pytest.raises(RuntimeError, match="is new"):
            tx.put(bills, b"x")
        async with tx:
            done = await tx.lease(orders)
            tx.ack(done)
            with pytest.raises(ValueError, match="settled in this transaction already"):
                tx.nack(done)
            with pytest.raises(TypeError):
                tx.put(cast(Any, bills), "no bytes")
            with pytest.raises(TypeError):
                tx.put(bills, b"x", colour="red")  # type: ignore[call-arg]
            with pytest.raises(ItemTooLarge):
                tx.put(bills, b"x" * (17 << 20))
        with pytest.raises(RuntimeError, match="is committed: it can be used inside"):
            tx.put(bills, b"x")
        with pytest.raises(RuntimeError, match="is committed: it can be used inside"):
            tx.ack(done)
        with pytest.raises(RuntimeError, match="is committed"):
            await tx.lease(orders)
        with pytest.raises(RuntimeError, match="Begin a new one"):
            async with tx:
                pass
        async with store.transaction() as tx:
            with pytest.raises(StaleLease):
                tx.ack(done)
        other = await Bench().open_store()
        strange = await other.queue("orders")
        await strange.put(b"s")
        foreign = await strange.lease()
        async with store.transaction() as tx:
            with pytest.raises(ValueError, match="belongs to another store"):
                tx.put(strange, b"x")
            with pytest.raises(ValueError, match="belongs to another store"):
                tx.ack(foreign)
        assert await foreign.ack()
        await other.close()
        assert (len(orders), len(bills)) == (1, 0)


async def test_an_empty_transaction_writes_nothing(bench: Bench) -> None:
    async with bench.open_store() as store:
        log = store._committer.log
        assert log is not None
        before = log.sequence
        async with store.transaction():
            pass
        assert log.sequence == before


async def test_it_has_a_limit(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        async with store.transaction() as tx:
            for _ in range(4):
                tx.put(orders, b"x" * (13 << 20))
            with pytest.raises(ItemTooLarge, match="not in it"):
                tx.put(bills, b"x" * (13 << 20))
        assert (len(orders), len(bills)) == (4, 0)


async def test_its_puts_have_every_keyword(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await store.queue("orders", priorities=True), await store.queue("bills")
        async with store.transaction() as tx:
            tx.put(orders, b"last", priority=9)
            tx.put(orders, b"first", priority=0, headers={"a": "b"})
            tx.put(bills, b"later", delay=30)
            tx.put(bills, b"k1", ordering_key="k")
            tx.put(bills, b"k2", ordering_key="k")
            tx.put(bills, b"short", ttl=5)
        assert [await orders.take(), await orders.take()] == [b"first", b"last"]
        assert bills.stats().delayed == 1
    async with bench.open_store() as store:
        bills = await store.queue("bills")
        first = await bills.lease()
        assert first.item == b"k1"
        assert (await bills.lease()).item == b"short"
        waiting = await started(bills.take())
        assert not waiting.done()
        await first.ack()
        assert await waiting == b"k2"
        assert await bills.take(timeout=60) == b"later"
        with pytest.raises(ValueError, match="delay"):
            await _put_wrong(store, bills)
        assert len(bills) == 1


async def _put_wrong(store: Store, bills: Queue[bytes]) -> None:
    async with store.transaction() as tx:
        tx.put(bills, b"x")
        tx.put(bills, b"y", delay=-1)


# Full queues and disks.


async def test_it_waits_for_room_and_counts_what_it_removes(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store, maxsize=2)
        await orders.put_many([b"a", b"b"])
        async with store.transaction() as tx:
            delivery = await tx.lease(orders)
            tx.put(orders, b"again")
            tx.ack(delivery)
        assert len(orders) == 2
        await bills.put_many([b"1", b"2"])

        async def move() -> None:
            async with store.transaction() as tx:
                tx.put(bills, await tx.take(orders))

        moving = await started(move())
        assert not moving.done()
        assert (len(orders), len(bills)) == (2, 2)
        assert await bills.take() == b"1"
        await moving
        assert (len(orders), len(bills)) == (1, 2)
        moving = await started(move())
        await cancelled(moving)
        assert (len(orders), orders.stats().leased, len(bills)) == (1, 0, 2)


async def test_room_is_not_given_twice(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await two_queues(store, maxsize=1)
        bench.runner.hold()
        busy = await started(orders.put(b"a"))

        async def put() -> None:
            async with store.transaction() as tx:
                tx.put(bills, b"x")

        putting = await started(put())
        other = await started(bills.put(b"y"))
        bench.runner.let_go()
        await asyncio.gather(busy, putting)
        await settle()
        assert (len(bills), other.done()) == (1, False)
        assert await bills.take() == b"x"
        await other


@pytest.mark.parametrize("overflow", ["fail", "drop-newest"])
async def test_a_full_queue_that_does_not_block_rolls_it_back(
    bench: Bench, overflow: Overflow
) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders")
        bills = await store.queue("bills", maxsize=1, overflow=overflow)
        await orders.put(b"a")
        await bills.put(b"1")
        with pytest.raises(QueueFull):
            async with store.transaction() as tx:
                tx.put(bills, await tx.take(orders))
        assert (len(orders), orders.stats().leased, len(bills)) == (1, 0, 1)


async def test_a_queue_that_drops_its_oldest_makes_room(bench: Bench) -> None:
    async with bench.open_store() as store:
        bills = await store.queue("bills", maxsize=2, overflow="drop-oldest")
        await bills.put_many([b"1", b"2"])
        async with store.transaction() as tx:
            tx.put(bills, b"3")
        assert await drained(bills) == [b"2", b"3"]


async def test_a_full_disk_rolls_it_back(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        orders, bills = await two_queues(store)
        await orders.put_many([b"x" * 1_600_000, b"b"])
        outside = await orders.lease()
        disk.fill()

        async def move() -> None:
            async with store.transaction() as tx:
                tx.put(bills, outside.item)
                tx.ack(outside)
                tx.put(orders, await tx.take(orders))

        with pytest.raises(DiskFull):
            await move()
        assert (outside.state, len(orders), len(bills)) == ("leased", 2, 0)
        assert await orders.peek() == b"b"
        # Acks alone need no space.
        async with store.transaction() as tx:
            tx.ack(outside)
            await tx.take(orders)
        assert len(orders) == 0
        disk.empty()
    async with disk.open_store() as store:
        assert (len(await store.queue("orders")), len(await store.queue("bills"))) == (0, 0)


async def test_a_store_that_closes_meanwhile_rolls_it_back(bench: Bench) -> None:
    store = await bench.open_store()
    orders, bills = await two_queues(store)
    await orders.put(b"a")

    async def close_inside() -> None:
        async with store.transaction() as tx:
            tx.put(bills, await tx.take(orders))
            await store.close()

    with pytest.raises(QueueClosed):
        await close_inside()
    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        assert (await drained(orders), await drained(bills)) == ([b"a"], [])


# Leaving and crashing.


async def test_whoever_leaves_at_any_step_leaves_all_of_it_or_nothing() -> None:
    outcomes = set()
    for steps in range(40):
        bench = Bench()
        store = await bench.open_store()
        orders, bills = await two_queues(store)
        await orders.put_many([b"a", b"b"])
        outside = await orders.lease()
        bench.runner.hold()

        async def work(
            store: Store = store,
            orders: Queue[bytes] = orders,
            bills: Queue[bytes] = bills,
            outside: fifoq.Delivery[bytes] = outside,
        ) -> None:
            async with store.transaction() as tx:
                tx.put(bills, await tx.take(orders))
                tx.ack(outside)
                tx.put(orders, b"new")

        task = asyncio.ensure_future(work())
        for step in range(steps):
            await asyncio.sleep(0)
            if step % 4 == 3:
                bench.runner.step()
        task.cancel()
        await settle()
        bench.runner.let_go()
        await settle()
        assert task.done()
        await store.flush()
        if outside.state == "leased":
            outside.nack(delay=0)
        found = (tuple(await drained(orders)), tuple(await drained(bills)))
        assert found in {((b"a", b"b"), ()), ((b"new",), (b"b",))}
        outcomes.add((task.cancelled(), found))
        await store.close()
    assert len(outcomes) == 3


async def test_the_power_cut_at_every_call_leaves_all_of_it_or_nothing(bench: Bench) -> None:
    before, after = ((b"a", b"b"), ()), ((b"b", b"new"), (b"a",))

    async def found(disk: SimFiles) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        async with Bench(disk).open_store() as again:
            orders, bills = await two_queues(again)
            return tuple(await drained(orders)), tuple(await drained(bills))

    async with bench.open_store() as store:
        orders, bills = await two_queues(store)
        await orders.put_many([b"a", b"b"])
        with Cuts(bench.files) as cuts:
            async with store.transaction() as tx:
                tx.put(bills, await tx.take(orders))
                tx.put(orders, b"new")
        outcomes = [await found(disk) for disk in cuts.disks]
        assert set(outcomes) == {before, after}
        confirmed = Cuts(bench.files)
        confirmed.note()
        assert {await found(disk) for disk in confirmed.disks} == {after}


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


@pytest.mark.parametrize("limits", [{"maxsize": 2}, {"max_bytes": 2}])
async def test_a_queue_that_is_over_its_limit_takes_what_makes_it_no_larger(
    bench: Bench, limits: dict[str, Any]
) -> None:
    """Replayed dead letters are put beyond the limits: an ack with a put was refused then."""
    async with bench.open_store() as store:
        q = await store.queue("q", overflow="fail", **limits)
        await q.put_many([b"a", b"b"])
        await (await q.lease()).reject("no")
        await q.put(b"c")
        await (await store.dead_letters("q")).replay()
        assert len(q) == 3
        async with store.transaction() as tx:
            tx.ack(await tx.lease(q))
            tx.put(q, b"d")
        assert await drained(q) == [b"c", b"a", b"d"]
