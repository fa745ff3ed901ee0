"""Pouring rows into a store: each commit holds records and how many are in, so none comes twice.

The count is a state entry of the store, `import/NAME`, written in the frame of the records that it
counts. Whoever is killed in between finds the store with a whole number of commits, and goes on
behind them. Import and migrate both do it this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar, cast

import msgspec

from fifoq.codec import kept_with_aside, read_kept
from fifoq.store import Store
from fifoq.tools.rows import QueueHeader, Row, columns_of
from store import Draft, FifoqError, FormatError, Log
from store.genesis import check_name
from store.state import QueueState

R = TypeVar("R")

COMMIT_RECORDS: Final = 8192
COMMIT_BYTES: Final = 4 << 20
"""What one commit holds, about."""
ROW_BYTES: Final = 64
"""What a row weighs beside its payload, for that."""
_PREFIX: Final = "import/"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far something is that is poured in: so many of its records are there."""

    records: int = 0
    done: bool = False
    keep_keys: list[str] = []
    """Queues that were new when it was begun: their records keep their keys."""


class QueueIsOpen(FifoqError):
    """The queue was opened beside the import, which needs it for itself."""


class Pouring:
    """Puts rows into a store that this process owns."""

    def __init__(self, store: Store, name: str) -> None:
        self._committer = store._committer
        self._state = _PREFIX + name
        self.mark = Mark()

    async def begin(self, queues: Sequence[QueueHeader], *, keep_keys: bool, again: bool) -> Mark:
        """Look how far it is. What was never begun, or is to be done `again`, starts from 0."""

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

        def commit(log: Log) -> None:
            draft = log.draft()
            value = None if forget else msgspec.json.encode(self.mark)
            draft.set_states([(self._state, value)])
            log.commit(draft)

        await self._call(commit)

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
                f"queue {queue.name!r}: {error}. Nothing of this was stored."
            ) from None
        handed_out = [index for index, row in enumerate(rows) if row.attempt]
        if handed_out:
            counters = [first + index for index in handed_out]
            attempts = [rows[index].attempt for index in handed_out]
            # A lease that is over: the record is there, and its next attempt counts on.
            draft.lease(queue, counters, attempts, deadline=draft.now)


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
