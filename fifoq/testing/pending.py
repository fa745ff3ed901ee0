"""Operations that are not durable yet, and every way a power cut can leave each of them.

An operation is a plain value; an `Outcome` says how much of it reached the disk. `outcomes`
lists what is possible and `settle` applies one choice to a file's content. What is pending at
a given moment, and on which disk, is known to `disk`; choosing among outcomes is for `crashes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512
SCRAPS_MAX = 4

_NOISE = Random(512).randbytes(8 * SECTOR_BYTES)


class Write(NamedTuple):
    """`data` at `offset` of a file."""

    ino: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file cut or lengthened to `size` bytes."""

    ino: int
    size: int


class Link(NamedTuple):
    """A name given to a new file or directory."""

    directory: int
    name: str
    ino: int


class Unlink(NamedTuple):
    """A name removed."""

    directory: int
    name: str


ContentOp = Write | Truncate
EntryOp = Link | Unlink
Pending = ContentOp | EntryOp


class Fill(Enum):
    """What the grown part of a file shows where a write's own sectors did not survive."""

    NOTHING = "not grown"
    ZERO = "grown with zeros"
    GARBAGE = "grown with garbage"


class Outcome(NamedTuple):
    """How much of an operation survived.

    For a write, bit `i` of `sectors` is the i-th sector it touches. For anything else it is
    1 for done and 0 for absent.
    """

    sectors: int
    fill: Fill = Fill.NOTHING


Plan = tuple[tuple[Pending, Outcome], ...]

ABSENT = Outcome(0)
_DONE = Outcome(1)


class Scraps:
    """What freed blocks still hold, newest first: the garbage that a grown file may show.

    A scrap appears at the offset it was freed from. That is the worst case for a log: old frames
    turn up whole, exactly where new ones belong.
    """

    def __init__(self, pieces: tuple[tuple[int, bytes], ...] = ()) -> None:
        self.pieces = pieces

    def with_piece(self, offset: int, data: bytes) -> Scraps:
        if not data:
            return self
        return Scraps(((offset, data), *self.pieces)[:SCRAPS_MAX])

    def read(self, start: int, end: int) -> bytes:
        """Garbage for the bytes from `start` to `end`; noise where no scrap reaches."""
        shift = start % len(_NOISE)
        repeats = (shift + end - start) // len(_NOISE) + 1
        found = bytearray((_NOISE * repeats)[shift : shift + end - start])
        for offset, data in self.pieces:
            first, last = max(start, offset), min(end, offset + len(data))
            if first < last:
                found[first - start : last - start] = data[first - offset : last - offset]
                break
        return bytes(found)


def sector_count(write: Write) -> int:
    """Number of sectors that a write touches."""
    end = write.offset + len(write.data)
    return (end - 1) // SECTOR_BYTES - write.offset // SECTOR_BYTES + 1


def done(operation: Pending) -> Outcome:
    """The outcome in which all of the operation survived."""
    if isinstance(operation, Write):
        return Outcome((1 << sector_count(operation)) - 1)
    return _DONE


def outcome_count(operation: Pending, *, grows: bool) -> int:
    """How many outcomes `outcomes` would give."""
    if not isinstance(operation, Write):
        return 2
    subset_count: int = 1 << sector_count(operation)
    return (subset_count - 1) * len(Fill) + 1 if grows else subset_count


def outcomes(operation: Pending, *, grows: bool) -> Iterator[Outcome]:
    """Every outcome, absent first and done last.

    `grows` says whether a write may reach past the end of the file: only then do the fills
    of `Fill` differ.
    """
    yield ABSENT
    whole = done(operation)
    if grows and isinstance(operation, Write):
        yield Outcome(0, Fill.ZERO)
        yield Outcome(0, Fill.GARBAGE)
    for sectors in range(1, whole.sectors):
        yield Outcome(sectors)
        if grows:
            yield Outcome(sectors, Fill.ZERO)
            yield Outcome(sectors, Fill.GARBAGE)
    yield whole


def random_outcome(operation: Pending, random: Random) -> Outcome:
    """Absent, done, or torn: the ends are as likely as everything between them."""
    whole = done(operation)
    kind = random.random()
    if kind < 0.25:
        return ABSENT
    if kind < 0.5:
        return whole
    sectors = random.randint(0, whole.sectors)
    if sectors == whole.sectors or not isinstance(operation, Write):
        return Outcome(sectors)
    return Outcome(sectors, random.choice(tuple(Fill)))


def settle(content: bytes, operation: ContentOp, outcome: Outcome, scraps: Scraps) -> bytes:
    """The file's content once `outcome` of `operation` has happened to it."""
    if outcome == ABSENT:
        return content
    if isinstance(operation, Truncate):
        return content[: operation.size].ljust(operation.size, b"\0")
    _, offset, data = operation
    end = offset + len(data)
    if outcome.sectors == (1 << sector_count(operation)) - 1:
        return content[:offset].ljust(offset, b"\0") + data + content[end:]
    return _torn(content, operation, outcome, scraps)


def _torn(content: bytes, write: Write, outcome: Outcome, scraps: Scraps) -> bytes:
    _, offset, data = write
    end = offset + len(data)
    result = bytearray(content)
    if outcome.fill is not Fill.NOTHING and len(result) < end:
        start = max(len(result), offset)
        result.extend(bytes(end - len(result)))
        if outcome.fill is Fill.GARBAGE:
            result[start:end] = scraps.read(start, end)
    first_sector = offset // SECTOR_BYTES
    for index in range(sector_count(write)):
        if outcome.sectors >> index & 1:
            start = max(offset, (first_sector + index) * SECTOR_BYTES)
            stop = min(end, (first_sector + index + 1) * SECTOR_BYTES)
            result.extend(bytes(max(0, start - len(result))))
            result[start:stop] = data[start - offset : stop - offset]
    return bytes(result)
