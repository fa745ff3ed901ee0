"""Settling: what follows from a frame that was written, refused or lost, for those who wait.

Called on the loop, when the job has ended.
"""

from __future__ import annotations

import logging
from typing import Final

from fifoq.intake import Intake
from fifoq.jobs import Commit, Waiter
from fifoq.line import Line
from fifoq.logs import fields, name_of
from fifoq.runs import Claim
from store import FifoqError

logger = logging.getLogger("fifoq")

SEAL_SECONDS: Final = 0.05
"""After this much silence the log is sealed, so that readers see the last commit."""
RETRY_SECONDS: Final = 0.25
"""How often records that a full disk refused are tried again."""
COMPACT_EVERY: Final = 8
"""Commits between two steps of compaction at least, while there is something to compact."""


class Settling(Intake):
    """The half of a committer that hears how its jobs have ended."""

    def committed(self, job: Commit) -> None:
        """A frame is written, and synced if it was to be."""
        log = self.log
        assert log is not None
        self.sealed_bytes = 0
        if self._room_waiters:
            self._give_room()
        if self.refused is not None and (
            any(batch.runs for _, batch in job.batches) or not any(map(waits, self._dirty))
        ):
            self.refused = None
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
            self.unsynced_records = 0
            self.syncs.add(int(log.last_sync_seconds * 1e9))
        else:
            self.unsynced_records += job.record_count
            if self._sync_timer is None and self.options.sync_interval is not None:
                seconds = self.options.sync_interval
                self._sync_timer = self.loop.call_later(seconds, self._sync_is_due)
        if self._idle_timer is None:
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
        kept = [waiter for waiter in job.waiters if had_puts and not needs_tail(waiter)]
        for waiter in job.waiters:
            if waiter not in kept:
                self._refuse_waiter(waiter, error)
        if any(map(waits, self._dirty)):
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
            self.runner.start(retry)
        self._at_hand = None
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
        first = self.failure is None
        if first:
            self.failure = error
            self.error_count += 1
        # Whoever is told is forgotten last: after an interrupt in here all of it is done again.
        waiting = waiters + self.waiters
        for waiter in waiting:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        if self.lost_unheard is None:
            heard = sum(waiter.count for waiter in waiting if waiter.claim is None)
            self.lost_unheard = self._lost_count() > heard
        self.waiters = []
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
        if first:
            # Last: whoever is interrupted in here has told everybody.
            logger.error(
                "store failed: %s",
                type(error).__name__,
                extra=fields("failed", self.path, error=name_of(error)),
            )

    def _lost_count(self) -> int:
        """Records that are not durable, but for those of transactions, which tell of their own."""
        unwritten = sum(map(_unwritten_count, self.lines.values()))
        return self.unsynced_records + unwritten - self.joints.arrived_count()

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

    def _seal(self, *, puts: bool) -> Commit | None:
        """One frame of what waits; the committer does it."""
        raise AssertionError("nothing is sealed here")


def waits(line: Line) -> bool:
    """Whether records of the line wait to be written."""
    return line.waits


def needs_tail(waiter: Waiter) -> bool:
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


def _unwritten_count(line: Line) -> int:
    """Records of the line that wait, or are in the frame under way; not those withdrawn."""
    sealed = sum(len(run.payloads) for run in line.sealed.runs) if line.sealed is not None else 0
    return sealed + len(line.tail) - line.tail.count(None)
