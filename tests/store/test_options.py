"""Settings: defaults are allowed, and every wrong one is named at once."""

from __future__ import annotations

import pytest

from store import LogOptions, Retention

WRONG: list[tuple[dict[str, int], str]] = [
    ({"segment_bytes": 65535}, "segment_bytes=65535 is below 65536"),
    ({"segment_records": 0}, "segment_records=0 is below 1"),
    ({"segment_seconds": 0}, "segment_seconds=0 is not above 0"),
    ({"checkpoint_bytes": 0}, "checkpoint_bytes=0 is below 1"),
    ({"fill_bytes": -1}, "fill_bytes + reserve_bytes is not in 0..2097152"),
    ({"reserve_bytes": -1}, "fill_bytes + reserve_bytes is not in 0..2097152"),
    ({"fill_bytes": 2 << 20, "reserve_bytes": 1}, "fill_bytes + reserve_bytes is not in"),
]


def test_defaults_and_limits_themselves_are_allowed() -> None:
    LogOptions()
    LogOptions(segment_bytes=65536, segment_records=1, checkpoint_bytes=1)
    LogOptions(fill_bytes=0, reserve_bytes=0)
    LogOptions(fill_bytes=2 << 20, reserve_bytes=0, retention=Retention(min_segments=0))


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_a_wrong_setting_is_named_with_its_value(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        LogOptions(**settings)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        LogOptions(segment_bytes=1, segment_records=-1, retention=Retention(min_segments=-1))
    assert str(caught.value) == (
        "segment_bytes=1 is below 65536; segment_records=-1 is below 1; "
        "retention.min_segments=-1 is below 0"
    )
