"""What a store's queues bring to be committed, gathered until the committer takes it.

This is the owner's batching mailbox: callers append in their own step, and a batch is closed when
somebody waits for it, when a buffer is full, or when its time is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fifoq.errors import QueueClosed, WrongLoop
from fifoq.histogram import Histogram
from fifoq.holding import LOOK_SECONDS, Consumers
from fifoq.jobs import Call, Job, Waiter
from fifoq.joint import Joints
from fifoq.line import Line
from fifoq.log_opening import Leaving
from fifoq.options import MEMORY, SYNC, StoreOptions
from fifoq.pins import Pin, pins_of
from fifoq.runs import FRAME_BYTES_MAX
from fifoq.writer import WATCH_SECONDS, Runner
from store import FifoqError, ForkError, Log, StoreFailed

if TYPE_CHECKING:
    from fifoq.schedules import Schedules

UNSEALED_BYTES_MAX: Final = 20 << 20
"""What may wait to be sealed, with its overhead, before puts wait; as much may be under way.

Frames of up to 32 MiB come from the allocator's heap, which keeps twice the largest: with 28 MiB
here a backlog cost 66 MB, with 20 MiB 28 MB, at the same speed.
"""
UVLOOP_STEP_NS: Final = 1_000_000
"""Its clock counts milliseconds; that of asyncio is exact."""
ALONE_MIN: Final = 3
"""After so many commits for one caller alone, the next one waits for no other."""


class Follower(Protocol):
    """Somebody who reads a queue's records as they are committed."""

    def records_came(self) -> None: ...

    def store_closed(self) -> None:
        """It is being closed, or has failed."""


class Intake:
    """The state of a committer, and the half of it that queues see."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: StoreOptions, path: str = "the store"
    ) -> None:
        self.loop = loop
        self.clock_step = UVLOOP_STEP_NS if type(loop).__module__ == "uvloop" else 0
        """By how many nanoseconds the loop's clock may be behind."""
        self.path = path
        self.options = options
        self.thread = threading.get_ident()
        self.log: Log | None = None
        self.runner: Runner | None = None
        self.failure: FifoqError | None = None
        self.closing = False
        """No new work is accepted; what was accepted is being written."""
        self.closed = False
        self.close_error: FifoqError | None = None
        self.lost_unheard: bool | None = None
        """Whether the failure took records along whose put nobody waited for."""
        self.on_sync_due: Callable[[], None] = _nothing
        self.on_idle: Callable[[], None] = _nothing
        self.on_consumers_due: Callable[[], None] = _nothing
        self.before_release: list[Callable[[Log], None]] = []
        """What is to be done with the log before the directory is let go."""
        self.consumers = Consumers(options.cursor_cap_bytes)
        self._consumer_timer: asyncio.TimerHandle | None = None
        self.schedules: Schedules
        self.followers: dict[str, list[Follower]] = {}
        """Who is to hear of new records of a queue, by its name."""
        self.lines: dict[str, Line] = {}
        self.waiting_bytes = 0
        """What waits in the tails of all lines, as far as it was counted."""
        self.sealed_bytes = 0
        """What is under way."""
        self.closing_waiters: list[asyncio.Future[None]] = []
        self._room_waiters: list[asyncio.Future[None]] = []
        self._dirty: dict[Line, None] = {}
        self.waiters: list[Waiter] = []
        self.joints = Joints(self)
        self._level = MEMORY
        self._due = False
        self._job: Job | None = None
        self._settling: Job | None = None
        self._at_hand: Sequence[Waiter] | None = None
        """While a job is begun: those who wait for it, whom nobody else may know of yet."""
        self._reads: dict[Line, None] = {}
        self._calls: deque[Call] = deque()
        self._passed_calls = 0
        """Commits that were made while calls waited."""
        self._last: Call | None = None
        self._leaving = Leaving(path)
        self._scheduled = False
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watch_at = 0.0
        """When somebody sees to a pump that is due, if that is to come."""
        self._windows: dict[Line, None] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_seconds = self._flush_at = 0.0
        self._sync_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_active = 0.0
        self.unsynced_records = 0
        """Records in frames that are written, and that no sync covers yet."""
        self._expected = 0
        self._alone = 0
        """How many commits in a row had one waiter each."""
        self._lingered = 0
        self._upkeep_due = False
        """The log wants a checkpoint or a step of compaction; looked at once a commit."""
        self._kept_at = 0
        """Commits when the log was last looked after."""
        self._sparse = False
        """Segments of the log wait to be compacted."""
        self._compact_at = 0.0
        """When the next step of compaction may be, as far as others have work for the writer."""
        self._pins: dict[str, tuple[Pin, ...]] = {}
        self.refused: FifoqError | None = None
        """Why records that wait in memory could not be written, while that is so."""
        self.commit_count = 0
        self.record_count = 0
        self.error_count = 0
        self.linger_turns = 0
        self.syncs = Histogram()

    @property
    def usable(self) -> bool:
        return self.log is not None and self.failure is None and not self.closed

    @property
    def has_unwritten(self) -> bool:
        return bool(self.waiters or self.joints.waiting or any(line.dirty for line in self._dirty))

    # Called from the rare paths of queues.

    def require_usable(self) -> None:
        """Raise unless this thread's running loop may use the store now."""
        if self.failure is not None:
            self._raise_failure()
        if self.closed or self.closing:
            raise QueueClosed(f"{self.path}: the store is closed. Open it anew.")
        running = asyncio._get_running_loop()
        if running is not self.loop or threading.get_ident() != self.thread:
            raise self._wrong_loop()

    def require_no_other(self) -> None:
        """Raise in another thread, and where another loop runs: whatever state the store is in."""
        running = asyncio._get_running_loop()
        if threading.get_ident() != self.thread or running not in (None, self.loop):
            raise self.failure if isinstance(self.failure, ForkError) else self._wrong_loop()

    def _wrong_loop(self) -> WrongLoop:
        return WrongLoop(
            f"{self.path}: the queue belongs to the thread and event loop that opened it. "
            f"Nothing was changed. Use fifoq.sync for threads; from another loop, close it "
            f"first and open it anew."
        )

    def _raise_failure(self) -> None:
        failure = self.failure
        assert failure is not None
        if isinstance(failure, ForkError):
            raise failure
        raise StoreFailed(
            f"an earlier failure stopped the store ({failure}). Everything confirmed before it is "
            f"safe; what was under way is known after a reopen. Close it, see to the disk, reopen."
        ) from failure

    def open_window(self, line: Line) -> None:
        """The line's window, just opened, closes when the loop turns."""
        if not self._windows:
            self.loop.call_soon(self._end_turn)
        self._windows[line] = None

    def _end_turn(self) -> None:
        for line in self._windows:
            line.close_windows()
        self._windows.clear()

    def touch(self, line: Line, seconds: float | None) -> None:
        """The line has, or will have in this turn, something to commit within that time."""
        self._dirty[line] = None
        if seconds is None or self._due:
            return
        if self._flush_timer is None:
            self._set_flush_timer(seconds)
        elif seconds < self._flush_seconds:
            self._flush_sooner(seconds)

    def _set_flush_timer(self, seconds: float) -> None:
        self._flush_seconds = seconds
        self._flush_at = self.loop.time() + seconds
        self._flush_timer = self.loop.call_later(seconds, self._flush_is_due)

    def _flush_sooner(self, seconds: float) -> None:
        """Somebody who can wait longer has set the timer."""
        timer = self._flush_timer
        assert timer is not None
        # Not `timer.when()`: uvloop has none on a timer that is due at once.
        if self.loop.time() + seconds < self._flush_at:
            timer.cancel()
            self._set_flush_timer(seconds)

    def _flush_is_due(self) -> None:
        self._flush_timer = None
        if self._dirty:
            self.commit_soon()

    def wait(self, waiter: Waiter, level: int) -> None:
        """Resolve the waiter with the next commit, which is at that level at least."""
        self.waiters.append(waiter)
        if level > self._level:
            self._level = level
        self.commit_soon()

    def wait_for(self, line: Line, waiter: Waiter, level: int) -> None:
        """The same for what the line just got; at once if its callers have long come one by one."""
        self._dirty[line] = None
        if self._alone < ALONE_MIN or self._job is not None or self.waiters:
            self.wait(waiter, level)
            return
        self.waiters.append(waiter)
        if level > self._level:
            self._level = level
        self._due = True
        self.pump()

    def raise_level(self, level: int) -> None:
        """The next commit is at that level at least."""
        if level > self._level:
            self._level = level

    def forget(self, line: Line) -> None:
        """The line is nobody's any more."""
        self._dirty.pop(line, None)

    def commit_soon(self) -> None:
        """Commit what waits at the end of this turn, or as soon as the writer is free."""
        self._due = True
        if self._job is None:
            self._schedule()

    def request_read(self, line: Line) -> None:
        """Bring the next records of the line's gap into memory."""
        self._reads[line] = None
        if self._job is None:
            self._schedule()

    def call(self, function: Callable[[Log], object]) -> asyncio.Future[object]:
        """Run a function with the log when it is free; nothing else has it then."""
        return self.run_call(Call(function, self.loop.create_future()))

    def run_call(self, call: Call) -> asyncio.Future[object]:
        """The same for a call that was made before."""
        self._calls.append(call)
        if self._job is None:
            self._schedule()
        return call.future

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more may wait to be written."""
        return not (self.waiting_bytes or self.sealed_bytes) or not self.is_full(size)

    def is_full(self, size: int) -> bool:
        """Whether `size` bytes more are too many beside what was counted.

        What is under way counts as well: refused, it must fit into one frame with what waits.
        """
        waiting = self.waiting_bytes + size
        return waiting > UNSEALED_BYTES_MAX or waiting + self.sealed_bytes > FRAME_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Until something of what waits has been handed to the writer."""
        future = self.loop.create_future()
        self._room_waiters.append(future)
        self.commit_soon()
        await future

    def _give_room(self) -> None:
        if not self._room_waiters:
            return
        # They are forgotten last: whoever is interrupted in here is told of nobody.
        for future in self._room_waiters:
            if not future.done():
                future.set_result(None)
        self._room_waiters = []

    @property
    def all_durable(self) -> bool:
        """Whether a sync covers everything that was written."""
        log = self._open_log
        return log.durable_upto >= log.sequence

    async def flush(self) -> None:
        """Make everything durable that any queue has put, taken or acked."""
        waiter = Waiter(self.loop.create_future())
        self.wait(waiter, SYNC)
        await waiter.future

    async def flush_all(self) -> None:
        """Flush, and once more if that left something: a taker who left has its record back."""
        await self.flush()
        while self.has_unwritten:
            await self.flush()

    def _schedule(self) -> None:
        if not self._scheduled:
            # In this order: twice is fine, and whoever is interrupted here must not leave none.
            now = self.loop.time()
            if now >= self._watch_at:
                self._watch_timer = self.loop.call_later(WATCH_SECONDS, self._see_to_it)
                self._watch_at = now + WATCH_SECONDS
            self.loop.call_soon(self.pump)
            self._scheduled = True

    def _see_to_it(self) -> None:
        """Pump if that is due: who was interrupted as a pump began has left none to come."""
        self._watch_at = 0.0
        if self._scheduled:
            self.pump()

    def cancel_timers(self) -> None:
        for timer in (
            self._flush_timer,
            self._sync_timer,
            self._idle_timer,
            self._consumer_timer,
            self._watch_timer,
        ):
            if timer is not None:
                timer.cancel()
        self._watch_timer, self._watch_at = None, 0.0
        self._flush_timer = self._sync_timer = self._idle_timer = self._consumer_timer = None

    def watch_consumers(self) -> None:
        """Have somebody look at the consumers after a while, as long as there are any."""
        if self._consumer_timer is None and self.consumers and self.usable:
            self._consumer_timer = self.loop.call_later(LOOK_SECONDS, self._consumers_are_due)

    def pins(self, queue: str, leased: Container[int]) -> tuple[Pin, ...]:
        """Why segments stay because of the queue: now, or at the last call if the log is busy."""
        if self._job is None and self.log is not None and self.usable:
            self._pins[queue] = pins_of(self.log, self.consumers, queue, leased)
        return self._pins.get(queue, ())

    def _consumers_are_due(self) -> None:
        self._consumer_timer = None
        self.on_consumers_due()

    @property
    def _open_log(self) -> Log:
        assert self.log is not None
        return self.log

    def pump(self) -> None:
        """Go on with what is to be written; the committer does it."""
        raise AssertionError("an intake alone writes nothing")


def _nothing() -> None:
    pass
