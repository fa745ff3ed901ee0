"""What is known of a store at one moment, from its owner or from its files."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from fifoq.cli.access import live_stats, looking, require_store
from fifoq.cli.output import counted
from fifoq.control.client import NoAnswer, connect
from fifoq.control.messages import Explain
from fifoq.control.place import is_there
from fifoq.explain import Explanation
from fifoq.stats import QueueStats
from fifoq.view import ReadOnlyStats
from store.genesis import check_name

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

    def title(self) -> str:
        owner = f"owned by process {self.process}" if self.process else "read from its files"
        told = f"{counted(len(self.queues), 'queue')}, {counted(self.segments, 'segment')}, {owner}"
        return f"{self.path}: {told}"


async def snapshot(path: str) -> Snapshot:
    """NotThere if there is no store."""
    require_store(path)
    live = await live_stats(path)
    if live is not None:
        found: dict[str, QueueStats | ReadOnlyStats] = {q.name: q for q in live.queues}
        queues = {**found, **live.opened}
        process: int | None = live.process
    else:
        with looking(path) as view:
            queues = {q.name: q for q in view.every_stats()}
        process = None
    in_order = {name: queues[name] for name in sorted(queues)}
    return Snapshot(path=path, time=time.time_ns(), process=process, queues=in_order)


async def explanation(path: str, queue: str, counter: int) -> Explanation:
    """What became of a record: the owner says most, the files say enough."""
    require_store(path)
    client = await connect(path) if is_there(path) else None
    if client is not None:
        async with client:
            with suppress(NoAnswer):
                request = Explain(queue=queue, counter=counter)
                return await client.ask(request, Explanation, seconds=EXPLAIN_SECONDS)
    with looking(path) as view:
        return view.explain(check_name(queue), counter)
