"""The owner: the actor to which a store's log belongs, from opening to closing.

It does what must happen in time but not in a caller's step: background syncs, sealing and
compacting a log that has gone quiet, closing. Commits do not pass through its task. The committer
is its batching mailbox for puts and takes: callers append to it in their own step, a batch is
closed by size, bytes, time or because somebody waits, and is handled in a callback of the loop,
which saves two task switches for each commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from actors import Actor, Context
from fifoq.committer import Committer
from fifoq.holding import Consumers
from fifoq.jobs import as_ours
from fifoq.logs import fields, name_of
from store import DiskFull, FifoqError, ForkError, Log, Status, StoreFailed
from store.blocks import DROPPED, records_weight

logger = logging.getLogger("fifoq")

Chore = Callable[[Committer], Awaitable[object]]


class Chores:
    """The owner's mailbox: what is to be done, and closing as the last thing."""

    def __init__(self, last: Chore) -> None:
        self._waiting: list[Chore] = []
        self._last: Chore | None = last
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    def give(self, chore: Chore) -> None:
        self._waiting.append(chore)
        self._awake()

    async def next_batch(self) -> list[Chore] | None:
        while not self._waiting:
            if self._closed:
                last, self._last = self._last, None
                return None if last is None else [last]
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        batch, self._waiting = self._waiting, []
        return batch

    def close(self) -> None:
        self._closed = True
        self._awake()

    def discard(self, error: BaseException) -> int:
        count = len(self._waiting)
        self._waiting.clear()
        return count

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Owner(Actor[Chore]):
    """Does the log's chores, and closes it."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    async def on_batch(self, batch: list[Chore], ctx: Context[Chore]) -> None:
        for chore in batch:
            try:
                await chore(self._committer)
            except FifoqError as error:
                # The committer knows; whoever calls next is told.
                logger.warning(
                    "a chore of the store failed: %s",
                    type(error).__name__,
                    extra=fields("chore_failed", self._committer.path, error=name_of(error)),
                )

    async def on_stop(self, ctx: Context[Chore]) -> None:
        """Nobody closed the store, and its loop ends: what was accepted must not be lost."""
        await close(self._committer)


async def sync(committer: Committer) -> None:
    """Make what was written without a sync durable."""
    if committer.usable:
        await committer.call(Log.flush)


async def tidy(committer: Committer) -> None:
    """Seal a log that has gone quiet and compact it, a step at a time."""
    if committer.usable and await committer.call(partial(_tidy, committer.consumers)):
        committer.watch_idleness()
    committer.watch_consumers()


def _tidy(consumers: Consumers, log: Log) -> bool:
    log.flush()
    log.seal()
    consumers.refresh(log)
    return log.compact()


async def look_at_consumers(committer: Committer) -> None:
    """See how far consumers are, free what they have passed, and look again later."""
    consumers = committer.consumers
    try:
        if committer.usable:
            await committer.call(consumers.refresh)
            if consumers.moved:
                # What it has passed may be worth compacting.
                committer.watch_idleness()
    finally:
        committer.watch_consumers()


def close_log(given: dict[str, int], before: Iterable[Callable[[Log], None]], log: Log) -> None:
    """Close the log, past counters that were given out although nothing has them."""
    # Nobody else is there: who still has the turn was interrupted as it was taken.
    log.free_turn()
    clean = False
    try:
        for prepare in before:
            prepare(log)
        clean = _count_past(given, log)
    finally:
        if clean:
            log.close()
        else:
            _leave(log)


def _count_past(given: dict[str, int], log: Log) -> bool:
    """Note which counters were given out: somebody may have seen them. False on a full disk."""
    for name, upto in given.items():
        if log.status is Status.OPEN and log.queue(name).genesis.next_counter <= upto:
            draft = log.draft()
            queue = log.queue(name)
            draft.put(queue, [b""], first=upto)
            draft.remove(queue, [(upto, upto, records_weight(0, 1))], reason=DROPPED)
            try:
                log.commit(draft, upkeep=False)
            except DiskFull:
                return False
    return True


def _leave(log: Log) -> None:
    """Let the log go without a clean end: counting goes on behind all that may have been seen."""
    try:
        if log.status is Status.OPEN:
            log.flush()
    finally:
        log.release()


async def close(committer: Committer) -> None:
    """Make everything durable, close the log, tell everybody. Twice is fine."""
    if committer.closed:
        return
    try:
        if committer.failure is None:
            await committer.flush_all()
        elif committer.lost_unheard:
            committer.close_error = StoreFailed(
                f"{committer.path}: closed, but an earlier failure had stopped the store, and "
                f"records that were put without waiting for the disk may not be there. Reopen it, "
                f"and see what is."
            )
            committer.close_error.__cause__ = committer.failure
    except FifoqError as error:
        committer.close_error = error
    committer.retire()
    try:
        if not isinstance(committer.failure, ForkError):
            given = {name: line.next - 1 for name, line in committer.lines.items()}
            await committer.finish(partial(close_log, given, committer.before_release))
    except Exception as error:
        committer.close_error = committer.close_error or as_ours(error)
    finally:
        committer.stop()
