"""Reading a store for an export: pages of rows of some queues, up to a counter that is fixed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from fifoq.control.messages import NotThere
from fifoq.tools.rows import Header, QueueHeader, Row, rows_of
from store import RangeGone, Reader
from store.genesis import check_name

PAGE_RECORDS: Final = 4096
PAGE_BYTES: Final = 1 << 20


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """A queue and the newest counter of it that is exported."""

    queue: str
    last: int


class Place(msgspec.Struct, frozen=True, array_like=True):
    """How far an export is: the index of a queue, and the next counter of it."""

    index: int = 0
    counter: int = 1


class Snapshot:
    """Queues of a store, in order; what the owner takes meanwhile is passed over.

    Blocking, for one thread at a time. With `removed` also records that are only retained.
    """

    def __init__(self, path: str, *, removed: bool) -> None:
        self._reader = Reader(path)
        self._removed = removed

    def close(self) -> None:
        self._reader.close()

    @property
    def store_id(self) -> str:
        return self._reader.store_id.hex()

    def bounds(self, queues: Sequence[str] | None) -> list[Bound]:
        """Where each queue ends now; None: every one without prefix. NotThere, InvalidName"""
        known = self._reader.state.queues
        if queues is None:
            queues = sorted(name for name in known if "/" not in name)
        missing = [name for name in queues if check_name(name) not in known]
        if missing:
            raise NotThere(
                f"{self._reader.path}: there is no queue {missing[0]!r}. Nothing was changed. "
                f"There are: {', '.join(sorted(known)) or 'none'}."
            )
        return [Bound(name, known[name].genesis.next_counter - 1) for name in queues]

    def header(self, bounds: Sequence[Bound]) -> Header:
        """What the export says of the queues."""
        return Header(
            id=secrets.token_hex(8),
            store=self.store_id,
            queues=[QueueHeader(bound.queue, self._configuration(bound.queue)) for bound in bounds],
            exported_at=time.time_ns(),
            about_records=self.count(bounds, Place()),
        )

    def _configuration(self, name: str) -> str | None:
        configuration = self._reader.state.queues[name].configuration
        return None if configuration is None else configuration.decode()

    def count(self, bounds: Sequence[Bound], place: Place | None) -> int:
        """About how many records are left to export, for those who watch."""
        count = 0
        for index, bound in enumerate(bounds):
            if place is None or index < place.index:
                continue
            first = place.counter if index == place.index else 1
            queue = self._reader.state.queues[bound.queue]
            if self._removed:
                count += sum(
                    max(0, min(span.last, bound.last) - max(span.first, first) + 1)
                    for span in queue.spans
                )
            else:
                count += queue.live_count(first, bound.last)
        return count

    def page(self, bounds: Sequence[Bound], place: Place) -> tuple[list[Row], Place | None]:
        """Some rows from a place on, and where the next ones are: None at the end."""
        while place.index < len(bounds):
            bound = bounds[place.index]
            rows, counter = self._some(bound, place.counter)
            if counter <= bound.last:
                return rows, Place(place.index, counter)
            place = Place(place.index + 1)
            if rows:
                return rows, place if place.index < len(bounds) else None
        return [], None

    def _some(self, bound: Bound, counter: int) -> tuple[list[Row], int]:
        self._reader.refresh()
        rows: list[Row] = []
        size = 0
        try:
            for block in self._reader.blocks(
                bound.queue, counter, bound.last, removed=self._removed
            ):
                rows += rows_of(block, self._reader.state.queues[bound.queue].attempts)
                size += int(block.offsets[-1] - block.offsets[0])
                if size >= PAGE_BYTES or len(rows) >= PAGE_RECORDS:
                    return rows, block.last + 1
        except RangeGone as error:
            # What was only retained went while we read: the rest begins there.
            return rows, error.oldest
        return rows, bound.last + 1
