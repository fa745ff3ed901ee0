"""Pouring rows into a store: each commit holds records and how many are in, so none comes twice.

The count is a state entry of the store, `import/NAME`, written in the frame of the records that it
counts. Whoever is killed in between finds the store with a whole number of commits, and goes on
behind them. Import and migrate both do it this way.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, TypeVar, cast

import msgspec

from fifoq.attributes import NONE, Attributes
from fifoq.codec import encode_own_headers, kept_with_aside, read_kept
from fifoq.control.client import Client, connect
from fifoq.control.messages import Count, GetMark, MarkOf, Pour
from fifoq.marked import PREFIX, keep_mark
from fifoq.opening import open_store
from fifoq.store import DEFAULT_QUEUE, Store
from fifoq.tools.rows import QueueHeader, Row, columns_of
from store import AlreadyOpen, Draft, FifoqError, FormatError, Log
from store.genesis import check_name
from store.state import QueueState

R = TypeVar("R")

COMMIT_RECORDS: Final = 8192
COMMIT_BYTES: Final = 4 << 20
"""What one commit holds, about."""
BUSY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
"""How long a store is waited for that somebody owns who cannot be asked (yet), and how often."""
PAGE_BYTES: Final = 256 << 10
PAGE_RECORDS: Final = 1000
"""What the owner of a live store is asked to commit at once, about."""
ROW_BYTES: Final = 64
"""What a row weighs beside its payload, for that."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far something is that is poured in: so many of its records are there."""

    records: int = 0
    done: bool = False
    keep_keys: list[str] = []
    """Queues that were new when it was begun: their records keep their keys."""


class QueueIsOpen(FifoqError):
    """Somebody owns the store, and this import needs it for itself. Nothing was stored."""


class Pouring:
    """Puts rows into a store that this process owns."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._committer = store._committer
        self._name = name
        self._state = PREFIX + name
        self.mark = Mark()

    async def begin(
        self, queues: Sequence[QueueHeader], *, keep_keys: bool, as_new: bool, again: bool
    ) -> Mark:
        """Look how far it is. What was never begun, or is to be done `again`, starts from 0.

        With `keep_keys` records of queues that are new here keep theirs; `as_new` says that
        nothing but what a put can say of a record has to come along.
        """

        def look(log: Log) -> Mark:
            value = log.state_of(self._state)
            if value is not None and not again:
                return msgspec.json.decode(value, type=Mark)
            new = [
                queue.name
                for queue in queues
                if queue.name not in log.state.queues
                or log.state.queues[queue.name].genesis.next_counter == 1
            ]
            return Mark(keep_keys=new if keep_keys else [])

        self.mark = await self._call(look)
        self._headers = {queue.name: queue for queue in queues}
        return self.mark

    async def put(self, rows: Sequence[Row]) -> None:
        """Put rows, in order, in one commit that is durable on return."""
        mark = msgspec.structs.replace(self.mark, records=self.mark.records + len(rows))
        await self._call(lambda log: self._commit(log, rows, mark))
        self.mark = mark
        # Readers see a commit once the next one, or a seal, witnesses it.
        self._committer.watch_idleness()

    async def end(self, *, forget: bool = False) -> None:
        """Note that all of it is there: it is not poured in again. Or forget that it ever was."""
        self.mark = msgspec.structs.replace(self.mark, done=True)
        await keep_mark(self._store, self._name, None if forget else msgspec.json.encode(self.mark))

    async def _call(self, function: Callable[[Log], R]) -> R:
        return cast(R, await self._committer.call(function))

    def _commit(self, log: Log, rows: Sequence[Row], mark: Mark) -> None:
        draft = log.draft()
        by_queue: dict[str, list[Row]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        for name, of_queue in by_queue.items():
            if name in self._committer.lines:
                raise QueueIsOpen(f"queue {name!r} is open in this process. Nothing was stored.")
            self._add(draft, log.queue(check_name(name)), of_queue)
        draft.set_states([(self._state, msgspec.json.encode(mark))])
        log.commit(draft)

    def _add(self, draft: Draft, queue: QueueState, rows: Sequence[Row]) -> None:
        configuration = queue.configuration
        header = self._headers.get(queue.name)
        if configuration is None and header is not None and header.configuration is not None:
            configuration = header.configuration.encode()
            read_kept(configuration)
        if any(row.deliver_at for row in rows):
            # Whoever opens the queue has to look for them.
            configuration = kept_with_aside(configuration) or configuration
        if configuration is not None and configuration != queue.configuration:
            draft.configure(queue, configuration)
        if queue.name not in self.mark.keep_keys:
            self._put(draft, queue, rows, None, None)
            return
        for run in _consecutive(rows):
            self._put(draft, queue, run, run[0].counter, [row.timestamp for row in run])

    def _put(
        self,
        draft: Draft,
        queue: QueueState,
        rows: Sequence[Row],
        first: int | None,
        times: list[int] | None,
    ) -> None:
        payloads = [row.data for row in rows]
        try:
            first = draft.put(queue, payloads, first=first, times=times, columns=columns_of(rows))
        except ValueError as error:
            raise FormatError(
                f"queue {queue.name!r}: {str(error).rstrip('.')}. Nothing of this was stored."
            ) from None
        handed_out = [index for index, row in enumerate(rows) if row.attempt]
        if handed_out:
            counters = [first + index for index in handed_out]
            attempts = [rows[index].attempt for index in handed_out]
            # A lease that is over: the record is there, and its next attempt counts on.
            draft.lease(queue, counters, attempts, deadline=draft.now)


class LivePouring:
    """The same into a store that another process owns, which is asked for each commit.

    The owner puts new records: keys, put times and attempts are its own to give, an id would make
    one put of two records, and its queues have the options that it opened them with.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self.mark = Mark()

    async def begin(
        self, queues: Sequence[QueueHeader], *, keep_keys: bool, as_new: bool, again: bool
    ) -> Mark:
        """The same. QueueIsOpen if the records are to be more than new ones."""
        found = await self._client.ask(GetMark(name=self._name), MarkOf)
        if found.mark is not None and not again:
            self.mark = msgspec.json.decode(found.mark, type=Mark)
            if self.mark.keep_keys and not self.mark.done:
                raise QueueIsOpen(
                    "it was begun while nobody owned the store, with the keys that its records "
                    "have. Nothing was stored. Stop the owner, and go on with it then."
                )
        if not (as_new or self.mark.done):
            raise QueueIsOpen(
                "another process owns the store, and an owner puts new records only: keys, "
                "attempts, ids of puts and options would be lost. Nothing was stored. Stop the "
                "owner to import them as they are, or ask for new keys (--new-keys)."
            )
        return self.mark

    async def put(self, rows: Sequence[Row]) -> None:
        """Put rows, in order; each commit of them is durable before the next one."""
        for page in _pages(rows):
            mark = msgspec.structs.replace(self.mark, records=self.mark.records + len(page))
            attributes = {
                index: of for index, row in enumerate(page) if (of := _attributes(row)) != NONE
            }
            await self._ask(mark, page[0].queue, [row.data for row in page], attributes)

    async def end(self, *, forget: bool = False) -> None:
        """Note that all of it is there: it is not poured in again."""
        mark = msgspec.structs.replace(self.mark, done=True)
        await self._ask(mark, DEFAULT_QUEUE, [], {}, forget=forget)

    async def _ask(
        self,
        mark: Mark,
        queue: str,
        payloads: list[bytes],
        attributes: dict[int, Attributes],
        *,
        forget: bool = False,
    ) -> None:
        request = Pour(
            name=self._name,
            mark=None if forget else msgspec.json.encode(mark),
            queue=queue,
            payloads=payloads,
            attributes=attributes,
        )
        await self._client.ask(request, Count)
        self.mark = mark


@asynccontextmanager
async def pouring_into(
    path: str | os.PathLike[str], name: str
) -> AsyncIterator[Pouring | LivePouring]:
    """Whoever puts rows into the store at `path`, made if need be: this process, or its owner."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            store = await open_store(path)
        except AlreadyOpen:
            client = await connect(os.fspath(path))
            # Its owner has just begun, or is about to end, or does not listen at all.
            if client is None and time.monotonic() > until:
                raise
        else:
            async with store:
                yield Pouring(store, name)
            return
        if client is not None:
            async with client:
                yield LivePouring(client, name)
            return
        await asyncio.sleep(PAUSE_SECONDS)


def _attributes(row: Row) -> Attributes:
    return Attributes(
        encode_own_headers(row.headers) if row.headers else b"",
        row.deliver_at,
        row.expires_at,
        row.priority,
        row.ordering_key.encode(),
    )


def _pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows of one queue, as many as fit into a message."""
    start = size = 0
    for index, row in enumerate(rows):
        large = size >= PAGE_BYTES or index - start >= PAGE_RECORDS
        if index > start and (large or row.queue != rows[start].queue):
            yield rows[start:index]
            start, size = index, 0
        size += len(row.data) + ROW_BYTES + sum(len(k) + len(v) for k, v in row.headers.items())
    if rows:
        yield rows[start:]


def commits_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows gathered into what is put in one commit. Those before a FormatError come before it."""
    batch: list[Row] = []
    size = 0
    failure = None
    try:
        for row in rows:
            batch.append(row)
            size += len(row.data) + ROW_BYTES
            if len(batch) >= COMMIT_RECORDS or size >= COMMIT_BYTES:
                yield batch
                batch, size = [], 0
    except FormatError as error:
        failure = error
    if batch:
        yield batch
    if failure is not None:
        raise failure


def skipped(rows: Iterator[Row], count: int) -> Iterator[Row]:
    """The rows behind the first `count`. FormatError if there are not that many."""
    left = count - sum(1 for _ in islice(rows, count))
    if left:
        raise FormatError(
            f"{count} records of it were put before, and it has only {count - left}: it is not "
            f"what it was. Nothing was changed. Give it another name to put all of it."
        )
    return rows


def _consecutive(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Runs of rows whose counters follow each other."""
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index].counter != rows[index - 1].counter + 1:
            yield rows[start:index]
            start = index
