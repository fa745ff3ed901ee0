"""Records that a stream should read and that are not there any more.

Counters have gaps that mean nothing: after a crash counting goes on past every number that may have
been given out. What tells them from records that were reclaimed is how many were ever put: the
queue counts that, and offsets carry it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fifoq.description import QueueDescription, SpanDescription
from fifoq.spark.access import Access
from fifoq.spark.offsets import Offset
from fifoq.spark.plan import gaps, records_between
from store import FifoqError

RANGES_TOLD_MAX: Final = 10
Range = tuple[int, int]


class DataLoss(FifoqError):
    """Records that the stream has not read were reclaimed; `ranges` are their counters."""

    def __init__(self, message: str, ranges: list[Range]) -> None:
        super().__init__(message)
        self.ranges = ranges


class Loss(msgspec.Struct, frozen=True):
    """What is missing between two offsets."""

    queue: str
    ranges: list[Range]

    @property
    def _what(self) -> str:
        told = [f"{first} to {last}" for first, last in self.ranges[:RANGES_TOLD_MAX]]
        more = len(self.ranges) - len(told)
        return ", ".join(told) + (f" and {more} more ranges" if more else "")

    def error(self) -> DataLoss:
        return DataLoss(
            f"queue {self.queue!r}: counters {self._what} were reclaimed before the stream read "
            f"them. Nothing of this batch was read. Give the stream a consumer, which keeps what "
            f"it has not read; to go on without these records set failOnDataLoss to false.",
            self.ranges,
        )

    @property
    def warning(self) -> str:
        return (
            f"queue {self.queue!r}: counters {self._what} were reclaimed before the stream read "
            f"them. It goes on behind them, since failOnDataLoss is false."
        )


class LossFinder:
    """Looks for losses, and remembers what it had to read for that."""

    def __init__(self) -> None:
        self._holes: dict[SpanDescription, list[Range]] = {}

    def puts(self, access: Access, view: QueueDescription, counter: int) -> int:
        """How many records were ever put below a counter, if all from there on are there."""
        return view.total_put_count - self._present(access, view, counter, view.next - 1)

    def find(self, access: Access, view: QueueDescription, begin: Offset, end: int) -> Loss | None:
        """What is missing from `begin` up to the counter `end`."""
        missing = self._missing(access, view, begin.counter, end - 1)
        if not missing:
            return None
        if begin.puts is not None and self.puts(access, view, begin.counter) <= begin.puts:
            # As many are there as were put since: these counters were never used.
            return None
        return Loss(view.name, missing)

    def following(
        self, access: Access, view: QueueDescription, begin: Offset, end: int, loss: Loss | None
    ) -> Offset:
        """The offset at `end`, for a batch from `begin` on that lacks what `loss` says."""
        if loss is None and begin.puts is not None:
            puts = begin.puts + self._present(access, view, begin.counter, end - 1)
        else:
            puts = self.puts(access, view, end)
        return Offset(end, begin.store, view.name, puts)

    def _present(self, access: Access, view: QueueDescription, first: int, last: int) -> int:
        holes = self._moved_holes(access, view, first, last)
        return records_between(view, first, last) - sum(high - low + 1 for low, high in holes)

    def _missing(
        self, access: Access, view: QueueDescription, first: int, last: int
    ) -> list[Range]:
        return sorted(gaps(view, first, last) + self._moved_holes(access, view, first, last))

    def _moved_holes(
        self, access: Access, view: QueueDescription, first: int, last: int
    ) -> list[Range]:
        """Counters of first..last that lie in spans of moved records and are not among them."""
        moved = [each for each in view.spans if each.moved]
        self._holes = {
            span: self._holes[span] if span in self._holes else _holes(access, view, span)
            for span in moved
        }
        return [
            (max(low, first), min(high, last))
            for holes in self._holes.values()
            for low, high in holes
            if low <= last and high >= first
        ]


def _holes(access: Access, view: QueueDescription, span: SpanDescription) -> list[Range]:
    found: list[Range] = []
    expected = span.first
    for block in access.blocks(view.name, span.first, span.last):
        for counter in block.counters():
            if counter > expected:
                found.append((expected, counter - 1))
            expected = counter + 1
    if expected <= span.last:
        found.append((expected, span.last))
    return found
