"""Boxes: the mailbox of one durable actor, as the runtime and its refs see it.

What was told lies in the queue of the post. A box has the first letters in memory, and counters of
those behind them.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from actors import Actor, ActorStopped, MailboxFull
from actors.batch import Asked
from actors.handling import Handling
from fifoq.burying import ORIGINAL_KEY
from fifoq.codec import decode_headers
from fifoq.durable.letters import Letter, Messages, address, check_size, write_letter
from fifoq.durable.options import DurableMailbox
from fifoq.durable.steps import Step
from fifoq.errors import QueueFull
from fifoq.runs import Returned

if TYPE_CHECKING:
    from actors.cell import Cell
    from fifoq.durable.office import Office
    from fifoq.durable.post import Delivered, Post

LOADED_MAX: Final = 512
"""Letters of one actor in memory; those behind them are read when it is their turn."""
LOADED_BYTES_MAX: Final = 1 << 20
FETCH_COUNT: Final = 128

ASK_HEADER: Final = "fifoq.ask"
"""The number of an ask, and the life of the system in which it was made."""


class Box:
    """Where the letters of one actor wait. Belongs to one loop."""

    __slots__ = (
        "_address",
        "_fetching",
        "_messages",
        "_waiter",
        "asked",
        "closed",
        "dead_letters",
        "dropped",
        "in_hand",
        "incoming",
        "loaded",
        "loaded_bytes",
        "name",
        "not_before",
        "office",
        "options",
        "post",
        "senders",
        "unloaded",
    )

    def __init__(self, office: Office, name: str, options: DurableMailbox) -> None:
        self.office = office
        self.post: Post = office.post
        self.name = name
        self.options = options
        self._messages: Messages | None = None
        self._address = address(name)
        # A list, of which the first is taken: it is short, and costs nothing while it is empty.
        self.loaded: list[Delivered] = []
        self.loaded_bytes = 0
        self.unloaded = array("Q")
        self.in_hand: Delivered | None = None
        self.senders: deque[list[asyncio.Future[None]]] | None = None
        self.incoming = 0
        self.asked: dict[str, asyncio.Future[object]] | None = None
        self.not_before = 0.0
        self.closed = False
        self.dead_letters = self.dropped = 0
        self._fetching = 0
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Letters that wait, or are in hand."""
        return len(self.loaded) + len(self.unloaded) + (self.in_hand is not None)

    def handling(self, cell: Cell[Any], actor: Actor[Any]) -> Handling:
        """What feeds the actor."""
        from fifoq.durable.handling import Durably

        kind = self.office.kind_of(type(actor))
        self._messages = kind.messages
        durably = Durably(cell, self, kind)
        # Only now that nothing can fail: a box of no actor would keep letters from the next one.
        self.unloaded = self.post.enter(self)
        return durably

    # Intake.

    def encode(self, message: object) -> bytes:
        """The message as bytes. TypeError if the actor does not take it."""
        assert self._messages is not None
        return self._messages.encode(self.name, message)

    def put(self, letter: object) -> Coroutine[Any, Any, None]:
        """Take the letter: it is durable on return. Waits while the mailbox is full.

        What is on its way to the disk does not count as being in it. Cancelled before it is sealed
        into a frame, it is certainly not told; after that it is.
        """
        # Not `async def`: the queue's coroutine is handed on, one coroutine for a message.
        if self.closed:
            # First: an asker that the box knew would hear of its end, whoever else is asked then.
            raise ActorStopped(self.name)
        payload = self._payload(letter)
        if self.senders or self._is_full():
            return self._put_when_room(letter, payload)
        return cast("Coroutine[Any, Any, None]", self.post.queue.put(payload))

    async def _put_when_room(self, letter: object, payload: bytes) -> None:
        try:
            has_room = await self._gets_room()
        except ActorStopped:
            if type(letter) is Asked:
                # A keyed actor that follows this one may be asked instead.
                self.withdraw(letter)
            raise
        if not has_room:
            self._drop_newest(letter)
            return
        self.incoming += 1
        try:
            await self.post.queue.put(payload)
        finally:
            self.incoming -= 1

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        """Take the letter now, behind all that was told before, or raise `MailboxFull`.

        It is durable soon, unless the disk is full or fails: nobody is told of that. `MailboxFull`
        with `drop-oldest` as well, while the oldest is not in memory.
        """
        if self.closed:
            raise ActorStopped(self.name)
        payload = self._payload(letter)
        if not exempt and self._is_full():
            if self.options.overflow == "drop-newest":
                self._drop_newest(letter)
                return
            if self.options.overflow != "drop-oldest" or (self.unloaded and not self.loaded):
                raise MailboxFull(self.name, self.options.size_max)
            self._drop_oldest()
        try:
            # Not as a step: those take their places when their frame is made.
            self.post.queue.submit(payload)
        except QueueFull as error:
            raise MailboxFull(self.name, self.options.size_max) from error

    def withdraw(self, letter: object) -> None:
        """An asker has left. What nobody waits for is removed instead of being handled."""
        assert isinstance(letter, Asked)
        if self.asked is None:
            return
        for number, future in list(self.asked.items()):
            if future is letter.future:
                del self.asked[number]
                self._remove_asked(number)

    def _remove_asked(self, number: str) -> None:
        """Remove the letter of an asker who has left, if it is in memory; else when it is read."""
        for index, (record, letter) in enumerate(self.loaded):
            if letter.headers.get(ASK_HEADER) == number:
                del self.loaded[index]
                self.loaded_bytes -= len(record.payload)
                self.remove(record)
                return

    def _payload(self, letter: object) -> bytes:
        headers = self.office.carried.headers()
        if type(letter) is Asked:
            if self.asked is None:
                self.asked = {}
            number = self.office.next_ask()
            message = self.encode(letter.message)
            payload = write_letter(self.name, message, {**headers, ASK_HEADER: number})
            self.asked[number] = letter.future
            return payload
        if headers:
            return write_letter(self.name, self.encode(letter), headers)
        payload = self._address + self.encode(letter)
        check_size(self.name, payload)
        return payload

    def _is_full(self) -> bool:
        return len(self) + self.incoming >= self.options.size_max

    async def _gets_room(self) -> bool:
        """Do as the overflow policy says; False if the letter was dropped."""
        match self.options.overflow:
            case "block":
                await self._wait_for_room()
            case "fail":
                raise MailboxFull(self.name, self.options.size_max)
            case "drop-oldest":
                while self.unloaded and not (self.loaded or self.closed):
                    await self._fetch()
                if self.closed:
                    raise ActorStopped(self.name)
                self._drop_oldest()
            case _:
                return False
        return True

    def _drop_oldest(self) -> None:
        """Drop the first that waits; there is none if the only one is in hand."""
        if self.loaded:
            record, letter = self._pop()
            self._drop(self.asker_of(letter))
            self.remove(record)

    def _drop_newest(self, letter: object) -> None:
        """Drop one that just came."""
        asker = None
        if type(letter) is Asked:
            self.withdraw(letter)
            asker = letter.future
        self._drop(asker)

    def _drop(self, asker: asyncio.Future[object] | None) -> None:
        """Count a letter that found no room, or had to make some; its asker hears of it."""
        self.dropped += 1
        if asker is not None and not asker.done():
            asker.set_exception(MailboxFull(self.name, self.options.size_max))

    async def _wait_for_room(self) -> None:
        """Wait in line: whoever came first tells first."""
        if self.senders is None:
            self.senders = deque()
        turn = [self.post.loop.create_future()]
        self.senders.append(turn)
        try:
            while not self.closed and (self.senders[0] is not turn or self._is_full()):
                turn[0] = self.post.loop.create_future()
                await turn[0]
        finally:
            self.senders.remove(turn)
            self.admit()
        if self.closed:
            raise ActorStopped(self.name)

    def admit(self) -> None:
        """A letter is gone, or somebody has left: the first who waits may look again."""
        if self.senders and not self.senders[0][0].done():
            self.senders[0][0].set_result(None)

    # The post's side.

    def arrive(self, record: Returned, letter: Letter) -> None:
        """A letter for this actor is committed."""
        if (
            self.unloaded
            or self._fetching
            or len(self.loaded) >= LOADED_MAX
            or self.loaded_bytes >= LOADED_BYTES_MAX
        ):
            self.unloaded.append(record.counter)
        else:
            self.loaded.append((record, letter))
            self.loaded_bytes += len(record.payload)
        self._wake()

    # The actor's side.

    @property
    def ready(self) -> bool:
        """Whether a letter is in memory that may be handled now."""
        return bool(self.loaded) and not (self.closed or self.not_before)

    async def wait(self) -> bool:
        """Wait until a letter is in memory whose time has come; False when closed."""
        loop = self.post.loop
        while not self.closed:
            if self.not_before:
                pause = self.not_before - loop.time()
                if pause > 0:
                    timer = loop.call_later(pause, self._wake)
                    try:
                        await self._sleep()
                    finally:
                        timer.cancel()
                else:
                    self.not_before = 0.0
            elif self.loaded:
                return True
            elif self.unloaded:
                await self._fetch()
            else:
                await self._sleep()
        return False

    async def _fetch(self) -> None:
        counters = list(self.unloaded[:FETCH_COUNT])
        self._fetching += 1
        try:
            found = await self.post.fetch(counters)
        finally:
            self._fetching -= 1
        if self.post.boxes.get(self.name) is not self:
            return
        if self.unloaded[:1] != array("Q", counters[:1]):
            # A sender that makes room, or the actor, had the same ones read.
            return
        # Of the live ones the first: what is not among them up to the last is not live.
        last = found[-1][0].counter if found else counters[-1]
        while self.unloaded and self.unloaded[0] <= last:
            self.unloaded.pop(0)
        self.loaded += found
        self.loaded_bytes += sum(len(record.payload) for record, _ in found)

    def take(self) -> Delivered:
        """The first letter in memory: it is in hand until `settled` or `give_back`."""
        self.in_hand = delivered = self._pop()
        return delivered

    def _pop(self) -> Delivered:
        delivered = self.loaded.pop(0)
        self.loaded_bytes -= len(delivered[0].payload)
        return delivered

    def settled(self) -> None:
        """What was in hand is part of a step."""
        self.in_hand = None
        if self.senders:
            self.admit()

    def give_back(self) -> None:
        """What was in hand is the first letter again."""
        delivered, self.in_hand = self.in_hand, None
        if delivered is None:
            return
        if self.closed and self.post.boxes.get(self.name) is not self:
            self.post.return_to_absent(self.name, delivered[0].counter)
            return
        self.loaded.insert(0, delivered)
        self.loaded_bytes += len(delivered[0].payload)

    def remove(self, record: Returned) -> None:
        """Remove a letter that nobody wants any more."""
        step = Step()
        step.remove(self.post.queue, record)
        self.post.steps.add(step)
        self.admit()

    def is_abandoned(self, record: Returned, letter: Letter) -> bool:
        """Whether it was asked by somebody who has left, if only with an earlier life.

        Nobody waits for a dead letter that was replayed either, but somebody wants it handled.
        """
        number = letter.headers.get(ASK_HEADER)
        return (
            number is not None
            and number not in (self.asked or ())
            and ORIGINAL_KEY not in decode_headers(record.headers)
        )

    def asker_of(self, letter: Letter, *, stays: bool = False) -> asyncio.Future[object] | None:
        """Who waits in this process for the answer to a letter; known no more unless it stays."""
        number = letter.headers.get(ASK_HEADER)
        if number is None or self.asked is None:
            return None
        return self.asked.get(number) if stays else self.asked.pop(number, None)

    # What the runtime asks of a mailbox.

    async def next_batch(self) -> object | None:
        raise AssertionError("a box feeds its actor by ways of its own")

    def close(self) -> None:
        """Take no more, and hand nothing more out: what waits stays on disk."""
        self.closed = True
        self.admit()
        self._wake()

    def discard(self, error: BaseException) -> int:
        """Askers of what is not in hand get `error`, and it is removed; the rest waits on disk.

        What was asked and is not in memory is removed when the next actor of the name reads it.
        """
        hand = self.in_hand[1].headers.get(ASK_HEADER) if self.in_hand is not None else None
        for number, future in list((self.asked or {}).items()):
            if number != hand:
                if not future.done():
                    future.set_exception(error)
                assert self.asked is not None
                del self.asked[number]
                self._remove_asked(number)
        if self.post.boxes.get(self.name) is self:
            self.post.leave(self, [r.counter for r, _ in self.loaded] + list(self.unloaded))
            self.loaded.clear()
            self.unloaded = array("Q")
        return 0

    async def _sleep(self) -> None:
        self._waiter = self.post.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
