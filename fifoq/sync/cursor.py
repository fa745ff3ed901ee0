"""Cursors for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Generic, TypeVar

from fifoq import cursor as _cursor
from fifoq.browse import Record
from fifoq.codec import decode_headers
from fifoq.cursor import Lag
from fifoq.errors import QueueClosed
from fifoq.loopthread import LoopThread
from fifoq.sync.delivery import Delivery, give_back
from store import Key

T = TypeVar("T")


class Cursor(Generic[T]):
    """A reading position that has a name; made by `Queue.cursor`. Threads share it as tasks do.

    What `fifoq.Cursor` says of its calls holds for these. A member here is whoever leases: a thread
    that ends hands nothing over before its lease runs out.
    """

    def __init__(self, thread: LoopThread, cursor: _cursor.Cursor[T]) -> None:
        self.name = cursor.name
        self._thread = thread
        self._cursor = cursor

    def __repr__(self) -> str:
        return f"<sync.{repr(self._cursor)[1:]}"

    @property
    def position(self) -> int:
        """Every record below this counter is done, whether that is committed or not."""
        return self._cursor.position

    @property
    def committed(self) -> int:
        """The same as the log has it: where the cursor is after a crash."""
        return self._cursor.committed

    def take(self, *, timeout: float | None = None) -> T:
        """The next record's item; waits for one. After an interrupt nothing was taken."""
        return self.take_many(1, timeout=timeout)[0]

    def take_many(
        self, count: int, *, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[T]:
        """The next 1 to `count` items, more than one only up to `max_bytes`."""
        taken = self._thread.run(
            lambda: self._cursor.take_records(count, max_bytes, timeout), self._cursor.take_back
        )
        return [item for _, item in taken]

    def records(self, *, wait: bool = True) -> Iterator[Record[T]]:
        """Records with keys and headers until the store is closed; without `wait` what is there."""
        while True:
            try:
                taken = self._thread.run(
                    lambda: self._cursor.take_records(1, for_new=wait), self._cursor.take_back
                )
            except QueueClosed:
                return
            if not taken:
                return
            ((record, item),) = taken
            yield Record(Key(record.counter, record.time), item, decode_headers(record.headers))

    def __iter__(self) -> Iterator[T]:
        for record in self.records():
            yield record.item

    def lease(
        self,
        *,
        seconds: float | None = None,
        timeout: float | None = None,
        auto_extend: bool = True,
    ) -> Delivery[T]:
        """Hand the next record to one of those that share the cursor; use it with `with`."""
        leasing = self._cursor.lease(seconds=seconds, timeout=timeout, auto_extend=auto_extend)
        return Delivery(self._thread, leasing, self._thread.run(leasing.start, give_back))

    def commit(self) -> None:
        """Make it durable that everything taken so far is done."""
        self._thread.run(self._cursor.commit)

    def seek(self, *, counter: int | None = None, timestamp: datetime | int | None = None) -> int:
        """Go on at a counter, or at the first record put at a time or later; returns where."""
        return self._thread.run(lambda: self._cursor.seek(counter=counter, timestamp=timestamp))

    def lag(self) -> Lag:
        """How many retained records are not done, and how long the oldest has been there."""
        return self._thread.run(self._cursor.lag)

    def delete(self) -> None:
        """Forget the cursor for good: it holds nothing any more."""
        self._thread.run(self._cursor.delete)
