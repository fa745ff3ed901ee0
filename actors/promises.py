"""Promises: the askers that a handler will answer after it has returned."""

from __future__ import annotations

import asyncio

from actors.batch import Reply
from actors.errors import NoReply


class Promises:
    """The askers of one actor that wait for a deferred reply."""

    __slots__ = ("_askers", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._askers: set[asyncio.Future[object]] = set()

    def __len__(self) -> int:
        return len(self._askers)

    def add(self, reply: Reply) -> None:
        """Remember the askers until they have their answer."""
        for future in reply.futures:
            self._askers.add(future)
            future.add_done_callback(self._askers.discard)

    def demand(self, reply: Reply) -> None:
        """The handler has returned: whoever has no answer, and no promise of one, hears so."""
        for future in reply.futures:
            if not future.done() and future not in self._askers:
                future.set_exception(NoReply(self._name))

    def fail(self, error: Exception) -> None:
        """Nobody will keep them."""
        Reply(tuple(self._askers)).fail(error)
