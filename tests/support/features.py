"""Rows of the page of features: numbers in the list of features, and what answers them.

A row names what is used and the tests that hold it to that, in short forms: `Queue.put` is a name
of fifoq, `put(ttl=)` a keyword of a put, and `fifoq/expiry::a_record_in_time_is_handed_out` is
`tests/fifoq/test_expiry.py::test_a_record_in_time_is_handed_out`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

State = Literal["there", "otherwise", "missing", "outside"]

RANGES: Final = (("L", 1, 125), ("E", 31, 43), ("G", 21, 45), ("G", 59, 101))
"""What the page covers: all of these numbers, each once."""


class Row(NamedTuple):
    """Neighbouring items that one thing answers, or of which one reason says why nothing does."""

    numbers: str
    words: str
    state: State
    api: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    note: str = ""

    def items(self) -> list[str]:
        """Its numbers one by one: `L1-L3, L7` is L1, L2, L3 and L7."""
        found = []
        for part in self.numbers.split(", "):
            match = re.fullmatch(r"([LEG])(\d+)(?:-\1(\d+))?", part)
            assert match is not None, part
            first = int(match[2])
            found += [f"{match[1]}{n}" for n in range(first, int(match[3] or first) + 1)]
        return found

    def test_names(self) -> list[str]:
        """Its tests as pytest names them."""
        return [_test_name(test) for test in self.tests]


def _test_name(short: str) -> str:
    path, _, name = short.partition("::")
    folder, _, stem = path.rpartition("/")
    return f"tests/{folder + '/' if folder else ''}test_{stem}.py::test_{name}"


def there(numbers: str, words: str, api: str, tests: str, note: str = "") -> Row:
    """Built, and held to by tests. `api` and `tests` are words between spaces."""
    return Row(numbers, words, "there", tuple(api.split()), tuple(tests.split()), note)


def otherwise(numbers: str, words: str, api: str, tests: str, note: str) -> Row:
    """The purpose is met in another way, which the note tells."""
    return Row(numbers, words, "otherwise", tuple(api.split()), tuple(tests.split()), note)


def missing(numbers: str, words: str, note: str) -> Row:
    """Not there; the note says why, and what to do without it."""
    return Row(numbers, words, "missing", note=note)


def outside(numbers: str, words: str, note: str) -> Row:
    """Not for a queue within a process, or nothing that can be built."""
    return Row(numbers, words, "outside", note=note)
