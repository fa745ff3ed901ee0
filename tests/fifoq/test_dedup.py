"""Puts with an id: once within the window, whatever crashes, leaves or is full in between."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fifoq.sync
from actors.testing import VirtualTimeLoop, settle
from fifoq import CorruptionError, DiskFull, FormatError, Key, QueueClosed
from fifoq import dedup as module
from fifoq.dedup import FAN, TOP, Dedup, page_name, read_pages
from fifoq.line import Line
from fifoq.testing.simfiles import SimFiles
from store.blocks import DEDUP_ID
from tests.fifoq.support import (
    Bench,
    Cuts,
    SmallDisk,
    cancelled,
    drained,
    fake_time,
    started,
)

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")
SECOND = 1_000_000_000


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


def on_a_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


# Once.


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_put_that_comes_again_returns_the_first_key_and_stores_nothing(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        first = await q.put(b"a", dedup_id="order-1")
        assert await q.put(b"b", dedup_id="order-1") == first
        assert q.put_nowait(b"c", dedup_id="order-1") == first
        receipt = q.submit(b"d", dedup_id="order-1")
        assert await receipt == receipt.key == first
        assert receipt.outcome() == "committed"
        other = await q.put(b"e", dedup_id="order-2")
        assert other.counter == first.counter + 1
        assert (len(q), q.stats().total_put_count, q.stats().duplicates) == (2, 2, 3)
        assert await drained(q) == [b"a", b"e"]
        assert await q.put(b"f", dedup_id="order-1") == first
        assert len(q) == 0


@pytest.mark.parametrize("durability", LEVELS)
async def test_puts_of_one_id_at_the_same_time_are_one_put(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        puts = [q.put(b"%d" % n, dedup_id="same") for n in range(5)]
        keys = await asyncio.gather(*puts, q.put(b"other", dedup_id="other"))
        assert len(set(keys)) == 2
        assert await drained(q) == [b"0", b"other"]


async def test_each_queue_has_ids_of_its_own(bench: Bench) -> None:
    async with bench.open_store() as store:
        a, b = await store.queue("a"), await store.queue("b")
        await a.put(b"x", dedup_id="1")
        await b.put(b"y", dedup_id="1")
        assert (len(a), len(b)) == (1, 1)


@pytest.mark.parametrize("durability", LEVELS)
async def test_ids_survive_a_close_and_a_crash_also_when_the_record_is_gone(
    bench: Bench, durability: str
) -> None:
    async with bench.open(durability=durability) as q:
        keys = [await q.put(b"%d" % n, dedup_id=f"id {n}") for n in range(50)]
        await q.take_many(30)
    async with bench.open() as q:
        assert [await q.put(b"again", dedup_id=f"id {n}") for n in range(50)] == keys
        keys += [await q.put(b"%d" % n, dedup_id=f"id {n}") for n in range(50, 60)]
        await q.take_many(20)
        await q.flush()
        twin = bench.files.copy()
    twin.process_crash()
    async with Bench(twin).open() as q:
        assert [await q.put(b"again", dedup_id=f"id {n}") for n in range(60)] == keys
        assert await drained(q) == [b"%d" % n for n in range(50, 60)]


async def test_the_id_lies_in_the_column_of_its_record(bench: Bench) -> None:
    async with bench.open(durability="os") as q:
        await asyncio.gather(q.put(b"a", dedup_id="é"), q.put(b"b"), q.put(b"c", dedup_id="2"))
        blocks = await q._committer.call(lambda log: list(log.read("main")))
        columns = [id for block in blocks for id in block.columns[DEDUP_ID]]  # type: ignore[attr-defined]
        assert columns == ["é".encode(), b"", b"2"]


async def test_the_blocking_face_takes_ids_as_well(tmp_path: Any) -> None:
    with fifoq.sync.open(tmp_path / "store") as q:
        first = q.put(b"a", dedup_id="1")
        assert q.put(b"a", dedup_id="1") == first
        assert q.put_nowait(b"a", dedup_id="1") == first
        assert len(q) == 1


# The window.


async def test_after_the_window_the_id_is_new_again(bench: Bench) -> None:
    async with bench.open(dedup_window=10) as q:
        first = await q.put(b"a", dedup_id="1")
        await asyncio.sleep(9.9)
        assert await q.put(b"b", dedup_id="1") == first
        # The duplicate does not make the window longer.
        await asyncio.sleep(0.2)
        second = await q.put(b"c", dedup_id="1")
        assert second.counter == first.counter + 1
        assert await q.put(b"d", dedup_id="1") == second
        assert await drained(q) == [b"a", b"c"]


async def test_the_default_window_is_five_minutes(bench: Bench) -> None:
    async with bench.open() as q:
        first = await q.put(b"a", dedup_id="1")
        await asyncio.sleep(299)
        assert await q.put(b"a", dedup_id="1") == first
        await asyncio.sleep(2)
        assert await q.put(b"a", dedup_id="1") != first


async def test_the_window_may_change_while_the_queue_runs_and_is_kept(bench: Bench) -> None:
    async with bench.open() as q:
        first = await q.put(b"a", dedup_id="1")
        await asyncio.sleep(20)
        q.configure(dedup_window=30)
        assert await q.put(b"a", dedup_id="1") == first
        q.configure(dedup_window=10)
        assert await q.put(b"a", dedup_id="1") != first
    async with bench.open() as q:
        assert q.options.dedup_window == 10


@pytest.mark.parametrize(
    ("away", "known"), [(8, True), (11, False), (-1000, True)], ids=["short", "long", "set back"]
)
async def test_the_window_goes_on_while_the_store_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, away: int, known: bool
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(dedup_window=10) as q:
        first = await q.put(b"a", dedup_id="1")
    now[0] += away * SECOND
    async with bench.open() as q:
        await asyncio.sleep(1)
        assert (await q.put(b"a", dedup_id="1") == first) is known
        # A clock that was set back makes no window longer than it was.
        await asyncio.sleep(9.5)
        assert (await q.put(b"a", dedup_id="1") == first) is False


async def test_a_window_that_was_over_stays_over_when_the_clock_is_set_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later put has a later stamp: by the log's own time the id is as old as it is."""
    now = fake_time(monkeypatch)
    async with bench.open(dedup_window=10) as q:
        first = await q.put(b"a", dedup_id="1")
        now[0] += 11 * SECOND
        recent = await q.put(b"b", dedup_id="2")
    now[0] -= 1000 * SECOND
    async with bench.open() as q:
        assert await q.put(b"b", dedup_id="2") == recent
        assert await q.put(b"a", dedup_id="1") != first


async def test_a_clock_that_jumps_while_the_queue_is_open_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(dedup_window=10) as q:
        first = await q.put(b"a", dedup_id="1")
        for jump in (-(10**18), 10**18):
            now[0] += jump
            assert await q.put(b"a", dedup_id="1") == first


async def test_ids_are_bounded_and_the_oldest_is_forgotten_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "IDS_MAX", 20)
    async with bench.open(durability="os") as q:
        with caplog.at_level(logging.WARNING, "fifoq"):
            keys = [await q.put(b"%d" % n, dedup_id=str(n)) for n in range(25)]
        assert caplog.text.count("more than 20 ids in its dedup window") == 1
        assert q.dedup is not None
        assert len(q.dedup) == 20
        assert [await q.put(b"x", dedup_id=str(n)) for n in range(5, 25)] == keys[5:]
    async with bench.open() as q:
        assert [await q.put(b"x", dedup_id=str(n)) for n in range(5, 25)] == keys[5:]
        assert await q.put(b"x", dedup_id="0") != keys[0]


# What cannot be.


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (1, TypeError, "dedup_id is a str, not int. Nothing was stored."),
        (b"a", TypeError, "dedup_id is a str, not bytes. Nothing was stored."),
        (None, TypeError, "dedup_id is a str, not NoneType. Nothing was stored."),
        ("", ValueError, "dedup_id has 0 bytes, and 1 to 255 are allowed. Nothing was stored."),
        (
            "é" * 128,
            ValueError,
            "dedup_id has 256 bytes, and 1 to 255 are allowed. Nothing was stored.",
        ),
    ],
)
async def test_an_id_that_is_none_is_refused_and_nothing_is_stored(
    bench: Bench, wrong: Any, error: type[Exception], message: str
) -> None:
    async with bench.open() as q:
        for put in (q.put_nowait, q.submit):
            with pytest.raises(error) as refused:
                put(b"a", dedup_id=wrong)
            assert str(refused.value) == message
        with pytest.raises(error):
            await q.put(b"a", dedup_id=wrong)
        assert (len(q), q.dedup) == (0, None)


async def test_a_wrong_item_or_keyword_is_refused_and_its_id_is_not_remembered(
    bench: Bench,
) -> None:
    async with bench.open(max_item_bytes=10_000) as q:
        with pytest.raises(TypeError, match="bytes, not str"):
            await q.put("text", dedup_id="1")
        with pytest.raises(TypeError, match="'colour'"):
            await q.put(b"a", dedup_id="1", colour="red")  # type: ignore[call-arg]
        with pytest.raises(fifoq.ItemTooLarge):
            await q.put(bytes(10_001), dedup_id="1")
        await q.put(b"a", dedup_id="1", headers={"a": "b"})
        assert len(q) == 1


async def test_a_record_that_was_dropped_leaves_no_id(bench: Bench) -> None:
    async with bench.open(maxsize=1, overflow="drop-newest") as q:
        await q.put(b"a")
        assert (await q.put(b"b", dedup_id="1")).counter == 0
        assert q.submit(b"b", dedup_id="1").outcome() == "withdrawn"
        await q.take()
        assert (await q.put(b"b", dedup_id="1")).counter


async def test_a_full_queue_answers_a_duplicate_and_stores_one_of_those_who_wait(
    bench: Bench,
) -> None:
    async with bench.open(maxsize=1) as q:
        first = await q.put(b"a", dedup_id="1")
        assert await q.put(b"a", dedup_id="1") == first
        with pytest.raises(fifoq.QueueFull):
            q.put_nowait(b"b", dedup_id="2")
        waiting = [await started(q.put(b"b", dedup_id="2")) for _ in range(3)]
        assert await q.take() == b"a"
        keys = [await put for put in waiting]
        assert keys == [Key(first.counter + 1, keys[0].timestamp)] * 3
        assert await drained(q) == [b"b"]


async def test_a_closed_store_answers_nobody(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a", dedup_id="1")
    with pytest.raises(QueueClosed):
        await q.put(b"a", dedup_id="1")


# Waiting for the first put.


@pytest.mark.parametrize("level", ["os", "sync"])
async def test_a_duplicate_waits_until_the_first_put_is_as_durable_as_it_asks(
    bench: Bench, level: Any
) -> None:
    async with bench.open(durability="memory", auto_flush=False) as q:
        await settle()
        first = q.put_nowait(b"a", dedup_id="1")
        bench.runner.hold()
        again = await started(q.put(b"a", dedup_id="1", durability=level))
        assert not again.done()
        bench.runner.let_go()
        assert await again == first
        twin = bench.files.copy()
        log = q._committer.log
        assert log is not None
        assert level == "os" or log.durable_upto == log.sequence
        # Now it is known to be durable: nobody has to wait any more.
        bench.runner.hold()
        if level == "sync":
            assert await q.put(b"a", dedup_id="1", durability=level) == first
        bench.runner.let_go()
    twin.process_crash()
    async with Bench(twin).open() as q:
        assert await drained(q) == [b"a"]


async def test_a_synced_duplicate_of_a_put_that_was_written_only_is_synced(bench: Bench) -> None:
    async with bench.open(durability="os", sync_interval=None) as q:
        first = await q.put(b"a", dedup_id="1")
        log = q._committer.log
        assert log is not None
        receipt = q.submit(b"a", dedup_id="1", durability="sync")
        assert receipt.withdraw() is False
        assert await receipt == first
        assert log.durable_upto == log.sequence


@pytest.mark.parametrize("level", ["os", "sync"])
async def test_the_record_stays_when_the_first_put_leaves_and_another_waits(
    bench: Bench, level: str
) -> None:
    async with bench.open(durability=level) as q:
        bench.runner.hold()
        blocker = await started(q.put(b"blocker"))
        first = await started(q.put(b"a", dedup_id="1"))
        second = await started(q.put(b"a", dedup_id="1"))
        third = await started(q.put(b"a", dedup_id="1"))
        await cancelled(first)
        await cancelled(third)
        bench.runner.let_go()
        await blocker
        key = await second
        assert await q.put(b"a", dedup_id="1") == key
        assert await drained(q) == [b"blocker", b"a"]
    async with bench.open() as q:
        assert await q.put(b"a", dedup_id="1") == key


@pytest.mark.parametrize("level", ["os", "sync"])
async def test_nothing_is_stored_when_all_of_them_leave_before_the_seal(
    bench: Bench, level: str
) -> None:
    async with bench.open(durability=level) as q:
        bench.runner.hold()
        blocker = await started(q.put(b"blocker"))
        puts = [await started(q.put(b"a", dedup_id="1")) for _ in range(3)]
        for put in puts:
            await cancelled(put)
        bench.runner.let_go()
        await blocker
        assert len(q) == 1
        again = await q.put(b"b", dedup_id="1")
        assert await q.put(b"b", dedup_id="1") == again
        assert await drained(q) == [b"blocker", b"b"]


async def test_a_put_that_leaves_after_the_seal_is_there_once(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        first = await started(q.put(b"a", dedup_id="1"))
        second = await started(q.put(b"a", dedup_id="1"))
        await cancelled(first)
        third = await started(q.put(b"a", dedup_id="1"))
        await cancelled(third)
        bench.runner.let_go()
        key = await second
        assert await q.put(b"a", dedup_id="1") == key
        assert await drained(q) == [b"a"]


async def test_a_receipt_of_a_duplicate_is_withdrawn_and_leaves_the_record(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        blocker = await started(q.put(b"blocker"))
        first = q.submit(b"a", dedup_id="1")
        second = q.submit(b"a", dedup_id="1")
        assert second.withdraw()
        assert (first.outcome(), second.outcome()) == ("pending", "withdrawn")
        third = q.submit(b"a", dedup_id="1")
        assert first.withdraw()
        bench.runner.let_go()
        await blocker
        assert await third == first.key
        assert await drained(q) == [b"blocker", b"a"]


async def test_a_full_disk_refuses_all_of_them_and_forgets_the_id(disk: SmallDisk) -> None:
    big = bytes(1 << 20)
    async with disk.open() as q:
        await q.put(b"before")
        disk.fill()
        disk.runner.hold()
        puts = [await started(q.put(big, dedup_id="1")) for _ in range(3)]
        disk.runner.let_go()
        for put in puts:
            with pytest.raises(DiskFull):
                await put
        with pytest.raises(DiskFull):
            await q.put(big, dedup_id="1")
        assert (len(q), q.hidden) == (1, 0)
        disk.empty()
        key = await q.put(big, dedup_id="1")
        assert await q.put(big, dedup_id="1") == key
        assert await drained(q) == [b"before", big]


async def test_what_was_promised_in_memory_is_written_although_the_first_was_refused(
    disk: SmallDisk,
) -> None:
    big = bytes(1 << 20)
    async with disk.open() as q:
        await q.put(b"before")
        disk.fill()
        disk.runner.hold()
        first = await started(q.put(big, dedup_id="1"))
        key = q.put_nowait(big, dedup_id="1")
        disk.runner.let_go()
        with pytest.raises(DiskFull):
            await first
        disk.empty()
        await asyncio.sleep(1)
        await q.flush()
        assert await q.put(big, dedup_id="1") == key
        assert await drained(q) == [b"before", big]
    async with disk.open() as q:
        assert await q.put(big, dedup_id="1") == key


async def test_a_failed_sync_fails_all_of_them(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"before")
        bench.files.fail_next_datasync("lost")
        bench.runner.hold()
        puts = [await started(q.put(b"a", dedup_id="1")) for _ in range(2)]
        bench.runner.let_go()
        for put in puts:
            with pytest.raises(fifoq.FifoqError):
                await put
        with pytest.raises(fifoq.StoreFailed):
            await q.put(b"a", dedup_id="1")


# Crashes.


@pytest.mark.parametrize("durability", LEVELS)
def test_power_cuts_at_every_disk_call_leave_record_and_id_or_none_of_them(durability: str) -> None:
    """Whoever does not know the outcome puts again with the same id: each record is there once."""
    files = SimFiles()
    cuts = Cuts(files, limit=4, samples=2)

    async def work() -> None:
        async with Bench(files).open(durability=durability, buffer_size=4) as q:
            for n in range(12):
                await q.put(b"%d" % n, dedup_id=str(n))
                if n % 5 == 4:
                    await q.put(b"plain")
            await q.flush()

    async def again(disk: SimFiles) -> list[bytes]:
        async with Bench(disk).open() as q:
            for n in range(12):
                await q.put(b"%d" % n, dedup_id=str(n))
            return [item for item in await drained(q) if item != b"plain"]

    with cuts:
        on_a_loop(work())
    assert len(cuts.disks) > 20
    for disk in cuts.disks:
        found = on_a_loop(again(disk))
        assert sorted(map(int, found)) == list(range(12))


async def test_a_page_that_is_damaged_stops_its_queue_alone(bench: Bench) -> None:
    """A window that is forgotten in silence would let a duplicate in."""
    async with bench.open_store() as store:
        q = await store.queue("a")
        await q.put(b"x" * 600, dedup_id="1")
        await (await store.queue("b")).put(b"y")
        entry = q._committer._open_log.state.states[page_name("a", (0, 0))]
        path = f"/data/{entry.segment:020}.log"
    bench.files.flip_bit(path, offset=entry.offset + 300, bit=1)
    async with bench.open_store() as store:
        with pytest.raises(CorruptionError):
            await store.queue("a")
        assert await (await store.queue("b")).take() == b"y"


async def test_a_page_of_a_newer_version_is_refused(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"x", dedup_id="1")

        def forge(log: Any) -> None:
            draft = log.draft()
            draft.set_states([(page_name("main", (0, 0)), b"\x02")])
            log.commit(draft)

        await q._committer.call(forge)
    with pytest.raises(FormatError, match="newer version"):
        await bench.open()


# Pages.


async def ids_on_disk(q: Any) -> int:
    pages = await q._committer.call(lambda log: read_pages(log, "main"))
    return sum(len(page) // 32 for page in pages.values())


async def test_few_pages_hold_many_ids_and_each_id_is_written_a_few_times(bench: Bench) -> None:
    async with bench.open(durability="os") as q:
        log = q._committer.log
        assert log is not None
        for n in range(1500):
            await q.put(b"", dedup_id=str(n))
        names = [name for name, entry in log.state.states.items() if name.startswith("dedup/")]
        assert len(names) <= TOP * FAN + 1
        assert await ids_on_disk(q) == 1500
        await asyncio.sleep(301)
        for n in range(100):
            await q.put(b"", dedup_id=f"new {n}")
        assert await ids_on_disk(q) == 100


def test_pages_are_remembered_when_a_frame_of_removals_is_refused_behind_them() -> None:
    """The plan of a committed frame was dropped with the next one: its page was written over."""
    line = Line("q", next_counter=1, floor=0, size=0, last_put_time=0)
    dedup = Dedup(line, 20.0)
    disk: dict[str, bytes | None] = {}
    for number in range(3):
        dedup.add(b"%016d" % number, line.append(b"x", strong=True), 0, 0.0)
        disk.update(dedup.seal(line.seal(), 0.0))
        line.confirm()
        removals = line.seal(puts=False)
        dedup.unseal(removals)
        line.unseal()
    assert sorted(disk) == [page_name("q", (0, slot)) for slot in range(3)]


async def test_ids_are_kept_over_frames_that_a_full_disk_refuses(disk: SmallDisk) -> None:
    async with disk.open(durability="os") as q:
        keys = [await q.put(b"%d" % n, dedup_id=str(n)) for n in range(3)]
        disk.fill()
        for n in range(3):
            with pytest.raises(DiskFull):
                await q.put(bytes(1 << 20), dedup_id=f"too large {n}")
            await q.take()
        disk.empty()
        keys += [await q.put(b"%d" % n, dedup_id=str(n)) for n in range(3, 6)]
    async with disk.open() as q:
        assert [await q.put(b"", dedup_id=str(n)) for n in range(6)] == keys


async def test_ids_go_with_lanes_delays_and_ordering_keys(bench: Bench) -> None:
    async with bench.open(priorities=True, dedup_window=1000) as q:
        low = await q.put(b"low", dedup_id="1", priority=9)
        late = await q.put(b"late", dedup_id="2", delay=100, headers={"a": "b"})
        keyed = await q.put(b"keyed", dedup_id="3", ordering_key="k", ttl=500)
        assert await q.put(b"low", dedup_id="1", priority=0) == low
    async with bench.open() as q:
        assert await q.put(b"late", dedup_id="2") == late
        assert await q.put(b"keyed", dedup_id="3") == keyed
        assert [await q.take(), await q.take()] == [b"keyed", b"low"]
        await asyncio.sleep(101)
        assert await q.take() == b"late"


async def test_pages_outlive_the_segments_of_their_records(bench: Bench) -> None:
    async with bench.open_store(segment_bytes=64 << 10) as store:
        q = await store.queue("a")
        key = await q.put(b"x", dedup_id="1")
        for _ in range(8):
            await q.put_many([bytes(1000)] * 60)
            await q.take_many(100)
            await q.flush()
        await asyncio.sleep(1)
    async with bench.open_store() as store:
        q = await store.queue("a")
        assert await q.put(b"x", dedup_id="1") == key


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, 400), max_size=70, unique=True)),
        st.tuples(st.just("refused"), st.lists(st.integers(0, 400), max_size=70, unique=True)),
        st.tuples(st.just("wait"), st.integers(1, 15)),
        st.tuples(st.just("reopen"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(operations=OPERATIONS, ids_max=st.sampled_from([50, 100_000]))
@settings(deadline=None, max_examples=500)
def test_pages_hold_what_a_window_holds(operations: list[Any], ids_max: int) -> None:
    """Frames that are committed or refused, time, and reopening, against plain dicts.

    The oldest are forgotten as puts come, also by puts that are refused later. Pages forget with
    frames: what such a put made the memory forget may be known again after a reopen.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "IDS_MAX", ids_max)
        line = Line("q", next_counter=1, floor=0, size=0, last_put_time=0)
        dedup = Dedup(line, 20.0)
        disk: dict[str, bytes] = {}
        model: dict[bytes, tuple[int, float]] = {}
        committed: dict[bytes, tuple[int, float]] = {}
        now = 0.0
        for kind, value in operations:
            if kind == "wait":
                now += value
            elif kind == "reopen":
                places = {
                    (size, slot): disk[page_name("q", (size, slot))]
                    for size in range(TOP + 1)
                    for slot in range(64)
                    if page_name("q", (size, slot)) in disk
                }
                dedup = Dedup(line, 20.0)
                dedup.restore(places, now, int(now * SECOND))
                before = {id for id, put in model.items() if now - put[1] < 20}
                model = {id: put for id, put in committed.items() if dedup.find(id, now)}
                assert before <= set(model)
                assert len(model) <= ids_max
            else:
                model = {id: put for id, put in model.items() if now - put[1] < 20}
                first = line.next
                came = set()
                for number in value:
                    id = b"%016d" % number
                    known = dedup.find(id, now)
                    assert (known and known.counter) == ((id in model and model[id][0]) or None)
                    if known is None:
                        dedup.add(id, line.append(b"x", strong=True), int(now * SECOND), now)
                        model[id] = (line.next - 1, now)
                        came.add(id)
                        if len(model) > ids_max:
                            del model[next(iter(model))]
                if kind == "put":
                    for id in [id for id in model if id in came]:
                        committed.pop(id, None)
                        committed[id] = model[id]
                else:
                    model = {id: put for id, put in model.items() if id not in came}
                if line.next == first:
                    continue
                line.count_tail()
                batch = line.seal()
                states = dedup.seal(batch, now)
                if kind == "put":
                    line.confirm()
                    for name, page in states:
                        if page is None:
                            del disk[name]
                        else:
                            disk[name] = page
                else:
                    dedup.unseal(batch)
                    line.unseal()
                    for counter in range(first, line.next):
                        if dedup.leave(counter):
                            line.withdraw(counter, 1)
                    line.seal()
                    line.confirm()
                assert len(disk) <= TOP * FAN + 64
        assert isinstance(dedup, Dedup)


PUTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.sampled_from(LEVELS)),
        st.tuples(st.just("take"), st.just(0), st.just("")),
        st.tuples(st.just("sleep"), st.integers(1, 15), st.just("")),
        st.tuples(st.just("flush"), st.just(0), st.just("")),
        st.tuples(st.just("reopen"), st.just(0), st.just("")),
        st.tuples(st.just("crash"), st.just(0), st.just("")),
    ),
    max_size=40,
)


@given(steps=PUTS)
@settings(deadline=None, max_examples=150)
def test_a_queue_answers_as_the_model_of_its_window(steps: list[tuple[str, int, Any]]) -> None:
    """Keys of every put, over closes and crashes; what a crash may lose was flushed before."""
    with pytest.MonkeyPatch.context() as patch:
        now = fake_time(patch)
        bench = Bench()
        model: dict[int, tuple[Key, float]] = {}
        elapsed = 0.0

        async def life(rest: list[tuple[str, int, Any]]) -> list[tuple[str, int, Any]]:
            nonlocal elapsed
            async with bench.open(dedup_window=20) as q:
                while rest:
                    (kind, number, level), rest = rest[0], rest[1:]
                    if kind == "put":
                        key = await q.put(b"%d" % number, dedup_id=str(number), durability=level)
                        known = model.get(number)
                        if known is not None and elapsed - known[1] < 20:
                            assert key == known[0]
                        else:
                            assert known is None or key.counter > known[0].counter
                            model[number] = (key, elapsed)
                    elif kind == "take" and len(q):
                        await q.take()
                    elif kind == "sleep":
                        await asyncio.sleep(number)
                        now[0] += number * SECOND
                        elapsed += number
                    elif kind == "flush":
                        await q.flush()
                    elif kind == "reopen":
                        return rest
                    elif kind == "crash":
                        await q.flush()
                        twin = bench.files.copy()
                        twin.process_crash()
                        bench.files = twin
                        return rest
            return []

        while steps:
            steps = on_a_loop(life(steps))
