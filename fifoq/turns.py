"""Who waits in a queue, for records or for room, and whose turn it is.

Wake-ups carry nothing: whoever is woken looks again, and passes the turn on if it leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, takewhile
from typing import TypeVar

from fifoq.member import Member
from fifoq.runs import COLUMN_BYTES
from store import FifoqError, ItemTooLarge

T = TypeVar("T")


class Turns(Member[T]):
    """The part of a queue that says what fits into it, and lets those who wait go on."""

    __slots__ = ()

    # Limits.

    def _fits(self, count: int, size: int) -> bool:
        options = self.options
        if options.maxsize is not None:
            if count > options.maxsize:
                raise ItemTooLarge(
                    f"queue {self.name!r}: {count} records at once never fit into "
                    f"maxsize={options.maxsize}. Nothing was stored."
                )
            if self._depth() + count > options.maxsize and count:
                return False
        if options.max_bytes is not None:
            payload = size - COLUMN_BYTES * count
            if payload > options.max_bytes:
                raise too_large(self.name, payload, options.max_bytes)
            return self._bytes + payload <= options.max_bytes or not payload
        return True

    def _fits_exactly(self, payloads: Sequence[bytes]) -> bool:
        return self._fits(len(payloads), sum(map(len, payloads)) + COLUMN_BYTES * len(payloads))

    def _depth(self) -> int:
        """Records, those included that nobody may take before their commit."""
        sealed = self.sealed.hidden if self.sealed is not None else 0
        return len(self) + self.hidden + sealed + self.arriving

    def _has_room(self) -> bool:
        maxsize, max_bytes = self.options.maxsize, self.options.max_bytes
        return (
            (maxsize is None or self._depth() < maxsize)
            and (max_bytes is None or self._bytes < max_bytes)
            and not self._under_pressure()
        )

    def _under_pressure(self) -> bool:
        high = self.options.pressure_high
        if high is None:
            return False
        low = self.options.pressure_floor()
        assert low is not None
        depth = self._depth()
        self.pressed = depth > low if self.pressed else depth >= high
        return self.pressed

    # Waking.

    def records_came(self) -> None:
        if self._takers and (self._committer.failure is not None or self.closed):
            wake_all(self._takers)
            self._wake_putters()
        elif self._takers and self.has_ready():
            wake_one(self._takers)
        elif self._takers:
            self.read_on()
        if self._committer.failure is not None:
            self._wake_putters()
        elif self._putters:
            # What came may be dropped for what waits.
            self._pass_on_room()

    def records_went(self) -> None:
        """Let those who wait to put look again, and the next taker if there is more."""
        if self._putters and not self._under_pressure():
            self._wake_putter()
        if self._takers and self.has_ready():
            wake_one(self._takers)
        elif self._shutdown and not self._depth():
            wake_all(self._takers)

    def read_ended(self, error: FifoqError | None) -> None:
        self._trouble = error
        if error is not None:
            wake_all(self._takers)
            self._wake_putters()
        else:
            self.records_came()

    @property
    def lacks(self) -> bool:
        """Whether what comes next in the line is only on disk."""
        return self.gap is not None and not self.chunks and self.head >= self.run_end

    def read_on(self) -> None:
        """Have it read then. Not more: nobody may want what is there for long."""
        if self.lacks:
            self._committer.request_read(self)

    @property
    def has_putters(self) -> bool:
        """Whether somebody must hear of an ack: putters, or takers after a shutdown."""
        return bool(self._putters or self._shutdown)

    def _pass_on_room(self) -> None:
        """One wake-up stands for all the room there is: the next in line may fit as well."""
        room = self._fits(1, COLUMN_BYTES)
        if not room and self.options.overflow == "drop-oldest":
            room = self.has_ready()
        if room and not self._under_pressure():
            self._wake_putter()

    def _wake_putter(self) -> None:
        """Let the first go on whose records fit; those that are too many yet keep their place."""
        for future, need in self._putters.items():
            if not future.done() and (need is None or self._may_fit(*need)):
                future.set_result(None)
                del self._putters[future]
                return

    def _may_fit(self, count: int, size: int) -> bool:
        """Whether it is worth another look, be it only to hear that they never will."""
        try:
            return self.options.overflow == "drop-oldest" or self._fits(count, size)
        except ItemTooLarge:
            return True

    def _wake_putters(self) -> None:
        for future in self._putters:
            if not future.done():
                future.set_result(None)
        self._putters = {}

    async def _wait_for_room(self, need: tuple[int, int] | None) -> None:
        future = self._committer.loop.create_future()
        self._putters[future] = need
        try:
            await future
        except BaseException:
            self._putters.pop(future, None)
            if future.done() and not future.cancelled():
                # It was our turn, and we leave: somebody else must not sleep through it.
                self._wake_putter()
            raise
        # Whoever woke us may have been interrupted before that.
        self._putters.pop(future, None)

    def store_closed(self) -> None:
        self.close_windows()
        self.leasing.stop()
        self._wake_putters()
        wake_all(self._takers)


class Turn(asyncio.Future[None]):
    """Somebody who waits in a line, and where."""

    place: int


_places = count()


async def wait_turn(
    loop: asyncio.AbstractEventLoop, waiting: deque[Turn], place: int | None = None
) -> int:
    """Wait in a line until somebody wakes us, in our old place if we were woken in vain.

    Returns the place.
    """
    turn = Turn(loop=loop)
    turn.place = place = next(_places) if place is None else place
    if not waiting or waiting[-1].place < place:
        waiting.append(turn)
    else:
        ahead = takewhile(lambda other: other.place < place, waiting)
        waiting.insert(sum(1 for _ in ahead), turn)
    try:
        await turn
    except BaseException:
        if turn.done() and not turn.cancelled():
            # It was our turn, and we leave: somebody else must not sleep through it.
            wake_one(waiting)
        else:
            with suppress(ValueError):
                waiting.remove(turn)
        raise
    return turn.place


def wake_one(waiting: deque[Turn]) -> None:
    while waiting:
        turn = waiting[0]
        if turn.done():
            waiting.popleft()
            continue
        turn.set_result(None)
        waiting.popleft()
        return


def wake_all(waiting: deque[Turn]) -> None:
    while waiting:
        wake_one(waiting)


def too_large(name: str, size: int, limit: int) -> ItemTooLarge:
    return ItemTooLarge(
        f"queue {name!r}: a record of {size} bytes is over the limit of {limit}. "
        f"Nothing was stored."
    )
