"""The post: the queue that holds the mailboxes of all durable actors, and who gets what of it.

One queue for all of them: a frame holds one block of letters, whoever they are for, where a queue
for each actor would need a block and a genesis entry each. As letters are committed the post takes
them out of the line, still counted, and gives them to their boxes. Those of actors that are not
alive, or that have more than enough, stay on disk alone: the post knows their counters.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from anyio import move_on_after

from fifoq.durable.letters import Letter, decode_letter
from fifoq.durable.steps import Steps
from fifoq.errors import QueueClosed
from fifoq.fetching import Fetched, fetched
from fifoq.jobs import Waiter
from fifoq.logs import fields
from fifoq.options import LEVELS, OS, Durability
from fifoq.runs import Returned
from store import Log

if TYPE_CHECKING:
    from fifoq.durable.box import Box
    from fifoq.queue import Queue
    from fifoq.store import Store

MAILBOXES: Final = "actors/mailboxes"
STATE_PREFIX: Final = "actor/"
UNREADABLE: Final = ""
"""The name under which letters are kept that no actor can get: that of nobody."""
FETCH_BYTES_MAX: Final = 1 << 20
CLOSE_SECONDS: Final = 30.0
"""How long a stop waits for a disk that is full; what is not committed then never happened."""

logger = logging.getLogger("fifoq")

Delivered = tuple[Returned, Letter]


class Post:
    """Owns the queue of mailboxes of one system, on its loop."""

    def __init__(
        self, store: Store, queue: Queue[bytes], level: int, fail: Callable[[Exception], None]
    ) -> None:
        self.store = store
        self.queue = queue
        self.committer = store._committer
        self.loop = self.committer.loop
        self.steps = Steps(self.committer, level, fail)
        self.boxes: dict[str, Box] = {}
        self.absent: dict[str, array[int]] = {}
        """Counters of letters for actors that are not alive, in order."""
        self.old_upto = queue.next - 1
        """Letters up to here may have been in hand when the last owner of the store died."""
        self.fail = fail
        self.wake: Callable[[str], object] = _nobody
        """Told when a letter comes for an actor that is not alive."""
        self._loads: list[tuple[str, asyncio.Future[bytes | None]]] = []
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, store: Store, durability: Durability, fail: Callable[[Exception], None]
    ) -> Post:
        """Open the queue of mailboxes, see for whom there are letters, and deliver from now on."""
        queue = await store._queues.own(MAILBOXES, {"durability": durability})
        post = cls(store, queue, LEVELS[durability], fail)
        found = cast("dict[str, array[int]]", await post.committer.call(_letters_in))
        post.absent = found
        queue.leasing.leaving.update(counter for of in found.values() for counter in of)
        queue.pass_by_all()
        post._task = post.loop.create_task(post._deliver(), name="fifoq post")
        return post

    async def close(self) -> None:
        """Deliver no more, and have every step committed."""
        try:
            if self.committer.usable and self.steps.failure is None:
                with move_on_after(CLOSE_SECONDS) as scope:
                    await self.steps.flush()
                if scope.cancelled_caught:
                    logger.error(
                        "steps of actors were not committed; they are made again",
                        extra=fields("steps_left", self.committer.path),
                    )
        finally:
            self.steps.close()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    # Delivering.

    async def _deliver(self) -> None:
        queue = self.queue
        leaving = queue.leasing.leaving
        try:
            while True:
                while not queue.looks_ready():
                    await queue.wait_to_take()
                while queue.has_ready():
                    records = queue.claim_run()
                    leaving.update([record.counter for record in records])
                    for record in records:
                        self._give(record)
        except QueueClosed:
            return
        except Exception as error:
            # Whatever it is: nobody would get a letter any more, and nobody know why.
            self.fail(error)

    def _give(self, record: Returned) -> None:
        try:
            letter = decode_letter(record.payload)
        except msgspec.MsgspecError:
            # Somebody else put it into our queue: it stays there, and in nobody's way.
            self._keep(UNREADABLE, record.counter)
            return
        box = self.boxes.get(letter.to)
        if box is None:
            self._keep(letter.to, record.counter)
            self.wake(letter.to)
        else:
            box.arrive(record, letter)

    def _keep(self, name: str, counter: int) -> None:
        kept = self.absent.get(name)
        if kept is None:
            kept = self.absent[name] = array("Q")
        kept.append(counter)

    def enter(self, box: Box) -> array[int]:
        """The actor of a box is alive; returns the letters that wait for it on disk."""
        self.boxes[box.name] = box
        return self.absent.pop(box.name, None) or array("Q")

    def leave(self, box: Box, counters: Sequence[int]) -> None:
        """It is no more; these letters of it were not handled."""
        del self.boxes[box.name]
        if counters:
            self.absent[box.name] = array("Q", sorted(counters))
            # They came as it was about to leave: the next one of its name is to handle them.
            if box.not_before > self.loop.time():
                self.loop.call_at(box.not_before, self.wake, box.name)
            else:
                self.wake(box.name)

    def return_to_absent(self, name: str, counter: int) -> None:
        """A letter was in hand when its actor ended."""
        self.absent[name] = array("Q", sorted((counter, *self.absent.get(name, ()))))
        self.wake(name)

    # What is on disk.

    async def fetch(self, counters: Sequence[int]) -> list[Delivered]:
        """Letters by their counters, which rise: as many of the first as there is room for."""
        if counters[-1] >= self.queue.tail_first:
            # At `memory` they are there before they are written.
            await self.committer.flush()
        found = cast(
            "Fetched",
            await self.committer.call(
                lambda log: fetched(log, MAILBOXES, counters, FETCH_BYTES_MAX)
            ),
        )
        return [(record, decode_letter(record.payload)) for record in found.records]

    async def load(self, name: str) -> bytes | None:
        """The state of an actor as it was last committed; many who ask at once share one look."""
        log = self.committer.log
        assert log is not None
        if STATE_PREFIX + name not in log.state.states:
            # Nobody can be setting it: it is that of an actor which is not alive.
            return None
        future: asyncio.Future[bytes | None] = self.loop.create_future()
        self._loads.append((name, future))
        if len(self._loads) == 1:
            self.loop.call_soon(self._load)
        return await future

    def _load(self) -> None:
        loads, self._loads = self._loads, []
        names = [STATE_PREFIX + name for name, _ in loads]
        call = self.committer.call(lambda log: log.states_of(names))

        def loaded(done: asyncio.Future[Any]) -> None:
            error = done.exception()
            for name, (_, future) in zip(names, loads, strict=True):
                if future.done():
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(done.result().get(name))

        call.add_done_callback(loaded)

    # Attempts.

    def attempts_of(self, counter: int) -> int:
        """How often a letter was handed to its actor and came back."""
        return self.queue.leasing.attempts_of(counter)

    def note_attempt(self, counter: int, attempt: int) -> None:
        """It was handed out that often. Written in time."""
        queue = self.queue
        queue.leasing.note(counter, attempt)
        queue.touch()

    async def write_attempt(self, counter: int, attempt: int) -> None:
        """The same before it is handed out: on return it is with the kernel."""
        self.note_attempt(counter, attempt)
        waiter = Waiter(self.loop.create_future(), self.queue, first=counter)
        self.committer.wait(waiter, OS)
        await waiter.future


def _nobody(name: str) -> None:
    """There is nobody whom a letter could wake."""


def _letters_in(log: Log) -> dict[str, array[int]]:
    """Counters of all letters by whom they are for."""
    found: dict[str, array[int]] = {}
    for block in log.read(MAILBOXES):
        for counter, payload in zip(block.counters(), block.payloads(), strict=True):
            try:
                name = decode_letter(payload).to
            except msgspec.MsgspecError:
                name = UNREADABLE
            kept = found.get(name)
            if kept is None:
                kept = found[name] = array("Q")
            kept.append(counter)
    return found
