"""The work of `fifoq top`: look, draw, wait, until somebody has seen enough."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from rich.console import Console
from rich.live import Live

from fifoq.cli.access import no_queue
from fifoq.cli.output import print_json
from fifoq.cli.rates import History
from fifoq.cli.top_view import frame
from fifoq.cli.watching import Snapshot, Watcher

QUIT = (b"q", b"Q", b"\x1b")


async def watch(
    path: str, queue: str | None, *, interval: float, count: int | None, json: bool
) -> None:
    """Show the store `count` times, or until it is interrupted."""
    history = History()
    async with Watcher(path) as watcher:
        if queue is not None and queue not in (first := await watcher.look()).queues:
            raise no_queue(queue, first.queues)
        if json:
            async for snapshot in _looks(watcher, interval, count, None):
                history.add(_only(snapshot, queue))
                _print_rates(history)
            return
        console = Console()
        plain = not console.encoding.startswith("utf")

        def draw() -> None:
            live.update(
                frame(history, width=console.width, height=console.height, plain=plain),
                refresh=True,
            )

        if not console.is_terminal:
            async for snapshot in _looks(watcher, interval, count, None):
                history.add(_only(snapshot, queue))
                console.print(frame(history, width=console.width, height=10_000, plain=plain))
            return
        quit = asyncio.Event()
        with _keys(quit.set), Live(console=console, screen=True, auto_refresh=False) as live:
            async for snapshot in _looks(watcher, interval, count, quit):
                history.add(_only(snapshot, queue))
                draw()


async def _looks(
    watcher: Watcher, interval: float, count: int | None, quit: asyncio.Event | None
) -> AsyncIterator[Snapshot]:
    """Snapshots, one for each interval; what a slow one costs is not made up for."""
    seen = 0
    quit = quit or asyncio.Event()
    while not quit.is_set():
        begun = time.monotonic()
        yield await watcher.look()
        seen += 1
        if seen == count:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, begun + interval - time.monotonic())):
                await quit.wait()


def _only(snapshot: Snapshot, queue: str | None) -> Snapshot:
    if queue is None:
        return snapshot
    chosen = {name: stats for name, stats in snapshot.queues.items() if name == queue}
    return msgspec.structs.replace(snapshot, queues=chosen)


def _print_rates(history: History) -> None:
    assert history.last is not None
    queues = [
        {**msgspec.structs.asdict(q.stats), "put_rate": q.put_rate, "take_rate": q.take_rate}
        for q in history.queues
    ]
    print_json({**history.last.described(), "queues": queues})
    sys.stdout.flush()


@contextmanager
def _keys(quit: Callable[[], None]) -> Iterator[None]:
    """Hear single keys of the terminal, if there is one to type at."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        if os.read(descriptor, 64)[:1] in QUIT:
            quit()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
