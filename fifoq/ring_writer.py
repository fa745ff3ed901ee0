"""The writer with a ring: ordinary commits need no thread and wait for no interpreter.

They are begun in the loop's own step and written by the kernel: what is synced past the page cache,
what is not into it, and so are zeros ahead of that. Everything else (large frames, the upkeep,
reading, whatever is out of the ordinary) goes to the thread, as does all of it where there is no
ring. While a commit that somebody waits for is young the loop looks for its end in each of its
turns instead of going to sleep: a quick disk is done before a processor that fell asleep is awake
again.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fifoq.direct import DirectTail
from fifoq.file_clock import FileClock
from fifoq.uring import Ring
from fifoq.writer import NOT_HANDED_OVER, WATCH_SECONDS, Job, Rest, Started, Writer
from store import Begun
from store.directory import PASSING_ERRNOS, SPACE_ERRNOS
from store.osfiles import OsFiles

LOOK_SECONDS: Final = 0.0008
"""How long the loop looks for a commit's end before it sleeps; slower disks are not looked at."""
NOTE_SECONDS: Final = 0.00005
"""When a write that is under way is noted: what the kernel refuses, itself or by a thread of its
own that it hands the write to, it has refused by then, and the disk is seldom done."""
WRITER_VARIABLE: Final = "FIFOQ_WRITER"
"""The environment's word on the writer: `thread` leaves the ring alone."""
RING: Final = "io_uring"
_NOT_HERE: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ECANCELED}
"""What says that a write was not tried and that no other will be: the kernel has no thread for it,
or the file system no such writes."""
_NOT_NOW: Final = {errno.EAGAIN, *SPACE_ERRNOS, *PASSING_ERRNOS}
"""What says so of one write alone; the thread tries it, and tells if it cannot either."""
_MAY_COME: Final = {errno.EAGAIN, *SPACE_ERRNOS}
"""What a synced write may end with and be tried again: nothing of it was synced."""


class RingWriter:
    """The runner of a live store where the kernel has rings. OSError where it has none."""

    under_way: Final[set[RingWriter]] = set()
    """Those of this process whose memory the kernel may be reading: they must not go."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._begun: Started | None = None
        self._begun_at = 0.0
        self._length = self._end_offset = self._taken = 0
        self._awaited = self._at_once = False
        self._in_ring = self._ended = False
        self._error: BaseException | None = None
        self._quick = True
        """The last commit that was awaited was over before the loop would have stopped looking."""
        self._looking = self._stopped = False
        self._watch_at = 0.0
        """When somebody sees to what is under way then, if that is to come."""
        self._direct = DirectTail()
        self._clock = FileClock()
        ring = Ring()
        self._ring: Ring | None = ring
        try:
            self._writer = Writer(loop, on_end, name)
            try:
                loop.add_reader(ring.eventfd, self._woken)
            except BaseException:
                self._writer.stop()
                raise
        except BaseException:
            ring.close()
            raise
        OsFiles().watch_fork(self._after_fork)

    @property
    def kind(self) -> str:
        return Writer.kind if self._ring is None else RING

    @property
    def beside(self) -> bool:
        return self._ring is not None

    @property
    def finished(self) -> bool:
        if self._in_ring and self._begun is not None and self._ring is not None:
            self._look()
        # What the ring did not do may have gone to the thread.
        return self._ended if self._in_ring else self._writer.finished

    @property
    def outcome(self) -> object:
        return None if self._in_ring else self._writer.outcome

    @property
    def error(self) -> BaseException | None:
        return self._error if self._in_ring else self._writer.error

    def start(self, job: Job) -> None:
        if self._begun is not None:
            # Its committer was interrupted and gave it up.
            self._join_ring()
        # First: whatever is raised here, the end of the last job is not the end of this one.
        self._writer.error, self._in_ring = NOT_HANDED_OVER, False
        ring = self._ring
        self._awaited = job.awaited
        begun: Started | None = None
        try:
            if ring is not None:
                try:
                    begun = job.begin()
                except MemoryError:
                    # Nothing was begun; whoever runs the job is told.
                    pass
            if ring is not None and begun is not None:
                self._in_ring, self._ended = True, False
                self._submit(ring, begun)
                return
        except BaseException as error:
            if begun is None:
                raise
            if self._kernel_has_it:
                self._join_ring()
                raise
            if isinstance(error, (OSError, MemoryError)):
                # What lies in the ring and was not taken must never be submitted.
                lies = self._begun is not None
                self._leave(
                    begun,
                    for_good=lies or (isinstance(error, OSError) and error.errno not in _NOT_NOW),
                )
                return
            self._give_up(begun)
            self._drop_ring()
            raise
        self._writer.start(job)

    def _submit(self, ring: Ring, begun: Started) -> None:
        """Have the kernel write it. OSError: it has nothing of it."""
        direct = self._direct
        direct.follow(begun)
        if isinstance(begun, Begun) and begun.sync:
            offset, self._length = direct.stage(begun)
            handle, address = direct.handle, direct.address
            self._at_once = self._clock.stands_still(begun.file)
        else:
            # The page cache may make it wait.
            self._at_once = False
            offset, self._length, handle = begun.offset, len(begun.frame), begun.file.handle
            address = ctypes.addressof(ctypes.c_char.from_buffer(begun.frame))
        self._end_offset = offset + self._length
        looks = self._quick and self._awaited
        ring.use_eventfd(not looks)
        self.under_way.add(self)
        self._taken = ring.taken
        self._begun, self._begun_at = begun, time.perf_counter()
        ring.write(
            *(handle, address, self._length, offset), durably=begun.sync, at_once=self._at_once
        )
        if looks and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look_again)
        if self._begun_at >= self._watch_at:
            self._watch_later(self._begun_at)

    def stop(self, last: Callable[[], None] | None = None) -> None:
        if self._stopped:
            return
        self._stopped = True
        if last is not None and self._begun is not None:
            last = self._left_to_the_thread(last)
        if self._begun is None:
            self._drop_ring()
        elif self._ring is not None:
            # What the kernel is at ends first.
            self._ring.use_eventfd(True)
        self._writer.stop(last)

    def _left_to_the_thread(self, last: Callable[[], None]) -> Callable[[], None]:
        """What the kernel is at is waited for elsewhere: its loop may end without it."""
        ring, self._ring = self._ring, None
        assert ring is not None
        if not self._loop.is_closed():
            self._loop.remove_reader(ring.eventfd)

        def wait() -> None:
            try:
                ring.wait()
            finally:
                ring.close()
                self.under_way.discard(self)
                last()

        return wait

    def join(self) -> None:
        self._join_ring()
        self._writer.join()

    @property
    def _kernel_has_it(self) -> bool:
        """Whether what is under way was taken from the ring."""
        ring = self._ring
        return self._begun is not None and ring is not None and ring.taken != self._taken

    def _join_ring(self) -> None:
        """Wait for the kernel. The thread gets nothing of it: another job may follow at once."""
        if self._begun is not None and self._ring is not None:
            self._ring.wait()
            self._look(tries_again=False)

    def _look(self, *, tries_again: bool = True) -> None:
        """End the commit that is under way if the kernel has ended it.

        What it did not do is left to the thread, or has failed if that is not to be.
        """
        ring, begun = self._ring, self._begun
        assert ring is not None
        assert begun is not None
        result = ring.result()
        if result is None:
            return
        seconds = time.perf_counter() - self._begun_at
        if self._awaited:
            self._quick = seconds < LOOK_SECONDS
        if result == self._length:
            # Who is interrupted in here finds the result again, and may end the commit once more.
            self._note_written(begun, seconds)
            ring.next()
        elif tries_again and self._may_be_tried_again(begun, result):
            # A direct write that is short is none; any other may find a full disk half way.
            never = -result in _NOT_HERE or (begun.sync and result >= 0)
            self._leave(begun, for_good=never and _may_reach(self._end_offset))
        else:
            number = -result if result < 0 else errno.EIO
            self._end(begun.fail(OSError(number, os.strerror(number))))
            ring.next()
        if self._stopped:
            self._drop_ring()

    def _note_written(self, begun: Started, seconds: float) -> None:
        error: BaseException | None = None
        noted = False
        try:
            begun.end(seconds)
            noted = True
        except Exception as raised:
            error = raised
        finally:
            if noted:
                self._end(None)
            else:
                # Nobody may take the commit for a good one, or for none.
                self._give_up(begun, error)
        if noted and isinstance(begun, Begun) and begun.sync:
            try:
                self._direct.written(begun)
            except Exception:
                # What is not kept is only read again.
                pass

    def _may_be_tried_again(self, begun: Started, result: int) -> bool:
        """Whether that result says that nothing failed but the attempt.

        So it is of all that was not to be synced: writing its bytes again is no second sync.
        """
        return not self._stopped and (
            not begun.sync or result >= 0 or -result in _NOT_HERE or -result in _MAY_COME
        )

    def _give_up(self, begun: Started, error: BaseException | None = None) -> None:
        """Let nobody wait for what was begun: it is not known what becomes of it."""
        failure: BaseException = NOT_HANDED_OVER
        try:
            failure = begun.fail(NOT_HANDED_OVER)
        finally:
            # Even without memory to say more.
            self._end(error or failure)

    def _end(self, error: BaseException | None) -> None:
        # In this order: whoever is interrupted in here finds the result again.
        self._error = error
        self._ended = True
        self._begun = None
        self.under_way.discard(self)

    def _look_again(self) -> None:
        """Look in each turn while the commit is young; then let the eventfd tell."""
        ring = self._ring
        if self._begun is None or ring is None:
            self._looking = False
        elif (seconds := time.perf_counter() - self._begun_at) < LOOK_SECONDS:
            # The kernel's own thread that ends the write may be kept from this very processor.
            os.sched_yield()
            self._look_and_report()
            begun = self._begun
            if begun is None:
                self._looking = False
                return
            self._loop.call_soon(self._look_again)
            self._clock.observe()
            if (
                self._at_once
                and isinstance(begun, Begun)
                and begun.noted is False
                and seconds > NOTE_SECONDS
                and _may_reach(self._end_offset)
            ):
                # What fails here is told at the end.
                with suppress(Exception):
                    begun.note()
        else:
            self._looking = False
            ring.use_eventfd(True)
            self._look_and_report()
            if self._begun is not None:
                self._loop.call_later(LOOK_SECONDS, self._look_and_report)

    def _watch_later(self, now: float) -> None:
        self._watch_at = now + WATCH_SECONDS
        self._loop.call_later(WATCH_SECONDS, self._watch)

    def _watch(self) -> None:
        """See to a commit that nobody looks for: whoever did may have been interrupted anywhere.

        So may whoever was to tell of its end, or to hand it to the thread.
        """
        ring, now = self._ring, time.perf_counter()
        self._watch_at = 0.0
        if ring is None:
            return
        if self._begun is not None:
            self._watch_later(now)
            if now - self._begun_at > 2 * LOOK_SECONDS:
                self._looking = False
                ring.use_eventfd(True)
            self._look_and_report()
        elif self.finished:
            self._on_end()

    def _woken(self) -> None:
        if self._ring is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._ring.eventfd)
        self._look_and_report()

    def _look_and_report(self) -> None:
        if self._begun is not None and self._ring is not None:
            try:
                self._look()
            finally:
                if self._in_ring and self._ended:
                    self._on_end()

    def _leave(self, begun: Started, *, for_good: bool) -> None:
        """Let the thread write what was begun, and whatever follows if this says so."""
        rest = Rest(begun, awaited=self._awaited)
        self.under_way.discard(self)
        # Up to here whoever is interrupted finds it in the ring again, and from here on the thread
        # has it, or nobody and its end is an error. A result that nobody fetched is not that of the
        # next request.
        self._writer.error = NOT_HANDED_OVER
        self._begun, self._in_ring = None, False
        self._writer.start(rest)
        if for_good:
            self._drop_ring()

    def _drop_ring(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(ring.eventfd)
            ring.close()

    def _after_fork(self) -> None:
        """In the child: the ring is the parent's, and so is what it writes."""
        ring, self._ring, self._begun = self._ring, None, None
        self.under_way.discard(self)
        if ring is not None:
            # Not taken from the loop: what that watches with is the parent's too.
            ring.close()


def _may_reach(offset: int) -> bool:
    """Whether this process may write up to there; else a part of the frame is refused."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit == resource.RLIM_INFINITY or offset <= limit


def live_writer(
    loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
) -> RingWriter | Writer:
    """The best runner that this machine has, unless the environment asks for the thread."""
    wanted = os.environ.get(WRITER_VARIABLE, RING)
    if wanted not in (RING, Writer.kind):
        raise ValueError(
            f"{WRITER_VARIABLE}={wanted!r} is neither {RING} nor {Writer.kind}. Nothing was opened."
        )
    if wanted == RING:
        with suppress(OSError):
            return RingWriter(loop, on_end, name)
    return Writer(loop, on_end, name)
