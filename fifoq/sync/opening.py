"""How stores and queues are opened for blocking code. See `fifoq.sync`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack, overload

from fifoq import opening as _opening
from fifoq import queue as _queue
from fifoq import store as _store
from fifoq.keywords import OpenKeywords, StoreKeywords
from fifoq.loopthread import LoopThread
from fifoq.sync.queue import Queue
from fifoq.sync.readonly import ReadOnlyStore
from fifoq.sync.store import Store
from fifoq.view import View
from store.opening import Recover

R = TypeVar("R")
T = TypeVar("T")


@overload
def open_store(
    path: str | os.PathLike[str], *, read_only: Literal[True], **options: Any
) -> ReadOnlyStore: ...


@overload
def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[False] = ...,
    recover: Recover = ...,
    **options: Unpack[StoreKeywords],
) -> Store: ...


def open_store(
    path: str | os.PathLike[str], *, read_only: bool = False, **options: Any
) -> Store | ReadOnlyStore:
    """Open the store at `path`, or make one there, and own it until it is closed.

    With `read_only` it is seen from outside, whoever owns it. As `fifoq.open_store`.
    """
    if read_only:
        return ReadOnlyStore(View(os.fspath(path), **options))
    opening = _opening.open_store(path, **options)
    return _opened(path, opening, Store)


@overload
def open(
    path: str | os.PathLike[str],
    *,
    type: type[T],
    queue: str = ...,
    **options: Unpack[OpenKeywords],
) -> Queue[T]: ...


@overload
def open(
    path: str | os.PathLike[str],
    *,
    type: None = ...,
    queue: str = ...,
    **options: Unpack[OpenKeywords],
) -> Queue[bytes]: ...


def open(
    path: str | os.PathLike[str],
    *,
    type: Any = None,
    queue: str = _store.DEFAULT_QUEUE,
    **options: Any,
) -> Queue[Any]:
    """Open one queue, by default "main", of the store at `path`; both are made if need be.

    Closing the queue closes the store. Options are those of QueueOptions and of StoreOptions: wrong
    ones are a TypeError or ValueError that names all of them, before anything is made.
    """
    opening: _opening.Opening[_queue.Queue[Any]] = _opening.open(
        path, type=type, queue=queue, **options
    )

    def wrap(thread: LoopThread, opened: _queue.Queue[Any]) -> Queue[Any]:
        assert isinstance(opened.owner, _store.Store)
        return Queue(thread, opened, Store(thread, opened.owner))

    return _opened(path, opening, wrap)


A = TypeVar("A", _store.Store, _queue.Queue[Any])


def _opened(
    path: str | os.PathLike[str], opening: _opening.Opening[A], wrap: Callable[[LoopThread, A], R]
) -> R:
    thread = LoopThread(os.fspath(path))

    async def open_it() -> A:
        return await opening

    async def close(opened: A) -> None:
        await opened.close()

    try:
        return wrap(thread, thread.run(open_it, close))
    except BaseException:
        thread.stop()
        raise
