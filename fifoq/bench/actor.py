"""Actor rows, in memory: from `tell` to handled, and from `ask` to the reply."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
import time
from typing import Any

from actors import Actor, ActorSystem, Context
from fifoq.bench.measure import (
    Absent,
    Compared,
    Row,
    Setting,
    alternate,
    in_turns,
    ratio_row,
    timed,
)

MESSAGES = 100_000
MAILBOX_MAX = 1000
ASKS = 20_000
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


async def actor_ask(setting: Setting) -> list[Row | Absent]:
    """Asks of one task, each awaited, against the least that a reply can cost."""
    count = setting.count(ASKS)

    async def ours() -> float:
        return await _ask(count)

    async def yardstick() -> float:
        return await _hand_over(count)

    compared = await alternate(setting, ours, yardstick)
    return [
        ratio_row(
            "actor ask → reply, in memory",
            compared,
            count=count,
            target=0.33,
            yardstick="bare futures",
        )
    ]


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


async def _ask(count: int) -> float:
    class Echo(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            ctx.reply(message)

    async def ask_all() -> None:
        for message in range(count):
            await echo.ask(message)

    async with ActorSystem() as system:
        echo = await system.spawn(Echo, name="echo")
        return await timed(ask_all())


async def _hand_over(count: int) -> float:
    """One future wakes another task, another brings its answer back."""
    loop = asyncio.get_running_loop()
    request: asyncio.Future[asyncio.Future[None]] = loop.create_future()

    async def answer_all() -> None:
        nonlocal request
        while True:
            reply = await request
            request = loop.create_future()
            reply.set_result(None)

    async def ask_all() -> None:
        for _ in range(count):
            reply: asyncio.Future[None] = loop.create_future()
            request.set_result(reply)
            await reply

    answering = asyncio.create_task(answer_all())
    await asyncio.sleep(0)
    seconds = await timed(ask_all())
    answering.cancel()
    await asyncio.wait([answering])
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
