"""The face of `asyncio.Queue`: what asyncio's own queue does, and where durability differs.

The differences are the tests under the last heading; docs/reference/asyncio_queue.md lists them.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import fifoq
from fifoq.asyncio_queue import AsyncioQueue
from tests.fifoq.loops import on_each_loop, turns, until
from tests.support.runners import ManualRunner

Opens = Callable[..., AbstractAsyncContextManager[AsyncioQueue[bytes]]]
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["memory", "sync"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Opens a queue in a fresh store; at each level that is worth telling apart."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[AsyncioQueue[bytes]]:
        given = {"durability": request.param, **options}
        async with fifoq.open(tmp_path / "store", **given) as queue:
            yield queue.as_asyncio()

    return opened


@asynccontextmanager
async def held(path: Path, **options: Any) -> AsyncIterator[tuple[fifoq.Queue[bytes], Any]]:
    """A queue whose commits wait for the test."""
    runners: list[ManualRunner] = []

    def make(*arguments: Any) -> ManualRunner:
        runners.append(ManualRunner(*arguments))
        return runners[0]

    async with fifoq.open(path / "store", runner=make, **options) as queue:
        try:
            yield queue, runners[0]
        finally:
            runners[0].let_go()


# What it looks like.


@on_each_loop
async def test_it_has_every_public_name_of_asyncios_queue_with_the_same_parameters(
    opens: Opens,
) -> None:
    def shape(function: Any) -> list[tuple[str, object]]:
        found = inspect.signature(function).parameters.values()
        return [(parameter.name, parameter.default) for parameter in found]

    names = [name for name in vars(asyncio.Queue) if not name.startswith("_")]
    assert {"get", "put", "join", "maxsize"} <= set(names)
    for name in [name for name in names if name != "maxsize"]:
        assert shape(getattr(AsyncioQueue, name)) == shape(getattr(asyncio.Queue, name)), name
    assert shape(AsyncioQueue.shutdown)[1] == ("immediate", False)
    async with opens() as queue:
        assert queue.maxsize == 0


@on_each_loop
async def test_the_same_queue_has_one_face_so_that_tasks_are_counted_once(tmp_path: Path) -> None:
    async with fifoq.open(tmp_path / "store") as queue:
        assert queue.as_asyncio() is queue.as_asyncio()


@on_each_loop
async def test_repr_has_the_address_and_str_has_not(opens: Opens) -> None:
    async with opens(maxsize=2) as queue:
        assert repr(queue) == f"<AsyncioQueue at {id(queue):#x} maxsize=2 name='main' size=0>"
        assert str(queue) == "<AsyncioQueue maxsize=2 name='main' size=0>"


@on_each_loop
async def test_repr_tells_who_waits_and_what_is_unfinished(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        getter = asyncio.create_task(queue.get())
        await turns()
        assert "_getters[1]" in repr(queue)
        await queue.put(b"a")
        assert await getter == b"a"
        await queue.put(b"b")
        putter = asyncio.create_task(queue.put(b"c"))
        await turns()
        assert "size=1 _putters[1] tasks=3" in repr(queue)
        assert await queue.get() == b"b"
        await putter
        queue.shutdown()
        assert repr(queue).endswith("tasks=3 shutdown>")


def test_the_type_can_be_given_an_argument() -> None:
    assert AsyncioQueue[bytes].__args__ == (bytes,)  # type: ignore[attr-defined]


def test_the_shutdown_exception_is_asyncios_where_that_has_one() -> None:
    assert fifoq.QueueShutDown is getattr(asyncio, "QueueShutDown", fifoq.QueueShutDown)
    assert issubclass(fifoq.QueueShutDown, Exception)


# Sizes and order.


@on_each_loop
async def test_a_queue_is_empty_until_a_put_and_again_after_the_get(opens: Opens) -> None:
    async with opens() as queue:
        assert queue.empty()
        await queue.put(b"a")
        assert not queue.empty()
        assert queue.qsize() == 1
        assert await queue.get() == b"a"
        assert queue.empty()


@on_each_loop
async def test_a_queue_without_a_limit_is_never_full(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"a")
        assert not queue.full()


@on_each_loop
async def test_a_queue_with_a_limit_is_full_at_it(opens: Opens) -> None:
    async with opens(maxsize=2) as queue:
        await queue.put(b"a")
        assert (queue.maxsize, queue.full()) == (2, False)
        await queue.put(b"b")
        assert queue.full()


@on_each_loop
async def test_records_come_in_the_order_they_were_put(opens: Opens) -> None:
    async with opens() as queue:
        for item in (b"1", b"3", b"2"):
            await queue.put(item)
        assert [await queue.get() for _ in range(3)] == [b"1", b"3", b"2"]


@on_each_loop
async def test_the_two_ways_of_putting_and_getting_share_one_order(opens: Opens) -> None:
    async with opens() as queue:
        queue.put_nowait(b"a")
        await queue.put(b"b")
        queue.put_nowait(b"c")
        assert [queue.get_nowait(), await queue.get(), queue.get_nowait()] == [b"a", b"b", b"c"]


# Getting.


@on_each_loop
async def test_a_get_waits_until_something_is_put(opens: Opens) -> None:
    async with opens() as queue:
        getter = asyncio.create_task(queue.get())
        await turns()
        assert not getter.done()
        queue.put_nowait(b"a")
        assert await getter == b"a"


@on_each_loop
async def test_get_nowait_of_an_empty_queue_raises_asyncios_queue_empty(opens: Opens) -> None:
    async with opens() as queue:
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()


@on_each_loop
async def test_a_get_lets_a_putter_in_that_waits(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        first = asyncio.create_task(queue.put(b"a"))
        second = asyncio.create_task(queue.put(b"b"))
        assert await queue.get() == b"a"
        assert await queue.get() == b"b"
        await asyncio.gather(first, second)


@on_each_loop
async def test_a_cancelled_getter_leaves_the_record_to_the_next_one(opens: Opens) -> None:
    async with opens() as queue:
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await turns()
        first.cancel()
        await turns()
        assert first.cancelled()
        await queue.put(b"a")
        assert await second == b"a"


@on_each_loop
async def test_a_getter_cancelled_right_after_the_put_drops_nothing(opens: Opens) -> None:
    async with opens() as queue:
        getter = asyncio.create_task(queue.get())
        await turns()
        queue.put_nowait(b"1")
        queue.put_nowait(b"2")
        getter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getter
        assert await queue.get() == b"1"
        assert await queue.get() == b"2"


@on_each_loop
async def test_of_many_getters_one_that_is_cancelled_keeps_nothing_from_the_others(
    opens: Opens,
) -> None:
    async with opens() as queue:
        getters = [asyncio.create_task(queue.get()) for _ in range(3)]
        await turns()
        queue.put_nowait(b"1")
        queue.put_nowait(b"2")
        getters[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await getters[0]
        assert {await getters[1], await getters[2]} == {b"1", b"2"}


@on_each_loop
async def test_a_getter_that_timed_out_is_not_waiting_any_more(opens: Opens) -> None:
    async with opens() as queue:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.001)
        assert "_getters" not in repr(queue)


@on_each_loop
async def test_producer_and_consumer_pass_records_through_a_queue_of_one(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:

        async def produce() -> None:
            for number in range(5):
                await queue.put(b"%d" % number)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            consumer = group.create_task(_get_many(queue, 5))
        assert consumer.result() == [b"%d" % number for number in range(5)]


async def _get_many(queue: AsyncioQueue[bytes], count: int) -> list[bytes]:
    return [await queue.get() for _ in range(count)]


# Putting.


@on_each_loop
async def test_a_put_waits_while_the_queue_is_full(opens: Opens) -> None:
    async with opens(maxsize=2) as queue:
        done: list[int] = []

        async def put() -> None:
            for number in range(3):
                await queue.put(b"%d" % number)
                done.append(number)

        putter = asyncio.create_task(put())
        await until(lambda: "_putters[1]" in repr(queue))
        assert done == [0, 1]
        assert queue.get_nowait() == b"0"
        await putter
        assert done == [0, 1, 2]
        assert [queue.get_nowait(), queue.get_nowait()] == [b"1", b"2"]


@on_each_loop
async def test_put_nowait_into_a_full_queue_raises_asyncios_queue_full(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        queue.put_nowait(b"a")
        with pytest.raises(asyncio.QueueFull):
            queue.put_nowait(b"b")
        queue.get_nowait()
        queue.task_done()
        await queue.join()


@on_each_loop
async def test_a_put_reaches_a_getter_that_waits(opens: Opens) -> None:
    async with opens() as queue:
        getter = asyncio.create_task(queue.get())
        await turns()
        await queue.put(b"a")
        assert await getter == b"a"


@on_each_loop
async def test_a_putter_that_is_cancelled_while_it_waits_puts_nothing(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        await queue.put(b"a")
        second = asyncio.create_task(queue.put(b"b"))
        third = asyncio.create_task(queue.put(b"X"))
        await turns()
        third.cancel()
        await turns()
        assert third.cancelled()
        assert "_putters[1]" in repr(queue)
        assert queue.get_nowait() == b"a"
        await second
        assert queue.get_nowait() == b"b"
        assert queue.empty()


@on_each_loop
async def test_a_putter_cancelled_right_after_it_was_let_in_can_try_again(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        queue.put_nowait(b"1")
        putter = asyncio.create_task(queue.put(b"2"))
        await turns()
        assert queue.get_nowait() == b"1"
        putter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putter
        await queue.put(b"2")
        assert queue.get_nowait() == b"2"
        assert queue.qsize() == 0


@on_each_loop
async def test_putters_are_let_in_one_after_the_other_as_room_comes(opens: Opens) -> None:
    """Gets that followed each other in one turn once woke the first putter alone."""
    async with opens(maxsize=2) as queue:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(queue.put(b"%d" % number))
            await until(lambda: queue.qsize() == 2)
            while queue.qsize():
                queue.get_nowait()
        assert queue.qsize() == 2


@on_each_loop
async def test_putters_are_let_in_when_many_records_are_taken_at_once(opens: Opens) -> None:
    """A take of many records once woke one putter, and the others slept beside an empty queue."""
    async with opens(maxsize=2) as queue:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(queue.put(b"%d" % number))
            await until(lambda: "size=2 _putters[2]" in repr(queue))
            assert await queue._queue.take_many(2) == [b"0", b"1"]
        assert queue.qsize() == 2


# Tasks.


@on_each_loop
async def test_task_done_without_a_task_is_a_value_error(opens: Opens) -> None:
    async with opens() as queue:
        with pytest.raises(ValueError, match="too many times"):
            queue.task_done()
        queue.put_nowait(b"a")
        queue.get_nowait()
        queue.task_done()
        with pytest.raises(ValueError, match="too many times"):
            queue.task_done()


@on_each_loop
async def test_join_waits_until_every_record_was_got_and_done(opens: Opens) -> None:
    async with opens() as queue:
        total = 0

        async def work() -> None:
            nonlocal total
            while True:
                item = await queue.get()
                total += int(item)
                queue.task_done()

        for number in range(100):
            queue.put_nowait(b"%d" % number)
        workers = [asyncio.create_task(work()) for _ in range(2)]
        await queue.join()
        assert total == sum(range(100))
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)


@on_each_loop
async def test_a_task_may_be_done_before_its_record_is_got(opens: Opens) -> None:
    """Getting it counted it once more, and `join` waited for ever."""
    async with opens() as queue:
        queue.put_nowait(b"a")
        queue.task_done()
        queue.get_nowait()
        async with asyncio.timeout(5):
            await queue.join()
        with pytest.raises(ValueError, match="too many times"):
            queue.task_done()
        queue.put_nowait(b"b")
        queue.get_nowait()
        queue.task_done()
        await queue.join()


@on_each_loop
async def test_tasks_that_are_done_too_early_are_never_less_than_none(opens: Opens) -> None:
    """A put that was cancelled then left one task too few, and `join` waited for ever."""
    async with opens(durability="sync") as queue:
        puts = [asyncio.create_task(queue.put(b"%d" % number)) for number in range(2)]
        await asyncio.sleep(0)
        for _ in range(2):
            queue.task_done()
        puts[1].cancel()
        await asyncio.wait(puts)
        while not queue.empty():
            queue.get_nowait()
        async with asyncio.timeout(5):
            await queue.join()
        await queue.put(b"next")
        assert await queue.get() == b"next"
        queue.task_done()
        await queue.join()


@on_each_loop
async def test_join_of_a_queue_without_tasks_returns_at_once(opens: Opens) -> None:
    async with opens() as queue:
        for _ in range(2):
            # It never waits, so nobody has to send it anything twice.
            with pytest.raises(StopIteration):
                queue.join().send(None)


@on_each_loop
async def test_join_waits_again_for_what_is_put_after_it_returned(opens: Opens) -> None:
    async with opens() as queue:
        await queue.join()
        await queue.put(b"a")
        joined = asyncio.create_task(queue.join())
        await turns()
        assert not joined.done()
        await queue.get()
        queue.task_done()
        await joined


@on_each_loop
async def test_a_put_that_fails_is_no_task(opens: Opens) -> None:
    async with opens() as queue:
        with pytest.raises(TypeError):
            await queue.put("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            queue.put_nowait("text")  # type: ignore[arg-type]
        await queue.join()


# Shutting down.


async def assert_refuses_everything(queue: AsyncioQueue[bytes]) -> None:
    with pytest.raises(fifoq.QueueShutDown):
        await queue.put(b"data")
    with pytest.raises(fifoq.QueueShutDown):
        queue.put_nowait(b"data")
    with pytest.raises(fifoq.QueueShutDown):
        await queue.get()
    with pytest.raises(fifoq.QueueShutDown):
        queue.get_nowait()


@on_each_loop
async def test_shutting_down_an_empty_queue_ends_those_who_wait_to_get(opens: Opens) -> None:
    async with opens() as queue:
        getters = [asyncio.create_task(queue.get()) for _ in range(3)]
        await turns()
        queue.shutdown()
        assert queue.qsize() == 0
        await queue.join()
        for getter in getters:
            with pytest.raises(fifoq.QueueShutDown):
                await getter
        await assert_refuses_everything(queue)


@on_each_loop
async def test_a_queue_that_is_shut_down_gives_what_it_has_and_lets_nothing_in(
    opens: Opens,
) -> None:
    async with opens(maxsize=1) as queue:
        await queue.put(b"data")
        joined = asyncio.create_task(queue.join())
        putter = asyncio.create_task(queue.put(b"more"))
        await turns()
        assert not putter.done()
        queue.shutdown(immediate=False)
        assert queue.qsize() == 1
        with pytest.raises(fifoq.QueueShutDown):
            await putter
        assert await queue.get() == b"data"
        await turns()
        assert not joined.done()
        await assert_refuses_everything(queue)
        queue.task_done()
        await joined
        with pytest.raises(ValueError):
            queue.task_done()


@on_each_loop
async def test_an_immediate_shutdown_gives_nothing_and_ends_join(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"data")
        joined = asyncio.create_task(queue.join())
        queue.shutdown(immediate=True)
        assert (queue.qsize(), queue.empty()) == (0, True)
        await joined
        await assert_refuses_everything(queue)
        with pytest.raises(ValueError):
            queue.task_done()


@on_each_loop
async def test_an_immediate_shutdown_leaves_the_tasks_that_were_got(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"1")
        await queue.put(b"2")
        joined = asyncio.create_task(queue.join())
        assert await queue.get() == b"1"
        queue.shutdown(immediate=True)
        assert queue.qsize() == 0
        await turns()
        assert not joined.done()
        await assert_refuses_everything(queue)
        queue.task_done()
        with pytest.raises(ValueError):
            queue.task_done()
        await joined


@on_each_loop
async def test_an_immediate_shutdown_ends_a_putter_that_waits_and_join(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        await queue.put(b"1")
        putter = asyncio.create_task(queue.put(b"2"))
        await turns()
        queue.shutdown(immediate=True)
        with pytest.raises(fifoq.QueueShutDown):
            await putter
        await queue.join()


@on_each_loop
async def test_a_shutdown_is_never_taken_back(opens: Opens) -> None:
    """A second, gentle shutdown once let takers in again after an immediate one."""
    async with opens() as queue:
        await queue.put(b"data")
        queue.shutdown()
        queue.shutdown()
        assert queue.qsize() == 1
        queue.shutdown(immediate=True)
        queue.shutdown()
        await assert_refuses_everything(queue)


@on_each_loop
async def test_getters_that_wait_for_a_commit_end_when_others_took_all(tmp_path: Path) -> None:
    """Two getters once waited for the one record of a commit, and one of them for ever."""
    async with held(tmp_path) as (under, runner):
        queue = under.as_asyncio()
        getters = [asyncio.create_task(queue.get()) for _ in range(2)]
        runner.hold()
        putter = asyncio.create_task(queue.put(b"a"))
        await until(lambda: runner.waiting)
        queue.shutdown()
        await turns()
        assert not any(getter.done() for getter in getters)
        runner.let_go()
        await putter
        outcomes = await asyncio.gather(*getters, return_exceptions=True)
        assert sorted(map(repr, outcomes), key=len)[0] == "b'a'"
        assert [type(outcome) for outcome in outcomes].count(fifoq.QueueShutDown) == 1


@on_each_loop
async def test_getters_end_when_the_last_record_is_acked_after_a_shutdown(opens: Opens) -> None:
    """An ack once left those asleep who waited for a lease that might have come back."""
    async with opens() as queue:
        await queue.put(b"a")
        delivery = await queue._queue.lease()
        getter = asyncio.create_task(queue.get())
        queue.shutdown()
        await turns()
        assert not getter.done()
        await delivery.ack()
        with pytest.raises(fifoq.QueueShutDown):
            await getter


@on_each_loop
async def test_getters_end_when_the_last_of_many_acks_comes_after_a_shutdown(opens: Opens) -> None:
    """Acks of one turn pass without a look, which nobody may sleep through either."""
    async with opens() as queue:
        deliveries = []
        for _ in range(3):
            queue.put_nowait(b"a")
            deliveries.append(await queue._queue.lease())
        queue.shutdown()
        getter = asyncio.create_task(queue.get())
        await turns()
        assert not getter.done()
        for delivery in deliveries:
            await delivery.ack()
        with pytest.raises(fifoq.QueueShutDown):
            await getter


# What durability makes different.


@on_each_loop
async def test_what_was_put_is_there_after_a_reopen_and_counts_as_tasks(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"a")
        queue.put_nowait(b"b")
    async with opens() as queue:
        assert queue.qsize() == 2
        joined = asyncio.create_task(queue.join())
        await turns()
        assert not joined.done()
        for _ in range(2):
            await queue.get()
            queue.task_done()
        await joined


@on_each_loop
async def test_what_an_immediate_shutdown_left_is_there_after_a_reopen(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"a")
        queue.shutdown(immediate=True)
    async with opens() as queue:
        assert await queue.get() == b"a"


@on_each_loop
async def test_a_limit_is_a_whole_number_above_zero_or_not_given(opens: Opens) -> None:
    for wrong in (1.3, 0, -1):
        with pytest.raises(ValueError, match="maxsize="):
            async with opens(maxsize=wrong):
                pass


@on_each_loop
async def test_get_nowait_raises_queue_empty_until_the_record_was_read_from_disk(
    opens: Opens,
) -> None:
    """Asking again once never helped: only somebody who waited had the record read."""
    items = [bytes([number]) * 600_000 for number in range(6)]
    async with opens() as queue:
        for item in items:
            await queue.put(item)
            # A frame each: one is read as a whole.
            await queue._queue.flush()
    async with opens() as queue:
        got: list[bytes] = []

        def get_what_is_in_memory() -> bool:
            try:
                while True:
                    got.append(queue.get_nowait())
            except asyncio.QueueEmpty:
                return len(got) == len(items)

        assert not get_what_is_in_memory()
        assert not queue.empty()
        await until(get_what_is_in_memory)
        assert got == items


@on_each_loop
async def test_a_closed_store_looks_like_a_queue_that_was_shut_down(opens: Opens) -> None:
    async with opens() as queue:
        await queue.put(b"a")
    await assert_refuses_everything(queue)


@on_each_loop
async def test_records_that_are_leased_are_not_ready_but_fill_the_queue(opens: Opens) -> None:
    async with opens(maxsize=1) as queue:
        await queue.put(b"a")
        delivery = await queue._queue.lease()
        assert (queue.qsize(), queue.empty(), queue.full()) == (0, True, True)
        delivery.nack(delay=0)
        assert queue.qsize() == 1


@on_each_loop
async def test_a_record_that_came_by_the_queues_own_put_is_a_task_when_it_is_got(
    opens: Opens,
) -> None:
    async with opens() as queue:
        await queue._queue.put(b"a")
        await queue.get()
        joined = asyncio.create_task(queue.join())
        await turns()
        assert not joined.done()
        queue.task_done()
        await joined


@on_each_loop
async def test_a_record_is_ready_only_once_it_is_committed(tmp_path: Path) -> None:
    async with held(tmp_path, maxsize=1) as (under, runner):
        queue = under.as_asyncio()
        runner.hold()
        putter = asyncio.create_task(queue.put(b"a"))
        await until(lambda: runner.waiting)
        assert (queue.qsize(), queue.full()) == (0, True)
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()
        runner.let_go()
        await putter
        assert queue.qsize() == 1


@on_each_loop
async def test_a_put_that_is_cancelled_once_its_commit_began_is_a_task_all_the_same(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as (under, runner):
        queue = under.as_asyncio()
        runner.hold()
        putter = asyncio.create_task(queue.put(b"a"))
        await until(lambda: runner.waiting)
        putter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putter
        joined = asyncio.create_task(queue.join())
        await turns()
        assert not joined.done()
        runner.let_go()
        assert await queue.get() == b"a"
        queue.task_done()
        await joined


@on_each_loop
async def test_a_get_that_is_cancelled_while_its_removal_is_written_leaves_the_record(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as (under, runner):
        queue = under.as_asyncio()
        await queue.put(b"a")
        runner.hold()
        getter = asyncio.create_task(queue.get())
        await until(lambda: runner.waiting)
        getter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getter
        runner.let_go()
        assert await queue.get() == b"a"


def test_every_test_that_the_page_of_differences_names_is_here() -> None:
    page = (ROOT / "docs/reference/asyncio_queue.md").read_text()
    named = re.findall(r"`(test_\w+)`", page)
    assert named
    assert [name for name in named if name not in globals()] == []
