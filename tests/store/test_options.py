"""Settings: defaults are allowed, and every wrong one is named at once."""

from __future__ import annotations

import pytest

from store import LogOptions, Retention

WRONG: list[tuple[dict[str, object], str]] = [
    ({"segment_bytes": 65535}, "segment_bytes=65535 is below 65536"),
    ({"segment_records": 0}, "segment_records=0 is below 1"),
    ({"segment_seconds": 0}, "segment_seconds=0 is below 0.001"),
    ({"checkpoint_bytes": 0}, "checkpoint_bytes=0 is below 1"),
    ({"fill_bytes": -1}, "fill_bytes=-1 is below 0"),
    ({"reserve_bytes": -1}, "reserve_bytes=-1 is below 0"),
    ({"fill_bytes": 2 << 20, "reserve_bytes": 1}, "reserve_bytes=1 together are over 2097152"),
    ({"segment_seconds": float("nan")}, "segment_seconds=nan is below 0.001"),
    ({"segment_bytes": "1G"}, "segment_bytes='1G' is not a whole number"),
    ({"segment_records": True}, "segment_records=True is not a whole number"),
    ({"retention": None}, "retention=None is not a Retention"),
]


def test_defaults_and_limits_themselves_are_allowed() -> None:
    assert LogOptions().segment_bytes == 64 << 20
    least = LogOptions(segment_bytes=65536, segment_records=1, checkpoint_bytes=1)
    assert (least.segment_bytes, least.segment_records, least.checkpoint_bytes) == (65536, 1, 1)
    nothing_ahead = LogOptions(fill_bytes=0, reserve_bytes=0)
    assert (nothing_ahead.fill_bytes, nothing_ahead.reserve_bytes) == (0, 0)
    most = LogOptions(fill_bytes=2 << 20, reserve_bytes=0, retention=Retention(min_segments=0))
    assert (most.fill_bytes, most.retention.min_segments) == (2 << 20, 0)


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_a_wrong_setting_is_named_with_its_value(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        LogOptions(**settings)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        LogOptions(segment_bytes=1, segment_records=-1)
    assert str(caught.value) == "segment_bytes=1 is below 65536; segment_records=-1 is below 1"


def test_wrong_limits_of_a_retention_are_named_too() -> None:
    with pytest.raises(ValueError) as caught:
        Retention(max_age="1d", max_bytes=-1, min_segments=-1)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "max_age='1d' is not a number; max_bytes=-1 is below 0; min_segments=-1 is below 0"
    )


@pytest.mark.parametrize(
    ("segment_bytes", "ahead"), [(64 << 20, 1 << 20), (1 << 20, 256 << 10), (64 << 10, 16 << 10)]
)
def test_zeros_ahead_are_a_part_of_a_small_segment(segment_bytes: int, ahead: int) -> None:
    assert LogOptions(segment_bytes=segment_bytes).ahead_bytes == ahead
