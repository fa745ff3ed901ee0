"""Routing: which of several actors gets a message. Plain rules that send nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Literal, Protocol

from actors.ref import Ref

Routing = Literal["round-robin", "least-loaded", "by-key", "broadcast"]
ROUTINGS: tuple[Routing, ...] = ("round-robin", "least-loaded", "by-key", "broadcast")

POINTS = 64
"""Points of one member on the ring: the more, the more evenly keys are spread."""


class Rule(Protocol):
    """Picks from members that are open; there is at least one."""

    def pick(self, members: Sequence[Ref[Any]], message: Any) -> Sequence[Ref[Any]]:
        """Those that get the message."""
        ...


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._turn = -1

    def pick(self, members: Sequence[Ref[Any]], message: Any) -> Sequence[Ref[Any]]:
        self._turn = (self._turn + 1) % len(members)
        return (members[self._turn],)


class LeastLoaded(RoundRobin):
    """The one with the fewest messages, in hand and waiting; one after the other among equals."""

    def pick(self, members: Sequence[Ref[Any]], message: Any) -> Sequence[Ref[Any]]:
        super().pick(members, message)
        first = self._turn
        self._turn = min(
            range(first, first + len(members)), key=lambda at: members[at % len(members)]._load()
        ) % len(members)
        return (members[self._turn],)


class ByKey:
    """Always the same one for a key; if a member is gone, only its keys go to others.

    The same in every process and after every start: names and keys decide, nothing else.
    """

    def __init__(self, key: Callable[[Any], str]) -> None:
        self._key = key
        self._ring: list[tuple[int, int]] = []
        self._names: tuple[str, ...] = ()

    def pick(self, members: Sequence[Ref[Any]], message: Any) -> Sequence[Ref[Any]]:
        names = tuple(member.name for member in members)
        if names != self._names:
            self._names = names
            self._ring = sorted(
                (_hash(f"{name}#{point}"), index)
                for index, name in enumerate(names)
                for point in range(POINTS)
            )
        at = bisect_right(self._ring, (_hash(self._key(message)), len(names)))
        return (members[self._ring[at % len(self._ring)][1]],)


class Broadcast:
    """All of them."""

    def pick(self, members: Sequence[Ref[Any]], message: Any) -> Sequence[Ref[Any]]:
        return tuple(members)


def rule_of(routing: Routing, key: Callable[[Any], str] | None) -> Rule:
    """The rule of that name. ValueError for what makes no sense."""
    if (key is not None) != (routing == "by-key"):
        raise ValueError("key and the routing 'by-key' are of use only together")
    match routing:
        case "round-robin":
            return RoundRobin()
        case "least-loaded":
            return LeastLoaded()
        case "by-key":
            assert key is not None
            return ByKey(key)
        case "broadcast":
            return Broadcast()
        case _:
            raise ValueError(f"routing is {routing!r}: it must be one of {ROUTINGS}")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
