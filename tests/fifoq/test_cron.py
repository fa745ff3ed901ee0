"""Cron lines against a walk over every minute, at every change of the clocks, and nonsense."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.cron import Cron

MINUTE = timedelta(minutes=1)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "America/St_Johns",  # in 2010 at a minute past midnight
    "Africa/Cairo",  # at midnight
    "Pacific/Apia",  # left out a whole day in 2011
    "Asia/Kathmandu",
]
CHANGES = [
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2010, 3, 14, 3, 31, tzinfo=UTC),
    datetime(2010, 11, 7, 2, 31, tzinfo=UTC),
    datetime(2026, 4, 23, 22, tzinfo=UTC),
    datetime(2026, 10, 29, 21, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2028, 2, 29, tzinfo=UTC),
    datetime(2026, 12, 31, 23, 59, tzinfo=UTC),
]


# The walk: what a line means, minute by minute, with none of the code under test.

FIELDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def named(field: str, lowest: int, highest: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        low, _, high = body.partition("-")
        if body == "*":
            low, high = str(lowest), str(highest)
        elif not high:
            high = str(highest) if step else low
        found.update(range(int(low), int(high) + 1, int(step or 1)))
    return found


def walked(line: str, zone: str, moment: datetime) -> datetime | None:
    """The first time after `moment` within some days, or None."""
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return next((at for at in all_times(line, zone, start) if at > moment), None)


def all_times(line: str, zone: str, start: datetime) -> Iterator[datetime]:
    """The times of some days around `start`, in order."""
    fields = line.split()
    minutes, hours, days, months, weekdays = (
        named(field, *limits) for field, limits in zip(fields, FIELDS, strict=True)
    )
    stars = [field.startswith("*") for field in fields]

    def matches(shown: datetime) -> bool:
        if shown.minute not in minutes or shown.hour not in hours or shown.month not in months:
            return False
        day = shown.day in days
        week = bool({shown.isoweekday(), shown.isoweekday() % 7} & weekdays)
        return day and week if stars[2] or stars[4] else day or week

    clock = clock_of(zone, start)
    if stars[0] or stars[1]:
        yield from (at for at, shown in clock if matches(shown))
        return
    # Every time on the clock face, once, when it is first reached or passed by.
    seen = clock[0][1]
    for at, shown in clock:
        while seen < shown:
            seen += MINUTE
            if matches(seen):
                yield at


@lru_cache(maxsize=128)
def clock_of(zone: str, start: datetime) -> list[tuple[datetime, datetime]]:
    """What the clock shows at every minute from two days before to five after."""
    tz, early = ZoneInfo(zone), start - timedelta(days=2)
    steps = (early + n * MINUTE for n in range(7 * 24 * 60))
    return [(at, at.astimezone(tz).replace(tzinfo=None, fold=0)) for at in steps]


def field_texts(lowest: int, highest: int) -> st.SearchStrategy[str]:
    values = st.integers(lowest, highest)
    steps = st.integers(1, highest)
    ranges = st.tuples(values, values).map(lambda pair: f"{min(pair)}-{max(pair)}")
    part = st.one_of(
        st.just("*"),
        values.map(str),
        ranges,
        steps.map(lambda n: f"*/{n}"),
        st.tuples(ranges, steps).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    )
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


LINES = st.tuples(*(field_texts(*limits) for limits in FIELDS)).map(" ".join)
FREQUENT = st.tuples(field_texts(0, 59), field_texts(0, 23)).map(
    lambda pair: f"{pair[0]} {pair[1]} * * *"
)
MOMENTS = st.builds(
    lambda change, seconds: change + timedelta(seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-50 * 3600, 30 * 3600),
)


@given(st.one_of(LINES, FREQUENT), st.sampled_from(ZONES), MOMENTS)
@settings(max_examples=400, deadline=None)
def test_the_next_time_is_the_one_that_a_walk_over_every_minute_finds(
    line: str, zone: str, moment: datetime
) -> None:
    try:
        cron = Cron(line, zone)
    except ValueError:
        assert walked(line, zone, moment) is None
        return
    found, expected = cron.after(moment), walked(line, zone, moment)
    if expected is None:
        assert found > moment + timedelta(days=3, hours=12)
    else:
        assert found == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "line", ["30 2 * * *", "*/20 * * * *", "30 * * * *", "0 0 * * *", "5 0,2,23 * * *"]
)
def test_two_days_around_every_change_of_the_clocks_is_as_walked(zone: str, line: str) -> None:
    for change in CHANGES:
        moment, end = change - timedelta(hours=26), change + timedelta(hours=26)
        day = moment.replace(hour=0, minute=0)
        for expected in all_times(line, zone, day):
            if moment < expected < end:
                assert Cron(line, zone).after(moment) == expected, (moment, change)
                moment = expected


def times(line: str, zone: str, start: datetime, count: int) -> list[str]:
    """The next times as that zone's clock shows them."""
    found = []
    for _ in range(count):
        start = Cron(line, zone).after(start)
        found.append(start.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M"))
    return found


SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)


def test_a_time_that_the_clock_leaves_out_comes_when_it_has_changed() -> None:
    assert times("30 2 * * *", "Europe/Berlin", SPRING, 2) == ["03-29 03:00", "03-30 02:30"]


def test_a_time_that_the_clock_shows_twice_comes_once() -> None:
    assert times("30 2 * * *", "Europe/Berlin", AUTUMN, 2) == ["10-25 02:30", "10-26 02:30"]
    assert Cron("30 2 * * *", "Europe/Berlin").after(AUTUMN).hour == 0


def test_a_line_for_every_hour_goes_by_what_the_clock_shows() -> None:
    night = SPRING + timedelta(hours=12)
    assert times("30 * * * *", "Europe/Berlin", night, 2) == ["03-29 01:30", "03-29 03:30"]
    night = AUTUMN + timedelta(hours=12)
    assert times("30 * * * *", "Europe/Berlin", night, 3) == [
        "10-25 02:30",
        "10-25 02:30",
        "10-25 03:30",
    ]


def test_days_of_month_and_week_are_either_unless_one_begins_with_a_star() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert times("0 0 13 * fri", "UTC", start, 3) == ["01-02 00:00", "01-09 00:00", "01-13 00:00"]
    assert times("0 0 13 * *", "UTC", start, 2) == ["01-13 00:00", "02-13 00:00"]
    assert times("0 0 13 * */5", "UTC", start, 2) == ["02-13 00:00", "03-13 00:00"]


def test_names_sunday_twice_and_the_far_future() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert times("0 0 * * sun", "UTC", start, 1) == times("0 0 * * 7", "UTC", start, 1)
    assert times("0 0 * * Fri-Sun", "UTC", start, 3) == [
        "01-02 00:00",
        "01-03 00:00",
        "01-04 00:00",
    ]
    assert times("0 12 1 JAN,jul *", "UTC", start, 2) == ["01-01 12:00", "07-01 12:00"]
    assert Cron("0 0 29 2 *").after(start) == datetime(2028, 2, 29, tzinfo=UTC)
    assert Cron("0 0 29 2 */6", "UTC").after(start) == datetime(2032, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("macro", "line"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @Annually ", "0 0 1 1 *"),
    ],
)
def test_a_word_stands_for_its_line(macro: str, line: str) -> None:
    assert Cron(macro).after(SPRING) == Cron(line).after(SPRING)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "0 fields, not five"),
        ("* * * *", "4 fields, not five"),
        ("* * * * * *", "6 fields, not five"),
        ("@reboot", "1 fields, not five"),
        ("60 * * * *", "minute '60': 60 is not in 0 to 59"),
        ("-1 * * * *", "minute '-1': '' is no number"),
        ("* 24 * * *", "hour '24': 24 is not in 0 to 23"),
        ("* 22-2 * * *", "hour '22-2': '22-2' goes backwards"),
        ("* * 0 * *", "day of month '0': 0 is not in 1 to 31"),
        ("* * 32 * *", "day of month '32': 32 is not in 1 to 31"),
        ("* * * 13 *", "month '13': 13 is not in 1 to 12"),
        ("* * * mai *", "month 'mai': 'mai' is no number, nor one of jan, feb"),
        ("* * * * 8", "day of week '8': 8 is not in 0 to 7"),
        ("* * * * mon-", "day of week 'mon-': '' is no number, nor one of sun"),
        ("*/0 * * * *", "minute '*/0': a step is 1 to 59"),
        ("*/60 * * * *", "minute '*/60': a step is 1 to 59"),
        ("*/ * * * *", "minute '*/': '' is no number"),
        ("1,,2 * * * *", "minute '1,,2': '' is no number"),
        ("1-2-3 * * * *", "minute '1-2-3': '2-3' is no number"),
        ("1/2/3 * * * *", "minute '1/2/3': '2/3' is no number"),
        ("mon * * * *", "minute 'mon': 'mon' is no number"),
        ("\u0665 * * * *", "is no number"),
        ("1e1 * * * *", "minute '1e1': '1e1' is no number"),
        ("0 0 31 2 *", "day of month '31': no such day in month '2'"),
        ("0 0 30,31 feb *", "day of month '30,31': no such day in month 'feb'"),
        ("0 0 31 4,6,9,11 *", "day of month '31': no such day in month '4,6,9,11'"),
        (" ".join(["0" + ",0" * 1000, "* * * *"]), "fields, not five"),
    ],
)
def test_nonsense_names_the_field(line: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        Cron(line)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../etc/passwd", "Europe", "/etc/localtime", "\0"]
)
def test_a_zone_that_is_none_is_named(zone: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        Cron("* * * * *", zone)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Cron("* * * * *", None)  # type: ignore[arg-type]
