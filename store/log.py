"""The log: the owner's side of a store. Commits frames; `upkeep` rotates, checkpoints, reclaims.

Synchronous and single-threaded. One frame is written at a time; a frame that is to be durable is
synced before the next one is written. A failure whose outcome only the disk knows stops the log:
it is FAILED, refuses all work, and only opening anew tells what is there.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from store import upkeep
from store.blocks import RecordBlock, records_weight
from store.cache import SegmentCache
from store.checkpoints import Checkpoints
from store.checksum import Buffer
from store.directory import Directory, sync_error
from store.draft import Draft, joined, merged
from store.errors import (
    AccessError,
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
from store.genesis import check_name, encode_genesis
from store.keys import COUNTER_MAX, Key
from store.lookup import Lookup
from store.options import LogOptions
from store.recovery import Recovered
from store.state import QueueState
from store.tail import PASSING_ERRNOS, SPACE_ERRNOS, Tail

logger = logging.getLogger("store")

SECTOR_BYTES: Final = 512
RESERVED_COUNTERS: Final = 1 << 20
"""Counters that commits without a sync may show before their records are durable."""


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


class Log:
    """An open store. `open_log` makes one; close it, or use it in a `with`."""

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
            directory, recovered.checkpoint_number, recovered.checkpoint_name
        )
        self.since_checkpoint = 0
        self.doomed = list(recovered.leftovers)
        self._covering: set[QueueState] = set()
        self._sealed = True
        self._keeping_house = False
        self._untold: DurabilityError | None = None
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
        self.require_open()
        queue = self.state.queues.get(name)
        return queue if queue is not None else self.state.queue(check_name(name))

    def draft(self) -> Draft:
        """Start a commit."""
        self.require_open()
        return Draft(self.state, self.clock.wall())

    def commit(self, draft: Draft, *, sync: bool = True) -> int:
        """Write the draft as one frame; returns its sequence. A draft is committed once.

        With `sync` the frame is durable on return. DiskFull and AccessError: nothing was stored
        and the log goes on. DurabilityError: whether it was stored is known after a reopen, and
        the log has failed. Without `sync` it is synced all the same when it shows counters that
        nothing durable covers yet.
        """
        self.require_open()
        if not sync:
            sync = self._cover_counters(draft)
        for entry in self.state.unlogged:
            draft.repeat_removal(self.state.queues[entry.queue], entry)
        for plan in draft.plans.values():
            plan.finish()
        genesis = encode_genesis([plan.genesis for plan in draft.plans.values()])
        size = frame_bytes(sum(map(len, draft.parts)) + len(genesis))
        if upkeep.rotation_due(self, size):
            self._rotate_or_stay()
        if self._make_room(size, reserve=draft.only_drains):
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
        self._keep_house()
        return self.sequence

    def _cover_counters(self, draft: Draft) -> bool:
        """Reserve counters ahead where a commit without a sync would show uncovered ones."""
        uncovered = [
            plan
            for plan in draft.plans.values()
            if plan.puts and plan.genesis.next_counter - 1 > plan.queue.reserved_durable
        ]
        for plan in uncovered:
            upto = min(plan.genesis.next_counter + RESERVED_COUNTERS, COUNTER_MAX)
            plan.genesis.reserved_upto = upto
        return bool(uncovered)

    def _append(self, draft: Draft, genesis: bytes) -> None:
        before = self.sequence, self.checksum
        try:
            frame = self._encode(draft.parts, genesis, draft.block_count)
            offset = self._write(frame, before)
        except BaseException:
            # Sequence and chain go on from the last frame in the file, whatever got in the way.
            self.sequence, self.checksum = before
            raise
        tail = self.tail
        number = tail.file.number
        try:
            index = self.cache.tail_index(number)
            draft.apply(number, offset, index)
            place = self.state.segments[number]
            place.length = tail.length
            if draft.holds_records:
                place.record_frame_bytes += len(frame)
            if index is not None:
                index.length = tail.length
            self._covering.update(plan.queue for plan in draft.plans.values())
            self.state.unlogged.clear()
            self.since_checkpoint += len(frame)
            self._sealed = False
        except BaseException:
            # The frame is in the file but not in the state: only a reopen brings them together.
            self.status = _FAILED
            raise

    def _encode(
        self, parts: list[Buffer], genesis: bytes, block_count: int, flags: int = 0, ahead: int = 0
    ) -> bytearray:
        """One frame for `ahead` bytes behind the tail's end; sequence and chain move on with it."""
        file = self.tail.file
        frame, self.checksum = encode_frame(
            parts,
            genesis,
            block_count=block_count,
            flags=flags,
            sequence=self.sequence + 1,
            durable_upto=self.durable_upto,
            previous=self.checksum,
            check=file.check,
            seed=file.seed,
            offset=self.tail.length + ahead,
        )
        self.sequence += 1
        return frame

    def _write(self, frames: bytearray, before: tuple[int, int]) -> int:
        """Append frames that were just encoded; if refused, sequence and chain go back."""
        try:
            return self.tail.append(frames)
        except (DiskFull, AccessError):
            self.sequence, self.checksum = before
            raise
        except BaseException as error:
            self.status = _FAILED
            if isinstance(error, OSError):
                raise sync_error(self.tail.name, error) from error
            raise

    def _make_room(self, size: int, *, reserve: bool) -> bool:
        if self.tail.has_room(size):
            return True
        with self.sorting_errors():
            return self.tail.make_room(size, reserve=reserve)

    def _commit_in_place(self, draft: Draft) -> None:
        """Commit removals on a full disk by overwriting a checkpoint copy, which needs no space."""
        with self.sorting_errors():
            room = self.checkpoints.room()
        if upkeep.checkpoint_bytes(self) + draft.checkpoint_growth() > room:
            raise DiskFull(
                f"{self.path}: the disk is full, and so is the space held for removals. Nothing "
                f"was changed. Free some space and try again."
            )
        try:
            unlogged = joined(self.state.unlogged, draft.removals())
            draft.apply(self.tail.file.number, self.tail.length, None)
            self.state.unlogged = unlogged
            upkeep.write_checkpoint(self)
        except BaseException as error:
            self.status = _FAILED
            if isinstance(error, OSError):
                raise sync_error(self.path, error) from error
            raise

    def flush(self) -> None:
        """Make every frame so far durable. DurabilityError: the log has failed."""
        self.require_open()
        self.sync_tail()
        self._keep_house()

    def sync_tail(self) -> None:
        """Sync what was written; everything up to here counts as durable then."""
        try:
            self.tail.sync()
        except BaseException:
            self.status = _FAILED
            raise
        self.durable_upto = self.sequence
        for queue in self._covering:
            queue.reserved_durable = queue.genesis.reserved_upto
        self._covering.clear()

    def seal(self) -> None:
        """Witness that every frame so far is durable, for readers and for recovery.

        Two empty frames in one write: the first ends the sector of the last commit, the second
        stands in a sector of its own, so that no single bad sector hides commit and witness.
        """
        self.require_open()
        if self._sealed or self.durable_upto < self.sequence:
            return
        gap = -self.tail.length % SECTOR_BYTES
        if gap < frame_bytes(0):
            gap += SECTOR_BYTES
        if not self._make_room(gap + frame_bytes(0), reserve=True):
            return
        before = self.sequence, self.checksum
        padding = bytes(gap - FRAME_HEADER_BYTES - TRAILER_BYTES)
        try:
            frames = self._encode([padding], b"", 0, FLAG_SEAL)
            frames += self._encode([], b"", 0, FLAG_SEAL, ahead=gap)
            self._write(frames, before)
        except BaseException:
            self.sequence, self.checksum = before
            raise
        self.state.segments[self.tail.file.number].length = self.tail.length
        index = self.cache.tail_index(self.tail.file.number)
        if index is not None:
            index.length = self.tail.length
        self._sealed = True

    # Records, one call at a time.

    def put(self, name: str, payloads: Sequence[Buffer], *, sync: bool = True) -> range:
        """Put records in one commit; returns their counters."""
        draft = self.draft()
        first = draft.put(self.queue(name), payloads)
        self.commit(draft, sync=sync)
        return range(first, first + len(payloads))

    def take(self, name: str, count: int = 1, *, sync: bool = True) -> list[tuple[Key, bytes]]:
        """Remove up to `count` records at the head in one commit; returns them, oldest first."""
        queue = self.queue(name)
        if count < 1:
            return []
        taken: list[tuple[Key, bytes]] = []
        ranges: list[tuple[int, int, int]] = []
        for block in self.read(name):
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
            draft = self.draft()
            delay = sum(max(0, draft.now - key.timestamp) for key, _ in taken)
            draft.remove(queue, merged(ranges), delay_ns=delay)
            self.commit(draft, sync=sync)
        return taken

    def read(
        self, name: str, first: int = 1, last: int = COUNTER_MAX, *, removed: bool = False
    ) -> Iterator[RecordBlock]:
        """Live records first..last in order, as whole blocks; with `removed` also those retained.

        CorruptionError where damage is reached.
        """
        queue = self.queue(name)
        find = self.lookup.blocks if removed else self.lookup.live_blocks
        blocks = find(queue, first, min(last, queue.genesis.next_counter - 1))
        while True:
            self.require_open()
            with self.sorting_errors():
                block = next(blocks, None)
            if block is None:
                return
            yield block

    def get(self, name: str, counter: int) -> tuple[Key, bytes] | None:
        """One live record by its counter, or None."""
        for block in self.read(name, counter, counter):
            return block.keys()[0], block.payloads()[0]
        return None

    def exists(self, name: str, counter: int) -> bool:
        """Whether a record is live; reads nothing from disk."""
        return self.queue(name).is_live(counter)

    def keys(self, name: str, first: int = 1, last: int = COUNTER_MAX) -> Iterator[Key]:
        """Keys of live records in order."""
        for block in self.read(name, first, last):
            yield from block.keys()

    def seek(self, name: str, time: int) -> int:
        """Counter of the first retained record put at `time` (ns) or later, else the next one."""
        with self.sorting_errors():
            return self.lookup.counter_at(self.queue(name), time)

    def state_of(self, name: str) -> bytes | None:
        """Newest value of a state entry, or None."""
        self.require_open()
        with self.sorting_errors():
            return self.lookup.state_value(name)

    # Upkeep.

    def rotate(self) -> None:
        """Go on in a new segment; a tail without a frame stays.

        DiskFull and AccessError: the log goes on in the old segment. DurabilityError: it failed.
        """
        self.require_open()
        with self.sorting_errors():
            upkeep.rotate(self)

    def checkpoint(self) -> None:
        """Write the state to the older checkpoint copy. DiskFull: the newer one still serves."""
        self.require_open()
        with self.sorting_errors():
            upkeep.write_checkpoint(self)

    def compact(self, max_bytes: int = 1 << 20) -> bool:
        """Copy up to that many bytes of live records out of a sparse segment.

        Returns whether there is more to do. Keys stay. DiskFull: nothing was changed.
        """
        self.require_open()
        with self.sorting_errors():
            return upkeep.compact(self, max_bytes)

    def _rotate_or_stay(self) -> None:
        try:
            self.rotate()
        except (DiskFull, AccessError) as error:
            logger.warning("%s: staying in segment %d: %s", self.path, self.tail.file.number, error)

    def _keep_house(self) -> None:
        """Checkpoint and reclaim after a commit; their failure is not the commit's."""
        if self._keeping_house or not upkeep.housework_due(self):
            return
        self._keeping_house = True
        try:
            with self.sorting_errors():
                upkeep.keep_house(self)
        except FifoqError as error:
            logger.warning("%s: upkeep put off: %s", self.path, error)
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
