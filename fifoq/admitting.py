"""Admitting: whether records may come into a queue now, and the wait for their commit.

What is prepared comes here: limits, pressure and a full disk are looked at, then the records are in
the tail, and whoever put them waits for the frame that has them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypeVar

from fifoq.attributes import Attributes
from fifoq.errors import QueueClosed, QueueFull
from fifoq.jobs import Waiter
from fifoq.member import SMALL_BYTES
from fifoq.options import MEMORY
from fifoq.places import WINDOW_MAX, WINDOW_MIN
from fifoq.runs import COLUMN_BYTES, removal_of
from fifoq.turns import wake_one
from fifoq.waiting import Waiting
from store import CounterExhausted
from store.keys import COUNTER_MAX

T = TypeVar("T")

QUICK_BYTES: Final = 1 << 20
"""While no more than this waits to be written, a small record needs no count of it."""
REAP_RECORDS: Final = 4096
REAP_BYTES: Final = 512 << 10
"""Puts that follow each other without a turn of the loop have this much written at once."""
COUNT_AFTER: Final = 1024
"""Small records are counted in bytes when this many came, or with the first of a turn."""
_DROPPED: Final = 0


class Admitting(Waiting[T]):
    """A queue that lets prepared records in."""

    __slots__ = ()

    def _is_out_of_the_ordinary(self, count: int, size: int) -> bool:
        """Whether there is more to look at before records are put; if not, stamps them."""
        committer = self._committer
        committer.require_usable()
        if (
            committer.waiting_bytes + committer.sealed_bytes + size > QUICK_BYTES
            or len(self.tail) >= REAP_RECORDS
            or committer.refused is not None
            or self._shutdown
            or self._putters
            or self.next + count > COUNTER_MAX
        ):
            return True
        now = time.time_ns()
        self.look(now)
        self.stamp_put(now)
        return False

    def _admits(self, count: int, size: int, level: int, *, pressure: bool = True) -> bool:
        """Whether that many records of together `size` bytes may be put now, at that level.

        Raises what fits if they never will, and makes room if the queue drops its oldest.
        """
        committer = self._committer
        committer.require_usable()
        if self._shutdown:
            raise self._no_more_puts()
        if self.next + count > COUNTER_MAX:
            raise CounterExhausted(
                f"queue {self.name!r} has used its last counter. Nothing was stored."
            )
        now = time.time_ns()
        self.look(now)
        uncounted = len(self.tail) - self.tail_counted
        if (
            uncounted >= COUNT_AFTER
            or self.window <= WINDOW_MIN
            or committer.is_full(uncounted * (SMALL_BYTES + COLUMN_BYTES) + size)
        ):
            committer.waiting_bytes += self.count_tail()
        if len(self.tail) >= REAP_RECORDS or self.tail_bytes >= REAP_BYTES:
            committer.reap()
        if committer.refused is not None and (level == MEMORY or not committer.has_room(size)):
            raise committer.refused
        if self.unlimited:
            return committer.has_room(size)
        if (pressure and self._under_pressure()) or not committer.has_room(size):
            return False
        options = self.options
        if not self._fits(count, size):
            if options.overflow == "fail":
                raise self._full(count, size)
            if options.overflow == "block":
                return False
            if options.overflow == "drop-oldest":
                self._drop_oldest(count, size)
                if not self._fits(count, size):
                    return False
        return True

    def _no_more_puts(self) -> QueueClosed:
        return QueueClosed(
            f"queue {self.name!r} takes no more records; it was shut down. Nothing was stored."
        )

    def _drop_oldest(self, count: int, size: int) -> None:
        while not self._fits(count, size) and self.has_ready():
            record = self.claim_head()
            self._bytes -= len(record.payload)
            self.dropped.append(removal_of(record))
            self.gone(record)
        if not self.has_ready():
            self.read_on()

    def _full(self, count: int, size: int) -> QueueFull:
        """Why that many records of together `size` bytes may not be put now."""
        if self.unlimited or self._fits(count, size):
            return QueueFull(
                f"queue {self.name!r}: too much waits to be written. Nothing was stored. Await "
                f"put, which waits for its turn."
            )
        waits = ", or await put" if self.options.overflow == "block" else ""
        held = f"{len(self)} records"
        if self.options.max_bytes is not None:
            held += f", {self._bytes} bytes"
        return QueueFull(
            f"queue {self.name!r} is full ({held}). Nothing was stored. Take some{waits}."
        )

    async def _wait_to_put(self, count: int, size: int) -> None:
        committer = self._committer
        if not committer.has_room(size):
            await committer.wait_for_room()
            return
        await self._wait_for_room((count, size))

    def _store(
        self,
        payloads: Sequence[bytes],
        attributes: Attributes | None,
        level: int,
        size: int = 0,
        item_bytes: int | None = None,
    ) -> tuple[int, int]:
        """Append records that were admitted; returns the first counter and their time.

        The counter is 0 if they are dropped because the queue is full.
        """
        now = time.time_ns()
        if self.options.overflow == "drop-newest" and not self._fits_exactly(payloads):
            return _DROPPED, now
        if level == MEMORY:
            self.first_put(now, len(payloads))
        moment = self.stamp_put(now)
        first = self.extend(payloads, strong=level > MEMORY)
        committer = self._committer
        if attributes is not None:
            committer.waiting_bytes += self.attach(first, len(payloads), attributes)
        if attributes is not None or self.sets_all_aside:
            self.set_aside(first, payloads, moment, attributes, shown=level == MEMORY)
        if self.options.max_bytes is not None:
            self._bytes += sum(map(len, payloads))
        if size:
            committer.waiting_bytes += self.count_known(len(payloads), size, item_bytes)
        elif level > MEMORY or len(payloads[0]) > SMALL_BYTES:
            committer.waiting_bytes += self.count_tail()
        if level == MEMORY:
            self.touch()
        if self._putters and self._has_room():
            # One take of many records woke one of us: the next one follows.
            self._wake_putter()
        if level == MEMORY:
            if self._takers and not self.strong_upto:
                wake_one(self._takers)
            elif self.fast and (attributes is None or attributes.deliver_at):
                # Whoever gives other attributes comes here with the next one as well.
                self._open_puts()
        return first, moment

    def _open_puts(self) -> None:
        """Let the next few puts of this turn pass without a look."""
        if self.strong_upto or self._takers or not self.takes_plain_bytes:
            return
        count, options = self.window, self.options
        if len(self.tail) < options.buffer_size:
            # The one that fills the buffer must be looked at.
            count = min(count, options.buffer_size - len(self.tail) - 1)
        self.open_puts(min(count, self._room_left()))
        self._committer.open_window(self)

    def _open_strong_puts(self) -> None:
        """Let the next few puts of this turn share the frame of this one without a look."""
        self.strong_limit = self.next + min(WINDOW_MAX, self._room_left())
        self._committer.open_window(self)

    def _room_left(self) -> int:
        """How many records may come before a limit must be looked at."""
        options, room = self.options, WINDOW_MAX
        if options.maxsize is not None:
            room = min(room, options.maxsize - self._depth())
        if options.pressure_high is not None:
            room = min(room, options.pressure_high - self._depth())
        return room

    def _waiter(self, first: int, count: int, level: int) -> Waiter:
        committer = self._committer
        waiter = Waiter(committer.loop.create_future(), self, first, count)
        committer.wait_for(self, waiter, level)
        return waiter

    async def _committed(self, first: int, count: int, level: int) -> None:
        waiter = self._waiter(first, count, level)
        if (
            count == 1
            and level == self.level
            and self.strong_first
            and self.strong_upto == self.next - 1
            and self.takes_plain_bytes
            and self.options.max_bytes is None
        ):
            # It is in the tail, not sealed at once: others of this turn may share its frame.
            self._open_strong_puts()
        await self._outcome(waiter)

    async def _outcome(self, waiter: Waiter) -> None:
        """Until the commit; what is not sealed when the caller leaves is taken back."""
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            self.take_back(waiter)
            raise

    def take_back(self, waiter: Waiter) -> bool:
        """Withdraw what was put if it is not sealed yet; returns whether it was."""
        if not (waiter.count and waiter.future.cancelled()):
            return False
        self._committer.waiting_bytes += self.count_tail()
        if self.withdraw(waiter.first, waiter.count):
            waiter.count = 0
            self.records_went()
            return True
        return False
