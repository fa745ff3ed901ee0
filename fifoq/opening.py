"""How a store, or one queue of it, is opened: `open` and `open_store`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from actors import ActorSystem
from fifoq.codec import kept_compression, kept_retention
from fifoq.committer import Committer
from fifoq.keywords import OpenKeywords, StoreKeywords
from fifoq.log_opening import LogOpening
from fifoq.member import keep_removed
from fifoq.options import STORE_OPTION_NAMES, QueueOptions, StoreOptions, store_options
from fifoq.owner import Chores, Owner, close, look_at_consumers, sync, tidy
from fifoq.queue import Queue
from fifoq.readonly import ReadOnlyStore, open_read_only
from fifoq.ring_writer import live_writer
from fifoq.schedules import Schedules
from fifoq.staged_intake import StagedIntake
from fifoq.store import DEFAULT_QUEUE, Store
from fifoq.world import WORLD, MakeRunner
from store import Log, open_log
from store.directory import access_error
from store.files import Clock, Files
from store.opening import Recover

T = TypeVar("T")
R = TypeVar("R")


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

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        opened: Any = self._opened
        await opened.__aexit__(kind, error, trace)


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
    **options: Unpack[StoreKeywords],
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
        make_runner = runner or world.runner or live_writer
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

    def open_the_log() -> Log:
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

    opening = LogOpening(path, open_the_log)
    chores = Chores(close)
    committer.on_sync_due = partial(chores.give, sync)

    def gone_quiet() -> None:
        chores.give(tidy)
        staged.tidied()

    committer.on_idle = gone_quiet
    committer.on_consumers_due = partial(chores.give, look_at_consumers)
    try:
        system = await ActorSystem().start()
    except OSError as error:
        raise access_error(path, error) from error
    try:
        # Not before: whoever leaves while the system starts must not leave a thread behind.
        try:
            committer.runner = make_runner(loop, committer.pump, os.path.basename(path) or path)
        except OSError as error:
            raise access_error(path, error) from error
        await committer.start(opening.run)
        assert opening.log is not None
        committer.own(opening.log)
        await system.spawn(Owner, committer, name="owner", mailbox=chores)
    except BaseException:
        opening.give_up()
        committer.stop()
        # Its task must end in this loop, but nobody has to wait for that.
        _ending.add(task := asyncio.ensure_future(system.stop(0)))
        task.add_done_callback(_ending.discard)
        raise
    committer.watch_consumers()
    staged.start(watch=files is None)
    schedules.start()
    return Store(path, committer, system, staged, listens=files is None)


_ending: set[asyncio.Future[int]] = set()


@overload
def open(
    path: str | os.PathLike[str],
    *,
    type: type[T],
    queue: str = ...,
    **options: Unpack[OpenKeywords],
) -> Opening[Queue[T]]: ...


@overload
def open(
    path: str | os.PathLike[str],
    *,
    type: None = ...,
    queue: str = ...,
    **options: Unpack[OpenKeywords],
) -> Opening[Queue[bytes]]: ...


def open(
    path: str | os.PathLike[str], *, type: Any = None, queue: str = DEFAULT_QUEUE, **options: Any
) -> Any:
    """Open one queue, by default "main", of the store at `path`; both are made if need be.

    Closing the queue closes the store. Options are those of QueueOptions and of StoreOptions: wrong
    ones are a TypeError or ValueError that names all of them, before anything is made.
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
