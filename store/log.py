"""The log: the owner's side of a store. Commits frames; `upkeep` rotates, checkpoints, reclaims.

Synchronous and single-threaded. One frame is written at a time; a frame that is to be durable is
synced before the next one is written. A failure whose outcome only the disk knows stops the log:
it is FAILED, refuses all work, and only opening anew tells what is there.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from store import plain, upkeep
from store.blocks import RecordBlock, records_weight
from store.cache import SegmentCache
from store.checkpoints import Checkpoints
from store.checksum import Buffer
from store.directory import PASSING_ERRNOS, SPACE_ERRNOS, Directory, sync_error
from store.draft import Draft, joined, merged
from store.errors import (
    AccessError,
    ConcurrentUse,
    DiskFull,
    DurabilityError,
    FifoqError,
    ForkError,
    Quarantine,
    StoreClosed,
    StoreFailed,
)
from store.files import Clock
from store.frames import (
    FLAG_SEAL,
    FRAME_HEADER_BYTES,
    TRAILER_BYTES,
    encode_frame,
    frame_bytes,
)
from store.genesis import Genesis, check_name, encode_genesis
from store.index import SegmentIndex
from store.keys import COUNTER_MAX, RESERVED_COUNTERS, Key
from store.lookup import Lookup
from store.options import LogOptions, Retention
from store.plain import Marks, PlainPut
from store.recovery import Recovered
from store.state import QueueState
from store.tail import Tail

logger = logging.getLogger("store")

P = ParamSpec("P")
T = TypeVar("T")

SECTOR_BYTES: Final = 512
CHECKPOINT_SHARE: Final = 8
"""Each checkpoint copy holds this share of the reserve's size as well."""
ROTATION_PAUSE: Final = 64
"""Frames after which removals on a full disk try again for a new segment; puts always do."""


class Status(enum.Enum):
    """Life of a log. FAILED and FORKED refuse all work; only opening anew helps."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"
    FORKED = "forked"


# Looking a member up needs memory, and "failed" must be said even when there is none.
_OPEN: Final = Status.OPEN
_CLOSED: Final = Status.CLOSED
_FAILED: Final = Status.FAILED
_FORKED: Final = Status.FORKED
_REFUSED: Final = (DiskFull, AccessError)


def _taken(log: Log) -> ConcurrentUse:
    return ConcurrentUse(
        f"{log.path}: another thread is using the store. This call did nothing. Use a store from "
        f"one thread at a time."
    )


def _in_turn(method: Callable[Concatenate[Log, P], T]) -> Callable[Concatenate[Log, P], T]:
    """Let one thread in at a time; a second one is refused before it can do harm."""

    @wraps(method)
    def call(self: Log, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            self._turn.pop()
        except IndexError:
            raise _taken(self) from None
        try:
            return method(self, *arguments, **keywords)
        finally:
            self._turn.append(None)

    return call


class Log:
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
        self.directory = directory
        self.path = directory.path
        self.clock = clock
        self.options = options
        self.store_id = recovered.store_id
        self.state = recovered.state
        # Taking the only entry out is atomic, so that two threads can never both have it.
        self._turn: list[None] = [None]
        self.status = Status.NEW
        self.torn_bytes = recovered.torn_bytes
        self.quarantine: Quarantine | None = None
        self.sequence = recovered.end.sequence
        self.checksum = recovered.end.checksum
        self.durable_upto = recovered.end.sequence
        self.tail = tail
        self.cache = SegmentCache(directory, self.state, self.store_id, saves=True)
        self.lookup = Lookup(self.path, self.state, self.cache.open)
        self.checkpoints = Checkpoints(
            directory,
            recovered.checkpoint_number,
            recovered.checkpoint_name,
            room=options.reserve_bytes // CHECKPOINT_SHARE,
        )
        self.since_checkpoint = 0
        self.last_sync_seconds = 0.0
        self.retry_rotation_at = 0
        self.needed = self.held = 0
        """What checkpoints may need, estimated from above, and what they hold for it."""
        self.spoiled: set[int] = set()
        """Segments that upkeep cannot read; they stay as they are."""
        self.doomed = list(recovered.leftovers)
        self.before_reclaim: Callable[[], bool] | None = None
        """Called before segments are let go, to `hold` what is needed; False if that is unknown."""
        self._covering: set[QueueState] = set()
        self._sealed = True
        self._keeping_house = False
        self._untold: DurabilityError | None = None
        self._put_off = ""
        if tail.empty:
            self.cache.start_tail(tail.file.number)
        else:
            self.cache.tail_index(tail.file.number)
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
        self._require_turn()
        return self._queue(name)

    def _require_turn(self) -> None:
        if not self._turn:
            raise _taken(self)

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
        self._require_turn()
        queue = self._queue(name)
        queue.retained, queue.retention = retained, limits
        upkeep.look_over(self, queue)

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
        self._require_turn()
        return self.new_draft()

    def new_draft(self) -> Draft:
        """The same, for callers that have the turn already."""
        self.require_open()
        return Draft(self.state, max(0, self.clock.wall()))

    @_in_turn
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
            self._keep_house()
        return sequence

    def upkeep_due(self) -> bool:
        """Whether a checkpoint is due or a segment may be dead."""
        return upkeep.housework_due(self)

    @_in_turn
    def keep_house(self) -> None:
        """Checkpoint and reclaim if that is due. What the disk refuses is put off and logged."""
        self.require_open()
        self._keep_house()

    def commit_frame(self, draft: Draft | PlainPut, *, sync: bool) -> int:
        """The commit itself, without the upkeep, for callers that have the turn already."""
        self.require_open()
        if isinstance(draft, PlainPut):
            plain.commit(self, draft, sync=sync)
            return self.sequence
        draft.check_current(self.state)
        if not sync:
            sync = self._cover_counters(draft)
        if self.state.unlogged:
            self._repeat_removals(draft)
        for plan in draft.plans.values():
            plan.finish()
        genesis = encode_genesis([plan.genesis for plan in draft.plans.values()])
        size = frame_bytes(draft.body_bytes + len(genesis))
        self._rotate_if_due(draft, size)
        room = self._make_room(size, reserve=draft.only_drains, last=draft.frees_segment)
        if not room and not draft.only_removes and upkeep.drained(self):
            # What fills the disk may be our own: records in the tail that were all taken.
            self._rotate_or_stay()
            self._keep_house()
            room = self._make_room(size, reserve=draft.only_drains, last=draft.frees_segment)
        if room:
            if draft.growth or (draft.holds_records and self.needed > self.held):
                self._hold_for(max(draft.growth, 1))
            self._append(draft, genesis)
            if sync:
                self.sync_tail()
        elif not draft.only_removes:
            raise DiskFull(
                f"{self.path}: no space for a frame of {size} bytes. Nothing of it was stored. "
                f"Takes and acks still work; free some space and try again."
            )
        else:
            self._commit_in_place(draft)
        draft.committed = True
        return self.sequence

    def _rotate_if_due(self, draft: Draft, size: int) -> None:
        if upkeep.rotation_due(self, size, draft.now) and (
            self.sequence >= self.retry_rotation_at or not draft.only_removes
        ):
            self._rotate_or_stay()

    def _repeat_removals(self, draft: Draft) -> None:
        """Let the commit repeat removals that only checkpoints hold, if there is space for them."""
        repeats = draft.unrepeated()
        size = frame_bytes(draft.size + sum(repeat.size for repeat in repeats))
        self._rotate_if_due(draft, size)
        if self._make_room(size, reserve=False):
            draft.repeat(repeats)

    def _hold_for(self, growth: int) -> None:
        """See to it that checkpoints have room for whatever is removed after the commit.

        DiskFull: there is no space for that, and nothing may be added that could not be removed.
        """
        self.needed += growth
        if self.needed <= self.held:
            return
        with self.sorting_errors():
            self.held = self.checkpoints.room()
            self.needed = upkeep.needed_bytes(self, growth)
            if self.needed > self.held:
                upkeep.write_checkpoint(self, growth=growth)
                upkeep.write_checkpoint(self, growth=growth)
                self.held = self.checkpoints.room()
        if self.needed > self.held:
            self.needed = self.held
            raise DiskFull(
                f"{self.path}: no space to hold for the removal of what would be added. Nothing of "
                f"it was stored. Takes and acks still work; free some space and try again."
            )

    def recount_room(self) -> None:
        """Let the next commit that adds something count anew what checkpoints need and hold."""
        self.held = 0

    def _cover_counters(self, draft: Draft) -> bool:
        """Reserve counters ahead where a commit without a sync would show uncovered ones."""
        uncovered = False
        for plan in draft.plans.values():
            shown = plan.genesis.next_counter
            if plan.puts and shown - 1 > plan.queue.reserved_durable:
                plan.genesis.reserved_upto = min(shown + RESERVED_COUNTERS, COUNTER_MAX)
                uncovered = True
        return uncovered

    def _append(self, draft: Draft, genesis: bytes) -> None:
        frame, checksum = self._encode(
            draft.parts, genesis, draft.block_count, self.sequence + 1, self.checksum
        )
        # Before it is written: a payload that is not as long as its draft was told would hide
        # everything behind it.
        assert len(frame) == frame_bytes(draft.body_bytes + len(genesis))
        status = self.status
        offset = self.write(frame)
        number = self.tail.file.number
        index = self.cache.tail_index(number)
        draft.apply(number, offset, index)
        if draft.holds_records:
            self.state.segments[number].record_frame_bytes += len(frame)
        for plan in draft.plans.values():
            self._covering.add(plan.queue)
        self.note_frame(index, len(frame), checksum)
        self.status = status

    def note_frame(self, index: SegmentIndex | None, size: int, checksum: int) -> None:
        """A frame was appended and the state knows what it says."""
        tail = self.tail
        self.state.segments[tail.file.number].length = tail.length
        if index is not None:
            index.length = tail.length
        self.since_checkpoint += size
        self._sealed = False
        self.sequence += 1
        self.checksum = checksum

    def _encode(
        self,
        parts: list[Buffer],
        genesis: bytes,
        block_count: int,
        sequence: int,
        previous: int,
        flags: int = 0,
        ahead: int = 0,
    ) -> tuple[bytearray, int]:
        """One frame for `ahead` bytes behind the tail's end, and its checksum."""
        file = self.tail.file
        return encode_frame(
            parts,
            genesis,
            block_count=block_count,
            flags=flags,
            sequence=sequence,
            durable_upto=self.durable_upto,
            previous=previous,
            check=file.check,
            seed=file.seed,
            offset=self.tail.length + ahead,
        )

    def write(self, frames: Buffer) -> int:
        """Append frames; unless they are refused the log then counts as failed.

        The caller takes that back once the state agrees with the file. The other way round, a
        failure that leaves no memory to note it would let the log go on with a wrong state.
        """
        status, self.status = self.status, _FAILED
        try:
            return self.tail.append(frames)
        except _REFUSED:
            self.status = status
            raise
        except OSError as error:
            raise sync_error(self.tail.name, error) from error

    def _make_room(self, size: int, *, reserve: bool, last: bool = False) -> bool:
        if self.tail.has_room(size):
            return True
        with self.sorting_errors():
            return self.tail.make_room(size, reserve=reserve, last=last)

    def _commit_in_place(self, draft: Draft) -> None:
        """Commit removals on a full disk by overwriting a checkpoint copy, which needs no space."""
        with self.sorting_errors():
            room = self.checkpoints.room()
        if not self._fits_in_place(draft, room):
            raise DiskFull(
                f"{self.path}: the disk is full, and so is the space held for removals. Nothing "
                f"was changed. Free some space and try again."
            )
        unlogged = joined(self.state.unlogged, draft.removals())
        status, self.status = self.status, _FAILED
        draft.apply(self.tail.file.number, self.tail.length, None)
        self.state.unlogged = unlogged
        try:
            # Both copies: no frame holds the removal, so one bad sector must not undo it.
            upkeep.write_checkpoint(self)
            upkeep.write_checkpoint(self)
        except OSError as error:
            raise sync_error(self.path, error) from error
        self.status = status

    def _fits_in_place(self, draft: Draft, room: int) -> bool:
        """Whether removals fit into a checkpoint, which is certain if room for them was held.

        Leases may use only what removals can never need.
        """
        if upkeep.needed_bytes(self, draft.growth) <= room:
            return True
        # No room was held, perhaps since the store was full already when it came here.
        growth = draft.removal_growth()
        return not draft.growth and upkeep.checkpoint_bytes(self) + growth <= room

    @_in_turn
    def flush(self) -> None:
        """Make every frame so far durable. DurabilityError: the log has failed."""
        self.require_open()
        self.sync_tail()
        self._keep_house()

    def sync_tail(self) -> None:
        """Sync what was written; everything up to here counts as durable then."""
        status, self.status = self.status, _FAILED
        started = self.clock.monotonic()
        self.tail.sync()
        self.last_sync_seconds = self.clock.monotonic() - started
        self.durable_upto = self.sequence
        for queue in self._covering:
            queue.reserved_durable = queue.genesis.reserved_upto
        self._covering.clear()
        self.status = status

    @_in_turn
    def seal(self) -> None:
        """Witness that every frame so far is durable, for readers and for recovery.

        Two empty frames in one write: the first ends the sector of the last commit, the second
        stands in a sector of its own, so that no single bad sector hides commit and witness.
        """
        self.require_open()
        self.write_seal()

    def write_seal(self) -> None:
        """The seal itself, for callers that have the turn already."""
        if self._sealed or self.durable_upto < self.sequence:
            return
        gap = -self.tail.length % SECTOR_BYTES
        if gap < frame_bytes(0):
            gap += SECTOR_BYTES
        if not self._make_room(gap + frame_bytes(0), reserve=True):
            return
        sequence = self.sequence + 2
        padding = bytes(gap - FRAME_HEADER_BYTES - TRAILER_BYTES)
        frames, checksum = self._encode([padding], b"", 0, sequence - 1, self.checksum, FLAG_SEAL)
        second, checksum = self._encode([], b"", 0, sequence, checksum, FLAG_SEAL, ahead=gap)
        frames += second
        status = self.status
        self.write(frames)
        self.state.segments[self.tail.file.number].length = self.tail.length
        index = self.cache.tail_index(self.tail.file.number)
        if index is not None:
            index.length = self.tail.length
        self._sealed = True
        self.sequence, self.checksum = sequence, checksum
        self.status = status

    # Records, one call at a time.

    def put(self, name: str, payloads: Sequence[Buffer], *, sync: bool = True) -> range:
        """Put records in one commit; returns their counters."""
        # As `_in_turn`, whose wrapper costs what a tenth of a commit does.
        try:
            self._turn.pop()
        except IndexError:
            raise _taken(self) from None
        try:
            queue = self._queue(name)
            first = queue.genesis.next_counter
            now = max(0, self.clock.wall())
            runs = ((len(payloads), now),)
            put = self._prepare_put(queue, payloads, first, runs, None, None, now, sync)
            if type(put) is PlainPut:
                plain.commit(self, put, sync=sync)
            else:
                self.commit_frame(put, sync=sync)
            if upkeep.housework_due(self):
                self._keep_house()
            return range(first, first + len(payloads))
        finally:
            self._turn.append(None)

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
        self._require_turn()
        self.require_open()
        now = max(0, self.clock.wall())
        return self._prepare_put(queue, payloads, first, time_runs, item_bytes, marks, now, sync)

    def _prepare_put(
        self,
        queue: QueueState,
        payloads: Sequence[Buffer],
        first: int,
        time_runs: Sequence[tuple[int, int]],
        item_bytes: int | None,
        marks: Marks | None,
        now: int,
        sync: bool,
    ) -> PlainPut | Draft:
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

    @_in_turn
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
            self._keep_house()
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

    @_in_turn
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

    @_in_turn
    def seek(self, name: str, time: int) -> int:
        """Counter of the first retained record put at `time` (ns) or later, else the next one."""
        if not isinstance(time, int):
            raise TypeError(f"time={time!r} is not a whole number of nanoseconds")
        with self.sorting_errors():
            return self.lookup.counter_at(self._look_up(name), time)

    @_in_turn
    def state_of(self, name: str) -> bytes | None:
        """Newest value of a state entry, or None."""
        self.require_open()
        with self.sorting_errors():
            return self.lookup.state_value(name)

    # Upkeep.

    @_in_turn
    def rotate(self) -> None:
        """Go on in a new segment; a tail without a frame stays.

        DiskFull and AccessError: the log goes on in the old segment. DurabilityError: it failed.
        """
        self.require_open()
        with self.sorting_errors():
            upkeep.rotate(self)

    @_in_turn
    def checkpoint(self) -> None:
        """Write the state to the older checkpoint copy. DiskFull: the newer one still serves."""
        self.require_open()
        with self.sorting_errors():
            upkeep.write_checkpoint(self)

    @_in_turn
    def compact(self, max_bytes: int = 1 << 20) -> bool:
        """Copy up to that many bytes of live records out of a sparse segment.

        Returns whether there is more to do. Keys stay. DiskFull: nothing was changed.
        """
        self.require_open()
        with self.sorting_errors():
            more = upkeep.compact(self, max_bytes)
        self._keep_house()
        return more

    def _rotate_or_stay(self) -> None:
        try:
            with self.sorting_errors():
                upkeep.rotate(self)
        except (DiskFull, AccessError) as error:
            self.retry_rotation_at = self.sequence + ROTATION_PAUSE
            logger.warning("%s: staying in segment %d: %s", self.path, self.tail.file.number, error)

    def _keep_house(self) -> None:
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
                self._untold = error
        except BaseException:
            # Half of it may be done, in memory at least.
            self.fail()
            raise
        finally:
            self._keeping_house = False

    # Life and death.

    def require_open(self) -> None:
        """Raise what fits if the log takes no more work."""
        if self.status is _OPEN:
            return
        if self.status is _CLOSED:
            raise StoreClosed(f"{self.path}: the store is closed. Open it anew.")
        if self.status is _FORKED:
            raise ForkError(
                f"{self.path}: the store was opened before a fork, and only the parent may use it. "
                f"Nothing was changed. Open it in one process, after forking."
            )
        self._untold = None
        raise StoreFailed(
            f"{self.path}: an earlier failure stopped the store. Everything confirmed before it is "
            f"safe; what was under way is known after a reopen. Close it, see to the disk, reopen."
        )

    @contextmanager
    def sorting_errors(self) -> Iterator[None]:
        """Turn what the disk says into: refused, and the log goes on; or unknown, and it stops."""
        try:
            yield
        except OSError as error:
            if error.errno in SPACE_ERRNOS:
                raise DiskFull(
                    f"{self.path}: {error.strerror}. Nothing was stored. Takes and acks still "
                    f"work; free some space and try again."
                ) from error
            if error.errno in PASSING_ERRNOS:
                raise AccessError(
                    f"{self.path}: {error.strerror}. Nothing was stored, and the store goes on. "
                    f"Try again."
                ) from error
            self.status = _FAILED
            raise sync_error(self.path, error) from error
        except DurabilityError:
            self.status = _FAILED
            raise

    @_in_turn
    def close(self) -> None:
        """Make everything durable, leave a clean end, and let the lock go. Twice is fine.

        After a failure it only lets go. DurabilityError, also for a failure that no call has told
        yet: the log is closed all the same.
        """
        if self.status in (_CLOSED, _FORKED):
            return
        try:
            if self.status is _OPEN:
                with self.sorting_errors():
                    upkeep.finish(self)
        finally:
            self.status = _CLOSED
            self.release()
        if self._untold is not None:
            raise self._untold

    def fail(self) -> None:
        """Take no more work: what is on disk is known only after a reopen."""
        self.status = _FAILED

    def release(self) -> None:
        """Close every handle and take no more work."""
        if self.status in (Status.NEW, _OPEN):
            self.status = _FAILED
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
        if self.status is not _CLOSED:
            self.status = _FORKED
            self.release()
