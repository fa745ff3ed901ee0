"""The writer's thread: hands jobs over, reports their ends, stops in every state."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import fifoq.writer
from fifoq.writer import Writer
from tests.support.leftovers import JOIN_SECONDS, assert_nothing_is_left_behind


class Ends:
    """Counts the ends that were reported and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._news.set()

    async def next(self) -> None:
        await asyncio.wait_for(self._news.wait(), JOIN_SECONDS)
        self._news.clear()


class Work:
    """A job that only runs."""

    def __init__(self, run: Callable[[], object], *, awaited: bool = True) -> None:
        self.run = run
        self.awaited = awaited

    def begin(self) -> None:
        return None


def assert_leaves_nothing(work: Callable[[Writer, Ends], Awaitable[None]]) -> None:
    async def main() -> None:
        ends = Ends()
        writer = Writer(asyncio.get_running_loop(), ends, "test")
        try:
            await work(writer, ends)
        finally:
            writer.stop()
            writer.stop()

    with assert_nothing_is_left_behind():
        asyncio.run(main())


def test_jobs_run_on_the_thread_one_after_the_other() -> None:
    async def work(writer: Writer, ends: Ends) -> None:
        for number in range(200):
            writer.start(Work(lambda n=number: (n, threading.current_thread().name)))  # type: ignore[misc]
            await ends.next()
            assert writer.finished
            assert writer.error is None
            assert writer.outcome == (number, "fifoq test")
        assert ends.count == 200

    assert_leaves_nothing(work)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_in_a_job_is_reported_and_the_next_one_runs(error: BaseException) -> None:
    def fails() -> None:
        raise error

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(fails))
        await ends.next()
        assert writer.error is error
        assert writer.outcome is None
        writer.start(Work(lambda: 5))
        await ends.next()
        ended: tuple[object, object] = writer.outcome, writer.error
        assert ended == (5, None)

    assert_leaves_nothing(work)


def test_the_end_of_a_job_is_not_that_of_one_that_was_not_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(lambda: "done"))
        await ends.next()
        assert (writer.finished, writer.outcome) == (True, "done")
        assert writer.error is None

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Writer, "_stand_aside_later", interrupted)
            writer._aside = None
            with pytest.raises(KeyboardInterrupt):
                writer.start(Work(lambda: "never"))
        assert (writer.finished, writer.outcome) == (True, None)
        assert isinstance(writer.error, InterruptedError)
        writer.start(Work(lambda: "next"))
        await ends.next()
        assert (writer.outcome, writer.error) == ("next", None)

    assert_leaves_nothing(work)


def test_without_memory_to_tell_of_an_end_the_loop_sees_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread ended, and whoever waited did so for ever."""
    give, missing = fifoq.writer._Signal.give, [True]

    def no_memory(signal: fifoq.writer._Signal) -> None:
        if missing:
            missing.clear()
            raise MemoryError
        give(signal)

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(lambda: "done"))
        await ends.next()
        assert writer.outcome == "done"
        assert not missing
        writer.start(Work(lambda: "next"))
        await ends.next()
        assert ends.count == 2

    monkeypatch.setattr(fifoq.writer._Signal, "give", no_memory)
    assert_leaves_nothing(work)


@pytest.mark.parametrize("late", [False, True], ids=["of a job", "of the job before"])
def test_a_job_that_began_as_another_ended_is_told_of_by_itself(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as told of, so that nobody made up for a telling that was interrupted."""

    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        heard, over, told = asyncio.Event(), asyncio.Event(), list[object]()
        calls = iter(range(10))

        def on_end() -> None:
            call = next(calls)
            heard.set()
            if call == 0 and not late:
                writer.start(Work(lambda: "second"))
            elif call == 1:
                raise RuntimeError
            elif writer.finished and call > 1:
                told.append(writer.outcome)
                over.set()

        writer = Writer(loop, on_end, "test")
        writer.start(Work(lambda: "first"))
        if late:
            # The end of the first is seen, and the second begun, before the loop hears of it.
            while not writer.finished:
                time.sleep(0)
            go = threading.Event()
            writer.start(Work(lambda: go.wait() and "second"))
            await heard.wait()
            go.set()
        async with asyncio.timeout(20):
            await over.wait()
        writer.stop()
        return told

    assert asyncio.run(main()) == ["second"]


def test_an_idle_writer_stops() -> None:
    async def work(writer: Writer, ends: Ends) -> None:
        pass

    assert_leaves_nothing(work)


def test_a_job_that_hangs_is_left_behind_and_ends_the_thread_later() -> None:
    hang = threading.Event()

    async def main() -> Ends:
        ends = Ends()
        writer = Writer(asyncio.get_running_loop(), ends, "test")
        writer.start(Work(hang.wait))
        await asyncio.sleep(0)
        writer.stop()
        return ends

    with assert_nothing_is_left_behind():
        ends = asyncio.run(main())
        hang.set()
    assert ends.count == 0


def test_a_writer_whose_loop_is_closed_can_be_stopped() -> None:
    async def main() -> Writer:
        return Writer(asyncio.get_running_loop(), Ends(), "test")

    with assert_nothing_is_left_behind():
        asyncio.run(main()).stop()


def test_stopping_when_a_job_has_just_ended_touches_nothing_closed() -> None:
    """A thread that saw itself stopped closed the descriptor that the loop still watched."""
    for _ in range(50):

        async def work(writer: Writer, ends: Ends) -> None:
            writer.start(Work(lambda: None))
            while not writer.finished:
                await asyncio.sleep(0)

        assert_leaves_nothing(work)


def test_the_loop_stands_aside_while_a_job_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    go = threading.Event()

    class Time:
        @staticmethod
        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                go.set()

    monkeypatch.setattr(fifoq.writer, "time", Time)

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(go.wait))
        while not writer.finished:
            await asyncio.sleep(0)
        await ends.next()
        seen = len(naps)
        for _ in range(100):
            await asyncio.sleep(0)
        assert 3 <= seen == len(naps)

    assert_leaves_nothing(work)


def test_it_has_patience_with_a_job_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing aside cost a tenth of what a producer and a consumer did in memory."""
    naps, asked = 0, 0
    go = threading.Event()

    class Time:
        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal naps
            naps += 1
            go.set()

    monkeypatch.setattr(fifoq.writer, "time", Time)
    stand_aside = Writer._stand_aside

    def counting(writer: Writer, seen: int) -> None:
        nonlocal asked
        asked += not naps
        stand_aside(writer, seen)

    monkeypatch.setattr(Writer, "_stand_aside", counting)

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(go.wait, awaited=False))
        await ends.next()
        assert naps
        assert asked == fifoq.writer.PATIENCE + 1, "before the first nap"

    assert_leaves_nothing(work)


def test_a_pipe_does_where_there_is_no_eventfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(lambda: 1))
        await ends.next()
        assert writer.outcome == 1

    assert_leaves_nothing(work)


def test_a_thread_that_does_not_start_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread the end's descriptor stayed open and in the loop."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="start new thread"):
                Writer(asyncio.get_running_loop(), Ends(), "test")

    with assert_nothing_is_left_behind():
        asyncio.run(main())


def test_a_job_that_was_given_up_ends_before_the_next_one_begins() -> None:
    """Who was interrupted behind its start forgot it: a store was not closed, and stayed locked."""
    order: list[str] = []
    go = threading.Event()

    def first() -> None:
        go.wait()
        order.append("first")

    def second() -> None:
        # Real: the end of the first one must not be taken for that of this one meanwhile.
        time.sleep(0.05)
        order.append("second")

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(first))
        threading.Timer(0.05, go.set).start()
        writer.start(Work(second))
        while not writer.finished:
            await ends.next()
        assert order == ["first", "second"]

    assert_leaves_nothing(work)


def test_an_end_that_nobody_was_told_of_is_told_a_little_later() -> None:
    """Whoever was to tell was interrupted: nobody went on with the store."""

    async def work(writer: Writer, ends: Ends) -> None:
        heard, writer._on_end = writer._on_end, _interrupted
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda *told: failures.append(told))
        writer.start(Work(lambda: 5))
        while not failures:
            await asyncio.sleep(0)
        writer._on_end = heard
        await ends.next()

    assert_leaves_nothing(work)


def test_who_is_told_twice_of_an_end_does_not_wait_for_another() -> None:
    """As a loop does that was left in the middle of a turn, and runs again."""

    async def work(writer: Writer, ends: Ends) -> None:
        writer.start(Work(lambda: 5))
        await ends.next()
        writer._ended()
        assert ends.count == 2

    assert_leaves_nothing(work)


def _interrupted() -> None:
    raise RuntimeError("as a signal handler may")


EXITS = """
import asyncio, sys, time
import fifoq
async def main():
    queue = await fifoq.open(sys.argv[1])
    # Large: it is for the thread, with a ring as well.
    putting = asyncio.ensure_future(queue.put(bytes(1 << 20)))
    while queue._committer._job is None:
        await asyncio.sleep(0)
    # The end of the job and the exit meet in one turn of the loop.
    time.sleep(0.2)
    await asyncio.sleep(0)
    sys.exit(7)
asyncio.run(main())
"""


@pytest.mark.parametrize("writer", ["thread", "io_uring"])
def test_a_task_that_exits_as_a_job_ends_ends_the_process(tmp_path: Path, writer: str) -> None:
    """The loop is left and runs again to cancel tasks: it read an end twice, and hung there."""
    done = subprocess.run(
        [sys.executable, "-c", EXITS, str(tmp_path / "store")],
        env={**os.environ, "FIFOQ_WRITER": writer},
        capture_output=True,
        timeout=JOIN_SECONDS,
        check=False,
    )
    assert done.returncode == 7, done.stderr
