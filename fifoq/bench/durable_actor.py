"""Rows of durable actors: messages handled, spawning, and memory while idle."""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
from pathlib import Path

import uvloop
from msgspec import Struct

import actors
from fifoq.bench.durable import PRODUCERS
from fifoq.bench.machine import resident_bytes
from fifoq.bench.measure import (
    Absent,
    Row,
    Setting,
    in_turns,
    open_queue,
    rate,
    records,
    timed,
)
from fifoq.durable import ActorSystem

ACTORS = 1000
MESSAGES_EACH = 100
HANDLED_PER_SECOND = 30_000
OF_PUTS = 0.4
MESSAGES_PER_SYNC = 20
SPAWNED = 10_000
SPAWNED_PER_SECOND = 5_000
IDLE_MEGABYTES_MAX = 100.0


class Add(Struct, frozen=True, tag=True):
    """Add to the sum."""

    amount: int


class Sum(Struct):
    """What is remembered of all messages."""

    total: int = 0


class Countdown:
    """Knows when the last of so many messages was handled."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.over = asyncio.Event()

    def one(self) -> None:
        """One was."""
        self.left -= 1
        if not self.left:
            self.over.set()


class Adder(actors.Actor[Add]):
    """Adds up what it is told."""

    state: Sum

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown

    async def receive(self, message: Add, ctx: actors.Context[Add]) -> None:
        self.state.total += message.amount
        self._countdown.one()


async def durable_actors(setting: Setting) -> list[Row | Absent]:
    """1,000 actors, each told 100 messages by a task of its own, against 64 tasks that put."""
    count = max(1, setting.count(ACTORS)) * MESSAGES_EACH
    syncs: list[float] = []

    async def ours() -> float:
        seconds, made = await _handle(setting, count // MESSAGES_EACH)
        syncs.append(count / max(1, made))
        return seconds

    async def puts() -> float:
        each = count // PRODUCERS
        async with open_queue(setting, "sync") as queue:

            async def put_each() -> None:
                for payload in records(each):
                    await queue.put(payload)

            return await timed(asyncio.gather(*(put_each() for _ in range(PRODUCERS))))

    found = await in_turns(setting, ours, puts)
    handled = count / statistics.median(found[0])
    put = count // PRODUCERS * PRODUCERS / statistics.median(found[1])
    return [
        Row(
            "durable actors, sync: tell → handled",
            max(handled / HANDLED_PER_SECOND, handled / put / OF_PUTS),
            "of the bar",
            1.0,
            True,
            f"{rate(handled)}; {rate(put)} by {PRODUCERS} producers",
            {"per_second": handled, "puts_per_second": put, "of_puts": handled / put},
        ),
        Row(
            "  messages for each sync",
            statistics.median(syncs),
            "",
            MESSAGES_PER_SYNC,
            True,
            figures={"messages_per_sync": statistics.median(syncs)},
        ),
    ]


async def _handle(setting: Setting, actor_count: int) -> tuple[float, int]:
    """Seconds until all messages are handled and committed, and how many syncs that took."""
    with setting.fresh("actors") as path:
        async with ActorSystem(path) as system:
            countdown = Countdown(actor_count * MESSAGES_EACH)
            refs = await asyncio.gather(
                *(_spawn(system, countdown, number) for number in range(actor_count))
            )

            async def tell(ref: actors.Ref[Add]) -> None:
                for amount in range(MESSAGES_EACH):
                    await ref.tell(Add(amount))

            async def tell_all() -> None:
                await asyncio.gather(*map(tell, refs))
                await countdown.over.wait()
                await system.flush()

            committer = system.store._committer
            before = committer.syncs.count
            seconds = await timed(tell_all())
            return seconds, committer.syncs.count - before


async def _spawn(system: ActorSystem, countdown: Countdown, number: int) -> actors.Ref[Add]:
    return await system.spawn(Adder, countdown, name=f"adder-{number}", durable=True)


async def spawning(setting: Setting) -> list[Row | Absent]:
    """Durable actors spawned one after the other."""
    count = setting.count(SPAWNED)
    found = []
    for _ in range(setting.rounds):
        with setting.fresh("actors") as path:
            async with ActorSystem(path) as system:

                async def spawn_all(system: ActorSystem = system) -> None:
                    for number in range(count):
                        await _spawn(system, Countdown(0), number)

                found.append(count / await timed(spawn_all()))
    spawned = statistics.median(found)
    figures = {"per_second": spawned}
    return [Row("durable actors spawned", spawned, "/s", SPAWNED_PER_SECOND, True, figures=figures)]


def idle_memory(setting: Setting) -> list[Row | Absent]:
    """What durable actors need that wait for their first message, in a process of its own."""
    count = setting.count(SPAWNED)
    with setting.fresh("actors") as path:
        command = [sys.executable, "-m", "fifoq.bench.durable_actor", str(path), str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    used = float(done.stdout)
    return [
        Row(
            f"{count:,} idle durable actors",
            used,
            "MB",
            IDLE_MEGABYTES_MAX,
            False,
            f"{used * 1e6 / count / 1e3:.3g} kB each",
            {"bytes_each": used * 1e6 / count},
        )
    ]


async def _measure_idle(path: Path, count: int) -> float:
    """Megabytes by which resident memory grows with so many durable actors."""
    async with ActorSystem(path) as system:
        countdown = Countdown(0)
        await _spawn(system, countdown, count)
        gc.collect()
        before = resident_bytes()
        for number in range(count):
            await _spawn(system, countdown, number)
        gc.collect()
        return (resident_bytes() - before) / 1e6


if __name__ == "__main__":
    print(uvloop.run(_measure_idle(Path(sys.argv[1]), int(sys.argv[2]))))
