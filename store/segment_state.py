"""A segment's size, and how much of it is live."""

from __future__ import annotations

from store.checkpoint import SegmentEntry


class SegmentState:
    """One segment. It is dead when no live record and nothing newest lies in it."""

    __slots__ = (
        "created_at",
        "first_sequence",
        "last_time",
        "length",
        "live_count",
        "live_weight",
        "meta_count",
        "meta_weight",
        "number",
        "record_count",
        "record_frame_bytes",
        "record_weight",
    )

    def __init__(self, number: int, length: int, first_sequence: int, created_at: int) -> None:
        self.number = number
        self.length = length
        self.first_sequence = first_sequence
        self.created_at = created_at
        self.last_time = created_at
        self.record_count = 0
        self.record_weight = 0
        self.record_frame_bytes = 0
        self.live_count = 0
        self.live_weight = 0
        self.meta_count = 0
        self.meta_weight = 0

    @property
    def dead(self) -> bool:
        return self.live_count == 0 and self.meta_count == 0

    @property
    def live_bytes(self) -> int:
        """Estimate of the bytes on disk that live records and newest entries need."""
        if not self.record_weight:
            return self.meta_weight
        return self.live_weight * self.record_frame_bytes // self.record_weight + self.meta_weight

    @property
    def sparse(self) -> bool:
        return self.live_bytes * 2 < self.length

    def entry(self) -> SegmentEntry:
        return SegmentEntry(
            self.number,
            self.length,
            self.first_sequence,
            self.created_at,
            self.last_time,
            self.record_count,
            self.record_weight,
            self.record_frame_bytes,
        )

    @classmethod
    def of(cls, entry: SegmentEntry) -> SegmentState:
        segment = cls(entry.number, entry.length, entry.first_sequence, entry.created_at)
        segment.last_time = entry.last_time
        segment.record_count = entry.record_count
        segment.record_weight = entry.record_weight
        segment.record_frame_bytes = entry.record_frame_bytes
        return segment
