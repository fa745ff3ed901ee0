"""Planning: from a range of counters to partitions, by what the store says of the queue."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from fifoq.description import QueueDescription
from fifoq.spark.access import Access, Piece
from fifoq.spark.arrow import ATTEMPTS, Ranges
from fifoq.spark.options import PARTITION_BYTES, PARTITION_BYTES_MIN, Reading


class PiecesPartition(InputPartition):
    """What one task reads: pieces of one store, and ranges of counters that it leaves out.

    `attempts` are those of the counters that have some, if they are asked for.
    """

    def __init__(
        self, store_id: str, pieces: list[Piece], without: Ranges = (), attempts: Ranges = ()
    ) -> None:
        self.store_id, self.pieces = store_id, pieces
        self.without, self.attempts = without, attempts


def partition_of(
    access: Access, name: str, pieces: list[Piece], without: Ranges, schema: StructType
) -> PiecesPartition:
    """The partition of some pieces, with what its task could not find out by itself."""
    attempts: Ranges = ()
    if ATTEMPTS in schema.fieldNames():
        attempts = access.attempts(name, pieces[0].first, pieces[-1].last)
    return PiecesPartition(access.store_id, pieces, without, attempts)


def plan(access: Access, name: str, first: int, last: int, reading: Reading) -> list[list[Piece]]:
    """What is retained of first..last, in groups of pieces that are about as large as asked for."""
    if last < first:
        return []
    if reading.partition_bytes is not None:
        size = reading.partition_bytes
        return _grouped(access.pieces(name, first, last, piece_bytes=size), size)
    total = bytes_between(access.queue(name), first, last)
    count = reading.partitions or default_count(total, os.cpu_count() or 1)
    size = max(1, -(-total // count))
    return _spread(access.pieces(name, first, last, piece_bytes=size), count)


def default_count(total: int, cores: int) -> int:
    """In how many partitions so many bytes are read where nobody says.

    Each costs some 50 ms of CPU time, so there are few; but a core that has none stands idle, and
    so they are a multiple of the cores. Those are the cores of the driver's machine, since nobody
    here knows the executors.
    """
    rounds = max(1, round(total / (PARTITION_BYTES * cores)))
    return max(1, min(cores * rounds, total // PARTITION_BYTES_MIN))


def _grouped(pieces: Sequence[Piece], size: int) -> list[list[Piece]]:
    """Neighbours together as long as they stay within the size."""
    groups: list[list[Piece]] = []
    left = 0
    for piece in pieces:
        if not groups or piece.bytes > left:
            groups.append([])
            left = size
        groups[-1].append(piece)
        left -= piece.bytes
    return groups


def _spread(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """Neighbours together in at most `count` groups of about the same size."""
    total = sum(piece.bytes for piece in pieces) or 1
    groups: dict[int, list[Piece]] = {}
    before = 0
    for piece in pieces:
        middle = before + piece.bytes // 2
        groups.setdefault(min(count - 1, middle * count // total), []).append(piece)
        before += piece.bytes
    return list(groups.values())


def bytes_between(view: QueueDescription, first: int, last: int) -> int:
    """About how much is retained of first..last."""
    return round(sum(size * (high - low + 1) for low, high, size in _overlaps(view, first, last)))


def records_between(view: QueueDescription, first: int, last: int) -> int:
    """How many counters of first..last are retained; of moved spans all of them are counted."""
    return sum(high - low + 1 for low, high, _ in _overlaps(view, first, last))


def counter_after(view: QueueDescription, first: int, count: int) -> int:
    """The counter behind the first `count` retained ones from `first` on, or the next to come."""
    for low, high, _ in _overlaps(view, first, view.next - 1):
        if count < high - low + 1:
            return low + count
        count -= high - low + 1
    return view.next


def gaps(view: QueueDescription, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of first..last that no span covers, in order."""
    found = []
    for low, high, _ in _overlaps(view, first, last):
        if low > first:
            found.append((first, low - 1))
        first = high + 1
    if first <= last:
        found.append((first, last))
    return found


def _overlaps(view: QueueDescription, first: int, last: int) -> Iterator[tuple[int, int, float]]:
    """The parts of spans within first..last, each with its bytes per counter."""
    for span in view.spans:
        low, high = max(first, span.first), min(last, span.last)
        if low <= high:
            yield low, high, span.bytes / (span.last - span.first + 1)
