"""What is known of a store at one moment, from its owner or from its files."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from fifoq.cli.access import looking, no_queue, require_store
from fifoq.cli.output import counted
from fifoq.control.client import Client, NoAnswer, Refused, connect
from fifoq.control.messages import Explain, GetStats, Stats
from fifoq.control.place import is_there
from fifoq.explain import Explanation
from fifoq.stats import QueueStats
from fifoq.view import ReadOnlyStats, View
from store.genesis import check_name

STATS_SECONDS: Final = 0.5
"""An owner that does not say its figures in this time is not waited for: the files say most."""
EXPLAIN_SECONDS: Final = 10.0
"""The log is read for it, which may take a while."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All queues of a store by name; what an owner that answers has open has more figures."""

    path: str
    time: int
    process: int | None
    """The owner's, if it answered."""
    queues: dict[str, QueueStats | ReadOnlyStats]

    @property
    def segments(self) -> int:
        return max((queue.segments for queue in self.queues.values()), default=0)

    def described(self) -> dict[str, Any]:
        """What is to be said of the store itself."""
        return {
            "path": self.path,
            "time": self.time,
            "owner": self.process,
            "segments": self.segments,
        }

    def summary(self) -> str:
        """How much there is, and who says so."""
        owner = f"owned by process {self.process}" if self.process else "read from its files"
        return f"{counted(len(self.queues), 'queue')}, {counted(self.segments, 'segment')}, {owner}"


class Watcher:
    """Looks at one store again and again; what it needs for that it keeps. Use `async with`."""

    def __init__(self, path: str) -> None:
        """NotThere if there is no store."""
        require_store(path)
        self._path = path
        self._client: Client | None = None
        self._view: View | None = None

    async def look(self) -> Snapshot:
        """The store as it is now: as its owner says, or else as its files do."""
        live = await self._ask()
        if live is not None:
            queues: dict[str, QueueStats | ReadOnlyStats] = {q.name: q for q in live.queues}
            queues.update(live.opened)
        else:
            if self._view is None:
                self._view = View(self._path)
            queues = {q.name: q for q in self._view.every_stats()}
        return Snapshot(
            path=self._path,
            time=time.time_ns(),
            process=None if live is None else live.process,
            queues={name: queues[name] for name in sorted(queues)},
        )

    async def _ask(self) -> Stats | None:
        """What the owner says, if there is one and it says anything in time."""
        if self._client is None and is_there(self._path):
            self._client = await connect(self._path)
        if self._client is None:
            return None
        try:
            return await self._client.ask(GetStats(), Stats, seconds=STATS_SECONDS)
        except (NoAnswer, Refused):
            # An answer that comes too late would be taken for the next one's.
            await self._client.close()
            self._client = None
            return None

    async def __aenter__(self) -> Watcher:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await self._client.close()
        if self._view is not None:
            self._view.close()


async def snapshot(path: str) -> Snapshot:
    """One look. NotThere if there is no store."""
    async with Watcher(path) as watcher:
        return await watcher.look()


async def require_queue(path: str, name: str, *, or_else: str | None = None) -> None:
    """NotThere if neither the files nor the owner, who may have just opened it, know the queue.

    A queue with the other name will do as well.
    """
    known = (await snapshot(path)).queues
    if not known.keys() & {name, or_else}:
        raise no_queue(name, known)


async def explanation(path: str, queue: str, counter: int) -> Explanation:
    """What became of a record: the owner says most, the files say enough. NotThere"""
    found = await _explanation(path, queue, counter)
    if found.state == "not put":
        await require_queue(path, queue)
    return found


async def _explanation(path: str, queue: str, counter: int) -> Explanation:
    require_store(path)
    client = await connect(path) if is_there(path) else None
    if client is not None:
        async with client:
            with suppress(NoAnswer):
                request = Explain(queue=queue, counter=counter)
                return await client.ask(request, Explanation, seconds=EXPLAIN_SECONDS)
    with looking(path) as view:
        return view.explain(check_name(queue), counter)
