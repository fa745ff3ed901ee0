"""Recurring puts: what is kept of a schedule, and what it does when it comes due.

A schedule is one state entry of the log: what to put, when, and the next time. Whoever fires it
writes the records and the entry with the time after that in one frame, so that a crash neither
doubles a firing nor loses one. Pure: times are given, in nanoseconds since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

import msgspec

from fifoq.cron import Cron

CatchUp = Literal["one", "skip", "all"]

SECOND: Final = 1_000_000_000
EVERY_SECONDS_MIN: Final = 0.01
EVERY_SECONDS_MAX: Final = 10 * 366 * 24 * 3600.0
ITEM_BYTES_MAX: Final = 64 << 10
"""The item is held in memory, and written once more with each firing."""
STEP_TIMES: Final = 256
"""Records that one frame makes up for."""
CATCH_UP_MAX: Final = 10_000
"""Times that are made up for in a row; the rest is passed over, with a warning."""
JUMP_NS: Final = 60 * SECOND
"""The clock was set, and did not just go a little faster or slower, if it is off by more."""

NAME_HEADER: Final = "schedule.name"
DUE_HEADER: Final = "schedule.due"
"""The headers that a record of a schedule has, beside those that were given."""

_PREFIX: Final = "schedule/"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it is kept. Either `every` (nanoseconds) or `cron` is there."""

    item: bytes
    options: dict[str, Any] = {}
    every: int | None = None
    cron: str | None = None
    zone: str = "UTC"
    catch_up: CatchUp = "one"
    overlap: bool = False
    next_time: int
    set_time: int
    """When `next_time` was written, by the same clock."""
    last_time: int = 0
    last_counter: int = 0
    put_count: int = 0
    passed_count: int = 0

    def same_times(self, other: Plan) -> bool:
        """Whether both come due at the same times, wherever they are."""
        return (self.every, self.cron, self.zone) == (other.every, other.cron, other.zone)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a queue. Times are nanoseconds since the epoch, 0 if there was none yet."""

    name: str
    every: float | None
    cron: str | None
    zone: str
    catch_up: CatchUp
    overlap: bool
    next_time: int
    last_time: int
    """The time that the last firing stood for."""
    last_counter: int
    """Counter of the record that the last firing put."""
    put_count: int
    passed_count: int
    """How often it came due and put nothing."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Plan)
encode_plan = _encoder.encode


def decode_plan(data: bytes) -> tuple[Plan, Cron | None]:
    """A plan as it was kept, and its cron line. ValueError if this version can not follow it."""
    plan = _decoder.decode(data)
    if (plan.every is None) == (plan.cron is None) or plan.every == 0:
        raise ValueError("it has neither an interval nor a cron line")
    return plan, Cron(plan.cron, plan.zone) if plan.cron is not None else None


def state_name(queue: str, name: str) -> str:
    """Under which name the store keeps a schedule."""
    return f"{_PREFIX}{queue}/{name}"


def schedules_in(names: Iterable[str]) -> list[tuple[str, str]]:
    """Queue and name of each schedule among names of states."""
    found = [name.split("/") for name in names if name.startswith(_PREFIX)]
    return [(parts[1], parts[2]) for parts in found if len(parts) == 3]


def make_plan(
    name: str,
    item: bytes,
    options: dict[str, Any],
    *,
    every: float | None,
    cron: str | None,
    zone: str,
    catch_up: CatchUp,
    overlap: bool | None,
    now: int,
) -> tuple[Plan, Cron | None]:
    """A new schedule and its cron line. ValueError and TypeError for what makes no sense."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"schedule {name!r:.80}: a name has 1 to 64 of a-z, 0-9 and -, and begins with none. "
            f"Nothing was changed."
        )
    if (every is None) == (cron is None):
        raise ValueError(f"schedule {name!r} needs either every= or cron=. Nothing was changed.")
    if catch_up not in get_args(CatchUp):
        raise ValueError(
            f"catch_up={catch_up!r:.80} is none of {', '.join(get_args(CatchUp))}. Nothing was "
            f"changed."
        )
    if overlap is None:
        overlap = catch_up == "all"
    if not isinstance(overlap, bool):
        raise ValueError(f"overlap={overlap!r:.80} is neither True nor False. Nothing was changed.")
    if catch_up == "all" and not overlap:
        raise ValueError(
            'catch_up="all" puts a record for each time, so overlap=False makes no sense with it. '
            "Nothing was changed."
        )
    if len(item) > ITEM_BYTES_MAX:
        raise ValueError(
            f"schedule {name!r}: an item of {len(item)} bytes is over the limit of "
            f"{ITEM_BYTES_MAX}. Nothing was changed."
        )
    line = Cron(cron, zone) if cron is not None else None
    interval = _interval(every) if every is not None else None
    plan = Plan(
        item=item,
        options=options,
        every=interval,
        cron=cron,
        zone=zone if cron is not None else "UTC",
        catch_up=catch_up,
        overlap=overlap,
        next_time=_after(interval, line, now, now),
        set_time=now,
    )
    return plan, line


def _interval(every: float) -> int:
    if isinstance(every, bool) or not isinstance(every, int | float):
        raise TypeError(f"every={every!r:.80} is no number of seconds. Nothing was changed.")
    if not EVERY_SECONDS_MIN <= every <= EVERY_SECONDS_MAX:
        raise ValueError(
            f"every={every} is not in {EVERY_SECONDS_MIN} to {EVERY_SECONDS_MAX:.0f} seconds. "
            f"Nothing was changed."
        )
    return round(every * SECOND)


def _after(every: int | None, cron: Cron | None, start: int, now: int) -> int:
    """The first time after now of those from `start` on."""
    if every is not None:
        return start + (max(0, now - start) // every + 1) * every
    assert cron is not None
    # Whole seconds, rounded down: a time is a whole minute.
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(start, now) // SECOND)
    return round(cron.after(moment).timestamp()) * SECOND


def after_setback(plan: Plan, cron: Cron | None, now: int) -> int:
    """The next time, by a clock that was set back to `now`: nobody waits for the old one.

    A cron line goes by what the clock shows now; an interval is waited for once at the most.
    """
    if plan.every is not None:
        return min(plan.next_time, now + plan.every)
    return min(plan.next_time, _after(None, cron, 0, now))


def next_when_opened(plan: Plan, cron: Cron | None, now: int) -> int:
    """The next time of a schedule that was kept while nobody looked at the clock."""
    if now < plan.set_time - JUMP_NS:
        return after_setback(plan, cron, now)
    return plan.next_time


class Firing(msgspec.Struct, frozen=True):
    """What to put, and the plan afterwards, but for what the put itself tells."""

    times: list[int]
    plan: Plan


def fire(plan: Plan, cron: Cron | None, now: int, *, missed: bool, pending: bool) -> Firing:
    """A schedule whose time has come.

    `missed` says that nobody could fire it in time, `pending` that the record of the last firing is
    still in the queue.
    """
    first = plan.next_time
    assert first <= now
    if (missed and plan.catch_up == "skip") or (pending and not plan.overlap):
        times = []
        following = _after(plan.every, cron, first, now)
    elif plan.catch_up == "all":
        times = [first]
        following = _after(plan.every, cron, first, first)
        while following <= now and len(times) < STEP_TIMES:
            times.append(following)
            following = _after(plan.every, cron, following, following)
    else:
        times = [first]
        following = _after(plan.every, cron, first, now)
    after = msgspec.structs.replace(
        plan,
        next_time=following,
        set_time=now,
        last_time=times[-1] if times else plan.last_time,
        put_count=plan.put_count + len(times),
        passed_count=plan.passed_count + (not times),
    )
    return Firing(times, after)


def passed_over(plan: Plan, cron: Cron | None, now: int) -> Plan:
    """The same without what is due by now."""
    return msgspec.structs.replace(plan, next_time=_after(plan.every, cron, plan.next_time, now))


def headers_of(name: str, plan: Plan, time: int) -> dict[str, str]:
    """The headers of the record that stands for that time."""
    whole, rest = divmod(time, SECOND)
    due = datetime.fromtimestamp(whole, UTC).replace(microsecond=rest // 1000)
    return {**plan.options.get("headers", {}), NAME_HEADER: name, DUE_HEADER: due.isoformat()}


def shown(name: str, plan: Plan, next_time: int) -> Schedule:
    return Schedule(
        name=name,
        every=plan.every / SECOND if plan.every is not None else None,
        cron=plan.cron,
        zone=plan.zone,
        catch_up=plan.catch_up,
        overlap=plan.overlap,
        next_time=next_time,
        last_time=plan.last_time,
        last_counter=plan.last_counter,
        put_count=plan.put_count,
        passed_count=plan.passed_count,
    )
