"""Rows: records with every column, as they leave a store and come into one.

Knows blocks and values; files and formats are for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from fifoq.attributes import PRIORITY_DEFAULT, PRIORITY_MAX
from fifoq.codec import decode_headers, encode_own_headers
from store import FormatError, RecordBlock
from store.blocks import (
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    Column,
)
from store.keys import COUNTER_MAX

TIME_MAX: Final = 2**64 - 1
ATTEMPT_MAX: Final = 2**32 - 1


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record. Times are nanoseconds since the epoch, 0 for none; `attempt` is its last one.

    A `counter` of 0 is a record that has no key yet.
    """

    queue: str = ""
    counter: int = 0
    timestamp: int = 0
    data: bytes = b""
    headers: dict[str, str] = {}
    deliver_at: int = 0
    expires_at: int = 0
    priority: int = PRIORITY_DEFAULT
    ordering_key: str = ""
    dedup_id: str = ""
    attempt: int = 0


class QueueHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an export says of a queue: options and type as the store keeps them, as JSON."""

    name: str
    configuration: str | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What an export begins with. `id` is its own: one export is imported once."""

    fifoq_export: int = 1
    id: str
    store: str
    queues: list[QueueHeader]
    exported_at: int
    about_records: int = 0
    """How many there seemed to be when it was begun."""


class End(msgspec.Struct, frozen=True):
    """What an export ends with: how many records it holds."""

    fifoq_end: int


def rows_of(block: RecordBlock, attempts: dict[int, int]) -> Iterator[Row]:
    """The records of a block. FormatError for columns that no queue of fifoq writes."""
    columns = cast("dict[int, Any]", block.columns)
    keys = zip(block.counters(), block.times(), block.payloads(), strict=True)
    if not columns and not attempts:
        for counter, time, data in keys:
            yield Row(queue=block.queue, counter=counter, timestamp=time, data=data)
        return
    for index, (counter, time, data) in enumerate(keys):
        given: dict[str, Any] = {
            name: columns[bit][index] for bit, name in _NUMBERS.items() if bit in columns
        }
        try:
            if HEADERS in columns:
                given["headers"] = decode_headers(columns[HEADERS][index])
            for bit, name in _TEXTS.items():
                if bit in columns:
                    given[name] = columns[bit][index].decode()
        except (FormatError, UnicodeDecodeError) as error:
            raise FormatError(
                f"queue {block.queue!r}, counter {counter}: its columns are not what a queue "
                f"writes ({error}). A backup carries them as they are."
            ) from None
        attempt = attempts.get(counter, 0)
        yield Row(
            queue=block.queue,
            counter=counter,
            timestamp=time,
            data=data,
            attempt=attempt,
            **given,
        )


_NUMBERS: Final = {DELIVER_AT: "deliver_at", EXPIRES_AT: "expires_at", PRIORITY: "priority"}
_TEXTS: Final = {ORDERING_KEY: "ordering_key", DEDUP_ID: "dedup_id"}


def columns_of(rows: Sequence[Row]) -> dict[int, Column] | None:
    """The optional columns that these rows need."""
    columns: dict[int, Column] = {}
    for bit, name in _NUMBERS.items():
        numbers: list[int] = [getattr(row, name) for row in rows]
        if numbers.count(_DEFAULTS[bit]) < len(numbers):
            columns[bit] = numbers
    for bit, name in _TEXTS.items():
        texts = [getattr(row, name).encode() for row in rows]
        if any(texts):
            columns[bit] = texts
    if any(row.headers for row in rows):
        columns[HEADERS] = [encode_own_headers(row.headers) if row.headers else b"" for row in rows]
    return columns or None


_DEFAULTS: Final = {DELIVER_AT: 0, EXPIRES_AT: 0, PRIORITY: PRIORITY_DEFAULT}


def check_row(row: Row, number: int) -> Row:
    """The row itself. FormatError names what no store can hold; `number` says which row it is."""
    wrong = [
        f"{name}={value}"
        for name, value, most in (
            ("counter", row.counter, COUNTER_MAX),
            ("timestamp", row.timestamp, TIME_MAX),
            ("deliver_at", row.deliver_at, TIME_MAX),
            ("expires_at", row.expires_at, TIME_MAX),
            ("priority", row.priority, PRIORITY_MAX),
            ("attempt", row.attempt, ATTEMPT_MAX),
        )
        if not 0 <= value <= most
    ]
    if wrong:
        raise FormatError(f"record {number}: {', '.join(wrong)} is out of range")
    return row
