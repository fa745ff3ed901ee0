"""Filters that Spark pushes down: what they mean as bounds of counters and times.

A column `timestamp` holds whole microseconds, records hold nanoseconds: a bound is moved to the
first nanosecond that is on its right side, so nothing is left for Spark to check.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from fifoq.spark.options import time_ns

T = TypeVar("T")

_NS_PER_US = 1000
_ALWAYS_THERE = ("counter", "timestamp", "key")


class Bounds(msgspec.Struct, frozen=True):
    """Counters first..last, put from `since` on and before `until`; None is no bound."""

    first: int | None = None
    last: int | None = None
    since: int | None = None
    until: int | None = None

    def within(self, since: int | None, until: int | None) -> Bounds:
        """The same with tighter times."""
        return Bounds(self.first, self.last, _higher(self.since, since), _lower(self.until, until))

    def counters(self, first: int | None, last: int | None) -> Bounds:
        """The same with tighter counters."""
        return Bounds(_higher(self.first, first), _lower(self.last, last), self.since, self.until)


def narrowed(bounds: Bounds, filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Tighter bounds, and the filters that Spark still has to apply."""
    rest: list[Filter] = []
    for each in filters:
        if isinstance(each, IsNotNull) and each.attribute[0] in _ALWAYS_THERE:
            continue
        column, values = _compared(each)
        if column == "counter" and (counters := _all(int, values)):
            bounds = bounds.counters(*_range(each, counters, 1))
        elif column == "timestamp" and (moments := _all(datetime.datetime, values)):
            since, last = _range(each, list(map(time_ns, moments)), _NS_PER_US)
            bounds = bounds.within(since, None if last is None else last + _NS_PER_US)
        else:
            rest.append(each)
            continue
        if isinstance(each, In):
            # It lies within the bounds, but not everything within them is in it.
            rest.append(each)
    return bounds, rest


def _compared(each: Filter) -> tuple[str, list[object]]:
    """The column and the values that a filter compares it with."""
    if isinstance(each, In):
        return ".".join(each.attribute), list(each.value)
    if isinstance(
        each,
        EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
    ):
        return ".".join(each.attribute), [each.value]
    return "", []


def _all(kind: type[T], values: list[object]) -> list[T]:
    """The values, if all of them are of that kind."""
    found = [value for value in values if isinstance(value, kind)]
    return found if len(found) == len(values) else []


def _range(each: Filter, values: list[int], step: int) -> tuple[int | None, int | None]:
    """The lowest and the highest value, a step apart, that a filter may let through."""
    match each:
        case GreaterThan():
            return values[0] + step, None
        case GreaterThanOrEqual():
            return values[0], None
        case LessThan():
            return None, values[0] - step
        case LessThanOrEqual():
            return None, values[0]
        case _:
            return min(values), max(values)


def _higher(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
