"""What the services said they began and what was confirmed to them, and what a table owes to that.

A service says it on a pipe, which outlives it: what it had said when it was killed is known here.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

OPENED: Final = b"o"
"""The store is open: the number is the microseconds that took."""
BEGUN, CONFIRMED = b"p", b"P"
"""A put begins; a put has returned."""
HANDLED: Final = b"h"
"""An account has put the entry of an order."""

Name = tuple[int, int, int]
"""An order: the life of the service, the client, its number there."""
_SAID: Final = struct.Struct("<cHHIQ")


def say(kind: bytes, name: Name) -> None:
    """Write one line of the books to stdout, with the time; a short write cannot happen."""
    os.write(1, _SAID.pack(kind, *name, time.monotonic_ns()))


def said(kind: bytes, name: Name, moment: int) -> bytes:
    """What `say` writes."""
    return _SAID.pack(kind, *name, moment)


class Row(NamedTuple):
    """An entry of the ledger as it is found at the end."""

    name: Name
    account: int
    cents: int
    balance: int


class Kill(NamedTuple):
    """A life that ended by SIGKILL."""

    moment: int
    under_way: int
    """Puts that had begun and not returned."""


class Books:
    """What all services said so far."""

    def __init__(self) -> None:
        self.begun: dict[Name, int] = {}
        self.confirmed: dict[Name, tuple[int, int]] = {}
        """With the moments, in nanoseconds, at which the put began and returned."""
        self.opened: list[float] = []
        """Seconds that each opening took."""
        self.handled = 0
        self.kills: list[Kill] = []
        self.under_way: set[Name] = set()
        """Puts of the service that runs which have begun and not returned."""
        self._rest = b""

    def note(self, data: bytes) -> None:
        """Take in what came from the pipe, cut anywhere."""
        data = self._rest + data
        end = len(data) - len(data) % _SAID.size
        self._rest = data[end:]
        for kind, life, client, number, moment in _SAID.iter_unpack(data[:end]):
            name = (life, client, number)
            if kind == BEGUN:
                self.begun[name] = moment
                self.under_way.add(name)
            elif kind == CONFIRMED:
                self.confirmed[name] = (self.begun[name], moment)
                self.under_way.discard(name)
            elif kind == HANDLED:
                self.handled += 1
            elif kind == OPENED:
                self.opened.append(number / 1e6)

    def note_kill(self, moment: int) -> None:
        """The service is dead. What the kill cut short was never said."""
        self._rest = b""
        self.kills.append(Kill(moment, len(self.under_way)))
        self.under_way.clear()

    def seconds(self) -> list[float]:
        """How long each put waited that was confirmed."""
        return [(end - begin) / 1e9 for begin, end in self.confirmed.values()]

    def promises(self, rows: Sequence[Row], balances: dict[int, int]) -> list[tuple[str, int]]:
        """Each promise, and how often these rows, in this order, and these balances break it."""
        names = [row.name for row in rows]
        there = set(names)
        sums = Counter[int]()
        for row in rows:
            sums[row.account] += row.cents
        accounts = sums.keys() | balances.keys()
        return [
            ("every confirmed order is in the table", len(self.confirmed.keys() - there)),
            ("none is there twice", len(names) - len(there)),
            ("none was invented", len(there - self.begun.keys())),
            ("each client's orders are in their order", _out_of_order(names)),
            ("each balance in the table follows from the one before", _wrong_balances(rows)),
            (
                "the actors' balances are the sums of the table",
                sum(sums[account] != balances.get(account, 0) for account in accounts),
            ),
        ]


def _out_of_order(names: Sequence[Name]) -> int:
    last: dict[int, Name] = {}
    count = 0
    for name in names:
        count += name < last.get(name[1], name)
        last[name[1]] = name
    return count


def _wrong_balances(rows: Sequence[Row]) -> int:
    last = Counter[int]()
    count = 0
    for row in rows:
        count += last[row.account] + row.cents != row.balance
        last[row.account] = row.balance
    return count
