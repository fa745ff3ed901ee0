"""What a queue raises beside the store's errors. The names that asyncio has are also asyncio's."""

from __future__ import annotations

import asyncio
import sys

from store import FifoqError


class QueueEmpty(FifoqError, asyncio.QueueEmpty):
    """`take_nowait` found nothing that is ready. Nothing was changed."""


class QueueFull(FifoqError, asyncio.QueueFull):
    """A limit of the queue, or of what may wait to be written, is reached. Nothing was stored."""


class QueueClosed(FifoqError):
    """The queue is closed or shut down; what was confirmed before is safe."""


if sys.version_info >= (3, 13):  # pragma: no cover
    QueueShutDown = asyncio.QueueShutDown
else:

    class QueueShutDown(Exception):
        """What `asyncio.Queue` raises after a shutdown; asyncio's own class from 3.13 on."""


class StaleLease(FifoqError):
    """The lease has ended and the record is back, or with somebody else. Nothing was changed."""


class SchemaMismatch(FifoqError):
    """The queue holds records of another type than the one it was opened with."""


class WrongLoop(FifoqError, RuntimeError):
    """The queue was used from another thread or event loop than the one that opened it."""


def nothing_came(queue: str, seconds: float | None) -> TimeoutError:
    """What whoever waits to take is told when the time is over."""
    return TimeoutError(f"queue {queue!r}: nothing to take in {seconds} s. Nothing was taken.")


def close_failed(failure: FifoqError, error: BaseException | None) -> None:
    """Raise what a close at the end of a block met, unless the block has an error of its own."""
    if error is None:
        raise failure
    error.add_note(f"Closing it failed as well: {type(failure).__name__}: {failure}")
