"""The mailbox in memory: bounded, in the order of sending, with batches.

Belongs to one event loop and takes its time from it. Knows nothing of actors but the name in its
errors.
"""

from __future__ import annotations

import asyncio
from collections import deque

from actors.batch import Asked, Batch, ClosedBy
from actors.errors import ActorStopped, MailboxFull
from actors.mailbox import MailboxOptions
from actors.timing import clock

_CLOSED = -1


class _Sender:
    """A `tell` that waits for room."""

    __slots__ = ("admitted", "letter")

    def __init__(self, letter: object, admitted: asyncio.Future[None]) -> None:
        self.letter = letter
        self.admitted = admitted


class MemoryMailbox:
    """A `Mailbox` and `Intake` that holds letters in a deque.

    While senders wait for room they are ahead of everybody who comes later: a letter leaves, the
    first waiting one enters in the same step. So the order of sending is the order of handling.
    """

    def __init__(self, options: MailboxOptions, name: str) -> None:
        self.letters: deque[object] = deque()
        self.senders: deque[_Sender] = deque()
        self.dropped = 0
        self.woken = 0
        """When a message woke the actor; 0 if that was looked at."""
        self._options = options
        self._name = name
        # One number says whether there is room: closing puts it below every length.
        self._limit = options.size_max
        self._waiter: asyncio.Future[None] | None = None
        self._lingering = False
        self._loop = asyncio.get_running_loop()
        # A mailbox that blocks at its size would never fill a larger batch.
        self._count_max = min(options.batch.count_max, options.size_max)
        # Sizes of the first letters, as many as were looked at: `size_of` is called once for each.
        self._sizes: deque[int] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.letters)

    # Intake

    async def put(self, letter: object) -> None:
        """Take the letter; when full, do as the overflow policy says.

        Cancelled while it waits for room: the letter was not taken, unless room was made for it
        in the same turn of the loop.
        """
        if len(self.letters) < self._limit:
            self.letters.append(letter)
            if self._waiter is not None:
                self._arrived()
        elif not self._overflows(letter):
            await self._wait_for_room(letter)

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        """Take the letter, or raise `MailboxFull` where `put` would wait."""
        if len(self.letters) < self._limit or (exempt and self._limit != _CLOSED):
            self.letters.append(letter)
            if self._waiter is not None:
                self._arrived()
        elif not self._overflows(letter):
            raise MailboxFull(self._name, self._options.size_max)

    def withdraw(self, letter: object) -> None:
        """Forget the letter wherever it waits; nothing happens if it was handed out."""
        for index, found in enumerate(self.letters):
            if found is letter:
                del self.letters[index]
                if index < len(self._sizes):
                    self._bytes -= self._sizes[index]
                    del self._sizes[index]
                self.admit()
                return

    def _overflows(self, letter: object) -> bool:
        """Deal with a letter that finds no room; False if its sender has to wait."""
        if self._limit == _CLOSED:
            raise ActorStopped(self._name)
        match self._options.overflow:
            case "block":
                return False
            case "fail":
                raise MailboxFull(self._name, self._options.size_max)
            case "drop-oldest":
                self._drop(self.letters.popleft())
                if self._sizes:
                    self._bytes -= self._sizes.popleft()
                self.letters.append(letter)
                if self._waiter is not None:
                    self._arrived()
            case _:
                self._drop(letter)
        return True

    def _drop(self, letter: object) -> None:
        self.dropped += 1
        if type(letter) is Asked and not letter.future.done():
            letter.future.set_exception(MailboxFull(self._name, self._options.size_max))

    async def _wait_for_room(self, letter: object) -> None:
        sender = _Sender(letter, self._loop.create_future())
        self.senders.append(sender)
        try:
            await sender.admitted
        except asyncio.CancelledError:
            if sender in self.senders:
                self.senders.remove(sender)
            raise

    def admit(self) -> None:
        """Let waiting senders in as far as there is room. Call it after taking letters out."""
        while self.senders and len(self.letters) < self._limit:
            sender = self.senders.popleft()
            if not sender.admitted.done():
                self.letters.append(sender.letter)
                sender.admitted.set_result(None)

    # The actor's side

    async def wait(self) -> bool:
        """Wait until a letter is there; False when closed and empty."""
        while not self.letters:
            if self._limit == _CLOSED:
                return False
            # As `_sleep`, which would be one more coroutine for each message that is awaited.
            self._waiter = waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        return True

    async def next_batch(self) -> Batch[object] | None:
        """Wait for a batch; None when closed and empty. Cancelled: everything stays inside."""
        while await self.wait():
            closed_by = self._reason()
            if closed_by is None:
                closed_by = await self._linger()
            if self.letters:
                return self._cut(closed_by)
        return None

    def close(self) -> None:
        """Take no more; senders that wait for room get `ActorStopped`."""
        self._limit = _CLOSED
        for sender in self.senders:
            if not sender.admitted.done():
                sender.admitted.set_exception(ActorStopped(self._name))
        self.senders.clear()
        self._wake()

    def discard(self, error: BaseException) -> int:
        """Empty the mailbox; askers get `error`. Returns how many of the letters were told."""
        told = Batch[object](self.letters, "drain").fail(error)
        self.letters.clear()
        self._sizes.clear()
        self._bytes = 0
        return told

    async def _sleep(self) -> None:
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        # Forgotten at once: who tells until the actor runs need not look at it again.
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            self.woken = clock()
            waiter.set_result(None)

    def _arrived(self) -> None:
        if not self._lingering or self._reason() is not None:
            self._wake()

    # Batches

    def _reason(self) -> ClosedBy | None:
        """What closes the batch now, or None if it may linger."""
        options = self._options.batch
        if len(self.letters) >= self._count_max:
            return "full"
        if options.bytes_max is not None and self._measured() >= options.bytes_max:
            return "bytes"
        if self._limit == _CLOSED or options.linger_seconds == 0:
            return "drain"
        return None

    async def _linger(self) -> ClosedBy:
        timer = self._loop.call_later(self._options.batch.linger_seconds, self._wake)
        self._lingering = True
        try:
            await self._sleep()
        finally:
            self._lingering = False
            timer.cancel()
        return self._reason() or "time"

    def _cut(self, closed_by: ClosedBy) -> Batch[object]:
        """Take one batch out and let waiting senders in."""
        count = len(self.letters)
        if count >= self._count_max:
            count, closed_by = self._count_max, "full"
        if self._options.batch.bytes_max is not None:
            fitting, reached = self._fitting(self._options.batch.bytes_max, count)
            if fitting < count or reached:
                count, closed_by = fitting, "bytes"
        take = self.letters.popleft
        batch = Batch[object]([take() for _ in range(count)], closed_by)
        self.admit()
        return batch

    def _measured(self) -> int:
        """Bytes of everything inside."""
        size_of = self._options.batch.size_of
        assert size_of is not None
        for index in range(len(self._sizes), len(self.letters)):
            letter = self.letters[index]
            size = size_of(letter.message if type(letter) is Asked else letter)
            self._sizes.append(size)
            self._bytes += size
        return self._bytes

    def _fitting(self, bytes_max: int, count: int) -> tuple[int, bool]:
        """How many of the first `count` letters stay within the bytes; and are these reached?"""
        self._measured()
        total = fitting = 0
        while fitting < count and (fitting == 0 or total + self._sizes[0] <= bytes_max):
            total += self._sizes.popleft()
            fitting += 1
        self._bytes -= total
        return fitting, total >= bytes_max
