"""A queue with the interface and the exceptions of `asyncio.Queue`, 3.13's `shutdown` included.

Code that was written for `asyncio.Queue` becomes durable by changing the line that makes the queue.
What durability makes different is listed in docs/reference/asyncio_queue.md.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from fifoq.errors import QueueClosed, QueueShutDown
from fifoq.member import AT_ONCE
from fifoq.queue import Queue

T = TypeVar("T")


class AsyncioQueue(Generic[T]):
    """What `Queue.as_asyncio` gives, the same object for the same queue.

    Tasks are counted as asyncio counts them, and what was in the queue before counts as put. The
    count is never below what is in the queue or was got and not done, so a record that came by
    another way (the queue's own `put`, a cancelled `put` that was already sealed) is one too.
    """

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue
        self._got = 0
        """Records that were got and not reported as done."""
        self._unfinished = self._left()
        self._finished = asyncio.Event()
        self._look_whether_finished()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} {self._format()}>"

    def __str__(self) -> str:
        return f"<{type(self).__name__} {self._format()}>"

    def _format(self) -> str:
        getters, putters = len(self._queue._takers), len(self._queue._putters)
        parts = [f"maxsize={self.maxsize}", f"name={self._queue.name!r}", f"size={self.qsize()}"]
        if getters:
            parts.append(f"_getters[{getters}]")
        if putters:
            parts.append(f"_putters[{putters}]")
        if self._unfinished:
            parts.append(f"tasks={self._unfinished}")
        if self._queue._shutdown:
            parts.append("shutdown")
        return " ".join(parts)

    # Sizes.

    @property
    def maxsize(self) -> int:
        """How many records the queue may hold; 0 if that is not limited."""
        return self._queue.options.maxsize or 0

    def qsize(self) -> int:
        """How many records are ready to be got."""
        queue = self._queue
        return 0 if queue._shutdown == AT_ONCE else queue.ready_count

    def empty(self) -> bool:
        return not self.qsize()

    def full(self) -> bool:
        """Whether `maxsize` is reached; records that are leased, or not yet committed, count."""
        return 0 < self.maxsize <= self._queue._depth()

    # Putting and getting.

    async def put(self, item: T) -> None:
        """Put a record; it is committed at the queue's durability on return.

        Waits while the queue is full. QueueShutDown if it was shut down: nothing was stored.
        """
        # Counted first: somebody may get the record and be done before this returns.
        self._count_one()
        try:
            await self._queue.put(item)
        except BaseException as error:
            self._uncount_one()
            if isinstance(error, QueueClosed):
                raise QueueShutDown(str(error)) from error
            raise

    def put_nowait(self, item: T) -> None:
        """Put a record in memory; it is written within `flush_interval`.

        QueueFull or QueueShutDown: nothing was stored.
        """
        try:
            self._queue.put_nowait(item)
        except QueueClosed as error:
            raise QueueShutDown(str(error)) from error
        self._count_one()

    async def get(self) -> T:
        """Remove the oldest record and return it; waits for one.

        Cancelled, the record is in the queue at its place. QueueShutDown once the queue is shut
        down and empty.
        """
        try:
            item = await self._queue.take()
        except QueueClosed as error:
            raise QueueShutDown(str(error)) from error
        self._count_got()
        return item

    def get_nowait(self) -> T:
        """Remove the oldest record in memory and return it. QueueEmpty if none is ready there."""
        try:
            item = self._queue.take_nowait()
        except QueueClosed as error:
            raise QueueShutDown(str(error)) from error
        self._count_got()
        return item

    # Tasks.

    def task_done(self) -> None:
        """One record that was got is done with. Only counts: a record that was got is gone.

        ValueError if that was said more often than records were put.
        """
        if not self._unfinished:
            raise ValueError("task_done() called too many times")
        self._unfinished -= 1
        self._got -= 1
        self._look_whether_finished()

    async def join(self) -> None:
        """Return once every record was got and reported as done."""
        await self._finished.wait()

    def shutdown(self, immediate: bool = False) -> None:
        """Let no more records in; `get` goes on until the queue is empty.

        With `immediate` nothing can be got any more; what is in the queue is not dropped, as
        asyncio does, but there on the next open. Tasks for it do not keep `join` waiting.
        """
        self._queue.shutdown(immediate=immediate)
        if immediate:
            self._unfinished = max(0, self._got)
            self._look_whether_finished()

    def _count_one(self) -> None:
        self._unfinished += 1
        self._finished.clear()

    def _uncount_one(self) -> None:
        """A put failed or was cancelled; what is sealed already comes all the same."""
        self._unfinished = max(0, self._unfinished - 1, self._got + self._left())
        self._look_whether_finished()

    def _count_got(self) -> None:
        self._got += 1
        self._unfinished = max(self._unfinished, self._got + self._left())
        if self._unfinished:
            self._finished.clear()

    def _left(self) -> int:
        """Records that somebody may still get."""
        return 0 if self._queue._shutdown == AT_ONCE else self._queue._depth()

    def _look_whether_finished(self) -> None:
        if not self._unfinished:
            self._finished.set()
