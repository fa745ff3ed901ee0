"""Jobs: what the writer does with the log, and what follows from it on the loop.

`run` is called on the writer's thread and `begin` on the loop, and both touch nothing but the log;
`settle` is called on the loop afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence, Set
from contextlib import suppress
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from fifoq.attributes import Attributes, attributes_in, columns_between, columns_of
from fifoq.line import Line
from fifoq.options import MEMORY
from fifoq.runs import Batch, Claim, Removals, Run, coarse_times, part_of, time_runs
from fifoq.writer import Job as Runnable
from store import (
    AccessError,
    Begun,
    DiskFull,
    Draft,
    DurabilityError,
    FifoqError,
    Filling,
    Log,
    RecordBlock,
    Status,
    StoreFailed,
)
from store.blocks import ACKED, DROPPED, EXPIRED, PURGED, TAKEN, records_weight
from store.plain import Marks, PlainPut
from store.ranges import merged
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.committer import Committer

READ_BYTES: Final = 1 << 20
READ_RECORDS: Final = 16384
"""How much is brought into memory at once, at least if there is that much."""


COUNTERS_AHEAD: Final = 16 << 20
"""So many counters are kept for a queue on disk before anybody sees one of them."""
COUNTERS_LEFT_MIN: Final = COUNTERS_AHEAD // 2
"""More are kept when fewer are left: more than can be in memory before that is durable."""


class Waiter(msgspec.Struct, eq=False):
    """Somebody who waits for a commit: for records put, for a claim's removal, or for a flush."""

    future: asyncio.Future[None]
    line: Line | None = None
    first: int = 0
    count: int = 0
    claim: Claim | None = None


class Job(Runnable, Protocol):
    """What a runner does, and what follows from it."""

    def settle(
        self, committer: Committer, outcome: object, error: BaseException | None
    ) -> None: ...


class Commit(msgspec.Struct, eq=False):
    """One frame, or only a sync if there is no draft."""

    log: Log
    draft: Draft | PlainPut | None
    synced: bool
    batches: list[tuple[Line, Batch]]
    waiters: list[Waiter]
    level: int
    record_count: int
    no_memory: MemoryError | None = None
    """Why there is no draft, if there was no memory to make one."""

    def run(self) -> object:
        if self.draft is None:
            if self.no_memory is not None:
                raise self.no_memory
            self.log.flush()
            return None
        return self.log.commit(self.draft, sync=self.synced, upkeep=False)

    def begin(self) -> Begun | None:
        if self.draft is None:
            return None
        return self.log.begin(self.draft, sync=self.synced)

    @property
    def awaited(self) -> bool:
        return bool(self.waiters) or self.level > MEMORY

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if self.log.status is not Status.OPEN:
            # Also if the error was lost on the way.
            failure = as_ours(error) if error else stopped(self.log)
            committer.fail(failure, self.waiters)
        elif error is None:
            committer.committed(self)
        else:
            committer.refuse(self, refusal(error))


class Fill:
    """Writes zeros ahead of the frames to come; nobody waits for it, and it may be left undone."""

    awaited = False

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self) -> object:
        return None

    def begin(self) -> Filling | None:
        return self._log.begin_filling()

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        """Whatever became of it, there is nobody to tell."""


class Read:
    """Brings records of a line's gap into memory."""

    awaited = True

    def __init__(self, log: Log, line: Line) -> None:
        assert line.gap is not None
        self._log = log
        self._line = line
        self._first, self._last = line.gap
        self._attributes: dict[int, Attributes] = {}
        self._expired: Removals = []
        self._now = time.time_ns()
        self._runs: list[Run] = []
        self._upto = 0

    def run(self) -> object:
        size = count = 0
        self._upto = self._last
        for block in self._log.read(self._line.name, self._first, self._last):
            self._add(block)
            count += block.count
            size += int(block.offsets[-1] - block.offsets[0])
            if size >= READ_BYTES or count >= READ_RECORDS:
                self._upto = block.last
                break
        return None

    def begin(self) -> None:
        return None

    def _add(self, block: RecordBlock) -> None:
        payloads, counters = block.payloads(), block.counters()
        times = block.times()
        skipped = self._skipped(block, counters) if block.columns else ()
        for start, stop in consecutive(counters, skipped):
            first = counters[start]
            self._runs.append(
                Run(first, payloads[start:stop], coarse_times(first, times[start:stop]))
            )

    def _skipped(self, block: RecordBlock, counters: Sequence[int]) -> Set[int]:
        """Note the attributes of a block; returns the indexes of records that are not for takers.

        What has a time has been on the shelf since it was put, or since the queue was opened. What
        is too old is gone without becoming an object.
        """
        attributes = dict(attributes_in(block))
        skipped = set()
        offsets = block.offsets
        for index, counter in enumerate(counters):
            of = attributes.get(counter)
            if of is None:
                continue
            if of.deliver_at:
                skipped.add(index)
                del attributes[counter]
            elif of.expires_at and of.expires_at <= self._now and self._line.drops_expired:
                skipped.add(index)
                del attributes[counter]
                weight = records_weight(int(offsets[index + 1] - offsets[index]), 1)
                self._expired.append((counter, counter, weight))
        self._attributes.update(attributes)
        return skipped

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        if error is None:
            if self._attributes:
                self._line.attributes_came(self._attributes)
            if self._expired:
                self._line.expire_unread(merged(self._expired))
            self._line.fill_gap(self._runs, self._upto)
            self._line.read_ended(None)
        elif self._log.status is Status.OPEN:
            self._line.read_ended(refusal(error))
        else:
            committer.fail(as_ours(error), [])


class Call:
    """A function that has the log for itself."""

    awaited = True

    def __init__(
        self, function: Callable[[Log], object], future: asyncio.Future[object] | None
    ) -> None:
        self._function = function
        self._log: Log | None = None
        self.future: asyncio.Future[object] = future  # type: ignore[assignment]

    def bound(self, log: Log | None) -> Call:
        self._log = log
        return self

    def run(self) -> object:
        return self._function(self._log)  # type: ignore[arg-type]

    def begin(self) -> None:
        return None

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        log = self._log
        if log is not None and log.status is Status.FAILED:
            committer.fail(as_ours(error) if error else stopped(log), [])
        elif log is not None and log.durable_upto == log.sequence:
            committer.unsynced_records = 0
        if self.future is None or self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


def look_away(future: asyncio.Future[Any]) -> None:
    """For a future that nobody may wait for: asyncio is not to complain of its error."""
    if not future.cancelled():
        future.exception()


def stopped(log: Log) -> FifoqError:
    return StoreFailed(f"{log.path}: a failure in the upkeep stopped the store")


def refusal(error: BaseException) -> FifoqError:
    """What to tell of an error after which the log goes on."""
    if not isinstance(error, MemoryError):
        return as_ours(error)
    refused = AccessError(
        "no memory for what was to be written or read. It was not done, and the store goes on. "
        "Try again, with less at once."
    )
    refused.__cause__ = error.with_traceback(None)
    return refused


def as_ours(error: BaseException) -> FifoqError:
    """The error itself, or one of ours around it: a waiter must never get a bare surprise."""
    if isinstance(error, FifoqError):
        return error
    try:
        wrapped = DurabilityError(
            f"{type(error).__name__} while writing: what is on disk is known after a reopen"
        )
    except MemoryError:
        return _NO_MEMORY
    wrapped.__cause__ = error
    return wrapped


_NO_MEMORY: Final = DurabilityError(
    "no memory while writing: what is on disk is known after a reopen"
)
"""Made beforehand, for when there is none to make it."""


def consecutive(counters: Sequence[int], skipped: Collection[int] = ()) -> list[tuple[int, int]]:
    """Index ranges within which counters follow each other without a gap, and none is skipped."""
    if skipped:
        kept = [index for index in range(len(counters)) if index not in skipped]
        parts = consecutive([counters[index] for index in kept]) if kept else []
        return [(kept[start], kept[stop - 1] + 1) for start, stop in parts]
    if isinstance(counters, range):
        return [(0, len(counters))]
    cuts = [at + 1 for at, (a, b) in enumerate(pairwise(counters)) if b != a + 1]
    return list(pairwise([0, *cuts, len(counters)]))


def cover_counters(log: Log, queue: QueueState) -> None:
    """Keep counters for a queue that was opened: they are seen before their records are durable.

    On a full disk nothing is put before there is space, and the first commit covers it then.
    """
    draft = log.draft()
    if keep_counters(draft, queue, queue.genesis.next_counter):
        with suppress(DiskFull):
            log.commit(draft, sync=True, upkeep=False)


def keep_counters(draft: Draft, queue: QueueState, shown: int) -> bool:
    """Let the commit, which must be synced then, keep counters ahead; False if there are enough.

    After a crash counting goes on behind them: no counter that anybody saw is given out again.
    """
    if not counters_run_low(queue, shown):
        return False
    draft.reserve(queue, shown + COUNTERS_AHEAD)
    return True


def counters_run_low(queue: QueueState, shown: int) -> bool:
    """Whether more counters are to be kept, now that the one before `shown` was seen."""
    return queue.reserved_durable - shown < COUNTERS_LEFT_MIN


def add_batch(draft: Draft, log: Log, line: Line, batch: Batch) -> bool:
    """What a commit holds of one queue: puts first, since takes may remove them again.

    True if the commit must be synced whatever its level is.
    """
    queue = log.queue(line.name)
    if batch.configuration is not None:
        draft.configure(queue, batch.configuration)
    for piece in chain.from_iterable(map(pieces_of, batch.runs)):
        draft.put(
            queue,
            piece.payloads,
            first=piece.first,
            time_runs=time_runs(piece),
            columns=(
                columns_between(batch.attributes, piece.first, piece.end)
                if batch.attributes
                else None
            ),
            item_bytes=piece.item_bytes,
        )
    draft.set_states(list(batch.marks.values()), drains=not batch.runs)
    for record in batch.restored:
        columns = columns_of([record.attributes]) if record.attributes else {}
        draft.move(queue, [record.counter], [record.time], [record.payload], columns)
    _add_leases(draft, queue, batch)
    delay = batch.delay_ns
    for reason, ranges in (
        (TAKEN, batch.taken),
        (ACKED, batch.acked),
        (DROPPED, batch.dropped),
        (EXPIRED, batch.expired),
        (PURGED, batch.purged),
    ):
        if ranges:
            draft.remove(queue, merged(sorted(ranges)), reason=reason, delay_ns=delay)
            delay = 0
    for reason in sorted({reason for reason, _ in batch.joined}):
        ranges = [removal for why, removal in batch.joined if why == reason]
        draft.remove(queue, merged(sorted(ranges)), reason=reason, delay_ns=delay)
        delay = 0
    if batch.runs or batch.removes:
        _set_marks(draft, queue, line)
    return bool(batch.runs) and keep_counters(draft, queue, line.next)


def _set_marks(draft: Draft, queue: QueueState, line: Line) -> None:
    marks = marks_after(line, draft.plans[queue.name].genesis.queue_size)
    if marks is not None:
        draft.set_marks(queue, *marks)


def marks_after(line: Line, size: int) -> Marks | None:
    """The marks that were seen in memory, and the size that this very commit leads to.

    Nobody has seen that one if the commit holds records that nobody may take before it.
    """
    high, low = line.high, line.low
    if high is None or low is None:
        return None
    # A put in an open window is later than the last look.
    now = max(line.looked, line.put_time, line.high_time, line.low_time)
    high_time = line.high_time if size <= high else now
    low_time = line.low_time if size >= low else now
    return max(high, size), high_time, min(low, size), low_time


def pieces_of(run: Run) -> list[Run]:
    """The run in blocks that can be read back one at a time without much memory."""
    if len(run.payloads) <= READ_RECORDS:
        return [run]
    return [
        part_of(run, start, min(start + READ_RECORDS, run.end))
        for start in range(run.first, run.end, READ_RECORDS)
    ]


def _add_leases(draft: Draft, queue: QueueState, batch: Batch) -> None:
    if batch.leases:
        counters = sorted(batch.leases)
        draft.lease(queue, counters, [batch.leases[c] for c in counters], 0)
