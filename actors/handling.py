"""How messages get from a mailbox to an actor: one by one, or in batches.

Decides nothing about failures: they are raised to the cell, after the messages in hand got their
outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast, runtime_checkable

from actors.actor import Actor, Context
from actors.batch import Asked, Batch, Reply
from actors.errors import ActorStopped
from actors.hooks import run_on_start
from actors.mailbox import Failing, Mailbox
from actors.memory import MemoryMailbox
from actors.timing import clock

if TYPE_CHECKING:
    from actors.cell import Cell

M = TypeVar("M")

TURN_MESSAGES = 128
"""Messages handled in a row before other tasks get a turn."""
TURN_BATCHES = 8
"""The same for batches."""


class Handling(Protocol):
    """Feeds one actor."""

    async def start(self, actor: Actor[Any]) -> None:
        """Make a new actor object ready, and run its first hooks (`hooks.run_on_start`)."""
        ...

    async def stop(self, actor: Actor[Any]) -> None:
        """Run the `on_stop` of an object whose `on_start` returned."""
        ...

    async def run(self) -> None:
        """Handle until the mailbox is closed and empty, or the cell is interrupted."""
        ...

    def discard(self, error: BaseException) -> int:
        """Give every message that waits its outcome; returns how many were told."""
        ...

    def __len__(self) -> int:
        """Messages that wait, as far as it is known."""
        ...


@runtime_checkable
class Feeding(Protocol):
    """A mailbox that feeds its actor by ways of its own."""

    def handling(self, cell: Cell[Any], actor: Actor[Any]) -> Handling:
        """What feeds the actor of that cell, whose first object is `actor`."""
        ...


def handling_of(cell: Cell[Any], actor: Actor[Any]) -> Handling:
    """What feeds the actor of a cell whose mailbox is made."""
    # Not `isinstance`: with a protocol that takes longer than all the rest of a spawn.
    if hasattr(cell.mailbox, "handling"):
        return cast("Feeding", cell.mailbox).handling(cell, actor)
    return OneByOne(cell) if cell.on_batch is None else InBatches(cell)


class _Hooks:
    """Runs the hooks of an actor in memory."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell[Any]) -> None:
        self._cell = cell

    async def start(self, actor: Actor[Any]) -> None:
        await run_on_start(actor, self._cell.told, self._cell.cause)

    async def stop(self, actor: Actor[Any]) -> None:
        await actor.on_stop(self._cell.told)


class OneByOne(_Hooks):
    """Feeds `receive`."""

    def __init__(self, cell: Cell[M]) -> None:
        super().__init__(cell)
        mailbox = cell.mailbox
        self._feed = mailbox if isinstance(mailbox, MemoryMailbox) else _Refilled(mailbox)

    async def run(self) -> None:
        cell, feed, timing = self._cell, self._feed, self._cell.timing
        while cell.interruption is None:
            cell.waiting = True
            try:
                more = await feed.wait()
            finally:
                cell.waiting = False
            if not more:
                return
            before, count = cell.handled, TURN_MESSAGES
            if timing.is_due() and cell.interruption is None:
                await self._timed()
                count -= 1
            if await self._turn(count):
                timing.backlog(cell.handled - before, len(feed.letters))
                # The handlers may never have waited for anything, and others want to run.
                await asyncio.sleep(0)
            else:
                timing.backlog(cell.handled - before, 0)

    async def _timed(self) -> None:
        """Handle one message, and note how long it took to come and to be handled."""
        feed, timing = self._feed, self._cell.timing
        start = clock()
        if feed.woken:
            timing.delays.add(start - feed.woken)
            feed.woken = 0
        letter = feed.letters.popleft()
        if feed.senders:
            feed.admit()
        try:
            await self._handle(letter)
        finally:
            timing.handlers.add(clock() - start)

    async def _handle(self, letter: object) -> None:
        cell = self._cell
        try:
            if type(letter) is Asked:
                reply = Reply((letter.future,))
                await cell.receive(letter.message, Context(cell, reply))
                cell.promises.demand(reply)
            else:
                await cell.receive(letter, cell.told)
        except BaseException as error:
            _fails(cell, Batch[object]((letter,), "drain"), error)
        cell.handled += 1

    async def _turn(self, count: int) -> bool:
        """Handle what waits, `count` messages at the most; True if it were so many.

        As `_handle`, one coroutine less for each message.
        """
        cell, feed = self._cell, self._feed
        letters, senders = feed.letters, feed.senders
        receive, told = cell.receive, cell.told
        for _ in range(count):
            if not letters or cell.interruption is not None:
                return False
            letter = letters.popleft()
            if senders:
                feed.admit()
            try:
                if type(letter) is Asked:
                    reply = Reply((letter.future,))
                    await receive(letter.message, Context(cell, reply))
                    cell.promises.demand(reply)
                else:
                    await receive(letter, told)
            except BaseException as error:
                _fails(cell, Batch[object]((letter,), "drain"), error)
            cell.handled += 1
        return True

    def discard(self, error: BaseException) -> int:
        return self._feed.discard(error)

    def __len__(self) -> int:
        return len(self._feed)


class InBatches(_Hooks):
    """Feeds `on_batch`."""

    def __init__(self, cell: Cell[M]) -> None:
        super().__init__(cell)
        self._mailbox = cell.mailbox
        # A batch that was taken out when the cell was interrupted: the next object handles it.
        self._in_hand: object | None = None

    async def run(self) -> None:
        cell, turns = self._cell, 0
        # Asked twice: before waiting for what may never come, and after it.
        while cell.interruption is None and await self._take() and cell.interruption is None:
            await self._handle()
            turns += 1
            if turns % TURN_BATCHES == 0:
                await asyncio.sleep(0)

    async def _take(self) -> bool:
        if self._in_hand is None:
            self._cell.waiting = True
            try:
                self._in_hand = await self._mailbox.next_batch()
            finally:
                self._cell.waiting = False
            if isinstance(self._mailbox, MemoryMailbox) and self._mailbox.woken:
                self._cell.timing.delays.add(clock() - self._mailbox.woken)
                self._mailbox.woken = 0
        return self._in_hand is not None

    async def _handle(self) -> None:
        cell, batch = self._cell, self._in_hand
        self._in_hand = None
        reply = Reply(tuple(batch.asked.values()) if isinstance(batch, Batch) else ())
        closed_by = getattr(batch, "closed_by", None)
        if closed_by is not None:
            cell.batches[closed_by] = cell.batches.get(closed_by, 0) + 1
        assert cell.on_batch is not None
        start = clock()
        try:
            await cell.on_batch(batch, Context(cell, reply))
        except BaseException as error:
            _fails(cell, batch, error)
        finally:
            cell.timing.handlers.add(clock() - start)
        cell.promises.demand(reply)
        cell.handled += _count_of(batch)

    def discard(self, error: BaseException) -> int:
        batch, self._in_hand = self._in_hand, None
        return _outcome(batch, error) + self._mailbox.discard(error)

    def __len__(self) -> int:
        held = 0 if self._in_hand is None else _count_of(self._in_hand)
        return held + _length(self._mailbox)


class _Refilled:
    """Makes a mailbox of the caller's own look like one that holds single letters."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.letters: deque[object] = deque()
        self.senders = ()
        self.woken = 0
        self._mailbox = mailbox

    async def wait(self) -> bool:
        """Wait until a letter is there; False when the mailbox is closed and drained."""
        while not self.letters:
            batch = await self._mailbox.next_batch()
            if batch is None:
                return False
            letters = batch.letters() if isinstance(batch, Batch) else cast(Iterable[object], batch)
            self.letters.extend(letters)
        return True

    def admit(self) -> None:
        """Nobody waits here."""

    def discard(self, error: BaseException) -> int:
        told = Batch[object](self.letters, "drain").fail(error)
        self.letters.clear()
        return told + self._mailbox.discard(error)

    def __len__(self) -> int:
        return len(self.letters) + _length(self._mailbox)


def _fails(cell: Cell[M], batch: object, error: BaseException) -> NoReturn:
    """Give the messages in hand their outcome and let the failure go on to the cell."""
    failure = cell.failure_of(error)
    if isinstance(failure, Exception):
        cell.failed += _count_of(batch)
        _outcome(batch, failure)
    else:
        cell.undelivered += _outcome(batch, ActorStopped(cell.name))
    raise failure


def _outcome(batch: object, error: BaseException) -> int:
    return batch.fail(error) if isinstance(batch, Failing) else 0


def _count_of(batch: object) -> int:
    return len(batch) if isinstance(batch, Sized) else 1


def _length(mailbox: Mailbox) -> int:
    return len(mailbox) if isinstance(mailbox, Sized) else 0
