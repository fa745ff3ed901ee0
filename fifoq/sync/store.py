"""The store for blocking code and any number of threads, and its end. See `fifoq.sync`."""

from __future__ import annotations

import atexit
import time
from contextlib import suppress
from typing import Any, Final, TypeVar, Unpack, overload

from fifoq import store as _store
from fifoq import topic as _topic
from fifoq.compacting import Compacted
from fifoq.errors import QueueClosed, close_failed
from fifoq.explain import Explanation
from fifoq.keywords import QueueKeywords
from fifoq.loopthread import LoopThread
from fifoq.sync.dead_letters import DeadLetters
from fifoq.sync.queue import Queue
from fifoq.sync.topic import Topic
from fifoq.sync.transaction import Transaction
from store import FifoqError, Key, Quarantine

T = TypeVar("T")

EXIT_SECONDS: Final = 5.0
"""How long the end of the interpreter waits for stores that were not closed, all together."""

_open_stores: dict[Store, None] = {}


class Store:
    """An open store for any number of threads. Its queues share one log, one commit, one sync."""

    def __init__(self, thread: LoopThread, store: _store.Store) -> None:
        self.path = store.path
        self._thread = thread
        self._store = store
        self._queues: dict[str, Queue[Any]] = {}
        self._topics: dict[str, Topic[Any]] = {}
        _open_stores[self] = None

    def __repr__(self) -> str:
        return f"<sync.Store {self.path!r} {'closed' if self.closed else 'open'}>"

    @property
    def closed(self) -> bool:
        return self._thread.stopping

    @property
    def quarantine(self) -> Quarantine | None:
        """What `recover="quarantine"` set aside, if anything."""
        return self._store.quarantine

    @overload
    def queue(
        self, name: str = ..., *, type: type[T], **options: Unpack[QueueKeywords]
    ) -> Queue[T]: ...

    @overload
    def queue(
        self, name: str = ..., *, type: None = ..., **options: Unpack[QueueKeywords]
    ) -> Queue[bytes]: ...

    def queue(
        self, name: str = _store.DEFAULT_QUEUE, *, type: Any = None, **options: Any
    ) -> Queue[Any]:
        """Open a queue of this store; the same object for the same name. As `fifoq.Store.queue`."""
        opened = self._thread.run(lambda: self._store.queue(name, type=type, **options))
        return self._queues.setdefault(name, Queue(self._thread, opened))

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        return self._thread.call(self._store.queues)

    @overload
    def topic(
        self,
        name: str,
        *,
        partitions: int | None = ...,
        type: type[T],
        **options: Unpack[QueueKeywords],
    ) -> Topic[T]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        partitions: int | None = ...,
        type: None = ...,
        **options: Unpack[QueueKeywords],
    ) -> Topic[bytes]: ...

    def topic(
        self, name: str, *, partitions: int | None = None, type: Any = None, **options: Any
    ) -> Any:
        """Open a topic of this store; the same object for the same name. As `fifoq.Store.topic`."""
        opened: _topic.Topic[Any] = self._thread.run(
            lambda: self._store.topic(name, partitions=partitions, type=type, **options)
        )
        queues = [self.queue(opened.partition(at).name) for at in range(opened.partitions)]
        return self._topics.setdefault(name, Topic(self._thread, opened, queues))

    def dead_letters(self, name: str = _store.DEFAULT_QUEUE) -> DeadLetters:
        """The dead letters of a queue, to look at, replay or purge them."""
        return DeadLetters(self._thread, self._thread.run(lambda: self._store.dead_letters(name)))

    def transaction(self) -> Transaction:
        """Puts, leases and acks over queues of this store that are one frame, or nothing."""
        return Transaction(self._thread, self._store.transaction())

    def metrics(self) -> str:
        """Statistics for Prometheus. As `fifoq.Store.metrics`."""
        return self._thread.call(self._store.metrics)

    def explain(self, key: Key | int, *, queue: str = _store.DEFAULT_QUEUE) -> Explanation:
        """What became of a record, from the log alone. As `fifoq.Store.explain`."""
        return self._thread.run(lambda: self._store.explain(key, queue=queue))

    def flush(self) -> None:
        """Make everything that was put, taken and acked in any queue durable."""
        self._thread.run(self._store.flush)

    def compact(self) -> Compacted:
        """Give back the space of what is removed, all that can be. As `fifoq.Store.compact`."""
        return self._thread.run(self._store.compact)

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable, let the directory go, end the thread. Twice is fine.

        Whoever waits in a queue of this store gets QueueClosed. Interrupted or timed out, closing
        goes on in the background; calling it again waits for it. In the child of a fork nothing
        happens: the store is the parent's.
        """
        if self._thread.of_another_process:
            return
        try:
            with suppress(QueueClosed):
                self._thread.run(lambda: self._store.close(timeout))
        except TimeoutError:
            raise
        except Exception:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._thread.stop()
        _open_stores.pop(self, None)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except FifoqError as failure:
            close_failed(failure, error)


def close_at_exit() -> None:
    """Write what is left in memory; a disk that hangs must not keep the interpreter from ending."""
    deadline = time.monotonic() + EXIT_SECONDS
    for store in list(_open_stores):
        with suppress(Exception):
            store.close(timeout=max(0.0, deadline - time.monotonic()))


atexit.register(close_at_exit)
