"""Repair: a new store with everything that is intact in a damaged one. Never in place.

The damaged store is only read. What `store.quarantine` finds to be intact is written anew: records
under their keys, with every column, then totals, options, states. What is lost is told, counter by
counter, as far as anything that is left knows of it. Interrupted, the next run goes on behind what
is there, as `fifoq.tools.halves` says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

from fifoq.codec import kept_compression, kept_retention
from fifoq.consumers import CONSUMERS
from fifoq.member import keep_removed
from fifoq.staged import STAGED_DIRECTORY
from fifoq.tools.copying import begin_directory, copy_file, end_directory, sync_directory
from fifoq.tools.evidence import Evidence, Unreadable
from fifoq.tools.halves import BEGUN_NAME, begun_from, mark, take_up
from store import (
    CorruptionError,
    Draft,
    FifoqError,
    Log,
    LogOptions,
    RecordBlock,
    open_log,
)
from store.blocks import COUNTERS, TAKEN, Column, records_weight
from store.cache import SegmentCache
from store.check import check_store
from store.directory import Directory, access_error
from store.genesis import Genesis
from store.lookup import Lookup
from store.osfiles import SystemClock
from store.quarantine import salvage
from store.ranges import merged
from store.state import QueueState

COMMIT_BYTES: Final = 4 << 20
COMMIT_RECORDS: Final = 8192
"""What one commit of the new store holds, about."""
STATES_PER_COMMIT: Final = 256

Progress = Callable[[int, int], None]
"""Called with how many records are done, and how many there are."""


class RepairedQueue(msgspec.Struct, frozen=True):
    """A queue of the new store. `missing` are the counters, from first to last, that are lost.

    Where `unknown_from` is not None, nothing that is left says how far the queue went: records from
    that counter on may have been in the damage.
    """

    name: str
    records: int
    missing: list[tuple[int, int]]
    unknown_from: int | None = None


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair saved, and what it could not.

    `regions` are (segment, first byte, end byte) of the damage, `states` the names of state entries
    that are lost (cursors and the like), `notes` whatever else a person should know. `resumed`
    records were there already, from a run that was interrupted.
    """

    path: str
    queues: list[RepairedQueue]
    regions: list[tuple[int, int, int]]
    unreadable: list[Unreadable]
    states: list[str]
    notes: list[str]
    resumed: int = 0

    @property
    def records(self) -> int:
        return sum(queue.records for queue in self.queues)

    @property
    def lost(self) -> int:
        return sum(last - first + 1 for queue in self.queues for first, last in queue.missing)


class NothingLeft(FifoqError):
    """Nothing of the store can be told apart. Nothing was changed."""


def repair(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    options: LogOptions | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Write everything that is intact in the store at `path` to the new store `target`.

    Records keep their keys and all columns; totals, cursors and options come along as far as they
    are intact. Records whose removal is in the damage are there again. The store at `path` is not
    changed; it must have no owner. On return the new store is closed, durable and sound.
    AlreadyOpen, TargetExists, TargetInside, NothingLeft, AccessError: there is no new store.
    Interrupted, it leaves `TARGET.partial`; the next run goes on with it, or says in `notes` why it
    began anew.
    """
    path, target = os.fspath(path), os.fspath(target)
    try:
        evidence = Evidence(path)
        if not evidence.segments:
            raise NothingLeft(f"{path}: there is no segment of a store. Nothing was changed.")
        directory = Directory(evidence, path)
        try:
            directory.lock()
            partial = begin_directory(target, source=path)
            with suppress(OSError):
                # If there is nothing to save, nothing is left behind. What was begun stays.
                os.rmdir(partial)
            found = _Found(directory)
            try:
                begun = begun_from(evidence, found.store_id, found.state, found.lost)
                goes_on = take_up(partial, begun, found.state, evidence.notes)
                clock = SystemClock() if goes_on else _BornAs(found.store_id)
                with open_log(partial, clock=clock, options=options) as log:
                    if not goes_on:
                        mark(partial, begun)
                    resumed = sum(q.genesis.queue_size for q in log.state.queues.values())
                    queues = _write(found, log, progress)
            finally:
                found.close()
        finally:
            directory.close()
        for name in (CONSUMERS, STAGED_DIRECTORY):
            _take_along(path, partial, name, evidence.notes)
        sync_directory(partial)
        report = check_store(partial)
        assert report.sound, report
        os.unlink(f"{partial}/{BEGUN_NAME}")
        end_directory(partial, target)
    except OSError as error:
        about_target = str(error.filename).startswith(target)
        raise access_error(target if about_target else path, error) from error
    return Repaired(
        path=target,
        queues=queues,
        regions=found.lost.regions,
        unreadable=evidence.unreadable,
        states=found.lost.states,
        notes=evidence.notes,
        resumed=resumed,
    )


class _Found:
    """What is intact in a damaged store."""

    def __init__(self, directory: Directory) -> None:
        try:
            recovered, self.lost = salvage(directory, directory.names())
        except CorruptionError as error:
            raise NothingLeft(
                f"{directory.path}: nothing of it can be told apart ({error.reason}). Nothing was "
                f"changed."
            ) from None
        self.store_id = recovered.store_id
        self.state = recovered.state
        self._cache = SegmentCache(directory, self.state, self.store_id)
        self._lookup = Lookup(directory.path, self.state, self._cache.open)

    def close(self) -> None:
        self._cache.close()

    def blocks(self, queue: QueueState, counter: int) -> Iterator[RecordBlock]:
        """Live records from there on, and those only retained where somebody may want them."""
        last = queue.genesis.next_counter - 1
        if not (queue.retained or queue.held):
            yield from self._lookup.live_blocks(queue, counter, last)
            return
        while counter <= last:
            try:
                for block in self._lookup.blocks(queue, counter, last):
                    yield block
                    counter = block.last + 1
                return
            except CorruptionError:
                # Removed records are in the damage: those that are live lie behind it.
                rest = next(self._lookup.live_blocks(queue, counter, last), None)
                if rest is None:
                    return
                yield rest
                counter = rest.last + 1

    def states(self) -> Iterator[tuple[str, bytes]]:
        for name in sorted(self.state.states):
            try:
                value = self._lookup.state_value(name)
            except CorruptionError:
                self.lost.states.append(name)
                continue
            if value is not None:
                yield name, value

    def described(self, queue: QueueState) -> RepairedQueue:
        lost = self.lost
        missing, unknown = lost.missing.get(queue.name, []), lost.unknown.get(queue.name)
        return RepairedQueue(queue.name, queue.genesis.queue_size, missing, unknown)


class _BornAs(SystemClock):
    """The clock of a store that is to have a certain id, as consumers of the old one know it."""

    def __init__(self, store_id: bytes) -> None:
        self._moments = [int.from_bytes(store_id[:6], "big") * 1_000_000]
        self._token = store_id[6:]

    def wall(self) -> int:
        return self._moments.pop() if self._moments else super().wall()

    def token(self, count: int) -> bytes:
        assert count == len(self._token)
        return self._token


def _write(found: _Found, log: Log, progress: Progress | None) -> list[RepairedQueue]:
    """Write everything, behind what a run before this one wrote.

    Each commit is durable before the next: so that whatever is there later, even after a crash, is
    all that was put before it, and that no counter is passed over because it may have been shown.
    """
    queues = [found.state.queues[name] for name in sorted(found.state.queues)]
    total = sum(queue.genesis.queue_size for queue in queues)
    done = sum(queue.genesis.queue_size for queue in log.state.queues.values())
    # All that are begun but the last one are whole.
    last = max(log.state.queues, default="")
    for old in queues:
        if old.name in log.state.queues:
            # Before the first commit, which may reclaim: only a checkpoint would know of this.
            _keep_as(log.queue(old.name), old)
    for old in queues:
        if old.name < last:
            continue
        new = log.queue(old.name)
        _keep_as(new, old)
        for blocks in _commits(found.blocks(old, new.genesis.next_counter)):
            draft = log.draft()
            for block in blocks:
                _put(draft, new, old, block)
            log.commit(draft)
            done += sum(block.count for block in blocks)
            if progress is not None:
                progress(done, max(total, done))
        _settle(log, new, old)
    entries = list(found.states())
    for start in range(0, len(entries), STATES_PER_COMMIT):
        draft = log.draft()
        draft.set_states(entries[start : start + STATES_PER_COMMIT])
        log.commit(draft)
    return [found.described(queue) for queue in queues]


def _keep_as(new: QueueState, old: QueueState) -> None:
    """Keep what is removed, and compress, as the old queue did."""
    keep_removed(new, kept_retention(old.configuration))
    new.held = old.held
    new.compress_by(kept_compression(old.configuration))


def _commits(blocks: Iterator[RecordBlock]) -> Iterator[list[RecordBlock]]:
    """Blocks gathered into what is put in one commit."""
    batch: list[RecordBlock] = []
    size = count = 0
    for block in blocks:
        batch.append(block)
        size += int(block.offsets[-1] - block.offsets[0])
        count += block.count
        if size >= COMMIT_BYTES or count >= COMMIT_RECORDS:
            yield batch
            batch, size, count = [], 0, 0
    if batch:
        yield batch


def _put(draft: Draft, new: QueueState, old: QueueState, block: RecordBlock) -> None:
    """Records of a block under their keys; those that are only retained are removed again."""
    counters, times, payloads = block.counters(), block.times(), block.payloads()
    starts = [0, *(i for i in range(1, block.count) if counters[i] != counters[i - 1] + 1)]
    for start, stop in pairwise((*starts, block.count)):
        columns: dict[int, Column] = {
            bit: column[start:stop] if isinstance(column, list) else column[start:stop].tolist()
            for bit, column in block.columns.items()
            if bit != COUNTERS
        }
        draft.put(
            new,
            payloads[start:stop],
            first=counters[start],
            times=times[start:stop],
            columns=columns or None,
        )
    removed = [
        (counter, counter, records_weight(len(payload), 1))
        for counter, payload in zip(counters, payloads, strict=True)
        if not old.is_live(counter)
    ]
    if removed:
        draft.remove(new, merged(removed), reason=TAKEN)


def _settle(log: Log, new: QueueState, old: QueueState) -> None:
    """Options, attempts and totals, and no counter that was ever given out again."""
    draft = log.draft()
    # As after a crash: those that were kept may have been seen.
    last = max(old.genesis.next_counter - 1, old.genesis.reserved_upto)
    if new.genesis.next_counter <= last:
        # A record that is put and removed at once: counting goes on behind it.
        draft.put(new, [b""], first=last)
        draft.remove(new, [(last, last, records_weight(0, 1))])
    if old.configuration is not None:
        draft.configure(new, old.configuration)
    attempts = sorted(old.attempts.items())
    if attempts:
        draft.lease(new, [c for c, _ in attempts], [a for _, a in attempts], deadline=draft.now)
    if new.name not in draft.plans:
        # Nothing to write, unless the queue would be forgotten: a queue is what genesis says.
        draft.reserve(new, 0)
    _carry_totals(draft.plans[new.name].genesis, old.genesis)
    log.commit(draft)


def _carry_totals(new: Genesis, old: Genesis) -> None:
    """Statistics are those of the old queue; what is lost counts as neither put nor taken."""
    new.total_put_count = old.total_put_count
    new.total_take_count = old.total_take_count
    new.total_delay_ns = old.total_delay_ns
    new.last_put_time = max(new.last_put_time, old.last_put_time)
    new.last_take_time = old.last_take_time
    new.high_water_mark, new.high_water_time = old.high_water_mark, old.high_water_time
    new.low_water_mark, new.low_water_time = old.low_water_mark, old.low_water_time


def _take_along(path: str, target: str, name: str, notes: list[str]) -> None:
    """Files that other processes keep beside the log, as they are."""
    try:
        names = sorted(os.listdir(f"{path}/{name}"))
    except (FileNotFoundError, NotADirectoryError):
        return
    with suppress(FileNotFoundError):
        # Of a run before this one.
        shutil.rmtree(f"{target}/{name}")
    os.mkdir(f"{target}/{name}", 0o700)
    for each in names:
        try:
            copy_file(f"{path}/{name}/{each}", f"{target}/{name}/{each}")
        except OSError as error:
            notes.append(f"{name}/{each} could not be copied: {error.strerror}")
    sync_directory(f"{target}/{name}")
