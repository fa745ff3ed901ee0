"""What a newcomer tries in the first hour, and what once went wrong there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

import fifoq
import fifoq.sync


class Order(msgspec.Struct):
    number: int


class Renamed(msgspec.Struct):
    number: int


class Longer(msgspec.Struct):
    number: int
    note: str = ""


class Tree(msgspec.Struct):
    children: list[Tree] = []


def test_the_delay_of_what_was_leased_is_kept_with_the_queue(tmp_path: Path) -> None:
    """It went into the commit of the attempt, which has no place for it, and was lost."""

    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            await q.put(b"a")
            async with q.lease():
                pass
            told = q.stats().average_delay
        async with fifoq.open(tmp_path) as q:
            assert told is not None
            assert q.stats().average_delay == pytest.approx(told)

    asyncio.run(run())


@pytest.mark.parametrize(("other", "item"), [(str, "x"), (Longer, Longer(2))])
def test_a_queue_takes_another_type_once_it_is_empty(
    tmp_path: Path, other: Any, item: object
) -> None:
    """It was bound to its first type for ever, even if it had never held a record."""

    async def run() -> None:
        async with fifoq.open(tmp_path, type=Order) as q:
            await q.put(Order(1))
        with pytest.raises(fifoq.SchemaMismatch, match=r"was made for another type .* drain it"):
            async with fifoq.open(tmp_path, type=other):
                pass
        async with fifoq.open(tmp_path, type=Order) as q:
            assert await q.take() == Order(1)
        async with fifoq.open(tmp_path, type=other) as q:
            assert q.empty()
            await q.put(item)
        with pytest.raises(fifoq.SchemaMismatch):
            async with fifoq.open(tmp_path, type=Order):
                pass

    asyncio.run(run())


def test_the_name_of_a_class_is_no_part_of_the_type(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path, type=Order) as q:
            await q.put(Order(1))
        async with fifoq.open(tmp_path, type=Renamed) as q:
            assert await q.take() == Renamed(1)

    asyncio.run(run())


def test_a_type_may_contain_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path, type=Tree) as q:
            await q.put(Tree([Tree()]))
        async with fifoq.open(tmp_path, type=Tree) as q:
            assert await q.take() == Tree([Tree()])

    asyncio.run(run())


def test_a_type_that_cannot_be_described_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path, type=object):
            pass

    with pytest.raises(TypeError, match="is nothing that msgspec can encode"):
        asyncio.run(run())


def test_a_store_is_closed_again_in_another_loop(tmp_path: Path) -> None:
    async def make() -> fifoq.Queue[bytes]:
        q = await fifoq.open(tmp_path)
        await q.put(b"a")
        await q.close()
        return q

    q = asyncio.run(make())
    asyncio.run(q.close())
    assert q.closed


def test_a_store_whose_loop_is_gone_can_be_let_go(tmp_path: Path) -> None:
    """Nothing in the process could free the directory any more."""
    loop = asyncio.new_event_loop()

    async def make() -> fifoq.Queue[bytes]:
        q = await fifoq.open(tmp_path)
        await q.put(b"confirmed")
        q.put_nowait(b"never written")
        return q

    q = loop.run_until_complete(make())
    for task in asyncio.all_tasks(loop):
        # Nobody runs them to their end: that is what this is about.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    async def again() -> list[bytes]:
        await q.close()
        await q.close()
        async with fifoq.open(tmp_path) as opened:
            return [record.item async for record in opened.browse()]

    assert asyncio.run(again()) == [b"confirmed"]


def test_a_nack_may_be_awaited_or_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            await q.put(b"a")
            first = await q.lease()
            await first.extend(5)
            await first.nack(delay=0)
            second = await q.lease()
            second.nack(delay=0)
            third = await q.lease()
            assert [d.attempt for d in (first, second, third)] == [1, 2, 3]
            assert await third.ack()
            with pytest.raises(fifoq.StaleLease, match="it is done"):
                third.nack(delay=0)

    asyncio.run(run())


def test_a_take_that_times_out_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            with pytest.raises(TimeoutError, match=r"queue 'main': nothing to take in 0.001 s"):
                await q.take(timeout=0.001)

    asyncio.run(run())


def test_all_wrong_names_of_options_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'durabilty', 'max_size'"):
        fifoq.open(tmp_path, durabilty="sync", max_size=3)  # type: ignore[call-overload]
    assert not list(tmp_path.iterdir())


def test_a_queue_in_a_hurry_moves_the_timer_of_another_on_uvloop(tmp_path: Path) -> None:
    """uvloop's timers that are due at once cannot say when they are due."""

    async def run() -> None:
        async with fifoq.open_store(tmp_path) as store:
            a = await store.queue("a", durability="memory", flush_interval=0.0003)
            b = await store.queue("b", durability="memory", flush_interval=10.0)
            await b.put(b"x")
            await a.put(b"x")
            b.configure(maxsize=5)
            await store.flush()

    uvloop.run(run())
    with fifoq.sync.open_store(tmp_path, read_only=True) as store:
        assert [store.queue(name).peek() for name in store.queues()] == [b"x", b"x"]


def test_two_who_open_a_queue_at_once_agree_on_its_type(tmp_path: Path) -> None:
    """The second one got the queue of the first, whatever it had asked for."""

    async def run() -> None:
        async with fifoq.open_store(tmp_path) as store:
            first, second = await asyncio.gather(
                store.queue("q", type=int, maxsize=5),
                store.queue("q", type=str),
                return_exceptions=True,
            )
            assert isinstance(first, fifoq.Queue)
            assert isinstance(second, fifoq.SchemaMismatch)
            again = await store.queue("q", type=int, maxsize=7)
            assert again is first
            assert again.options.maxsize == 7

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_lease_of_no_time_is_refused(tmp_path: Path, seconds: float) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            await q.put(b"a")
            with pytest.raises(ValueError, match="is not above 0"):
                await q.lease(seconds=seconds)
            assert await q.take() == b"a"

    asyncio.run(run())


def test_watching_ends_with_the_queue(tmp_path: Path) -> None:
    """It slept on until its next snapshot was due."""

    async def run() -> None:
        q = await fifoq.open(tmp_path)
        seen = []

        async def watch() -> None:
            async for stats in q.watch(interval=3600):
                seen.append(stats)

        watching = asyncio.ensure_future(watch())
        while not seen:
            await asyncio.sleep(0)
        await q.close()
        await asyncio.wait_for(watching, 60)
        with pytest.raises(ValueError, match="interval=0"):
            await anext(aiter(q.watch(interval=0)))

    asyncio.run(run())


def test_wrong_options_of_queue_and_store_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"buffer_size=0.*segment_bytes=1"):
        fifoq.open(tmp_path, segment_bytes=1, buffer_size=0)
