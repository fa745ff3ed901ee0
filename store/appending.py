"""The end of a log: where frames are appended, synced and sealed.

Knows the chain of frames and how far it is durable, not what the frames say.
"""

from __future__ import annotations

from typing import Final

from store.cache import SegmentCache
from store.checksum import Buffer
from store.directory import Directory, sync_error
from store.files import Clock
from store.frames import (
    FLAG_SEAL,
    FRAME_HEADER_BYTES,
    TRAILER_BYTES,
    encode_frame,
    frame_bytes,
)
from store.index import SegmentIndex
from store.life import FAILED, REFUSED, Life
from store.options import LogOptions
from store.recovery import Recovered
from store.state import QueueState
from store.tail import Tail

SECTOR_BYTES: Final = 512


class Appending(Life):
    """The end of a log, for the one that has the turn."""

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        options: LogOptions,
        recovered: Recovered,
        tail: Tail,
    ) -> None:
        super().__init__(directory.path)
        self.directory = directory
        self.clock = clock
        self.options = options
        self.store_id = recovered.store_id
        self.state = recovered.state
        self.sequence = recovered.end.sequence
        self.checksum = recovered.end.checksum
        self.durable_upto = recovered.end.sequence
        self.tail = tail
        self.cache = SegmentCache(directory, self.state, self.store_id, saves=True)
        if tail.empty:
            self.cache.start_tail(tail.file.number)
        else:
            self.cache.tail_index(tail.file.number)
        self.since_checkpoint = 0
        self.last_sync_seconds = 0.0
        self.covering: set[QueueState] = set()
        """Queues whose reserved counters are durable with the next sync."""
        self._sealed = True

    def write(self, frames: Buffer) -> int:
        """Append frames; unless they are refused the log then counts as failed.

        The caller takes that back once the state agrees with the file. The other way round, a
        failure that leaves no memory to note it would let the log go on with a wrong state.
        """
        status, self.status = self.status, FAILED
        try:
            return self.tail.append(frames)
        except REFUSED:
            self.status = status
            raise
        except OSError as error:
            raise sync_error(self.tail.name, error) from error

    def note_frame(self, index: SegmentIndex | None, size: int, checksum: int) -> None:
        """A frame was appended and the state knows what it says."""
        tail = self.tail
        self.state.segments[tail.file.number].length = tail.length
        if index is not None:
            index.length = tail.length
        self.since_checkpoint += size
        self._sealed = False
        self.sequence += 1
        self.checksum = checksum

    def encode(
        self,
        parts: list[Buffer],
        genesis: bytes,
        block_count: int,
        sequence: int,
        previous: int,
        flags: int = 0,
        ahead: int = 0,
    ) -> tuple[bytearray, int]:
        """One frame for `ahead` bytes behind the tail's end, and its checksum."""
        file = self.tail.file
        return encode_frame(
            parts,
            genesis,
            block_count=block_count,
            flags=flags,
            sequence=sequence,
            durable_upto=self.durable_upto,
            previous=previous,
            check=file.check,
            seed=file.seed,
            offset=self.tail.length + ahead,
        )

    def make_room(self, size: int, *, reserve: bool, last: bool = False) -> bool:
        if self.tail.has_room(size):
            return True
        with self.sorting_errors():
            return self.tail.make_room(size, reserve=reserve, last=last)

    def sync_tail(self) -> None:
        """Sync what was written; everything up to here counts as durable then."""
        status, self.status = self.status, FAILED
        started = self.clock.monotonic()
        self.tail.sync()
        self.note_sync(self.clock.monotonic() - started)
        self.status = status

    def note_sync(self, seconds: float) -> None:
        """Everything written so far is durable; making it so took that long."""
        self.last_sync_seconds = seconds
        self.durable_upto = self.sequence
        for queue in self.covering:
            queue.reserved_durable = queue.genesis.reserved_upto
        self.covering.clear()

    def write_seal(self) -> None:
        """The seal itself, for callers that have the turn already."""
        if self._sealed or self.durable_upto < self.sequence:
            return
        gap = -self.tail.length % SECTOR_BYTES
        if gap < frame_bytes(0):
            gap += SECTOR_BYTES
        if not self.make_room(gap + frame_bytes(0), reserve=True):
            return
        sequence = self.sequence + 2
        padding = bytes(gap - FRAME_HEADER_BYTES - TRAILER_BYTES)
        frames, checksum = self.encode([padding], b"", 0, sequence - 1, self.checksum, FLAG_SEAL)
        second, checksum = self.encode([], b"", 0, sequence, checksum, FLAG_SEAL, ahead=gap)
        frames += second
        status = self.status
        self.write(frames)
        self.state.segments[self.tail.file.number].length = self.tail.length
        index = self.cache.tail_index(self.tail.file.number)
        if index is not None:
            index.length = self.tail.length
        self._sealed = True
        self.sequence, self.checksum = sequence, checksum
        self.status = status
