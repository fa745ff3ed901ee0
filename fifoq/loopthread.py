"""A thread with an event loop of its own, and calls into it from any other thread.

A caller waits until its call has ended on the loop. If the caller is interrupted meanwhile, as by
Ctrl-C, the call is cancelled, and undone if it had just succeeded: nothing is lost on the way to
somebody who has left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Final, Generic, TypeVar, cast

from fifoq.errors import QueueClosed, WrongLoop
from fifoq.logs import fields
from store import ForkError
from store.directory import access_error

R = TypeVar("R")
Undo = Callable[[R], Coroutine[Any, Any, object]]

logger = logging.getLogger("fifoq")


FIRST_LOOK_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 1.0
"""How often a caller who waits looks for signals that did not wake it."""


LOOP_DESCRIPTORS: Final = 8
"""What a loop may need to begin with."""


class LoopThread:
    """Runs an event loop until `stop`. Any thread but its own may `run` things there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.stopping = False
        try:
            self._loop = new_loop()
        except OSError as error:
            raise access_error(name, error) from error
        self._stop = asyncio.Event()
        # A daemon: a program that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._main, name=f"fifoq loop {name}", daemon=True)
        self._thread.start()

    @property
    def of_another_process(self) -> bool:
        """Whether this is the child of a fork, where the thread does not exist."""
        return os.getpid() != self._process

    def call(self, function: Callable[[], R], undo: Undo[R] | None = None) -> R:
        """The result of a function that is called on the loop. What `run` raises."""
        return self._wait_for(_Call(self, function, undo))

    def run(self, function: Callable[[], Coroutine[Any, Any, R]], undo: Undo[R] | None = None) -> R:
        """The result of a coroutine that is made and run on the loop.

        If the caller is interrupted, what is under way is cancelled, what has succeeded is undone,
        and only when that has ended the interrupt goes on. ForkError in a child; WrongLoop on the
        loop's own thread, which can not wait for itself; QueueClosed after `stop`.
        """
        return self._wait_for(_Call(self, function, undo))

    def _wait_for(self, call: _Call[R]) -> R:
        self._require_usable()
        try:
            with self._lock:
                if self.stopping:
                    raise QueueClosed(f"{self.name}: the store is closed. Open it anew.")
                # Before it is: an interrupt may come right after.
                call.sent = True
                self._loop.call_soon_threadsafe(call.begin)
            _wait(call.ended)
        except BaseException:
            if call.sent:
                self._leave(call)
            raise
        return call.outcome()

    def _require_usable(self) -> None:
        if self.of_another_process:
            raise ForkError(
                f"{self.name}: the store was opened before a fork, and only the parent may use it. "
                f"Nothing was changed. Open it in one process, after forking."
            )
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                f"{self.name}: called on the thread that runs this queue, which would wait for "
                f"itself for ever. Nothing was changed. Call it from another thread."
            )

    def _leave(self, call: _Call[R]) -> None:
        """The caller was interrupted: see the call to its end."""
        with self._lock:
            stopping = self.stopping
            if not stopping:
                self._loop.call_soon_threadsafe(call.leave)
        if stopping:
            self._thread.join()
        else:
            _wait(call.left)

    def stop(self) -> None:
        """End the thread; calls that are under way are cancelled. Twice is fine."""
        with self._lock:
            if not self.stopping:
                self.stopping = True
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _main(self) -> None:
        # At its end the runner cancels every task and waits for it: no caller is left waiting.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait_for_stop())

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()


class _Call(Generic[R]):
    """One call into the loop, until it has `ended`; or until it is seen off, if its caller left."""

    def __init__(
        self,
        thread: LoopThread,
        function: Callable[[], R] | Callable[[], Coroutine[Any, Any, R]],
        undo: Undo[R] | None,
    ) -> None:
        self._thread = thread
        self._function = function
        self._undo = undo
        self._task: asyncio.Task[Any] | None = None
        self._value: R | None = None
        self._error: BaseException | None = None
        self._begun = self._leaving = False
        self.sent = False
        self.ended = threading.Event()
        self.left = threading.Event()

    def outcome(self) -> R:
        if self._error is None:
            return cast(R, self._value)
        try:
            raise self._error
        finally:
            # The error holds this frame, and must not be held by it in turn.
            self._error = None

    # On the loop's thread.

    def begin(self) -> None:
        self._begun = True
        try:
            value = self._function()
        except BaseException as error:
            self._end(None, error)
            return
        if asyncio.iscoroutine(value):
            self._task = asyncio.get_running_loop().create_task(value)
            self._task.add_done_callback(self._done)
        else:
            self._end(value, None)

    def _done(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self._end(None, QueueClosed(f"{self._thread.name}: the store was closed meanwhile."))
        elif (error := task.exception()) is not None:
            self._end(None, error)
        else:
            self._end(task.result(), None)

    def _end(self, value: R | None, error: BaseException | None) -> None:
        self._value, self._error = value, error
        self.ended.set()
        if self._leaving:
            self._see_off()

    def leave(self) -> None:
        """The caller does not want the outcome any more."""
        self._leaving = True
        if self.ended.is_set() or not self._begun:
            self._see_off()
        else:
            assert self._task is not None
            self._task.cancel()

    def _see_off(self) -> None:
        """Undo what has succeeded; a store that is closing by now can not."""
        if self._undo is None or self._error is not None or not self._begun:
            self.left.set()
            return
        self._task = asyncio.get_running_loop().create_task(self._undo(cast(R, self._value)))
        self._task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[object]) -> None:
        if task.cancelled() or task.exception() is not None:
            logger.error(
                "%s: an interrupted call could not be undone",
                self._thread.name,
                extra=fields("not_undone", None),
            )
        self.left.set()


def _wait(event: threading.Event) -> None:
    """Wait, and see a signal that came just before.

    CPython looks for signals before it goes to sleep, and when one wakes it. One that comes in
    between, as while the loop's thread takes the interpreter, would only be seen at the end.
    """
    seconds = FIRST_LOOK_SECONDS
    while not event.wait(seconds):
        seconds = LOOK_SECONDS


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop, of uvloop's where that is installed. OSError where there are no descriptors."""
    # Where there are none libuv does not tell anybody, but ends the process.
    with ExitStack() as opened:
        for _ in range(LOOP_DESCRIPTORS):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
