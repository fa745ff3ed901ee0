"""The writer with a ring: small commits that are synced need no thread and wait for no interpreter.

They are begun in the loop's own step and written by the kernel. Everything else (large frames, the
upkeep, reading, whatever is out of the ordinary) goes to the thread, as does all of it where there
is no ring. While a commit is young the loop looks for its end in each of its turns instead
of going to sleep: a quick disk is done before a processor that fell asleep is awake again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fifoq.direct import DirectTail
from fifoq.uring import Ring
from fifoq.writer import Job, Rest, Writer
from store import Begun

LOOK_SECONDS: Final = 0.0003
"""How long the loop looks for a commit's end before it sleeps; slower disks are not looked at."""
WRITER_VARIABLE: Final = "FIFOQ_WRITER"
"""The environment's word on the writer: `thread` leaves the ring alone."""
_NOT_TRIED: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.EAGAIN)
"""What says that a direct write was not even tried; nothing else is tried a second time."""


class RingWriter:
    """The runner of a live store where the kernel has rings. OSError where it has none."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> None:
        ring = Ring()
        self._ring: Ring | None = ring
        self._direct = DirectTail()
        try:
            self._writer = Writer(loop, on_end, name)
        except BaseException:
            ring.close()
            raise
        self._loop = loop
        self._on_end = on_end
        self._begun: Begun | None = None
        self._begun_at = 0.0
        self._length = 0
        self._in_ring = False
        self._error: BaseException | None = None
        self._quick = True
        """The last commit was over before the loop would have stopped looking."""
        self._looking = False
        self._stopped = False
        ring.tell(by_eventfd=True)
        loop.add_reader(ring.eventfd, self._told)

    @property
    def kind(self) -> str:
        return self._writer.kind if self._ring is None else "io_uring"

    @property
    def finished(self) -> bool:
        if not self._in_ring:
            return self._writer.finished
        if self._begun is not None:
            self._look()
        # What the ring did not do may have gone to the thread.
        return self._begun is None if self._in_ring else self._writer.finished

    @property
    def outcome(self) -> object:
        return None if self._in_ring else self._writer.outcome

    @property
    def error(self) -> BaseException | None:
        return self._error if self._in_ring else self._writer.error

    def start(self, job: Job) -> None:
        ring = self._ring
        begun = _begin(job) if ring is not None else None
        if ring is None or begun is None:
            self._in_ring = False
            self._writer.start(job)
            return
        try:
            offset, self._length = self._direct.stage(begun)
        except OSError as error:
            self._leave(begun, for_good=error.errno != errno.EAGAIN)
            return
        self._begun, self._in_ring = begun, True
        looks = self._quick and threading.active_count() <= 1 + len(Writer.alive)
        ring.tell(by_eventfd=not looks)
        self._begun_at = time.perf_counter()
        try:
            ring.write(self._direct.descriptor, self._direct.address, self._length, offset)
        except OSError:
            # The request may lie in the ring still: it must never be submitted.
            self._begun = None
            self._leave(begun, for_good=True)
            return
        except BaseException:
            # An interrupt: whether the kernel has the request is not known.
            self._begun = None
            self._error = begun.fail(OSError(errno.EINTR, os.strerror(errno.EINTR)))
            self._drop_ring()
            raise
        if looks and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look_again)

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._ring is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._ring.eventfd)
        if self._begun is None:
            self._drop_ring()
        self._writer.stop()

    def join(self) -> None:
        if self._begun is not None and self._ring is not None:
            self._ring.wait()
            self._look()
            self._drop_ring()
        self._writer.join()

    def _look(self) -> None:
        """End the commit that is under way if the kernel has ended it."""
        ring, begun = self._ring, self._begun
        assert ring is not None
        assert begun is not None
        result = ring.result()
        if result is None:
            return
        self._begun = None
        seconds = time.perf_counter() - self._begun_at
        self._quick = seconds < LOOK_SECONDS
        if result == self._length:
            self._direct.written(begun)
            try:
                begun.end(seconds)
                self._error = None
            except BaseException as error:
                self._error = error
            return
        self._direct.forget()
        if (result >= 0 or -result in _NOT_TRIED) and not self._stopped:
            self._leave(begun, for_good=True)
        else:
            self._error = begun.fail(OSError(max(-result, 0), os.strerror(max(-result, 0))))

    def _look_again(self) -> None:
        """Look in each turn while the commit is young; then let the eventfd tell."""
        ring = self._ring
        if self._begun is None or ring is None:
            self._looking = False
        elif time.perf_counter() - self._begun_at < LOOK_SECONDS:
            self._look()
            if self._begun is None:
                self._looking = False
                self._report()
            else:
                self._loop.call_soon(self._look_again)
        else:
            self._looking = False
            ring.tell(by_eventfd=True)
            self._look()
            if self._begun is None:
                self._report()

    def _told(self) -> None:
        if self._ring is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._ring.eventfd)
        if self._begun is not None:
            self._look()
            if self._begun is None:
                self._report()

    def _report(self) -> None:
        if self._in_ring:
            self._on_end()

    def _leave(self, begun: Begun, *, for_good: bool) -> None:
        """Let the thread write what was begun, and whatever follows if this says so."""
        self._in_ring = False
        if for_good:
            self._drop_ring()
        self._writer.start(Rest(begun))

    def _drop_ring(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            if not self._stopped:
                self._loop.remove_reader(ring.eventfd)
            ring.close()
        self._direct.close()


def _begin(job: Job) -> Begun | None:
    try:
        return job.begin()
    except MemoryError:
        # Nothing was begun; whoever runs the job is told.
        return None


def live_writer(
    loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
) -> RingWriter | Writer:
    """The best runner that this machine has, unless the environment asks for the thread."""
    if os.environ.get(WRITER_VARIABLE) != Writer.kind:
        with suppress(OSError):
            return RingWriter(loop, on_end, name)
    return Writer(loop, on_end, name)
