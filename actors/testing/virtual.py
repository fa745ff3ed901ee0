"""An event loop whose time is virtual, `run` on such a loop, and `settle`.

Nothing here sleeps: when no callback is ready, the clock of the loop jumps to the next timer, so
that hours run in microseconds and every run is the same.

Real I/O. A test may use threads, eventfds or pipes beside virtual time. The loop can not see
work that is under way elsewhere, so whoever starts some says so: `loop.busy += 1` on the loop's
thread before the work is handed over, `loop.busy -= 1` in the callback that its result runs on
the loop. While `busy` is over 0 the time stands still and the loop waits for file descriptors (and
`call_soon_threadsafe`) as a real one does. `run_in_executor` does this by itself.

A loop with nothing ready, no timer and no work under way would wait for ever: it raises `Stuck`.
So does one whose work under way gives no sign of life for `BUSY_SECONDS` of real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BUSY_SECONDS = 30.0
"""Real time after which work under way counts as lost."""

_Events = list[tuple[selectors.SelectorKey, int]]


class Stuck(RuntimeError):
    """Nothing can ever happen on this loop again."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop that starts at time 0 and never waits for time to pass."""

    def __init__(self, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.busy = 0
        self.now = 0.0
        self.settling: list[tuple[asyncio.Future[None], bool]] = []
        super().__init__(_Selector(self, busy_seconds))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run it on a thread; counts as work under way."""
        self.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _: asyncio.Future[T]) -> None:
        self.busy -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Join the threads; counts as work under way."""
        self.busy += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.busy -= 1


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new `VirtualTimeLoop`, as `asyncio.run` does on a real one.

    Stuck: nothing could ever have happened again.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def settle(*, io: bool = True) -> None:
    """Return when no task can move without time passing.

    Work under way (`busy`) is waited for, since it ends by itself and nobody knows when; with
    `io=False` it is left alone. Time does not pass. Needs a `VirtualTimeLoop`.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "settle needs a VirtualTimeLoop"
    quiet: asyncio.Future[None] = loop.create_future()
    loop.settling.append((quiet, io))
    await quiet


class _Selector(selectors.BaseSelector):
    """Stands between the loop and its selector, where the loop would wait for time."""

    def __init__(self, loop: VirtualTimeLoop, busy_seconds: float) -> None:
        self._loop = loop
        self._busy_seconds = busy_seconds
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> _Events:
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._wake_one_settling():
            return events
        if self._loop.busy > 0:
            return self._wait_for_io()
        if timeout is None:
            raise Stuck("no callback is ready, there is no timer, and no work is under way")
        self._loop.now += timeout
        return events

    def _wake_one_settling(self) -> bool:
        """The loop has come to rest: wake the latest `settle` that may see it so."""
        waiting = self._loop.settling
        for index in reversed(range(len(waiting))):
            quiet, io = waiting[index]
            if quiet.done() or not (io and self._loop.busy):
                del waiting[index]
                if not quiet.done():
                    quiet.set_result(None)
                    return True
        return False

    def _wait_for_io(self) -> _Events:
        events = self._real.select(self._busy_seconds)
        if not events:
            raise Stuck(f"{self._loop.busy} works are under way, and nothing came of them")
        return events

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()
