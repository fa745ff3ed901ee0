"""The committer: gathers what all queues of a store want written and commits it, one frame a time.

It is driven by callbacks of the event loop and by the rare path of a put, which may have to run
without the loop ever turning. The log belongs to whoever is busy with it: the loop's thread while
a frame is put together, the runner while a job is under way. Callers never touch it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from fifoq.closing import close_log
from fifoq.errors import QueueClosed
from fifoq.jobs import (
    READ_RECORDS,
    Call,
    Commit,
    Fill,
    Job,
    Read,
    add_batch,
    as_ours,
    counters_run_low,
    look_away,
    marks_after,
)
from fifoq.line import Line
from fifoq.logs import fields, name_of
from fifoq.options import MEMORY, SYNC
from fifoq.runs import FRAME_BYTES_MAX, LINES_PER_FRAME_MAX, Batch, time_runs
from fifoq.settling import Settling, needs_tail, waits
from store import FifoqError, ForkError, Log

logger = logging.getLogger("fifoq")

LINGER_TURNS_MAX: Final = 2
CALL_AFTER: Final = 8
"""Commits that may be made before a call that waits: producers that never pause do not stop it."""
COMPACT_BYTES: Final = 256 << 10
"""How much such a step copies."""
COMPACT_PAUSE: Final = 9
"""A step of compaction is followed by so many times its length without one, under load."""
COMPACT_PAUSE_BEHIND: Final = 1
"""The same once more than `BEHIND` times the live bytes are on disk, and some segments."""
BEHIND: Final = 4


_NO_LINES: Final[dict[Line, None]] = {}


class Committer(Settling):
    """Owns the log of one store, on one event loop."""

    # Life.

    def start(self, function: Callable[[Log], object]) -> asyncio.Future[object]:
        """Run the function that opens the log; there is none yet."""
        return self._run_alone(function, None)

    def finish(self) -> asyncio.Future[object]:
        """Close the log, when the job that is under way has ended."""
        return self._run_alone(partial(self._close_log, self._given()), self.log)

    def _given(self) -> dict[str, int]:
        return {name: line.next - 1 for name, line in self.lines.items()}

    def _close_log(self, given: dict[str, int], log: Log) -> None:
        try:
            close_log(given, self.before_release, log)
        finally:
            self._leaving.end()

    def _run_alone(
        self, function: Callable[[Log], object], log: Log | None
    ) -> asyncio.Future[object]:
        call = Call(function, self.loop.create_future())
        self._last = call.bound(log)
        self._schedule()
        return call.future

    def own(self, log: Log) -> None:
        self.log = log
        self._fill = Fill(log)
        log.directory.files.watch_fork(self._after_fork)

    def begin_closing(self) -> None:
        """Accept no more work and wake everybody who waits for a turn."""
        self.closing = True
        self._give_room()
        for future in self.closing_waiters:
            if not future.done():
                future.set_result(None)
        for line in self.lines.values():
            line.store_closed()
        self._leave_followers()

    def retire(self) -> None:
        """Commit nothing more, and leave nobody waiting."""
        self.begin_closing()
        self.closed = True
        self.cancel_timers()
        error = QueueClosed("the store was closed before this was committed. Open it anew.")
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self.waiters = []
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        self.joints.retire()

    def close_without_loop(self) -> None:
        """Let the directory go after the loop ended; nobody can be told anything any more."""
        if not self.closed:
            self._tell_of_unwritten()
        self.closed = True
        if self.runner is not None:
            self.runner.stop()
            self.runner.join()
        if self.log is not None:
            self._close_log(self._given(), self.log)

    def cut_short(self) -> None:
        """Let go as the loop ends, without the end of what is under way. If closed, do nothing."""
        if not self.closed:
            self._tell_of_unwritten()
            self.retire()
            self.stop()

    def _tell_of_unwritten(self) -> None:
        unwritten = sum(len(line.tail) for line in self.lines.values())
        if unwritten:
            logger.error(
                "a store's loop ended before %d records were written",
                unwritten,
                extra=fields("unwritten", self.path, count=unwritten),
            )

    def stop(self) -> None:
        """Let the writer go, and the directory, if the closing of the log did not come so far.

        In the child of a fork the writer is the parent's, as are its descriptors.
        """
        self.closed = True
        # What was not begun is not begun any more.
        self._last = None
        log, runner = self.log, self.runner
        if runner is None or isinstance(self.failure, ForkError):
            return
        if log is None:
            runner.stop()
        elif runner.finished:
            self._let_go()
            runner.stop()
        else:
            self._leaving.begin()
            runner.stop(self._let_go)

    def _let_go(self) -> None:
        try:
            self._open_log.release()
        finally:
            self._leaving.end()

    def _after_fork(self) -> None:
        """In the child: this store belongs to the parent."""
        self.failure = ForkError(
            "the store was opened before a fork, and only the parent may use it. Nothing was "
            "changed. Open it in one process, after forking."
        )
        for line in self.lines.values():
            line.close_windows()

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

    # The cycle.

    def pump(self) -> None:
        """End the job that has ended, begin the next one if there is work."""
        self._scheduled = False
        try:
            self._pump()
        except Exception as error:
            # Our own mistake: better to stop than to let anybody wait for ever. And should that
            # fail too, the next pump finds what is left.
            self._schedule()
            self._abandon(as_ours(error))
            logger.exception(
                "the committer failed", extra=fields("bug", self.path, error=name_of(error))
            )
        except BaseException as error:
            # An interrupt: nobody knows how far the job at hand has come.
            self._schedule()
            self._abandon(as_ours(error))
            raise

    def _abandon(self, error: FifoqError) -> None:
        """Stop, and tell those whose job was at hand: it is not known what became of it."""
        waiters = {id(waiter): waiter for waiter in self._at_hand or ()}
        for job in {self._settling, self._job}:
            if isinstance(job, Commit):
                waiters |= {id(waiter): waiter for waiter in job.waiters}
            elif isinstance(job, Call):
                job.fail(error)
        self.fail(error, list(waiters.values()))
        # Last: who is interrupted before has told nobody for good.
        self._settling = self._job = self._at_hand = None

    def _pump(self) -> None:
        runner = self.runner
        assert runner is not None
        if self._settling is not None or self._at_hand is not None:
            # Neither its end nor its failure was told to the last, or nobody may have the job.
            raise InterruptedError(errno.EINTR, "interrupted as a job began or ended")
        if self._job is not None:
            if not runner.finished:
                return
            job = self._settling = self._job
            self._job = None
            job.settle(self, runner.outcome, runner.error)
            self._settling = None
            if self._fills_behind(job):
                # Whoever wants something next does not notice: the kernel does it meanwhile.
                self._job = self._fill
                runner.start(self._fill)
            elif self._has_work():
                # Those who waited run first: what they want next belongs into the same frame.
                self._schedule()
            return
        self._at_hand = ()
        next_job = self._next_job()
        if next_job is not None:
            self._last_active = self.loop.time()
            self._job = next_job
            if next_job is self._last:
                self._last = None
                if self.closed:
                    self._leaving.begin()
            elif self._calls and next_job is self._calls[0]:
                self._calls.popleft()
            runner.start(next_job)
        self._at_hand = None

    def _fills_behind(self, job: Job) -> bool:
        """Whether zeros ahead are to be written now: without a thread, and with nobody waiting.

        Only behind records that nobody has synced: zeros that are not synced either would keep a
        synced frame waiting for the thread.
        """
        runner = self.runner
        assert runner is not None
        puts = isinstance(job, Commit) and job.record_count > 0 and not job.synced
        idle = self._job is None and self._last is None and self.usable and not self.closing
        return puts and idle and runner.beside and self._open_log.filling_due()

    def _has_work(self) -> bool:
        if self._last is not None:
            return True
        if self.failure is not None or (self.closed and not self.waiters):
            return False
        return bool(self._due or self._reads or self._calls) or (self._upkeep_due and self.usable)

    def _next_job(self) -> Job | None:
        if self._last is not None:
            return self._last
        if self.failure is not None or (self.closed and not self.waiters):
            return None
        if self._reads:
            line = next(iter(self._reads))
            del self._reads[line]
            if line.gap is not None:
                return Read(self._open_log, line)
        if self._upkeep_due:
            # Before the next commit: a log that is never idle needs its checkpoints most.
            return self._upkeep()
        if self._due and not (self._calls and self._passed_calls >= CALL_AFTER):
            if self._expected and self._lingers():
                return None
            commit = self._seal(puts=True)
            if commit is not None:
                self._passed_calls += bool(self._calls)
                return commit
        if self._calls:
            self._passed_calls = 0
            return self._calls[0].bound(self._open_log)
        return None

    def _upkeep(self) -> Job:
        self._upkeep_due = False
        self._kept_at = self.commit_count
        if self.loop.time() < self._compact_at:
            call = Call(Log.keep_house, self.loop.create_future())
            # The log knows of an error, and tells it with the next call.
            call.future.add_done_callback(look_away)
        else:
            call = Call(_keep_house, self.loop.create_future())
            call.future.add_done_callback(self._kept)
        return call.bound(self._open_log)

    def _kept(self, future: asyncio.Future[object]) -> None:
        """A step of compaction was made: those who wait for commits have the writer for a while."""
        self._sparse = False
        if not future.cancelled() and not future.exception():
            self._sparse, pause = cast("tuple[bool, float]", future.result())
            self._compact_at = self.loop.time() + pause

    def _lingers(self) -> bool:
        """Wait a turn for those who were in the last frame and may be about to ask again."""
        waiting = len(self.waiters) + len(self.joints.waiting)
        if waiting >= self._expected or self._lingered >= LINGER_TURNS_MAX:
            return False
        self._lingered += 1
        self.linger_turns += 1
        self._schedule()
        return True

    def _seal(self, *, puts: bool) -> Commit | None:
        """One frame of what waits; what does not fit stays due."""
        log = self.log
        assert log is not None
        self._at_hand = self.waiters
        self._due = False
        self._lingered = 0
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        bound = self._enter_joints(log, puts=puts) if self.joints.waiting else _NO_LINES
        joints = self.joints.under_way
        if puts and len(self._dirty) == 1 and not (joints or self._due):
            commit = self._seal_puts(log)
            if commit is not None:
                return commit
        draft = log.draft()
        batches: list[tuple[Line, Batch]] = []
        must_sync, no_memory = False, None
        room = FRAME_BYTES_MAX - sum(joint.state_bytes() for joint in joints)
        for line in [*bound, *self._dirty] if bound else list(self._dirty):
            self.waiting_bytes += line.count_tail()
            size = line.tail_bytes + line.restored_bytes()
            whole = line in bound
            if (
                (batches or joints)
                and not whole
                and (draft.size + size > room or len(batches) >= LINES_PER_FRAME_MAX)
            ):
                self._due = True
                break
            self._dirty.pop(line, None)
            fits = whole or size <= FRAME_BYTES_MAX or not line.restored
            batch = line.seal(puts=puts and fits)
            if puts and line.dirty:
                # What is restored comes first, and the rest with the next frame.
                self._dirty[line] = None
                self._due = True
            self.waiting_bytes -= batch.frame_bytes
            self.sealed_bytes += batch.frame_bytes
            if batch:
                try:
                    if no_memory is None:
                        must_sync |= add_batch(draft, log, line, batch)
                except MemoryError as error:
                    # Without what it holds on to, which is what would not fit.
                    no_memory = error.with_traceback(None)
                batches.append((line, batch))
            else:
                line.confirm()
        for joint in joints:
            draft.set_states(joint.states)
        self._give_room()
        waiters, self.waiters = self.waiters, []
        if self._due:
            # Flushes and those whose line did not fit wait for the next frame.
            sealed = {line for line, _ in batches}
            self.waiters = [w for w in waiters if w.line not in sealed or needs_tail(w)]
            waiters = [w for w in waiters if w.line in sealed and not needs_tail(w)]
        elif not puts:
            # Some came while the frame with the tails was refused: this one confirms none of them.
            unwritten = bool(self.joints.waiting) or any(map(waits, self.lines.values()))
            early = {w for w in waiters if needs_tail(w) or (w.line is None and unwritten)}
            self.waiters = [w for w in waiters if w in early]
            waiters = [w for w in waiters if w not in early]
        rest = self._due or bool(self.waiters or self.joints.waiting)
        level, self._level = self._level, (self._level if rest else MEMORY)
        records = sum(batch.upto - batch.first + 1 for _, batch in batches if batch.upto)
        sync = self._syncs(level, records) or must_sync
        if not (batches or joints):
            if not waiters:
                return None
            if not (sync and log.durable_upto < log.sequence):
                self._resolve(waiters)
                return None
        self._expect(len(waiters) + len(joints))
        put = draft if (batches or joints) and no_memory is None else None
        return Commit(log, put, sync, batches, waiters, level, records, no_memory)

    def _enter_joints(self, log: Log, *, puts: bool) -> dict[Line, None]:
        """What changes several queues stands in this frame whole, or waits for the next one.

        Returns the lines that must be in this frame with all that they have.
        """
        bound = self.joints.enter(log, puts=puts)
        for line in bound:
            self._dirty.pop(line, None)
        self._due = puts and bool(self.joints.waiting)
        return bound

    def _seal_puts(self, log: Log) -> Commit | None:
        """The same when one queue has new records and nothing else; None if there is more to it."""
        (line,) = self._dirty
        queue = log.state.queues.get(line.name)
        if (
            not 0 < len(line.tail) <= READ_RECORDS
            or not line.only_puts
            or queue is None
            or counters_run_low(queue, line.next)
        ):
            return None
        self._dirty.clear()
        self.waiting_bytes += line.count_tail()
        batch = line.seal_puts()
        self.waiting_bytes -= batch.frame_bytes
        self.sealed_bytes += batch.frame_bytes
        if self._room_waiters:
            self._give_room()
        waiters, self.waiters = self.waiters, []
        level, self._level = self._level, MEMORY
        records = batch.upto - batch.first + 1
        self._expect(len(waiters))
        sync = self._syncs(level, records)
        (run,) = batch.runs
        put, no_memory = None, None
        try:
            put = log.prepare_put(
                queue,
                run.payloads,
                first=run.first,
                time_runs=time_runs(run),
                item_bytes=run.item_bytes,
                marks=marks_after(line, queue.genesis.queue_size + records),
                sync=sync,
            )
        except MemoryError as error:
            no_memory = error.with_traceback(None)
        return Commit(log, put, sync, [(line, batch)], waiters, level, records, no_memory)

    def _expect(self, waiter_count: int) -> None:
        """Those who wait for this commit may be about to ask for the next one."""
        self._expected = waiter_count * 3 // 4
        self._alone = self._alone + 1 if waiter_count == 1 else 0

    def _syncs(self, level: int, records: int) -> bool:
        """Whether a commit of so many records at that level is synced."""
        every = self.options.sync_every
        return level == SYNC or (every is not None and self.unsynced_records + records >= every)


def _keep_house(log: Log) -> tuple[bool, float]:
    """Checkpoint and reclaim if that is due, and compact a step.

    Returns whether there is more to compact, and how many seconds it can wait.
    """
    log.keep_house()
    began = log.clock.monotonic()
    more = log.compact(COMPACT_BYTES)
    seconds = log.clock.monotonic() - began
    return more, seconds * (COMPACT_PAUSE_BEHIND if _is_behind(log) else COMPACT_PAUSE)


def _is_behind(log: Log) -> bool:
    """Whether the disk fills up faster than steps between pauses can free it."""
    segments = log.state.segments.values()
    live = sum(segment.live_bytes for segment in segments)
    spare = BEHIND * log.options.segment_bytes
    return sum(segment.length for segment in segments) > BEHIND * live + spare
