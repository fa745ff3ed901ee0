"""Cursors: named reading positions that remove nothing, are durable, and keep what they need."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import fifoq
from actors.testing import settle
from fifoq import Cursor, Queue, RangeGone
from tests.fifoq.support import PATH, Bench, SmallDisk, cancelled, fake_time, started
from tests.fifoq.test_holding import ITEM, SMALL, filled, kept, left, quiet

pytestmark = pytest.mark.anyio


def items(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def numbered(queue: Queue[Any], first: int, last: int) -> None:
    """Records whose items are their counters."""
    for item in items(first, last):
        await queue.put(item)


async def rest(cursor: Cursor[Any]) -> list[bytes]:
    """Everything that it has not handed out."""
    found: list[bytes] = []
    while True:
        try:
            found += await cursor.take_many(1000, timeout=1)
        except TimeoutError:
            return found


# Taking.


async def test_a_cursor_sees_every_retained_record_taken_or_not_in_order(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        assert [await queue.take(), await queue.take()] == items(1, 2)
        assert [await cursor.take(), await cursor.take(), await cursor.take()] == items(1, 3)
        assert await cursor.take_many(10) == items(4, 5)
        assert len(queue) == 3


async def test_it_waits_for_new_records_without_polling(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await queue.cursor("reader")
        waiting = await started(cursor.take())
        await asyncio.sleep(10)
        jobs = bench.runner.job_count
        await asyncio.sleep(3600)
        assert bench.runner.job_count == jobs
        await queue.put(b"late")
        assert await waiting == b"late"


async def test_no_record_is_seen_before_it_is_durable(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await queue.cursor("reader")
        waiting = await started(cursor.take())
        bench.runner.hold()
        putting = await started(queue.put(b"x"))
        assert not putting.done()
        assert not waiting.done()
        await bench.step()
        bench.runner.let_go()
        await putting
        assert await waiting == b"x"


async def test_records_of_weaker_levels_are_seen_once_they_are_written(bench: Bench) -> None:
    async with bench.open(durability="memory", flush_interval=5.0) as queue:
        cursor = await queue.cursor("reader")
        waiting = await started(cursor.take())
        await queue.put(b"x")
        assert await queue.take() == b"x"
        await settle()
        assert not waiting.done()
        await asyncio.sleep(6)
        assert waiting.result() == b"x"


async def test_take_many_is_bounded_by_count_and_bytes(bench: Bench) -> None:
    async with bench.open() as queue:
        await queue.put_many([b"x" * 100] * 10)
        cursor = await queue.cursor("reader")
        assert len(await cursor.take_many(3)) == 3
        assert len(await cursor.take_many(10, max_bytes=250)) == 2
        assert len(await cursor.take_many(10, max_bytes=1)) == 1
        assert len(await cursor.take_many(10)) == 4


async def test_records_come_with_key_and_headers(bench: Bench) -> None:
    async with bench.open() as queue:
        key = await queue.put(b"x", headers={"a": "b"})
        cursor = await queue.cursor("reader")
        async for record in cursor.records():
            assert (record.key, record.item, record.headers) == (key, b"x", {"a": "b"})
            break


async def test_async_for_ends_when_the_store_is_closed(bench: Bench) -> None:
    queue = await bench.open()
    await numbered(queue, 1, 3)
    cursor = await queue.cursor("reader")

    async def read() -> list[bytes]:
        return [item async for item in cursor]

    reading = await started(read())
    await queue.close()
    assert await reading == items(1, 3)
    with pytest.raises(fifoq.QueueClosed):
        await cursor.take()


async def test_a_backlog_is_read_in_bounded_steps(bench: Bench) -> None:
    async with bench.open(durability="os") as queue:
        for first in range(1, 20_001, 500):
            await queue.put_many(items(first, first + 499))
        cursor = await queue.cursor("reader")
        seen: list[bytes] = []
        most = 0
        while len(seen) < 20_000:
            seen += await cursor.take_many(700)
            most = max(most, len(cursor._reading.records.ahead))
        assert seen == items(1, 20_000)
        assert most <= 2 * 4096


async def test_counters_that_no_record_has_are_passed(bench: Bench) -> None:
    """Of puts that were cancelled, and those kept ahead when the process was killed."""
    async with bench.open() as queue:
        await queue.put(b"1")
        bench.runner.hold()
        under_way = await started(queue.put(b"2"))
        leaving = await started(queue.put(b"3"))
        await cancelled(leaving)
        staying = await started(queue.put(b"4"))
        bench.runner.let_go()
        await asyncio.gather(under_way, staying)
        cursor = await queue.cursor("reader")
        assert await cursor.take_many(10) == [b"1", b"2", b"4"]
        await cursor.commit()
        assert cursor.position == cursor.committed == 5
        crashed = bench.after_crash()
    async with crashed.open() as again:
        key = await again.put(b"next")
        assert key.counter > 1000
        cursor = await again.cursor("reader")
        assert await cursor.take() == b"next"


async def test_items_have_the_queues_type_and_a_wrong_one_stands_in_the_way(bench: Bench) -> None:
    class Order(msgspec.Struct):
        number: int

    async with bench.open() as queue:
        await queue.put_many([msgspec.msgpack.encode(Order(1)), b"\xc1", b"\xc1"])
        await queue.put_many([msgspec.msgpack.encode(Order(4))])
    async with bench.open(type=Order) as queue:
        cursor = await queue.cursor("reader")
        assert await cursor.take_many(10) == [Order(1)]
        for _ in range(2):
            with pytest.raises(fifoq.SchemaMismatch):
                await cursor.take()
        await cursor.seek(counter=4)
        assert await cursor.take() == Order(4)


async def test_a_timeout_and_a_cancelled_take_take_nothing(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await queue.cursor("reader")
        with pytest.raises(TimeoutError, match="Nothing was taken"):
            await cursor.take(timeout=1)
        first = await started(cursor.take())
        second = await started(cursor.take())
        await cancelled(first)
        await numbered(queue, 1, 2)
        assert await second == b"1"
        assert await cursor.take() == b"2"


async def test_whoever_is_woken_and_leaves_passes_the_turn_on(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await queue.cursor("reader")
        first = await started(cursor.take())
        second = await started(cursor.take())
        bench.runner.hold()
        putting = await started(queue.put(b"1"))
        while not first.done() and not cursor._reading.records.ahead:
            bench.runner.step()
            await asyncio.sleep(0)
            first.cancel()
        bench.runner.let_go()
        await putting
        await settle()
        assert first.cancelled()
        assert await second == b"1"


# Committing.


async def test_what_was_committed_is_where_the_cursor_is_after_a_crash(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 10)
        cursor = await queue.cursor("reader")
        await cursor.take_many(4)
        await cursor.commit()
        await cursor.take_many(3)
        crashed = bench.after_crash()
    async with crashed.open() as again:
        assert again.cursors() == ["reader"]
        cursor = await again.cursor("reader", "latest")
        assert cursor.position == 5
        assert await rest(cursor) == items(5, 10)


async def test_what_was_taken_last_counts_once_somebody_takes_again(bench: Bench) -> None:
    """A reader that dies while it works on a record has it again, also with auto_commit."""
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader", auto_commit=2.0)
        await cursor.take()
        await cursor.take()
        assert cursor.position == 2
        await asyncio.sleep(3)
        assert cursor.committed == 2
        await asyncio.sleep(3600)
        assert cursor.committed == 2
        crashed = bench.after_crash()
    async with crashed.open() as again:
        assert await rest(await again.cursor("reader")) == items(2, 5)


async def test_auto_commit_is_once_an_interval_and_at_the_end(bench: Bench) -> None:
    queue = await bench.open()
    await numbered(queue, 1, 30)
    cursor = await queue.cursor("reader", auto_commit=1.0)
    commits = queue.stats().commits
    for _ in range(10):
        await cursor.take()
        await asyncio.sleep(0.3)
    assert 2 <= queue.stats().commits - commits <= 4
    await cursor.take()
    await queue.close()
    async with bench.open() as again:
        assert await rest(await again.cursor("reader")) == items(11, 30)


async def test_without_auto_commit_nothing_is_committed_by_itself(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        await cursor.take_many(3)
        await cursor.take()
    async with bench.open() as again:
        assert await rest(await again.cursor("reader")) == items(1, 5)


async def test_commits_of_cursors_share_a_frame_with_puts_and_each_other(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursors = [await queue.cursor(name) for name in ("a", "b", "c")]
        for cursor in cursors:
            await cursor.take_many(3)
        bench.runner.hold()
        calls: list[asyncio.Task[Any]] = [await started(cursor.commit()) for cursor in cursors]
        calls.append(await started(queue.put(b"x")))
        jobs = 0
        while not all(call.done() for call in calls):
            jobs += await bench.step()
        bench.runner.let_go()
        assert jobs <= 2
        assert [cursor.committed for cursor in cursors] == [4, 4, 4]


async def test_a_commit_of_nothing_new_writes_nothing(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        await cursor.take()
        await cursor.commit()
        commits = queue.stats().commits
        await cursor.commit()
        assert queue.stats().commits == commits


async def test_a_cancelled_commit_is_done_or_not_and_may_be_repeated(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        await cursor.take_many(2)
        bench.runner.hold()
        await cancelled(await started(cursor.commit()))
        bench.runner.let_go()
        await cursor.commit()
        assert cursor.committed == 3
        await cursor.take()
        bench.runner.hold()
        leaving = await started(cursor.commit())
        assert bench.runner.waiting is not None
        await cancelled(leaving)
        bench.runner.let_go()
        await cursor.commit()
        crashed = bench.after_crash()
    async with crashed.open() as again:
        assert (await again.cursor("reader")).position == 4


async def test_a_full_disk_refuses_a_position_and_keeps_it_for_later() -> None:
    bench = SmallDisk()
    async with bench.open() as queue:
        await queue.put_many(items(1, 10_000))
        cursor = await queue.cursor("reader")
        bench.fill()
        refused = 0
        while not refused:
            await cursor.take()
            try:
                await cursor.commit()
            except fifoq.DiskFull:
                refused = cursor.position
        assert cursor.committed < refused
        # What removes is not held up by a position that cannot be written.
        committing = await started(cursor.commit())
        assert await queue.take() == b"1"
        with pytest.raises(fifoq.DiskFull):
            await committing
        bench.empty()
        await asyncio.sleep(1)
        assert cursor.committed == refused
    async with bench.open() as queue:
        assert (await queue.cursor("reader")).position == refused


async def test_closing_on_a_full_disk_ends_and_says_so() -> None:
    bench = SmallDisk()
    queue = await bench.open()
    await queue.put_many(items(1, 10_000))
    cursor = await queue.cursor("reader")
    bench.fill()
    refused = False
    while not refused:
        await cursor.take()
        try:
            await cursor.commit()
        except fifoq.DiskFull:
            refused = True
    with pytest.raises(fifoq.DiskFull):
        await queue.close(timeout=60)
    assert queue.closed
    bench.empty()
    async with bench.open() as queue:
        assert (await queue.cursor("reader")).position > 1


# Where it starts, and seeking.


async def test_where_a_new_cursor_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(retention="all") as queue:
        for number in range(1, 6):
            now[0] = 10**18 + number * 10**9
            await queue.put(b"%d" % number)
        now[0] += 10**9
        moment = datetime.fromtimestamp(10**9 + 3, UTC)
        assert await rest(await queue.cursor("a")) == items(1, 5)
        assert await rest(await queue.cursor("b", "earliest")) == items(1, 5)
        assert await rest(await queue.cursor("c", "latest")) == []
        assert await rest(await queue.cursor("d", 4)) == items(4, 5)
        assert await rest(await queue.cursor("e", 6)) == []
        assert await rest(await queue.cursor("f", moment)) == items(3, 5)
        assert await rest(await queue.cursor("g", moment - timedelta(days=9999))) == items(1, 5)
        assert await rest(await queue.cursor("h", moment + timedelta(seconds=2.5))) == []
        await queue.put(b"6")
        for name in "abcdefgh":
            assert await (await queue.cursor(name)).take() == b"6"
        assert queue.cursors() == list("abcdefgh")


async def test_earliest_is_what_is_still_retained(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        await queue.remove_upto(45)
        await quiet()
        cursor = await queue.cursor("reader")
        assert cursor.position == kept(store)[0] > 1
        assert len(await rest(cursor)) == len(kept(store))


async def test_seeking_back_and_forth_and_by_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(retention="all") as queue:
        for number in range(1, 6):
            now[0] = 10**18 + number * 10**9
            await queue.put(b"%d" % number)
        cursor = await queue.cursor("reader")
        assert await rest(cursor) == items(1, 5)
        assert await cursor.seek(counter=2) == 2
        assert cursor.committed == 2
        assert await rest(cursor) == items(2, 5)
        assert await cursor.seek(timestamp=datetime.fromtimestamp(10**9 + 4, UTC)) == 4
        assert await cursor.take() == b"4"
        assert await cursor.seek(timestamp=10**18 + 10**9 + 1) == 2
        assert await cursor.take() == b"2"
        assert await cursor.seek(counter=6) == 6
        waiting = await started(cursor.take())
        await queue.put(b"6")
        assert await waiting == b"6"


async def test_a_seek_among_what_was_reclaimed_leads_to_the_next_record(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        stuck = await queue.lease(seconds=10_000)
        await queue.ack_many(await queue.lease_many(40, seconds=10_000))
        await store.compact()
        assert kept(store) == [1, *range(41, 56)], "one is stuck, and those around it are gone"
        cursor = await queue.cursor("reader", "latest")
        assert await cursor.seek(counter=1) == 1
        assert await cursor.seek(counter=20) == 41
        assert (cursor.position, cursor.committed) == (41, 41)
        assert (await cursor.lag()).records == 15
        ((record, _),) = await cursor.take_records(1)
        assert record.counter == 41
        assert (await queue.cursor("other", 20)).position == 41
        await stuck.ack()


async def test_a_seek_behind_the_last_record_that_is_there_leads_to_the_end(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 30)
        await queue.lease(seconds=10_000)
        await queue.ack_many(await queue.lease_many(29, seconds=10_000))
        await store.compact()
        assert kept(store) == [1]
        cursor = await queue.cursor("reader", 15)
        assert cursor.position == 31
        assert await cursor.seek(counter=1) == 1


async def test_whoever_waits_gets_what_a_seek_leads_to(bench: Bench) -> None:
    async with bench.open(retention="all") as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader", "latest")
        waiting = await started(cursor.take())
        await cursor.seek(counter=2)
        assert await waiting == b"2"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ({}, TypeError),
        ({"counter": 1, "timestamp": 1}, TypeError),
        ({"counter": 0}, ValueError),
        ({"counter": -1}, ValueError),
        ({"counter": True}, TypeError),
        ({"counter": "5"}, TypeError),
        ({"counter": 57}, ValueError),
        ({"counter": 40}, RangeGone),
        ({"timestamp": datetime(2020, 1, 1)}, ValueError),
        ({"timestamp": datetime(9000, 1, 1, tzinfo=UTC)}, ValueError),
        ({"timestamp": -1}, ValueError),
        ({"timestamp": 1.5}, TypeError),
    ],
)
async def test_a_seek_beyond_the_ends_is_refused_and_changes_nothing(
    bench: Bench, place: dict[str, Any], error: type[Exception]
) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        await queue.remove_upto(45)
        await quiet()
        cursor = await queue.cursor("reader", 50)
        await cursor.take()
        commits = queue.stats().commits
        with pytest.raises(error, match=r"Nothing was changed|not there any more"):
            await cursor.seek(**place)
        assert queue.stats().commits == commits
        assert len(await rest(cursor)) == 5


@pytest.mark.parametrize(
    ("name", "keywords", "error"),
    [
        ("Bad/name", {}, fifoq.InvalidName),
        ("", {}, fifoq.InvalidName),
        ("x", {"start": "middle"}, TypeError),
        ("x", {"start": None}, TypeError),
        ("x", {"start": 0}, ValueError),
        ("x", {"start": 7}, ValueError),
        ("x", {"start": datetime(2020, 1, 1)}, ValueError),
        ("x", {"auto_commit": 0}, ValueError),
        ("x", {"auto_commit": "often"}, ValueError),
    ],
)
async def test_a_wrong_cursor_is_refused_and_nothing_is_made(
    bench: Bench, name: str, keywords: dict[str, Any], error: type[Exception]
) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        with pytest.raises(error):
            await queue.cursor(name, **keywords)
        assert queue.cursors() == []


async def test_wrong_arguments_of_takes_are_refused(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        wrong: Any
        for wrong in ({"count": 0}, {"count": 1, "max_bytes": -1}, {"count": "x"}):
            with pytest.raises(ValueError, match="Nothing was changed"):
                await cursor.take_many(**wrong)
        with pytest.raises(ValueError, match="Nothing was leased"):
            cursor.lease(seconds=0)
        assert await rest(cursor) == items(1, 5)


# Names.


async def test_the_same_name_is_the_same_cursor_of_its_queue(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        a, b = await asyncio.gather(one.cursor("reader"), one.cursor("reader"))
        assert a is b
        assert await two.cursor("reader") is not a
        assert (one.cursors(), two.cursors()) == (["reader"], ["reader"])
        assert repr(a) == "<Cursor 'reader' of 'one' at 1 open>"


async def test_a_deleted_cursor_is_gone_for_good(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 5)
        cursor = await queue.cursor("reader")
        await cursor.take_many(3)
        await cursor.commit()
        waiting = await started(cursor.take_many(5))
        assert len(await waiting) == 2
        waiting = await started(cursor.take_many(5))
        await cursor.delete()
        with pytest.raises(fifoq.QueueClosed, match="was deleted"):
            await waiting
        with pytest.raises(fifoq.QueueClosed, match="was deleted"):
            await cursor.commit()
        assert queue.cursors() == []
        crashed = bench.after_crash()
    async with crashed.open() as again:
        assert again.cursors() == []
        assert await rest(await again.cursor("reader")) == items(1, 5)


# Lag.


async def test_lag_counts_a_record_that_was_restored_and_then_taken(bench: Bench) -> None:
    """It lies apart from the others: gone from the queue, it was no record for the lag."""
    async with bench.open() as q:
        cursor = await q.cursor("reader")
        await q.put_many([b"a", b"b", b"c"])
        await q.peek()
        bench.runner.hold()
        await cancelled(await started(q.take()))
        bench.runner.let_go()
        await settle()
        assert await q.take_many(3) == [b"a", b"b", b"c"]
        await q.flush()
        assert (await cursor.lag()).records == 3
        assert await cursor.take_many(3) == [b"a", b"b", b"c"]


async def test_lag_counts_what_was_moved_and_then_taken(bench: Bench) -> None:
    """Records that compaction moved lie apart; taken after that, they were one record for it."""
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 60)
        deliveries = await queue.lease_many(60, seconds=10_000)
        await queue.ack_many([one for one in deliveries if one.key.counter % 3])
        await store.compact()
        cursor = await queue.cursor("reader")
        assert (await cursor.lag()).records == len(kept(store)) == 20
        await queue.ack_many([one for one in deliveries if one.key.counter % 3 == 0])
        await queue.flush()
        assert (await cursor.lag()).records == 20
        assert len(await cursor.take_many(5)) == 5
        assert (await cursor.lag()).records == 15
        assert len(await rest(cursor)) == 15


async def test_lag_in_records_and_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as queue:
        cursor = await queue.cursor("reader")
        assert await cursor.lag() == fifoq.Lag(0, 0.0)
        for number in range(1, 5):
            now[0] += 10**9
            await queue.put(b"%d" % number)
        assert await cursor.lag() == fifoq.Lag(4, 3.0)
        await cursor.take()
        assert await cursor.lag() == fifoq.Lag(3, 2.0)
        delivery = await cursor.lease()
        assert await cursor.lag() == fifoq.Lag(3, 2.0)
        await cursor.lease()
        await delivery.ack()
        assert await cursor.lag() == fifoq.Lag(2, 1.0)
        await rest(cursor)
        assert await cursor.lag() == fifoq.Lag(1, 1.0)
        await cursor.commit()
        (stats,) = queue.stats().consumers
        assert (stats.name, stats.cursor) == ("reader", True)


# What it holds.


async def test_records_stay_until_the_cursor_has_committed_past_them(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        cursor = await queue.cursor("reader")
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == left(1, 55)
        await cursor.take_many(33)
        await quiet()
        assert kept(store) == left(1, 55)
        await cursor.commit()
        await quiet()
        assert kept(store) == left(34, 55)
        assert queue.stats().consumers[0].counter == 34
        await cursor.delete()
        await quiet()
        assert kept(store) == left(55, 55)


async def test_it_holds_after_a_crash_before_anybody_opens_it(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        cursor = await queue.cursor("reader")
        await cursor.take_many(13)
        await cursor.commit()
        crashed = bench.after_crash()
    async with crashed.open_store(**SMALL) as store:
        queue = await store.queue()
        await queue.remove_upto(55)
        for _ in range(20):
            await queue.put(ITEM)
        await quiet()
        assert kept(store)[:45] == left(14, 55)
        (stats,) = queue.stats().consumers
        assert (stats.name, stats.counter, stats.cursor) == ("reader", 14, True)
        assert len(await rest(await queue.cursor("reader"))) == 62


async def test_an_idle_cursor_costs_no_timer(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 5)
        cursor = await queue.cursor("reader")
        await cursor.take_many(5)
        await cursor.commit()
        await quiet()
        loop: Any = asyncio.get_running_loop()
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


async def test_over_the_limit_it_loses_its_place_and_says_what_is_gone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.open_store(**SMALL, cursor_cap_bytes=25_000) as store:
        queue = await filled(store, 55)
        cursor = await queue.cursor("reader")
        with caplog.at_level(logging.WARNING, "fifoq"):
            await queue.remove_upto(55)
            await quiet()
        assert "Cursor 'reader' of queue 'main'" in caplog.text
        assert "delete it" in caplog.text
        assert queue.stats().consumers[0].let_go
        for _ in range(2):
            with pytest.raises(RangeGone) as raised:
                await cursor.take()
            assert (raised.value.wanted, raised.value.oldest) == (1, 51)
            assert str(raised.value) == (
                "queue 'main': records 1 to 50 were reclaimed before cursor 'reader' came to them, "
                "since it held more than cursor_cap_bytes. It was not moved. Go on with what is "
                "there: seek(counter=51)."
            )
        await cursor.seek(counter=raised.value.oldest)
        assert len(await rest(cursor)) == 5


async def test_what_is_gone_is_told_after_a_reopen_as_well(bench: Bench) -> None:
    """Which no counter alone tells: those that a crash skipped are not there either."""
    async with bench.open_store(**SMALL, cursor_cap_bytes=25_000) as store:
        queue = await filled(store, 15)
        caught_up = await queue.cursor("caught-up")
        behind = await queue.cursor("behind")
        for cursor in (caught_up, behind):
            await cursor.take_many(15)
            await cursor.commit()
        for _ in range(40):
            await queue.put(ITEM)
        await caught_up.take_many(40)
        await caught_up.commit()
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == left(51, 55)
        crashed = bench.after_crash()
    async with crashed.open_store(**SMALL, cursor_cap_bytes=25_000) as store:
        queue = await store.queue()
        key = await queue.put(ITEM)
        assert key.counter > 56
        assert await (await queue.cursor("caught-up")).take() == ITEM
        with pytest.raises(RangeGone) as raised:
            await (await queue.cursor("behind")).take()
        assert (raised.value.wanted, raised.value.oldest) == (16, 51)


async def test_what_is_in_memory_is_handed_out_before_the_loss_is_told(bench: Bench) -> None:
    async with bench.open_store(**SMALL, cursor_cap_bytes=25_000) as store:
        queue = await filled(store, 15)
        cursor = await queue.cursor("reader")
        assert await cursor.take() == ITEM
        for _ in range(40):
            await queue.put(ITEM)
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == left(51, 55)
        assert len(await cursor.take_many(100)) == 14
        with pytest.raises(RangeGone) as raised:
            await cursor.take()
        assert (raised.value.wanted, raised.value.oldest) == (16, 51)
        await cursor.commit()
        assert cursor.committed == 16
    async with bench.open_store(**SMALL, cursor_cap_bytes=25_000) as store:
        cursor = await (await store.queue()).cursor("reader")
        with pytest.raises(RangeGone) as raised:
            await cursor.take()
        assert (raised.value.wanted, raised.value.oldest) == (16, 51)


async def test_damage_stops_the_cursor_where_it_is_and_seek_passes_it(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        await filled(store, 35)
    bench.files.flip_bit(f"{PATH}/{2:020}.log", offset=5000, bit=1)
    async with bench.open_store(**SMALL) as store:
        queue = await store.queue()
        cursor = await queue.cursor("reader")
        found = await cursor.take_many(100)
        for _ in range(2):
            with pytest.raises(fifoq.CorruptionError):
                found += await cursor.take_many(100)
        assert 10 <= len(found) < 20
        await cursor.seek(counter=21)
        assert len(await rest(cursor)) == 15
