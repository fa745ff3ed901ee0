"""How a row is measured: settings, turns, medians, and what a finished row looks like.

Two sides of a row run in turns (ABAB…) in one process and on one loop, so that a machine that
slows down slows both. What counts is the median of the rounds' ratios. Garbage is collected
before each turn, so that no side pays for what the other left, and stays on during it.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import uvloop

import fifoq

PAYLOAD_BYTES = 100
BATCH_RECORDS = 100
ROUNDS = 9
QUICK_DIVISOR = 500
"""`--quick` does this small a part of the work: enough to see that every row runs."""

# Distinct objects: joining one object again and again would flatter whoever joins.
_PAYLOADS = [os.urandom(PAYLOAD_BYTES) for _ in range(10 * BATCH_RECORDS)]
BATCH = _PAYLOADS[:BATCH_RECORDS]
BATCH_BYTES = b"".join(BATCH)

BytesQueue: TypeAlias = "fifoq.Queue[bytes]"
Durability = Literal["memory", "os", "sync"]

Side = Callable[[], Awaitable[float]]
"""One turn of one side; the seconds that its timed part took."""


class Setting(msgspec.Struct, frozen=True):
    """Where to measure and how much."""

    scratch: Path
    rounds: int = ROUNDS
    quick: bool = False

    def count(self, full: int) -> int:
        """`full`, or in a quick run a small part of it."""
        return max(full // QUICK_DIVISOR, 20) if self.quick else full

    @contextmanager
    def fresh(self, name: str) -> Iterator[Path]:
        """A path under the scratch directory where nothing is; whatever came there is deleted."""
        path = self.scratch / name
        try:
            yield path
        finally:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


class Row(msgspec.Struct, frozen=True):
    """One line of the report: `value` against `target`; more is better if `more`.

    `figures` are the absolute ones behind it, for scripts; `detail` says them to people. `group` is
    what `--rows` calls it.
    """

    name: str
    value: float
    unit: str
    target: float
    more: bool
    detail: str = ""
    figures: dict[str, float] = {}
    group: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.more else self.value <= self.target

    @property
    def share(self) -> float:
        """How much of the target is reached: 1.0 just meets it, more is better."""
        if self.more:
            return self.value / self.target
        return self.target / self.value if self.value > 0 else float("inf")


class Absent(msgspec.Struct, frozen=True):
    """A row or a peer that was not measured, and what to install for it."""

    name: str
    why: str


class Group(NamedTuple):
    """Rows that are measured together, under the name that `--rows` takes."""

    name: str
    run: Callable[[Setting], list[Row | Absent]]


class Compared(NamedTuple):
    """Seconds of both sides, round by round."""

    ours: list[float]
    yardstick: list[float]

    @property
    def ratio(self) -> float:
        """How many times as fast as the yardstick; 1.0 is as fast."""
        return statistics.median(
            theirs / ours for ours, theirs in zip(self.ours, self.yardstick, strict=True)
        )


AsyncRows = Callable[[Setting], Coroutine[Any, Any, list[Row | Absent]]]


def on_loop(rows: AsyncRows) -> Callable[[Setting], list[Row | Absent]]:
    """Rows that need an event loop, each group on a new uvloop of its own."""
    return lambda setting: uvloop.run(rows(setting))


async def alternate(setting: Setting, ours: Side, yardstick: Side) -> Compared:
    """Both sides in turns."""
    (first, second) = await in_turns(setting, ours, yardstick)
    return Compared(first, second)


async def in_turns(setting: Setting, *sides: Side) -> list[list[float]]:
    """What each side returned, round by round."""
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(setting.rounds):
        for side, results in zip(sides, found, strict=True):
            results.append(await side())
    return found


async def timed(work: Awaitable[object]) -> float:
    """Seconds that `work` takes."""
    gc.collect()
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


@asynccontextmanager
async def open_queue(
    setting: Setting, durability: Durability, **options: Any
) -> AsyncIterator[BytesQueue]:
    """A new queue in the scratch directory, deleted afterwards."""
    with setting.fresh("queue") as path:
        async with fifoq.open(str(path), durability=durability, **options) as queue:
            yield queue


def records(count: int) -> list[bytes]:
    """So many payloads of 100 bytes."""
    repeats = -(-count // len(_PAYLOADS))
    return (_PAYLOADS * repeats)[:count]


def ratio_row(name: str, compared: Compared, *, count: int, target: float, yardstick: str) -> Row:
    """A row that says how fast we are, as a multiple of the yardstick."""
    ours = count / statistics.median(compared.ours)
    theirs = count / statistics.median(compared.yardstick)
    return Row(
        name,
        compared.ratio,
        "×",
        target,
        True,
        f"{rate(ours)} against {rate(theirs)} ({yardstick})",
        {"per_second": ours, "yardstick_per_second": theirs},
    )


def rate(per_second: float) -> str:
    """So many per second, to three digits: `1.23 M/s`."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if per_second >= limit:
            return f"{per_second / limit:.3g} {unit}/s"
    return f"{per_second:.3g} /s"


def duration(seconds: float) -> str:
    """A time to three digits: `123 µs`."""
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs")):
        if seconds >= limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
