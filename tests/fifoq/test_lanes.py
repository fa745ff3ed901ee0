"""Lanes: urgent records first, nobody starves, nothing is lost on the way."""

from __future__ import annotations

import asyncio
import random

import pytest

from fifoq import fetching, shelf
from fifoq.lane_queue import LaneQueue
from fifoq.lanes import STRETCH_BITS, Lanes
from fifoq.options import PRIORITY_COUNT
from tests.fifoq.support import Bench, cancelled, drained, fake_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")
SECOND = 1_000_000_000
EVEN = (1,) * PRIORITY_COUNT


@pytest.mark.parametrize("durability", LEVELS)
async def test_urgent_records_come_first_and_each_lane_is_in_order(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability, priorities=True) as q:
        for number, priority in enumerate((5, 9, 0, 5, 0, None)):
            await q.put(b"%d" % number, priority=priority)
        assert (len(q), q.stats().ready) == (6, 6)
        assert await q.peek() == b"2"
        assert await drained(q) == [b"2", b"4", b"0", b"3", b"5", b"1"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_lanes_survive_a_reopen(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, priorities=True) as q:
        for number in range(40):
            await q.put(b"%d" % number, priority=number % 4)
        assert await q.take_many(5) == [b"0", b"4", b"8", b"12", b"16"]
    async with bench.open(durability=durability) as q:
        assert len(q) == 35
        found = [int(item) for item in await drained(q)]
        assert found == sorted(found, key=lambda number: (number % 4, number))
        assert len(found) == 35


async def test_take_many_honours_lanes(bench: Bench) -> None:
    async with bench.open(priorities=True) as q:
        await q.put_many([b"late 1", b"late 2"], priority=9)
        await q.put_many([b"soon 1", b"soon 2"], priority=1)
        assert await q.take_many(3) == [b"soon 1", b"soon 2", b"late 1"]


async def test_who_waits_long_moves_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(priorities=True) as q:
        await q.put(b"old", priority=7)
        now[0] += 61 * SECOND
        await q.put(b"five", priority=5)
        await q.put(b"four", priority=4)
        assert await drained(q) == [b"four", b"old", b"five"]


async def test_without_aging_the_urgent_ones_always_come_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(priorities=True, priority_aging=None) as q:
        await q.put(b"old", priority=6)
        now[0] += 3600 * SECOND
        await q.put(b"new", priority=5)
        assert await drained(q) == [b"new", b"old"]


async def test_records_that_nobody_gets_cost_their_lane_no_turn(bench: Bench) -> None:
    """Those that waited for a key used up the share of their lane: it starved for as many turns."""
    weights = (4, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    async with bench.open(priorities=True, priority_weights=weights) as q:
        for n in range(50):
            await q.put(b"key %d" % n, priority=0, ordering_key="k")
        for n in range(20):
            await q.put(b"first %d" % n, priority=0)
            await q.put(b"other %d" % n, priority=5)
        assert (await q.lease()).item == b"key 0"
        lanes = [(await q.lease()).item[:5] for _ in range(10)]
        assert lanes.count(b"first") == 8


async def test_weights_share_the_turns(bench: Bench) -> None:
    weights = (4, 1, 1, 1, 1, 2, 1, 1, 1, 1)
    async with bench.open(priorities=True, priority_weights=weights) as q:
        await q.put_many([b"0"] * 40, priority=0)
        await q.put_many([b"5"] * 40)
        found = [await q.take() for _ in range(30)]
        assert (found.count(b"0"), found.count(b"5")) == (20, 10)
        # Not in blocks: whoever has less is not kept waiting for long.
        assert all(b"5" in found[at : at + 3] for at in range(28))
        assert len(await drained(q)) == 50


@pytest.mark.parametrize("durability", LEVELS)
async def test_leases_come_back_to_their_lane(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, priorities=True) as q:
        await q.put(b"late", priority=9)
        await q.put(b"soon", priority=0)
        first = await q.lease()
        second = await q.lease()
        assert (first.item, second.item) == (b"soon", b"late")
        second.nack(delay=0)
        first.nack(delay=0)
        async with q.lease() as again:
            assert (again.item, again.attempt) == (b"soon", 2)
        assert await drained(q) == [b"late"]


async def test_a_delayed_record_enters_its_lane_in_time(bench: Bench) -> None:
    async with bench.open(priorities=True) as q:
        await q.put(b"urgent", priority=0, delay=5)
        await q.put_many([b"a", b"b"])
        assert await q.take() == b"a"
        await asyncio.sleep(5.1)
        assert await drained(q) == [b"urgent", b"b"]


async def test_a_cancelled_take_leaves_the_record_in_its_lane(bench: Bench) -> None:
    async with bench.open(priorities=True) as q:
        await q.put(b"a", priority=1)
        await q.put(b"b", priority=2)
        bench.runner.hold()
        taking = await started(q.take())
        await cancelled(taking)
        bench.runner.let_go()
        assert await q.take() == b"a"
        assert await q.take() == b"b"


async def test_more_than_is_kept_is_read_again(bench: Bench) -> None:
    size, count = 20_000, 1500
    async with bench.open(priorities=True, durability="memory") as q:
        for number in range(count):
            await q.put(b"%04d" % number + bytes(size), priority=number % 3)
            if number % 50 == 0:
                await q.flush()
        await q.flush()
        assert len(q.shelf.kept) < count
        found = [int(item[:4]) for item in await drained(q)]
        assert found == sorted(range(count), key=lambda number: (number % 3, number))


async def test_large_records_of_a_lane_are_read_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(fetching, "FETCH_BYTES_MAX", 250)
    items = [b"%02d" % number * (300 if number == 7 else 50) for number in range(20)]
    async with bench.open(priorities=True) as q:
        assert isinstance(q, LaneQueue)
        await q.put_many(items, priority=1)
        await q.put_many(items, priority=2)
        found = []
        for _ in range(2 * len(items)):
            found.append(await q.take())
            # Each of the two lanes.
            assert sum(len(record.payload) for record in q._ahead.values()) <= 2 * 250
        assert found == items + items


async def test_records_that_were_put_without_lanes_are_in_the_middle_one(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
    async with bench.open(priorities=True) as q:
        await q.put(b"first", priority=4)
        await q.put(b"last", priority=6)
        with pytest.raises(ValueError, match="only while it is being opened"):
            q.configure(priorities=False)
        with pytest.raises(TypeError, match="has priorities"):
            await q.remove_upto(1)
        assert await q.take() == b"first"
    async with bench.open(priorities=False) as q:
        assert await drained(q) == [b"a", b"b", b"last"]


async def test_wrong_options_are_named(bench: Bench) -> None:
    with pytest.raises(ValueError, match="exclude each other") as caught:
        bench.open(strict=True, priorities=True, retry_backoff=-1, on_expire="burn")
    assert "retry_backoff=-1" in str(caught.value)
    assert "on_expire='burn' is none of drop, dlq" in str(caught.value)
    with pytest.raises(ValueError, match="not 10 whole numbers"):
        bench.open(priority_weights=(1, 2))
    with pytest.raises(ValueError, match="are not all 1 or more"):
        bench.open(priority_weights=(0,) * 10)


def test_lanes_are_ten_lists() -> None:
    """Against ten plain lists, over many random lives."""
    for seed in range(200):
        chance = random.Random(seed)
        lanes = Lanes()
        lists: list[list[int]] = [[] for _ in range(PRIORITY_COUNT)]
        counter = chance.randrange(1, 1000)
        away: list[tuple[int, int]] = []
        for _ in range(200):
            step = chance.random()
            held = [lane for lane in range(PRIORITY_COUNT) if lists[lane]]
            if step < 0.4 or not held:
                counter += chance.choice((1, 1, 1, 50, 1 << 15, 1 << 24))
                lane = chance.randrange(PRIORITY_COUNT)
                lanes.add(counter, lane)
                lists[lane].append(counter)
            elif step < 0.8:
                lane = chance.choice(held)
                oldest = lists[lane].pop(0)
                lanes.remove(oldest)
                away.append((oldest, lane))
            elif away:
                back, lane = away.pop(chance.randrange(len(away)))
                lanes.add(back, lane)
                lists[lane] = sorted([*lists[lane], back])
            assert lanes.heads() == {n: found[0] for n, found in enumerate(lists) if found}
            assert len(lanes) == sum(map(len, lists))
            assert [list(lanes.following(lane)) for lane in range(PRIORITY_COUNT)] == lists


def test_lanes_need_a_byte_for_each_record() -> None:
    lanes = Lanes()
    lanes.fill(1, bytes(PRIORITY_COUNT) * 20_000)
    assert len(lanes) == 200_000
    stretch = 1 << STRETCH_BITS
    assert sum(map(len, lanes._stretches.values())) < 200_000 + 2 * stretch
    for counter in range(1, 100_001):
        lanes.remove(counter)
    assert sum(map(len, lanes._stretches.values())) < 100_000 + 2 * stretch
    assert lanes.heads() == {0: 100_001}


def test_counters_that_jump_after_a_crash_cost_little_memory() -> None:
    """There was a byte for each counter in between: 16 MiB for each crash."""
    lanes = Lanes()
    for crash in range(5):
        lanes.add(1 + (crash << 24), crash)
    assert sum(map(len, lanes._stretches.values())) == 5 << STRETCH_BITS
    assert lanes.heads() == {lane: 1 + (lane << 24) for lane in range(5)}


def test_turns_follow_the_weights_of_those_who_wait() -> None:
    lanes = Lanes()
    lanes.fill(1, bytes([3] * 10 + [7] * 10))
    assert lanes.share(EVEN) == 3
    turns = []
    for _ in range(6):
        lane = lanes.share(EVEN)
        lanes.shared(lane, EVEN)
        turns.append(lane)
    assert turns == [3, 7, 3, 7, 3, 7]
