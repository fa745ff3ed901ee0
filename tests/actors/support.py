"""Actors for the tests, and a mailbox as a caller might make one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from actors import Actor, Batch, Context, Supervision

Message = str | int

AT_ONCE = Supervision(backoff_seconds=0, jitter=0)
"""Restarts without waiting."""


class Recorder(Actor[Message]):
    """Notes everything that happens to it, in a list that outlives restarts.

    `get` replies with the list, `boom` raises, `hang` waits for ever, `wait` waits a second.
    """

    def __init__(self, log: list[Message]) -> None:
        self.log = log

    async def on_start(self, ctx: Context[Message]) -> None:
        self.log.append("start")

    async def on_stop(self, ctx: Context[Message]) -> None:
        self.log.append("stop")

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        self.log.append(message)
        match message:
            case "get":
                ctx.reply(list(self.log))
            case "boom":
                raise ValueError("boom")
            case "hang":
                await asyncio.sleep(1e9)
            case "wait":
                await asyncio.sleep(1)
                ctx.reply("waited")


class Batches(Actor[Message]):
    """Notes each batch and what closed it; `boom` in a batch raises, `hang` waits for ever."""

    def __init__(self, log: list[tuple[list[Message], str]]) -> None:
        self.log = log

    async def on_batch(self, batch: Batch[Message], ctx: Context[Message]) -> None:
        self.log.append((list(batch), batch.closed_by))
        if "boom" in batch:
            raise ValueError("boom")
        if "hang" in batch:
            await asyncio.sleep(1e9)
        ctx.reply(len(batch))


class Columns:
    """What `ColumnMailbox` hands out: no sequence of messages, but columns."""

    def __init__(self, values: list[int], waiters: list[asyncio.Future[str]]) -> None:
        self.values = values
        self.waiters = waiters

    def fail(self, error: BaseException) -> int:
        for waiter in self.waiters:
            waiter.set_exception(error)
        return len(self.values) - len(self.waiters)


class ColumnMailbox:
    """A mailbox of a caller's own, fed by `add` and not by refs."""

    def __init__(self) -> None:
        self._columns = Columns([], [])
        self._closed = False
        self._news = asyncio.Event()

    def add(self, values: Sequence[int]) -> None:
        self._columns.values += values
        self._news.set()

    def add_awaited(self, value: int) -> asyncio.Future[str]:
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._columns.waiters.append(waiter)
        self.add([value])
        return waiter

    async def next_batch(self) -> Columns | None:
        while not self._columns.values:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        columns, self._columns = self._columns, Columns([], [])
        return columns

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def discard(self, error: BaseException) -> int:
        columns, self._columns = self._columns, Columns([], [])
        return columns.fail(error)


class ListMailbox(ColumnMailbox):
    """Hands out plain lists."""

    async def next_batch(self) -> list[int] | None:  # type: ignore[override]
        columns = await super().next_batch()
        return None if columns is None else columns.values
