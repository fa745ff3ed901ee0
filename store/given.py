"""What callers give a draft: checked, told in words if it is wrong, and times put in order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from store.blocks import OPTIONAL_COLUMNS, Column
from store.checksum import Buffer

UNENCODABLE: Final = (TypeError, OverflowError, struct.error)
"""What encoding raises for values of a wrong type or size."""


def unencodable(error: Exception) -> Exception:
    """The caller's mistake, in the class that fits it."""
    if isinstance(error, TypeError):
        return error
    return ValueError(f"a value does not fit its column: {error}. Nothing was stored.")


def check_columns(columns: dict[int, Column], count: int) -> None:
    """ValueError unless each is an optional column with a value for each record."""
    for bit, values in columns.items():
        if bit not in OPTIONAL_COLUMNS:
            raise ValueError(f"{bit} is no optional column of records")
        if len(values) != count:
            raise ValueError(f"column {bit} has {len(values)} values for {count} records")


def check_payloads(payloads: Sequence[Buffer]) -> None:
    """TypeError if one is not bytes."""
    for at, payload in enumerate(payloads):
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"payload {at} is {type(payload).__name__}, not bytes") from None


def clamped_times(times: Sequence[int], floor: int) -> Sequence[int]:
    """The times, none below the floor and none below the one before."""
    if times[0] >= floor and all(a <= b for a, b in pairwise(times)):
        return times
    clamped = []
    for time in times:
        floor = max(floor, time)
        clamped.append(floor)
    return clamped


def clamped_runs(
    runs: Sequence[tuple[int, int]], floor: int, count: int
) -> Sequence[tuple[int, int]]:
    """The same of times that several records share."""
    if len(runs) == 1 and runs[0][0] == count:
        return [(count, max(floor, runs[0][1]))]
    if sum(length for length, _ in runs) != count or min(length for length, _ in runs) < 1:
        raise ValueError(f"runs of times for other than {count} records: {runs!r:.80}")
    clamped = []
    for length, time in runs:
        floor = max(floor, time)
        clamped.append((length, floor))
    return clamped
