"""The store: many queues in one directory, one log, one owner."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar, Unpack, overload

from actors import ActorSystem
from fifoq.committer import Committer
from fifoq.compacting import Compacted, compact
from fifoq.control.listener import Listener
from fifoq.dead_letters import DeadLetters, name_of_letters
from fifoq.errors import close_failed
from fifoq.explain import Explanation, counter_of, explain
from fifoq.keywords import QueueKeywords
from fifoq.open_queues import OpenQueues
from fifoq.queue import Queue
from fifoq.staged_intake import StagedIntake
from fifoq.topic import Topic, open_topic
from fifoq.transaction import Transaction
from store import DiskFull, FifoqError, Key, Log, Quarantine, Reader
from store.state import State

T = TypeVar("T")

DEFAULT_QUEUE = "main"


class Store:
    """An open store. Its queues share one log, one commit and one sync."""

    def __init__(
        self,
        path: str,
        committer: Committer,
        system: ActorSystem,
        staged: StagedIntake,
        *,
        listens: bool,
    ) -> None:
        self.path = path
        self._committer = committer
        self._staged = staged
        self._system = system
        self._queues = OpenQueues(committer, staged)
        self._topics: dict[str, Topic[Any]] = {}
        self._closing: asyncio.Task[None] | None = None
        self._listener = Listener(committer, self)
        if listens:
            self._listener.start()

    def __repr__(self) -> str:
        state = "closed" if self._committer.closed else "open"
        return f"<Store {self.path!r} queues={len(self.opened)} {state}>"

    @property
    def opened(self) -> Mapping[str, Queue[Any]]:
        """The queues that are open here, by name."""
        return self._queues.by_name

    @property
    def state(self) -> State:
        """What the log says of its queues. It belongs to the writer: look, and keep nothing."""
        log = self._committer.log
        assert log is not None
        return log.state

    @property
    def quarantine(self) -> Quarantine | None:
        """What `recover="quarantine"` set aside, if anything."""
        log = self._committer.log
        return None if log is None else log.quarantine

    @overload
    async def queue(
        self, name: str = ..., *, type: type[T], **options: Unpack[QueueKeywords]
    ) -> Queue[T]: ...

    @overload
    async def queue(
        self, name: str = ..., *, type: None = ..., **options: Unpack[QueueKeywords]
    ) -> Queue[bytes]: ...

    async def queue(self, name: str = DEFAULT_QUEUE, *, type: Any = None, **options: Any) -> Any:
        """Open a queue of this store, or make one.

        The same object for the same name. Given options replace kept ones. InvalidName,
        SchemaMismatch, ValueError for wrong options and for queues of actors: nothing was changed.
        """
        self._committer.require_usable()
        self._queues.require_free(name)
        return await self._queues.open(name, type, options)

    async def lend(self, name: str) -> Queue[Any]:
        """A queue for a visitor, opened if need be, as if nobody had opened it."""
        self._committer.require_usable()
        return await self._queues.lend(name)

    @overload
    async def topic(
        self,
        name: str,
        *,
        partitions: int | None = ...,
        type: type[T],
        **options: Unpack[QueueKeywords],
    ) -> Topic[T]: ...

    @overload
    async def topic(
        self,
        name: str,
        *,
        partitions: int | None = ...,
        type: None = ...,
        **options: Unpack[QueueKeywords],
    ) -> Topic[bytes]: ...

    async def topic(
        self, name: str, *, partitions: int | None = None, type: Any = None, **options: Any
    ) -> Any:
        """Open a topic of this store, or make one of so many partitions, each a queue.

        The same object for the same name. Type and options are those of its queues. The count is
        kept and stays. InvalidName, SchemaMismatch, ValueError for another count, for queues that
        are there already, and for wrong options: nothing was changed.
        """
        self._committer.require_usable()
        topic = await open_topic(self, name, partitions, type, options)
        return self._topics.setdefault(name, topic)

    async def dead_letters(self, name: str = DEFAULT_QUEUE) -> DeadLetters:
        """The dead letters of a queue, to look at, replay or purge them.

        ValueError for a queue of dead letters, InvalidName: nothing was changed.
        """
        letters = name_of_letters(name)
        if not self._queues.chosen(letters):
            origin = self.opened.get(name)
            type = origin.codec.type if origin is not None else None
            await self.queue(letters, type=type)
        return DeadLetters(name, self.opened[letters], self._committer)

    async def lend_dead_letters(self, name: str) -> DeadLetters:
        """The same for a visitor."""
        return DeadLetters(name, await self.lend(name_of_letters(name)), self._committer)

    def transaction(self) -> Transaction:
        """Puts, leases and acks over queues of this store that are one frame, or nothing.

        Use it with `async with`; see Transaction.
        """
        return Transaction(self._committer)

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        log = self._committer.log
        return sorted(log.state.queues) if log is not None else []

    def metrics(self) -> str:
        """Statistics of the store and of its queues, in the Prometheus exposition format.

        Names are stable. A closed store raises QueueClosed; one that failed still tells.
        """
        committer = self._committer
        if committer.failure is None:
            committer.require_usable()
        # Here, since most programs never need it.
        from fifoq.metrics import of_owner

        return of_owner(committer, self.opened.values())

    async def explain(self, key: Key | int, *, queue: str = DEFAULT_QUEUE) -> Explanation:
        """What became of a record, given by its key or counter, from the log alone.

        What is in memory alone is written first. The log is read on a thread, beside whatever goes
        on; what was reclaimed, or was never recorded, is said to be so. InvalidName, TypeError,
        ValueError.
        """
        committer = self._committer
        committer.require_usable()
        counter = counter_of(key, queue)
        # A full disk keeps the newest back, and nothing else.
        with suppress(DiskFull):
            await committer.flush()
        await committer.call(Log.seal)
        log = committer.log
        assert log is not None

        def read() -> Explanation:
            with Reader(log.path, files=log.directory.files, clock=log.clock) as reader:
                return explain(reader, queue, counter, live_state)

        line = committer.lines.get(queue)
        leased = isinstance(line, Queue) and line.leasing.holds(counter)
        # Not `in`: the shelf would remember for the next one who asks.
        shelved = isinstance(line, Queue) and counter in line.shelf.counters()

        def live_state(deliver_at: int) -> Literal["ready", "delayed", "leased"]:
            if leased:
                return "leased"
            waits = shelved if isinstance(line, Queue) else deliver_at > time.time_ns()
            return "delayed" if waits else "ready"

        return await committer.loop.run_in_executor(None, read)

    async def flush(self) -> None:
        """Make everything that was put, taken and acked in any queue durable."""
        self._committer.require_usable()
        await self._committer.flush()

    async def compact(self) -> Compacted:
        """Give back the space of what is removed, all that can be; says what that was.

        It happens by itself, paced, and most of all when the store is quiet; this is for one who
        wants it now. It goes in bounded steps between commits, and may be cancelled between two.
        Records keep their keys. What retention, consumers and cursors keep stays: `stats().pins`
        names it. DiskFull: what was done stays done. CorruptionError: so it does, and a segment
        that cannot be read stays as it is.
        """
        return await compact(self._committer)

    async def close(self, timeout: float | None = None) -> None:
        """Make everything durable, leave a clean end, let the directory go. Twice is fine.

        Cancelled or timed out, closing goes on in the background; calling it again waits for it.
        DurabilityError: the store is closed, and what is on disk is known after a reopen. Once its
        event loop is closed, what was never written is lost: only the directory is let go.
        WrongLoop: another thread or loop called; nothing was closed.
        """
        if self._committer.closed and self._closing is None:
            return
        if self._committer.loop.is_closed():
            self._committer.close_without_loop()
            return
        if self._closing is not None and self._closing.done():
            # Perhaps in another loop than the one that closed it.
            self._closing.result()
            return
        self._committer.require_no_other()
        if self._closing is None:
            self._committer.begin_closing()
            self._closing = asyncio.ensure_future(self._close())
        async with asyncio.timeout(timeout):
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._listener.stop()
        await self._committer.schedules.stop()
        letting_go = await self._staged.stop()
        await self._system.stop(None)
        if letting_go is not None:
            await letting_go
        error, self._committer.close_error = self._committer.close_error, None
        if error is not None:
            raise error

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except FifoqError as failure:
            close_failed(failure, error)

    def __del__(self) -> None:
        committer = getattr(self, "_committer", None)
        if committer is not None and committer.usable:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2)
