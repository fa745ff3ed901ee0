"""Settings of a store's log, all with defaults; every wrong one is named at once."""

from __future__ import annotations

from typing import Final

import msgspec

SEGMENT_BYTES_MIN: Final = 64 << 10
HELD_BYTES_MAX: Final = 2 << 20


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long segments with nothing live in them stay, when a queue wants them kept.

    A limit that is None does not count. At least `min_segments` always stay.
    """

    max_age: float | None = None
    max_bytes: int | None = None
    max_segments: int | None = None
    min_segments: int = 1


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Rotation, checkpoints and the space held ahead.

    `fill_bytes` is how far zeros are written ahead of the tail, which makes a sync cheap;
    `reserve_bytes` of them are kept back for removals on a full disk.
    """

    segment_bytes: int = 64 << 20
    segment_records: int = 1_000_000
    segment_seconds: float = 24 * 3600
    checkpoint_bytes: int = 2 << 20
    fill_bytes: int = 256 << 10
    reserve_bytes: int = 512 << 10
    retention: Retention = Retention()

    def __post_init__(self) -> None:
        wrong = [
            text
            for is_wrong, text in (
                (
                    self.segment_bytes < SEGMENT_BYTES_MIN,
                    f"segment_bytes={self.segment_bytes} is below {SEGMENT_BYTES_MIN}",
                ),
                (self.segment_records < 1, f"segment_records={self.segment_records} is below 1"),
                (
                    self.segment_seconds <= 0,
                    f"segment_seconds={self.segment_seconds} is not above 0",
                ),
                (
                    self.checkpoint_bytes < 1,
                    f"checkpoint_bytes={self.checkpoint_bytes} is below 1",
                ),
                (
                    self.fill_bytes < 0
                    or self.reserve_bytes < 0
                    or self.fill_bytes + self.reserve_bytes > HELD_BYTES_MAX,
                    f"fill_bytes + reserve_bytes is not in 0..{HELD_BYTES_MAX}",
                ),
                (
                    self.retention.min_segments < 0,
                    f"retention.min_segments={self.retention.min_segments} is below 0",
                ),
            )
            if is_wrong
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
