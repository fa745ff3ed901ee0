"""Cron: when a line of five fields comes due.

    minute 0-59 | hour 0-23 | day of month 1-31 | month 1-12, jan-dec | day of week 0-7, sun-sat

A field is `*`, a value, a range `a-b`, either with a step `/n`, or a list of these; `a/n` runs from
`a` to the end. 0 and 7 are Sunday. As in cron, if neither day field begins with `*`, a day that one
of them names is enough. `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and
`@annually` stand for their lines.

Time is UTC unless a zone is named. Where its clocks change, what cron does: if minute or hour
begins with `*`, the line goes by what the clock shows, so an hour that is left out has no times and
one that comes twice has them twice. Otherwise each of its times comes once: one that is left out
comes when the clocks have changed, one that comes twice the first time.

Pure: no clock is read here.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LEAP_YEAR: Final = 2024
TEXT_MAX: Final = 1000
"""Characters of a line: a list of every minute has 169."""

_MINUTE: Final = timedelta(minutes=1)
_CHANGE_MAX: Final = timedelta(hours=3)
"""No clock is put on or back by more at once; whole days left out are fine."""


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class Cron:
    """One line, in one zone. ValueError for a line that makes no sense names the field."""

    __slots__ = ("_days", "_either", "_hours", "_minutes", "_months", "_shown", "_tz", "_weekdays")

    def __init__(self, text: str, zone: str = "UTC") -> None:
        if not isinstance(text, str):
            raise TypeError(f"cron={text!r:.80} is not a string")
        fields = _MACROS.get(text.strip().lower(), text).split()
        if len(fields) != len(_FIELDS) or len(text) > TEXT_MAX:
            raise ValueError(
                f"cron={text!r:.80} has {len(fields)} fields, not five: minute, hour, day of "
                f"month, month, day of week"
            )
        minutes, hours, days, months, weekdays = (
            _values(text, field) for text, field in zip(fields, _FIELDS, strict=True)
        )
        self._tz = _zone(zone)
        self._minutes, self._hours = sorted(minutes), sorted(hours)
        self._days, self._months = days, months
        self._weekdays = {day % 7 for day in weekdays}
        starred = [field.startswith("*") for field in fields]
        self._shown = starred[0] or starred[1]
        self._either = not (starred[2] or starred[4])
        if not self._either and not any(min(days) <= _longest(month) for month in months):
            raise ValueError(f"cron day of month {fields[2]!r}: no such day in month {fields[3]!r}")

    def after(self, moment: datetime) -> datetime:
        """The first time after `moment`, which is aware, as UTC.

        OverflowError if that is behind the year 9999.
        """
        moment = moment.astimezone(UTC)
        if self._tz is UTC:
            return next(self._matches(moment.replace(tzinfo=None))).replace(tzinfo=UTC)
        return self._shown_after(moment) if self._shown else self._fixed_after(moment)

    def _fixed_after(self, moment: datetime) -> datetime:
        """Each time that the line names comes once, in the order of what the clock shows."""
        for shown in self._matches(_naive(moment, self._tz)):
            instant = _instants(shown, self._tz)[0]
            if instant > moment:
                return instant
        raise AssertionError("matches have no end")

    def _shown_after(self, moment: datetime) -> datetime:
        """The first minute at which the clock shows one of the line's times."""
        here = _naive(moment, self._tz)
        best: tuple[datetime, datetime] | None = None
        # Times shown before this one come again if the clock is about to be put back.
        for shown in self._matches(here - _CHANGE_MAX):
            if best is not None and shown - best[1] > _CHANGE_MAX:
                break
            for instant in _instants(shown, self._tz):
                really = _naive(instant, self._tz) == shown
                if really and instant > moment and (best is None or instant < best[0]):
                    best = instant, shown
            if best is not None and self._steady(moment, best[0]):
                break
        assert best is not None
        return best[0]

    def _steady(self, moment: datetime, instant: datetime) -> bool:
        """Whether no change of the clock is near two moments that are close to each other."""
        if instant - moment > _CHANGE_MAX:
            return False
        edges = (moment - _CHANGE_MAX, moment, moment + 2 * _CHANGE_MAX)
        return len({edge.astimezone(self._tz).utcoffset() for edge in edges}) == 1

    def _matches(self, shown: datetime) -> Iterator[datetime]:
        """Times of the line after `shown`, for ever, as if no clock were ever changed."""
        start = shown.replace(second=0, microsecond=0) + _MINUTE
        day = start.replace(hour=0, minute=0)
        while True:
            if day.month not in self._months:
                day = _next_month(day)
                continue
            if self._has_day(day):
                for hour in self._hours:
                    for minute in self._minutes:
                        match = day.replace(hour=hour, minute=minute)
                        if match >= start:
                            yield match
            day += timedelta(days=1)

    def _has_day(self, day: datetime) -> bool:
        named = day.day in self._days
        weekday = day.isoweekday() % 7 in self._weekdays
        return named or weekday if self._either else named and weekday


def _values(text: str, field: _Field) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        body, slash, step_text = part.partition("/")
        step = _number(step_text, text, field) if slash else 1
        if not 1 <= step <= field.highest:
            raise _wrong(field, text, f"a step is 1 to {field.highest}")
        first, dash, last = body.partition("-")
        if body == "*":
            low, high = field.lowest, field.highest - (field.names is _DAYS)
        else:
            low = _value(first, text, field)
            high = _value(last, text, field, end=True) if dash else low
            if slash and not dash:
                high = field.highest - (field.names is _DAYS)
        if low > high:
            raise _wrong(field, text, f"{body!r} goes backwards")
        found.update(range(low, high + 1, step))
    return found


def _value(text: str, whole: str, field: _Field, *, end: bool = False) -> int:
    name = text.lower()
    if name in field.names:
        # A week may end with Sunday as well as begin with it.
        value = field.lowest + field.names.index(name)
        return 7 if end and name == "sun" else value
    value = _number(text, whole, field)
    if not field.lowest <= value <= field.highest:
        raise _wrong(field, whole, f"{value} is not in {field.lowest} to {field.highest}")
    return value


def _number(text: str, whole: str, field: _Field) -> int:
    # Not `isdigit` alone: other scripts have digits too.
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        names = f", nor one of {', '.join(field.names)}" if field.names else ""
        raise _wrong(field, whole, f"{text!r:.20} is no number{names}")
    return int(text)


def _wrong(field: _Field, text: str, reason: str) -> ValueError:
    return ValueError(f"cron {field.name} {text!r:.80}: {reason}")


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        raise ValueError(
            f"zone={name!r:.80} is no time zone that this machine knows; they are called like "
            f"Europe/Berlin"
        ) from None


def _naive(moment: datetime, tz: tzinfo) -> datetime:
    """What the clock of the zone shows then."""
    return moment.astimezone(tz).replace(tzinfo=None, fold=0)


def _instants(shown: datetime, tz: tzinfo) -> list[datetime]:
    """When the clock shows that, in order; when it has changed, if it leaves that out."""
    first, second = (shown.replace(tzinfo=tz, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first < second:
        return [first, second]
    if first == second:
        return [first]
    # Left out: the two are as far apart as the clock is put on, and the change is in between.
    return [_change_between(second, first, tz)]


def _change_between(early: datetime, late: datetime, tz: tzinfo) -> datetime:
    """The first minute, after one and not after the other, with another offset."""
    before = early.astimezone(tz).utcoffset()
    while late - early > _MINUTE:
        middle = early + (late - early) // _MINUTE // 2 * _MINUTE
        if middle.astimezone(tz).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def _longest(month: int) -> int:
    return monthrange(_LEAP_YEAR, month)[1]


def _next_month(day: datetime) -> datetime:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
