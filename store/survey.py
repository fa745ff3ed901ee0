"""Reading a whole segment, damage and all: what is intact, what is not, which counters are there.

The check reports it; quarantine opens with what is left. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from store.blocks import MOVED, RecordBlock
from store.compression import readable as can_read
from store.errors import DamageError, FormatError
from store.frames import SEGMENT_HEADER_BYTES
from store.ranges import RangeSet
from store.replay import frame_blocks, readable
from store.segment import Frame, SegmentFile


class Survey:
    """What reading one segment from end to end found."""

    def __init__(self, number: int, end: int) -> None:
        self.number = number
        self.end = end
        self.frame_count = 0
        self.record_count = 0
        self.unread_count = 0
        """Of these, what this machine cannot decompress: their checksums alone were looked at."""
        self.first_sequence: int | None = None
        self.last_sequence = 0
        self.last_checksum = 0
        self.witness = 0
        """Highest sequence that a sound frame calls durable."""
        self.seen: dict[tuple[str, bool], RangeSet] = {}
        """Counters of intact records by queue, and by whether they were moved here."""
        self.damage: list[tuple[int, int, str]] = []
        """(first byte, end byte, reason) of what does not belong to an intact frame."""

    def note(self, frame: Frame) -> None:
        header = frame.header
        blocks = [block for _, block in frame_blocks(frame)]
        for block in blocks:
            # All of them first: a frame is intact, or nothing of it is.
            if isinstance(block, RecordBlock) and can_read(block.algorithm):
                readable(frame, block)
        for block in blocks:
            if isinstance(block, RecordBlock):
                if block.algorithm and not can_read(block.algorithm):
                    self.unread_count += block.count
                self.record_count += block.count
                seen = self.seen.setdefault((block.queue, block.kind == MOVED), RangeSet())
                if block.last - block.first < block.count:
                    seen.add(block.first, block.last)
                else:
                    for counter in block.counters():
                        seen.add(counter, counter)
        self.frame_count += 1
        if self.first_sequence is None:
            self.first_sequence = header.sequence
        self.last_sequence, self.last_checksum = header.sequence, frame.checksum
        self.witness = max(self.witness, header.durable_upto)

    @property
    def sound(self) -> bool:
        return not self.damage


def survey(
    file: SegmentFile, start: int, end: int, *, known: int | None = None
) -> tuple[Survey, Iterator[Frame]]:
    """Read frames between `start` and `end`; the survey is complete once the frames are used up.

    Frames come in order; behind damage the next intact frame is looked for. `known` is a place
    where a frame starts for certain, if it lies between: damage before it ends there.
    """
    found = Survey(file.number, end)
    places = [start, end] if known is None or not start < known < end else [start, known, end]
    return found, chain.from_iterable(
        _frames(file, first, stop, found) for first, stop in pairwise(places)
    )


def _frames(file: SegmentFile, start: int, end: int, found: Survey) -> Iterator[Frame]:
    offset = max(start, SEGMENT_HEADER_BYTES)
    while offset < end:
        frames = file.frames(offset, end)
        try:
            for frame in frames:
                found.note(frame)
                offset = frame.end
                yield frame
            return
        except (DamageError, FormatError) as error:
            reason = error.reason if isinstance(error, DamageError) else str(error)
            following = _next_frame(file, offset + 8, end)
            found.damage.append((offset, following, reason))
            offset = following


def _next_frame(file: SegmentFile, start: int, end: int) -> int:
    """Offset of the next intact frame, or `end`."""
    for offset, _ in file.sound_headers(start, end):
        try:
            frame = next(file.frames(offset, end))
            frame_blocks(frame)
            return offset
        except (DamageError, FormatError):
            continue
    return end
