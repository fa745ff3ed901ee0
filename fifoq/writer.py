"""The writer: a thread that runs one job at a time, so that the loop never waits for a disk.

A job is handed over by a lock, which does not give the interpreter lock away, so that the loop's
thread goes on at once; its end is reported by a file descriptor, which costs less than a call into
the loop. A thread that comes back from the kernel needs the interpreter lock, and a loop that is
busy in short turns gives it away only for moments too short to be caught: a sync could take
seconds. So while a job is under way the loop's thread stands aside now and then.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from store import Begun, Filling

Started = Begun | Filling
"""What was begun, to be written by whoever runs the job."""


class Job(Protocol):
    """Something to be done with a log."""

    def run(self) -> object:
        """Do it, and wait for the disk."""

    def begin(self) -> Started | None:
        """Begin it without waiting, if that can be; else None, and nothing is."""

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for its end."""


NOT_HANDED_OVER: Final = InterruptedError(errno.EINTR, "interrupted")
"""The end of a job that nobody got, made beforehand: it may be memory that was wanting."""
WATCH_SECONDS: Final = 0.05
"""How often somebody sees to what nobody looks for: whoever did may have been interrupted."""
ASIDE_AFTER_SECONDS: Final = 0.001
"""How long a job may be under way before the loop's thread stands aside, and how often."""
ASIDE_SECONDS: Final = 0.0001
"""For how long: enough for a thread that waits for the interpreter lock to wake up and take it."""
PATIENCE: Final = 10
"""So many times later for a job that nobody waits for: who stands aside loses a tenth and more."""


class Rest:
    """The rest of what was begun: writing it and waiting for the disk."""

    def __init__(self, begun: Started, *, awaited: bool) -> None:
        self.run = begun.write
        self.awaited = awaited

    def begin(self) -> None:
        return None


class Runner(Protocol):
    """Runs one job at a time somewhere that may block, and reports its end to the loop."""

    @property
    def kind(self) -> str:
        """What does the work, for the stats."""

    @property
    def beside(self) -> bool:
        """Whether what is not synced is written while the loop goes on as if there were nothing."""

    @property
    def finished(self) -> bool:
        """The job has ended; `outcome` and `error` say how. Also if nobody ever got it."""

    @property
    def outcome(self) -> object: ...

    @property
    def error(self) -> BaseException | None: ...

    def start(self, job: Job) -> None:
        """Begin a job; none may be under way. `on_end` is called on the loop when it has ended."""

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Take no more jobs. One that hangs is left behind; a thread that is idle ends.

        If a job is under way, `last` is called when that has ended, on whichever thread.
        """

    def join(self) -> None:
        """After `stop`: wait for the job that is under way, if there is one."""


class Writer:
    """The runner that works everywhere: a thread."""

    kind: Final = "thread"
    beside: Final = False
    alive: Final[set[threading.Thread]] = set()
    """The threads of all writers of this process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._job: Job | None = None
        self._jobs_started = 0
        self._aside: asyncio.TimerHandle | None = None
        self._patience = 0
        self._told = True
        """Whoever is to hear of the last job's end has heard of it."""
        self._jobs_taken = self._untold_job = 0
        self._stopped = False
        self._last: Callable[[], None] | None = None
        self.finished = True
        self.outcome: object = None
        self.error: BaseException | None = NOT_HANDED_OVER
        self._go = threading.Lock()
        self._go.acquire()
        self._end = _Signal()
        # A daemon: a program that forgets to close its queues must still be able to end.
        self._thread = threading.Thread(target=self._run, name=f"fifoq {name}", daemon=True)
        self.alive.add(self._thread)
        try:
            self._thread.start()
        except BaseException:
            self.alive.discard(self._thread)
            self._end.close()
            raise
        loop.add_reader(self._end.reader, self._ended)

    def start(self, job: Job) -> None:
        if self._is_at_work():
            # Its committer was interrupted and gave it up.
            self._wait_for_end()
        # Until the thread has it, the end of the last job is not the end of this one.
        self.outcome, self.error = None, NOT_HANDED_OVER
        patience, number = 0 if job.awaited else PATIENCE, self._jobs_started + 1
        if self._aside is None:
            self._stand_aside_later(number)
        # Nothing from here on can fail, or be interrupted before the job is handed over.
        self._patience, self._jobs_started = patience, number
        self.finished = self._told = False
        self._job = job
        # The last thing: as long as this thread goes on, the other one waits for the interpreter.
        self._go.release()

    def _is_at_work(self) -> bool:
        """Whether the thread has a job that has not ended, or is about to have it."""
        taken = self._jobs_taken == self._jobs_started or not self._go.locked()
        return taken and not self.finished

    def _wait_for_end(self) -> None:
        while not self.finished:
            time.sleep(ASIDE_SECONDS)

    def stop(self, last: Callable[[], None] | None = None) -> None:
        if self._stopped:
            return
        self._last = last
        if self._aside is not None:
            self._aside.cancel()
        if not self._loop.is_closed():
            # First: a thread that sees itself stopped closes what the loop would still watch.
            self._loop.remove_reader(self._end.reader)
        self._stopped = True
        self._job = None
        if self._go.locked():
            self._go.release()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        wait, tell = self._go.acquire, self._end.give
        while True:
            wait()
            job = self._job
            self._jobs_taken = self._jobs_started
            if job is None:
                break
            try:
                self.outcome = job.run()
                self.error = None
            except BaseException as error:
                self.outcome, self.error = None, error
            self.finished = True
            del job
            # Without memory the loop sees for itself, a little later.
            with suppress(MemoryError):
                tell()
            if self._stopped:
                break
        self.alive.discard(self._thread)
        self._end.close()
        if self._last is not None:
            self._last()

    def _ended(self) -> None:
        self._end.take()
        self._tell()

    def _tell(self) -> None:
        number, finished = self._jobs_started, self.finished
        self._on_end()
        if finished and number == self._jobs_started:
            # Else it was told of the job before, and may have begun the next one.
            self._told = True

    def _stand_aside_later(self, number: int) -> None:
        self._aside = self._loop.call_later(ASIDE_AFTER_SECONDS, self._stand_aside, number)

    def _stand_aside(self, seen: int) -> None:
        if self.finished:
            self._aside = None
            self._see_that_it_is_told()
            return
        if seen == self._jobs_started and not self._patience:
            time.sleep(ASIDE_SECONDS)
        self._patience = max(0, self._patience - 1)
        self._stand_aside_later(self._jobs_started)

    def _see_that_it_is_told(self) -> None:
        """Tell of the end if nobody did until the next look: who was to tell was interrupted."""
        if self._told:
            return
        if self._untold_job == self._jobs_started:
            self._tell()
        else:
            self._untold_job = self._jobs_started
            self._stand_aside_later(self._jobs_started)


class _Signal:
    """Wakes the loop. An eventfd, or a pipe where there is none."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.reader = self._writer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            self.reader, self._writer = os.pipe()
            os.set_blocking(self.reader, False)

    def give(self) -> None:
        os.write(self._writer, _ONE)

    def take(self) -> None:
        """Let it be quiet. It may be so: a loop that was left and runs again calls twice."""
        with suppress(BlockingIOError):
            os.read(self.reader, len(_ONE))

    def close(self) -> None:
        os.close(self.reader)
        if self._writer != self.reader:
            os.close(self._writer)


_ONE: Final = (1).to_bytes(8, "little")
