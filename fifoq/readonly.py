"""Read-only stores for event loops: stats, peek and browse of a store that another process owns.

Nothing here takes a lock or changes a byte, and mutating calls do not exist. Every call looks anew
on a thread, so it shows what the owner has committed by now, about 0.1 s late at the most, and
never blocks the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from fifoq.browse import Record
from fifoq.explain import Explanation, counter_of
from fifoq.view import ReadOnlyStats, View
from store import Key, StoreClosed
from store.files import Clock, Files

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ReadOnlyStore:
    """A store seen from outside. Made by `open_store(path, read_only=True)`; any loop may use it.

    A fork leaves it to the parent: calls in the child raise ForkError.
    """

    def __init__(self, view: View, executor: ThreadPoolExecutor) -> None:
        self.path = view.path
        self._view = view
        # One thread of its own: a disk that hangs holds up this store's calls and nobody else's.
        self._executor = executor

    def __repr__(self) -> str:
        return f"<ReadOnlyStore {self.path!r} {'closed' if self._view.closed else 'open'}>"

    async def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        return await self.run(self._view.queues)

    @overload
    async def queue(self, name: str = ..., *, type: type[T]) -> ReadOnlyQueue[T]: ...

    @overload
    async def queue(self, name: str = ..., *, type: None = ...) -> ReadOnlyQueue[bytes]: ...

    async def queue(self, name: str = "main", *, type: Any = None) -> Any:
        """A queue of this store; one that is not there yet is empty. InvalidName, SchemaMismatch"""
        await self.run(self._view.check, name, type)
        return ReadOnlyQueue(self, self._view, name, type)

    async def metrics(self) -> str:
        """What the log says of the store and its queues, in the Prometheus exposition format.

        The names are those of `Store.metrics`; what only the owner knows is not there.
        """
        return await self.run(self._view.metrics)

    async def explain(self, key: Key | int, *, queue: str = "main") -> Explanation:
        """What became of a record, from the log alone. As `Store.explain`.

        A record that is there is just "there": whether it is leased only the owner knows.
        """
        return await self.run(self._view.explain, queue, counter_of(key, queue))

    async def close(self) -> None:
        """Give every handle back. Twice is fine; in the child of a fork nothing happens."""
        if not (self._view.closed or self._view.of_another_process):
            await _on_thread(self._executor, self._view.close)
            self._executor.shutdown(wait=False)

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Look from the store's thread. Cancelled, the look may go on; it changes nothing."""
        self._view.require_this_process()
        if self._view.closed:
            raise StoreClosed(f"{self.path}: this view is closed. Open it anew.")
        return await _on_thread(self._executor, function, *args, **kwargs)

    async def __aenter__(self) -> ReadOnlyStore:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ReadOnlyQueue(Generic[T]):
    """A queue seen from outside."""

    def __init__(self, store: ReadOnlyStore, view: View, name: str, type: type[T] | None) -> None:
        self.name = name
        self._store = store
        self._view = view
        self._type = type

    def __repr__(self) -> str:
        return f"<ReadOnlyQueue {self.name!r} of {self._store.path!r}>"

    async def stats(self) -> ReadOnlyStats:
        """What the queue's last durable commit says of it."""
        return await self._store.run(self._view.stats, self.name)

    async def peek(self) -> T | None:
        """The oldest record, or None. CorruptionError if it can not be read."""
        return await self._store.run(self._view.peek, self.name, self._type)

    async def browse(self, start: int = 1) -> AsyncIterator[Record[T]]:
        """Records from counter `start` on, up to the newest of now, that are not removed, in order.

        What the owner removes meanwhile is passed over.
        """
        run, view = self._store.run, self._view
        last = await run(view.last, self.name)
        while start <= last:
            page, start = await run(view.page, self.name, self._type, start, last)
            for record in page:
                yield record


async def open_read_only(
    path: str | os.PathLike[str], files: Files | None, clock: Clock | None
) -> ReadOnlyStore:
    """See `open_store`."""
    # Here, since most programs never need it.
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(1, thread_name_prefix="fifoq read-only")
    try:
        view = await _on_thread(executor, View, os.fspath(path), files=files, clock=clock)
    except BaseException:
        executor.shutdown(wait=False)
        raise
    return ReadOnlyStore(view, executor)


async def _on_thread(
    executor: ThreadPoolExecutor, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, partial(function, *args, **kwargs))
