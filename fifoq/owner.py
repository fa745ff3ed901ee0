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
from collections.abc import Awaitable, Callable
from functools import partial

from actors import Actor, Context
from fifoq.committer import Committer
from fifoq.holding import Consumers
from fifoq.jobs import as_ours
from fifoq.logs import fields, name_of
from store import FifoqError, ForkError, Log, StoreFailed

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
        try:
            await close(self._committer)
        finally:
            # The disk may have taken too long.
            self._committer.cut_short()


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
            await committer.finish()
    except Exception as error:
        committer.close_error = committer.close_error or as_ours(error)
    finally:
        committer.stop()
