"""The log: the owner's side of a store, for one thread at a time.

One frame is written at a time; a frame that is to be durable is synced before the next one is
written. Here is what callers use. Below it: `life` says when work is taken, `appending` writes
frames, `plain` and `drafted` commit, `upkeep` rotates, checkpoints and reclaims.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from store import begun, drafted, filling, plain, upkeep
from store.appending import Appending
from store.begun import Begun
from store.blocks import RecordBlock, records_weight
from store.checkpoints import Checkpoints
from store.checksum import Buffer
from store.compression import Compression
from store.directory import Directory
from store.draft import Draft
from store.errors import AccessError, DiskFull, DurabilityError, FifoqError, Quarantine
from store.files import Clock
from store.filling import Filling
from store.genesis import Genesis, check_name
from store.keys import COUNTER_MAX, Key
from store.life import CLOSED, FAILED, FORKED, OPEN, Status, in_turn, taken_error
from store.lookup import Lookup
from store.options import LogOptions, Retention
from store.plain import Marks, PlainPut
from store.ranges import merged
from store.recovery import Recovered
from store.state import QueueState
from store.tail import Tail

logger = logging.getLogger("store")

CHECKPOINT_SHARE: Final = 8
"""Each checkpoint copy holds this share of the reserve's size as well."""
ROTATION_PAUSE: Final = 64
"""Frames after which removals on a full disk try again for a new segment; puts always do."""


class Log(Appending):
    """An open store, for one thread at a time.

    `open_log` makes one; close it, or use it in a `with`.
    """

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        options: LogOptions,
        recovered: Recovered,
        tail: Tail,
    ) -> None:
        super().__init__(directory, clock, options, recovered, tail)
        self.torn_bytes = recovered.torn_bytes
        self.quarantine: Quarantine | None = None
        self.lookup = Lookup(self.path, self.state, self.cache.open)
        self.checkpoints = Checkpoints(
            directory,
            recovered.checkpoint_number,
            recovered.checkpoint_name,
            room=options.reserve_bytes // CHECKPOINT_SHARE,
        )
        self.retry_rotation_at = 0
        self.needed = self.held = 0
        """What checkpoints may need, estimated from above, and what they hold for it."""
        self.spoiled: set[int] = set()
        """Segments that upkeep cannot read; they stay as they are."""
        self.doomed = list(recovered.leftovers)
        self.before_reclaim: Callable[[], bool] | None = None
        """Called before segments are let go, to `hold` what is needed; False if that is unknown."""
        self._keeping_house = False
        self._put_off = ""
        directory.files.watch_fork(self._after_fork)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Log {self.path!r} frames={self.sequence} {self.status.value}>"

    # Commits.

    def queue(self, name: str) -> QueueState:
        """A queue's state; a new queue comes to be with its first commit. InvalidName."""
        self.require_turn()
        return self._queue(name)

    def _queue(self, name: str) -> QueueState:
        self.require_open()
        queue = self.state.queues.get(name)
        return queue if queue is not None else self.state.queue(check_name(name))

    def _look_up(self, name: str) -> QueueState:
        """The queue's state, or an empty one that is not kept: looking makes no queue."""
        self.require_open()
        queue = self.state.queues.get(name)
        return queue if queue is not None else QueueState(Genesis(check_name(name)))

    def retain(self, name: str, *, retained: bool = True, limits: Retention | None = None) -> None:
        """Keep the queue's removed records until the limits, or those of the options, let them go.

        It holds from now on, and after opening from the last checkpoint on: say it again then.
        """
        self.require_turn()
        queue = self._queue(name)
        queue.retained, queue.retention = retained, limits
        upkeep.look_over(self, queue)

    def compress(self, name: str, compression: Compression | None) -> None:
        """Compress blocks of the queue from now on, where that saves enough; None: no more.

        It is not kept: say it again after opening. Whoever reads what is compressed needs nothing
        but the algorithm.
        """
        self.require_turn()
        self._queue(name).compress_by(compression)

    def hold(self, name: str, first: int | None) -> None:
        """Keep the queue's removed records from counter `first` on, until it is said otherwise.

        None lets them go. It holds from now on, and after opening from the last checkpoint on.
        `before_reclaim` is where to say it in time.
        """
        queue = self._queue(name)
        before, queue.held = queue.held, first or 0
        if before and not 0 < queue.held <= before:
            upkeep.look_over(self, queue)

    def draft(self) -> Draft:
        """Start a commit."""
        self.require_turn()
        return self.new_draft()

    def new_draft(self) -> Draft:
        """The same, for callers that have the turn already."""
        self.require_open()
        return Draft(self.state, max(0, self.clock.wall()))

    @in_turn
    def commit(self, draft: Draft | PlainPut, *, sync: bool = True, upkeep: bool = True) -> int:
        """Write the draft as one frame; returns its sequence. A draft is committed once.

        With `sync` the frame is durable on return. DiskFull and AccessError: nothing was stored
        and the log goes on. DurabilityError: whether it was stored is known after a reopen, and
        the log has failed. Without `sync` it is synced all the same when it shows counters that
        nothing durable covers yet. StaleDraft: it was committed before, or its queue changed since.

        Without `upkeep` the caller runs `keep_house` when `upkeep_due` says so.
        """
        sequence = self.commit_frame(draft, sync=sync)
        if upkeep:
            self.do_housework()
        return sequence

    def upkeep_due(self) -> bool:
        """Whether a checkpoint is due or a segment may be dead."""
        return upkeep.housework_due(self)

    @in_turn
    def keep_house(self) -> None:
        """Checkpoint and reclaim if that is due. What the disk refuses is put off and logged."""
        self.require_open()
        self.do_housework()

    def commit_frame(self, draft: Draft | PlainPut, *, sync: bool) -> int:
        """The commit itself, without the upkeep, for callers that have the turn already."""
        self.require_open()
        if isinstance(draft, PlainPut):
            plain.commit(self, draft, sync=sync)
        else:
            drafted.commit(self, draft, sync=sync)
        return self.sequence

    def begin(self, draft: Draft | PlainPut, *, sync: bool) -> Begun | None:
        """Begin a commit whose frame the caller writes, and syncs if asked to, and then ends.

        None: nothing was begun; `commit` does it, or says why not.
        """
        return begun.begin(self, draft, sync=sync)

    def filling_due(self) -> bool:
        """Whether `begin_filling` has something to do."""
        return filling.is_due(self)

    def begin_filling(self) -> Filling | None:
        """Begin to write zeros ahead, between two commits, as `begin` does a commit."""
        return filling.begin(self)

    def recount_room(self) -> None:
        """Let the next commit that adds something count anew what checkpoints need and hold."""
        self.held = 0

    @in_turn
    def flush(self) -> None:
        """Make every frame so far durable. DurabilityError: the log has failed."""
        self.require_open()
        self.sync_tail()
        self.do_housework()

    @in_turn
    def seal(self) -> None:
        """Witness that every frame so far is durable, for readers and for recovery.

        Two empty frames in one write: the first ends the sector of the last commit, the second
        stands in a sector of its own, so that no single bad sector hides commit and witness.
        """
        self.require_open()
        self.write_seal()

    # Records, one call at a time.

    def put(self, name: str, payloads: Sequence[Buffer], *, sync: bool = True) -> range:
        """Put records in one commit; returns their counters."""
        # As `in_turn`, whose wrapper costs what a tenth of a commit does.
        try:
            self.turn.pop()
        except IndexError:
            raise taken_error(self) from None
        try:
            queue = self._queue(name)
            first = queue.genesis.next_counter
            now = max(0, self.clock.wall())
            runs = ((len(payloads), now),)
            put = plain.prepare(
                self, queue, payloads, first=first, time_runs=runs, now=now, sync=sync
            )
            if put is not None:
                plain.commit(self, put, sync=sync)
            else:
                draft = Draft(self.state, now)
                draft.put(queue, payloads, time_runs=runs)
                drafted.commit(self, draft, sync=sync)
            if upkeep.housework_due(self):
                self.do_housework()
            return range(first, first + len(payloads))
        finally:
            self.turn.append(None)

    def prepare_put(
        self,
        queue: QueueState,
        payloads: Sequence[Buffer],
        *,
        first: int,
        time_runs: Sequence[tuple[int, int]],
        item_bytes: int | None,
        marks: Marks | None,
        sync: bool,
    ) -> PlainPut | Draft:
        """A commit of one queue's records: `draft` and `Draft.put` in one, and sooner."""
        if not self.turn or self.status is not OPEN:
            self.require_turn()
            self.require_open()
        now = max(0, self.clock.wall())
        put = plain.prepare(
            self,
            queue,
            payloads,
            first=first,
            time_runs=time_runs,
            item_bytes=item_bytes,
            marks=marks,
            now=now,
            sync=sync,
        )
        if put is not None:
            return put
        draft = Draft(self.state, now)
        draft.put(queue, payloads, first=first, time_runs=time_runs, item_bytes=item_bytes)
        if marks is not None:
            draft.set_marks(queue, *marks)
        return draft

    @in_turn
    def take(self, name: str, count: int = 1, *, sync: bool = True) -> list[tuple[Key, bytes]]:
        """Remove up to `count` records at the head in one commit; returns them, oldest first."""
        queue = self._look_up(name)
        if count < 1:
            return []
        taken: list[tuple[Key, bytes]] = []
        ranges: list[tuple[int, int, int]] = []
        for block in self._sorted(self.lookup.live_blocks(queue, 1, COUNTER_MAX)):
            part = block.slice(0, min(block.count, count - len(taken)))
            payloads = part.payloads()
            keys = part.keys()
            taken += zip(keys, payloads, strict=True)
            ranges += [
                (key.counter, key.counter, records_weight(len(payload), 1))
                for key, payload in zip(keys, payloads, strict=True)
            ]
            if len(taken) == count:
                break
        if taken:
            draft = self.new_draft()
            delay = sum(max(0, draft.now - key.timestamp) for key, _ in taken)
            draft.remove(queue, merged(ranges), delay_ns=delay)
            self.commit_frame(draft, sync=sync)
            self.do_housework()
        return taken

    def read(
        self, name: str, first: int = 1, last: int = COUNTER_MAX, *, removed: bool = False
    ) -> Iterator[RecordBlock]:
        """Live records first..last in order, as whole blocks; with `removed` also those retained.

        CorruptionError where damage is reached.
        """
        queue = self._look_up(name)
        find = self.lookup.blocks if removed else self.lookup.live_blocks
        blocks = find(queue, first, min(last, queue.genesis.next_counter - 1))
        while True:
            block = self._next_block(blocks)
            if block is None:
                return
            yield block

    def _sorted(self, blocks: Iterator[RecordBlock]) -> Iterator[RecordBlock]:
        with self.sorting_errors():
            yield from blocks

    @in_turn
    def _next_block(self, blocks: Iterator[RecordBlock]) -> RecordBlock | None:
        self.require_open()
        with self.sorting_errors():
            return next(blocks, None)

    def get(self, name: str, counter: int) -> tuple[Key, bytes] | None:
        """One live record by its counter, or None."""
        for block in self.read(name, counter, counter):
            return block.keys()[0], block.payloads()[0]
        return None

    def exists(self, name: str, counter: int) -> bool:
        """Whether a record is live; reads nothing from disk."""
        return self._look_up(name).is_live(counter)

    def keys(self, name: str, first: int = 1, last: int = COUNTER_MAX) -> Iterator[Key]:
        """Keys of live records in order."""
        for block in self.read(name, first, last):
            yield from block.keys()

    @in_turn
    def seek(self, name: str, time: int) -> int:
        """Counter of the first retained record put at `time` (ns) or later, else the next one."""
        if not isinstance(time, int):
            raise TypeError(f"time={time!r} is not a whole number of nanoseconds")
        with self.sorting_errors():
            return self.lookup.counter_at(self._look_up(name), time)

    @in_turn
    def state_of(self, name: str) -> bytes | None:
        """Newest value of a state entry, or None."""
        self.require_open()
        with self.sorting_errors():
            return self.lookup.state_value(name)

    @in_turn
    def states_of(self, names: Iterable[str]) -> dict[str, bytes]:
        """Newest values of those names that have one; each frame is read once."""
        self.require_open()
        with self.sorting_errors():
            return self.lookup.state_values(names)

    # Upkeep.

    @in_turn
    def rotate(self) -> None:
        """Go on in a new segment; a tail without a frame stays.

        DiskFull and AccessError: the log goes on in the old segment. DurabilityError: it failed.
        """
        self.require_open()
        with self.sorting_errors():
            upkeep.rotate(self)

    @in_turn
    def checkpoint(self) -> None:
        """Write the state to the older checkpoint copy. DiskFull: the newer one still serves."""
        self.require_open()
        with self.sorting_errors():
            upkeep.write_checkpoint(self)

    @in_turn
    def compact(self, max_bytes: int = 1 << 20) -> bool:
        """Copy up to that many bytes of live records out of a sparse segment.

        Returns whether there is more to do. Keys stay. DiskFull: nothing was changed.
        """
        self.require_open()
        with self.sorting_errors():
            more = upkeep.compact(self, max_bytes)
        self.do_housework()
        return more

    def rotate_or_stay(self) -> None:
        """Rotate; what the disk refuses is logged, and tried again later."""
        try:
            with self.sorting_errors():
                upkeep.rotate(self)
        except (DiskFull, AccessError) as error:
            self.retry_rotation_at = self.sequence + ROTATION_PAUSE
            logger.warning("%s: staying in segment %d: %s", self.path, self.tail.file.number, error)

    def do_housework(self) -> None:
        """Checkpoint and reclaim after a commit; their failure is not the commit's."""
        if self._keeping_house or not upkeep.housework_due(self):
            return
        self._keeping_house = True
        try:
            with self.sorting_errors():
                upkeep.keep_house(self)
            self._put_off = ""
        except FifoqError as error:
            if str(error) != self._put_off:
                logger.warning("%s: upkeep put off: %s", self.path, error)
            self._put_off = str(error)
            if isinstance(error, DurabilityError):
                self.untold = error
        except BaseException:
            # Half of it may be done, in memory at least.
            self.fail()
            raise
        finally:
            self._keeping_house = False

    # Life and death.

    @in_turn
    def close(self, *, clean: bool = True) -> None:
        """Make everything durable, leave a clean end, and let the lock go. Twice is fine.

        Without the clean end the next owner counts on behind all counters that may have been seen.
        After a failure it only lets go. DurabilityError, also for a failure that no call has told
        yet: the log is closed all the same.
        """
        if self.status in (CLOSED, FORKED):
            return
        try:
            if self.status is OPEN:
                with self.sorting_errors():
                    if clean:
                        upkeep.finish(self)
                    else:
                        self.sync_tail()
        finally:
            self.status = CLOSED
            self.release()
        if self.untold is not None:
            raise self.untold

    def release(self) -> None:
        """Close every handle and take no more work."""
        if self.status in (Status.NEW, OPEN):
            self.status = FAILED
        # One inside the other, so that the lock goes whatever happens before it.
        try:
            self.cache.close()
        finally:
            try:
                self.checkpoints.close()
            finally:
                try:
                    self.tail.file.close()
                finally:
                    self.directory.close()

    def _after_fork(self) -> None:
        if self.status is not CLOSED:
            self.status = FORKED
            self.release()
