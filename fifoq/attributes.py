"""Attributes: what a record has beside its payload, and the columns that hold it.

Most records have none. Where a put names some, they travel with the record through memory and are
optional columns of its block on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import Final, TypedDict

import msgspec

from fifoq.codec import encode_headers
from fifoq.options import PRIORITY_COUNT, Durability
from store import RecordBlock
from store.blocks import (
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    Column,
)

Columns = dict[int, Column]

PRIORITY_DEFAULT: Final = 5
PRIORITY_MAX: Final = PRIORITY_COUNT - 1
SECONDS_MAX: Final = 1 << 33
"""Some 272 years: later times have no place among nanoseconds since the epoch."""
ORDERING_KEY_BYTES_MAX: Final = 255
DEDUP_ID_BYTES_MAX: Final = 255


class RecordKeywords(TypedDict, total=False):
    """What a put may say of its records."""

    headers: dict[str, str] | None
    delay: float | None
    deliver_at: datetime | float | None
    ttl: float | None
    priority: int | None
    ordering_key: str | None
    dedup_id: str


class PutKeywords(RecordKeywords, total=False):
    """Keywords of a put, for wrappers of it: `**keywords: Unpack[PutKeywords]`."""

    durability: Durability | None


KEYWORDS: Final = ("durability", *RecordKeywords.__annotations__)


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """Of one record: encoded headers, times in nanoseconds since the epoch (0: none), its lane."""

    headers: bytes = b""
    deliver_at: int = 0
    expires_at: int = 0
    priority: int = PRIORITY_DEFAULT
    ordering_key: bytes = b""
    dedup_id: bytes = b""

    @property
    def size(self) -> int:
        """What they need in a frame, at the most."""
        return len(self.headers) + len(self.ordering_key) + len(self.dedup_id) + FIXED_BYTES


def size_of(attributes: Attributes | None) -> int:
    """What attributes of a record need in a frame, if it has any."""
    return 0 if attributes is None else attributes.size


FIXED_BYTES: Final = 8 + 8 + 1 + 3 * 4
NONE: Final = Attributes()

_COLUMNS: Final = {
    DELIVER_AT: "deliver_at",
    EXPIRES_AT: "expires_at",
    PRIORITY: "priority",
    HEADERS: "headers",
    DEDUP_ID: "dedup_id",
    ORDERING_KEY: "ordering_key",
}
_values = attrgetter(*_COLUMNS.values())


def attributes_from(
    now: int,
    *,
    headers: dict[str, str] | None = None,
    delay: float | None = None,
    deliver_at: datetime | float | None = None,
    ttl: float | None = None,
    priority: int | None = None,
    ordering_key: str | None = None,
    **more: object,
) -> Attributes:
    """What the keywords of a put ask for that is made at `now`. TypeError or ValueError if wrong.

    A `ttl` counts from the moment at which the record may be delivered.
    """
    key = dedup_id = b""
    if ordering_key is not None:
        key = _checked_text("ordering_key", ordering_key, ORDERING_KEY_BYTES_MAX)
    if "dedup_id" in more:
        # None is no id: whoever has lost it must not believe that the put is made once.
        dedup_id = checked_id(more.pop("dedup_id"))
    if more:
        raise TypeError(
            f"put takes {', '.join(KEYWORDS)}, not {next(iter(more))!r}. Nothing was stored."
        )
    due = _due_time(now, delay, deliver_at)
    expires_at = 0
    if ttl is not None:
        expires_at = max(now, due) + _nanoseconds("ttl", ttl, above=True)
    return Attributes(
        encode_headers(headers) if headers else b"",
        due,
        expires_at,
        PRIORITY_DEFAULT if priority is None else _checked_priority(priority),
        key,
        dedup_id,
    )


def _due_time(now: int, delay: float | None, deliver_at: datetime | float | None) -> int:
    """When a record may be handed out; 0 if at once."""
    if delay is not None and deliver_at is not None:
        raise ValueError("delay and deliver_at are two ways to say one thing. Nothing was stored.")
    if delay is not None:
        due = now + _nanoseconds("delay", delay)
    elif deliver_at is not None:
        if isinstance(deliver_at, datetime):
            if deliver_at.tzinfo is None:
                raise ValueError(
                    f"deliver_at={deliver_at!s} has no time zone. Nothing was stored. Give it one, "
                    f"such as datetime.UTC, or seconds since the epoch."
                )
            deliver_at = deliver_at.timestamp()
        due = _nanoseconds("deliver_at", deliver_at)
    else:
        return 0
    return due if due > now else 0


def _nanoseconds(name: str, seconds: float, *, above: bool = False) -> int:
    check_seconds(name, seconds, "Nothing was stored.", above=above)
    return round(seconds * 1_000_000_000)


def _checked_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority={priority!r} is not a whole number. Nothing was stored.")
    if not 0 <= priority <= PRIORITY_MAX:
        raise ValueError(
            f"priority={priority} is not one of 0 (first) to {PRIORITY_MAX} (last). Nothing was "
            f"stored."
        )
    return priority


def checked_id(dedup_id: object) -> bytes:
    """The bytes of an id. TypeError or ValueError if it is none."""
    return _checked_text("dedup_id", dedup_id, DEDUP_ID_BYTES_MAX)


def _checked_text(name: str, text: object, bytes_max: int) -> bytes:
    """The text as UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is a str, not {type(text).__name__}. Nothing was stored.")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} has a lone surrogate, which no file holds. Nothing was stored."
        ) from None
    if not 0 < len(encoded) <= bytes_max:
        raise ValueError(
            f"{name} has {len(encoded)} bytes, and 1 to {bytes_max} are allowed. Nothing was "
            f"stored."
        )
    return encoded


def check_seconds(name: str, seconds: float, state: str, *, above: bool = False) -> None:
    """TypeError or ValueError unless it is a number of seconds; `state` says what was not done."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name}={seconds!r:.80} is not a number of seconds. {state}")
    if not 0 <= seconds <= SECONDS_MAX or (above and not seconds):
        least = "above 0" if above else "0 or more"
        raise ValueError(f"{name}={seconds!r} is not {least}, and at most {SECONDS_MAX}. {state}")


def check_timeout(timeout: float, state: str) -> None:
    """TypeError unless it is a number; one that is over already is fine."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout={timeout!r:.80} is not a number of seconds. {state}")


def check_count(count: int, state: str) -> None:
    """TypeError or ValueError unless it is a number of records."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count={count!r:.80} is not a whole number. {state}")
    if count < 1:
        raise ValueError(f"count={count} is below 1. {state}")


def columns_of(attributes: Sequence[Attributes]) -> Columns:
    """The columns that records with these attributes need; those that nobody uses are left out."""
    columns = zip(*map(_values, attributes), strict=True)
    return {
        bit: column
        for bit, column, default in zip(_COLUMNS, columns, _values(NONE), strict=True)
        if column.count(default) < len(column)
    }


def columns_between(attributes: Mapping[int, Attributes], first: int, end: int) -> Columns | None:
    """The columns of consecutive records of which some may have attributes."""
    return columns_of(list(map(attributes.get, range(first, end), repeat(NONE)))) or None


def attributes_in(block: RecordBlock) -> Iterator[tuple[int, Attributes]]:
    """Counters of a block's records that have attributes, with these."""
    names = [_COLUMNS[bit] for bit in block.columns if bit in _COLUMNS]
    if not names:
        return
    columns = [block.columns[bit] for bit in block.columns if bit in _COLUMNS]
    for counter, *values in zip(block.counters(), *columns, strict=True):
        attributes = Attributes(**dict(zip(names, values, strict=True)))
        if attributes != NONE:
            yield counter, attributes
