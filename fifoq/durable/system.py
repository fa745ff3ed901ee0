"""The actor system with a store: its durable actors go on where they stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Self, TypeVar, overload

from anyio import CancelScope

import actors
from actors import AskTimeout, Ref
from actors.ref import ASK_SECONDS, STOP_SECONDS
from actors.timers import SECONDS_MAX
from fifoq.durable.asks import ANSWERS_KEPT_SECONDS, ID_HEADER, Answer, AskFailed, check_id
from fifoq.durable.dead import DeadMessages
from fifoq.durable.in_memory import MEMORY_PATH, SEGMENT_BYTES, MemoryFiles
from fifoq.durable.office import Office, decode_as
from fifoq.durable.post import MAILBOXES
from fifoq.durable.targets import targets
from fifoq.inline import InlineRunner
from fifoq.opening import open_store
from fifoq.options import Durability
from fifoq.store import Store

M = TypeVar("M")
R = TypeVar("R")


class ActorSystem(actors.ActorSystem):
    """A tree of actors of which some are durable: `spawn(..., name=, durable=True)`.

    Their mailboxes, state and timers are in the store at `path`, which the system owns; without a
    path it is in memory, and ends with the system. `durability` is that of everything durable.
    `context` names variables, of strings, that go with messages through the disk. Answers to asks
    with an id are kept for `answers_kept` seconds. `store_options` are those of `open_store`.

    If the store fails the system stops with that error: what is on disk is known after a restart.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        durability: Durability = "sync",
        context: Sequence[ContextVar[str]] = (),
        answers_kept: float = ANSWERS_KEPT_SECONDS,
        stop_timeout: float | None = STOP_SECONDS,
        seed: int | None = None,
        **store_options: Any,
    ) -> None:
        super().__init__(stop_timeout=stop_timeout, seed=seed)
        if not 0 <= answers_kept <= SECONDS_MAX:
            raise ValueError(f"answers_kept={answers_kept!r} is not 0 to {SECONDS_MAX} seconds")
        if path is None:
            store_options.setdefault("files", MemoryFiles())
            store_options.setdefault("runner", InlineRunner)
            store_options.setdefault("segment_bytes", SEGMENT_BYTES)
        self._path = MEMORY_PATH if path is None else os.fspath(path)
        self._durability: Durability = durability
        self._context = context
        self._answers_kept = answers_kept
        self._store_options = store_options
        self._store: Store | None = None
        self._office: Office | None = None

    @property
    def store(self) -> Store:
        """The store, for queues beside the actors. RuntimeError before `start`."""
        if self._store is None:
            raise RuntimeError("the actor system is not running: it has no store")
        return self._store

    async def start(self) -> Self:
        """Open the store and make the system ready to spawn; returns it.

        What `open_store` raises, and SystemStopped the second time: nothing was started.
        """
        if self._task is None and not self._stop_wanted.is_set():
            store = await open_store(self._path, **self._store_options)
            try:
                self._office = await Office.open(
                    store,
                    durability=self._durability,
                    context=self._context,
                    kept_seconds=self._answers_kept,
                    fail=self._fail,
                )
            except BaseException:
                with CancelScope(shield=True):
                    await store.close()
                raise
            self._store = store
            self._tree.durable_mailbox = self._office.box
            self._tree.durable_context = self._office.carried.others
            self._tree.absent = self._office.post.absent
            self._office.post.wake = self._tree.wake
        return await super().start()

    async def _run(self, started: asyncio.Future[None]) -> None:
        try:
            await super()._run(started)
        finally:
            with CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        assert self._office is not None
        assert self._store is not None
        try:
            await self._office.close()
        except Exception as error:
            self._error = self._error or error
        try:
            await self._store.close()
        except Exception as error:
            self._error = self._error or error

    @overload
    async def ask(
        self, to: Ref[M] | str, message: M, *, id: str, timeout: float | None = ...
    ) -> object: ...
    @overload
    async def ask(
        self,
        to: Ref[M] | str,
        message: M,
        *,
        id: str,
        returns: type[R],
        timeout: float | None = ...,
    ) -> R: ...
    async def ask(
        self,
        to: Ref[M] | str,
        message: M,
        *,
        id: str,
        returns: type[Any] = object,
        timeout: float | None = ASK_SECONDS,
    ) -> Any:
        """Ask a durable actor, alive or not, by an id that survives: whoever asks again with the
        same id, also after a restart, gets the answer to the first ask, and nothing happens twice.

        Raises AskTimeout (ask again, the ask goes on), AskFailed if there will be no answer,
        SystemStopped or the store's failure if the system ends before (ask again in its next life),
        and msgspec.ValidationError if the answer is no `returns`. Answers are kept for
        `answers_kept` seconds, or until `forget`.
        """
        office = self._open_office("ask")
        target, *others = targets(office.post, self._tree, to, message)
        name, box = target.name, target.box
        if others:
            raise TypeError("a broadcast has many answers: ask its members, one by one")
        if target.ref is not None:
            raise TypeError(f"actor {name!r} is not a durable one of this system: ask its ref")
        payload = office.letter(name, box, message, {ID_HEADER: check_id(id)})
        try:
            async with asyncio.timeout(timeout):
                answer = await office.asks.ask(id, payload)
        except TimeoutError:
            assert timeout is not None
            raise AskTimeout(name, timeout) from None
        return _value(id, answer, returns)

    async def forget(self, id: str) -> bool:
        """Forget the answer to an ask, durable on return; False if there is none."""
        return await self._open_office("forget an answer").asks.forget(id)

    async def flush(self) -> None:
        """Wait until the steps of all messages that were handled so far are committed."""
        await self._open_office("flush").post.steps.flush()

    async def dead_letters(self) -> DeadMessages:
        """Messages that no actor could handle, to look at, replay or purge; see `reproduce`."""
        self._open_office("read dead letters")
        return DeadMessages(await self.store.dead_letters(MAILBOXES))

    def _open_office(self, action: str) -> Office:
        if self._office is None or self._stop_wanted.is_set():
            raise actors.SystemStopped(action)
        return self._office


def _value(id: str, answer: Answer, kind: type[Any]) -> Any:
    if answer.failure is not None:
        raise AskFailed(id, answer.failure)
    return decode_as(answer.value, kind)
