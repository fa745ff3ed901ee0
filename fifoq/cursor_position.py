"""Where a cursor is: what is kept of it in the log, and what is done in memory.

Pure: no files, no loop. A position says that every record below a counter is done, and which ones
above it, since members that share a cursor end in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from store import CorruptionError
from store.ranges import RangeSet

_PREFIX: Final = "cursor/"


class CursorPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the log keeps of a cursor.

    Every record below `counter` is done, and so are those of the ranges `done`. `first` is the
    first record that is not, if there was one when this was written, else 0: should it be gone one
    day, since the cursor was let go, that is how it is known. `written_at` is in nanoseconds since
    the epoch.
    """

    counter: int
    done: tuple[tuple[int, int], ...] = ()
    first: int = 0
    written_at: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CursorPosition).decode


def state_name(queue: str, cursor: str) -> str:
    """Under which name the log keeps the position."""
    return f"{_PREFIX}{queue}/{cursor}"


def cursor_names(states: Iterable[str]) -> list[tuple[str, str]]:
    """Queue and name of each cursor among the names of states."""
    parts = [n.removeprefix(_PREFIX).rpartition("/") for n in states if n.startswith(_PREFIX)]
    return [(queue, name) for queue, _, name in parts if queue]


def encode_position(position: CursorPosition) -> bytes:
    return _encode(position)


def decode_position(value: bytes, path: str, name: str) -> CursorPosition:
    """The position. CorruptionError if the bytes are none, which only a stranger can have done."""
    try:
        return _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptionError(path, 0, f"state {name!r} is no position of a cursor") from error


class Done:
    """Which records a cursor has done, as far as memory knows."""

    __slots__ = ("_above", "counter")

    def __init__(self, position: CursorPosition) -> None:
        self.counter = position.counter
        """Every record below is done."""
        self._above = RangeSet(position.done)

    def __contains__(self, counter: int) -> bool:
        return counter < self.counter or counter in self._above

    @property
    def above(self) -> tuple[tuple[int, int], ...]:
        """What is done above the first that is not."""
        return tuple(self._above)

    def add(self, first: int, last: int) -> None:
        """Records first..last are done; counters between them that no record has are as well."""
        if first > self.counter:
            self._above.add(first, last)
        elif last >= self.counter:
            self.counter = self._above.pop_through(last) + 1
