"""Taking: how records leave a queue.

A record is claimed in the taker's own step; wake-ups carry nothing. Whoever leaves before its
removal is sealed into a frame gives it back at once, whoever leaves later with the next frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final, TypeVar

from fifoq.attributes import check_count, check_timeout
from fifoq.errors import QueueClosed, QueueEmpty, SchemaMismatch, nothing_came
from fifoq.jobs import Waiter
from fifoq.member import AT_ONCE
from fifoq.options import MEMORY
from fifoq.runs import Claim, Returned, removal_of
from fifoq.turns import wait_turn, wake_all, wake_one
from fifoq.waiting import Waiting
from store import DiskFull

T = TypeVar("T")

TAKE_MANY_MAX: Final = 16384
"""Records in one `take_many`: one frame must be able to restore them."""


class Taking(Waiting[T]):
    """The half of a queue that hands records out."""

    __slots__ = ()

    async def take(self, *, timeout: float | None = None) -> T:
        """Remove the oldest record and return it; its removal is committed by then.

        Waits for one. Cancelled, or after `timeout` seconds (TimeoutError), the record is in the
        queue at its place. QueueClosed once the queue is closed, or shut down and empty.
        """
        head = self.head
        if head < self.take_limit:
            self.head = head + 1
            return self.ready.popleft()  # type: ignore[return-value]
        if timeout is not None:
            check_timeout(timeout, "Nothing was taken.")
            try:
                async with asyncio.timeout(timeout):
                    return await self._take()
            except TimeoutError:
                raise nothing_came(self.name, timeout) from None
        return await self._take()

    async def _take(self) -> T:
        place = None
        while not self.looks_ready():
            place = await self.wait_to_take(place)
        item = self.decoded_head()
        if self.level == MEMORY:
            self._take_in_memory()
        else:
            await self._commit_removal([self._claim()])
        return item

    def decoded_head(self) -> T:
        """The oldest record as an item, before it is claimed: one that does not decode stays."""
        payload = self.peek_head()
        assert payload is not None
        try:
            return self.codec.decode(payload)
        except SchemaMismatch:
            # It stands in everybody's way: the next one who waits is to be told as well.
            wake_one(self._takers)
            raise

    def take_nowait(self) -> T:
        """Remove the oldest record in memory and return it; the removal is written in time.

        QueueEmpty if none is ready.
        """
        head = self.head
        if head < self.take_limit:
            self.head = head + 1
            return self.ready.popleft()  # type: ignore[return-value]
        if not self.looks_ready():
            raise self._not_ready()
        item = self.decoded_head()
        self._take_in_memory()
        return item

    async def take_many(self, count: int, *, max_bytes: int | None = None) -> list[T]:
        """Remove 1 to `count` records in one commit, more than one only up to `max_bytes`.

        Waits for the first. What holds for `take` holds for all of them together.
        """
        records = await self.take_records(count, max_bytes)
        return self.codec.decode_many([record.payload for record in records])

    async def take_records(self, count: int, max_bytes: int | None = None) -> list[Returned]:
        """The same as `take_many`, for one who may have to `restore` them."""
        check_count(count, "Nothing was taken.")
        if max_bytes is not None and not isinstance(max_bytes, int):
            raise TypeError(f"max_bytes={max_bytes!r} is not a whole number. Nothing was taken.")
        count, place = min(count, TAKE_MANY_MAX), None
        while not self.looks_ready():
            place = await self.wait_to_take(place)
        self.decoded_head()
        records: list[Returned] = []
        size = 0
        while len(records) < count and self.has_ready():
            if records and not self.decodes_head():
                break
            following = len(self.peek_head() or b"")
            if records and max_bytes is not None and size + following > max_bytes:
                break
            records.append(self._claim())
            size += following
        if self.level == MEMORY:
            self.removed += map(removal_of, records)
            self._forget_attempts(records)
            self.touch()
            self.records_went()
        else:
            await self._commit_removal(records)
        return records

    def decodes_head(self) -> bool:
        if not self.codec.typed:
            return True
        try:
            self.codec.decode(self.peek_head() or b"")
        except SchemaMismatch:
            # For whoever takes next, and comes to it first.
            return False
        return True

    def take_record_nowait(self) -> Returned:
        """The same as `take_nowait`, for one who may have to `restore` it."""
        if not self.looks_ready():
            raise self._not_ready()
        self.decoded_head()
        record = self._claim()
        self.removed.append(removal_of(record))
        self._forget_attempts([record])
        self.touch()
        self.records_went()
        return record

    def _not_ready(self) -> QueueEmpty:
        # Whoever asks again and again must come to what is only on disk.
        self.read_on()
        return QueueEmpty(f"queue {self.name!r} has nothing that is ready. Await take.")

    async def peek(self) -> T | None:
        """The oldest record, or None; nothing changes. Waits only if it must be read from disk."""
        while not self.looks_ready():
            if not (self.lacks or self.restoring or self.fetching):
                return None
            await self.wait_to_take()
        if self._takers:
            # We only looked: a taker must not sleep through the wake-up that we got.
            self.records_came()
        return self.decoded_head()

    def looks_ready(self) -> bool:
        """Whether there is something to take; raises what fits if there never will be."""
        committer = self._committer
        committer.require_usable()
        now = time.time_ns()
        self.look(now)
        if self._shutdown == AT_ONCE:
            raise QueueClosed(f"queue {self.name!r} was shut down.")
        if self.delays is not None:
            self.stamp_take(now)
        if self.has_ready():
            if len(self.chunks) < 2 and self.gap is not None and self._trouble is None:
                committer.request_read(self)
            return True
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if self._shutdown and not self._depth() and not self._may_come_back():
            raise QueueClosed(f"queue {self.name!r} was shut down and is empty.")
        # Also for those who do not wait: whoever asks again must find it one day.
        self.read_on()
        return False

    def _may_come_back(self) -> bool:
        """Whether a taker that has not ended may still give records back."""
        sealed = self.sealed is not None and bool(self.sealed.claims)
        return sealed or bool(self.claims or self.restoring or self.leasing.leaving)

    async def wait_to_take(self, place: int | None = None) -> int:
        """Wait until there may be something; returns the place to wait in once more."""
        self.read_on()
        return await wait_turn(self._committer.loop, self._takers, place)

    def _take_in_memory(self) -> bytes:
        returned = self.returned
        if (
            self.picky
            or self.sets_all_aside
            or (returned and (self.head >= self.run_end or returned[0].counter < self.head))
        ):
            record = self.claim_head()
            self.taken_time = now = time.time_ns()
            self.note_delay(1, now - record.time)
            self.removed.append(removal_of(record))
            self.gone(record)
            payload = record.payload
        else:
            self.head += 1
            payload = self.ready.popleft()
            if not (returned or self._putters) and self.fast and not self.codec.typed:
                self.open_takes(self.window)
                self._committer.open_window(self)
        if self.options.max_bytes is not None:
            self._bytes -= len(payload)
        self.touch()
        self.records_went()
        return payload

    def _claim(self) -> Returned:
        record = self.claim_head()
        self.key_free(record)
        self.taken_time = now = time.time_ns()
        self.note_delay(1, now - record.time)
        if self.options.max_bytes is not None:
            self._bytes -= len(record.payload)
        return record

    async def _commit_removal(self, records: list[Returned]) -> None:
        """Commit that claimed records are gone; if the caller leaves, they come back."""
        committer = self._committer
        claim = Claim(records)
        self.claims.append(claim)
        waiter = Waiter(committer.loop.create_future(), self, claim=claim)
        committer.touch(self, None)
        committer.wait(waiter, self.level)
        if self._takers and self.has_ready():
            wake_one(self._takers)
        try:
            await waiter.future
        except BaseException:
            # A coroutine that is closed leaves its future as it was.
            waiter.future.cancel()
            self._unclaim(waiter, claim)
            raise
        self._forget_attempts(records)
        self.records_went()
        if self._shutdown:
            # Those who waited for what might come back are to look again.
            wake_all(self._takers)

    def _forget_attempts(self, records: list[Returned]) -> None:
        """Not before they are gone for good: a record that comes back has them still."""
        for record in records:
            self.leasing.forget(record.counter)

    def _unclaim(self, waiter: Waiter, claim: Claim) -> None:
        """The taker leaves: its records go back at once, or with the next frame."""
        if not claim.sealed:
            if claim in self.claims:
                self.claims.remove(claim)
                for record in claim.records:
                    self.give_back(record)
                self.records_came()
        elif waiter.future.cancelled() or succeeded(waiter.future):
            claim.left = True
            self._hold_back(len(claim.records))
            if succeeded(waiter.future):
                self._committer.restore(self, claim)

    def _hold_back(self, count: int) -> None:
        """Until that many records are back nobody takes what is behind them, in a window either."""
        self.close_windows()
        self.restoring += count

    async def restore(self, records: list[Returned]) -> None:
        """Records that were taken reached nobody: they are back at their places on return."""
        self._hold_back(len(records))
        records = self._forget_removals(records)
        while self.sealed is not None and not self._unsealed(records):
            # A frame's removals come after what it restores; refused, they wait again.
            with contextlib.suppress(DiskFull):
                await self.next_commit()
            records = self._forget_removals(records)
        if records:
            self.restored += records
            await self.next_commit()

    def _forget_removals(self, records: list[Returned]) -> list[Returned]:
        """Give records back whose removal still waits, and need no commit; returns the others."""
        waiting = set(self.removed)
        mine = {entry for entry in map(removal_of, records) if entry in waiting}
        if mine:
            self.removed = [entry for entry in self.removed if entry not in mine]
        for record in records:
            if removal_of(record) in mine:
                self.restoring -= 1
                self.give_back(record)
        self.records_came()
        return [record for record in records if removal_of(record) not in mine]

    def _unsealed(self, records: list[Returned]) -> bool:
        """Whether no removal of these is in the frame that is under way."""
        assert self.sealed is not None
        return not {*self.sealed.taken} & {*map(removal_of, records)}


def succeeded(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
