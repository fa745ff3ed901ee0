"""Read-only stores for blocking code: stats, peek and browse of a store that another one owns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast, overload

from fifoq.browse import Record
from fifoq.explain import Explanation, counter_of
from fifoq.view import ReadOnlyStats, View
from store import Key

T = TypeVar("T")


class ReadOnlyStore:
    """A store seen from outside, for any number of threads. See `fifoq.ReadOnlyStore`."""

    def __init__(self, view: View) -> None:
        self.path = view.path
        self._view = view

    def __repr__(self) -> str:
        return f"<sync.ReadOnlyStore {self.path!r} {'closed' if self._view.closed else 'open'}>"

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        return self._view.queues()

    @overload
    def queue(self, name: str = ..., *, type: type[T]) -> ReadOnlyQueue[T]: ...

    @overload
    def queue(self, name: str = ..., *, type: None = ...) -> ReadOnlyQueue[bytes]: ...

    def queue(self, name: str = "main", *, type: Any = None) -> Any:
        """A queue of this store; one that is not there yet is empty. InvalidName, SchemaMismatch"""
        self._view.check(name, type)
        return ReadOnlyQueue(self._view, name, type)

    def metrics(self) -> str:
        """What the log says of the store, for Prometheus. As `fifoq.ReadOnlyStore.metrics`."""
        return self._view.metrics()

    def explain(self, key: Key | int, *, queue: str = "main") -> Explanation:
        """What became of a record, from the log alone. As `fifoq.ReadOnlyStore.explain`."""
        return self._view.explain(queue, counter_of(key, queue))

    def close(self) -> None:
        """Give every handle back. Twice is fine."""
        self._view.close()

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ReadOnlyQueue(Generic[T]):
    """A queue seen from outside."""

    def __init__(self, view: View, name: str, type: type[T] | None) -> None:
        self.name = name
        self._view = view
        self._type = type

    def __repr__(self) -> str:
        return f"<sync.ReadOnlyQueue {self.name!r} of {self._view.path!r}>"

    def stats(self) -> ReadOnlyStats:
        """What the queue's last durable commit says of it."""
        return self._view.stats(self.name)

    def peek(self) -> T | None:
        """The oldest record, or None. CorruptionError if it can not be read."""
        return cast("T | None", self._view.peek(self.name, self._type))

    def browse(self, start: int = 1) -> Iterator[Record[T]]:
        """Records from counter `start` on, up to the newest of now, that are not removed, in order.

        What the owner removes meanwhile is passed over.
        """
        last = self._view.last(self.name)
        while start <= last:
            page, start = self._view.page(self.name, self._type, start, last)
            yield from page
