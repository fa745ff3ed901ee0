"""A full disk, a failed sync, damage: who is told what, and that nobody hangs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any, Literal

import pytest

import fifoq
from actors.testing import settle
from fifoq import CorruptionError, DiskFull, DurabilityError, QueueClosed, StoreFailed
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import PATH, Bench, SmallDisk, cancelled, drained, started
from tests.support.faulty import Fault, FaultyFiles

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


async def test_sync_puts_on_a_full_disk_are_certainly_not_there(disk: SmallDisk) -> None:
    async with disk.open() as q:
        await q.put_many([b"a", b"b", b"c"])
        disk.fill()
        big = b"x" * 1_600_000
        for _ in range(2):
            with pytest.raises(DiskFull):
                await q.put(big)
        assert len(q) == 3
        assert await q.take() == b"a"
        delivery = await q.lease()
        assert await delivery.ack()
        assert q.stats().errors >= 2
        disk.empty()
        assert (await q.put(big)).counter == 6
        assert await drained(q) == [b"c", big]


async def test_takes_in_the_refused_frame_go_on(disk: SmallDisk) -> None:
    async with disk.open() as q:
        await q.put_many([b"a", b"b"])
        disk.fill()
        put = asyncio.ensure_future(q.put(b"x" * 1_600_000))
        take = asyncio.ensure_future(q.take())
        assert await take == b"a"
        with pytest.raises(DiskFull):
            await put
        disk.empty()
    async with disk.open() as q:
        assert await drained(q) == [b"b"]


async def test_memory_records_stay_and_are_written_when_there_is_space(disk: SmallDisk) -> None:
    """After the removals of a refused frame were committed alone, nobody tried the puts again."""
    async with disk.open(durability="memory") as q:
        await q.put_many([b"a", b"b"])
        await q.flush()
        disk.fill()
        await q.put(b"x" * 1_600_000)
        assert await q.take() == b"a"
        await asyncio.sleep(1)
        with pytest.raises(DiskFull):
            await q.put(b"c")
        with pytest.raises(DiskFull):
            q.put_nowait(b"c")
        assert await q.take() == b"b"
        assert len(q) == 1
        await asyncio.sleep(1)
        disk.empty()
        await asyncio.sleep(1)
        await q.put(b"c")
        await q.flush()
        twin = disk.files.copy()
        twin.process_crash()
        async with Bench(twin).open() as again:
            assert await drained(again) == [b"x" * 1_600_000, b"c"]


async def test_flush_does_not_lie_on_a_full_disk(disk: SmallDisk) -> None:
    """It was resolved by the frame of removals, while the records still waited in memory."""
    async with disk.open(durability="memory") as q:
        await q.put(b"a")
        await q.flush()
        disk.fill()
        await q.put(b"x" * 1_600_000)
        assert await q.take() == b"a"
        with pytest.raises(DiskFull):
            await q.flush()
        assert await q.take() == b"x" * 1_600_000
        disk.empty()
        await q.flush()


async def test_what_was_put_and_taken_in_memory_is_no_trouble_on_a_full_disk(
    disk: SmallDisk,
) -> None:
    """The removal was tried without the put, which raised in the loop and stopped everything."""
    async with disk.open(durability="memory") as q:
        await q.put_many([b"a", b"b"])
        await q.flush()
        disk.fill()
        await q.put_many([b"x" * 1_600_000, b"y"])
        assert await drained(q) == [b"a", b"b", b"x" * 1_600_000, b"y"]
        await asyncio.sleep(1)
        disk.empty()
        await asyncio.sleep(1)
        await q.put(b"c")
        assert await drained(q) == [b"c"]
        assert q.stats().total_take_count == 5


async def test_a_sync_take_of_an_unwritten_record_is_refused(disk: SmallDisk) -> None:
    async with disk.open() as q:
        await q.put(b"a")
        disk.fill()
        q.put_nowait(b"x" * 1_600_000)
        assert await q.take() == b"a"
        with pytest.raises(DiskFull):
            await q.take()
        with pytest.raises(DiskFull):
            await q.lease()
        assert len(q) == 1
        disk.empty()
        assert await q.take() == b"x" * 1_600_000


async def test_a_memory_queue_is_free_again_after_anothers_refusal(disk: SmallDisk) -> None:
    """A sync put that was refused left nothing behind, yet memory puts were refused for ever."""
    async with disk.open_store() as store:
        strong = await store.queue("strong")
        weak = await store.queue("weak", durability="memory")
        await weak.flush()
        disk.fill()
        with pytest.raises(DiskFull):
            await strong.put(b"x" * 1_600_000)
        await weak.put(b"fits")
        disk.empty()
        await store.flush()
        assert await weak.take() == b"fits"


async def test_the_level_of_the_call_says_whether_a_full_disk_refuses_it(disk: SmallDisk) -> None:
    """It was the level of the queue: a sync queue took memory puts without end, and a sync put on
    a memory queue was refused when there was space again."""
    big = b"x" * 1_600_000
    async with disk.open() as q:
        disk.fill()
        q.put_nowait(big)
        with pytest.raises(DiskFull):
            await q.flush()
        with pytest.raises(DiskFull):
            q.put_nowait(b"small")
        with pytest.raises(DiskFull):
            await q.put(b"small", durability="memory")
        disk.empty()
        await q.put(b"strong")
        assert await drained(q) == [big, b"strong"]


async def test_records_behind_a_refused_put_can_be_taken(disk: SmallDisk) -> None:
    async with disk.open(durability="memory") as q:
        disk.fill()
        put = await started(q.put(b"x" * 1_600_000, durability="sync"))
        with pytest.raises(DiskFull):
            await put
        await q.put(b"weak")
        assert await q.take(timeout=1) == b"weak"
        disk.empty()


async def test_a_refused_configuration_is_written_later(disk: SmallDisk) -> None:
    async with disk.open() as q:
        await q.put(b"a")
        disk.fill()
        q.configure(maxsize=77)
        with pytest.raises(DiskFull):
            await q.put(b"x" * 1_600_000)
        assert await q.take() == b"a"
        disk.empty()
        await asyncio.sleep(1)
    async with disk.open() as q:
        assert q.options.maxsize == 77


async def test_closing_on_a_full_disk_tells_what_is_lost(disk: SmallDisk) -> None:
    q = await disk.open(durability="memory")
    await q.put(b"a")
    await q.flush()
    disk.fill()
    await q.put(b"x" * 1_600_000)
    with pytest.raises(DiskFull):
        await q.close()
    assert q.closed
    disk.empty()
    async with disk.open() as q:
        assert await drained(q) == [b"a"]


# A failed sync.


async def test_a_counter_that_was_shown_is_not_given_out_again_after_a_close_on_a_full_disk(
    disk: SmallDisk,
) -> None:
    """There was no space to note it, and the next owner counted on from before."""
    q = await disk.open()
    await q.put(b"a")
    disk.fill()
    receipt = q.submit(b"x" * 3_000_000)
    with pytest.raises(DiskFull):
        await receipt
    await q.close()
    disk.empty()
    async with disk.open() as again:
        assert (await again.put(b"b")).counter > receipt.key.counter
        assert await drained(again) == [b"a", b"b"]


async def test_so_it_is_where_not_even_that_can_be_noted(disk: SmallDisk, caplog: Any) -> None:
    q = await disk.open()
    await q.put(b"a")
    disk.fill()
    for size in (200_000, 20_000, 2_000, 200, 1):
        with contextlib.suppress(DiskFull):
            while True:
                await q.put(b"x" * size)
    receipt = q.submit(b"x" * 100)
    with pytest.raises(DiskFull):
        await receipt
    caplog.clear()
    await q.close()
    assert not [one for one in caplog.records if one.getMessage().startswith("store failed")]
    with pytest.raises(QueueClosed):
        await q.put(b"late")
    disk.empty()
    async with disk.open() as again:
        assert (await again.put(b"b")).counter > receipt.key.counter


async def test_a_close_counts_past_what_many_queues_gave_out_in_one_commit() -> None:
    """Each queue with a put that was cancelled was a sync of its own."""
    bench = BadDisk()
    store = await bench.open_store()
    for number in range(100):
        q = await store.queue(f"q{number}")
        assert q.submit(b"x").withdraw()
    await store.flush()
    before = bench.faulty._name_counts["datasync"]
    await store.close()
    assert bench.faulty._name_counts["datasync"] - before < 10
    async with Bench(bench.files.inner).open(queue="q99") as again:
        assert (await again.put(b"y")).counter == 2


class BadDisk(Bench):
    """A disk whose calls fail when the test says so."""

    def __init__(self) -> None:
        self.faulty = FaultyFiles(SimFiles())
        super().__init__(self.faulty)

    def break_next(self, call: str, error: int = errno.EIO, *, for_ever: bool = False) -> None:
        count = self.faulty._name_counts[call]
        self.faulty.faults = (Fault(at=count, error=error, call=call, for_ever=for_ever),)


async def test_a_failed_sync_stops_everything_and_nobody_hangs() -> None:
    bench = BadDisk()
    store = await bench.open_store()
    q = await store.queue("q", maxsize=3)
    other = await store.queue("other")
    await q.put_many([b"a", b"b", b"c"])
    delivery = await q.lease()
    full = await started(q.put(b"waits"))
    empty = await started(other.take())
    browse = await started(anext(aiter(q.browse())))
    assert (await browse).item == b"a"
    bench.runner.hold()
    take = await started(q.take())
    late = await started(other.put(b"late"))
    flush = await started(store.flush())
    bench.break_next("datasync")
    bench.runner.let_go()
    for task in (take, late, flush):
        with pytest.raises(DurabilityError):
            await task
    for task in (full, empty):
        with pytest.raises(StoreFailed, match="earlier failure"):
            await task
    for call in (
        q.put(b"x"),
        q.put_many([b"x"]),
        q.take(),
        q.take_many(3),
        q.peek(),
        q.flush(),
        store.flush(),
        store.queue("third"),
        delivery.ack(),
        q.below_pressure(),
        anext(aiter(q.browse())),
    ):
        with pytest.raises(StoreFailed):
            await call
    for plain in (q.take_nowait, delivery.nack, lambda: q.put_nowait(b""), lambda: q.submit(b"")):
        with pytest.raises(StoreFailed):
            plain()
    with pytest.raises(StoreFailed):
        await q.lease()
    assert len(q) >= 0
    assert q.stats().errors == 1
    await store.close()
    async with Bench(bench.files.inner).open(queue="q") as again:
        assert (await drained(again))[-1] == b"c"


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_close_tells_of_lost_records_that_nobody_waited_for(sealed: bool) -> None:
    """It returned, as if all of them were on the disk."""
    bench = BadDisk()
    q = await bench.open(durability="memory")
    await q.put(b"a")
    await q.flush()
    bench.runner.hold()
    if sealed:
        await q.put(b"lost")
        failing = None
        await asyncio.sleep(1)
    else:
        failing = await started(q.put(b"told", durability="sync"))
        await q.put(b"lost")
    bench.break_next("pwrite")
    bench.runner.let_go()
    await asyncio.sleep(1)
    if failing is not None:
        with pytest.raises(DurabilityError):
            await failing
    with pytest.raises(StoreFailed, match="without waiting for the disk may not be there"):
        await q.close()
    async with Bench(bench.files.inner).open() as again:
        assert await drained(again) == [b"a"]


@pytest.mark.parametrize("level", ["os", "memory"])
async def test_so_it_does_of_records_that_were_written_and_not_synced(
    level: Literal["os", "memory"],
) -> None:
    bench = BadDisk()
    q = await bench.open(durability=level)
    await q.put(b"a")
    await q.flush()
    await q.put(b"perhaps")
    bench.break_next("datasync", for_ever=True)
    await asyncio.sleep(1)
    with pytest.raises(StoreFailed, match="without waiting for the disk may not be there"):
        await q.close()


async def test_a_block_that_fails_keeps_its_own_error() -> None:
    bench = BadDisk()

    async def block() -> None:
        async with bench.open() as q:
            q.put_nowait(b"lost")
            bench.break_next("datasync", for_ever=True)
            await q.put(b"told")

    with pytest.raises(DurabilityError) as caught:
        await block()
    assert caught.value.__notes__[0].startswith("Closing it failed as well: StoreFailed: ")


async def test_a_failure_seen_in_the_middle_of_a_put_is_told(monkeypatch: Any) -> None:
    """A put that reaped the failed commit itself went on, and waited for ever."""
    monkeypatch.setattr("fifoq.admitting.REAP_RECORDS", 1)
    bench = BadDisk()
    q = await bench.open()
    await q.put(b"a")
    bench.runner.hold()
    first = await started(q.put(b"b"))
    second = await started(q.put(b"c"))
    bench.break_next("datasync")
    # The job has ended, but the loop has not turned yet.
    bench.runner.step()
    with pytest.raises((StoreFailed, DurabilityError)):
        await asyncio.wait_for(q.put(b"d"), 5)
    for task in (first, second):
        with pytest.raises(DurabilityError):
            await task
    bench.runner.let_go()
    await q.close()


# Damage.


async def damaged() -> Bench:
    bench = Bench()
    async with bench.open_store() as store:
        bad, good = await store.queue("bad"), await store.queue("good")
        for n in range(3):
            await bad.put(b"bad%d" % n * 10)
            await good.put(b"good%d" % n)
    name = f"{PATH}/00000000000000000001.log"
    content = bench.files.content(name)
    bench.files.flip_bit(name, offset=content.index(b"bad1bad1") + 3, bit=2)
    return bench


async def test_damage_stops_one_queue_and_every_taker_is_told() -> None:
    bench = await damaged()
    async with bench.open_store() as store:
        bad, good = await store.queue("bad"), await store.queue("good")
        takers = [asyncio.ensure_future(bad.take()) for _ in range(3)]
        results = await asyncio.wait_for(asyncio.gather(*takers, return_exceptions=True), 60)
        told = [r for r in results if isinstance(r, CorruptionError)]
        assert len(told) >= 2
        with pytest.raises(CorruptionError):
            await bad.peek()
        with pytest.raises(CorruptionError):
            await bad.lease()
        assert await drained(good) == [b"good0", b"good1", b"good2"]
        await bad.put(b"more")
    async with bench.open_store(recover="quarantine") as store:
        assert store.quarantine is not None


async def test_a_read_that_is_refused_is_told_and_tried_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("fifoq.jobs.READ_RECORDS", 1)
    bench = BadDisk()
    items = [b"%d" % n for n in range(6)]
    async with bench.open() as q:
        for item in items:
            await q.put(item)
    async with bench.open(durability="memory") as q:
        bench.break_next("pread", errno.EMFILE, for_ever=True)
        found: list[bytes] = []

        async def take_all() -> None:
            while True:
                found.append(await q.take())

        with pytest.raises(fifoq.AccessError):
            await take_all()
        assert found == items[: len(found)]
        bench.faulty.faults = ()
        assert found + await drained(q) == items


async def test_a_hanging_disk_lets_memory_takes_peek_and_stats_pass(bench: Bench) -> None:
    async with bench.open(durability="memory", max_bytes=1000) as q:
        await q.put_many([b"a", b"b", b"c"])
        bench.runner.hold()
        flush = await started(q.flush())
        assert await q.take() == b"a"
        assert await q.peek() == b"b"
        assert q.stats().current_size == 2
        async with q.lease() as delivery:
            assert delivery.item == b"b"
        put = await started(q.put(b"d", durability="sync"))
        await cancelled(put)
        with pytest.raises(TimeoutError):
            await q.close(timeout=1)
        bench.runner.let_go()
        await flush
        await settle()
