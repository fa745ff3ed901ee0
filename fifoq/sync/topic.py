"""Topics for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from fifoq import topic as _topic
from fifoq.loopthread import LoopThread
from fifoq.sync.queue import Queue
from store import Key

T = TypeVar("T")


class Topic(Generic[T]):
    """A stream of records over several queues, for any number of threads. As `fifoq.Topic`."""

    def __init__(self, thread: LoopThread, topic: _topic.Topic[T], queues: list[Queue[T]]) -> None:
        self.name, self.partitions = topic.name, topic.partitions
        self._thread = thread
        self._topic = topic
        self._queues = queues

    def __repr__(self) -> str:
        return f"<sync.{repr(self._topic)[1:]}"

    def partition(self, index: int) -> Queue[T]:
        """The queue of a partition. ValueError if there is none of that number."""
        self._topic.partition(index)
        return self._queues[index]

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key."""
        return self._topic.partition_of(key)

    def put(self, item: T, **options: Any) -> tuple[int, Key]:
        """Put one record by `key`, `partition` or in turn; returns its partition and its key."""
        return self._thread.run(lambda: self._topic.put(item, **options))

    def put_many(self, items: Iterable[T], **options: Any) -> list[tuple[int, Key]]:
        """Put records in one commit, all or nothing; returns partition and key of each."""
        # Here, so that an iterator of the caller's runs on the caller's thread.
        listed = list(items)
        return self._thread.run(lambda: self._topic.put_many(listed, **options))

    def __len__(self) -> int:
        """Records that are there, in all partitions."""
        return sum(map(len, self._queues))
