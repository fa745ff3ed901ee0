"""Ordering keys: of each key one record is out at a time, of different keys any number."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from actors.testing import settle
from fifoq import Queue, shelf, waiting
from tests.fifoq.support import Bench, SmallDisk, cancelled, drained, fake_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_one_record_of_a_key_is_out_at_a_time(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        for item in (b"a1", b"a2", b"b1", b"a3", b"b2"):
            await q.put(item, ordering_key=item[:1].decode())
        await q.put(b"free")
        first, second, third = await q.lease(), await q.lease(), await q.lease()
        assert [d.item for d in (first, second, third)] == [b"a1", b"b1", b"free"]
        assert len(q) == 6
        waiting = await started(q.lease())
        assert not waiting.done()
        await first.ack()
        assert (await waiting).item == b"a2"
        await second.ack()
        fourth = await q.lease()
        assert fourth.item == b"b2"
        await (await waiting).ack()
        await fourth.ack()
        await third.ack()
        assert await drained(q) == [b"a3"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_nacked_record_keeps_its_key_back(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a")
        await q.put(b"b1", ordering_key="b")
        (await q.lease()).nack(delay=5)
        assert (await q.lease()).item == b"b1"
        waiting = await started(q.lease())
        await asyncio.sleep(4.9)
        assert not waiting.done()
        await asyncio.sleep(0.2)
        delivery = await waiting
        assert (delivery.item, delivery.attempt) == (b"a1", 2)
        await delivery.ack()
        assert (await q.lease()).item == b"a2"


async def test_a_lease_that_ends_comes_back_before_its_followers(bench: Bench) -> None:
    async with bench.open(lease_seconds=5) as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a")
        await q.lease()
        waiting = await started(q.lease())
        await asyncio.sleep(5.1)
        assert (await waiting).item == b"a1"


async def test_a_take_lets_the_next_one_of_its_key_follow(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a1", b"a2", b"a3"], ordering_key="a")
        (await q.lease()).nack(delay=0)
        assert await q.take() == b"a1"
        async with q.lease() as delivery:
            assert delivery.item == b"a2"
            assert await q.peek() is None
        assert await drained(q) == [b"a3"]


async def test_a_caller_that_leaves_blocks_nobody(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a")
        bench.runner.hold()
        leasing = await started(q.lease())
        await cancelled(leasing)
        bench.runner.let_go()
        async with q.lease() as delivery:
            assert delivery.item == b"a1"
        assert await drained(q) == [b"a2"]


async def test_after_a_reopen_every_key_starts_with_its_oldest(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a")
        await q.put_many([b"b1", b"b2"], ordering_key="b")
        await q.lease()
        await q.lease()
    bench.crash()
    async with bench.open() as q:
        assert [(await q.lease()).item for _ in range(2)] == [b"a1", b"b1"]


async def test_a_key_with_a_long_backlog_is_passed_by_up_to_a_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 10)
    async with bench.open() as q:
        await q.put_many([b"%d" % n for n in range(20)], ordering_key="hot")
        await q.put(b"free")
        hot = await q.lease()
        leasing = await started(q.lease())
        assert not leasing.done()
        assert q.blocked_count == 10
        await hot.ack()
        assert (await leasing).item == b"1"


async def test_blocked_records_can_be_removed(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"1", b"2", b"3"], ordering_key="a")
        last = await q.put(b"4")
        first = await q.lease()
        assert (await q.lease()).item == b"4"
        assert await q.remove_upto(last.counter) == 4
        assert not len(q)
        assert first.state == "removed"
        await q.put(b"5", ordering_key="a")
        assert (await q.lease()).item == b"5"


@pytest.mark.parametrize("durability", ["memory", "sync"])
async def test_consumers_in_parallel_keep_the_order_of_each_key(
    bench: Bench, durability: str
) -> None:
    chance = random.Random(7)
    handled: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()
    async with bench.open(durability=durability, retry_backoff=0.01) as q:
        for number in range(400):
            await q.put(b"%d" % number, ordering_key=f"k{number % 7}")

        async def consume() -> None:
            while True:
                async with q.lease() as delivery:
                    number = int(delivery.item)
                    key = f"k{number % 7}"
                    assert key not in busy
                    busy.add(key)
                    await asyncio.sleep(chance.random() / 10)
                    busy.discard(key)
                    if chance.random() < 0.2 and delivery.attempt < 3:
                        delivery.nack()
                        continue
                    handled[key].append(number)

        consumers = [asyncio.ensure_future(consume()) for _ in range(16)]
        while len(q):
            await asyncio.sleep(0.5)
        for task in consumers:
            await cancelled(task)
    assert sum(map(len, handled.values())) == 400
    assert all(numbers == sorted(numbers) for numbers in handled.values())


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("priorities", [False, True])
async def test_a_take_is_followed_by_the_next_of_its_key(
    bench: Bench, durability: str, priorities: bool
) -> None:
    """Several wait for the key when it is free, and the first of them is taken, not leased."""
    async with bench.open(durability=durability, priorities=priorities) as q:
        await q.put_many([b"%d" % number for number in range(6)], ordering_key="a")
        delivery = await q.lease()
        assert await q.peek() is None
        await delivery.ack()
        assert await q.take(timeout=1) == b"1"
        assert q.take_nowait() == b"2"
        assert await q.remove_upto(4) == 1 if not priorities else await q.take() == b"3"
        assert await q.take_many(5) == [b"4", b"5"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_whoever_is_passed_by_follows_one_that_was_taken(
    bench: Bench, durability: str
) -> None:
    """The taken one never had the key out: the next one waited for ever."""
    async with bench.open(durability=durability) as q:
        for item in (b"a", b"b", b"c"):
            await q.put(item, ordering_key="k")
        first = await q.lease()
        assert await q.peek() is None
        await first.ack()
        assert await q.take() == b"b"
        assert await q.peek() == b"c"
        assert await q.take() == b"c"


@pytest.mark.parametrize("durability", LEVELS)
async def test_whoever_is_passed_by_follows_one_that_has_expired(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(durability=durability) as q:
        await q.put(b"a", ordering_key="k")
        await q.put(b"b", ordering_key="k", ttl=5)
        await q.put(b"c", ordering_key="k")
        first = await q.lease()
        assert await q.peek() is None
        await first.ack()
        now[0] += 10**10
        assert await q.take(timeout=1) == b"c"


async def test_a_delayed_record_keeps_to_its_key_after_a_reopen(bench: Bench) -> None:
    """It came from disk without anybody looking at its key."""
    async with bench.open() as q:
        await q.put_many([b"a", b"b"], ordering_key="k", delay=1)
    async with bench.open() as q:
        await asyncio.sleep(2)
        first = await q.lease()
        assert first.item == b"a"
        assert await q.peek() is None
        await first.ack()
        assert await q.take() == b"b"


@pytest.mark.parametrize("durability", LEVELS)
async def test_older_records_that_come_due_do_not_bury_the_one_that_has_the_key(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given back behind as many as are passed by, and nobody got anything any more."""
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 2)
    async with bench.open(durability=durability) as q:
        await q.put_many([b"1", b"2", b"3"], ordering_key="k", delay=5)
        await q.put(b"4", ordering_key="k")
        fourth = await q.lease()
        await asyncio.sleep(6)
        leasing = await started(q.lease())
        assert not leasing.done()
        assert q.blocked_count == 2
        fourth.nack(delay=0)
        first = await leasing
        assert first.item == b"1"
        assert await q.peek() is None
        await first.ack()
        assert await drained(q) == [b"2", b"3", b"4"]
        assert (q.keys_out, q.blocked, q.blocked_count) == ({}, {}, 0)


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("delay", [0, 1])
async def test_a_low_priority_that_has_the_key_does_not_stop_the_lanes(
    bench: Bench, durability: str, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 2)
    async with bench.open(durability=durability, priorities=True) as q:
        await q.put(b"low", ordering_key="k", priority=9)
        low = await q.lease()
        await q.put_many([b"1", b"2", b"3"], ordering_key="k", priority=0)
        assert await q.peek() is None
        low.nack(delay=delay)
        assert await q.peek() is None or not delay
        async with q.lease() as delivery:
            assert delivery.item == b"1"
            assert await q.peek() is None
        assert await drained(q) == [b"2", b"3", b"low"]
        assert (q.keys_out, q.blocked, q.blocked_count) == ({}, {}, 0)


@pytest.mark.parametrize("durability", LEVELS)
async def test_at_the_limit_a_key_that_is_out_stays_with_its_record(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leases many has the first one before it is noted."""
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 2)
    async with bench.open(durability=durability) as q:
        await q.put_many([b"1", b"2", b"3", b"4", b"5"], ordering_key="k")
        (first,) = await q.lease_many(5)
        assert first.item == b"1"
        first.nack(delay=1)
        assert await q.peek() is None
        (again,) = await q.lease_many(5)
        assert (again.item, again.attempt) == (b"1", 2)
        await again.ack()
        assert await drained(q) == [b"2", b"3", b"4", b"5"]


async def test_at_the_limit_a_caller_that_leaves_lets_the_next_one_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 2)
    async with bench.open() as q:
        await q.put_many([b"1", b"2", b"3"], ordering_key="k", delay=5)
        await q.put(b"4", ordering_key="k")
        bench.runner.hold()
        leaving = await started(q.lease())
        await asyncio.sleep(6)
        leasing = await started(q.lease())
        await cancelled(leaving)
        bench.runner.let_go()
        assert (await asyncio.wait_for(leasing, 60)).item == b"1"


@pytest.mark.parametrize("durability", LEVELS)
async def test_at_the_limit_whoever_waits_gets_no_second_record_of_a_key(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BLOCKED_MAX", 0)
    async with bench.open(durability=durability) as q:
        tasks = [await started(q.lease()) for _ in range(3)]
        await q.put_many([b"1", b"2"], ordering_key="k")
        await settle()
        assert [task.done() for task in tasks] == [True, False, False]
        await (await tasks[0]).ack()
        assert (await tasks[1]).item == b"2"
        await cancelled(tasks[2])


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("taken", [True, False])
async def test_a_record_on_its_way_to_the_dead_letters_has_its_key_until_it_is_there(
    bench: Bench, durability: str, taken: bool
) -> None:
    """Whoever leases past one that was leased too often must not get its follower before."""
    async with bench.open(durability=durability, max_retries=0) as q:
        await q.put_many([b"a1", b"a2"], ordering_key="a")
        await q.lease()
        await q.flush()
    async with bench.open(durability=durability) as q:
        assert await q.peek() == b"a1", "nobody gave it back"
        bench.runner.hold()
        first = await started(_item_of(q))
        second = await started(q.take() if taken else _item_of(q))
        assert [first.done(), second.done()] == [False, False]
        async with bench.after_crash().open() as twin:
            assert (len(twin), twin.leasing.attempts_of(1)) == (2, 1)
        bench.runner.let_go()
        assert await first == b"a2"
        assert q.stats().dead_lettered == 1
        await cancelled(second)


async def _item_of(q: Queue[bytes]) -> bytes:
    return (await q.lease()).item


async def test_a_full_disk_that_puts_a_burial_off_keeps_its_key_back() -> None:
    disk = SmallDisk()
    async with disk.open(max_retries=0, retry_backoff=0) as q:
        await q.put_many([bytes(1 << 16), b"a2"], ordering_key="a")
        await q.put(b"b1", ordering_key="b")
        delivery = await q.lease()
        disk.fill()
        delivery.nack()
        await settle()
        assert (await q.lease()).item == b"b1"
        follower = await started(_item_of(q))
        await asyncio.sleep(10)
        assert (follower.done(), q.stats().dead_lettered) == (False, 0)
        disk.empty()
        assert await follower == b"a2"
        assert q.stats().dead_lettered == 1


async def test_in_lanes_a_record_that_must_be_read_is_not_passed_by_a_younger_one_of_its_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was read, it was in no lane, and nobody had its key."""
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 300)
    async with bench.open(durability="memory", priorities=True) as q:
        await q.put_many([b"%d" % n * 200 for n in range(3)], ordering_key="k")
        first = await q.lease()
        assert await q.peek() is None
        await q.flush()
        await q.put(b"young", ordering_key="k")
        await first.ack()
        second = await q.lease()
        assert second.item == b"1" * 200
        waiting = await started(_item_of(q))
        assert not waiting.done()
        await second.ack()
        assert await waiting == b"2" * 200
