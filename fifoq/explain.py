"""Explaining: what became of one record, from the log alone, for people and for scripts.

Never the payload, and of headers only the names. What the log does not tell is said not to be
recorded: when a frame was written, when a record was handed out, why and when it came back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from fifoq.burying import PREFIX, SUFFIX
from fifoq.codec import decode_headers
from store import FifoqError, Key, Reader
from store.blocks import (
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    REASONS,
)
from store.genesis import check_name
from store.journey import Journey, Step

State = Literal[
    "ready",
    "delayed",
    "leased",
    "there",
    "taken",
    "acked",
    "expired",
    "dropped",
    "dead-lettered",
    "purged",
    "removed",
    "reclaimed",
    "skipped",
    "not put",
]
SECOND: Final = 1_000_000_000
_COLUMNS: Final = {
    DELIVER_AT: "deliver_at",
    EXPIRES_AT: "expires_at",
    PRIORITY: "priority",
    HEADERS: "headers",
    DEDUP_ID: "dedup_id",
    ORDERING_KEY: "ordering_key",
}
_NOT_RECORDED: Final = "not recorded"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a record. `frame`, `segment` and `offset` say where the log tells of it."""

    what: str
    """put, leased, returned, moved, restored, or how it was removed."""
    time: int | None = None
    """Nanoseconds since the epoch; None: not recorded."""
    attempt: int = 0
    frame: int = 0
    segment: int = 0
    offset: int = 0
    note: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a record. `str()` of it is a time line for people."""

    queue: str
    counter: int
    key: Key | None
    """None if nothing that is left tells when it was put."""
    state: State
    events: list[Event]
    size: int | None
    """Bytes of its payload."""
    headers: list[str]
    columns: list[str]
    """Names of what the put gave beside the payload."""
    buffered: float | None
    """Seconds from the put until its frame was put together; None: not recorded."""
    attempts: int
    """How often it was leased, as far as that was recorded."""
    dead_letter: tuple[str, int] | None
    """Queue and counter of the dead letter that it became."""
    damage: list[str]
    """Where the log can not be read: what was told there is not known."""

    def __str__(self) -> str:
        rows = [("what", "when", "frame", "where", "")]
        rows += [_row(event) for event in self.events]
        widths = [max(len(row[at]) for row in rows) for at in range(4)]
        lines = [f"{self.queue} {self.counter}: {self.state}"]
        if self.dead_letter is not None:
            lines.append(f"  now: {self.dead_letter[0]} {self.dead_letter[1]}")
        if self.columns:
            lines.append(f"  with: {', '.join(self.columns)}")
        if self.headers:
            lines.append(f"  headers: {', '.join(self.headers)}")
        lines += [_line(row, widths) for row in (rows if self.events else [])]
        lines += [f"  damaged: {place}" for place in self.damage]
        return "\n".join(lines)


def _row(event: Event) -> tuple[str, str, str, str, str]:
    what = f"leased, attempt {event.attempt}" if event.attempt else event.what
    when = _moment(event.time) if event.time is not None else _NOT_RECORDED
    frame = str(event.frame) if event.frame else ""
    where = f"segment {event.segment}, byte {event.offset}" if event.frame else ""
    return what, when, frame, where, event.note


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join(["", *cells, row[-1]]).rstrip()


def _moment(time: int) -> str:
    whole, rest = divmod(time, SECOND)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1000:06}"


def counter_of(key: Key | int, queue: str) -> int:
    """The counter that was asked for. InvalidName, TypeError and ValueError for nonsense."""
    check_name(queue)
    counter = key.counter if isinstance(key, Key) else key
    if isinstance(counter, bool) or not isinstance(counter, int):
        raise TypeError(f"explain takes a Key or a counter, not {type(key).__name__}.")
    if counter < 1:
        raise ValueError(f"{counter} is no counter: they start at 1.")
    return counter


def explain(
    reader: Reader, queue: str, counter: int, live_state: Callable[[int], State] | None = None
) -> Explanation:
    """Read a record's journey and say what it means.

    `live_state` says what a record is that is there, given when it is to be delivered (0: at once);
    only the owner of a store knows.
    """
    journey = reader.journey(queue, counter)
    put = next((step for step in journey.steps if step.kind == "put"), None)
    known = put or next((step for step in journey.steps if step.size or step.time), None)
    columns = put.columns if put is not None else {}
    headers = columns.get(HEADERS, b"")
    assert isinstance(headers, bytes)
    events = _events(journey)
    deliver_at = columns.get(DELIVER_AT, 0)
    assert isinstance(deliver_at, int)
    placed = known is not None and known.kind in ("put", "moved", "restored")
    return Explanation(
        queue=queue,
        counter=counter,
        key=Key(counter, known.time) if known is not None and placed else None,
        state=_state(journey, events, live_state(deliver_at) if live_state else "there"),
        events=events,
        size=known.size if known is not None and placed else None,
        headers=list(decode_headers(headers)),
        columns=[name for bit, name in _COLUMNS.items() if columns.get(bit)],
        buffered=(put.frame_time - put.time) / SECOND if put and put.frame_time else None,
        attempts=max((step.attempt for step in journey.steps), default=journey.attempts),
        dead_letter=_dead_letter(reader, journey),
        damage=journey.damage,
    )


def _events(journey: Journey) -> list[Event]:
    events: list[Event] = []
    if journey.fate == "reclaimed":
        events.append(Event(what="put", note="the frame that told of it was reclaimed"))
    for step in journey.steps:
        if step.kind == "leased" and events and events[-1].what == "leased":
            events.append(Event(what="returned", note="nacked, run out or reopened: not recorded"))
        events.append(_event(step))
    if journey.left_out:
        events.append(Event(what="more", note=f"{journey.left_out} steps in between are left out"))
    if journey.unlogged is not None:
        reason, time = journey.unlogged
        events.append(
            Event(
                what=REASONS.get(reason, "removed"),
                time=time,
                note="on a full disk: reason and time are those of the newest that went then",
            )
        )
    elif not journey.live and not journey.fate and not _was_removed(journey):
        events.append(Event(what="removed", note="the frame that told of it was reclaimed"))
    return events


def _event(step: Step) -> Event:
    what, note = step.kind, ""
    time: int | None = step.time
    if step.kind == "put":
        note = f"{step.size} bytes, one of {step.frame_records} records of its commit"
        wait = (step.frame_time - step.time) / SECOND
        note += f", buffered {wait:.6f} s" if step.frame_time else ", buffered: not recorded"
    elif step.kind == "leased":
        time = None
        note = f"until {_moment(step.deadline)}" if step.deadline else ""
    elif step.kind == "removed":
        return _removal(step)
    else:
        note = "by compaction" if step.kind == "moved" else "its taker had left"
        time = None
    return Event(
        what=what,
        time=time,
        attempt=step.attempt,
        frame=step.sequence,
        segment=step.segment,
        offset=step.offset,
        note=note,
    )


def _removal(step: Step) -> Event:
    return Event(
        what=REASONS.get(step.reason, "removed"),
        time=step.time,
        frame=step.sequence,
        segment=step.segment,
        offset=step.offset,
    )


def _was_removed(journey: Journey) -> bool:
    last = [step.kind for step in journey.steps if step.kind in ("removed", "restored")][-1:]
    return last == ["removed"]


def _state(journey: Journey, events: list[Event], live: State) -> State:
    if journey.live:
        return live
    if journey.fate in ("not put", "skipped"):
        return journey.fate
    if journey.unlogged is not None or _was_removed(journey):
        names = [event.what for event in events if event.what in REASONS.values()]
        return names[-1] if names else "removed"  # type: ignore[return-value]
    return journey.fate or "removed"


def _dead_letter(reader: Reader, journey: Journey) -> tuple[str, int] | None:
    """The letter that its frame put; one of several is known by its headers."""
    letters = journey.queue + SUFFIX
    places = [p for step in journey.steps for p in step.dead_letters if p[0] == letters]
    for _, first, last in places:
        if first == last and len(places) == 1:
            return letters, first
        try:
            for block in reader.blocks(letters, first, last):
                column = block.columns.get(HEADERS)
                assert isinstance(column, list), "a dead letter has headers"
                for counter, headers in zip(block.counters(), column, strict=True):
                    if decode_headers(headers).get(PREFIX + "counter") == str(journey.counter):
                        return letters, counter
        except FifoqError:
            # Reclaimed or damaged: the place is known, the counter is not.
            continue
    return None
