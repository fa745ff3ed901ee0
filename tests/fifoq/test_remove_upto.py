"""Removing everything up to a counter, wherever the records are; and what cancelling does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest

import fifoq.line
import fifoq.removing
from actors.testing import settle
from fifoq import CorruptionError, Queue, QueueClosed, StaleLease, shelf
from fifoq.options import Durability
from fifoq.runs import Removals, Returned
from fifoq.testing.simfiles import SimFiles
from store.blocks import RecordBlock
from tests.fifoq.support import Bench, SmallDisk, cancelled, drained, fake_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


def payloads(count: int, size: int = 8) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(1, count + 1)]


@pytest.mark.parametrize("durability", LEVELS)
async def test_it_removes_up_to_the_counter_and_nothing_above(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many(payloads(10))
        assert await q.remove_upto(4) == 4
        assert await q.remove_upto(4) == await q.remove_upto(0) == await q.remove_upto(-7) == 0
        stats = q.stats()
        assert (stats.current_size, stats.total_take_count, stats.ready) == (6, 4, 6)
        await q.flush()
        assert q.stats().bytes == 6 * 8
    async with bench.open() as q:
        assert await drained(q) == payloads(10)[4:]


@pytest.mark.parametrize("durability", ["os", "sync"])
async def test_on_return_a_crash_brings_nothing_back(bench: Bench, durability: Durability) -> None:
    store = await bench.open_store()
    q = await store.queue(durability=durability)
    await q.put_many(payloads(10))
    assert await q.remove_upto(7) == 7
    twin = Bench(bench.files.copy())
    twin.crash()
    async with twin.open() as again:
        assert await drained(again) == payloads(10)[7:]
    await store.close()


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_counter_that_is_not_given_out_yet_means_all(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        assert await q.remove_upto(10**9) == 0
        await q.put_many(payloads(3))
        assert await q.remove_upto(10**9) == 3
        await q.put(b"later")
        assert await drained(q) == [b"later"]


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None])
async def test_what_is_no_counter_is_refused(bench: Bench, wrong: object) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        with pytest.raises(TypeError, match=r"is not a whole number\. Nothing was removed"):
            await q.remove_upto(wrong)  # type: ignore[arg-type]
        assert len(q) == 1


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_leased_record_is_removed_and_its_lease_is_stale(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many(payloads(4))
        first, second = await q.lease(), await q.lease()
        third = await q.lease()
        assert await q.remove_upto(2) == 2
        assert (first.state, second.state, third.state) == ("removed", "removed", "leased")
        with pytest.raises(StaleLease, match=r"has ended \(removed\). Nothing was changed: it is"):
            await first.ack()
        with pytest.raises(StaleLease):
            second.nack(delay=0)
        assert await third.ack()
        assert (len(q), q.stats().leased, q.stats().total_take_count) == (1, 0, 3)
    async with bench.open() as q:
        assert await drained(q) == payloads(4)[3:]


async def test_a_block_whose_record_was_removed_ends_without_an_error(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(2))
        async with q.lease() as delivery:
            assert await q.remove_upto(1) == 1
        assert delivery.state == "removed"
        assert await drained(q) == payloads(2)[1:]


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_was_given_back_is_removed_with_its_attempts(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many(payloads(4))
        leases = [await q.lease() for _ in range(3)]
        for delivery in leases:
            delivery.nack(delay=0)
        assert await q.remove_upto(2) == 2
        again = await q.lease()
        assert (again.key.counter, again.attempt) == (3, 2)
        assert await again.ack()
        await q.flush()
        assert q._state.attempts == {}
        assert q.stats().bytes == 8


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_is_only_on_disk_is_removed_without_making_objects_of_it(
    bench: Bench, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    items = [random.randbytes(random.randrange(200)) for _ in range(3000)]
    async with bench.open() as q:
        for start in range(0, 3000, 100):
            await q.put_many(items[start : start + 100])
        assert (await q.lease()).key.counter == 1
    monkeypatch.setattr(fifoq.jobs, "READ_RECORDS", 100)
    monkeypatch.setattr(fifoq.removing, "STEP_RECORDS", 250)
    async with bench.open(durability=durability) as q:
        assert q.gap is not None
        was_read = q.gap[0] - 1
        assert 0 < was_read < 1000
        with monkeypatch.context() as patch:
            patch.setattr(RecordBlock, "payloads", None)
            assert await q.remove_upto(2017) == 2017
        assert len(q) == 3000 - 2017
        await q.flush()
        assert q.stats().bytes == sum(map(len, items[2017:]))
        assert q.stats().total_take_count == 2017
        assert q.leasing._attempts == {}
        assert await drained(q) == items[2017:]


async def test_a_backlog_larger_than_the_memory_for_it_goes_in_bounded_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifoq.line, "CACHE_BYTES_MAX", 50_000)
    monkeypatch.setattr(fifoq.removing, "STEP_BYTES", 20_000)
    async with bench.open(segment_bytes=1 << 16) as q:
        for _ in range(100):
            await q.put_many([b"x" * 1000] * 20)
        assert q.gap is not None
        jobs = bench.runner.job_count
        assert await q.remove_upto(1990) == 1990
        assert bench.runner.job_count - jobs > 100
        assert await drained(q) == [b"x" * 1000] * 10
        assert q.stats().segments <= 3


async def test_the_marks_and_the_delays_see_what_was_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    second = 10**9
    async with bench.open() as q:
        await q.put_many(payloads(6))
        now[0] += second
        await q.put_many(payloads(4))
        now[0] += second
        assert await q.remove_upto(8) == 8
        stats = q.stats()
        assert (stats.high_water_mark, stats.low_water_mark) == (10, 2)
        assert (stats.low_water_time, stats.last_take_time) == (now[0], now[0])
        assert stats.average_delay == pytest.approx((6 * 2 + 2 * 1) / 8)
    async with bench.open() as q:
        now[0] += second
        assert q.gap is None
        assert await q.remove_upto(10) == 2
        stats = q.stats()
        assert (stats.low_water_mark, stats.total_take_count) == (0, 10)
        assert stats.average_delay == pytest.approx((6 * 2 + 2 * 1 + 2 * 2) / 10)


async def test_delays_of_what_is_only_on_disk_count_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        for number in range(40):
            await q.put(b"%d" % number)
            now[0] += 10**9
    monkeypatch.setattr(fifoq.jobs, "READ_RECORDS", 4)
    async with bench.open() as q:
        assert q.gap is not None
        assert await q.remove_upto(40) == 40
        assert q.stats().average_delay == pytest.approx(sum(range(1, 41)) / 40)


async def test_a_taker_keeps_what_it_has_claimed(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(3))
        bench.runner.hold()
        take = await started(q.take())
        remove = await started(q.remove_upto(2))
        bench.runner.let_go()
        assert await take == payloads(1)[0]
        assert await remove == 1
        assert await drained(q) == payloads(3)[2:]


@pytest.mark.parametrize("sealed", [True, False])
async def test_what_a_leaving_taker_gives_back_is_removed_after_all(
    bench: Bench, sealed: bool
) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(3))
        bench.runner.hold()
        if not sealed:
            await started(q.put(b"first"))
        take = await started(q.take())
        remove = await started(q.remove_upto(2))
        await cancelled(take)
        bench.runner.let_go()
        assert await remove == 2
        assert q.stats().total_take_count == 2
        assert (await q.peek()) == payloads(3)[2]
    async with bench.open() as q:
        assert (await drained(q))[0] == payloads(3)[2]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_record_that_is_about_to_be_leased_is_removed_as_well(
    bench: Bench, leaves: bool
) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(2))
        bench.runner.hold()
        lease = await started(q.lease())
        remove = await started(q.remove_upto(1))
        if leaves:
            await cancelled(lease)
        bench.runner.let_go()
        assert await remove == 1
        if not leaves:
            assert (await lease).state == "removed"
        assert await drained(q) == payloads(2)[1:]


async def test_a_put_that_is_not_committed_is_waited_for(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        bench.runner.hold()
        put = await started(q.put(b"b"))
        remove = await started(q.remove_upto(2))
        assert not remove.done()
        bench.runner.let_go()
        assert (await put).counter == 2
        assert await remove == 2
        assert q.empty()
    async with bench.open() as q:
        assert q.empty()


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("jobs", range(8))
async def test_cancelled_it_has_done_some_steps_and_may_be_repeated(
    bench: Bench, durability: Durability, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifoq.jobs, "READ_RECORDS", 10)
    monkeypatch.setattr(fifoq.removing, "STEP_RECORDS", 10)
    async with bench.open() as q:
        for start in range(0, 50, 10):
            await q.put_many(payloads(50)[start : start + 10])
    async with bench.open(durability=durability) as q:
        bench.runner.hold()
        remove = await started(q.remove_upto(43))
        for _ in range(jobs):
            await bench.step()
        if not remove.done():
            await cancelled(remove)
        bench.runner.let_go()
        await settle()
        left = len(q)
        assert left == 7 or left % 10 == 0
        found = [record.key.counter async for record in q.browse()]
        assert found == list(range(51 - left, 51))
        assert await q.remove_upto(43) == left - 7
        assert await drained(q) == payloads(50)[43:]
        assert q.stats().total_take_count == 50


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_second_call_waits_for_what_the_first_one_left_behind(
    bench: Bench, sealed: bool
) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(3))
        bench.runner.hold()
        if not sealed:
            await started(q.put(b"in front"))
        await cancelled(await started(q.remove_upto(2)))
        second = await started(q.remove_upto(2))
        waits = not second.done()
        while not second.done() and await bench.step():
            pass
        twin = Bench(bench.files.copy())
        twin.crash()
        bench.runner.let_go()
        assert waits
        assert await second == 0
    async with twin.open() as q:
        assert (await drained(q))[0] == payloads(3)[2]


@pytest.mark.parametrize("jobs", range(9))
async def test_a_crash_in_between_leaves_the_newest_records(
    bench: Bench, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifoq.jobs, "READ_RECORDS", 10)
    monkeypatch.setattr(fifoq.removing, "STEP_RECORDS", 10)
    async with bench.open() as q:
        for start in range(0, 50, 10):
            await q.put_many(payloads(50)[start : start + 10])
    async with bench.open() as q:
        bench.runner.hold()
        remove = await started(q.remove_upto(43))
        for _ in range(jobs):
            await bench.step()
        twin = Bench(bench.files.copy())
        twin.crash()
        bench.runner.let_go()
        await remove
    async with twin.open() as q:
        left = len(q)
        assert left == 7 or left % 10 == 0
        assert await q.remove_upto(43) == left - 7
        assert await drained(q) == payloads(50)[43:]


async def test_room_is_given_to_those_who_wait_to_put(bench: Bench) -> None:
    async with bench.open(maxsize=3, max_bytes=24) as q:
        await q.put_many(payloads(3))
        put = await started(q.put(b"x" * 8))
        assert not put.done()
        assert await q.remove_upto(2) == 2
        assert (await put).counter == 4
        await q.put(b"y" * 8)
        assert len(q) == 3


async def test_a_full_disk_still_removes() -> None:
    bench = Bench(SimFiles(capacity=3 << 20))
    async with bench.open(segment_bytes=1 << 18) as q:
        with suppress(fifoq.DiskFull):
            while True:
                await q.put_many([b"x" * 1000] * 50)
        count = len(q)
        last = q.next
        assert await q.remove_upto(last) == count
        assert q.empty()
        await q.put(b"there is space again")
        assert await drained(q) == [b"there is space again"]


async def test_damage_stops_it_and_the_rest_stays(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many(payloads(30))
        where = bench.files.content("/data/00000000000000000001.log").index(payloads(30)[20])
    bench.files.flip_bit("/data/00000000000000000001.log", offset=where, bit=1)
    async with bench.open() as q:
        with pytest.raises(CorruptionError):
            await q.remove_upto(30)
        assert len(q) == 30


async def test_a_closed_store_removes_nothing(bench: Bench) -> None:
    q: Queue[bytes] = await bench.open()
    await q.put_many(payloads(3))
    await q.close()
    with pytest.raises(QueueClosed):
        await q.remove_upto(3)


async def test_takers_and_putters_at_the_same_time_see_each_record_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifoq.line, "CACHE_BYTES_MAX", 2_000)
    monkeypatch.setattr(fifoq.removing, "STEP_RECORDS", 7)
    async with bench.open() as q:
        for start in range(0, 400, 40):
            await q.put_many(payloads(400)[start : start + 40])
        taken: list[bytes] = []

        async def take() -> None:
            for _ in range(30):
                taken.append(await q.take())

        takers = [asyncio.ensure_future(take()) for _ in range(2)]
        removed = await q.remove_upto(350)
        await asyncio.gather(*takers)
        assert len(taken) == len(set(taken)) == 60
        assert len(q) == 400 - removed - 60
        rest = await drained(q)
        assert not set(taken) & set(rest)
        assert rest == payloads(400)[400 - len(rest) :]
        assert q.stats().total_take_count == 400


# What waits for its time or for its key.


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_waits_for_its_time_goes_and_no_taker_gets_it(
    bench: Bench, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 300)
    monkeypatch.setattr(fifoq.removing, "DUE_MAX", 3)
    async with bench.open(durability=durability) as q:
        await q.put_many(payloads(10), delay=100)
        await q.put(b"last", delay=100)
        await q.flush()
        assert 0 < len(q.shelf.kept) < 10
        taking = await started(q.take())
        assert await q.remove_upto(10) == 10
        await settle()
        assert not taking.done()
        assert (len(q), q.stats().delayed, q.stats().total_take_count) == (1, 1, 10)
        assert await taking == b"last"
    async with bench.open() as q:
        assert len(q) == 0


async def test_cancelled_it_lets_nothing_out_before_its_time(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"later", delay=100)
        bench.runner.hold()
        removing = await started(q.remove_upto(1))
        await cancelled(removing)
        bench.runner.let_go()
        await settle()
        assert (len(q), q.stats().delayed, q.stats().ready) == (1, 1, 0)
        assert await q.peek() is None


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_key_is_free_when_its_record_is_removed(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        for how in ("back", "waiting", "leased"):
            await q.put_many([b"first", b"second"], ordering_key="a")
            delivery = await q.lease()
            if how != "leased":
                delivery.nack(delay=0 if how == "back" else 100)
            assert await q.remove_upto(delivery.key.counter) == 1
            assert await q.take(timeout=1) == b"second"


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_waits_for_a_younger_one_of_its_key_goes(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"first", ordering_key="a", delay=5)
        await q.put(b"second", ordering_key="a")
        delivery = await q.lease()
        await asyncio.sleep(6)
        leasing = await started(q.lease())
        async with asyncio.timeout(1):
            assert await q.remove_upto(1) == 1
        assert len(q) == 1
        assert not leasing.done()
        await delivery.ack()
        assert len(q) == 0
        await cancelled(leasing)


async def test_what_a_full_disk_keeps_from_the_dead_letters_is_removed() -> None:
    """It was waited for, frame after frame, as long as the disk was full."""
    disk = SmallDisk()
    async with disk.open_store() as store:
        q = await store.queue("q", max_retries=0)
        await q.put_many([bytes(1 << 16), b"b", b"c"], ordering_key="k")
        delivery = await q.lease()
        disk.fill()
        delivery.nack()
        await asyncio.sleep(1.1)
        assert q.stats().leased == 1, "on its way"
        async with asyncio.timeout(10):
            assert await q.remove_upto(2) == 2
        assert (len(q), q.stats().leased, q.keys_out) == (1, 0, {})
        disk.empty()
        await asyncio.sleep(1)
        assert await q.take(timeout=1) == b"c"
        assert (q.stats().dead_lettered, len(await store.queue("q.dlq"))) == (0, 0)


async def test_large_records_that_wait_are_read_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a thousand were in memory at once, however large they were."""
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(fifoq.removing, "FETCH_BYTES_MAX", 2500)
    async with bench.open() as q:
        await q.put_many([bytes(1000)] * 9, delay=100)
        await q.put(b"stays", delay=100)
    async with bench.open() as q:
        read: list[int] = []
        pulled = q.pulled

        def noted(records: Sequence[Returned], now: int) -> Removals:
            read.append(len(records))
            return pulled(records, now)

        monkeypatch.setattr(Queue, "pulled", lambda _, *given: noted(*given))
        assert await q.remove_upto(9) == 9
        assert (sum(read), max(read)) == (9, 2)
        assert (len(q), q.stats().delayed) == (1, 1)
