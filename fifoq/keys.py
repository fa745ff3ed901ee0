"""Keys of records that were put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from store import Key


class Keys(Sequence[Key]):
    """Keys of records that were put together: consecutive ones of one time, made when looked at."""

    __slots__ = ("_count", "_first", "_time")

    def __init__(self, first: int, count: int, time: int) -> None:
        self._first, self._count, self._time = first, count, time

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Key: ...

    @overload
    def __getitem__(self, index: slice) -> list[Key]: ...

    def __getitem__(self, index: int | slice) -> Key | list[Key]:
        counters: Sequence[int] = range(self._first, self._first + self._count)
        if not self._first:
            # They were dropped: no record has any of these numbers.
            counters = (0,) * self._count
        if isinstance(index, slice):
            return [Key(counter, self._time) for counter in counters[index]]
        return Key(counters[index], self._time)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    def __hash__(self) -> int:
        return hash((self._first, self._count, self._time))

    def __repr__(self) -> str:
        if not self._first:
            return "<Keys none>"
        return f"<Keys {self._first}..{self._first + self._count - 1}>"


class GivenKeys(Keys):
    """Keys of which some may be those of earlier puts."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__(keys[0].counter if keys else 0, len(keys), 0)
        self._keys = keys

    @overload
    def __getitem__(self, index: int) -> Key: ...

    @overload
    def __getitem__(self, index: slice) -> list[Key]: ...

    def __getitem__(self, index: int | slice) -> Key | list[Key]:
        if isinstance(index, slice):
            return list(self._keys[index])
        return self._keys[index]

    def __repr__(self) -> str:
        return f"<Keys of {len(self)} records>"
