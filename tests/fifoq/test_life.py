"""Opening, options, receipts, statistics, closing; and use by those who must not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
from actors.testing import settle
from fifoq import (
    AlreadyOpen,
    ForkError,
    InvalidName,
    QueueClosed,
    QueueOptions,
    SchemaMismatch,
    StoreOptions,
    WrongLoop,
)
from fifoq.committer import Committer
from fifoq.histogram import Histogram
from fifoq.inline import InlineRunner
from tests.fifoq.support import PATH, Bench, cancelled, drained, fake_time, started

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    number: int


# Opening and options.


async def test_queues_of_one_store_share_it(bench: Bench) -> None:
    async with bench.open_store() as store:
        a, b = await asyncio.gather(store.queue("a"), store.queue("b"))
        assert await store.queue("a") is a
        await asyncio.gather(a.put(b"1"), b.put(b"2"))
        assert a.stats().commits == 1
        assert store.queues() == ["a", "b"]
        assert repr(store) == f"<Store '{PATH}' queues=2 open>"
        assert repr(a) == "<Queue 'a' depth=1 leased=0 open>"
        assert store.quarantine is None
        assert await store.queue("a", maxsize=5) is a
        assert a.options.maxsize == 5
        with pytest.raises(AlreadyOpen):
            await bench.open_store()
    assert "closed" in repr(store)
    assert "closed" in repr(a)


async def test_the_same_queue_opened_twice_at_once_is_one(bench: Bench) -> None:
    async with bench.open_store() as store:
        first, second = await asyncio.gather(store.queue("a"), store.queue("a"))
        assert first is second


async def test_options_are_kept_except_durability(bench: Bench) -> None:
    async with bench.open(durability="memory", maxsize=7, buffer_size=5) as q:
        assert q.durability == "memory"
        await q.put(b"a")
        q.configure(pressure_high=6)
    async with bench.open(buffer_size=9) as q:
        assert q.durability == "sync"
        kept = q.options
        assert (kept.maxsize, kept.buffer_size, kept.pressure_high) == (7, 9, 6)
    async with bench.open() as q:
        assert q.options.buffer_size == 9


async def test_wrong_options_are_named_all_at_once(bench: Bench) -> None:
    with pytest.raises(ValueError) as wrong:
        QueueOptions(
            durability="disk",  # type: ignore[arg-type]
            buffer_size=0,
            buffer_bytes=True,
            flush_interval=float("nan"),
            auto_flush=1,  # type: ignore[arg-type]
            maxsize=-1,
            overflow="explode",  # type: ignore[arg-type]
            pressure_high=3,
            pressure_low=3,
            max_item_bytes=1 << 40,
            lease_seconds="x",  # type: ignore[arg-type]
        )
    for name in (
        "durability",
        "buffer_size",
        "buffer_bytes",
        "flush_interval",
        "auto_flush",
        "maxsize",
        "overflow",
        "pressure_low=3 is not below",
        "max_item_bytes",
        "lease_seconds",
    ):
        assert name in str(wrong.value)
    with pytest.raises(ValueError, match="needs a pressure_high"):
        QueueOptions(pressure_low=3)
    with pytest.raises(ValueError, match="sync_interval=-1"):
        StoreOptions(sync_interval=-1)
    with pytest.raises(TypeError, match="unknown queue option 'color'"):
        bench.open(color="red")
    assert bench.files.op_count == 0
    with pytest.raises(ValueError, match="segment_bytes"):
        bench.open(segment_bytes=3)
    assert QueueOptions(pressure_high=8).pressure_floor() == 4
    assert QueueOptions().pressure_floor() is None


async def test_configure_is_all_or_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        before = q.options
        with pytest.raises(ValueError, match="maxsize"):
            q.configure(buffer_size=3, maxsize=0)
        with pytest.raises(TypeError):
            q.configure(nothing=1)  # type: ignore[call-arg]
        assert q.options is before


async def test_a_wrong_name_makes_nothing(bench: Bench) -> None:
    async with bench.open_store() as store:
        for name in ("", "A", "a_b", "-a", "a" * 65, "ä"):
            with pytest.raises(InvalidName):
                await store.queue(name)
        assert store.queues() == []
    with pytest.raises(InvalidName):
        await bench.open(queue="NO")
    async with bench.open():
        pass


async def test_a_queue_knows_its_type(bench: Bench) -> None:
    """The schema of a queue with default options was never written."""
    async with bench.open(type=Order) as q:
        await q.put(Order(1))
    with pytest.raises(SchemaMismatch, match="another type"):
        await bench.open(type=int)
    async with bench.open() as plain:
        assert await plain.peek() == msgspec.msgpack.encode(Order(1))
    async with bench.open(type=Order) as q:
        assert await q.take() == Order(1)


async def test_settings_of_a_newer_version_are_left_out(bench: Bench) -> None:
    async with bench.open() as q:
        q.configuration = b'{"options":{"maxsize":3,"unheard_of":1}}'
        await q.put(b"a")
    async with bench.open() as q:
        assert q.options.maxsize == 3


# Run-time switches.


async def test_the_buffer_is_written_by_size_bytes_or_time(bench: Bench) -> None:
    async with bench.open(durability="memory", buffer_size=10, flush_interval=5) as q:
        await q.flush()
        jobs = bench.runner.job_count

        async def wrote() -> bool:
            nonlocal jobs
            await settle()
            before, jobs = jobs, bench.runner.job_count
            return jobs > before

        for _ in range(9):
            q.put_nowait(b"x")
        assert not await wrote()
        q.put_nowait(b"x")
        assert await wrote()
        q.configure(buffer_size=2)
        await asyncio.sleep(1)
        await wrote()
        q.put_nowait(b"x")
        q.put_nowait(b"x")
        assert await wrote()
        q.configure(buffer_size=1000, buffer_bytes=5000)
        await asyncio.sleep(1)
        await wrote()
        q.put_nowait(b"x" * 5000)
        assert await wrote()


async def test_flush_interval_and_auto_flush_are_switches(bench: Bench) -> None:
    async with bench.open(durability="memory", flush_interval=50, sync_interval=None) as q:
        await q.flush()
        before = q._committer.commit_count
        q.put_nowait(b"x")
        await asyncio.sleep(49)
        assert q._committer.commit_count == before
        await asyncio.sleep(2)
        assert q._committer.commit_count == before + 1
        q.put_nowait(b"x")
        q.configure(flush_interval=1)
        await asyncio.sleep(0.1)
        before = q._committer.commit_count
        q.put_nowait(b"x")
        await asyncio.sleep(1.1)
        assert q._committer.commit_count == before + 1
        q.configure(auto_flush=False, buffer_size=1)
        await asyncio.sleep(1)
        before = q._committer.commit_count
        q.put_nowait(b"x")
        q.put_nowait(b"x")
        await asyncio.sleep(1000)
        assert q._committer.commit_count == before
        await q.flush()
        assert q._committer.commit_count == before + 1


async def test_an_impatient_queue_is_not_held_up_by_a_patient_one(bench: Bench) -> None:
    """The flush timer of the first queue that was touched held for all the others."""
    async with bench.open_store() as store:
        patient = await store.queue("patient", durability="memory", flush_interval=1000)
        impatient = await store.queue("impatient", durability="memory", flush_interval=0.1)
        await store.flush()
        commits = patient.stats().commits
        patient.put_nowait(b"a")
        impatient.put_nowait(b"b")
        await asyncio.sleep(0.2)
        assert patient.stats().commits == commits + 1


async def test_sync_interval_and_sync_every_bound_what_power_can_take(bench: Bench) -> None:
    async with bench.open(durability="os", sync_interval=1.0) as q:
        await q.put(b"a")
        await q.put(b"b")
        log = q._committer.log
        assert log is not None
        assert log.durable_upto < log.sequence
        await asyncio.sleep(1.1)
        assert log.durable_upto == log.sequence
    async with bench.open(durability="os", sync_interval=None, sync_every=3) as q:
        log = q._committer.log
        assert log is not None
        synced = []
        for _ in range(6):
            await q.put(b"x")
            synced.append(log.durable_upto == log.sequence)
        assert synced == [False, False, True] * 2


# Statistics.


async def test_statistics_tell_times_delays_and_marks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    second = 10**9
    async with bench.open(durability="memory") as q:
        empty = q.stats()
        assert (empty.high_water_mark, empty.low_water_mark) == (None, None)
        assert (empty.average_delay, empty.delay_p50) == (None, None)
        start = now[0]
        await q.put_many([b"a", b"b", b"c"])
        assert q.stats().low_water_mark == 3
        now[0] += 2 * second
        await q.peek()
        assert q.stats().last_take_time == 0
        await q.take()
        now[0] += 2 * second
        delivery = await q.lease()
        await delivery.ack()
        now[0] += 2 * second
        assert await q.take_many(1)
        stats = q.stats()
        assert stats.last_put_time == start
        assert stats.last_take_time == start + 6 * second
        assert (stats.total_put_count, stats.total_take_count) == (3, 3)
        assert (stats.high_water_mark, stats.low_water_mark) == (3, 0)
        assert stats.average_delay == 4.0
        assert stats.delay_p50 == pytest.approx(4.0, rel=0.1)
        assert stats.delay_p99 == pytest.approx(6.0, rel=0.1)
        assert (stats.name, stats.segments, stats.current_size) == ("main", 1, 0)
        q.reset_marks()
        assert (q.stats().high_water_mark, q.stats().high_water_time) == (0, now[0])
        await q.put(b"x")
    async with bench.open() as q:
        stats = q.stats()
        assert (stats.high_water_mark, stats.low_water_mark) == (1, 0)
        assert (stats.total_put_count, stats.total_take_count) == (4, 3)
        assert stats.average_delay == 4.0


async def test_stats_are_a_snapshot_that_stays_as_it_was(bench: Bench) -> None:
    async with bench.open() as q:
        before = q.stats()
        await q.put(b"a")
        assert (before.current_size, before.total_put_count) == (0, 0)
        assert (q.stats().current_size, q.stats().total_put_count) == (1, 1)
        with pytest.raises(AttributeError):
            before.current_size = 5  # type: ignore[misc]


async def test_statistics_can_be_switched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched on again, the average divided all delays by the takes since."""
    now = fake_time(monkeypatch)
    async with bench.open(durability="memory") as q:
        await q.put_many([b"a", b"b", b"c", b"d"])
        now[0] += 10**9
        await q.take()
        assert q.stats().average_delay == 1.0
        q.configure(statistics=False)
        await q.take()
        off = q.stats()
        assert (off.average_delay, off.delay_p50, off.total_take_count) == (None, None, 2)
        q.configure(statistics=True)
        now[0] += 2 * 10**9
        await q.take()
        assert q.stats().average_delay == 2.0


async def test_marks_start_with_what_is_committed(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        put = await started(q.put(b"a"))
        await cancelled(await started(q.put(b"b")))
        assert q.stats().high_water_mark is None
        bench.runner.let_go()
        await put
        assert q.stats().high_water_mark == 1


async def test_watch_ends_with_the_queue(bench: Bench) -> None:
    q = await bench.open()
    seen = []
    async for stats in q.watch(interval=2.0):
        seen.append(stats.total_put_count)
        if len(seen) == 3:
            await q.close()
        else:
            await q.put(b"x")
    assert seen == [0, 1, 2]


def test_percentiles_are_near() -> None:
    histogram = Histogram()
    assert histogram.percentile(0.5) is None
    for value in (0, 1, 5, 1000, 10**9, 2**70):
        histogram = Histogram()
        histogram.add(value, 10)
        found = histogram.percentile(0.5)
        assert found is not None
        assert abs(found - value) <= max(4, value * 0.07) or value == 2**70
    histogram.clear()
    assert histogram.count == 0
    assert histogram.percentile(0.99) is None


# Receipts.


async def test_a_receipt_tells_every_outcome(bench: Bench) -> None:
    q = await bench.open()
    bench.runner.hold()
    sealed = q.submit(b"sealed")
    await settle()
    waiting = q.submit(b"waiting")
    other = q.submit(b"other", headers={"a": "b"})
    assert (sealed.id, waiting.id) == (1, 2)
    assert sealed.outcome() == waiting.outcome() == "pending"
    assert not sealed.withdraw()
    assert waiting.withdraw()
    assert waiting.withdraw()
    assert waiting.outcome() == "withdrawn"
    impatient = await started(_wait_for(other))
    await cancelled(impatient)
    bench.runner.let_go()
    assert await sealed == sealed.key
    assert await other == other.key
    assert sealed.outcome() == "committed"
    assert not sealed.withdraw()
    weak = q.submit(b"weak", durability="memory")
    assert weak.outcome() == "committed"
    assert await weak == weak.key
    assert not weak.withdraw()
    await q.flush()
    assert await drained(q) == [b"sealed", b"other", b"weak"]
    await q.close()


async def _wait_for(receipt: fifoq.Receipt) -> object:
    return await receipt


async def test_a_receipt_of_a_failed_put_says_so(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        receipt = q.submit(b"a")
        await settle()
        bench.files.before_op = _no_space
        bench.runner.let_go()
        with pytest.raises(fifoq.FifoqError):
            await receipt
        assert receipt.outcome() == "failed"
        bench.files.before_op = None


def _no_space(index: int, name: str, args: tuple[object, ...]) -> None:
    if name == "pwrite":
        raise OSError(28, "No space left on device")


# Closing.


async def test_closing_twice_is_fine_and_then_nothing_works(bench: Bench) -> None:
    store = await bench.open_store()
    q = await store.queue("a")
    await q.close()
    await q.put(b"a")
    await store.close()
    await store.close()
    async with store:
        pass
    for call in (q.put(b"x"), q.take(), q.flush(), store.queue("b"), q.peek(), store.flush()):
        with pytest.raises(QueueClosed):
            await call
    with pytest.raises(QueueClosed):
        q.put_nowait(b"x")
    assert len(q) == 1
    assert q.stats().current_size == 1


async def test_a_close_that_is_cancelled_goes_on(bench: Bench) -> None:
    q = await bench.open()
    q.put_nowait(b"a")
    bench.runner.hold()
    close = await started(q.close())
    await cancelled(close)
    with pytest.raises(TimeoutError):
        await q.close(timeout=2)
    bench.runner.let_go()
    await q.close()
    async with bench.open() as q:
        assert await drained(q) == [b"a"]


async def test_nobody_is_left_waiting_by_a_close(bench: Bench) -> None:
    """Puts between the last flush and the end of a close were neither written nor answered."""
    q = await bench.open(maxsize=3)
    await q.put(b"a")

    async def produce() -> int:
        count = 0
        try:
            while True:
                await q.put(b"x")
                count += 1
                await q.take()
        except QueueClosed:
            return count

    producers = [asyncio.ensure_future(produce()) for _ in range(5)]
    weak = 0
    await asyncio.sleep(0)
    close = asyncio.ensure_future(q.close())
    while not close.done():
        try:
            q.put_nowait(b"weak")
            weak += 1
        except (QueueClosed, fifoq.QueueFull):
            pass
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*producers), 60)
    async with bench.open() as again:
        items = await drained(again)
        assert items.count(b"weak") == weak


async def test_a_browse_during_a_close_ends(bench: Bench) -> None:
    q = await bench.open()
    await q.put(b"a")
    bench.runner.hold()
    put = await started(q.put(b"b"))
    browsing = await started(anext(aiter(q.browse())))
    close = await started(q.close())
    bench.runner.let_go()
    await asyncio.wait_for(asyncio.wait([put, browsing, close]), 60)
    assert browsing.done()
    browsing.exception()


async def test_an_open_that_is_cancelled_leaves_the_directory_free(bench: Bench) -> None:
    def held(*arguments: Any) -> Any:
        runner = bench._make_runner(*arguments)
        runner.hold()
        return runner

    opening = await started(_open(bench.open_store(runner=held)))
    opening.cancel()
    await settle()
    bench.runner.let_go()
    await settle()
    assert opening.cancelled()
    async with bench.open():
        pass


async def test_an_open_that_is_cancelled_in_any_turn_leaves_the_directory_free(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled_count = 0
    for turns in range(40):
        opening = asyncio.ensure_future(_open(bench.open()))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        cancelled_count += opening.cancelled()
        if not opening.cancelled():
            await (await opening).close()
        async with bench.open():
            pass
    assert 0 < cancelled_count < 40
    await settle()
    assert [record.getMessage() for record in caplog.records] == []


async def test_an_open_that_is_refused_is_told_to_the_caller_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.open():
        with pytest.raises(AlreadyOpen):
            await bench.open()
        await settle()
    assert [record.getMessage() for record in caplog.records] == []


async def test_what_is_not_begun_when_the_writer_is_let_go_is_never_begun() -> None:
    loop = asyncio.get_running_loop()
    committer = Committer(loop, StoreOptions(), PATH)
    runner = committer.runner = InlineRunner(loop, committer.pump, "")
    opening = committer.start(lambda log: log)
    committer.stop()
    await settle()
    assert runner.job_count == 0
    assert not opening.done()


async def _open(opening: fifoq.Opening[Any]) -> Any:
    return await opening


# Interrupts.


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("takes", [False, True], ids=["put", "take"])
async def test_an_interrupt_while_a_frame_is_put_together_leaves_nobody_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, takes: bool, raised: type[BaseException]
) -> None:
    """Those who waited were in the hands of the one who was interrupted, and of nobody else."""
    store = await bench.open_store()
    q = await store.queue("a")
    await q.put(b"a")

    def interrupted(*_: Any, **__: Any) -> None:
        raise raised

    # Behind the moment in which those who wait are handed over.
    monkeypatch.setattr(q._committer, "_syncs", interrupted)
    waiting: asyncio.Future[object] = asyncio.ensure_future(q.take() if takes else q.put(b"b"))
    pump = q._committer.pump
    monkeypatch.setattr(q._committer, "pump", lambda: _calmly(pump))
    q._committer.commit_soon()
    await settle()
    assert waiting.done()
    assert isinstance(waiting.exception(), fifoq.DurabilityError)
    await store.close()


def _calmly(pump: Callable[[], None]) -> None:
    with suppress(KeyboardInterrupt):
        pump()


# Those who must not.


async def test_another_thread_or_loop_is_refused(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        found: list[BaseException] = []

        def elsewhere() -> None:
            for call in (
                q.take_nowait,
                lambda: asyncio.run(q.take()),
                # Both went through: the store was closed below its owner, who waited for ever.
                lambda: asyncio.run(q.close()),
                q.shutdown,
            ):
                try:
                    call()
                except WrongLoop as error:
                    found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(found) == 4
        await q.put(b"b")
        assert await q.take_many(2) == [b"a", b"b"]


def test_the_thread_that_opened_it_is_refused_while_another_runs_the_loop(tmp_path: Path) -> None:
    """Both would change the queue at once: that the loop runs does not say that it runs here."""
    loop = asyncio.new_event_loop()

    async def opened() -> fifoq.Queue[bytes]:
        return await fifoq.open(tmp_path / "store")

    q = loop.run_until_complete(opened())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(20)
    try:
        with pytest.raises(WrongLoop):
            q.submit(b"a")
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert len(q) == 0
    loop.run_until_complete(q.close())
    loop.close()


async def test_the_child_of_a_fork_is_refused(bench: Bench) -> None:
    store = await bench.open_store()
    q = await store.queue("a", durability="memory")
    await q.put(b"a")
    bench.files.fork_in_child()
    for call in (q.put(b"b"), q.take(), q.flush(), store.queue("x")):
        with pytest.raises(ForkError, match="only the parent"):
            await call
    elsewhere = await asyncio.to_thread(lambda: _raised_by(lambda: asyncio.run(store.close())))
    assert isinstance(elsewhere, ForkError), "it hung"
    await store.close()
    assert not bench.runner.stopped, "the thread is the parent's"


def _raised_by(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None
