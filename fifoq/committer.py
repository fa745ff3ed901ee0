"""The committer: gathers what all queues of a store want written and commits it, one frame a time.

It is driven by callbacks of the event loop and by the rare path of a put, which may have to run
without the loop ever turning. The log belongs to whoever is busy with it: the loop's thread while
a frame is put together, the runner while a job is under way. Callers never touch it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from fifoq.errors import QueueClosed, WrongLoop
from fifoq.histogram import Histogram
from fifoq.jobs import Call, Commit, Job, Read, Waiter, add_batch, as_ours
from fifoq.line import Batch, Claim, Line
from fifoq.options import MEMORY, SYNC, StoreOptions
from fifoq.writer import Runner
from store import FifoqError, ForkError, Log, StoreFailed

logger = logging.getLogger("fifoq")

UNSEALED_BYTES_MAX: Final = 32 << 20
"""What may wait to be sealed, with its overhead, before puts wait; as much may be under way."""
FRAME_BYTES_MAX: Final = 56 << 20
LINES_PER_FRAME_MAX: Final = 8192
SEAL_SECONDS: Final = 0.05
"""After this much silence the log is sealed, so that readers see the last commit."""
RETRY_SECONDS: Final = 0.25
"""How often records that a full disk refused are tried again."""
LINGER_TURNS_MAX: Final = 2
COMPACT_EVERY: Final = 8
"""Commits between two steps of compaction, while there is something to compact."""


class Committer:
    """Owns the log of one store, on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: StoreOptions) -> None:
        self.loop = loop
        self.options = options
        self.thread = threading.get_ident()
        self.log: Log | None = None
        self.runner: Runner | None = None
        self.failure: FifoqError | None = None
        self.closing = False
        """No new work is accepted; what was accepted is being written."""
        self.closed = False
        self.close_error: FifoqError | None = None
        self.on_sync_due: Callable[[], None] = _nothing
        self.on_idle: Callable[[], None] = _nothing
        self.lines: dict[str, Line] = {}
        self.waiting_bytes = 0
        """What waits in the tails of all lines, as far as it was counted."""
        self._room_waiters: list[asyncio.Future[None]] = []
        self._dirty: dict[Line, None] = {}
        self.waiters: list[Waiter] = []
        self._level = MEMORY
        self._due = False
        self._job: Job | None = None
        self._reads: dict[Line, None] = {}
        self._calls: deque[Call] = deque()
        self._last: Call | None = None
        self._scheduled = False
        self._windows: dict[Line, None] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_seconds = 0.0
        self._sync_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_active = 0.0
        self._unsynced_records = 0
        self._expected = 0
        self._lingered = 0
        self._kept_at = 0
        """Commits when the log was last looked after."""
        self._sparse = False
        """Segments of the log wait to be compacted."""
        self.refused: FifoqError | None = None
        """Why records that wait in memory could not be written, while that is so."""
        self.commit_count = 0
        self.record_count = 0
        self.error_count = 0
        self.linger_turns = 0
        self.syncs = Histogram()

    # Life.

    def start(self, function: Callable[[Log], object]) -> asyncio.Future[object]:
        """Run the function that opens the log; there is none yet."""
        return self._run_alone(function, None)

    def finish(self, function: Callable[[Log], object]) -> asyncio.Future[object]:
        """Run the function that closes the log, when the job that is under way has ended."""
        return self._run_alone(function, self.log)

    def _run_alone(
        self, function: Callable[[Log], object], log: Log | None
    ) -> asyncio.Future[object]:
        call = Call(function, self.loop.create_future())
        self._last = call.bound(log)
        self._schedule()
        return call.future

    def own(self, log: Log) -> None:
        self.log = log
        log.directory.files.watch_fork(self._after_fork)

    @property
    def usable(self) -> bool:
        return self.log is not None and self.failure is None and not self.closed

    @property
    def has_unwritten(self) -> bool:
        return bool(self.waiters or any(line.dirty for line in self._dirty))

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

    def begin_closing(self) -> None:
        """Accept no more work and wake everybody who waits for a turn."""
        self.closing = True
        self._give_room()
        for line in self.lines.values():
            line.store_closed()

    def retire(self) -> None:
        """Commit nothing more, and leave nobody waiting."""
        self.begin_closing()
        self.closed = True
        self.cancel_timers()
        error = QueueClosed("the store was closed before this was committed. Open it anew.")
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        for call in self._calls:
            call.fail(error)
        self._calls.clear()

    def stop(self) -> None:
        """Let the writer go. In the child of a fork it is the parent's, as are its descriptors."""
        self.closed = True
        if self.runner is not None and not isinstance(self.failure, ForkError):
            self.runner.stop()

    def _after_fork(self) -> None:
        """In the child: this store belongs to the parent."""
        self.failure = ForkError(
            "the store was opened before a fork, and only the parent may use it. Nothing was "
            "changed. Open it in one process, after forking."
        )
        for line in self.lines.values():
            line.close_windows()

    # Called from the rare paths of queues.

    def require_usable(self) -> None:
        """Raise unless this thread's running loop may use the store now."""
        if self.failure is not None:
            self._raise_failure()
        if self.closed or self.closing:
            raise QueueClosed("the store is closed. Open it anew.")
        running = asyncio._get_running_loop()
        if running is not self.loop or threading.get_ident() != self.thread:
            raise WrongLoop(
                "the queue belongs to the thread and event loop that opened it. Nothing was "
                "changed. Use fifoq.sync for threads, or open it in this loop."
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
            self._flush_seconds = seconds
            self._flush_timer = self.loop.call_later(seconds, self._flush_is_due)
        elif seconds < self._flush_seconds:
            self._flush_sooner(seconds)

    def _flush_sooner(self, seconds: float) -> None:
        """Somebody who can wait longer has set the timer."""
        timer = self._flush_timer
        assert timer is not None
        self._flush_seconds = seconds
        due = self.loop.time() + seconds
        if due < timer.when():
            timer.cancel()
            self._flush_timer = self.loop.call_at(due, self._flush_is_due)

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

    def commit_soon(self) -> None:
        """Commit what waits at the end of this turn, or as soon as the writer is free."""
        self._due = True
        if self._job is None:
            self._schedule()

    def reap(self) -> None:
        """Go on if the writer is done: for puts that follow each other without a turn."""
        runner = self.runner
        if self._job is None:
            if self._due and self._scheduled:
                self.pump()
        elif runner is not None and runner.finished:
            self.pump()
        if self.failure is not None:
            # It failed just now: whoever went on would wait for ever.
            self._raise_failure()

    def request_read(self, line: Line) -> None:
        """Bring the next records of the line's gap into memory."""
        self._reads[line] = None
        if self._job is None:
            self._schedule()

    def call(self, function: Callable[[Log], object]) -> asyncio.Future[object]:
        """Run a function with the log when it is free; nothing else has it then."""
        call = Call(function, self.loop.create_future())
        self._calls.append(call)
        if self._job is None:
            self._schedule()
        return call.future

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more may wait to be written."""
        return not self.waiting_bytes or not self.is_full(size)

    def is_full(self, size: int) -> bool:
        """Whether `size` bytes more are too many beside what was counted."""
        return self.waiting_bytes + size > UNSEALED_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Until something of what waits has been handed to the writer."""
        future = self.loop.create_future()
        self._room_waiters.append(future)
        self.commit_soon()
        await future

    def _give_room(self) -> None:
        waiting, self._room_waiters = self._room_waiters, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # The cycle.

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.pump)

    def pump(self) -> None:
        """End the job that has ended, begin the next one if there is work."""
        self._scheduled = False
        try:
            self._pump()
        except Exception as error:
            # Our own mistake: better to stop than to let anybody wait for ever.
            logger.exception("the committer failed")
            self.fail(as_ours(error), [])

    def _pump(self) -> None:
        runner = self.runner
        assert runner is not None
        if self._job is not None:
            if not runner.finished:
                return
            job, self._job = self._job, None
            job.settle(self, runner.outcome, runner.error)
            # Those who waited run first: what they want next belongs into the same frame.
            if self._has_work():
                self._schedule()
            return
        next_job = self._next_job()
        if next_job is not None:
            self._last_active = self.loop.time()
            self._job = next_job
            runner.start(next_job.run)

    def _has_work(self) -> bool:
        if self._last is not None:
            return True
        if self.failure is not None or (self.closed and not self.waiters):
            return False
        return bool(self._due or self._reads or self._calls) or (self.usable and self._upkeep_due())

    def _next_job(self) -> Job | None:
        if self._last is not None:
            job, self._last = self._last, None
            return job
        if self.failure is not None or (self.closed and not self.waiters):
            return None
        if self._reads:
            line = next(iter(self._reads))
            del self._reads[line]
            if line.gap is not None:
                return Read(self._open_log, line)
        if self._upkeep_due():
            # Before the next commit: a log that is never idle needs its checkpoints most.
            return self._upkeep()
        if self._due:
            if self._lingers():
                return None
            commit = self._seal(puts=True)
            if commit is not None:
                return commit
        if self._calls:
            return self._calls.popleft().bound(self._open_log)
        return None

    def _upkeep_due(self) -> bool:
        """Whether the log wants a checkpoint or a step of compaction, at most once a commit."""
        if self._kept_at == self.commit_count:
            return False
        if self._open_log.upkeep_due():
            return True
        return self._sparse and self.commit_count - self._kept_at >= COMPACT_EVERY

    def _upkeep(self) -> Job:
        self._kept_at = self.commit_count
        call = Call(_keep_house, self.loop.create_future())
        call.future.add_done_callback(self._kept)
        return call.bound(self._open_log)

    def _kept(self, future: asyncio.Future[object]) -> None:
        self._sparse = not future.cancelled() and not future.exception() and bool(future.result())

    @property
    def _open_log(self) -> Log:
        assert self.log is not None
        return self.log

    def _lingers(self) -> bool:
        """Wait a turn for those who were in the last frame and may be about to ask again."""
        if len(self.waiters) >= self._expected or self._lingered >= LINGER_TURNS_MAX:
            return False
        self._lingered += 1
        self.linger_turns += 1
        self._schedule()
        return True

    def _seal(self, *, puts: bool) -> Commit | None:
        """One frame of what waits; what does not fit stays due."""
        log = self._open_log
        self._due = False
        self._lingered = 0
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        draft = log.draft()
        batches: list[tuple[Line, Batch]] = []
        must_sync = False
        for line in list(self._dirty):
            self.waiting_bytes += line.count_tail()
            if batches and (
                draft.size + line.tail_bytes > FRAME_BYTES_MAX
                or len(batches) >= LINES_PER_FRAME_MAX
            ):
                self._due = True
                break
            del self._dirty[line]
            batch = line.seal(puts=puts)
            self.waiting_bytes -= batch.frame_bytes
            if batch:
                must_sync |= add_batch(draft, log, line, batch)
                batches.append((line, batch))
            else:
                line.confirm()
        self._give_room()
        waiters, self.waiters = self.waiters, []
        if self._due:
            # Flushes and those whose line did not fit wait for the next frame.
            sealed = {line for line, _ in batches}
            self.waiters = [w for w in waiters if w.line not in sealed]
            waiters = [w for w in waiters if w.line in sealed]
        level, self._level = self._level, (self._level if self._due else MEMORY)
        records = sum(batch.upto - batch.first + 1 for _, batch in batches if batch.upto)
        self._unsynced_records += records
        every = self.options.sync_every
        sync = level == SYNC or (every is not None and self._unsynced_records >= every) or must_sync
        if not batches:
            if not waiters:
                return None
            if not (sync and log.durable_upto < log.sequence):
                self._resolve(waiters)
                return None
        self._expected = len(waiters) * 3 // 4
        return Commit(log, draft if batches else None, sync, batches, waiters, level, records)

    # What jobs report.

    def committed(self, job: Commit) -> None:
        """A frame is written, and synced if it was to be."""
        if self.refused is not None and (
            any(batch.runs for _, batch in job.batches) or not any(map(_waits, self._dirty))
        ):
            self.refused = None
        if job.batches:
            self.commit_count += 1
            self.record_count += job.record_count
        for line, batch in job.batches:
            line.confirm()
            if batch.upto or batch.restored:
                line.records_came()
            if line.restored:
                self._dirty[line] = None
                self._due = True
        self._resolve(job.waiters)
        log = self._open_log
        if job.synced or log.durable_upto == log.sequence:
            self._unsynced_records = 0
            self.syncs.add(int(log.last_sync_seconds * 1e9))
        elif self._sync_timer is None and self.options.sync_interval is not None:
            self._sync_timer = self.loop.call_later(self.options.sync_interval, self._sync_is_due)
        self.watch_idleness()

    def _resolve(self, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            future = waiter.future
            if not future.done():
                future.set_result(None)
            elif waiter.claim is not None and waiter.claim.sealed and waiter.line is not None:
                # The taker left after its records were sealed: they come back with the next frame.
                self.restore(waiter.line, waiter.claim)

    def restore(self, line: Line, claim: Claim) -> None:
        """Bring back records whose removal was committed after their taker had left."""
        line.restored += claim.records
        self._dirty[line] = None
        self.commit_soon()

    def refuse(self, job: Commit, error: FifoqError) -> None:
        """Nothing of the frame was stored and the log goes on."""
        self.error_count += 1
        had_puts = any(batch.upto for _, batch in job.batches)
        for line, batch in job.batches:
            self.waiting_bytes += batch.frame_bytes
            line.unseal()
            self._dirty[line] = None
        kept = [waiter for waiter in job.waiters if had_puts and not _needs_tail(waiter)]
        for waiter in job.waiters:
            if waiter not in kept:
                self._refuse_waiter(waiter, error)
        if any(map(_waits, self._dirty)):
            self.refused = error
            for waiter in kept:
                if waiter.line is None:
                    self._refuse_waiter(waiter, error)
        if not had_puts:
            self._retry_later()
            return
        # Removals need no space of their own: try them alone.
        self.waiters = kept + self.waiters
        self._level = max(self._level, job.level)
        retry = self._seal(puts=False) if any(map(_removes, self._dirty)) or kept else None
        for line in self.lines.values():
            if line.dirty:
                self._dirty[line] = None
        if retry is not None and self.runner is not None:
            self._job = retry
            self.runner.start(retry.run)
        self._retry_later()

    def _refuse_waiter(self, waiter: Waiter, error: FifoqError) -> None:
        line = waiter.line
        if line is not None and waiter.count:
            line.withdraw(waiter.first, waiter.count)
            line.records_went()
        if line is not None and waiter.claim is not None and waiter.claim in line.claims:
            line.claims.remove(waiter.claim)
            if waiter.future.cancelled():
                line.restoring -= len(waiter.claim.records)
            for record in waiter.claim.records:
                line.give_back(record)
            line.records_came()
        if not waiter.future.done():
            waiter.future.set_exception(error)

    def _retry_later(self) -> None:
        if self._dirty and self._flush_timer is None:
            self._flush_seconds = RETRY_SECONDS
            self._flush_timer = self.loop.call_later(RETRY_SECONDS, self._flush_is_due)

    def fail(self, error: FifoqError, waiters: list[Waiter]) -> None:
        """What is on disk is unknown until a reopen: everything stops."""
        if self.failure is None:
            self.failure = error
            self.error_count += 1
            logger.error("store failed: %s", type(error).__name__)
        waiting, self.waiters = waiters + self.waiters, []
        for waiter in waiting:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        for line in self.lines.values():
            line.close_windows()
            line.records_came()
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        self._reads.clear()
        self._give_room()
        self.cancel_timers()

    # Timers.

    def _sync_is_due(self) -> None:
        self._sync_timer = None
        self.on_sync_due()

    def watch_idleness(self) -> None:
        """Have the log sealed after a while in which nothing happens."""
        if self._idle_timer is None and not self.closed:
            self._idle_timer = self.loop.call_later(SEAL_SECONDS, self._look_for_idleness)

    def _look_for_idleness(self) -> None:
        self._idle_timer = None
        if self.failure is not None or self.closed:
            return
        idle = self.loop.time() - self._last_active
        if self._job is not None or self._due or idle < SEAL_SECONDS * 0.9:
            self.watch_idleness()
            return
        log = self._open_log
        if log.durable_upto == log.sequence or self.options.sync_interval is not None:
            self.on_idle()

    def cancel_timers(self) -> None:
        for timer in (self._flush_timer, self._sync_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._sync_timer = self._idle_timer = None


def _waits(line: Line) -> bool:
    """Whether records of the line wait to be written."""
    return len(line.tail) > line.tail.count(None)


def _needs_tail(waiter: Waiter) -> bool:
    """Whether what the waiter waits for can not be committed without records of the tail."""
    line, claim = waiter.line, waiter.claim
    if line is None:
        return False
    if claim is not None:
        return claim.last >= line.tail_first
    return bool(waiter.count) or waiter.first >= line.tail_first


def _removes(line: Line) -> bool:
    return bool(
        line.removed or line.claims or line.acked or line.dropped or line.leases or line.restored
    )


def _nothing() -> None:
    pass


def _keep_house(log: Log) -> bool:
    """Checkpoint and reclaim if that is due, and compact a step; True if there is more."""
    log.keep_house()
    return log.compact()
