"""Recurring puts: in time, once, after any crash, by any clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
from actors.testing import VirtualTimeLoop, settle
from fifoq import Queue, Schedule, schedules
from fifoq.attributes import attributes_from
from fifoq.recurring import (
    CATCH_UP_MAX,
    ITEM_BYTES_MAX,
    STEP_TIMES,
    Plan,
    encode_plan,
    state_name,
)
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from store import open_log
from tests.fifoq.loops import on_each_loop
from tests.fifoq.support import PATH, Bench, SmallDisk, cancelled, drained, started

pytestmark = pytest.mark.anyio

SECOND = 10**9
START = int(datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC).timestamp()) * SECOND


class Wall:
    """The wall clock: it goes as the running loop does, and can be set."""

    def __init__(self) -> None:
        self.base = START

    def time_ns(self) -> int:
        return self.base + round(asyncio.get_running_loop().time() * SECOND)

    def set(self, seconds: float) -> None:
        """Put it on or back."""
        self.base += round(seconds * SECOND)


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    monkeypatch.setattr("fifoq.schedules.time", wall)
    return wall


@pytest.fixture
def real_time(wall: Wall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fifoq.schedules.time", time)


async def put_times(queue: Queue[Any]) -> list[str]:
    """When the records that are there were due, on the clock."""
    return [r.headers["schedule.due"][11:19] async for r in queue.browse()]


class Watched:
    """Takes what comes to a queue, and notes the loop's time."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.seen: list[float] = []
        self._task = asyncio.ensure_future(self._run(queue))

    async def _run(self, queue: Queue[Any]) -> None:
        async for _ in queue:
            self.seen.append(asyncio.get_running_loop().time())

    async def stop(self) -> list[float]:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.seen


# In time.


async def test_an_interval_fires_at_or_after_its_time_and_at_once(bench: Bench) -> None:
    async with bench.open() as q:
        start = asyncio.get_running_loop().time()
        await q.schedule("tick", b"x", every=2.5)
        watched = Watched(q)
        await asyncio.sleep(26)
        seen = [round(at - start, 6) for at in await watched.stop()]
        assert len(seen) == 10
        for number, at in enumerate(seen, 1):
            assert 0 <= at - 2.5 * number < 0.01


async def test_a_cron_line_fires_on_the_minute(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("five", b"x", cron="*/5 * * * *", overlap=True)
        await asyncio.sleep(15 * 60)
        assert await put_times(q) == ["12:05:00", "12:10:00", "12:15:00"]


async def test_a_cron_line_goes_by_the_clock_of_its_zone(bench: Bench) -> None:
    async with bench.open() as q:
        made = await q.schedule("nine", b"x", cron="0 9 * * *", zone="America/New_York")
        due = datetime.fromtimestamp(made.next_time // SECOND, UTC)
        assert (due.hour, made.zone) == (13, "America/New_York")


async def test_a_store_with_schedules_has_one_timer_and_does_nothing_in_between(
    bench: Bench,
) -> None:
    async with bench.open() as q:
        for number in range(100):
            await q.schedule(f"daily-{number}", b"x", every=86400 + number)
        await asyncio.sleep(10)
        jobs = bench.runner.job_count
        await asyncio.sleep(86000)
        assert bench.runner.job_count == jobs


async def test_schedules_that_are_due_together_share_a_commit(bench: Bench) -> None:
    async with bench.open() as q:
        for number in range(50):
            await q.schedule(f"m-{number:02}", b"x", cron="* * * * *", overlap=True)
        commits = q.stats().commits
        await asyncio.sleep(31)
        assert len(q) == 50
        assert q.stats().commits - commits <= 2


async def test_a_record_says_for_which_schedule_and_time_it_stands(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("report", b"go", cron="1 12 * * *", headers={"k": "v"})
        delivery = await q.lease()
        assert (delivery.item, delivery.headers) == (
            b"go",
            {"k": "v", "schedule.name": "report", "schedule.due": "2026-05-01T12:01:00+00:00"},
        )


@pytest.mark.parametrize("opened", [True, False])
async def test_keywords_of_a_put_hold_for_each_firing(bench: Bench, opened: bool) -> None:
    many = {f"h{n}": "x" for n in range(16)}
    async with bench.open(priorities=True) as q:
        given: dict[str, Any] = {"priority": 2, "ordering_key": "k", "ttl": 1e8, "headers": many}
        await q.schedule("job", b"x", every=10, overlap=True, **given)
    async with bench.open_store() as store:
        if opened:
            await store.queue(priorities=True)
        await asyncio.sleep(31)
        q = await store.queue(priorities=True)
        assert len(q) == 3
        delivery = await q.lease()
        assert len(delivery.headers) == 18
        told = await store.explain(delivery.key)
        assert set(told.columns) == {"expires_at", "priority", "ordering_key", "headers"}


async def test_items_of_a_type_are_put_as_such(bench: Bench) -> None:
    class Job(msgspec.Struct):
        size: int

    async with bench.open(type=Job) as q:
        with pytest.raises((TypeError, ValueError)):
            await q.schedule("bad", "no job", every=1)
        await q.schedule("job", Job(3), every=1)
        assert await q.take() == Job(3)


# One that waits.


async def test_while_a_record_waits_the_next_one_is_passed_over(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10)
        await asyncio.sleep(35)
        assert len(q) == 1
        (schedule,) = q.schedules()
        assert (schedule.put_count, schedule.passed_count) == (1, 2)
        async with q.lease():
            # It is being worked on, for longer than it should be.
            await asyncio.sleep(20)
            assert len(q) == 1
        await asyncio.sleep(10)
        assert len(q) == 1
        assert q.schedules()[0].put_count == 2


async def test_what_was_taken_in_memory_alone_counts_as_taken(bench: Bench) -> None:
    async with bench.open(durability="memory", flush_interval=3600.0) as q:
        await q.schedule("job", b"x", every=1)
        for _ in range(5):
            await q.take()
        assert asyncio.get_running_loop().time() < 5.1


async def test_with_overlap_every_time_has_its_record(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10, overlap=True)
        await asyncio.sleep(35)
        assert len(q) == 3


async def test_whether_a_record_waits_is_known_after_a_reopen(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10)
        await asyncio.sleep(11)
    async with bench.open() as q:
        await asyncio.sleep(30)
        assert len(q) == 1


async def test_limits_of_the_queue_do_not_hold_a_firing_up(bench: Bench) -> None:
    async with bench.open(maxsize=1, pressure_high=1) as q:
        await q.put(b"full")
        await q.schedule("job", b"x", every=1)
        await asyncio.sleep(1.5)
        assert await drained(q) == [b"full", b"x"]


# Kept.


async def test_a_schedule_goes_on_where_it_was_after_a_reopen(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=100)
        await asyncio.sleep(70)
    await asyncio.sleep(20)
    async with bench.open() as q:
        start = asyncio.get_running_loop().time()
        await q.take()
        assert 9.9 < asyncio.get_running_loop().time() - start < 10.01


async def test_saying_it_again_with_the_same_times_does_not_start_it_anew(bench: Bench) -> None:
    for _ in range(5):
        async with bench.open() as q:
            await q.schedule("job", b"x", every=100)
            await asyncio.sleep(30)
    async with bench.open() as q:
        assert await drained(q) == [b"x"]


async def test_saying_it_again_writes_nothing_if_nothing_changed(bench: Bench) -> None:
    async with bench.open() as q:
        first = await q.schedule("job", b"x", cron="0 0 * * *", headers={"a": "b"})
        jobs = bench.runner.job_count
        assert await q.schedule("job", b"x", cron="0 0 * * *", headers={"a": "b"}) == first
        assert bench.runner.job_count == jobs


async def test_another_item_takes_the_place_of_the_old_one_at_the_same_time(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"old", every=100)
        await asyncio.sleep(60)
        await q.schedule("job", b"new", every=100)
        await asyncio.sleep(50)
        assert await drained(q) == [b"new"]
        assert len(q.schedules()) == 1


async def test_other_times_start_anew(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=100)
        await asyncio.sleep(60)
        await q.schedule("job", b"x", every=50)
        await asyncio.sleep(45)
        assert len(q) == 0
        await asyncio.sleep(10)
        assert len(q) == 1


async def test_a_schedule_that_was_dropped_stays_so(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10)
        assert await q.unschedule("job") is True
        assert await q.unschedule("job") is False
        assert q.schedules() == []
        await asyncio.sleep(60)
    async with bench.open() as q:
        await asyncio.sleep(60)
        assert (len(q), q.schedules()) == (0, [])


async def test_each_queue_has_schedules_of_its_own(bench: Bench) -> None:
    async with bench.open_store() as store:
        a, b = await store.queue("a"), await store.queue("b")
        await a.schedule("job", b"of a", every=10)
        await b.schedule("job", b"of b", every=10)
        assert await b.unschedule("job")
        assert [s.name for s in a.schedules()] == ["job"]
        await asyncio.sleep(11)
        assert (len(a), len(b)) == (1, 0)


async def test_what_is_told_of_a_schedule(bench: Bench) -> None:
    async with bench.open() as q:
        made = await q.schedule("b", b"x", every=60)
        assert made == Schedule(
            name="b",
            every=60.0,
            cron=None,
            zone="UTC",
            catch_up="one",
            overlap=False,
            next_time=START + 60 * SECOND,
            last_time=0,
            last_counter=0,
            put_count=0,
            passed_count=0,
        )
        await q.schedule("a", b"x", cron="@daily", catch_up="all")
        assert [(s.name, s.overlap) for s in q.schedules()] == [("a", True), ("b", False)]
        await asyncio.sleep(61)
        told = q.schedules()[1]
        assert (told.last_time, told.last_counter, told.put_count) == (START + 60 * SECOND, 1, 1)
        assert told.next_time == START + 120 * SECOND


# Queues that nobody has opened.


async def test_a_queue_that_is_not_open_gets_its_records_all_the_same(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue("jobs", type=int)
        await q.schedule("job", 7, every=10)
        await q.schedule("each", 8, every=10, overlap=True)
    async with bench.open_store() as store:
        await asyncio.sleep(31)
        q = await store.queue("jobs", type=int)
        assert sorted(await drained(q)) == [7, 8, 8, 8]
        assert [s.put_count for s in q.schedules()] == [3, 1]


async def test_a_queue_opened_while_its_firing_is_written_misses_nothing(bench: Bench) -> None:
    async with bench.open_store() as store:
        await (await store.queue("jobs", type=int)).schedule("job", 7, every=10)
    await asyncio.sleep(20)
    for steps in range(8):
        trial = Bench(SimFiles.from_image(bench.files.image()))
        async with trial.open_store() as store:
            trial.runner.hold()
            await asyncio.sleep(0)
            for _ in range(steps):
                await trial.step()
            opening = asyncio.ensure_future(store.queue("jobs", type=int))
            while not opening.done():
                await trial.step()
            trial.runner.let_go()
            await settle()
            assert await drained(opening.result()) == [7]


async def test_what_a_firing_put_survives_a_power_cut_once_it_is_seen(bench: Bench) -> None:
    async with bench.open(durability="memory", flush_interval=3600.0) as q:
        await q.schedule("job", b"x", every=10)
        await q.take()
        for image in power_images(bench.files, limit=8):
            async with Bench(SimFiles.from_image(image)).open() as again:
                # The very record that was taken, and not one that made up for it.
                assert [record.key.counter async for record in again.browse()] == [1]


# Late.


@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("skip", 0), ("all", 6)])
@pytest.mark.parametrize("times", [{"every": 10}, {"cron": "* * * * *"}])
async def test_what_came_due_while_the_store_was_closed_is_made_up_for_as_was_asked(
    bench: Bench, wall: Wall, catch_up: str, count: int, times: dict[str, Any]
) -> None:
    period = 10 if "every" in times else 60
    async with bench.open() as q:
        await q.schedule("job", b"x", catch_up=catch_up, **times)  # type: ignore[arg-type]
        await asyncio.sleep(period / 4)
    await asyncio.sleep(period * 6)
    async with bench.open() as q:
        await settle()
        assert len(q) == count
        due = q.schedules()[0].next_time
        now = wall.time_ns()
        assert now < due <= now + period * SECOND
        await drained(q)
        await asyncio.sleep(period)
        assert len(q) == 1


async def test_what_is_made_up_for_keeps_its_order_and_times(bench: Bench) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", cron="0 * * * *", catch_up="all")
    await asyncio.sleep(3 * 3600)
    async with bench.open() as q:
        await settle()
        assert await put_times(q) == ["13:00:00", "14:00:00", "15:00:00"]


async def test_many_times_are_made_up_for_in_steps_and_up_to_a_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert CATCH_UP_MAX % STEP_TIMES != 0
    monkeypatch.setattr(schedules, "CATCH_UP_MAX", 3 * STEP_TIMES)
    async with bench.open() as q:
        await q.schedule("job", b"x", every=1, catch_up="all")
    await asyncio.sleep(2 * STEP_TIMES)
    async with bench.open() as q:
        await settle()
        assert len(q) == 2 * STEP_TIMES
        await drained(q)
    await asyncio.sleep(100 * STEP_TIMES)
    with caplog.at_level(logging.WARNING, "fifoq"):
        async with bench.open() as q:
            await settle()
            assert len(q) == 3 * STEP_TIMES
            assert "passed over" in caplog.text
            await asyncio.sleep(1.5)
            assert len(q) == 3 * STEP_TIMES + 1


@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("skip", 1), ("all", 4)])
async def test_a_loop_that_was_busy_for_long_fires_late(
    bench: Bench, catch_up: str, count: int
) -> None:
    """The store was there all the time: what is due now is fired, whatever is made up for."""
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10, catch_up=catch_up)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.now += 45
        await settle()
        assert len(q) == count


# Clocks.


@pytest.mark.parametrize("jump", [-86400.0, -3600.0, -1.0, 1.0, 3600.0, 86400.0])
async def test_an_interval_does_not_care_for_the_wall_clock(
    bench: Bench, wall: Wall, jump: float
) -> None:
    async with bench.open() as q:
        start = asyncio.get_running_loop().time()
        await q.schedule("tick", b"x", every=10)
        watched = Watched(q)
        await asyncio.sleep(15)
        wall.set(jump)
        await asyncio.sleep(30)
        assert [round(at - start, 2) for at in await watched.stop()] == [10.0, 20.0, 30.0, 40.0]
        # And what is kept goes by the clock of now.
        assert q.schedules()[0].next_time == wall.base + round((start + 50) * SECOND)


@pytest.mark.parametrize("back", [86400.0, 3600.0, 70.0, 5.0])
@pytest.mark.parametrize("times", [{"every": 100}, {"cron": "*/2 * * * *"}])
async def test_a_clock_set_back_while_the_store_was_closed_stalls_nothing(
    bench: Bench, wall: Wall, back: float, times: dict[str, Any]
) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", **times)
        await asyncio.sleep(1)
    wall.set(-back)
    async with bench.open() as q:
        await asyncio.sleep(121)
        assert len(q) == 1


@pytest.mark.parametrize("back", [86400.0 * 400, 86400.0, 3600.0, 61.0])
async def test_a_cron_line_goes_by_what_a_clock_shows_that_was_set_back(
    bench: Bench, wall: Wall, back: float
) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", cron="0 * * * *", overlap=True)
        await asyncio.sleep(10)
        wall.set(-back)
        await asyncio.sleep(3700)
        assert len(q) == 1
        assert (await put_times(q))[0].endswith(":00:00")


async def test_a_clock_that_goes_back_a_little_repeats_nothing(bench: Bench, wall: Wall) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", cron="* * * * *", overlap=True)
        for _ in range(5):
            await asyncio.sleep(60)
            wall.set(-0.5)
        await asyncio.sleep(2.5)
        assert await put_times(q) == [f"12:0{minute}:00" for minute in range(1, 6)]


@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("skip", 0), ("all", 5)])
async def test_times_that_the_clock_was_set_past_are_made_up_for_as_was_asked(
    bench: Bench, wall: Wall, catch_up: str, count: int
) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", cron="30 * * * *", catch_up=catch_up)  # type: ignore[arg-type]
        await asyncio.sleep(10)
        wall.set(5 * 3600)
        await asyncio.sleep(schedules.LOOK_SECONDS)
        assert len(q) == count
        await drained(q)
        await asyncio.sleep(3600)
        assert len(q) == 1


# What is refused.


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either every= or cron="),
        ({"every": 1, "cron": "* * * * *"}, "either every= or cron="),
        ({"every": 0}, "every=0 is not in 0.01 to"),
        ({"every": -5}, "every=-5 is not in"),
        ({"every": float("nan")}, "every=nan is not in"),
        ({"every": float("inf")}, "every=inf is not in"),
        ({"cron": "61 * * * *"}, "minute '61'"),
        ({"cron": "* * * * *", "zone": "Nowhere"}, "is no time zone"),
        ({"every": 1, "catch_up": "some"}, "catch_up='some' is none of one, skip, all"),
        ({"every": 1, "overlap": 1}, "overlap=1 is neither"),
        ({"every": 1, "overlap": False, "catch_up": "all"}, "makes no sense"),
        ({"every": 1, "headers": {"schedule.due": "x"}}, "are those of the schedule"),
        ({"every": 1, "headers": {f"h{n}": "" for n in range(99)}}, "over the limit"),
    ],
)
async def test_nonsense_is_refused_and_nothing_changes(
    bench: Bench, given: dict[str, Any], said: str
) -> None:
    async with bench.open() as q:
        jobs = bench.runner.job_count
        with pytest.raises(ValueError) as error:
            await q.schedule("job", b"x", **given)
        assert said in str(error.value)
        assert (q.schedules(), bench.runner.job_count) == ([], jobs)


@pytest.mark.parametrize("name", ["", "A", "a/b", "-a", "a" * 65, "a b", 5])
async def test_a_name_that_is_none_is_refused(bench: Bench, name: Any) -> None:
    async with bench.open() as q:
        with pytest.raises(ValueError, match="a name has 1 to 64"):
            await q.schedule(name, b"x", every=1)


async def test_wrong_keywords_and_items_are_refused(bench: Bench) -> None:
    async with bench.open() as q:
        wrong: dict[str, Any]
        for wrong in (
            *({"durability": "os"}, {"delay": 1.0}, {"dedup_id": "x"}, {"colour": 1}),
            *({"every": "1"}, {"every": True}),
        ):
            given: dict[str, Any] = {"every": 1, **wrong}
            with pytest.raises(TypeError):
                await q.schedule("job", b"x", **given)
        with pytest.raises(TypeError):
            await q.schedule("job", "x", every=1)
        with pytest.raises(ValueError, match="over the limit"):
            await q.schedule("job", bytes(ITEM_BYTES_MAX + 1), every=1)
        assert q.schedules() == []


async def test_there_are_no_more_schedules_than_memory_is_meant_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)
    async with bench.open() as q:
        await q.schedule("a", b"x", every=1)
        await q.schedule("b", b"x", every=1)
        with pytest.raises(ValueError, match="has 2 schedules already"):
            await q.schedule("c", b"x", every=1)
        await q.schedule("b", b"y", every=1)
        assert await q.unschedule("a")
        await q.schedule("c", b"x", every=1)


async def test_a_closed_store_is_told(bench: Bench) -> None:
    async with bench.open() as q:
        pass
    with pytest.raises(fifoq.QueueClosed):
        await q.schedule("job", b"x", every=1)
    with pytest.raises(fifoq.QueueClosed):
        await q.unschedule("job")


# Trouble.


async def test_a_caller_that_leaves_leaves_memory_and_disk_agreed(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        task = await started(q.schedule("job", b"x", every=10))
        await cancelled(task)
        assert q.schedules() == []
        bench.runner.let_go()
        await settle()
        assert [s.name for s in q.schedules()] == ["job"]
        bench.runner.hold()
        await cancelled(await started(q.unschedule("job")))
        bench.runner.let_go()
        await settle()
        assert q.schedules() == []


async def use_up(queue: Queue[Any]) -> None:
    """Put until the space that the store has ahead is full as well."""
    with contextlib.suppress(fifoq.DiskFull):
        while True:
            await queue.put(bytes(60_000))


async def test_a_full_disk_is_waited_out_and_the_firing_comes_once() -> None:
    disk = SmallDisk()
    async with disk.open() as q:
        await q.schedule("job", bytes(60_000), every=1000)
        disk.fill()
        await use_up(q)
        size = len(q)
        await asyncio.sleep(1000.1)
        assert len(q) == size
        disk.empty()
        await asyncio.sleep(schedules.RETRY_SECONDS * 2)
        assert len(q) == size + 1
        await asyncio.sleep(500)
        assert (len(q), q.schedules()[0].put_count) == (size + 1, 1)


async def test_a_firing_that_was_refused_is_not_in_a_later_frame_either() -> None:
    """Its next time, in the frame of a record that came later, would have lost it in a crash."""
    disk = SmallDisk()
    async with disk.open() as q:
        await q.schedule("job", bytes(60_000), every=1000)
        disk.fill()
        await use_up(q)
        await asyncio.sleep(1000.1)
        disk.empty()
        await q.put(b"later")
        size, twin = len(q), after_process_crash(disk.files)
    async with Bench(twin).open() as q:
        await settle()
        assert len(q) == size + 1


async def test_a_queue_that_was_shut_down_gets_its_record_from_the_next_owner(
    bench: Bench,
) -> None:
    async with bench.open() as q:
        await q.schedule("job", b"x", every=10)
        q.shutdown()
        await asyncio.sleep(50)
        assert len(q) == 0
    async with bench.open() as q:
        await settle()
        assert len(q) == 1


async def test_a_store_that_failed_fires_no_more(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.schedule("job", b"x", every=10)
        store._committer.fail(fifoq.DurabilityError("a test"), [])
        await asyncio.sleep(50)
        assert len(q) == 0


async def test_a_store_that_fails_while_a_firing_looks_back_leaves_nobody_waiting(
    bench: Bench,
) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.schedule("job", b"x", every=10)
        await q.take()
        bench.runner.hold()
        await asyncio.sleep(11)
        store._committer.fail(fifoq.DurabilityError("a test"), [])
        bench.runner.let_go()
        await asyncio.sleep(100)
        assert store._committer.schedules._task is not None
        assert store._committer.schedules._task.exception() is None


async def test_one_that_goes_wrong_keeps_no_other_from_firing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = attributes_from

    def trouble(now: int, **asked: Any) -> Any:
        if asked:
            raise ValueError("a newer version knew what this means")
        return made(now)

    monkeypatch.setattr(schedules, "attributes_from", trouble)
    async with bench.open() as q:
        await q.schedule("bad", b"b", every=10, ordering_key="k")
        await q.schedule("good", b"g", every=10)
        await asyncio.sleep(25)
        assert [record.item async for record in q.browse()] == [b"g"]
        assert "schedule bad of queue main waits: a newer version" in caplog.text
        monkeypatch.setattr(schedules, "attributes_from", made)
        await asyncio.sleep(60)
        assert sorted([record.item async for record in q.browse()]) == [b"b", b"g"]


@on_each_loop
async def test_real_time_is_kept_on_real_loops(tmp_path: Path, real_time: None) -> None:
    async with fifoq.open(tmp_path) as q:
        await q.schedule("tick", b"x", every=0.02, overlap=True)
        for _ in range(5):
            delivery = await q.lease()
            due = datetime.fromisoformat(delivery.headers["schedule.due"]).timestamp()
            assert delivery.key.timestamp >= round(due, 6) * SECOND - 1000
            await delivery.ack()


async def test_what_this_version_can_not_follow_is_left_alone_and_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(item=b"x", every=SECOND, next_time=START, set_time=START)
    wrong = {
        "zone": msgspec.structs.replace(plan, every=None, cron="* * * * *", zone="Mars/City"),
        "none": msgspec.structs.replace(plan, every=None),
        "zero": msgspec.structs.replace(plan, every=0),
    }
    values = {name: encode_plan(bad) for name, bad in wrong.items()} | {"rot": b"\xc1"}
    async with bench.open():
        pass
    with open_log(PATH, files=bench.files, clock=bench.clock) as log:
        draft = log.draft()
        draft.set_states([(state_name("main", name), value) for name, value in values.items()])
        draft.set_states([("schedule/odd", b"?")])
        log.commit(draft)
    with caplog.at_level(logging.ERROR, "fifoq"):
        async with bench.open() as q:
            await asyncio.sleep(10)
            assert (len(q), q.schedules()) == (0, [])
    assert all(f"schedule {name} of queue main does not fire" in caplog.text for name in values)
    with open_log(PATH, files=bench.files, clock=bench.clock) as log:
        assert log.state_of(state_name("main", "zone")) == values["zone"]
    async with bench.open() as q:
        # It can be said anew, or dropped.
        assert (await q.schedule("rot", b"x", every=5)).every == 5.0
        assert await q.unschedule("zone")
        assert not await q.unschedule("zone")
    async with bench.open() as q:
        assert [s.name for s in q.schedules()] == ["rot"]


# Crashes.


def on_a_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def images(files: SimFiles, seed: int) -> Iterator[SimFiles]:
    yield after_process_crash(files)
    yield from map(SimFiles.from_image, power_images(files, limit=8, samples=4, seed=seed))


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_ended_at_any_moment_a_firing_came_once_or_comes_yet(opened: bool, catch_up: str) -> None:
    """Kill, or cut the power, at every change of the disk while a schedule fires twice."""
    bench = Bench()

    async def prepare() -> None:
        async with bench.open() as q:
            await q.put(b"before")
            await q.schedule("job", b"x", every=10, catch_up=catch_up, overlap=True)  # type: ignore[arg-type]

    async def work(files: SimFiles) -> None:
        async with Bench(files).open_store() as store:
            if opened:
                await store.queue()
            await asyncio.sleep(25)

    found: list[tuple[float, SimFiles]] = []
    on_a_loop(prepare())
    clock: list[float] = []

    def visit(index: int, files: SimFiles) -> None:
        try:
            now = asyncio.get_running_loop().time()
        except RuntimeError:
            now = 25.0
        found.extend((now, files) for files in images(files, index))
        clock.append(now)

    async def outcome(files: SimFiles, now: float) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.now = now
        async with Bench(files).open() as q:
            # At the end of a period that the first life has not come to.
            await asyncio.sleep(55 - now)
            return [r.headers.get("schedule.due", "")[17:19] async for r in q.browse()]

    image = bench.files.image()
    crash_points(lambda files: on_a_loop(work(files)), visit, files=SimFiles.from_image(image))
    assert len([now for now in clock if now >= 10]) > 5
    for now, files in found:
        # Never one twice, none left out: the schedule started at second 30.
        assert on_a_loop(outcome(files, now)) == ["", "40", "50", "00", "10", "20"], now


def test_ended_at_any_moment_a_schedule_is_kept_whole_or_not_at_all() -> None:
    bench = Bench()
    done: list[str] = []

    async def prepare() -> None:
        async with bench.open() as q:
            await q.schedule("old", b"o", every=10)

    async def work(files: SimFiles) -> None:
        async with Bench(files).open() as q:
            await q.schedule("new", b"n", every=10)
            done.append("new")
            await q.schedule("old", b"other", every=20)
            done.append("other")
            await q.unschedule("old")
            done.append("dropped")

    found: list[tuple[int, SimFiles]] = []

    def visit(index: int, files: SimFiles) -> None:
        found.extend((len(done), files) for files in images(files, index))

    async def outcome(files: SimFiles) -> dict[str, float | None]:
        async with Bench(files).open() as q:
            return {s.name: s.every for s in q.schedules()}

    on_a_loop(prepare())
    image = bench.files.image()
    crash_points(lambda files: on_a_loop(work(files)), visit, files=SimFiles.from_image(image))
    steps = [{"old": 10.0}, {"old": 10.0, "new": 10.0}, {"old": 20.0, "new": 10.0}, {"new": 10.0}]
    for confirmed, files in found:
        assert on_a_loop(outcome(files)) in steps[confirmed : confirmed + 2]
