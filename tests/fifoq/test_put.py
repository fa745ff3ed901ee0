"""Putting: levels, keys, limits, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from actors.testing import settle
from fifoq import ItemTooLarge, Key, Queue, QueueClosed, QueueEmpty, QueueFull
from fifoq.intake import UNSEALED_BYTES_MAX
from fifoq.options import Durability
from tests.fifoq.loops import turns
from tests.fifoq.support import Bench, cancelled, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_was_put_is_taken_in_order(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        keys = [await q.put(b"%d" % n) for n in range(300)]
        assert [key.counter for key in keys] == list(range(1, 301))
        assert keys == sorted(keys)
        assert len(q) == q.size() == 300
        assert await drained(q) == [b"%d" % n for n in range(300)]
        assert q.empty()


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_put_returns_when_its_level_is_reached(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        put = await started(q.put(b"a", durability=durability))
        assert put.done() == (durability == "memory")
        bench.runner.let_go()
        key = await put
        assert isinstance(key, Key)
        assert (key.counter, len(q)) == (1, 1)


async def test_a_level_that_is_none_is_refused(bench: Bench) -> None:
    async with bench.open() as q:
        wrong: object
        for wrong in ("disk", 3, []):
            with pytest.raises(ValueError, match="none of memory, os, sync"):
                await q.put(b"a", durability=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await q.put(b"a", colour="red")  # type: ignore[call-arg]
        assert q.empty()


async def test_nothing_behind_a_record_that_is_not_committed_is_taken(bench: Bench) -> None:
    """C2 and C3 together: a memory record waits behind a sync one."""
    async with bench.open(durability="memory") as q:
        await q.put(b"first")
        bench.runner.hold()
        strong = await started(q.put(b"strong", durability="sync"))
        await q.put(b"weak")
        assert len(q) == 2
        assert await q.take() == b"first"
        take = await started(q.take())
        assert not take.done()
        assert await q.peek() is None
        bench.runner.let_go()
        assert await take == b"strong"
        assert await q.take() == b"weak"
        await strong


async def test_put_many_is_one_commit_and_returns_lazy_keys(bench: Bench) -> None:
    async with bench.open() as q:
        before = q.stats().commits
        keys = await q.put_many(b"%d" % n for n in range(5))
        assert q.stats().commits == before + 1
        assert q.stats().records_per_commit == 5.0
        assert [key.counter for key in keys] == [1, 2, 3, 4, 5]
        assert keys[-1].counter == 5
        assert [key.counter for key in keys[1:3]] == [2, 3]
        assert keys == list(keys)
        assert keys != 3
        assert hash(keys) == hash(keys)
        assert repr(keys) == "<Keys 1..5>"
        assert len(await q.put_many([])) == 0
        with pytest.raises(TypeError, match="list of records"):
            await q.put_many(b"abc")
        with pytest.raises(TypeError, match="is bytes"):
            await q.put_many([b"a", "b"])
        assert await q.put_many([bytearray(b"x"), memoryview(b"y")])
        assert (await drained(q))[5:] == [b"x", b"y"]


async def test_dropped_records_have_no_counter(bench: Bench) -> None:
    """The keys of a dropped put_many counted 0, 1, 2: numbers of other records."""
    async with bench.open(maxsize=2, overflow="drop-newest") as q:
        await q.put(b"a")
        keys = await q.put_many([b"b", b"c"])
        assert len(keys) == 2
        assert [key.counter for key in keys] == [0, 0]
        assert [key.counter for key in keys[:]] == [0, 0]
        assert repr(keys) == "<Keys none>"
        assert (await q.put(b"d")).counter == 2
        assert (await q.put(b"e")).counter == 0
        assert await drained(q) == [b"a", b"d"]


async def test_an_item_over_its_limit_is_refused(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("fifoq.putting.BATCH_BYTES_MAX", 100)
    async with bench.open(max_item_bytes=10) as q:
        with pytest.raises(ItemTooLarge, match="11 bytes is over the limit of 10"):
            await q.put(b"x" * 11)
        with pytest.raises(ItemTooLarge):
            await q.put_many([b"x" * 11])
        with pytest.raises(ItemTooLarge):
            q.put_nowait(b"x" * 11)
        with pytest.raises(ItemTooLarge, match="Put fewer records at once"):
            await q.put_many([b"x" * 10] * 10)
        assert q.empty()


async def test_a_put_cancelled_before_sealing_never_was(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        first = await started(q.put(b"under way"))
        second = await started(q.put(b"cancelled"))
        third = await started(q.put_many([b"x", b"y"]))
        await cancelled(second)
        await cancelled(third)
        last = await started(q.put(b"last"))
        bench.runner.let_go()
        await first
        assert (await last).counter == 5
        assert await drained(q) == [b"under way", b"last"]
        assert q.stats().total_put_count == 2


async def test_a_put_cancelled_after_sealing_is_there_once(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        put = await started(q.put(b"sealed"))
        neighbour = await started(q.put(b"next"))
        await cancelled(put)
        bench.runner.let_go()
        await neighbour
        assert await drained(q) == [b"sealed", b"next"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_full_queue_makes_puts_wait(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, maxsize=2) as q:
        await q.put_many([b"a", b"b"])
        put = await started(q.put(b"c"))
        with pytest.raises(QueueFull, match="full"):
            q.put_nowait(b"d")
        with pytest.raises(QueueFull):
            q.submit(b"d")
        assert not put.done()
        assert await q.take() == b"a"
        await put
        assert await drained(q) == [b"b", b"c"]
        with pytest.raises(ItemTooLarge, match="never fit"):
            await q.put_many([b"x"] * 3)


async def test_room_for_many_wakes_many(bench: Bench) -> None:
    """One wake-up for a whole take_many left the other producers asleep beside free room."""
    async with bench.open(durability="memory", maxsize=3) as q:
        await q.put_many([b"a", b"b", b"c"])
        puts = [await started(q.put(b"%d" % n)) for n in range(4)]
        assert await q.take_many(3) == [b"a", b"b", b"c"]
        await settle()
        assert [put.done() for put in puts] == [True, True, True, False]
        assert await q.take_many(3) == [b"0", b"1", b"2"]
        await puts[3]


async def test_records_that_do_not_fit_yet_let_smaller_ones_pass(bench: Bench) -> None:
    """A put_many at the head of those who wait kept them waiting beside free room."""
    async with bench.open(durability="memory", maxsize=4) as q:
        await q.put_many([b"a", b"b", b"c", b"d"])
        four = await started(q.put_many([b"4"] * 4))
        three = await started(q.put_many([b"3"] * 3))
        one = await started(q.put(b"1"))
        assert await q.take() == b"a"
        await settle()
        assert [put.done() for put in (four, three, one)] == [False, False, True]
        assert await q.take_many(3) == [b"b", b"c", b"d"]
        await three
        assert not four.done()
        assert await drained(q) == [b"1", *[b"3"] * 3]
        await four


async def test_a_woken_putter_that_is_cancelled_passes_its_turn_on(bench: Bench) -> None:
    async with bench.open(durability="memory", maxsize=1) as q:
        await q.put(b"a")
        first = await started(q.put(b"1"))
        second = await started(q.put(b"2"))
        third = await started(q.put(b"3"))
        await cancelled(second)
        assert q.take_nowait() == b"a"
        first.cancel()
        await settle()
        assert first.cancelled()
        await third
        assert await drained(q) == [b"3"]


async def test_overflow_fail_refuses(bench: Bench) -> None:
    async with bench.open(maxsize=1, overflow="fail") as q:
        await q.put(b"a")
        with pytest.raises(QueueFull):
            await q.put(b"b")
        with pytest.raises(QueueFull):
            await q.put_many([b"b"])
        assert await drained(q) == [b"a"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_overflow_drop_oldest_keeps_the_newest(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, maxsize=3, overflow="drop-oldest") as q:
        for n in range(10):
            await q.put(b"%d" % n)
        assert len(q) == 3
    async with bench.open() as q:
        assert q.options.maxsize == 3
        assert q.stats().total_put_count == 10
        await q.put_many([b"x", b"y"])
        assert await drained(q) == [b"9", b"x", b"y"]


async def test_drop_oldest_never_goes_over_the_limit(bench: Bench) -> None:
    """With nothing ready to be dropped, records went in beyond maxsize."""
    async with bench.open(maxsize=2, overflow="drop-oldest") as q:
        puts = [await started(q.put(b"%d" % n)) for n in range(2)]
        bench.runner.hold()
        more = [await started(q.put(b"m%d" % n)) for n in range(4)]
        with pytest.raises(QueueFull):
            q.put_nowait(b"x")
        assert q._depth() <= 2
        bench.runner.let_go()
        await asyncio.gather(*puts, *more)
        assert await drained(q) == [b"m2", b"m3"]


async def test_drop_oldest_reads_what_it_drops_from_disk(bench: Bench) -> None:
    async with bench.open(maxsize=2, overflow="drop-oldest") as q:
        await q.put_many([b"a", b"b"])
    async with bench.open() as q:
        await q.put(b"c")
        assert await drained(q) == [b"b", b"c"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_max_bytes_counts_what_is_there(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, max_bytes=10) as q:
        await q.put(b"x" * 6)
        put = await started(q.put(b"y" * 5))
        assert not put.done()
        assert q.stats().bytes == 6
        assert await q.take() == b"x" * 6
        await put
        assert q.stats().bytes == 5
        with pytest.raises(ItemTooLarge):
            await q.put(b"z" * 11)


@pytest.mark.parametrize("durability", LEVELS)
async def test_max_bytes_is_exact_whatever_happens(bench: Bench, durability: str) -> None:
    """Bytes of acked leases stayed counted, those of returned records were not counted again."""
    async with bench.open(durability=durability, max_bytes=100) as q:
        await q.put_many([b"x" * 10, b"y" * 20, b"z" * 30])
        delivery = await q.lease()
        assert q.byte_count() == 60
        delivery.nack(delay=0)
        assert q.byte_count() == 60
        delivery = await q.lease()
        await delivery.ack()
        assert q.byte_count() == 50
        assert await q.take_many(1) == [b"y" * 20]
        assert q.byte_count() == 30
        assert q.take_nowait() == b"z" * 30
        assert q.byte_count() == 0


async def test_bytes_of_withdrawn_and_given_back_records_are_right(bench: Bench) -> None:
    async with bench.open(max_bytes=100) as q:
        await q.put(b"x" * 40)
        bench.runner.hold()
        put = await started(q.put(b"y" * 10))
        later = await started(q.put(b"y" * 10))
        await cancelled(later)
        assert q.byte_count() == 50
        receipt = q.submit(b"z" * 20)
        assert q.byte_count() == 70
        assert receipt.withdraw()
        assert q.byte_count() == 50
        take = await started(q.take())
        assert q.byte_count() == 10
        await cancelled(take)
        assert q.byte_count() == 50
        bench.runner.let_go()
        await put


@pytest.mark.parametrize("statistics", [True, False])
async def test_max_bytes_may_be_set_while_running(bench: Bench, statistics: bool) -> None:
    """The bytes were those of opening: the limit then let too much in, or nothing at all."""
    async with bench.open(durability="memory", statistics=statistics) as q:
        await q.put_many([b"x" * 10] * 5)
        await q.flush()
        await q.take()
        await q.put_many([b"x" * 7] * 2)
        await q.take()
        bench.runner.hold()
        flush = await started(q.flush())
        await q.take()
        q.put_nowait(b"abc")
        q.configure(max_bytes=100)
        assert q.byte_count() == 2 * 10 + 2 * 7 + 3
        bench.runner.let_go()
        await flush
        await drained(q)
        assert q.byte_count() == 0


@pytest.mark.parametrize("immediate", [False, True])
async def test_whoever_waits_for_less_pressure_is_told_of_a_shutdown(
    bench: Bench, immediate: bool
) -> None:
    """It waited on, for a queue that nobody may put into any more."""
    async with bench.open(durability="memory", pressure_high=1) as q:
        await q.put(b"a")
        below = await started(q.below_pressure())
        q.shutdown(immediate=immediate)
        with pytest.raises(QueueClosed, match="takes no more records"):
            await below
        with pytest.raises(QueueClosed, match="takes no more records"):
            await q.below_pressure()


async def test_pressure_has_hysteresis(bench: Bench) -> None:
    async with bench.open(durability="memory", pressure_high=4, pressure_low=1) as q:
        await q.put_many([b"a", b"b", b"c"])
        assert q.stats().under_pressure is False
        await q.put(b"d")
        put = await started(q.put(b"e"))
        below = await started(q.below_pressure())
        assert q.stats().under_pressure
        q.put_nowait(b"x")
        for _ in range(3):
            await q.take()
            await settle()
            assert not put.done()
        await q.take()
        await settle()
        assert put.done()
        assert below.done()
        await q.below_pressure()
        assert q.options.pressure_floor() == 1


async def test_puts_wait_while_too_much_is_unwritten(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr("fifoq.intake.UNSEALED_BYTES_MAX", 1000)
    async with bench.open(durability="memory") as q:
        bench.runner.hold()
        await q.put(b"w" * 600)
        flush = await started(q.flush())
        await q.put(b"x" * 600)
        put = await started(q.put(b"y" * 600))
        assert not put.done()
        with pytest.raises(QueueFull, match="too much waits"):
            q.put_nowait(b"z" * 600)
        many = await started(q.put_many([b"z"] * 100))
        await cancelled(many)
        bench.runner.let_go()
        await put
        await flush
        assert len(q) == 3


class Order(msgspec.Struct):
    number: int
    note: str = ""


async def test_a_typed_queue_checks_and_returns_its_type(bench: Bench) -> None:
    async with bench.open(type=Order, durability="memory") as q:
        await q.put(Order(1))
        await q.put_many([Order(2), Order(3)])
        q.put_nowait(Order(4))
        with pytest.raises(msgspec.ValidationError):
            await q.put(Order("x"))  # type: ignore[arg-type]
        assert await q.peek() == Order(1)
        assert await q.take() == Order(1)
        assert await q.take_many(2) == [Order(2), Order(3)]
        assert q.take_nowait() == Order(4)


async def test_bytes_do_not_slip_into_a_typed_queue(bench: Bench) -> None:
    """While a window was open, raw bytes went in without being encoded, and no take could read."""
    q: Queue[Any]
    async with bench.open(type=Order, durability="memory") as q:
        q.put_nowait(Order(1))
        with pytest.raises(msgspec.ValidationError):
            q.put_nowait(b"raw")
        with pytest.raises(msgspec.ValidationError):
            await q.put(b"raw")
        assert await drained(q) == [Order(1)]


async def test_headers_are_checked_kept_and_read_back(bench: Bench) -> None:
    async with bench.open(durability="memory") as q:
        await q.put(b"a", headers={"trace": "1"})
        await q.put(b"b")
        q.put_nowait(b"c", headers={"trace": "3", "x": "y"})
        for wrong in ({"a": 1}, {1: "a"}, ["x"]):
            with pytest.raises(TypeError, match="dict of strings"):
                await q.put(b"d", headers=wrong)  # type: ignore[arg-type]
        async with q.lease() as d:
            assert d.headers == {"trace": "1"}
    async with bench.open() as q:
        found = [(r.item, r.headers) async for r in q.browse()]
        assert found == [(b"b", {}), (b"c", {"trace": "3", "x": "y"})]
        assert (await q.lease()).headers == {}
        assert (await q.lease()).headers == {"trace": "3", "x": "y"}


async def test_headers_are_kept_when_a_taken_record_returns(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a", headers={"k": "v"})
        bench.runner.hold()
        take = await started(q.take())
        await cancelled(take)
        bench.runner.let_go()
        await settle()
        assert len(q) == 1
        delivery = await q.lease()
        assert delivery.headers == {"k": "v"}
    async with bench.open() as q:
        assert (await q.lease()).headers == {"k": "v"}


async def test_large_headers_of_many_puts_do_not_overfill_a_frame(
    bench: Bench, monkeypatch: Any
) -> None:
    """Headers were not counted: one frame of too many raised in the loop, and all puts hung."""
    monkeypatch.setattr("fifoq.intake.UNSEALED_BYTES_MAX", 100_000)
    monkeypatch.setattr("store.gathering.BODY_BYTES_MAX", 300_000)
    monkeypatch.setattr("fifoq.codec.HEADER_VALUE_BYTES_MAX", 20_000)
    monkeypatch.setattr("fifoq.codec.HEADERS_BYTES_MAX", 21_000)
    headers = {"h": "x" * 20_000}
    async with bench.open() as q:
        puts = [asyncio.ensure_future(q.put(b"%d" % n, headers=headers)) for n in range(40)]
        await asyncio.wait_for(asyncio.gather(*puts), 60)
        assert await drained(q) == [b"%d" % n for n in range(40)]


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"maxsize": 100}, {"pressure_high": 100}])
async def test_a_caller_who_is_alone_does_not_hide_behind_those_who_follow(
    bench: Bench, options: dict[str, Any]
) -> None:
    """The put of one who has long been alone is sealed in its own step, before the turn is over.

    Others of that turn come with the next frame, and must not keep the first one hidden.
    """
    async with bench.open(**options) as queue:
        for _ in range(5):
            await queue.put(b"before")
        bench.runner.hold()
        puts = [asyncio.ensure_future(queue.put(payload)) for payload in (b"1", b"2", b"3")]
        await settle()
        await bench.step()
        assert [put.done() for put in puts] == [True, False, False]
        assert [queue.take_nowait() for _ in range(6)] == [b"before"] * 5 + [b"1"]
        with pytest.raises(QueueEmpty):
            queue.take_nowait()
        bench.runner.let_go()
        await asyncio.gather(*puts)
        assert [await queue.take(), await queue.take()] == [b"2", b"3"]


async def test_a_large_put_many_waits_while_much_is_under_way(bench: Bench) -> None:
    """The short way of a put_many once took it in past the bound of what may be unwritten."""
    async with bench.open() as queue:
        await queue.put(b"first")
        bench.runner.hold()
        small = asyncio.ensure_future(queue.put(b"small"))
        await turns()
        large = [bytes(1 << 20)] * 15
        first, second = (asyncio.ensure_future(queue.put_many(large)) for _ in range(2))
        await turns()
        assert queue._committer.waiting_bytes <= UNSEALED_BYTES_MAX
        bench.runner.let_go()
        await asyncio.gather(small, first, second)
        assert len(queue) == 32
