"""The committer: gathers what all queues of a store want written and commits it, one frame a time.

It is driven by callbacks of the event loop and by the rare path of a put, which may have to run
without the loop ever turning. The log belongs to whoever is busy with it: the loop's thread while
a frame is put together, the runner while a job is under way. Callers never touch it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from fifoq.errors import QueueClosed
from fifoq.intake import Intake
from fifoq.jobs import (
    READ_RECORDS,
    Call,
    Commit,
    Job,
    Read,
    Waiter,
    add_batch,
    as_ours,
    counters_run_low,
    look_away,
    marks_after,
)
from fifoq.line import Line
from fifoq.logs import fields, name_of
from fifoq.options import MEMORY, SYNC
from fifoq.runs import FRAME_BYTES_MAX, LINES_PER_FRAME_MAX, Batch, Claim, time_runs
from store import FifoqError, ForkError, Log

logger = logging.getLogger("fifoq")

SEAL_SECONDS: Final = 0.05
"""After this much silence the log is sealed, so that readers see the last commit."""
RETRY_SECONDS: Final = 0.25
"""How often records that a full disk refused are tried again."""
LINGER_TURNS_MAX: Final = 2
CALL_AFTER: Final = 8
"""Commits that may be made before a call that waits: producers that never pause do not stop it."""
COMPACT_EVERY: Final = 8
"""Commits between two steps of compaction at least, while there is something to compact."""
COMPACT_BYTES: Final = 256 << 10
"""How much such a step copies."""
COMPACT_PAUSE: Final = 9
"""A step of compaction is followed by so many times its length without one, under load."""
COMPACT_PAUSE_BEHIND: Final = 1
"""The same once more than `BEHIND` times the live bytes are on disk, and some segments."""
BEHIND: Final = 4


_NO_LINES: Final[dict[Line, None]] = {}


class Committer(Intake):
    """Owns the log of one store, on one event loop."""

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
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        self.joints.retire()

    def close_without_loop(self) -> None:
        """Let the directory go after the loop ended; nobody can be told anything any more."""
        if self.closed:
            return
        self.closed = True
        unwritten = sum(len(line.tail) for line in self.lines.values())
        if unwritten:
            logger.error(
                "a store's loop ended before %d records were written",
                unwritten,
                extra=fields("unwritten", self.path, count=unwritten),
            )
        if self.runner is not None:
            self.runner.stop()
            self.runner.join()
        if self.log is not None:
            self.log.close()

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
            # Our own mistake: better to stop than to let anybody wait for ever.
            logger.exception(
                "the committer failed", extra=fields("bug", self.path, error=name_of(error))
            )
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
        return bool(self._due or self._reads or self._calls) or (self._upkeep_due and self.usable)

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
            return self._calls.popleft().bound(self._open_log)
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
        log = self._open_log
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
        must_sync = False
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
                must_sync |= add_batch(draft, log, line, batch)
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
            self.waiters = [w for w in waiters if w.line not in sealed or _needs_tail(w)]
            waiters = [w for w in waiters if w.line in sealed and not _needs_tail(w)]
        elif not puts:
            # Some came while the frame with the tails was refused: this one confirms none of them.
            unwritten = bool(self.joints.waiting) or any(map(_waits, self.lines.values()))
            early = {w for w in waiters if _needs_tail(w) or (w.line is None and unwritten)}
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
        holds = bool(batches or joints)
        return Commit(log, draft if holds else None, sync, batches, waiters, level, records)

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
        self._give_room()
        waiters, self.waiters = self.waiters, []
        level, self._level = self._level, MEMORY
        records = batch.upto - batch.first + 1
        self._expect(len(waiters))
        sync = self._syncs(level, records)
        (run,) = batch.runs
        put = log.prepare_put(
            queue,
            run.payloads,
            first=run.first,
            time_runs=time_runs(run),
            item_bytes=run.item_bytes,
            marks=marks_after(line, queue.genesis.queue_size + records),
            sync=sync,
        )
        return Commit(log, put, sync, [(line, batch)], waiters, level, records)

    def _expect(self, waiter_count: int) -> None:
        """Those who wait for this commit may be about to ask for the next one."""
        self._expected = waiter_count * 3 // 4
        self._alone = self._alone + 1 if waiter_count == 1 else 0

    def _syncs(self, level: int, records: int) -> bool:
        """Whether a commit of so many records at that level is synced."""
        self._unsynced_records += records
        every = self.options.sync_every
        return level == SYNC or (every is not None and self._unsynced_records >= every)

    # What jobs report.

    def committed(self, job: Commit) -> None:
        """A frame is written, and synced if it was to be."""
        self.sealed_bytes = 0
        self._give_room()
        if self.refused is not None and (
            any(batch.runs for _, batch in job.batches) or not any(map(_waits, self._dirty))
        ):
            self.refused = None
        log = self._open_log
        if job.batches:
            self.commit_count += 1
            self.record_count += job.record_count
            self._upkeep_due = log.upkeep_due() or (
                self._sparse
                and self.commit_count - self._kept_at >= COMPACT_EVERY
                and self.loop.time() >= self._compact_at
            )
        for line, batch in job.batches:
            line.confirm()
            if batch.upto or batch.restored:
                line.records_came()
            if line.restored:
                self._dirty[line] = None
                self._due = True
        if self.followers:
            self._tell_followers(job)
        self._resolve(job.waiters)
        if self.joints.under_way:
            self.joints.committed()
        if job.synced or log.durable_upto == log.sequence:
            self._unsynced_records = 0
            self.syncs.add(int(log.last_sync_seconds * 1e9))
        elif self._sync_timer is None and self.options.sync_interval is not None:
            self._sync_timer = self.loop.call_later(self.options.sync_interval, self._sync_is_due)
        self.watch_idleness()

    def _tell_followers(self, job: Commit) -> None:
        for line, batch in job.batches:
            if batch.upto:
                for follower in self.followers.get(line.name, ()):
                    follower.records_came()

    def _leave_followers(self) -> None:
        for followers in self.followers.values():
            for follower in followers:
                follower.store_closed()

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
        line.come_restored(claim.records)
        self._dirty[line] = None
        self.commit_soon()

    def refuse(self, job: Commit, error: FifoqError) -> None:
        """Nothing of the frame was stored and the log goes on."""
        self.error_count += 1
        self.sealed_bytes = 0
        had_puts = (
            any(batch.upto or batch.marks for _, batch in job.batches) or self.joints.set_states
        )
        for line, batch in job.batches:
            self.waiting_bytes += batch.frame_bytes
            line.unseal()
            self._dirty[line] = None
            if batch.restored and not had_puts:
                line.give_back_early()
                line.records_came()
        self.joints.refused(error, again=had_puts)
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
            if self.joints.waiting:
                self.commit_soon()
            self._retry_later()
            self._give_room()
            return
        # Removals need no space of their own: try them alone.
        self.waiters = kept + self.waiters
        self._level = max(self._level, job.level)
        drains = kept or self.joints.waiting or any(map(_removes, self._dirty))
        positions = [line for line, batch in job.batches if batch.marks and not batch.upto]
        retry = self._seal(puts=False) if drains else None
        for line in (*self.lines.values(), *positions):
            if line.dirty:
                self._dirty[line] = None
        if self.joints.waiting:
            # They came while the frame was refused, and are to be told as well.
            self.commit_soon()
        if retry is not None and self.runner is not None:
            self._job = retry
            self.runner.start(retry.run)
        self._retry_later()
        # Whoever waits for room is to hear why there is none.
        self._give_room()

    def _refuse_waiter(self, waiter: Waiter, error: FifoqError) -> None:
        line = waiter.line
        if line is not None and waiter.count:
            line.withdraw(waiter.first, waiter.count)
            waiter.count = 0
            line.records_went()
        if line is not None and waiter.claim is not None and waiter.claim in line.claims:
            line.claims.remove(waiter.claim)
            if waiter.claim.left:
                line.restoring -= len(waiter.claim.records)
            for record in waiter.claim.records:
                line.give_back(record)
            line.records_came()
        if not waiter.future.done():
            waiter.future.set_exception(error)

    def _retry_later(self) -> None:
        if self._dirty and self._flush_timer is None:
            self._flush_seconds = RETRY_SECONDS
            self._set_flush_timer(RETRY_SECONDS)

    def fail(self, error: FifoqError, waiters: list[Waiter]) -> None:
        """What is on disk is unknown until a reopen: everything stops."""
        if self.failure is None:
            self.failure = error
            self.error_count += 1
            logger.error(
                "store failed: %s",
                type(error).__name__,
                extra=fields("failed", self.path, error=name_of(error)),
            )
        waiting, self.waiters = waiters + self.waiters, []
        for waiter in waiting:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self.joints.fail(error)
        for line in self.lines.values():
            line.close_windows()
            line.records_came()
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        self._reads.clear()
        self._leave_followers()
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


def _waits(line: Line) -> bool:
    """Whether records of the line wait to be written."""
    return line.waits


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
        line.removed
        or line.claims
        or line.acked
        or line.dropped
        or line.expired
        or line.purged
        or line.leases
        or line.restored
    )


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
