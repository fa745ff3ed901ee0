"""Receipts: what `submit` gives instead of waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Literal

from fifoq.jobs import Waiter, look_away
from store import Key

if TYPE_CHECKING:
    from fifoq.putting import Putting

Outcome = Literal["pending", "withdrawn", "committed", "failed"]


class Receipt:
    """Tells what became of one record.

    Await it for the key, once it is committed, as often as you like; one that was withdrawn raises
    CancelledError, as a cancelled future does. Cancelling who awaits it leaves the record alone.
    """

    __slots__ = ("_queue", "_waiter", "_withdrawn", "key")

    def __init__(self, key: Key, waiter: Waiter | None, queue: Putting[Any]) -> None:
        self.key = key
        self._waiter = waiter
        self._withdrawn = False
        self._queue = queue
        if waiter is not None:
            # Nobody has to ask: an outcome that nobody wants to know is no warning.
            waiter.future.add_done_callback(look_away)

    def __repr__(self) -> str:
        return f"<Receipt {self.id} {self.outcome()}>"

    @property
    def id(self) -> int:
        """The record's counter."""
        return self.key.counter

    def outcome(self) -> Outcome:
        """What is known now."""
        if self._withdrawn or not self.key.counter:
            return "withdrawn"
        if self._waiter is None:
            return "committed"
        future = self._waiter.future
        if not future.done() or future.cancelled():
            return "pending"
        return "committed" if future.exception() is None else "failed"

    def withdraw(self) -> bool:
        """Take the record back; False if it is sealed into a frame and will be committed."""
        if self._withdrawn or self._waiter is None or self._waiter.future.done():
            return self._withdrawn
        if self._queue.withdraw(self._waiter.first, self._waiter.count):
            self._waiter.count = 0
            self._withdrawn = True
            self._waiter.future.cancel()
            self._queue.records_went()
        return self._withdrawn

    def __await__(self) -> Generator[Any, None, Key]:
        if self._waiter is not None:
            yield from _shared(self._waiter).__await__()
        return self.key


async def _shared(waiter: Waiter) -> None:
    """Wait beside others: whoever is cancelled here leaves the record as it is."""
    await asyncio.shield(waiter.future)
