"""Cancellations, full disks and large records that met: what was lost, one small test for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from actors.testing import settle
from fifoq import DiskFull, Queue, QueueClosed, QueueEmpty, QueueFull
from tests.fifoq.support import Bench, SmallDisk, cancelled, drained, started

pytestmark = pytest.mark.anyio

BIG = b"x" * 1_600_000
"""More than a full disk has left for removals."""


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit of a frame, from MiB to KiB."""
    monkeypatch.setattr("store.gathering.BODY_BYTES_MAX", 64 << 10)
    monkeypatch.setattr("fifoq.intake.FRAME_BYTES_MAX", 56 << 10)
    monkeypatch.setattr("fifoq.joint.FRAME_BYTES_MAX", 56 << 10)
    monkeypatch.setattr("fifoq.committer.FRAME_BYTES_MAX", 56 << 10)
    monkeypatch.setattr("fifoq.intake.UNSEALED_BYTES_MAX", 32 << 10)
    monkeypatch.setattr("fifoq.line.RESTORED_BYTES_MAX", 4 << 10)


async def leave_after_the_seal(bench: Bench, queue: Queue[Any], count: int = 1) -> None:
    """A take whose frame is under way when its caller leaves."""
    bench.runner.hold()
    task = await started(queue.take_many(count))
    assert bench.runner.waiting is not None
    await cancelled(task)


async def cancel_as_the_job_ends(bench: Bench, task: asyncio.Task[Any]) -> None:
    """Cancel in the turn in which the committer hears of the job that waits."""
    bench.runner.holds = False
    assert bench.runner.step()
    task.cancel()
    await settle()


# Records that come back.


@pytest.mark.usefixtures("small_frames")
async def test_more_than_a_frame_of_records_comes_back(bench: Bench) -> None:
    """A cancelled take_many of 75 MiB was restored by one frame, which no frame can be: the store
    failed and all five records were lost."""
    items = [bytes([n]) * (15 << 10) for n in range(5)]
    async with bench.open() as q:
        for item in items:
            await q.put(item)
        for delivery in [await q.lease() for _ in items]:
            delivery.nack(delay=0)
        await leave_after_the_seal(bench, q, len(items))
        bench.runner.let_go()
        assert await q.take(timeout=5) == items[0]
        assert len(q) == 4
    async with bench.open() as q:
        assert await drained(q) == items[1:]


@pytest.mark.usefixtures("small_frames")
async def test_what_comes_back_does_not_make_the_frame_of_puts_too_large(bench: Bench) -> None:
    """What is restored was not counted: with a full tail beside it the frame was over its limit."""
    async with bench.open() as q:
        await q.put(b"a" * (30 << 10))
        await leave_after_the_seal(bench, q)
        put = await started(q.put(b"b" * (31 << 10)))
        bench.runner.let_go()
        await put
        await q.flush()
    async with bench.open() as q:
        assert [item[:1] for item in await drained(q)] == [b"a", b"b"]


async def test_a_record_that_a_full_disk_can_not_restore_is_there_for_takers(
    disk: SmallDisk,
) -> None:
    """Nobody could take anything until there was space, and close lost the record."""
    async with disk.open() as q:
        await q.put_many([BIG, b"b"])
        disk.fill()
        await leave_after_the_seal(disk, q)
        disk.runner.let_go()
        assert await q.take(timeout=3) == BIG
        assert await q.take(timeout=3) == b"b"
        disk.empty()
        await q.put(b"c")
    async with disk.open() as q:
        assert await drained(q) == [b"c"]


async def test_a_frame_of_removals_alone_confirms_no_put(disk: SmallDisk) -> None:
    """One that had come while a frame was refused returned, and was not on disk."""
    async with disk.open() as q:
        await q.put_many([b"a", b"b"])
        disk.fill()
        disk.runner.hold()
        calls = [asyncio.ensure_future(q.put(BIG)), asyncio.ensure_future(q.take())]
        await settle()
        late = await started(q.put(b"late"))
        # The frame that is refused, and that of its removals.
        assert [await disk.step(), await disk.step()] == [True, True]
        told = late.done() and late.exception() is None
        twin = disk.files.copy()
        disk.empty()
        disk.runner.let_go()
        outcomes = await asyncio.gather(*calls, late, return_exceptions=True)
        assert isinstance(outcomes[0], DiskFull)
        assert outcomes[1] == b"a"
    twin.process_crash()
    async with Bench(twin).open() as again:
        assert (b"late" in await drained(again)) == told


async def test_a_frame_of_removals_alone_confirms_no_take_of_an_unwritten_record(
    disk: SmallDisk,
) -> None:
    """A take of one that was put in memory returned although nothing of it was on disk."""
    async with disk.open() as q:
        await q.put(b"a")
        disk.fill()
        disk.runner.hold()
        await q.put(BIG, durability="memory")
        first = await started(q.take())
        second = await started(q.take())
        assert [await disk.step(), await disk.step()] == [True, True]
        early = second.done()
        disk.empty()
        disk.runner.let_go()
        assert [await first, await second] == [b"a", BIG]
        assert not early


async def test_an_unwritten_record_that_is_given_back_needs_no_disk() -> None:
    """It was restored beside its own put, which no frame can hold: the store failed."""
    disk = SmallDisk()
    async with disk.open(durability="memory") as q:
        big = b"x" * 1_600_000
        disk.fill()
        await q.put(big)
        taken = q.take_record_nowait()
        await q.restore([taken])
        assert len(q) == 1
        assert q.take_nowait() == big
        disk.empty()
        await q.put(b"a")
    async with disk.open() as q:
        assert await drained(q) == [b"a"]


async def test_a_record_is_given_back_whose_removal_is_under_way(bench: Bench) -> None:
    async with bench.open(durability="memory") as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        records = await q.take_records(1)
        flush = await started(q.flush())
        records += await q.take_records(1)
        restore = await started(q.restore(records))
        with pytest.raises(QueueEmpty):
            q.take_nowait()
        bench.runner.let_go()
        await asyncio.gather(flush, restore)
        assert len(q) == 3
    async with bench.open() as q:
        assert await drained(q) == [b"a", b"b", b"c"]


async def test_a_record_that_a_full_disk_could_not_restore_is_written_later(
    disk: SmallDisk,
) -> None:
    """The same, and nobody takes it before there is space."""
    async with disk.open() as q:
        await q.put_many([BIG, b"b"])
        disk.fill()
        await leave_after_the_seal(disk, q)
        disk.runner.let_go()
        await settle()
        assert await q.peek() == BIG
        disk.empty()
        await asyncio.sleep(1)
        assert len(q) == 2
        twin = disk.files.copy()
        twin.process_crash()
        async with Bench(twin).open() as again:
            assert await drained(again) == [BIG, b"b"]
        assert await drained(q) == [BIG, b"b"]


async def test_closing_a_take_that_is_under_way_loses_nothing(bench: Bench) -> None:
    """Only a cancellation brought the record back: the future of a coroutine that is closed is
    not cancelled."""
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        take = q.take().__await__()
        next(take)
        await settle()
        assert bench.runner.waiting is not None
        take.close()
        bench.runner.let_go()
        await settle()
        assert len(q) == 1
    async with bench.open() as q:
        assert await drained(q) == [b"a"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_queue_that_is_shut_down_is_not_empty_while_a_record_comes_back(
    bench: Bench, when: str
) -> None:
    """The next taker heard "empty"; then the record was there, for nobody."""
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        first = await started(q.take())
        q.shutdown()
        if when == "before":
            await cancelled(first)
        second = await started(q.take())
        assert not second.done()
        if when == "after":
            await cancelled(first)
        bench.runner.let_go()
        assert await second == b"a"


async def test_a_taker_of_a_queue_that_is_shut_down_hears_that_nothing_came_back(
    bench: Bench,
) -> None:
    """Whoever waits for what another taker may give back must not wait for ever."""
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        first = await started(q.take())
        q.shutdown()
        second = await started(q.take())
        bench.runner.let_go()
        assert await first == b"a"
        with pytest.raises(QueueClosed):
            await asyncio.wait_for(second, 5)


# A full disk.


async def test_acks_across_the_tail_do_not_stop_a_full_disk(disk: SmallDisk) -> None:
    """Acks of written and unwritten records were one range, which was tried without the puts: the
    store failed, although there was only no space."""
    async with disk.open(durability="memory", flush_interval=60.0) as q:
        await q.put_many([b"%d" % n for n in range(5)])
        await q.flush()
        disk.fill()
        await q.put_many([b"%d" % n + BIG for n in range(5, 12)])
        for delivery in [await q.lease() for _ in range(10)]:
            assert await delivery.ack()
        with pytest.raises(DiskFull):
            await q.flush()
        disk.empty()
        await asyncio.sleep(1)
        assert (await q.take(timeout=3))[:2] == b"10"
        q.put_nowait(b"z")
        await q.flush()
    async with disk.open() as q:
        assert [item[:2] for item in await drained(q)] == [b"11", b"z"]


async def test_a_put_that_is_cancelled_as_a_full_disk_refuses_it_is_withdrawn_once(
    disk: SmallDisk,
) -> None:
    """It was withdrawn twice: an AssertionError, and a size that was wrong for ever."""
    async with disk.open() as q:
        await q.put(b"a")
        disk.fill()
        disk.runner.hold()
        put = await started(q.put(BIG))
        await cancel_as_the_job_ends(disk, put)
        assert put.cancelled()
        disk.empty()
        await q.put(b"b")
        assert (len(q), q.stats().total_put_count, q.hidden) == (2, 2, 0)
        assert await drained(q) == [b"a", b"b"]


async def test_a_take_that_is_cancelled_as_a_full_disk_refuses_it_leaves_the_queue_open(
    disk: SmallDisk,
) -> None:
    """Its record was counted as come back twice: nobody could take any more."""
    async with disk.open() as q:
        disk.fill()
        disk.runner.hold()
        q.put_nowait(BIG)
        take = await started(q.take())
        await cancel_as_the_job_ends(disk, take)
        assert take.cancelled()
        disk.empty()
        await q.flush()
        assert q.restoring == 0
        assert await q.take(timeout=3) == BIG


# Acks and attempts.


async def test_an_ack_that_is_repeated_is_durable(bench: Bench) -> None:
    """The second ack of one that was cancelled returned at once, before anything was written:
    after a crash the record was back."""
    async with bench.open() as q:
        await q.put(b"a")
        delivery = await q.lease()
        bench.runner.hold()
        await cancelled(await started(delivery.ack()))
        again = await started(delivery.ack())
        assert not again.done()
        bench.runner.let_go()
        assert await again is False
        twin = bench.files.copy()
        twin.process_crash()
        async with Bench(twin).open() as after:
            assert len(after) == 0


async def test_a_lease_that_was_cancelled_under_way_is_no_attempt(bench: Bench) -> None:
    """It was written as one, and nothing took that back: the record seemed to fail each time."""
    async with bench.open() as q:
        await q.put(b"a")
        for _ in range(3):
            bench.runner.hold()
            lease = await started(q.lease())
            assert bench.runner.waiting is not None
            await cancelled(lease)
            bench.runner.let_go()
            await settle()
    async with bench.open() as q:
        assert (await q.lease()).attempt == 1


async def test_attempts_of_records_that_are_gone_are_forgotten(bench: Bench) -> None:
    """A take of a record that had been leased before left its attempts in memory for ever."""
    async with bench.open(durability="memory") as q:
        for _ in range(3):
            await q.put_many([b"a"] * 20)
            for delivery in [await q.lease() for _ in range(20)]:
                delivery.nack(delay=0)
            await q.take_many(10)
            for _ in range(10):
                await q.take()
        assert len(q) == 0
        assert not q.leasing._attempts


# Receipts and drops.


async def test_the_counter_of_a_submit_that_was_withdrawn_is_not_given_out_again(
    bench: Bench,
) -> None:
    """Nothing on disk knew of it: after a reopen another record had the same key."""
    async with bench.open() as q:
        await q.put(b"a")
        receipt = q.submit(b"b")
        assert receipt.withdraw()
    async with bench.open() as q:
        assert (await q.put(b"c")).counter > receipt.id
        assert await drained(q) == [b"a", b"c"]


async def test_a_submit_that_was_dropped_is_not_committed(bench: Bench) -> None:
    """Its receipt said "committed", though the queue was full and dropped it."""
    async with bench.open(maxsize=1, overflow="drop-newest") as q:
        kept = q.submit(b"a")
        await kept
        dropped = q.submit(b"b")
        await dropped
        assert (kept.outcome(), dropped.outcome()) == ("committed", "withdrawn")
        assert await drained(q) == [b"a"]


async def test_a_put_that_waits_under_pressure_drops_nothing(bench: Bench) -> None:
    """The oldest made room for a put that was not to come yet, and then it never came."""
    async with bench.open(
        durability="memory", maxsize=5, overflow="drop-oldest", pressure_high=3, pressure_low=1
    ) as q:
        items = [b"%d" % n for n in range(5)]
        for item in items:
            q.put_nowait(item)
        await cancelled(await started(q.put(b"x")))
        await cancelled(await started(q.put_many([b"x"] * 5)))
        assert await drained(q) == items


@pytest.mark.usefixtures("small_frames")
async def test_a_put_that_is_refused_for_what_waits_drops_nothing(bench: Bench) -> None:
    """QueueFull says that nothing was stored; the oldest records were gone all the same."""
    async with bench.open(durability="memory", maxsize=4, overflow="drop-oldest") as q:
        await q.put_many([b"0", b"1", b"2"])
        await q.flush()
        bench.runner.hold()
        flush = await started(q.flush())
        q.put_nowait(b"x" * (30 << 10))
        with pytest.raises(QueueFull):
            q.put_nowait(b"y" * (30 << 10))
        assert len(q) == 4
        bench.runner.let_go()
        await flush
        assert await q.take() == b"0"


CALLS: dict[str, Callable[[Queue[Any]], Any]] = {
    "seconds='1'": lambda q: q.lease(seconds="1"),  # type: ignore[arg-type]
    "seconds=nan": lambda q: q.lease(seconds=float("nan")),
    "seconds=inf": lambda q: q.lease(seconds=float("inf")),
    "seconds=-1": lambda q: q.lease(seconds=-1),
    "max_bytes='1'": lambda q: q.take_many(2, max_bytes="1"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("durability", ["memory", "sync"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_wrong_argument_leaves_the_record_where_it_is(
    bench: Bench, call: Callable[[Queue[Any]], Any], durability: str
) -> None:
    """The record was claimed before anybody looked at the argument, and nobody gave it back."""
    async with bench.open(durability=durability) as q:
        await q.put_many([b"1", b"2"])
        with pytest.raises((TypeError, ValueError)):
            await call(q)
        assert await q.take(timeout=1) == b"1"
        assert await q.take(timeout=1) == b"2"


async def test_producers_that_never_pause_do_not_hold_up_other_work(bench: Bench) -> None:
    """Whatever needed the log for itself waited until nobody had anything to commit: to open a
    queue of a store that many tasks put into took as long as they went on."""
    async with bench.open_store() as store:
        q = await store.queue()
        put_count = 0

        async def produce() -> None:
            nonlocal put_count
            while put_count < 5000:
                await q.put(b"x")
                put_count += 1

        producers = [asyncio.ensure_future(produce()) for _ in range(4)]
        await asyncio.sleep(0)
        await store.queue("other")
        seen = put_count
        await asyncio.gather(*producers)
        assert seen < 500
