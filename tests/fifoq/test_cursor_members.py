"""Members of one cursor: tasks that share it by leases, each record to one of them."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest

import fifoq
from actors.testing import settle
from fifoq import Cursor, Delivery, StaleLease
from fifoq.cursor_lease import LEASED_MAX
from tests.fifoq.support import Bench, cancelled, started
from tests.fifoq.test_cursor import items, numbered, rest

pytestmark = pytest.mark.anyio


async def test_a_lease_has_the_interface_of_a_queues_and_removes_nothing(bench: Bench) -> None:
    async with bench.open() as queue:
        key = await queue.put(b"x", headers={"a": "b"})
        cursor = await queue.cursor("workers")
        delivery = await cursor.lease()
        assert isinstance(delivery, Delivery)
        assert (delivery.item, delivery.key, delivery.attempt) == (b"x", key, 1)
        assert delivery.headers == {"a": "b"}
        assert await delivery.ack() is True
        assert await delivery.ack() is False
        assert (cursor.position, cursor.committed) == (2, 2)
        assert len(queue) == 1


async def test_each_record_goes_to_one_member_and_all_are_done(bench: Bench) -> None:
    seen: list[bytes] = []

    async def member(cursor: Cursor[bytes]) -> None:
        while True:
            async with cursor.lease() as delivery:
                seen.append(delivery.item)
                await asyncio.sleep(random.Random(delivery.item).random())

    async with bench.open() as queue:
        cursor = await queue.cursor("workers")
        members = [asyncio.ensure_future(member(cursor)) for _ in range(5)]
        await numbered(queue, 1, 50)
        await asyncio.sleep(60)
        assert sorted(seen, key=int) == items(1, 50)
        assert cursor.committed == 51
        for task in members:
            task.cancel()
        await asyncio.gather(*members, return_exceptions=True)


async def test_the_position_is_the_ack_floor_and_what_is_done_above_it_is_kept(
    bench: Bench,
) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 6)
        cursor = await queue.cursor("workers")
        deliveries = [await cursor.lease() for _ in range(5)]
        await deliveries[1].ack()
        await deliveries[3].ack()
        assert (cursor.position, cursor.committed) == (1, 1)
        crashed = bench.after_crash()
        await deliveries[0].ack()
        assert cursor.committed == 3
        await deliveries[2].ack()
        assert cursor.committed == 5
    async with crashed.open() as queue:
        assert await rest(await queue.cursor("workers")) == [b"1", b"3", b"5", b"6"]
    async with bench.open() as queue:
        assert await rest(await queue.cursor("workers")) == items(5, 6)


async def test_what_is_nacked_or_runs_out_comes_back_to_its_place(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 3)
        cursor = await queue.cursor("workers")
        first = await cursor.lease(seconds=10)
        second = await cursor.lease(seconds=5)
        first.nack(delay=0)
        again = await cursor.lease(seconds=100)
        assert (again.item, again.attempt) == (b"1", 2)
        await asyncio.sleep(6)
        back = await cursor.lease()
        assert (back.item, back.attempt) == (b"2", 2)
        for stale in (first, second):
            with pytest.raises(StaleLease, match="Nothing was changed"):
                await stale.ack()
        back.extend(1000)
        await asyncio.sleep(90)
        await back.ack()
        await again.ack()
        assert cursor.committed == 3


async def test_a_nacked_record_waits_while_others_pass_it(bench: Bench) -> None:
    async with bench.open(retry_backoff=4.0) as queue:
        await numbered(queue, 1, 4)
        cursor = await queue.cursor("workers")
        (await cursor.lease()).nack(delay=10)
        second = await cursor.lease()
        assert second.item == b"2"
        second.nack()
        assert (await cursor.lease()).item == b"3"
        await asyncio.sleep(4.1)
        assert (await cursor.lease()).item == b"2"
        await asyncio.sleep(6)
        back = await cursor.lease()
        assert (back.item, back.attempt) == (b"1", 2)
        with pytest.raises(ValueError, match="Nothing was changed"):
            back.nack(delay=-1)
        back.nack(delay=100)
        await cursor.seek(counter=1)
        await asyncio.sleep(200)
        assert (await cursor.lease()).attempt == 1


async def test_async_with_acks_nacks_and_extends(bench: Bench) -> None:
    async with bench.open(lease_seconds=2.0, retry_backoff=0.0) as queue:
        await numbered(queue, 1, 2)
        cursor = await queue.cursor("workers")
        with pytest.raises(KeyError):
            async with cursor.lease():
                raise KeyError
        async with cursor.lease() as delivery:
            assert delivery.attempt == 2
            await asyncio.sleep(100)
        assert cursor.committed == 2
        await rest(cursor)
        with pytest.raises(TimeoutError):
            await cursor.lease(timeout=1)


@pytest.mark.parametrize("how", ["return", "raise", "cancel"])
async def test_a_member_whose_task_ends_hands_its_records_over_at_once(
    bench: Bench, how: str
) -> None:
    end = asyncio.Event()

    async def leave(cursor: Cursor[bytes]) -> None:
        held = [await cursor.lease(seconds=3600) for _ in range(2)]
        await end.wait()
        if how == "raise":
            raise KeyError(held)

    async with bench.open() as queue:
        await numbered(queue, 1, 3)
        cursor = await queue.cursor("workers")
        task = await started(leave(cursor))
        assert (await cursor.lease()).item == b"3"
        waiting = [await started(cursor.lease()) for _ in range(2)]
        assert not any(member.done() for member in waiting)
        if how == "cancel":
            await cancelled(task)
        end.set()
        await asyncio.gather(task, return_exceptions=True)
        await settle()
        assert [member.result().item for member in waiting] == items(1, 2)
        assert [member.result().attempt for member in waiting] == [2, 2]


async def test_the_error_of_a_member_that_nobody_waits_for_is_still_told(bench: Bench) -> None:
    """To look at how the task ended was taken for having seen its error."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with bench.open() as queue:
        await numbered(queue, 1, 1)
        cursor = await queue.cursor("workers")

        async def fail() -> None:
            await cursor.lease()
            raise KeyError("lost")

        task = asyncio.ensure_future(fail())
        await asyncio.wait([task])
        await settle()
        del task
        gc.collect()
        assert [str(context["exception"]) for context in told] == ["'lost'"]
        assert (await cursor.lease()).attempt == 2


async def test_what_a_task_returns_stays_leased(bench: Bench) -> None:
    """As with `wait_for`, which ran its work in a task of its own before 3.12, and `gather`."""
    async with bench.open() as queue:
        await numbered(queue, 1, 4)
        cursor = await queue.cursor("workers")

        async def one() -> Delivery[bytes]:
            return await cursor.lease()

        async def two() -> list[Delivery[bytes]]:
            return [await cursor.lease(), await cursor.lease()]

        first = await asyncio.wait_for(one(), 10)
        second, third = await asyncio.create_task(two())
        await settle()
        for delivery in (first, second, third):
            await delivery.ack()
        assert cursor.committed == 4


async def test_a_cancelled_lease_leases_nothing(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await queue.cursor("workers")
        await cancelled(await started(cursor.lease()))
        waiting = await started(cursor.lease())
        await numbered(queue, 1, 1)
        assert (await waiting).attempt == 1


async def test_a_cancelled_ack_is_applied_and_may_be_repeated(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 2)
        cursor = await queue.cursor("workers")
        delivery = await cursor.lease()
        bench.runner.hold()
        await cancelled(await started(delivery.ack()))
        again = await started(delivery.ack())
        assert not again.done()
        bench.runner.let_go()
        assert await again is False
        assert cursor.committed == 2


async def test_a_seek_ends_all_leases(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 3)
        cursor = await queue.cursor("workers")
        delivery = await cursor.lease()
        await cursor.seek(counter=1)
        assert delivery.state == "moved"
        with pytest.raises(StaleLease, match="moved"):
            await delivery.ack()
        assert await rest(cursor) == items(1, 3)
        await asyncio.sleep(3600)
        assert await cursor.lag() == fifoq.Lag(0, 0.0)


async def test_no_more_than_the_limit_are_leased_at_a_time(bench: Bench) -> None:
    async with bench.open(durability="memory") as queue:
        await queue.put_many(items(1, LEASED_MAX + 5))
        await queue.flush()
        cursor = await queue.cursor("workers")
        out = [await cursor.lease() for _ in range(LEASED_MAX)]
        waiting = await started(cursor.lease())
        await settle()
        assert not waiting.done()
        await out[7].ack()
        assert (await waiting).item == b"%d" % (LEASED_MAX + 1)


async def test_one_stuck_record_costs_nothing_while_the_others_pass_it(bench: Bench) -> None:
    async with bench.open(durability="memory") as queue:
        await queue.put_many(items(1, 20_000))
        await queue.flush()
        cursor = await queue.cursor("workers")
        stuck = await cursor.lease(seconds=3600)
        for _ in range(19_999):
            await (await cursor.lease()).ack()
        await queue.flush()
        position = cursor._reading.hold.position
        assert (position.counter, position.done) == (1, ((2, 20_000),))
        await stuck.ack()
        await queue.flush()
        assert cursor.committed == 20_001


async def test_records_of_one_ordering_key_are_leased_one_at_a_time_in_order(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await keyed(queue, "aabab")
        first = await cursor.lease()
        third = await cursor.lease()
        waiting = await started(cursor.lease())
        assert [first.key.counter, third.key.counter] == [1, 3]
        assert not waiting.done()
        first.nack(delay=0)
        again = await waiting
        assert again.key.counter == 1
        waiting = await started(cursor.lease())
        await third.ack()
        fifth = await waiting
        assert fifth.key.counter == 5
        await again.ack()
        second = await cursor.lease()
        assert second.key.counter == 2
        await second.ack()
        fourth = await cursor.lease()
        assert fourth.key.counter == 4
        await fourth.ack()
        await fifth.ack()
        assert cursor.committed == 6


async def test_a_member_that_ends_hands_its_keys_over(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await keyed(queue, "aab")

        async def leave() -> None:
            await cursor.lease(seconds=3600)

        await asyncio.create_task(leave())
        await settle()
        first = await cursor.lease()
        assert (first.key.counter, first.attempt) == (1, 2)
        other = await cursor.lease()
        assert other.key.counter == 3
        await first.ack()
        assert (await cursor.lease()).key.counter == 2


async def keyed(queue: fifoq.Queue[Any], keys: str) -> Cursor[Any]:
    """A cursor over records with these ordering keys."""
    for key in keys:
        await queue.put(b"x", ordering_key=key)
    return await queue.cursor("workers")


async def test_a_nacked_record_keeps_its_ordering_key(bench: Bench) -> None:
    async with bench.open() as queue:
        cursor = await keyed(queue, "aab")
        (await cursor.lease()).nack(delay=10)
        assert (await cursor.lease()).key.counter == 3
        waiting = await started(cursor.lease())
        await asyncio.sleep(9)
        assert not waiting.done()
        await asyncio.sleep(2)
        assert waiting.result().key.counter == 1


async def test_a_cursor_sees_what_is_delayed_expired_or_of_a_later_lane_in_order(
    bench: Bench,
) -> None:
    async with bench.open(priorities=True) as queue:
        await queue.put(b"1", delay=3600)
        await queue.put(b"2", priority=9)
        await queue.put(b"3", ttl=0.001)
        await queue.put(b"4", priority=0)
        await asyncio.sleep(1)
        cursor = await queue.cursor("workers")
        assert await rest(cursor) == items(1, 4)


async def test_a_leased_record_of_a_cursor_can_not_be_rejected(bench: Bench) -> None:
    async with bench.open() as queue:
        await numbered(queue, 1, 1)
        delivery = await (await queue.cursor("workers")).lease()
        with pytest.raises(ValueError, match="removes nothing"):
            await delivery.reject("no")
        assert await delivery.ack()
