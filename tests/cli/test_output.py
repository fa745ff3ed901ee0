"""Sizes and lengths of time as people read them."""

from __future__ import annotations

import pytest

from fifoq.cli.output import duration, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1000 << 10, "1000 KiB"),
        ((1 << 20) - 1, "1024 KiB"),
        (1 << 20, "1 MiB"),
        (int(1.234 * 2**30), "1.23 GiB"),
        (12_345 << 50, "12345 PiB"),
    ],
)
def test_sizes_are_three_digits_and_a_unit(count: int | None, text: str) -> None:
    """One just under a MiB was `1e+03 KiB`."""
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-1.0, "0 µs"),
        (0.9999, "1000 ms"),
        (1.0, "1 s"),
        (7200.0, "2 h"),
        (864e3, "10 d"),
    ],
)
def test_lengths_of_time_are_three_digits_and_a_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
