"""Actor rows: from `tell` to handled, in memory, against a task with an `asyncio.Queue`."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
import time
from typing import Any

from actors import Actor, ActorSystem, Context
from fifoq.bench.measure import Absent, Compared, Row, Setting, in_turns, ratio_row, timed

MESSAGES = 100_000
MAILBOX_MAX = 1000
NAME = "actor tell → handled, in memory"


async def actor_tell(setting: Setting) -> list[Row | Absent]:
    """Messages told by one task and handled by an actor."""
    count = setting.count(MESSAGES)

    async def ours() -> float:
        return await _tell(count)

    async def yardstick() -> float:
        return await _queue_loop(count)

    async def pykka() -> float:
        return await asyncio.to_thread(_pykka, count)

    installed = importlib.util.find_spec("pykka") is not None
    found = await in_turns(setting, ours, yardstick, *([pykka] if installed else []))
    rows: list[Row | Absent] = [
        ratio_row(
            NAME,
            Compared(found[0], found[1]),
            count=count,
            target=0.6,
            yardstick="asyncio.Queue loop",
        )
    ]
    if not installed:
        return [*rows, Absent("actor tell against pykka", "pip install pykka")]
    against = Compared(found[0], found[2])
    return [*rows, ratio_row("  of pykka", against, count=count, target=10.0, yardstick="pykka")]


async def _tell(count: int) -> float:
    handled = asyncio.get_running_loop().create_future()

    class Listener(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            if message == count:
                handled.set_result(None)

    async def tell_all() -> None:
        for message in range(1, count + 1):
            await listener.tell(message)
        await handled

    async with ActorSystem() as system:
        listener = await system.spawn(Listener, name="listener")
        return await timed(tell_all())


async def _queue_loop(count: int) -> float:
    """The same by hand: a task with a bounded queue and a handler."""
    mailbox: asyncio.Queue[int] = asyncio.Queue(MAILBOX_MAX)
    handled = asyncio.get_running_loop().create_future()

    async def receive(message: int) -> None:
        if message == count:
            handled.set_result(None)

    async def listen() -> None:
        while True:
            await receive(await mailbox.get())

    async def tell_all() -> None:
        for message in range(1, count + 1):
            await mailbox.put(message)
        await handled

    listener = asyncio.create_task(listen())
    seconds = await timed(tell_all())
    listener.cancel()
    await asyncio.wait([listener])
    return seconds


def _pykka(count: int) -> float:
    pykka: Any = importlib.import_module("pykka")
    handled = threading.Event()

    def on_receive(_: object, message: int) -> None:
        if message == count:
            handled.set()

    kind: Any = type("Listener", (pykka.ThreadingActor,), {"on_receive": on_receive})
    listener = kind.start()
    start = time.perf_counter()
    for message in range(1, count + 1):
        listener.tell(message)
    handled.wait()
    seconds = time.perf_counter() - start
    listener.stop()
    return seconds
