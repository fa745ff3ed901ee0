"""Transactions for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar, Unpack

from fifoq import transaction as _transaction
from fifoq.attributes import PutKeywords
from fifoq.loopthread import LoopThread
from fifoq.sync.delivery import Delivery
from fifoq.sync.queue import Queue
from store import Key

T = TypeVar("T")


class Transaction:
    """What `Store.transaction` gives, for one `with`. As `fifoq.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: _transaction.Transaction) -> None:
        self._thread = thread
        self._transaction = transaction

    def __repr__(self) -> str:
        return f"<sync.{repr(self._transaction)[1:]}"

    @property
    def keys(self) -> list[Key]:
        """Of the records put, once the block has ended well."""
        return self._transaction.keys

    def put(self, queue: Queue[T], item: T, **options: Unpack[PutKeywords]) -> None:
        """Put a record when the transaction commits."""
        self._thread.call(lambda: self._transaction.put(queue._queue, item, **options))

    def lease(
        self, queue: Queue[T], *, seconds: float | None = None, timeout: float | None = None
    ) -> Delivery[T]:
        """Hand out the oldest record until the transaction ends; waits for one."""
        leasing = queue._queue.lease(seconds=seconds, timeout=timeout)
        delivery = self._thread.run(lambda: self._transaction.start(queue._queue, leasing))
        return Delivery(self._thread, leasing, delivery)

    def take(self, queue: Queue[T], *, timeout: float | None = None) -> T:
        """The oldest record, which is removed when the transaction commits; waits for one."""
        return self._thread.run(lambda: self._transaction.take(queue._queue, timeout=timeout))

    def ack(self, delivery: Delivery[Any]) -> None:
        """The record is done for good when the transaction commits."""
        self._thread.call(lambda: self._transaction.ack(delivery._delivery))

    def nack(self, delivery: Delivery[Any]) -> None:
        """The record is back at its place when the transaction commits."""
        self._thread.call(lambda: self._transaction.nack(delivery._delivery))

    def reject(self, delivery: Delivery[Any], reason: str = "") -> None:
        """The record goes to the dead letters of its queue when the transaction commits."""
        self._thread.call(lambda: self._transaction.reject(delivery._delivery, reason))

    def __enter__(self) -> Transaction:
        self._thread.run(self._transaction.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(lambda: self._transaction.__aexit__(kind, error, traceback))
