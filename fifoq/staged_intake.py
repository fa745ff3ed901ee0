"""The owner's intake of staged files: what other processes handed over becomes records.

It looks when the store is opened, and when the system tells that a manifest has come; a store
without a directory of staged files is never looked at. Each step is one frame: records, and how
far their writer is. So whatever ends in between, a batch is neither lost nor in the queue twice.
File work is done on the writer, a bounded piece at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from fifoq.attributes import NONE, PRIORITY_DEFAULT, Attributes, attributes_in, columns_of
from fifoq.codec import kept_with_aside, read_kept
from fifoq.committer import Committer
from fifoq.dedup import Dedup, digest_of, read_pages
from fifoq.errors import QueueClosed
from fifoq.line import Line
from fifoq.logs import fields, name_of
from fifoq.notice import Notice
from fifoq.options import QueueOptions
from fifoq.putting import Putting
from fifoq.runs import Batch
from fifoq.staged import (
    Manifest,
    Progress,
    decode_progress,
    encode_progress,
    is_once,
    manifest_name,
)
from fifoq.staged_files import Place, StagedFiles
from store import DamageError, Draft, FifoqError, FormatError, InvalidName, Log, RecordBlock
from store.blocks import DEDUP_ID, DELIVER_AT, PRIORITY
from store.directory import NO_FILE_ERRNOS
from store.state import QueueState

R = TypeVar("R")
logger = logging.getLogger("fifoq")

STEP_BYTES: Final = 16 << 20
"""What one frame takes in, about; a smaller batch is there all at once."""
STEP_BYTES_ONCE: Final = 1 << 20
"""The same of records with ids: each of those is looked up, some 10 microseconds on the loop."""
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
"""After a full disk, or whatever else may pass: the first wait, doubled each time, and the last."""
WATCH_AFTER_SECONDS: Final = 0.25
"""A store that is open for less is not watched: giving a watch back costs the kernel 20 ms."""
POLL_SECONDS: Final = 0.5
"""How often the directory is looked at where the system does not tell of new files."""

_UNBELIEVABLE: Final = (DamageError, FormatError, InvalidName, msgspec.MsgspecError)


class StagedIntake:
    """Takes in the staged files of one open store."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._files: StagedFiles
        self._notice: Notice | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._again = False
        self._retry_seconds = RETRY_SECONDS
        self._ended = False
        self._there = False
        self._opening: Counter[str] = Counter()
        self._passed_by: set[str] = set()

    # Life.

    def look(self, log: Log) -> None:
        """On the writer, as the store is opened: whether there is anything."""
        self._files = StagedFiles(log.directory.files, log.path)
        self._there = self._files.exist()

    def start(self, *, watch: bool) -> None:
        """On the loop, once the store is open; with `watch` the system is asked to tell of more."""
        if watch:
            self._asking = self._committer.loop.call_later(WATCH_AFTER_SECONDS, self._ask)
        if self._there:
            self.wake()

    def _ask(self) -> None:
        if self._may_go_on:
            self._committer.call(self._watch).add_done_callback(self._asked)

    def _watch(self, log: Log) -> tuple[Notice | None, bool]:
        notice = Notice.of(log.path, self._files.path)
        # After the watch: what came before it was set is seen, and what comes now is told.
        return notice, self._files.exist()

    def _asked(self, asking: asyncio.Future[object]) -> None:
        if asking.cancelled() or asking.exception() is not None:
            return
        notice, there = cast("tuple[Notice | None, bool]", asking.result())
        if self._ended:
            return
        if notice is not None:
            self._notice = notice
            notice.start(self._committer.loop, self.wake)
        if there:
            self.wake()

    def tidied(self) -> None:
        """The store has gone quiet after some work: a moment to look, where nobody tells us."""
        if self._notice is None and not self._there and not self._ended:
            self.wake()

    def wake(self) -> None:
        """Look for manifests."""
        self._again = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ended and (self._task is None or self._task.done()):
            self._task = self._committer.loop.create_task(self._run())

    async def stop(self) -> asyncio.Future[None] | None:
        """Take nothing more in; what is left is for the next open.

        What is returned is done when nothing is left open.
        """
        self._ended = True
        for timer in (self._timer, self._asking):
            if timer is not None:
                timer.cancel()
        notice, self._notice = self._notice, None
        closing = notice.stop() if notice is not None else None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        return closing

    # Queues that are opened meanwhile.

    def begin_opening(self, name: str) -> None:
        """From here on no frame for that queue is written past it.

        One that was asked for before is written before the queue's state is read: calls of the
        writer keep their order.
        """
        self._opening[name] += 1

    def end_opening(self, name: str) -> None:
        self._opening[name] -= 1
        if not self._opening[name]:
            del self._opening[name]

    # The work.

    @property
    def _may_go_on(self) -> bool:
        return self._committer.usable and not self._committer.closing and not self._ended

    async def _run(self) -> None:
        while self._again and self._may_go_on:
            self._again = False
            try:
                self._there = await self._take_all_in()
                self._retry_seconds = RETRY_SECONDS
            except QueueClosed:
                return
            except (FifoqError, OSError) as error:
                if not self._may_go_on:
                    return
                logger.warning(
                    "staged files wait to be taken in: %s",
                    error,
                    extra=fields("staged_waits", self._committer.path, error=name_of(error)),
                )
                self._look_again_in(self._retry_seconds)
                self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)
                return
        if self._there and self._notice is None and self._may_go_on:
            self._look_again_in(POLL_SECONDS)

    def _look_again_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._committer.loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self.wake()

    async def _take_all_in(self) -> bool:
        """Every batch that is there; False if there is not even a directory."""
        names = await self._call(lambda log: self._list())
        if names is None:
            return False
        for name in names:
            if self._may_go_on:
                await self._take_in(name)
        if self._may_go_on:
            # Otherwise a job may be half taken in, and what is known of it is needed.
            await self._call(_forget_jobs)
        return True

    def _list(self) -> list[str] | None:
        if self._notice is not None:
            # Before the listing: what comes after it is told.
            self._notice.watch_staged()
        return self._files.manifests()

    async def _take_in(self, name: str) -> None:
        try:
            manifest, progress = await self._call(lambda log: self._load(log, name))
            if _is_done(manifest, progress):
                await self._call(lambda log: self._files.remove(name, manifest))
                return
            step = await self._check(manifest)
            await self._pour(manifest, progress, step)
        except (*_UNBELIEVABLE, FileNotFoundError) as error:
            await self._refuse(name, str(error))
            return
        except OSError as error:
            if error.errno not in NO_FILE_ERRNOS:
                raise
            # A directory, a link or the like: not ours, and what is behind it must not wait.
            if name not in self._passed_by:
                self._passed_by.add(name)
                logger.error(
                    "%s/%s is passed by: %s",
                    self._files.path,
                    name,
                    error,
                    extra=fields("staged_passed_by", self._committer.path, file=name),
                )
            return
        await self._call(lambda log: self._files.remove(name, manifest))
        logger.info(
            "took in %d records of writer %s",
            manifest.record_count,
            manifest.writer,
            extra=fields(
                "staged_taken_in",
                self._committer.path,
                queue=manifest.queue,
                writer=manifest.writer,
                count=manifest.record_count,
            ),
        )

    async def _refuse(self, name: str, reason: str) -> None:
        logger.error(
            "%s/%s is refused and set aside: %s",
            self._files.path,
            name,
            reason,
            extra=fields("staged_refused", self._committer.path, file=name),
        )
        await self._call(lambda log: self._files.refuse(name, reason))

    def _load(self, log: Log, name: str) -> tuple[Manifest, Progress | None]:
        manifest = self._files.load(name)
        if manifest.store != log.store_id.hex():
            raise FormatError(f"it was written for the store {manifest.store}, not for this one")
        if name != manifest_name(manifest.queue, manifest.writer, manifest.batch):
            raise FormatError("its name does not fit its content")
        progress = decode_progress(log.state_of(manifest.state_name))
        if progress and progress.query and manifest.query not in ("", progress.query):
            raise FormatError(
                f"writer {manifest.writer!r} belongs to the query {progress.query}, and this is "
                f"batch {manifest.batch} of the query {manifest.query}. Give each query, and each "
                f"new checkpoint, a writer name of its own"
            )
        if (
            progress
            and progress.batch == manifest.batch
            and progress.blocks
            and progress.parts != manifest.parts_checksum
        ):
            raise FormatError(
                f"{progress.blocks} blocks of batch {manifest.batch} are in the queue already, of "
                f"other parts than these"
            )
        return manifest, progress

    async def _check(self, manifest: Manifest) -> int:
        """Read all of it before any of it is taken in: a batch is taken in whole or not at all.

        Returns how much of it one frame is to hold.
        """
        place: Place | None = Place()
        ranked = once = False
        while place is not None:
            blocks, place = await self._read(manifest, place, STEP_BYTES)
            ranked = ranked or any(map(_has_priorities, blocks))
            once = once or any(map(_has_ids, blocks))
        if ranked and not await self._keeps_priorities(manifest.queue):
            raise FormatError(
                f"queue {manifest.queue!r} has no priorities, and the column priority has others "
                f"than {PRIORITY_DEFAULT}. Open the queue with priorities=True, or leave it out"
            )
        return STEP_BYTES_ONCE if once else STEP_BYTES

    async def _keeps_priorities(self, name: str) -> bool:
        queue = await self._opened(name)
        if queue is not None:
            return queue.options.priorities
        configuration = await self._call(lambda log: _configuration_of(log, name))
        return bool(read_kept(configuration).options.get("priorities"))

    async def _read(
        self, manifest: Manifest, place: Place, step: int
    ) -> tuple[list[RecordBlock], Place | None]:
        return await self._call(lambda log: self._files.read(manifest, place, step))

    async def _pour(self, manifest: Manifest, progress: Progress | None, step: int) -> None:
        done = progress.blocks if progress and progress.batch == manifest.batch else 0
        place: Place | None = await self._call(
            lambda log: self._files.place_of(manifest, done or 0)
        )
        while place is not None:
            blocks, place = await self._read(manifest, place, step)
            if not blocks:
                break
            blocks_done = place.blocks if place else None
            after = Progress(manifest.batch, blocks_done, manifest.query, manifest.parts_checksum)
            mark = (manifest.state_name, encode_progress(after))
            await self._put(manifest.queue, blocks, mark)

    async def _put(self, name: str, blocks: list[RecordBlock], mark: tuple[str, bytes]) -> None:
        """One frame, through the queue if it is open, since that gives out its counters."""
        queue = await self._opened(name)
        if queue is None:
            await self._put_directly(name, blocks, mark)
        else:
            await queue.put_staged(*_taken_apart(blocks), mark)

    async def _opened(self, name: str) -> Putting[Any] | None:
        """The queue if it is open, or about to be."""
        while True:
            line = self._committer.lines.get(name)
            if isinstance(line, Putting):
                return line
            if line is None and name not in self._opening:
                return None
            # It is being opened, or a frame that is under way puts records into it.
            await self._call(lambda log: None)

    async def _put_directly(
        self, name: str, blocks: list[RecordBlock], mark: tuple[str, bytes]
    ) -> None:
        def commit(log: Log) -> None:
            queue, draft = log.queue(name), log.draft()
            if any(DELIVER_AT in block.columns for block in blocks):
                # Whoever opens the queue has to look for them.
                configuration = kept_with_aside(queue.configuration)
                if configuration is not None:
                    draft.configure(queue, configuration)
            if any(map(_has_ids, blocks)):
                _put_once(log, draft, queue, blocks)
            else:
                for block in blocks:
                    draft.put_block(queue, block)
            draft.set_states([mark])
            log.commit(draft)

        await self._call(commit)
        # Readers see a commit once the next one, or a seal, witnesses it.
        self._committer.watch_idleness()

    async def _call(self, function: Callable[[Log], R]) -> R:
        return cast(R, await self._committer.call(function))


def _is_done(manifest: Manifest, progress: Progress | None) -> bool:
    if progress is None:
        return not manifest.record_count
    if progress.batch == manifest.batch:
        return progress.blocks is None
    return progress.batch > manifest.batch


def _has_priorities(block: RecordBlock) -> bool:
    return any(lane != PRIORITY_DEFAULT for lane in block.columns.get(PRIORITY, ()))


def _has_ids(block: RecordBlock) -> bool:
    return DEDUP_ID in block.columns


def _configuration_of(log: Log, name: str) -> bytes | None:
    queue = log.state.queues.get(name)
    return None if queue is None else queue.configuration


def _taken_apart(blocks: list[RecordBlock]) -> tuple[list[bytes], dict[int, Attributes]]:
    """Payloads of blocks, and the attributes of those that have some."""
    payloads: list[bytes] = []
    attributes: dict[int, Attributes] = {}
    for block in blocks:
        start = len(payloads) - block.first
        attributes.update((start + counter, of) for counter, of in attributes_in(block))
        payloads += block.payloads()
    return payloads, attributes


def _put_once(log: Log, draft: Draft, queue: QueueState, blocks: list[RecordBlock]) -> None:
    """Put those records into a queue that is not open whose ids its window does not have."""
    genesis = queue.genesis
    line = Line(
        queue.name,
        next_counter=genesis.next_counter,
        floor=genesis.floor,
        size=genesis.queue_size,
        last_put_time=genesis.last_put_time,
    )
    options = read_kept(queue.configuration).options
    dedup = Dedup(line, options.get("dedup_window", QueueOptions().dedup_window))
    dedup.restore(read_pages(log, queue.name), 0.0, draft.now)
    first = upto = genesis.next_counter
    for block in blocks:
        payloads, attributes = _taken_apart([block])
        fresh = []
        for index in range(len(payloads)):
            id = attributes.get(index, NONE).dedup_id
            if id:
                digest = digest_of(id)
                if dedup.find(digest, 0.0) is not None:
                    continue
                dedup.add(digest, upto, max(genesis.last_put_time, draft.now), 0.0)
            fresh.append(index)
            upto += 1
        if fresh:
            columns = columns_of([attributes.get(index, NONE) for index in fresh])
            draft.put(queue, [payloads[index] for index in fresh], columns=columns)
    draft.set_states(dedup.seal(Batch(first=first, upto=upto - 1), 0.0))


def _forget_jobs(log: Log) -> None:
    """Drop what is known of jobs that never come again: their manifests are gone for good."""
    names = [name for name, entry in log.state.states.items() if is_once(name) and entry.present]
    if names:
        draft = log.draft()
        draft.set_states([(name, None) for name in names])
        log.commit(draft, sync=False)
