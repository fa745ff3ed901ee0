"""Runs: consecutive records with their put times, and what a commit takes of a queue.

Plain values and functions on them; nothing here knows which run stands where.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from fifoq.attributes import Attributes
from store.blocks import records_weight

SAME_TIME_NS: Final = 100_000
"""Puts and takes that are less apart than this share a time."""
COLUMN_BYTES: Final = 16
"""What a record needs in a frame beside its payload, at the most, without optional columns."""
RECORD_OVERHEAD: Final = 48
"""What a record in memory needs beside its bytes, about."""
TIME_RUNS_MAX: Final = 64
FRAME_BYTES_MAX: Final = 56 << 20
"""What a frame holds of records; one alone may be larger."""
LINES_PER_FRAME_MAX: Final = 8192

TimeRuns = list[tuple[int, int]]
"""From which counter on which time holds, rising."""
Removals = list[tuple[int, int, int]]
"""First and last counter, and their weight."""


class Returned(NamedTuple):
    """A record that goes back to its place in front of the others."""

    counter: int
    time: int
    payload: bytes
    attributes: Attributes | None = None

    @property
    def headers(self) -> bytes | None:
        """Encoded, if it has any."""
        return self.attributes.headers if self.attributes is not None else None


new_returned: Final[Callable[[tuple[int, int, bytes, Attributes | None]], Returned]] = partial(
    tuple.__new__, Returned
)
"""The same in half the time, for one at a time: a named tuple's own is a function of Python."""


class Run(NamedTuple):
    """Consecutive records: the first one's counter, payloads, put times."""

    first: int
    payloads: Sequence[bytes]
    times: TimeRuns
    item_bytes: int | None = None
    """The length of every payload, if it is the same and known."""

    @property
    def end(self) -> int:
        return self.first + len(self.payloads)


class Claim:
    """Records that a taker holds until their removal is committed."""

    __slots__ = ("left", "records", "sealed")

    def __init__(self, records: list[Returned]) -> None:
        self.records = records
        self.sealed = False
        self.left = False
        """The taker left after the seal: the records are on their way back."""

    @property
    def last(self) -> int:
        """The highest counter."""
        return max(record.counter for record in self.records)


class Batch(msgspec.Struct, eq=False):
    """What one commit holds of a queue."""

    runs: list[Run] = []
    shown: int = 0
    """Counters below this are in the hands of takers already."""
    first: int = 0
    upto: int = 0
    strong_first: int = 0
    hidden: int = 0
    """How many of the records nobody may take before the commit."""
    frame_bytes: int = 0
    attributes: dict[int, Attributes] = {}
    marks: dict[int, tuple[str, bytes | None]] = {}
    taken: Removals = []
    acked: Removals = []
    dropped: Removals = []
    joined: list[tuple[int, tuple[int, int, int]]] = []
    """Removals of joints, each with its reason: they are back with their joints if refused."""
    expired: Removals = []
    purged: Removals = []
    claims: list[Claim] = []
    leases: dict[int, int] = {}
    restored: list[Returned] = []
    away: list[Returned] = []
    """What would have been restored, had it not been taken before."""
    configuration: bytes | None = None
    delay_ns: int = 0

    @property
    def removes(self) -> bool:
        return bool(self.removals)

    @property
    def removals(self) -> Removals:
        joined = [removal for _, removal in self.joined]
        return [*self.taken, *self.acked, *self.dropped, *self.expired, *self.purged, *joined]

    def __bool__(self) -> bool:
        return bool(
            self.runs
            or self.removes
            or self.leases
            or self.restored
            or self.configuration
            or self.marks
        )


def removal_of(record: Returned) -> tuple[int, int, int]:
    counter, _, payload, _ = record
    return counter, counter, records_weight(len(payload), 1)


def removals_of(lengths: Mapping[int, int]) -> Removals:
    """Ranges of records, whose payloads have these lengths; few, since most follow each other."""
    if not lengths:
        return []
    counters = list(lengths)
    first, last = counters[0], counters[-1]
    if counters == list(range(first, last + 1)):
        return [(first, last, records_weight(sum(lengths.values()), len(lengths)))]
    return [(counter, counter, records_weight(size, 1)) for counter, size in lengths.items()]


def before(counter: int, removals: Removals) -> tuple[Removals, Removals]:
    """Removals of records below a counter, and the others; a range across it is cut in two."""
    early: Removals = []
    late: Removals = []
    for first, last, weight in removals:
        if last < counter:
            early.append((first, last, weight))
        elif first >= counter:
            late.append((first, last, weight))
        else:
            share = weight * (counter - first) // (last - first + 1)
            early.append((first, counter - 1, share))
            late.append((counter, last, weight - share))
    return early, late


def stretch_between(holes: Container[int], start: int, stop: int) -> tuple[int, int]:
    """The first counters from `start` up to `stop` of which none is a hole."""
    while start < stop and start in holes:
        start += 1
    end = start
    while end < stop and end not in holes:
        end += 1
    return start, end


def first_of(records: list[Returned], bytes_max: int) -> int:
    """How many records from the first on have together at most that many bytes; at least one."""
    count = size = 0
    for record in records:
        size += len(record.payload) + COLUMN_BYTES
        if count and size > bytes_max:
            break
        count += 1
    return count


def run_bytes(run: Run) -> int:
    """What a run needs in memory, about."""
    if run.item_bytes is not None:
        return (run.item_bytes + RECORD_OVERHEAD) * len(run.payloads)
    return sum(map(len, run.payloads)) + RECORD_OVERHEAD * len(run.payloads)


def part_of(run: Run, start: int, stop: int) -> Run:
    """The records of a run from counter `start` up to `stop`."""
    if start == run.first and stop == run.end:
        return run
    payloads = run.payloads[start - run.first : stop - run.first]
    return Run(start, payloads, times_from(run.times, start), run.item_bytes)


def times_from(times: TimeRuns, counter: int) -> TimeRuns:
    """The times that hold from `counter` on."""
    return times[max(0, index_at(times, counter)) :]


def time_runs(run: Run) -> list[tuple[int, int]]:
    """How many records of a run share which time, as a block wants it."""
    times = run.times
    if len(times) == 1:
        return [(len(run.payloads), times[0][1])]
    counted, end = [], run.end
    for at, (first, time) in enumerate(times):
        first = max(first, run.first)
        stop = min(times[at + 1][0], end) if at + 1 < len(times) else end
        if stop > first:
            counted.append((stop - first, time))
    return counted


def coarse_times(first: int, times: Sequence[int]) -> TimeRuns:
    """Put times of consecutive records as few stretches, each with its first record's time."""
    step = max(SAME_TIME_NS, (times[-1] - times[0]) // TIME_RUNS_MAX)
    runs, at = [], 0
    while at < len(times):
        runs.append((first + at, times[at]))
        at = bisect_right(times, times[at] + step, at)
    return runs


def index_at(times: TimeRuns, counter: int) -> int:
    return bisect_right(times, counter, key=_first_of) - 1


def _first_of(mark: tuple[int, int]) -> int:
    return mark[0]


def runs_without_holes(first: int, payloads: Sequence[bytes | None], times: TimeRuns) -> list[Run]:
    runs: list[Run] = []
    start = 0
    while start < len(payloads):
        stop = start
        while stop < len(payloads) and payloads[stop] is not None:
            stop += 1
        if stop > start:
            part: list[bytes] = payloads[start:stop]  # type: ignore[assignment]
            runs.append(Run(first + start, part, times_from(times, first + start)))
        start = stop + 1
    return runs
