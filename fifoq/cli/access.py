"""Reaching a store: to look, without anybody's help; to change, as its owner or by asking him.

A store that is free is opened and owned for as long as the verb runs. A live one is asked over its
socket. Both ways the same requests are answered by the same code.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fifoq.control.client import ANSWER_SECONDS, Client, NoAnswer, connect
from fifoq.control.messages import GetStats, NotThere, Request, Stats
from fifoq.control.place import is_there
from fifoq.view import View
from store import AlreadyOpen
from store.checkpoint import CHECKPOINT_NAMES
from store.directory import access_error
from store.segment import segment_number

if TYPE_CHECKING:
    from fifoq.control.desk import Visit

A = TypeVar("A")

BUSY_SECONDS: Final = 5.0
"""How long a store is waited for that somebody owns who cannot be asked (yet)."""
PAUSE_SECONDS: Final = 0.02


class Session(Protocol):
    """Somebody who answers requests about one store."""

    async def ask(self, request: Request, type: type[A], *, seconds: float | None = ...) -> A:
        """The answer, waited for so many seconds at the most (None: for ever)."""


class _Own:
    """This process owns the store."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    async def ask(
        self, request: Request, type: type[A], *, seconds: float | None = ANSWER_SECONDS
    ) -> A:
        answer = await self._visit.answer(request)
        assert isinstance(answer, type)
        return answer


@asynccontextmanager
async def session(path: str, *, make: bool = False) -> AsyncIterator[Session]:
    """Ask for changes of a store; `make` makes one where there is none.

    NotThere, AlreadyOpen if its owner cannot be asked. What is leased and not acked is given back
    at the end.
    """
    # Here: whoever only looks needs neither.
    from fifoq.control.desk import Visit
    from fifoq.opening import open_store

    if not make:
        require_store(path)
    until = time.monotonic() + BUSY_SECONDS
    pause = PAUSE_SECONDS
    while True:
        client = await connect(path) if is_there(path) else None
        if client is not None:
            async with client:
                await _require_answers(client, path)
                yield client
            return
        try:
            store = await open_store(path)
        except AlreadyOpen:
            # Its owner has just begun, or is about to end, or does not listen at all.
            if time.monotonic() > until:
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 10 * PAUSE_SECONDS)
            continue
        async with store:
            visit = Visit(store)
            try:
                yield _Own(visit)
            finally:
                visit.leave()
        return


async def _require_answers(client: Client, path: str) -> None:
    """Some requests may take for ever: first see that the owner answers at all. NoAnswer"""
    try:
        await client.ask(GetStats(), Stats, seconds=BUSY_SECONDS)
    except NoAnswer:
        raise NoAnswer(
            f"{path}: the owner of the store does not answer. Nothing was changed. See whether "
            f"that process is stuck."
        ) from None


@contextmanager
def looking(path: str) -> Iterator[View]:
    """See a store from outside, live or free. NotThere"""
    require_store(path)
    view = View(path)
    try:
        yield view
    finally:
        view.close()


def no_queue(name: str, known: Iterable[str]) -> NotThere:
    """A queue that was mistyped, in the words in which an owner says it."""
    names = ", ".join(sorted(known))
    there = f"There are: {names}." if names else "There is none."
    return NotThere(f"there is no queue {name!r}. Nothing was changed. {there}")


def require_store(path: str) -> None:
    """NotThere unless there is a store at this path, AccessError if that is not to be seen."""
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise access_error(path, error) from error
    if not any(name in CHECKPOINT_NAMES or segment_number(name) is not None for name in names):
        raise NotThere(f"{path}: there is no store here. Nothing was changed.")
