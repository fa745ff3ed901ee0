"""The seam between Spark and a store: what planners and tasks ask of it.

`Access` has two sides: `LocalAccess` reads the directory itself, without a lock and beside a live
owner; `fifoq.spark.remote` asks a server. Both are made anew in each process from plain values,
a path and options, by `open_access`; no handle ever travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from fifoq.consumers import Position
from fifoq.description import QueueDescription
from store import RecordBlock

REMOTE_SCHEME: Final = "fifoq://"


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Counters first..last, to be read in one go; `bytes` estimates how much that is.

    They lie between the offsets `start` and `end` of `segment`; if that is 0 nobody knows.
    """

    first: int
    last: int
    bytes: int
    segment: int = 0
    start: int = 0
    end: int = 0


class Access(Protocol):
    """One store, seen from outside and without a lock. For one thread at a time.

    Everything is as of the last `refresh`, or of the opening. AccessError where the operating
    system refuses a file; CorruptionError where damage is reached.
    """

    @property
    def store_id(self) -> str:
        """The store's own id, as hexadecimal text."""
        ...

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        ...

    def queue(self, name: str) -> QueueDescription:
        """The queue; an empty one if there is none of that name."""
        ...

    def seek(self, name: str, time_ns: int) -> int:
        """Counter of the first retained record put at that time or later, else the next one."""
        ...

    def removed(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of counters within first..last that were removed, in order."""
        ...

    def attempts(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        """Counters within first..last that are in the queue and were leased, each how often."""
        ...

    def pieces(
        self, name: str, first: int, last: int, *, piece_bytes: int, total_bytes: int | None = None
    ) -> list[Piece]:
        """What is retained of first..last, cut into pieces of about so many bytes, in order.

        With `total_bytes` as many of them, from the first on, as do not take more than that
        together; at least one, cut as small as it can be.
        """
        ...

    def read(self, name: str, piece: Piece) -> Iterator[RecordBlock]:
        """Retained records of a piece in order, removed ones included.

        The access may be a new one that knows nothing yet. RangeGone if they were reclaimed since.
        """
        ...

    def blocks(
        self, name: str, first: int, last: int, *, removed: bool = True
    ) -> Iterator[RecordBlock]:
        """Retained records first..last in order; with `removed` false only those not removed.

        RangeGone if `first` is over 1 and was reclaimed.
        """
        ...

    def position(self, consumer: str) -> Position | None:
        """How far a consumer is, or None if there is none of that name."""
        ...

    def set_position(self, consumer: str, position: Position) -> None:
        """Make this the consumer's position; durable on return."""
        ...

    def refresh(self) -> None:
        """Move on to what is committed by now."""
        ...

    def close(self) -> None:
        """Give everything back. Twice is fine."""
        ...


def open_access(path: str, options: Mapping[str, str], store_id: str = "") -> Access:
    """The store at a path, or behind a `fifoq://` address.

    A task names the `store_id` that its planner saw: then nothing is read before it is needed.
    FormatError or AccessError if there is no store.
    """
    if path.startswith(REMOTE_SCHEME):
        from fifoq.spark.remote import open_remote

        remote: Access = open_remote(path, options, store_id)
        return remote
    from fifoq.spark.local import LocalAccess

    return LocalAccess(path, store_id)


@contextmanager
def opened(path: str, options: Mapping[str, str], store_id: str = "") -> Iterator[Access]:
    """The same, closed at the end of the block."""
    access = open_access(path, options, store_id)
    try:
        yield access
    finally:
        access.close()
