"""What the owner keeps for consumers and by retention, when it lets it go, and what it tells."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import fifoq
from fifoq import Queue, Retention, Store
from fifoq.consumers import Position, id_text
from fifoq.testing.simfiles import SimFiles
from store import open_log
from tests.fifoq.support import PATH, Bench, fake_time
from tests.fifoq.test_consumers import DONE, offset, offsets

pytestmark = pytest.mark.anyio

ITEM = b"x" * 1000
PER_SEGMENT = 10
SMALL = {"segment_bytes": 1 << 16, "segment_records": PER_SEGMENT}


class Consumer:
    """A query of Spark, as far as its files tell of it."""

    def __init__(self, files: SimFiles, name: str, store: str, queue: str = "main") -> None:
        self.files, self.name, self.store, self.queue = files, name, store, queue
        self.batch = 0
        self.checkpoint = f"/checkpoints-{name}"
        self.written_at = 0

    def write(self, counter: int) -> None:
        """Its position, as its reader writes it."""
        position = Position(
            queue=self.queue,
            counter=counter,
            store=self.store,
            checkpoint=self.checkpoint,
            written_at=self.written_at,
        )
        make_dirs(self.files, f"{PATH}/consumers")
        replace(self.files, f"{PATH}/consumers", f"{self.name}.json", msgspec.json.encode(position))

    def plan(self, counter: int) -> None:
        """Its next batch, up to a counter."""
        for part in ("", "/offsets", "/commits"):
            make_dirs(self.files, self.checkpoint + part)
        data = offsets(offset(counter, self.store))
        replace(self.files, f"{self.checkpoint}/offsets", str(self.batch), data)

    def commit(self) -> None:
        replace(self.files, f"{self.checkpoint}/commits", str(self.batch), DONE)
        self.batch += 1

    def prove(self, counter: int) -> None:
        self.plan(counter)
        self.commit()

    def leave(self) -> None:
        directory = self.files.open_dir(f"{PATH}/consumers")
        self.files.unlink(directory, f"{self.name}.json")
        self.files.close(directory)


def make_dirs(files: SimFiles, path: str) -> None:
    try:
        files.add_dir(path)
    except FileExistsError:
        pass


def replace(files: SimFiles, directory: str, name: str, data: bytes) -> None:
    handle = files.open_dir(directory)
    if name in files.list_dir(handle):
        files.unlink(handle, name)
    files.close(handle)
    files.add_file(f"{directory}/{name}", data)


def consumer_of(bench: Bench, store: Store, name: str = "spark", queue: str = "main") -> Consumer:
    log = store._committer.log
    assert log is not None
    return Consumer(bench.files, name, id_text(log.store_id), queue)


async def filled(store: Store, count: int, name: str = "main") -> Queue[bytes]:
    """A queue with that many records, ten to a segment."""
    queue = await store.queue(name)
    for _ in range(count):
        await queue.put(ITEM)
    return queue


def kept(store: Store, name: str = "main") -> list[int]:
    """Counters that a reader can still have, removed or not."""
    log = store._committer.log
    assert log is not None
    return [c for block in log.read(name, removed=True) for c in block.counters()]


def left(first: int, last: int) -> list[int]:
    """Counters from the segment on that holds `first`: segments stay or go whole."""
    start = (first - 1) // PER_SEGMENT * PER_SEGMENT + 1
    return list(range(start, last + 1))


async def quiet() -> None:
    """Let the owner find the time for everything."""
    await asyncio.sleep(10)


# Holding.


async def test_without_consumers_removed_records_go_and_no_timer_stays(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        await queue.remove_upto(50)
        await quiet()
        assert kept(store) == left(51, 55)
        loop: Any = asyncio.get_running_loop()
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []
        assert queue.stats().consumers == ()
        bench.files.op_log = []
        await asyncio.sleep(3600)
        assert bench.files.op_log == []


async def test_records_stay_until_the_consumer_has_passed_them(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(1)
        await queue.remove_upto(45)
        await quiet()
        assert kept(store) == left(1, 55)
        consumer.write(24)
        await quiet()
        assert kept(store) == left(24, 55)
        consumer.write(56)
        await quiet()
        assert kept(store) == left(46, 55)


async def test_a_consumer_that_comes_later_is_heard_before_anything_goes(bench: Bench) -> None:
    """The owner had looked, and found none; nothing but the reclaiming itself looks again."""
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        await quiet()
        consumer_of(bench, store).write(13)
        await queue.remove_upto(55)
        for _ in range(20):
            await queue.put(ITEM)
        assert kept(store) == left(13, 75)


async def test_space_is_freed_by_what_the_checkpoint_proves_alone(bench: Bench) -> None:
    """After the last `availableNow` batch no reader of the query is there to write a position."""
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(1)
        await queue.remove_upto(55)
        consumer.prove(31)
        await quiet()
        assert kept(store) == left(31, 55)
        consumer.plan(56)
        await quiet()
        assert kept(store) == left(31, 55)
        consumer.commit()
        await quiet()
        assert kept(store) == left(51, 55)
        assert queue.stats().consumers[0].counter == 56


async def test_a_query_that_starts_anew_is_believed(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(1)
        consumer.prove(51)
        await quiet()
        assert queue.stats().consumers[0].counter == 51
        consumer.checkpoint += "-2"
        consumer.write(21)
        await queue.remove_upto(55)
        await quiet()
        assert queue.stats().consumers[0].counter == 21
        assert kept(store) == left(21, 55)


async def test_the_slowest_of_several_consumers_counts_and_only_for_its_queue(
    bench: Bench,
) -> None:
    async with bench.open_store(**SMALL) as store:
        slow, fast = consumer_of(bench, store, "slow"), consumer_of(bench, store, "fast")
        slow.write(21)
        fast.write(41)
        queue, other = await filled(store, 50), await filled(store, 50, "other")
        await queue.remove_upto(50)
        await other.remove_upto(50)
        await quiet()
        assert kept(store) == left(21, 50)
        assert kept(store, "other") == []
        slow.leave()
        await quiet()
        assert kept(store) == left(41, 50)
        fast.leave()
        await quiet()
        loop: Any = asyncio.get_running_loop()
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


@pytest.mark.parametrize("crash", [False, True])
async def test_a_reopened_store_still_holds(bench: Bench, crash: bool) -> None:
    store = await bench.open_store(**SMALL)
    queue = await filled(store, 55)
    consumer = consumer_of(bench, store)
    consumer.write(11)
    await queue.remove_upto(55)
    await quiet()
    if crash:
        twin = bench.files.copy()
        twin.process_crash()
        await store.close()
        bench.files = consumer.files = twin
    else:
        await store.close()
    async with bench.open_store(**SMALL) as store:
        await (await store.queue("another")).put(b"a")
        await quiet()
        assert kept(store) == left(11, 55)
        consumer.prove(56)
        await quiet()
        # A clean end is gone on with, and what is written to stays.
        assert kept(store) == ([] if crash else left(51, 55))


async def test_what_is_held_is_kept_by_one_who_knows_no_consumers(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer_of(bench, store).write(31)
        await queue.remove_upto(55)
        await quiet()
    with open_log(PATH, files=bench.files, clock=bench.clock) as log:
        assert log.state.queues["main"].held == 31
        log.put("another", [b"a"])
        log.compact()
        assert [c for b in log.read("main", removed=True) for c in b.counters()] == left(31, 55)


async def test_sparse_segments_are_compacted_once_the_consumer_has_passed(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(1)
        leases = [await queue.lease() for _ in range(50)]
        for number, delivery in enumerate(leases):
            if number % PER_SEGMENT:
                await delivery.ack()
        await quiet()
        assert kept(store) == left(1, 55)
        consumer.prove(56)
        await quiet()
        assert len(kept(store)) < 20
        assert len(queue) == 10


async def test_what_cannot_be_read_holds_everything_and_is_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, name: str, args: tuple[object, ...]) -> None:
        if name == "open_dir" and str(args[0]).endswith("consumers"):
            raise OSError(errno.EACCES, "Permission denied")

    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        bench.files.before_op = refuse
        with caplog.at_level(logging.WARNING, "fifoq"):
            await queue.remove_upto(55)
            for _ in range(30):
                await queue.put(ITEM)
            await quiet()
        assert kept(store) == left(1, 85)
        assert caplog.text.count("/data/consumers cannot be read") == 1
        bench.files.before_op = None
        await queue.remove_upto(85)
        await quiet()
        assert kept(store) == left(85, 85)


async def test_a_checkpoint_that_cannot_be_read_leaves_what_the_position_says(
    bench: Bench,
) -> None:
    def refuse(_: int, name: str, args: tuple[object, ...]) -> None:
        if name == "open_dir" and str(args[0]).startswith("/checkpoints"):
            raise OSError(errno.EACCES, "Permission denied")

    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(11)
        consumer.prove(31)
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == left(31, 55)
        consumer.prove(41)
        bench.files.before_op = refuse
        await quiet()
        assert kept(store) == left(31, 55)
        consumer.write(51)
        await quiet()
        assert kept(store) == left(51, 55)


async def test_a_consumer_of_another_store_holds_nothing_and_is_named(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        Consumer(bench.files, "stranger", "ff" * 16).write(1)
        await queue.remove_upto(50)
        await quiet()
        assert kept(store) == left(51, 55)
        assert queue.stats().consumers == ()
        assert caplog.text.count("consumer 'stranger' belongs to store ffff") == 1


async def test_a_position_that_makes_no_sense_changes_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        consumer = consumer_of(bench, store)
        consumer.write(21)
        await quiet()
        replace(bench.files, f"{PATH}/consumers", "spark.json", b"{")
        replace(bench.files, f"{PATH}/consumers", "never.json", b"{")
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == left(21, 55)
        assert [found.name for found in queue.stats().consumers] == ["spark"]
        assert caplog.text.count("does not decode") == 2


# The limit.


async def test_over_the_limit_the_oldest_consumer_is_let_go_until_it_moves(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.open_store(**SMALL, cursor_cap_bytes=35_000) as store:
        queue = await filled(store, 65)
        dead, alive = consumer_of(bench, store, "dead"), consumer_of(bench, store, "alive")
        dead.write(1)
        alive.write(41)
        await queue.remove_upto(30)
        await quiet()
        assert kept(store) == left(1, 65)
        held = {found.name: found for found in queue.stats().consumers}
        assert 30_000 < held["dead"].held_bytes <= 35_000
        assert held["alive"].held_bytes == 0
        with caplog.at_level(logging.WARNING, "fifoq"):
            await queue.remove_upto(60)
            await quiet()
        assert kept(store) == left(41, 65)
        assert caplog.text.count("over cursor_cap_bytes=35000. Consumer 'dead' of queue") == 1
        held = {found.name: found for found in queue.stats().consumers}
        assert (held["dead"].let_go, held["dead"].held_bytes) == (True, 0)
        assert (held["alive"].let_go, held["alive"].held_bytes > 0) == (False, True)
        dead.write(51)
        alive.write(66)
        await quiet()
        assert kept(store) == left(51, 65)
        assert not queue.stats().consumers[1].let_go


async def test_with_a_limit_of_zero_nothing_is_held(bench: Bench) -> None:
    async with bench.open_store(**SMALL, cursor_cap_bytes=0) as store:
        queue = await filled(store, 35)
        consumer_of(bench, store).write(1)
        await queue.remove_upto(30)
        await quiet()
        assert kept(store) == left(31, 35)


def test_the_limit_is_checked_with_the_other_options() -> None:
    with pytest.raises(ValueError, match="cursor_cap_bytes=-1 is below 0"):
        fifoq.open_store("nowhere", cursor_cap_bytes=-1)


# What is told.


async def test_a_new_cursor_is_not_behind_since_the_beginning_of_time(bench: Bench) -> None:
    """Until somebody had looked, it was half a century."""
    async with bench.open_store() as store:
        queue = await store.queue("main")
        await queue.put_many([ITEM, ITEM])
        await queue.cursor("new")
        (found,) = queue.stats().consumers
        assert found.lag_records == 2
        assert found.lag_seconds < 3600


async def test_stats_tell_how_far_behind_a_consumer_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    second = 10**9
    start = now[0]
    async with bench.open_store(**SMALL) as store:
        queue = await store.queue("main")
        for _ in range(25):
            await queue.put(ITEM)
            now[0] += second
        consumer = consumer_of(bench, store)
        consumer.written_at = (start + 25 * second) // 10**6
        consumer.write(6)
        await quiet()
        (found,) = queue.stats().consumers
        assert found == fifoq.ConsumerStats(
            name="spark",
            counter=6,
            lag_records=20,
            lag_seconds=20.0,
            held_bytes=0,
            heard_at=start + 25 * second,
            let_go=False,
            silent=False,
        )
        now[0] += 3601 * second
        (found,) = queue.stats().consumers
        assert (found.lag_seconds, found.silent) == (3621.0, True)
        consumer.prove(26)
        await quiet()
        (found,) = queue.stats().consumers
        assert (found.counter, found.lag_records, found.lag_seconds) == (26, 0, 0.0)
        assert (found.heard_at, found.silent) == (now[0], False)
        now[0] += second
        await queue.put_many([ITEM, ITEM])
        (found,) = queue.stats().consumers
        assert (found.lag_records, found.lag_seconds) == (2, 1.0)


async def test_counters_that_a_crash_skipped_are_no_lag(bench: Bench) -> None:
    store = await bench.open_store(**SMALL)
    await filled(store, 15)
    consumer_of(bench, store).write(11)
    twin = bench.files.copy()
    twin.process_crash()
    await store.close()
    bench.files = twin
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 4)
        assert queue.next > 10**6
        await quiet()
        assert queue.stats().consumers[0].lag_records == 5 + 4


# Retention.


async def emptied(bench: Bench, check: Callable[[Store], None], **options: Any) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await store.queue("main", **options)
        for _ in range(55):
            await queue.put(ITEM)
        await queue.remove_upto(55)
        await quiet()
        check(store)


def has(first: int, last: int = 55) -> Callable[[Store], None]:
    def check(store: Store) -> None:
        assert kept(store) == list(range(first, last + 1))

    return check


@pytest.mark.parametrize(
    ("retention", "first"),
    [
        ("acked", 51),
        ("all", 1),
        (Retention(), 1),
        (Retention(max_segments=2), 31),
        (Retention(max_bytes=35_000), 21),
        (Retention(max_bytes=0, min_segments=0), 51),
    ],
)
async def test_removed_records_stay_as_long_as_the_retention_says(
    bench: Bench, retention: Any, first: int
) -> None:
    await emptied(bench, has(first), retention=retention)
    async with bench.open_store(**SMALL) as store:
        # Nobody opens the queue itself.
        await filled(store, 1, "another")
        await quiet()
        has(first)(store)
        assert (await store.queue("main")).options.retention == retention


async def test_a_retention_by_age_lets_go_what_is_older(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch, bench.clock.wall())
    async with bench.open_store(**SMALL) as store:
        queue = await store.queue("main", retention=Retention(max_age=25))
        for _ in range(55):
            await queue.put(ITEM)
            now[0] += 10**9
            bench.clock.advance(seconds=1)
        await queue.remove_upto(55)
        await quiet()
        assert kept(store) == list(range(31, 56))


async def test_a_retention_is_in_force_at_once(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 55)
        await queue.remove_upto(20)
        await quiet()
        assert kept(store) == left(21, 55)
        queue.configure(retention="all")
        await queue.remove_upto(50)
        await quiet()
        assert kept(store) == left(21, 55)
        queue.configure(retention=Retention(max_segments=1))
        await queue.put(ITEM)
        await quiet()
        assert kept(store) == left(41, 56)
        queue.configure(retention="acked")
        await quiet()
        assert kept(store) == left(51, 56)


async def test_a_retention_is_not_lost_in_a_crash_before_any_checkpoint(bench: Bench) -> None:
    store = await bench.open_store(**SMALL)
    queue = await filled(store, 15)
    await queue.flush()
    queue.configure(retention="all")
    await queue.flush()
    twin = bench.files.copy()
    twin.process_crash()
    await store.close()
    bench.files = twin
    async with bench.open_store(**SMALL) as store:
        other = await filled(store, 1, "another")
        log = store._committer.log
        assert log is not None
        assert log.take("main", 15)
        await other.put(b"b")
        await quiet()
        assert kept(store) == left(1, 15)


async def test_queues_of_one_store_have_retentions_of_their_own(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        a = await store.queue("a", retention=Retention(max_segments=1))
        b = await store.queue("b", retention=Retention(max_segments=3))
        for queue in (a, b, a, b):
            for _ in range(20):
                await queue.put(ITEM)
        await a.remove_upto(40)
        await b.remove_upto(40)
        await (await store.queue("tail")).put(b"")
        await quiet()
        assert kept(store, "a") == list(range(31, 41))
        assert kept(store, "b") == list(range(11, 41))


@pytest.mark.parametrize("wrong", ["some", None, 3, {"max_age": 1}])
async def test_a_wrong_retention_is_named(bench: Bench, wrong: Any) -> None:
    async with bench.open() as queue:
        with pytest.raises(ValueError, match="is none of acked, all and a Retention"):
            queue.configure(retention=wrong)
        assert queue.options.retention == "acked"
