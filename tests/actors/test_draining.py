"""Draining: a system that stops turns the outside away, and signals end a process in time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors import Actor, ActorStopped, ActorSystem, Context, Ref
from actors.draining import heard
from actors.testing import settle
from tests.actors.support import Message, Recorder

ROOT = Path(__file__).parents[2]


class Slow(Actor[str]):
    """Works for a second, then tells and asks others, itself and by tasks of its own."""

    def __init__(self, other: Ref[Message], log: list[object]) -> None:
        self.other, self.log = other, log

    async def receive(self, message: str, ctx: Context[str]) -> None:
        await asyncio.sleep(1)
        ctx.tell(self.other, 1)
        await self.other.tell(2)
        both = await asyncio.gather(self.other.ask("get"), self.other.ask("get"))
        self.log += [len(found) for found in both if isinstance(found, list)]


@pytest.mark.anyio
async def test_a_system_that_stops_lets_handlers_finish_and_turns_the_outside_away() -> None:
    async with ActorSystem() as system:
        log: list[object] = []
        older = await system.spawn(Recorder, [], name="older")
        keyed = await system.keyed(lambda key: Recorder([]), name="keyed")
        pool = await system.pool(Recorder, [], size=2, name="pool")
        await keyed.tell("a", 1)
        slow = await system.spawn(Slow, older, log)
        await slow.tell("go")
        await settle()
        stopping = asyncio.create_task(system.stop())
        await settle()
        for ref in (slow, older, keyed.ref("a"), keyed.ref("b"), pool, *pool.members):
            with pytest.raises(ActorStopped):
                await ref.tell(3)  # type: ignore[attr-defined]
            with pytest.raises(ActorStopped):
                ref.tell_nowait(3)  # type: ignore[attr-defined]
            with pytest.raises(ActorStopped):
                await ref.ask(3)  # type: ignore[attr-defined]
        assert await stopping == 0
        assert log == [4, 5]
        assert system.stats().cut_short == 0


@pytest.mark.anyio
async def test_an_asker_that_leaves_while_the_system_stops_leaves_nothing_behind() -> None:
    class Asking(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            with pytest.raises(TimeoutError):
                await busy.ask(1, timeout=1)
            asked.append(busy.stats().depth)

    asked: list[int] = []
    async with ActorSystem() as system:
        busy = await system.spawn(Recorder, [])
        await busy.tell("hang")
        asking = await system.spawn(Asking)
        await asking.tell("go")
        await settle()
        await system.stop(5)
        assert asked == [0]
        assert system.stats().cut_short == 1


@pytest.mark.anyio
async def test_what_a_deadline_cut_short_is_counted_once() -> None:
    system = await ActorSystem().start()
    ref = await system.spawn(Recorder, [])
    idle = await system.spawn(Recorder, [])
    await ref.tell("hang")
    await settle()
    assert await system.stop(1) == 1
    stats = system.stats()
    assert (stats.cut_short, stats.undelivered) == (1, 1)
    assert (ref.stats().cut_short, idle.stats().cut_short) == (1, 0)


@contextmanager
def service(runner: str, work: str, deadline: float) -> Iterator[subprocess.Popen[str]]:
    arguments = (runner, work, str(deadline))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.actors.signalled", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin 1\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("runner", "number"),
    [
        ("asyncio", signal.SIGTERM),
        ("uvloop", signal.SIGTERM),
        ("anyio", signal.SIGTERM),
        ("asyncio", signal.SIGINT),
        ("uvloop", signal.SIGINT),
    ],
)
def test_a_signal_drains_and_the_status_says_that_it_was_clean(
    runner: str, number: signal.Signals
) -> None:
    with service(runner, "drain", 30) as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    lines = output.splitlines()
    assert {"begin 2", "refused"} <= set(lines)
    (ledger,) = (line for line in lines if line.startswith("ledger"))
    assert {"1", "2"} <= set(ledger.split())


def test_what_a_deadline_cuts_short_is_told_by_the_status() -> None:
    with service("asyncio", "ever", 0.2) as process:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "refused" in output
    # What was in hand, and the one behind it.
    assert "actor 'worker' stopped; 2 told messages were not handled" in errors


def test_a_second_signal_ends_the_deadline() -> None:
    with service("uvloop", "ever", 600) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        while process.stdout.readline() != "refused\n":
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 1


@pytest.mark.anyio
async def test_signals_mean_afterwards_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    system = await ActorSystem().start()
    waiting = asyncio.create_task(system.run_until_signal())
    await settle()
    await system.stop()
    assert await waiting == 0
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_signals_are_heard_in_the_main_thread_alone() -> None:
    found: list[BaseException] = []

    async def listen() -> None:
        with heard((signal.SIGTERM,), lambda: None):
            pass

    def run() -> None:
        try:
            asyncio.run(listen())
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert [str(error).partition(":")[0] for error in found] == [
        "signals are heard in the main thread alone"
    ]
