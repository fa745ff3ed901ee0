"""One slot: where the messages of a key wait while its actor comes or goes, in their order.

Letters of senders that await queue up with a turn: each is sent by its own sender, one after the
other, so that a put still means what the mailbox says. Letters that nobody awaits go between them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from actors.batch import Asked
from actors.errors import ActorStopped
from actors.mailbox import Intake

if TYPE_CHECKING:
    from actors.cell import Cell


class _Entry:
    """A letter that queues up. Whoever awaits its `turn` sends it then; without, the slot does."""

    __slots__ = ("letter", "turn")

    def __init__(self, letter: object, turn: asyncio.Future[None] | None) -> None:
        self.letter = letter
        self.turn = turn


class Slot:
    """What is known about one key while it has an actor, or messages that wait for one."""

    __slots__ = ("cell", "key", "leaving", "queue", "sending", "touched", "woken")

    def __init__(self, key: str) -> None:
        self.key = key
        self.queue: deque[_Entry] = deque()
        # The latest actor of the key; it takes messages unless it is None or leaving.
        self.cell: Cell[Any] | None = None
        self.leaving = False
        # Puts under way: an actor does not leave between a put and what it is for.
        self.sending = 0
        self.touched = True
        # An actor is wanted though nothing is in the queue.
        self.woken = False

    @property
    def active(self) -> bool:
        return self.cell is not None and not self.leaving

    @property
    def wanted(self) -> bool:
        return self.woken or bool(self.queue)

    @property
    def intake(self) -> Intake:
        """That of the latest actor. Not checked: that takes longer than to send a message."""
        assert self.cell is not None
        return cast("Intake", self.cell.mailbox)

    def append(self, letter: object) -> None:
        """Queue up a letter that nobody awaits."""
        self.queue.append(_Entry(letter, None))

    async def turn(self, letter: object) -> None:
        """Wait until all letters that came before have gone, and the actor takes more.

        On return the letter is out of the queue, and the caller must send it before it waits.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(letter, loop.create_future())
        self.queue.append(entry)
        try:
            while True:
                assert entry.turn is not None
                await entry.turn
                if self.active:
                    break
                # The actor has left in between. The place at the head is kept.
                entry.turn = loop.create_future()
        except BaseException:
            with suppress(ValueError):
                self.queue.remove(entry)
            raise
        first = self.queue.popleft()
        assert first is entry

    def advance(self) -> bool:
        """Let the first letters go, if there is an actor; False if that takes no more."""
        while self.queue and self.active:
            entry = self.queue[0]
            if entry.turn is not None:
                if not entry.turn.done():
                    entry.turn.set_result(None)
                return True
            try:
                self.intake.put_nowait(entry.letter, exempt=True)
            except ActorStopped:
                return False
            self.queue.popleft()
        return True

    def refuse(self, error: BaseException) -> None:
        """Whoever waits for a turn gets `error`, and takes its own letter out."""
        for entry in self.queue:
            if entry.turn is not None and not entry.turn.done():
                entry.turn.set_exception(error)

    def fail(self, error: BaseException) -> int:
        """Nobody will handle what queues up; returns how many letters were told."""
        self.refuse(error)
        told = 0
        for entry in self.queue:
            if entry.turn is not None:
                continue
            if type(entry.letter) is not Asked:
                told += 1
            elif not entry.letter.future.done():
                entry.letter.future.set_exception(error)
        self.queue = deque(entry for entry in self.queue if entry.turn is not None)
        return told
