"""Settings of a store's log, all with defaults; every wrong one is named at once."""

from __future__ import annotations

from typing import Final

import msgspec

SEGMENT_BYTES_MIN: Final = 64 << 10
HELD_BYTES_MAX: Final = 2 << 20
FILL_SHARE: Final = 4
"""No more than one part in so many of a segment is filled ahead at once."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long segments with nothing live in them stay, when a queue wants them kept.

    A limit that is None does not count. At least `min_segments` always stay. ValueError names
    every wrong setting.
    """

    max_age: float | None = None
    max_bytes: int | None = None
    max_segments: int | None = None
    min_segments: int = 1

    def __post_init__(self) -> None:
        refuse(
            wrong_number("max_age", self.max_age, 0, whole=False, optional=True),
            wrong_number("max_bytes", self.max_bytes, 0, optional=True),
            wrong_number("max_segments", self.max_segments, 0, optional=True),
            wrong_number("min_segments", self.min_segments, 0),
        )


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Rotation, checkpoints and the space held ahead. ValueError names every wrong setting.

    `fill_bytes` is how far zeros are written ahead of the tail, which makes a sync cheap, in small
    segments less; `reserve_bytes` of them are kept back for removals on a full disk.
    """

    segment_bytes: int = 64 << 20
    segment_records: int = 1_000_000
    segment_seconds: float = 24 * 3600
    checkpoint_bytes: int = 2 << 20
    fill_bytes: int = 1 << 20
    reserve_bytes: int = 512 << 10
    retention: Retention = msgspec.field(default_factory=Retention)

    def __post_init__(self) -> None:
        held = [
            wrong_number("fill_bytes", self.fill_bytes, 0),
            wrong_number("reserve_bytes", self.reserve_bytes, 0),
        ]
        if not any(held) and self.fill_bytes + self.reserve_bytes > HELD_BYTES_MAX:
            held.append(
                f"fill_bytes={self.fill_bytes} and reserve_bytes={self.reserve_bytes} together are "
                f"over {HELD_BYTES_MAX}"
            )
        refuse(
            wrong_number("segment_bytes", self.segment_bytes, SEGMENT_BYTES_MIN),
            wrong_number("segment_records", self.segment_records, 1),
            wrong_number("segment_seconds", self.segment_seconds, 0.001, whole=False),
            wrong_number("checkpoint_bytes", self.checkpoint_bytes, 1),
            *held,
            None
            if isinstance(self.retention, Retention)
            else f"retention={self.retention!r} is not a Retention",
        )

    @property
    def ahead_bytes(self) -> int:
        """How far zeros are written ahead, of the reserve aside: less in small segments."""
        return min(self.fill_bytes, self.segment_bytes // FILL_SHARE)


def wrong_number(
    name: str, value: object, least: float, *, whole: bool = True, optional: bool = False
) -> str | None:
    """What is wrong with one setting, in words, or None."""
    if optional and value is None:
        return None
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return f"{name}={value!r} is not a {'whole number' if whole else 'number'}"
    # Written so that a NaN, which compares with nothing, is wrong too.
    return None if value >= least else f"{name}={value} is below {least}"


def refuse(*wrong: str | None) -> None:
    """ValueError that names everything that is wrong, if anything is."""
    texts = [text for text in wrong if text is not None]
    if texts:
        raise ValueError("; ".join(texts))
