"""Space: what `compact` gives back, how it is paced, and what `stats` says keeps the rest."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fifoq
from fifoq import Compacted, Queue, Retention, Store
from fifoq.committer import COMPACT_PAUSE
from store import Log, filling
from tests.fifoq.support import PATH, Bench, SmallDisk, cancelled, started
from tests.fifoq.test_holding import ITEM, SMALL, filled, kept, quiet
from tests.support.figures import record

pytestmark = pytest.mark.anyio


async def sparse(store: Store, count: int = 100, stay: int = 10) -> Queue[bytes]:
    """A queue of which every tenth record is left, leased."""
    queue = await filled(store, count)
    deliveries = [await queue.lease(seconds=10_000) for _ in range(count)]
    for at, delivery in enumerate(deliveries):
        if at % stay:
            await delivery.ack()
    return queue


def log_of(store: Store) -> Log:
    log = store._committer.log
    assert log is not None
    return log


def log_bytes(store: Store) -> int:
    return sum(segment.length for segment in log_of(store).state.segments.values())


def files_of(bench: Bench) -> list[str]:
    directory = bench.files.open_dir(PATH)
    names = [name for name in bench.files.list_dir(directory) if name.endswith(".log")]
    bench.files.close(directory)
    return names


async def test_compact_gives_back_what_is_removed_and_says_how_much(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await sparse(store)
        before = len(files_of(bench)), log_bytes(store)
        first = await store.compact()
        assert first.segments_removed >= before[0] - 3
        assert len(files_of(bench)) <= 4
        assert first.bytes_freed == before[1] - log_bytes(store) > 70_000
        assert await store.compact() == Compacted(0, 0)
        assert kept(store) == list(range(1, 101, 10))
        assert len(queue) == 10
    async with bench.open_store(**SMALL) as store:
        queue = await store.queue()
        assert [(await queue.lease()).key.counter for _ in range(10)] == list(range(1, 101, 10))


async def test_an_empty_store_has_nothing_to_compact(bench: Bench) -> None:
    async with bench.open_store() as store:
        assert await store.compact() == Compacted(0, 0)
        queue = await store.queue()
        await queue.put(ITEM)
        assert await store.compact() == Compacted(0, 0)
    with pytest.raises(fifoq.QueueClosed):
        await store.compact()


async def test_what_is_dead_in_the_newest_segment_goes_as_well(bench: Bench) -> None:
    async with bench.open_store() as store:
        queue = await filled(store, 500)
        await queue.remove_upto(500)
        done = await store.compact()
        assert done.segments_removed == 1
        assert log_bytes(store) < 10_000


async def test_commits_go_on_between_the_steps(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await sparse(store, 200)
        bench.runner.hold()
        compacting = await started(store.compact())
        steps = 0
        while not compacting.done():
            putting = await started(queue.put(ITEM))
            while not putting.done():
                assert await bench.step()
            steps += 1
        bench.runner.let_go()
        assert steps > 3


async def test_cancelled_between_two_steps_it_stops_and_nothing_is_lost(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await sparse(store, 200)
        bench.runner.hold()
        compacting = await started(store.compact())
        for _ in range(3):
            await bench.step()
        await cancelled(compacting)
        bench.runner.let_go()
        assert kept(store)[0] == 1
        assert [key.counter for key in log_of(store).keys("main")] == list(range(1, 201, 10))
        assert len(queue) == 20


async def test_a_full_disk_says_so_and_what_was_done_stays_done() -> None:
    bench = SmallDisk()
    async with bench.open_store(**SMALL) as store:
        queue = await sparse(store)
        bench.fill()
        try:
            await store.compact()
        except fifoq.DiskFull:
            pass
        assert [key.counter for key in log_of(store).keys("main")] == list(range(1, 101, 10))
        bench.empty()
        await store.compact()
        assert len(files_of(bench)) <= 4
        assert len(queue) == 10


async def test_a_damaged_segment_stays_and_the_others_are_compacted(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        await sparse(store)
        bench.files.flip_bit(f"{PATH}/{2:020}.log", offset=500, bit=1)
        log_of(store).cache.forget(2)
        with pytest.raises(fifoq.CorruptionError):
            await store.compact()
        assert len(files_of(bench)) <= 5
        assert f"{2:020}.log" in files_of(bench)


# By itself.


async def test_a_quiet_store_compacts_by_itself(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        await sparse(store)
        await quiet()
        assert len(files_of(bench)) <= 4
        # Then there is nothing to gain but what is dead in the newest segment.
        assert (await store.compact()).segments_removed <= 1


async def test_under_load_steps_have_a_tenth_of_the_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took as long as it liked, after every eighth commit, and producers waited for it."""
    monkeypatch.setattr("fifoq.committer._is_behind", lambda log: False)
    loop = asyncio.get_running_loop()
    steps: list[float] = []
    compact = Log.compact

    def step(log: Log, max_bytes: int = 1 << 20) -> bool:
        steps.append(loop.time())
        assert max_bytes <= 256 << 10
        bench.clock.advance(seconds=0.5)
        return compact(log, 1000)

    async with bench.open_store(**SMALL) as store:
        queue = await sparse(store, 300)
        monkeypatch.setattr(Log, "compact", step)
        for _ in range(1000):
            await queue.put(b"x")
            await asyncio.sleep(0.02)
        monkeypatch.undo()
        assert len(steps) >= 3
        pauses = [after - before for before, after in pairwise(steps)]
        assert min(pauses) >= 0.5 * COMPACT_PAUSE


# What keeps segments.


async def test_stats_name_the_record_that_keeps_a_segment(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 35)
        first, *others = queue.stats().pins
        assert (first.segment, first.counter, first.by, first.live) == (1, 1, "waiting", 10)
        assert [pin.counter for pin in others] == [11, 21, 31]
        await queue.lease()
        assert queue.stats().pins[0].by == "leased"
        await queue.remove_upto(13)
        await quiet()
        assert [pin.counter for pin in queue.stats().pins] == [14, 21, 31]
        assert first.bytes > 10_000


async def test_stats_name_who_holds_and_what_is_retained(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 35)
        cursor = await queue.cursor("billing")
        await cursor.take_many(12)
        await cursor.commit()
        await queue.remove_upto(35)
        await quiet()
        assert [(pin.counter, pin.by, pin.live) for pin in queue.stats().pins] == [
            (13, "cursor billing", 0),
            (21, "cursor billing", 0),
            (31, "cursor billing", 0),
        ]
        await store.compact()
        assert [pin.counter for pin in queue.stats().pins] == [13, 21, 31]
        await cursor.delete()
        await quiet()
        assert queue.stats().pins == ()
        queue.configure(retention=Retention(max_segments=1))
        for _ in range(20):
            await queue.put(ITEM)
        await queue.remove_upto(60)
        await quiet()
        assert {pin.by for pin in queue.stats().pins} == {"retention"}


async def test_the_oldest_pins_are_told_and_no_more(bench: Bench) -> None:
    async with bench.open_store(**SMALL) as store:
        queue = await filled(store, 200)
        assert [pin.segment for pin in queue.stats().pins] == list(range(1, 9))


async def stuck(
    store: Store, count: int, settle: Callable[[], Awaitable[object]]
) -> dict[str, Any]:
    """Lease and ack records out of order, all but the first; says what is left of them."""
    queue = await store.queue(durability="memory")
    random = Random(1)
    await queue.put(b"stuck" * 20)
    first = await queue.lease(seconds=1e6)
    # The zeros that are written ahead are one buffer for all stores of the process.
    filling._zeros()
    gc.collect()
    tracemalloc.start()
    for _ in range(count // 1000):
        await queue.put_many([b"x" * 100] * 1000)
        out = [await queue.lease() for _ in range(1000)]
        random.shuffle(out)
        for delivery in out:
            await delivery.ack()
        await asyncio.sleep(0)
    del out, delivery
    await queue.flush()
    await settle()
    gc.collect()
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stats = queue.stats()
    assert (stats.leased, stats.current_size) == (1, 1)
    assert stats.segments <= 3
    (pin,) = stats.pins
    assert (pin.counter, pin.by, pin.live) == (1, "leased", 1)
    figures = {
        "records": count,
        "kept bytes": current,
        "peak bytes": peak,
        "segments": stats.segments,
        "disk bytes": log_bytes(store),
        "ranges": len(log_of(store).state.queues["main"].removed),
    }
    await first.ack()
    await queue.flush()
    assert (await store.compact()).segments_removed >= 1
    assert queue.stats().pins == ()
    return figures


async def test_one_stuck_record_pins_its_segment_alone_and_memory_stays_bounded(
    bench: Bench,
) -> None:
    async with bench.open_store(segment_bytes=1 << 20) as store:
        figures = await stuck(store, 50_000, quiet)
    assert figures["ranges"] == 1
    assert figures["disk bytes"] < 3 << 20
    assert figures["kept bytes"] < 8 << 20


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_one_stuck_record_among_a_million(tmp_path: Path) -> None:
    async def play() -> dict[str, Any]:
        async with fifoq.open_store(tmp_path / "store", segment_bytes=8 << 20) as store:
            return await stuck(store, 1_000_000, store.compact)

    figures = asyncio.run(play())
    assert figures["ranges"] == 1
    assert figures["disk bytes"] < 3 * (8 << 20)
    assert figures["kept bytes"] < 8 << 20
    record("one stuck record among a million", **figures)
