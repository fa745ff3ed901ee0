"""Delays: a record waits for its time, in memory and across a reopen."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actors.testing import settle
from fifoq import Key, fetching, line, shelf, shelving, waiting
from fifoq.intake import UVLOOP_STEP_NS
from tests.fifoq.support import Bench, cancelled, drained, fake_time, set_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")
SECOND = 1_000_000_000


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_delayed_record_waits_and_younger_ones_pass(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"later", delay=5)
        await q.put(b"now")
        assert (len(q), q.stats().ready, q.stats().delayed) == (2, 1, 1)
        assert await q.take() == b"now"
        assert await q.peek() is None
        taking = await started(q.take())
        await asyncio.sleep(4.9)
        assert not taking.done()
        await asyncio.sleep(0.2)
        assert await taking == b"later"
        assert (len(q), q.stats().delayed) == (0, 0)


@pytest.mark.parametrize("durability", LEVELS)
async def test_records_come_in_the_order_of_their_times(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        for seconds in (3, 1, 2):
            await q.put(b"%d" % seconds, delay=seconds)
        found = []
        for _ in range(3):
            found.append(await q.take())
        assert found == [b"1", b"2", b"3"]


async def test_delayed_puts_of_one_turn_each_wait_for_their_own_time(bench: Bench) -> None:
    """The first of them is looked at, and those that follow pass: nothing else tells them apart."""
    async with bench.open(durability="memory") as q:
        await q.put(b"first", delay=30)
        keys = [await q.put(b"%d" % number, delay=20 - number) for number in range(5)]
        keys += [q.put_nowait(b"%d" % number, delay=20.0 - number) for number in range(5, 9)]
        await q.put(b"now")
        assert (len(q), q.stats().ready, q.stats().delayed) == (11, 1, 10)
        assert q.take_nowait() == b"now"
        assert [key.counter for key in keys] == list(range(2, 11))
        assert await q.cancel(keys[3])
        assert not await q.cancel(keys[3])
        for wrong in (-1, float("nan"), 1e40, True, "1"):
            with pytest.raises((TypeError, ValueError), match="Nothing was stored"):
                await q.put(b"wrong", delay=wrong)  # type: ignore[arg-type]
        await q.put(b"at once", delay=0)
        assert await q.take() == b"at once"
        taking = await started(q.take())
        await asyncio.sleep(11.9)
        assert not taking.done()
        await asyncio.sleep(0.2)
        assert await taking == b"8"
        await q.flush()
    bench.crash()
    async with bench.open(durability="memory") as q:
        assert q.stats().delayed == 8
        found = [await q.take() for _ in range(8)]
        assert found == [b"7", b"6", b"5", b"4", b"2", b"1", b"0", b"first"]


async def test_a_shorter_delay_in_the_same_turn_rings_first(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with bench.open(durability="memory") as q:
        began = loop.time()
        for seconds in (50, 40, 3, 20):
            await q.put(b"%d" % seconds, delay=seconds)
        assert await q.take() == b"3"
        assert loop.time() - began == pytest.approx(3, abs=0.01)


async def test_a_record_whose_time_has_come_is_at_its_place(bench: Bench) -> None:
    """In front of younger ones that nobody has taken."""
    async with bench.open() as q:
        await q.put(b"a", delay=1)
        await q.put_many([b"b", b"c"])
        await asyncio.sleep(1.1)
        assert await drained(q) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_delay_survives_a_reopen(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b"], delay=60)
        await q.put(b"c")
    now[0] += 20 * SECOND
    async with bench.open(durability=durability) as q:
        assert (len(q), q.stats().delayed) == (3, 2)
        assert await q.take() == b"c"
        taking = await started(q.take())
        await asyncio.sleep(39.9)
        assert not taking.done()
        await asyncio.sleep(0.2)
        assert await taking == b"a"
        assert await q.take() == b"b"
    async with bench.open() as q:
        assert len(q) == 0


async def test_a_record_that_was_due_while_nobody_looked_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", delay=5)
        await q.put(b"b")
    bench.crash()
    now[0] += 10 * SECOND
    async with bench.open() as q:
        await settle()
        assert await drained(q) == [b"a", b"b"]


async def test_a_clock_that_was_set_back_makes_nothing_wait_longer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", delay=60)
    now[0] -= 3600 * SECOND
    async with bench.open() as q:
        assert await q.take(timeout=60.5) == b"a"


async def test_a_time_may_be_given_as_a_date_or_as_seconds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    moment = datetime.fromtimestamp(now[0] / SECOND, UTC)
    async with bench.open() as q:
        await q.put(b"date", deliver_at=moment + timedelta(seconds=5))
        await q.put(b"number", deliver_at=now[0] / SECOND + 6)
        await q.put(b"past", deliver_at=moment - timedelta(days=1))
        assert q.stats().delayed == 2
        assert await q.take() == b"past"
        assert await q.take(timeout=5.1) == b"date"
        assert await q.take(timeout=1.1) == b"number"


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_delayed_record_can_be_cancelled(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        first = await q.put(b"a", delay=5)
        second = await q.put(b"b", delay=5)
        plain = await q.put(b"c")
        assert await q.cancel(first)
        assert not await q.cancel(first)
        assert not await q.cancel(plain)
        assert not await q.cancel(Key(second.counter, second.timestamp + 1))
        assert (len(q), q.stats().delayed) == (2, 1)
        assert await q.take() == b"c"
        await asyncio.sleep(6)
        assert not await q.cancel(second)
        assert await drained(q) == [b"b"]
    async with bench.open() as q:
        assert len(q) == 0


async def test_a_cancelled_delay_is_gone_after_a_crash(bench: Bench) -> None:
    async with bench.open() as q:
        key = await q.put(b"a", delay=5)
        await q.put(b"b", delay=6)
        assert await q.cancel(key)
    bench.crash()
    async with bench.open() as q:
        assert await q.take() == b"b"
        assert not len(q)


async def test_a_cancelled_put_with_a_delay_leaves_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        putting = await started(q.put(b"first"))
        withdrawn = await started(q.put(b"never", delay=1))
        await cancelled(withdrawn)
        bench.runner.let_go()
        await putting
        assert (len(q), q.stats().delayed) == (1, 0)
        await asyncio.sleep(2)
        assert await drained(q) == [b"first"]


async def test_nothing_is_due_before_it_is_committed(bench: Bench) -> None:
    """A slow disk: the time passes while the record waits for its sync."""
    async with bench.open() as q:
        bench.runner.hold()
        putting = await started(q.put(b"a", delay=1))
        taking = await started(q.take())
        await asyncio.sleep(2)
        assert not taking.done()
        bench.runner.let_go()
        await putting
        assert await taking == b"a"


async def test_many_delayed_records_need_little_memory(bench: Bench) -> None:
    """Only when and which stays in memory; the records are read when they are due."""
    count, size = 3000, 4000
    async with bench.open(durability="memory") as q:
        for start in range(0, count, 100):
            await q.put_many(
                [b"%04d" % i + bytes(size) for i in range(start, start + 100)], delay=9
            )
            await q.flush()
        assert len(q.shelf.kept) < count
        assert q.stats().delayed == count
        await asyncio.sleep(10)
        found = await drained(q)
        assert [int(item[:4]) for item in found] == list(range(count))


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"delay": -1}, "delay=-1 is not 0 or more"),
        ({"delay": float("nan")}, "delay=nan is not 0 or more"),
        ({"delay": "soon"}, "delay='soon' is not a number of seconds"),
        ({"delay": 1, "deliver_at": 2}, "two ways to say one thing"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"ttl": 0}, "ttl=0 is not above 0"),
        ({"ttl": -5}, "ttl=-5 is not above 0"),
        ({"priority": 3}, "has no priorities"),
        ({"priority": 11}, "not one of 0"),
        ({"priority": "high"}, "is not a whole number"),
        ({"ordering_key": ""}, "ordering_key has 0 bytes"),
        ({"ordering_key": 5}, "is a str"),
        ({"colour": "red"}, "not 'colour'"),
    ],
)
async def test_nonsense_is_refused_and_nothing_is_stored(
    bench: Bench, keywords: dict[str, Any], said: str
) -> None:
    async with bench.open() as q:
        with pytest.raises((TypeError, ValueError), match=said):
            await q.put(b"a", **keywords)
        with pytest.raises((TypeError, ValueError), match=said):
            await q.put_many([b"a"], **keywords)
        assert not len(q)
        assert q.next == 1


async def test_what_is_delayed_can_be_removed_with_the_others(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"], delay=5)
        last = await q.put(b"c")
        await q.put(b"d", delay=5)
        assert await q.remove_upto(last.counter) == 3
        await asyncio.sleep(6)
        assert await drained(q) == [b"d"]
    async with bench.open() as q:
        assert not len(q)


async def test_a_cancelled_take_of_a_delayed_record_gives_it_back(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a", delay=1)
        await asyncio.sleep(1.1)
        bench.runner.hold()
        taking = await started(q.take())
        await cancelled(taking)
        bench.runner.let_go()
        assert await q.take() == b"a"


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_is_due_when_the_queue_is_opened_comes_before_younger_ones(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(durability=durability) as q:
        for number in range(10):
            await q.put(b"%d" % number, delay=1 if number % 2 else None)
        await q.put(b"late", delay=100)
    now[0] += 5 * SECOND
    async with bench.open(durability=durability) as q:
        assert (q.stats().ready, q.stats().delayed) == (10, 1)
        assert [await q.take() for _ in range(10)] == [b"%d" % number for number in range(10)]
        assert await q.peek() is None


async def test_what_came_due_while_the_store_was_closed_is_at_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the puts, and not of their times: however many are due, all of them are."""
    now = fake_time(monkeypatch)
    monkeypatch.setattr(waiting, "DUE_MAX", 2)
    monkeypatch.setattr(shelving, "DUE_MAX", 2)
    items = [b"%d" % n for n in range(6)]
    async with bench.open() as q:
        for n, item in enumerate(items):
            await q.put(item, delay=10 - n)
        await q.put(b"young")
    now[0] += 60 * 10**9
    async with bench.open() as q:
        assert await drained(q) == [*items, b"young"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_is_due_is_read_when_it_is_its_turn(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are due, few of them are in memory; and nobody passes those that are not."""
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(waiting, "DUE_MAX", 3)
    monkeypatch.setattr(shelving, "DUE_MAX", 3)
    items = [b"%02d" % number for number in range(20)]
    async with bench.open(durability=durability) as q:
        for item in items:
            await q.put(item, delay=1 if int(item) % 2 else None)
        await q.flush()
        await asyncio.sleep(2)
        assert (q.stats().ready, q.stats().delayed, len(q.returned)) == (20, 0, 0)
        assert await q.peek() == items[0]
        found = []
        for _ in items:
            found.append((await q.lease()).item)
            assert len(q.returned) <= 3
        assert found == items


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("durability", LEVELS)
async def test_large_records_that_are_due_are_read_a_few_at_a_time(
    bench: Bench, durability: str, priorities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them may be more than there is memory for; a larger one is read alone."""
    monkeypatch.setattr(shelf, "KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(fetching, "FETCH_BYTES_MAX", 250)
    items = [b"%02d" % number * (300 if number == 7 else 50) for number in range(20)]
    async with bench.open(durability=durability, priorities=priorities) as q:
        await q.put_many(items, delay=1)
        await q.flush()
        await asyncio.sleep(2)
        assert (q.stats().ready, q.stats().delayed) == (20, 0)
        found = []
        for _ in items:
            found.append((await q.lease()).item)
            assert sum(len(record.payload) for record in q.returned) <= 250
            assert not q.shelf.kept
        assert found == items


@pytest.mark.parametrize("cached", [0, 1 << 20])
@pytest.mark.parametrize("durability", LEVELS)
async def test_older_records_that_nobody_took_stay_in_front(
    bench: Bench, durability: str, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a commit of its own; behind the first one they are in memory, or only on disk."""
    monkeypatch.setattr(line, "CACHE_BYTES_MAX", cached)
    async with bench.open(durability=durability) as q:
        for number in range(6):
            await q.put(b"%d" % number, delay=1 if number > 3 else None)
            await q.flush()
        await asyncio.sleep(2)
        assert await drained(q) == [b"%d" % number for number in range(6)]


async def test_a_lease_in_memory_may_begin_with_a_record_that_waited(bench: Bench) -> None:
    """No record has been taken in order before it: there is nothing that a window could open on."""
    async with bench.open(durability="memory") as q:
        await q.put(b"later", delay=1)
        delivery = await q.lease()
        assert delivery.item == b"later"
        await delivery.ack()
        assert (len(q), q.stats().leased) == (0, 0)


@pytest.mark.parametrize("durability", LEVELS)
async def test_older_records_that_are_only_on_disk_are_before_one_whose_time_has_come(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"a")
        await q.put(b"b", delay=1)
        await q.put(b"c")
    async with bench.open(durability=durability) as q:
        await asyncio.sleep(2)
        assert await q.peek() == b"a"
        assert await drained(q) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_older_records_in_memory_are_before_one_whose_time_has_come(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"a")
        assert await q.take() == b"a"
        await q.put_many([b"b", b"c"])
        await q.put(b"d", delay=1)
        await asyncio.sleep(2)
        assert await drained(q) == [b"b", b"c", b"d"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_delayed_record_that_is_too_old_is_not_handed_out_after_a_reopen(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came from disk without anybody looking at its time to live."""
    now = fake_time(monkeypatch)
    async with bench.open(durability=durability) as q:
        await q.put(b"a", delay=1, ttl=5)
    async with bench.open(durability=durability) as q:
        await asyncio.sleep(2)
        now[0] += 10 * SECOND
        assert await q.peek() is None
        assert q.stats().expired == 1


async def test_a_delayed_record_is_leased_before_anything_else_was(bench: Bench) -> None:
    """Nothing had ever stood in the line: looking at it for a window failed."""
    async with bench.open(durability="memory") as q:
        await q.put_many([b"a", b"b"], delay=1)
    async with bench.open(durability="memory") as q:
        await asyncio.sleep(2)
        async with q.lease() as delivery:
            assert delivery.item == b"a"
        assert await q.take() == b"b"


@pytest.mark.parametrize("way", ["delay", "deliver_at"])
async def test_a_record_comes_at_its_time_or_after_it_and_never_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """On a loop that is free, within 10 ms of its time."""
    now = fake_time(monkeypatch)
    loop = asyncio.get_running_loop()
    async with bench.open() as q:
        for seconds in (0.0004, 0.5, 7.3):
            due = loop.time() + seconds
            given: dict[str, Any] = {way: seconds if way == "delay" else now[0] / SECOND + seconds}
            await q.put(b"a", **given)
            assert await q.take() == b"a"
            # Seconds since the epoch as a float are good to less than a microsecond.
            assert due - 1e-6 <= loop.time() <= due + 0.01


@pytest.mark.parametrize("ahead", [0.0, 0.0002, 0.0009])
async def test_on_a_clock_that_counts_milliseconds_no_record_is_early(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """As uvloop's does: put in the middle of one, a record was there up to one too soon."""
    loop = asyncio.get_running_loop()
    exact, since = loop.time, 0.0
    began = time.time_ns()
    set_time(monkeypatch, lambda: began + round((exact() + since) * 1e9))
    async with bench.open(durability="memory") as q:
        monkeypatch.setattr(loop, "time", lambda: int((exact() + since) * 1000) / 1000)
        monkeypatch.setattr(q._committer, "clock_step", UVLOOP_STEP_NS)
        for seconds in (0.0004, 0.0101, 2.5):
            since = ahead
            due = exact() + since + seconds
            await q.put(b"a", delay=seconds)
            await q.put(b"b", delay=seconds)
            since = 0.0
            for _ in range(2):
                await q.take()
                assert due - 1e-9 <= exact() <= due + 0.01


async def test_one_timer_serves_every_delay_and_nobody_polls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.open() as q:
        for seconds in range(1000, 1100):
            await q.put(b"%d" % seconds, delay=seconds)
        taking = await started(q.take())
        await asyncio.sleep(10)
        loop = asyncio.get_running_loop()
        timers: list[float] = []
        call_at = loop.call_at

        def counted(when: float, *given: Any, **more: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return call_at(when, *given, **more)

        monkeypatch.setattr(loop, "call_at", counted)
        jobs = bench.runner.job_count
        await asyncio.sleep(980)
        assert (len(timers), bench.runner.job_count) == (1, jobs), "the one of this sleep"
        assert await taking == b"1000"
