"""Rounds over many stores: each store lives through some crashes, then a new one is made.

Long lives reach rotation, reclaiming and compaction; short ones keep hitting creation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.rigs.oracle import Oracle

LONG_LIFE = 50


@dataclass
class Tally:
    """What came of a round, over all of its stores."""

    crash_count: int = 0
    confirmed_count: int = 0
    violations: list[str] = field(default_factory=list)
    interrupted: Counter[str] = field(default_factory=Counter)

    def add(self, oracle: Oracle, where: str) -> None:
        self.crash_count += oracle.crash_count
        self.confirmed_count += oracle.confirmed_count
        self.violations += [f"{where}, {text}" for text in oracle.violations]
        self.interrupted += oracle.interrupted


def life_lengths(random: Random, total: int) -> Iterator[int]:
    """How many crashes each store is to live through, until there were `total`."""
    while total > 0:
        length = min(total, random.choice((1, 2, 3, LONG_LIFE)))
        total -= length
        yield length
