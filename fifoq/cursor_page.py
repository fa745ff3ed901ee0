"""Pages: how the records of a cursor are read from the log, in bounded steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from fifoq.attributes import Attributes, attributes_in
from fifoq.holding import CursorHold
from fifoq.jobs import Call, look_away
from fifoq.retained import first_from
from store import CorruptionError, Log, RangeGone, RecordBlock

if TYPE_CHECKING:
    from fifoq.committer import Committer

PAGE_BYTES: Final = 1 << 20
PAGE_RECORDS: Final = 4096
"""How much is brought into memory at once, at least if there is that much."""

Row: TypeAlias = tuple[int, int, bytes, Attributes | None]
"""Counter, put time, payload and attributes of a record."""
Filled: TypeAlias = "Callable[[Page, BaseException | None], None]"


class Page(Call):
    """Reads the next records of a cursor, a bounded step."""

    def __init__(self, hold: CursorHold, filled: Filled, future: asyncio.Future[object]) -> None:
        super().__init__(self._read, future)
        future.add_done_callback(look_away)
        self._hold = hold
        self._filled = filled
        self.records: list[Row] = []
        self.more = False

    def _read(self, log: Log) -> None:
        hold = self._hold
        _check_there(log, hold)
        size = 0
        try:
            for block in log.read(hold.queue, hold.reads_at, removed=True):
                self.records += _rows(block)
                size += int(block.offsets[-1] - block.offsets[0])
                if size >= PAGE_BYTES or len(self.records) >= PAGE_RECORDS:
                    self.more = True
                    hold.read_from(log, block.last + 1)
                    return
        except CorruptionError:
            if not self.records:
                raise
            # First what is before the damage.
            self.more = True
            hold.read_from(log, self.records[-1][0] + 1)
            return
        queue = log.state.queues.get(hold.queue)
        if queue is not None:
            hold.read_from(log, max(hold.reads_at, queue.genesis.next_counter))

    def settle(self, committer: Committer, outcome: object, error: BaseException | None) -> None:
        super().settle(committer, outcome, error)
        self._filled(self, error)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._filled(self, error)


def _check_there(log: Log, hold: CursorHold) -> None:
    """RangeGone if the record that comes next was reclaimed."""
    hold.look(log)
    queue = log.state.queues.get(hold.queue)
    if hold.there is None or queue is None:
        return
    oldest = first_from(log, hold.queue, hold.reads_at) or queue.genesis.next_counter
    if oldest > hold.there:
        raise RangeGone(
            hold.queue,
            hold.there,
            oldest,
            f"queue {hold.queue!r}: records {hold.there} to {oldest - 1} were reclaimed before "
            f"cursor {hold.name!r} came to them, since it held more than cursor_cap_bytes. It was "
            f"not moved. Go on with what is there: seek(counter={oldest}).",
        )


def _rows(block: RecordBlock) -> Iterator[Row]:
    attributes = dict(attributes_in(block))
    for counter, put_at, payload in zip(
        block.counters(), block.times(), block.payloads(), strict=True
    ):
        yield counter, put_at, payload, attributes.get(counter)
