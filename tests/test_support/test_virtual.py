"""VirtualTimeLoop and settle: time jumps, real I/O is waited for, a dead end is told."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from actors.testing import Stuck, VirtualTimeLoop, settle

T = TypeVar("T")
DAYS_30 = 30 * 24 * 3600.0


def run(main: Coroutine[object, None, T], loop: VirtualTimeLoop | None = None) -> T:
    with asyncio.Runner(loop_factory=lambda: loop or VirtualTimeLoop()) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_sleeping_for_a_month_takes_no_time_and_ends_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        seen = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, virtual_loop().time()))

        await asyncio.gather(sleeper("late", DAYS_30), sleeper("early", 0.25))
        return seen

    began = time.monotonic()
    assert run(main()) == [("early", 0.25), ("late", DAYS_30)]
    assert time.monotonic() - began < 10


def test_a_timeout_that_is_not_reached_costs_nothing() -> None:
    async def main() -> float:
        async with asyncio.timeout(3600):
            await asyncio.sleep(1)
        return virtual_loop().time()

    assert run(main()) == 1.0


def test_waiting_for_what_can_not_come_raises() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="no timer"):
        run(main())


def test_settle_runs_every_chain_of_tasks_to_its_end_and_no_timer() -> None:
    async def main() -> tuple[list[int], float]:
        seen: list[int] = []

        async def step(number: int) -> None:
            await asyncio.sleep(0)
            seen.append(number)
            if number < 50:
                asyncio.create_task(step(number + 1)).add_done_callback(lambda _: None)

        timer = asyncio.get_running_loop().call_later(1, seen.append, -1)
        await step(0)
        await settle()
        timer.cancel()
        return seen, virtual_loop().time()

    assert run(main()) == ([*range(51)], 0.0)


def test_two_may_settle_and_one_may_leave_while_it_does() -> None:
    async def main() -> float:
        async def impatient() -> None:
            await asyncio.wait_for(settle(io=True), timeout=1)

        virtual_loop().busy += 1
        leaving = asyncio.create_task(impatient())
        await settle(io=False)
        leaving.cancel()
        virtual_loop().busy -= 1
        await asyncio.gather(settle(), settle())
        assert leaving.cancelled()
        return virtual_loop().time()

    assert run(main()) == 0.0


def test_settle_needs_the_virtual_loop() -> None:
    with pytest.raises(AssertionError, match="VirtualTimeLoop"):
        asyncio.run(settle())


class Writer:
    """A thread that answers through an eventfd, and says when work is under way."""

    def __init__(self) -> None:
        self.answers = 0
        self._go = threading.Event()
        self._signal = os.eventfd(0)
        self._thread = threading.Thread(target=self._run)
        self._loop = virtual_loop()
        self._loop.add_reader(self._signal, self._reap)

    def begin(self) -> None:
        self._loop.busy += 1
        self._thread.start()

    def finish(self) -> None:
        self._go.set()

    def _run(self) -> None:
        self._go.wait()
        os.eventfd_write(self._signal, 1)

    def _reap(self) -> None:
        self.answers += os.eventfd_read(self._signal)
        self._loop.busy -= 1
        self._loop.remove_reader(self._signal)
        self._thread.join()
        os.close(self._signal)


def test_time_stands_still_while_a_thread_works() -> None:
    async def main() -> list[object]:
        writer = Writer()
        seen: list[object] = []
        timer = asyncio.create_task(asyncio.sleep(5))
        writer.begin()
        await settle(io=False)
        seen += [writer.answers, virtual_loop().time()]
        writer.finish()
        await settle()
        seen += [writer.answers, virtual_loop().time()]
        await timer
        return [*seen, virtual_loop().time()]

    assert run(main()) == [0, 0.0, 1, 0.0, 5.0]


def test_an_executor_counts_as_work_under_way() -> None:
    async def main() -> tuple[int, float, int]:
        loop = virtual_loop()
        timer = asyncio.create_task(asyncio.sleep(5))
        future = loop.run_in_executor(None, lambda count: count + 1, 41)
        result = await future
        when = loop.time()
        await timer
        return result, when, loop.busy

    assert run(main()) == (42, 0.0, 0)


def test_work_of_which_nothing_comes_is_given_up() -> None:
    async def main() -> None:
        virtual_loop().busy += 1
        await asyncio.sleep(1)

    loop = VirtualTimeLoop(busy_seconds=0.01)
    try:
        with pytest.raises(Stuck, match="1 works are under way"):
            loop.run_until_complete(main())
    finally:
        loop.busy = 0
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
