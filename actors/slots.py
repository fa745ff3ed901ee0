"""Slots: which keys have an actor, who gets one when there is room, and who has to go.

A slot is active (its actor takes messages), leaving (its actor was idle and ends), or waiting
(there is no room for one more actor). While it is not active, messages queue up in it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.current import is_inside
from actors.errors import ActorStopped, MailboxFull
from actors.life import OPEN
from actors.slot import Slot

if TYPE_CHECKING:
    from actors.cell import Cell
    from actors.watch import Terminated

EVICTED_SHARE = 8
"""One in so many actors leaves when there is no room for another."""
LOOK_SECONDS_MIN = 0.001
LOOK_SECONDS_MAX = 0.008
"""While too few actors are idle, how often it is looked whether others can leave."""


class Slots:
    """The slots of one `Keyed`, and the mailbox of the actor that is the parent of all others.

    It is a mailbox only to be closed and drained with the system; nothing is ever handed out.
    """

    def __init__(
        self,
        name: str,
        activate: Callable[[str], Cell[Any]],
        *,
        idle_seconds: float,
        active_max: int,
        size_max: int,
        durable: bool,
    ) -> None:
        self.name = name
        self.durable = durable
        self.activated = self.passivated = self.undelivered = 0
        self.slots: OrderedDict[str, Slot] = OrderedDict()
        self.waiting: deque[Slot] = deque()
        self.living = 0
        self._leaving = 0
        self._make = activate
        self._idle_seconds = idle_seconds
        self._active_max = active_max
        self._size_max = size_max
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._look_seconds = LOOK_SECONDS_MIN
        self._next_look = 0.0
        self._closed = self.inside_only = False
        self._drained = asyncio.Event()
        self.parent: Cell[Any] | None = None

    # Sending

    async def send(self, key: str, letter: object) -> None:
        """Send a letter to the actor of the key. Waits for its turn, and for room as it does."""
        while True:
            slot = self._find(key, exempt=False)
            if not slot.active or slot.queue:
                await self._turn(slot, letter)
            cell = slot.cell
            assert cell is not None
            slot.sending += 1
            try:
                await slot.intake.put(letter)
            except ActorStopped:
                # It stops by itself, or somebody stopped it: the next one handles this.
                self._left(slot, cell)
            else:
                return
            finally:
                slot.sending -= 1

    def send_nowait(self, key: str, letter: object, *, exempt: bool) -> None:
        """Send it now; MailboxFull where `send` would wait, unless it is exempt."""
        slot = self._find(key, exempt=exempt)
        if slot.active and not slot.queue:
            try:
                slot.intake.put_nowait(letter, exempt=exempt)
            except ActorStopped:
                assert slot.cell is not None
                self._left(slot, slot.cell)
            else:
                return
        if not exempt and (slot.cell is None or len(slot.queue) >= self._size_max):
            self._forget_if_unused(slot)
            raise MailboxFull(self._name_of(key), self._size_max)
        slot.append(letter)

    def withdraw(self, key: str, letter: object) -> None:
        """Forget an `Asked` whose asker has left."""
        slot = self.slots.get(key)
        if slot is not None and slot.cell is not None:
            slot.intake.withdraw(letter)

    def cell_of(self, key: str) -> Cell[Any]:
        """The actor of the key, activated if there is none; it may be a leaving one."""
        slot = self._find(key, exempt=True)
        assert slot.cell is not None
        return slot.cell

    def wake(self, key: str) -> None:
        """Have the key get an actor as soon as there is room; nothing happens when closed."""
        slot = self.slots.get(key)
        if self._closed:
            return
        if slot is not None and slot.cell is not None and not slot.leaving:
            if slot.cell.state in OPEN:
                return
            # It stops by itself, or somebody stopped it: the next one is wanted.
            self._left(slot, slot.cell)
        slot = slot or self._add(key)
        slot.woken = True
        if slot.cell is None:
            self._give_room()

    def _find(self, key: str, *, exempt: bool) -> Slot:
        slot = self.slots.get(key)
        if self._closed and (slot is None or not slot.active):
            raise ActorStopped(self._name_of(key))
        if self.inside_only and not exempt and not self._is_inside():
            raise ActorStopped(self._name_of(key))
        if slot is None:
            slot = self._add(key)
        if slot.cell is None and (self._has_room() or exempt or self._is_inside()):
            # Whoever is an actor does not wait for room: others might wait for it.
            self._activate_now(slot)
        elif slot.cell is None:
            self._evict()
        slot.touched = True
        self.slots.move_to_end(key)
        return slot

    def _add(self, key: str) -> Slot:
        slot = self.slots[key] = Slot(key)
        self.waiting.append(slot)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds, self._sweep)
        return slot

    def _has_room(self) -> bool:
        # The one that asks is the last of those that wait.
        return self.living + len(self.waiting) <= self._active_max

    def _is_inside(self) -> bool:
        return self.parent is not None and is_inside(self.parent.tree)

    async def _turn(self, slot: Slot, letter: object) -> None:
        try:
            await slot.turn(letter)
        except BaseException:
            self._advance(slot)
            self._forget_if_unused(slot)
            raise
        # Not now: a letter that nobody awaits would get ahead of this one.
        self._loop.call_soon(self._advance, slot)

    def _advance(self, slot: Slot) -> None:
        if not slot.advance() and slot.cell is not None:
            self._left(slot, slot.cell)
        self._look_if_drained()

    # Actors come and go

    def _activate_now(self, slot: Slot) -> None:
        with suppress(ValueError):
            self.waiting.remove(slot)
        try:
            self._activate(slot)
        except BaseException:
            self._forget_if_unused(slot)
            raise
        self._advance(slot)
        self._evict()

    def _activate(self, slot: Slot) -> None:
        cell = self._make(slot.key)
        slot.cell, slot.leaving, slot.woken = cell, False, False
        self.living += 1
        self.activated += 1
        cell.tree.watches.add(slot, cell, partial(self._ended, slot, cell))

    def passivate(self, slot: Slot) -> None:
        """Let the actor end, after what it has; what comes from now on queues up."""
        assert slot.cell is not None
        if not slot.leaving:
            self.passivated += 1
            self._left(slot, slot.cell)
            slot.cell.request_stop(None)

    def _left(self, slot: Slot, cell: Cell[Any]) -> None:
        if slot.cell is cell and not slot.leaving:
            slot.leaving = True
            self._leaving += 1

    def _ended(self, slot: Slot, cell: Cell[Any], _: Terminated) -> None:
        self.living -= 1
        self.undelivered += cell.undelivered
        if slot.leaving:
            self._leaving -= 1
        slot.cell, slot.leaving = None, False
        # Those who wait for room came first.
        if slot.wanted:
            self.waiting.append(slot)
        else:
            self._forget_if_unused(slot)
        self._give_room()
        self._look_if_drained()

    def _give_room(self) -> None:
        while self.waiting and self.living < self._active_max:
            slot = self.waiting.popleft()
            if not slot.wanted:
                self._forget_if_unused(slot)
                continue
            try:
                self._activate(slot)
            except Exception as error:
                slot.woken = False
                self.undelivered += slot.fail(error)
                self._forget_if_unused(slot)
            else:
                self._advance(slot)
        self._evict()

    def _evict(self) -> None:
        """Make room for those that wait: the idle actors leave that were used least recently."""
        now = self._loop.time()
        needed = self.living + len(self.waiting) - self._active_max - self._leaving
        if needed <= 0 or self._retry is not None:
            return
        if now >= self._next_look and self._passivate_idle(needed):
            self._look_seconds = LOOK_SECONDS_MIN
            return
        if now >= self._next_look:
            # The others are busy, and nobody says when that changes.
            self._next_look = now + self._look_seconds
            self._look_seconds = min(self._look_seconds * 2, LOOK_SECONDS_MAX)
        if self.waiting:
            self._retry = self._loop.call_at(self._next_look, self._evict_again)

    def _evict_again(self) -> None:
        self._retry = None
        self._next_look = 0.0
        self._evict()

    def _passivate_idle(self, needed: int) -> bool:
        """Have as many leave as are needed, if so many are idle; True if they are."""
        # Some more at once: who comes next finds room and need not wait for an actor to end.
        wanted = max(needed, self._active_max // EVICTED_SHARE)
        before = self._leaving
        for slot in list(self.slots.values()):
            if self._leaving - before >= wanted:
                break
            if self._may_leave(slot):
                self.passivate(slot)
        return self._leaving - before >= needed

    def _may_leave(self, slot: Slot) -> bool:
        cell = slot.cell
        return cell is not None and not slot.leaving and not slot.sending and cell.is_idle()

    def _sweep(self) -> None:
        """Passivate whoever did nothing since the last time."""
        for slot in list(self.slots.values()):
            if not slot.touched and self._may_leave(slot):
                self.passivate(slot)
            slot.touched = False
        self._sweeper = None
        if self.slots:
            self._sweeper = self._loop.call_later(self._idle_seconds, self._sweep)

    def _forget_if_unused(self, slot: Slot) -> None:
        if slot.cell is None and not slot.wanted and self.slots.get(slot.key) is slot:
            del self.slots[slot.key]
            with suppress(ValueError):
                self.waiting.remove(slot)

    # The mailbox of the parent

    async def next_batch(self) -> None:
        """Wait until it is closed, and every letter is with an actor."""
        await self._drained.wait()

    def close(self) -> None:
        """Take no more; whoever waits for a turn gets ActorStopped."""
        self._closed = True
        for slot in list(self.slots.values()):
            slot.woken = False
            self._forget_if_unused(slot)
            slot.refuse(ActorStopped(self._name_of(slot.key)))
        self._look_if_drained()

    def discard(self, error: BaseException) -> int:
        """Forget what queues up; returns how many letters were told."""
        told = sum(slot.fail(error) for slot in self.slots.values())
        for timer in (self._sweeper, self._retry):
            if timer is not None:
                timer.cancel()
        return told

    def __len__(self) -> int:
        return sum(len(slot.queue) for slot in self.slots.values())

    def _look_if_drained(self) -> None:
        if (
            self._closed
            and not self._drained.is_set()
            and not any(slot.queue for slot in self.slots.values())
        ):
            self._drained.set()

    def _name_of(self, key: str) -> str:
        return f"{self.name}/{key}"
