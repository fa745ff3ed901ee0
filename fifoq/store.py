"""The store: many queues in one directory, one log, one owner; and how queues are opened."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from actors import ActorSystem
from fifoq.codec import NOTHING_KEPT, Codec, Kept, kept_compression, kept_retention, read_kept
from fifoq.committer import Committer
from fifoq.compacting import Compacted, compact
from fifoq.control.listener import Listener
from fifoq.dead_letters import DeadLetters, name_of_letters
from fifoq.dedup import Place, read_pages
from fifoq.explain import Explanation, counter_of, explain
from fifoq.fetching import Found, survey
from fifoq.jobs import cover_counters
from fifoq.lane_queue import LaneQueue
from fifoq.member import keep_removed
from fifoq.options import STORE_OPTION_NAMES, QueueOptions, StoreOptions, store_options
from fifoq.owner import Chores, Owner, close, look_at_consumers, sync, tidy
from fifoq.queue import Queue
from fifoq.readonly import ReadOnlyStore, open_read_only
from fifoq.schedules import Schedules
from fifoq.staged_intake import StagedIntake
from fifoq.topic import Topic, open_topic
from fifoq.transaction import Transaction
from fifoq.world import WORLD, MakeRunner
from fifoq.writer import Writer
from store import DiskFull, Key, Log, Quarantine, Reader, open_log
from store.files import Clock, Files
from store.opening import Recover
from store.state import QueueState, State

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_QUEUE = "main"


class Opening(Generic[R]):
    """What `open` and `open_store` give: await it, or enter it with `async with`."""

    __slots__ = ("_open", "_opened")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._open = open
        self._opened: R | None = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._open().__await__()

    async def __aenter__(self) -> R:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        opened: Any = self._opened
        await opened.close()


class Store:
    """An open store. Its queues share one log, one commit and one sync."""

    def __init__(
        self, path: str, committer: Committer, system: ActorSystem, staged: StagedIntake
    ) -> None:
        self.path = path
        self._committer = committer
        self._staged = staged
        self._system = system
        self._queues: dict[str, Queue[Any]] = {}
        self._lent: set[str] = set()
        """Queues that were opened for visitors alone: whoever opens them here may still choose."""
        self._topics: dict[str, Topic[Any]] = {}
        self._closing: asyncio.Task[None] | None = None
        self._listener = Listener(committer, self)

    def __repr__(self) -> str:
        state = "closed" if self._committer.closed else "open"
        return f"<Store {self.path!r} queues={len(self._queues)} {state}>"

    @property
    def opened(self) -> Mapping[str, Queue[Any]]:
        """The queues that are open here, by name."""
        return self._queues

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
    async def queue(self, name: str = ..., *, type: type[T], **options: Any) -> Queue[T]: ...

    @overload
    async def queue(self, name: str = ..., *, type: None = ..., **options: Any) -> Queue[bytes]: ...

    async def queue(self, name: str = DEFAULT_QUEUE, *, type: Any = None, **options: Any) -> Any:
        """Open a queue of this store, or make one.

        The same object for the same name. Given options replace kept ones. InvalidName,
        SchemaMismatch, ValueError for wrong options: nothing was changed.
        """
        self._committer.require_usable()
        return await self._opened(name, type, options)

    async def lend(self, name: str) -> Queue[Any]:
        """A queue for a visitor, opened if need be, as if nobody had opened it."""
        self._committer.require_usable()
        known = self._queues.get(name)
        return known if known is not None else await self._opened(name, None, {}, lent=True)

    async def _opened(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool = False
    ) -> Queue[Any]:
        if name in self._queues:
            return self._opened_before(name, type, options, lent=lent)
        self._staged.begin_opening(name)
        try:
            return await self._open_queue(name, type, options, lent=lent)
        finally:
            self._staged.end_opening(name)

    async def _open_queue(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool
    ) -> Queue[Any]:
        committer = self._committer
        state = await committer.call(lambda log: log.queue(name))
        kept = read_kept(state.configuration)  # type: ignore[attr-defined]
        empty = not state.genesis.queue_size  # type: ignore[attr-defined]
        codec: Codec[Any] = Codec(type, kept, name, empty=empty)
        chosen = QueueOptions().changed({**kept.options, **options})
        pages = await committer.call(partial(_cover_counters, state=state))  # type: ignore[arg-type]
        found = await self._survey(state, kept, chosen)  # type: ignore[arg-type]
        if name in self._queues:
            # By somebody else, while we waited.
            return self._opened_before(name, type, options, lent=lent)
        queue: Queue[Any]
        if chosen.priorities:
            queue = LaneQueue(committer, state, chosen, codec)
            queue.fill_lanes(found.lanes)
        else:
            queue = Queue(committer, state, chosen, codec)  # type: ignore[arg-type]
        queue.fill_shelf(found.delayed)
        if pages:
            queue.remember_ids(pages)  # type: ignore[arg-type]
        self._queues[name] = committer.lines[name] = queue
        if lent:
            self._lent.add(name)
        configuration = codec.configuration(chosen)
        if configuration != (state.configuration or NOTHING_KEPT):  # type: ignore[attr-defined]
            queue.configuration = configuration
            committer.touch(queue, 0)
        if queue.gap is not None:
            # The oldest records, so that a take that does not wait finds what is there.
            committer.request_read(queue)
            await committer.call(lambda log: None)
        return queue

    async def _survey(self, state: QueueState, kept: Kept, options: QueueOptions) -> Found:
        """What has to be known of the queue's records before anybody puts or takes some."""
        committer, name = self._committer, state.name
        while True:
            found: Any = await committer.call(
                lambda log: survey(log, state, delayed=kept.aside, lanes=options.priorities)
            )
            if name in self._queues:
                return found  # type: ignore[no-any-return]
            if name not in committer.lines and found.next_counter == state.genesis.next_counter:
                return found  # type: ignore[no-any-return]
            # A frame that is under way, or was, puts records into it.

    def _opened_before(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool
    ) -> Queue[Any]:
        queue = self._queues[name]
        if name in self._lent and not lent:
            self._take_over(queue, type)
        elif type is not None:
            queue.codec.require(type)
        if options:
            queue.configure(**options)
        return queue

    def _take_over(self, queue: Queue[Any], type: Any) -> None:
        """A queue that a visitor had opened gets the type that it is to have."""
        kept = Kept({}, queue.codec.schema, queue.codec.shape, queue.codec.aside)
        codec: Codec[Any] = Codec(type, kept, queue.name, empty=not len(queue))
        self._lent.discard(queue.name)
        queue.codec = codec
        queue.use(queue.options)
        if codec.schema != kept.schema:
            queue.configuration = codec.configuration(queue.options)
            self._committer.touch(queue, 0)

    @overload
    async def topic(
        self, name: str, *, partitions: int | None = ..., type: type[T], **options: Any
    ) -> Topic[T]: ...

    @overload
    async def topic(
        self, name: str, *, partitions: int | None = ..., type: None = ..., **options: Any
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
        if letters not in self._queues or letters in self._lent:
            origin = self._queues.get(name)
            type = origin.codec.type if origin is not None else None
            await self.queue(letters, type=type)
        return DeadLetters(name, self._queues[letters], self._committer)

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

        return of_owner(committer, self._queues.values())

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
        """
        if self._committer.closed and self._closing is None:
            return
        if self._committer.loop.is_closed():
            self._committer.close_without_loop()
            return
        if self._closing is not None and self._closing.done() and not timeout:
            # Perhaps in another loop than the one that closed it.
            self._closing.result()
            return
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

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        committer = getattr(self, "_committer", None)
        if committer is not None and committer.usable:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2)


def _cover_counters(log: Log, *, state: QueueState) -> dict[Place, bytes]:
    """Keep counters for a queue that is being opened; gives the ids that it remembers."""
    cover_counters(log, state)
    return read_pages(log, state.name)


@overload
def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[True],
    files: Files | None = ...,
    clock: Clock | None = ...,
) -> Opening[ReadOnlyStore]: ...


@overload
def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[False] = ...,
    recover: Recover = ...,
    files: Files | None = ...,
    clock: Clock | None = ...,
    runner: MakeRunner | None = ...,
    **options: Any,
) -> Opening[Store]: ...


def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    recover: Recover = "refuse",
    files: Files | None = None,
    clock: Clock | None = None,
    runner: MakeRunner | None = None,
    **options: Any,
) -> Opening[Store] | Opening[ReadOnlyStore]:
    """Open the store at `path`, or make one there, and own it until it is closed.

    `await` it or use it with `async with`. AlreadyOpen, CorruptionError, FormatError, AccessError:
    nothing was changed. `recover="quarantine"` opens a damaged store with everything intact.

    With `read_only` the store is not owned but seen from outside, whoever owns it: stats, peek and
    browse of what is committed. It takes no other options, and there must be a store.
    """
    target = os.fspath(path)
    if read_only:
        if options or runner is not None or recover != "refuse":
            raise TypeError("read_only=True takes no other options: it only looks.")
        return Opening(lambda: _look(target, files, clock))
    chosen = store_options(options)

    def open_it() -> Coroutine[Any, Any, Store]:
        world = WORLD.get()
        make_runner = runner or world.runner or Writer
        return _open_store(
            target, recover, files or world.files, clock or world.clock, make_runner, chosen
        )

    return Opening(open_it)


def _look(
    path: str, files: Files | None, clock: Clock | None
) -> Coroutine[Any, Any, ReadOnlyStore]:
    world = WORLD.get()
    return open_read_only(path, files or world.files, clock or world.clock)


async def _open_store(
    path: str,
    recover: Recover,
    files: Files | None,
    clock: Clock | None,
    make_runner: MakeRunner,
    options: StoreOptions,
) -> Store:
    loop = asyncio.get_running_loop()
    committer = Committer(loop, options, path)

    staged = StagedIntake(committer)
    schedules = committer.schedules = Schedules(committer)

    def open_the_log(_: object) -> Log:
        log = open_log(
            path, files=files, clock=clock, options=options.log_options(), recover=recover
        )
        try:
            staged.look(log)
            # Before anything can be reclaimed.
            for state in log.state.queues.values():
                keep_removed(state, kept_retention(state.configuration))
                state.compress_by(kept_compression(state.configuration))
            committer.consumers.own(log)
            schedules.read(log)
        except BaseException:
            log.release()
            raise
        return log

    chores = Chores(close)
    committer.on_sync_due = partial(chores.give, sync)

    def gone_quiet() -> None:
        chores.give(tidy)
        staged.tidied()

    committer.on_idle = gone_quiet
    committer.on_consumers_due = partial(chores.give, look_at_consumers)
    system = await ActorSystem().start()
    try:
        # Not before: whoever leaves while the system starts must not leave a thread behind.
        committer.runner = make_runner(loop, committer.pump, os.path.basename(path) or path)
        await system.spawn(Owner, committer, open_the_log, name="owner", mailbox=chores)
    except BaseException:
        if committer.log is None and not isinstance(sys.exception(), asyncio.CancelledError):
            committer.stop()
        # Its task must end in this loop, but nobody has to wait for that.
        _ending.add(task := asyncio.ensure_future(system.stop(0)))
        task.add_done_callback(_ending.discard)
        raise
    staged.start(watch=files is None)
    schedules.start()
    store = Store(path, committer, system, staged)
    if files is None:
        store._listener.start()
    return store


_ending: set[asyncio.Future[int]] = set()


@overload
def open(
    path: str | os.PathLike[str], *, type: type[T], queue: str = ..., **options: Any
) -> Opening[Queue[T]]: ...


@overload
def open(
    path: str | os.PathLike[str], *, type: None = ..., queue: str = ..., **options: Any
) -> Opening[Queue[bytes]]: ...


def open(
    path: str | os.PathLike[str], *, type: Any = None, queue: str = DEFAULT_QUEUE, **options: Any
) -> Any:
    """Open one queue, by default "main", of the store at `path`; both are made if need be.

    Closing the queue closes the store. Options are those of the queue and of the store.
    """
    names = {*STORE_OPTION_NAMES, "recover", "files", "clock", "runner"}
    of_store = {name: options.pop(name) for name in list(options) if name in names}
    # Wrong options are told before anything is made, all at once.
    wrong: list[str] = []
    for check in (lambda: QueueOptions().changed(options), lambda: open_store(path, **of_store)):
        try:
            check()
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("; ".join(wrong))
    opening = open_store(path, **of_store)

    async def open_it() -> Queue[Any]:
        store = await opening
        try:
            opened = await store.queue(queue, type=type, **options)
        except BaseException:
            await store.close()
            raise
        opened.owner = store
        return opened  # type: ignore[no-any-return]

    return Opening(open_it)
