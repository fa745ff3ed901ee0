"""The queues of a store that are open, and what is read of each before anybody puts or takes."""

from __future__ import annotations

from typing import Any, cast

from fifoq.codec import NOTHING_KEPT, Codec, Kept, read_kept
from fifoq.committer import Committer
from fifoq.dedup import Place, read_pages
from fifoq.fetching import Found, survey
from fifoq.jobs import cover_counters
from fifoq.lane_queue import LaneQueue
from fifoq.options import QueueOptions
from fifoq.queue import Queue
from fifoq.staged_intake import StagedIntake
from store import Log
from store.state import QueueState


class OpenQueues:
    """The open queues of one store. Some are lent: opened for visitors alone."""

    def __init__(self, committer: Committer, staged: StagedIntake) -> None:
        self.by_name: dict[str, Queue[Any]] = {}
        self._committer = committer
        self._staged = staged
        self._lent: set[str] = set()
        """Whoever opens one of these for the store itself may still choose its type."""
        self._owned: set[str] = set()
        """Nobody but their owner gets these: what others took would be missing there."""

    def chosen(self, name: str) -> bool:
        """Whether a queue is open, and not for visitors alone."""
        return name in self.by_name and name not in self._lent

    async def own(self, name: str, options: dict[str, Any]) -> Queue[Any]:
        """A queue for a part of the program that lets nobody else have it."""
        queue = await self.open(name, None, options)
        self._owned.add(name)
        return queue

    def require_free(self, name: str) -> None:
        """ValueError if the queue has an owner."""
        if name in self._owned:
            raise ValueError(
                f"queue {name!r} belongs to the actors of this store. Nothing was changed. Use the "
                f"actor system; `browse` of a store that is opened read-only shows its records."
            )

    async def lend(self, name: str) -> Queue[Any]:
        """A queue for a visitor, opened if need be, as if nobody had opened it."""
        self.require_free(name)
        known = self.by_name.get(name)
        return known if known is not None else await self.open(name, None, {}, lent=True)

    async def open(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool = False
    ) -> Queue[Any]:
        """Open a queue; one that is open already takes the options on. See `Store.queue`."""
        if name in self.by_name:
            return self._opened_before(name, type, options, lent=lent)
        self._staged.begin_opening(name)
        try:
            return await self._open_queue(name, type, options, lent=lent)
        finally:
            self._staged.end_opening(name)

    async def _open_queue(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool
    ) -> Queue[Any]:
        committer = self._committer
        state = cast(QueueState, await committer.call(lambda log: log.queue(name)))
        kept = read_kept(state.configuration)
        codec: Codec[Any] = Codec(type, kept, name, empty=not state.genesis.queue_size)
        chosen = QueueOptions().changed({**kept.options, **options})
        pages = cast("dict[Place, bytes]", await committer.call(lambda log: _begin(log, state)))
        found = await self._survey(state, kept, chosen)
        if name in self.by_name:
            # By somebody else, while we waited.
            return self._opened_before(name, type, options, lent=lent)
        queue: Queue[Any]
        if chosen.priorities:
            queue = LaneQueue(committer, state, chosen, codec)
            queue.fill_lanes(found.lanes)
        else:
            queue = Queue(committer, state, chosen, codec)
        queue.fill_shelf(found.delayed)
        if pages:
            queue.remember_ids(pages)
        self.by_name[name] = committer.lines[name] = queue
        if lent:
            self._lent.add(name)
        configuration = codec.configuration(chosen)
        if configuration != (state.configuration or NOTHING_KEPT):
            queue.configuration = configuration
            committer.touch(queue, 0)
        if queue.gap is not None:
            # The oldest records, so that a take that does not wait finds what is there.
            committer.request_read(queue)
            await committer.call(lambda log: None)
        return queue

    async def _survey(self, state: QueueState, kept: Kept, options: QueueOptions) -> Found:
        """What has to be known of the queue's records before anybody puts or takes some."""
        committer, name = self._committer, state.name
        while True:
            found = cast(
                Found,
                await committer.call(
                    lambda log: survey(log, state, delayed=kept.aside, lanes=options.priorities)
                ),
            )
            if name in self.by_name:
                return found
            if name not in committer.lines and found.next_counter == state.genesis.next_counter:
                return found
            # A frame that is under way, or was, puts records into it.

    def _opened_before(
        self, name: str, type: Any, options: dict[str, Any], *, lent: bool
    ) -> Queue[Any]:
        queue = self.by_name[name]
        if name in self._lent and not lent:
            self._take_over(queue, type)
        elif type is not None:
            queue.codec.require(type)
        if options:
            queue.configure(**options)
        return queue

    def _take_over(self, queue: Queue[Any], type: Any) -> None:
        """A queue that a visitor had opened gets the type that it is to have."""
        kept = Kept({}, queue.codec.schema, queue.codec.shape, queue.codec.aside)
        codec: Codec[Any] = Codec(type, kept, queue.name, empty=not len(queue))
        self._lent.discard(queue.name)
        queue.codec = codec
        queue.use(queue.options)
        if codec.schema != kept.schema:
            queue.configuration = codec.configuration(queue.options)
            self._committer.touch(queue, 0)


def _begin(log: Log, state: QueueState) -> dict[Place, bytes]:
    """Keep counters for a queue that is being opened; gives the ids that it remembers."""
    cover_counters(log, state)
    return read_pages(log, state.name)
