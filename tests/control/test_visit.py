"""Visitors of an open store: what they do, what they leave behind, and whose queues they open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
from fifoq.control.desk import Visit
from fifoq.control.messages import (
    Ack,
    Count,
    Forget,
    GetStats,
    Lease,
    Leased,
    Moved,
    NotThere,
    Placed,
    Purge,
    Put,
    Replay,
    Seek,
    Stats,
)


class Order(msgspec.Struct):
    name: str
    amount: int = 1


@asynccontextmanager
async def visited(path: Path) -> AsyncIterator[tuple[fifoq.Store, Visit]]:
    async with fifoq.open_store(path) as store:
        visit = Visit(store)
        yield store, visit
        visit.leave()


def run(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run_it(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run_it.__name__, run_it.__doc__ = test.__name__, test.__doc__
    return run_it


async def leased(visit: Visit, queue: str = "main", count: int = 10) -> list[bytes]:
    answer = await visit.answer(Lease(queue=queue, count=count, seconds=60.0, timeout=0))
    assert isinstance(answer, Leased)
    return [record.payload for record in answer.records]


@run
async def test_what_a_visitor_does_not_ack_is_back_when_he_leaves(tmp_path: Path) -> None:
    async with visited(tmp_path) as (store, visit):
        queue = await store.queue()
        await queue.put_many([b"1", b"2", b"3"])
        assert await leased(visit, count=2) == [b"1", b"2"]
        visit.leave()
        assert queue.stats().leased == 0
        assert await queue.take() == b"1"
        assert await leased(visit) == [b"2", b"3"]
        assert await visit.answer(Ack(queue="main")) == Count(count=2)
        assert await visit.answer(Ack(queue="main")) == Count(count=0)
        visit.leave()
        assert queue.empty()


@run
async def test_a_lease_that_has_run_out_cannot_be_acked(tmp_path: Path) -> None:
    async with visited(tmp_path) as (store, visit):
        queue = await store.queue()
        await queue.put(b"1")
        await visit.answer(Lease(queue="main", count=1, seconds=0.01, timeout=None))
        assert await queue.take() == b"1"
        with pytest.raises(fifoq.StaleLease):
            await visit.answer(Ack(queue="main"))
        assert await visit.answer(Ack(queue="main")) == Count(count=0)


@run
async def test_a_visitor_waits_as_long_as_he_says(tmp_path: Path) -> None:
    async with visited(tmp_path) as (store, visit):
        lease = Lease(queue="main", count=1, seconds=60.0, timeout=0.01)
        assert await visit.answer(lease) == Leased(records=[], typed=False)
        waiting = asyncio.ensure_future(
            visit.answer(Lease(queue="main", count=1, seconds=60.0, timeout=None))
        )
        await asyncio.sleep(0)
        await (await store.queue()).put(b"late")
        answer = await waiting
        assert isinstance(answer, Leased)
        assert answer.records[0].payload == b"late"


@run
async def test_a_queue_that_only_a_visitor_has_opened_still_gets_its_type(tmp_path: Path) -> None:
    """An operator took from a queue before the service opened it, and the service was refused."""
    async with fifoq.open_store(tmp_path) as store:
        orders = await store.queue("orders", type=Order)
        await orders.put_many([Order("apple"), Order("pear")])
    async with visited(tmp_path) as (store, visit):
        assert len(await leased(visit, "orders", count=1)) == 1
        orders = await store.queue("orders", type=Order, maxsize=5)
        assert orders.options.maxsize == 5
        assert await orders.take() == Order("pear")
        visit.leave()
        assert await orders.take() == Order("apple")
        with pytest.raises(fifoq.SchemaMismatch):
            await store.queue("orders", type=int)
        # What a visitor opens later is that one.
        placed = await visit.answer(Put(queue="orders", payloads=[b'{"name":"fig"}'], text=True))
        assert isinstance(placed, Placed)
        assert await orders.take() == Order("fig")
        with pytest.raises(fifoq.SchemaMismatch, match="is not of it"):
            await visit.answer(Put(queue="orders", payloads=[b"\xc1"]))


@run
async def test_a_queue_that_a_visitor_has_filled_refuses_another_type(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path) as store:
        await (await store.queue("orders", type=Order)).put(Order("apple"))
    async with visited(tmp_path) as (store, visit):
        assert await leased(visit, "orders")
        with pytest.raises(fifoq.SchemaMismatch):
            await store.queue("orders", type=int)
        visit.leave()
        assert await (await store.queue("orders", type=Order)).take() == Order("apple")


@run
async def test_visitors_and_the_service_open_a_queue_at_the_same_time(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path) as store:
        await (await store.queue("orders", type=Order)).put(Order("apple"))
    for first in (True, False):
        async with visited(tmp_path) as (store, visit):
            calls: list[Any] = [leased(visit, "orders"), store.queue("orders", type=Order)]
            await asyncio.gather(*(calls if first else reversed(calls)))
            visit.leave()
            orders = await store.queue("orders", type=Order)
            assert await orders.peek() == Order("apple")


@run
async def test_dead_letters_are_lent_as_well(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path) as store:
        orders = await store.queue("orders", type=Order)
        for name in ("apple", "pear"):
            await orders.put(Order(name))
            await (await orders.lease()).reject("no")
    async with visited(tmp_path) as (store, visit):
        assert await visit.answer(Replay(queue="orders", counters=[1])) == Count(count=1)
        assert await visit.answer(Purge(queue="orders", counters=[2], dry_run=True)) == Count(
            count=1
        )
        letters = await store.queue("orders.dlq", type=Order)
        assert await letters.take() == Order("pear")
        assert await (await store.queue("orders", type=Order)).take() == Order("apple")


@run
async def test_cursors_are_made_moved_and_forgotten(tmp_path: Path) -> None:
    async with visited(tmp_path) as (store, visit):
        await (await store.queue()).put_many([b"1", b"2", b"3"])
        with pytest.raises(NotThere):
            await visit.answer(Seek(queue="main", cursor="c", end="earliest"))
        with pytest.raises(NotThere):
            await visit.answer(Forget(queue="main", cursor="c"))
        for seek, moved in (
            (Seek(queue="main", cursor="c", make=True, end="latest"), (4, None)),
            (Seek(queue="main", cursor="c", time=0), (1, 4)),
            (Seek(queue="main", cursor="c", end="latest"), (4, 1)),
            (Seek(queue="main", cursor="d", make=True, time=1), (1, None)),
        ):
            counter, before = moved
            assert await visit.answer(seek) == Moved(counter=counter, before=before)
        await visit.answer(Forget(queue="main", cursor="c"))
        assert (await store.queue()).cursors() == ["d"]


@run
async def test_statistics_are_of_all_queues_open_or_not(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path) as store:
        await (await store.queue("old")).put(b"x")
    async with visited(tmp_path) as (store, visit):
        await (await store.queue("new")).put(b"x")
        answer = await visit.answer(GetStats())
        assert isinstance(answer, Stats)
        assert list(answer.opened) == ["new"]
        assert [queue.name for queue in answer.queues] == ["new", "old"]
