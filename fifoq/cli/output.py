"""Output: records, tables and JSON, for people, pipes and scripts.

Records go to stdout as bytes. On a terminal nothing that a record holds can move the cursor. Colour
is used on terminals alone, and not where NO_COLOR is set.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from store import Key

SECOND: Final = 1_000_000_000
UNITS: Final = "kMGTPE"
BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"

_DURATIONS: Final = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"))

Cell = str | int | float | None


class RecordView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as JSON: `data` is text, or the value of a typed queue; other bytes are `base64`."""

    queue: str
    counter: int
    key: str
    time: str
    headers: dict[str, str] = {}
    attempt: int = 0
    data: Any = msgspec.UNSET
    base64: str | msgspec.UnsetType = msgspec.UNSET


class RecordWriter:
    """Prints records in the way that was asked for."""

    def __init__(
        self,
        queue: str,
        *,
        json: bool = False,
        null: bool = False,
        long: bool = False,
        raw: bool = False,
    ) -> None:
        self._queue = queue
        self._json, self._long, self._raw = json, long, raw
        self._end = b"\0" if null else b"\n"
        self._out = sys.stdout.buffer
        self._escape = sys.stdout.isatty()

    def write(
        self,
        key: Key,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        typed: bool = False,
        attempt: int = 0,
    ) -> None:
        """BrokenPipeError if nobody reads it."""
        self._out.write(self.line(key, payload, headers, typed=typed, attempt=attempt))

    def line(
        self,
        key: Key,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        typed: bool = False,
        attempt: int = 0,
    ) -> bytes:
        """A record as it is printed, with its end."""
        if self._json:
            return as_json(self._view(key, payload, headers, typed, attempt)) + b"\n"
        data = value_json(payload) if typed and not self._raw else payload
        if self._escape:
            data = escaped(data)
        if self._long:
            told = [f"{key.counter}", moment(key.timestamp), f"{len(payload)} B"]
            told += [f"{name}={value!r}" for name, value in headers.items()]
            data = "  ".join(told).encode() + b"  " + data
        return data + self._end

    def flush(self) -> None:
        """On return whoever reads has them, or BrokenPipeError."""
        self._out.flush()

    async def hand_over(self, data: bytes) -> None:
        """The same for bytes, while the loop goes on, however long whoever reads takes."""
        from fifoq.cli.handing import hand_over

        await hand_over(self._out, data)

    def _view(
        self, key: Key, payload: bytes, headers: Mapping[str, str], typed: bool, attempt: int
    ) -> RecordView:
        return RecordView(
            queue=self._queue,
            counter=key.counter,
            key=bytes(key).hex(),
            time=moment(key.timestamp),
            headers=dict(headers),
            attempt=attempt,
            **shown_data(payload, typed=typed and not self._raw),
        )


def shown_data(payload: bytes, *, typed: bool = False) -> dict[str, Any]:
    """A payload as a field of JSON: `data` if it is a value or text, else `base64`."""
    if typed:
        return {"data": msgspec.Raw(value_json(payload))}
    try:
        return {"data": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def value_json(payload: bytes) -> bytes:
    """What a typed queue holds, as JSON; the bytes themselves if they are no msgpack."""
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError, RecursionError):
        return payload


def escaped(data: bytes) -> bytes:
    """The same with everything that a terminal would act upon, or cannot show, as an escape."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text.encode()
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown).encode()


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_json(value: Any) -> None:
    """One line."""
    print(as_json(value).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Columns as wide as they must be, numbers to the right; nothing at all without rows."""
    if not rows:
        return
    cells = [[_cell(cell) for cell in row] for row in rows]
    right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    print(_bold(_line(columns, widths, right)))
    for row in cells:
        print(_line(row, widths, right))


def print_facts(facts: Mapping[str, Cell]) -> None:
    """Names and values below each other."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        print(f"{_bold(name.ljust(width))}  {_cell(value)}")


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(placed).rstrip()


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def colours() -> bool:
    """Whether stdout is a terminal whose user has nothing against colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def _bold(text: str) -> str:
    return f"{_BOLD}{text}{_PLAIN}" if colours() else text


def moment(time: int) -> str:
    """Nanoseconds since the epoch in UTC, with microseconds, or "never"."""
    if not time:
        return "never"
    whole, rest = divmod(time, SECOND)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z"


def ago(time: int, now: int) -> str:
    """How long ago that was."""
    return f"{duration((now - time) / SECOND)} ago" if time else "never"


def duration(seconds: float | None) -> str:
    """A length of time, short."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    for limit, size, unit in _DURATIONS:
        if seconds < limit:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86400:.3g} d"


def _three_digits(number: float) -> str:
    """The number to three digits, never as a power of ten."""
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def size_text(count: int | None) -> str:
    """Bytes, short."""
    if count is None:
        return "-"
    size = float(count)
    for unit in BYTE_UNITS:
        if size < 1024 or unit == BYTE_UNITS[-1]:
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{_three_digits(size)} {unit}"


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
