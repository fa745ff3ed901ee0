"""Drafts: what one commit will hold, gathered before anything is written.

A draft encodes blocks as they are added and plans each touched queue's next genesis entry beside
the current one. Dropping a draft, or failing to commit it, changes nothing.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from store.blocks import (
    COUNTERS,
    MOVED,
    OPTIONAL_COLUMNS,
    RECORDS,
    TAKEN,
    Column,
    encode_leases,
    encode_records,
    encode_removed,
    encode_state,
    records_weight,
    state_weight,
)
from store.checkpoint import UnloggedEntry
from store.checksum import Buffer
from store.errors import CounterExhausted, ItemTooLarge, StaleDraft
from store.frames import BLOCK_COUNT_MAX, BODY_BYTES_MAX
from store.genesis import Genesis
from store.index import SegmentIndex
from store.keys import COUNTER_MAX
from store.ranges import RangeSet
from store.state import QueueState, State

GENESIS_BYTES_MAX = 1 << 10
"""Room that is kept for each genesis entry, configuration aside."""

# What a draft can add to the JSON of a checkpoint, where numbers have up to 20 digits.
GENESIS_GROWTH = 320
RANGE_GROWTH = 128
LEASE_GROWTH = 48
JSON_GROWTH = 6
"""Of one byte: a control character is written with six."""


_NOT_A_LIST = (bytes, bytearray, memoryview, str)
_UNENCODABLE = (TypeError, OverflowError, struct.error)


class Plan:
    """A queue's genesis after the commit, and what leads there."""

    __slots__ = ("base", "genesis", "index", "puts", "queue", "removed", "restored")

    def __init__(self, queue: QueueState, index: int) -> None:
        self.queue = queue
        self.index = index
        self.base: Genesis = queue.genesis
        self.genesis: Genesis = copy.copy(queue.genesis)
        self.puts: list[tuple[int, int, int]] = []
        self.removed: RangeSet | None = None
        self.restored: list[int] = []

    def is_live(self, counter: int) -> bool:
        """Whether a record of before the draft is live with what the draft did so far."""
        if self.removed is not None and counter in self.removed:
            return False
        return counter in self.restored or self.queue.is_live(counter)

    def live_in(self, first: int, last: int) -> int:
        """Live counters of first..last, those that this draft puts or restores included."""
        queue = self.queue
        known = queue.genesis.next_counter - 1
        count = queue.live_count(first, min(last, known)) if first <= known else 0
        for start, stop, _ in self.puts:
            count += max(0, min(last, stop) - max(first, start) + 1)
        for counter in self.restored:
            count += first <= counter <= last and not queue.is_live(counter)
        return count

    def all_removed(self) -> RangeSet:
        """Counters that the draft removes or skips; made when there are any."""
        if self.removed is None:
            self.removed = RangeSet()
        return self.removed

    def finish(self) -> None:
        """Settle the floor, once every block is in."""
        genesis, queue = self.genesis, self.queue
        expected = queue.genesis.next_counter
        for first, last, _ in self.puts:
            if first > expected:
                self.all_removed().add(expected, first - 1)
            expected = last + 1
        if self.removed is not None:
            genesis.floor = queue.floor_after(self.removed)
        for counter in self.restored:
            genesis.floor = min(genesis.floor, counter - 1)


class _Put(NamedTuple):
    queue: QueueState
    first: int
    records: int
    weight: int
    time: int
    last_time: int


class _Remove(NamedTuple):
    queue: QueueState
    ranges: Sequence[tuple[int, int, int]]
    reason: int
    time: int


class _Move(NamedTuple):
    queue: QueueState
    counters: Sequence[int]
    weights: Sequence[int]
    time: int


class _Lease(NamedTuple):
    queue: QueueState
    counters: Sequence[int]
    attempts: Sequence[int]


class _States(NamedTuple):
    entries: Sequence[tuple[str, bytes | None]]


class Draft:
    """One commit in the making."""

    __slots__ = (
        "_effects",
        "_state",
        "block_count",
        "committed",
        "frees_segment",
        "holds_records",
        "now",
        "only_drains",
        "only_removes",
        "parts",
        "plans",
        "size",
    )

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self.now = now
        self.parts: list[Buffer] = []
        self.block_count = 0
        self.committed = False
        self.size = 0
        self.holds_records = False
        self.only_drains = True
        """It only takes away, or gives back what was taken: it may use the reserve."""
        self.frees_segment = False
        """It carries the rest out of a dead segment: it may use the reserve to the last byte."""
        self.only_removes = True
        """It holds nothing that a checkpoint does not: on a full disk one can stand for it."""
        self.plans: dict[str, Plan] = {}
        self._effects: list[_Put | _Remove | _Move | _Lease | _States] = []

    def put(
        self,
        queue: QueueState,
        payloads: Sequence[Buffer],
        *,
        first: int | None = None,
        times: Sequence[int] | None = None,
        time_runs: Sequence[tuple[int, int]] | None = None,
        columns: dict[int, Column] | None = None,
        item_bytes: int | None = None,
    ) -> int:
        """Add records; returns the counter of the first. They follow each other without a gap.

        `first` is given when counters were handed out before; it may leave a gap, never go back.
        Put times are one for each record (`times`), or how many records share which time
        (`time_runs`), or now. They are clamped so that a queue's never go back. `item_bytes` is
        given if every payload is known to have that length.
        """
        plan = self._plan(queue)
        genesis = plan.genesis
        if isinstance(payloads, _NOT_A_LIST):
            raise TypeError(f"payloads is a list of bytes, not {type(payloads).__name__}")
        count = len(payloads)
        if first is None:
            first = genesis.next_counter
        last = first + count - 1
        if first < genesis.next_counter:
            raise ValueError(f"first={first} is below the next counter {genesis.next_counter}")
        if not count:
            return first
        if last > COUNTER_MAX:
            raise CounterExhausted(f"queue {queue.name!r}: counter {last} is over {COUNTER_MAX}")
        time = genesis.last_put_time
        if time_runs is not None:
            time_runs = _clamped_runs(time_runs, time, count)
            time, last_time = time_runs[0][1], time_runs[-1][1]
        elif times is not None:
            if len(times) != count:
                raise ValueError(f"{len(times)} times for {count} records")
            times = _clamped(times, time)
            time, last_time = times[0], times[-1]
        else:
            time = last_time = max(time, self.now)
        if columns:
            _check_columns(columns, count)
        try:
            parts, payload_bytes = encode_records(
                payloads,
                queue=plan.index,
                first=first,
                time=time,
                times=times,
                time_runs=time_runs,
                columns=columns,
                item_bytes=item_bytes,
            )
        except _UNENCODABLE as error:
            _check_payloads(payloads)
            raise _unencodable(error) from None
        self._add(parts)
        weight = records_weight(payload_bytes, count)
        plan.puts.append((first, last, weight))
        self.holds_records = True
        self._needs_space()
        genesis.next_counter = last + 1
        genesis.queue_bytes += payload_bytes
        genesis.total_put_count += count
        genesis.last_put_time = last_time
        self._effects.append(_Put(queue, first, count, weight, time, last_time))
        _resize(genesis, count, self.now)
        return first

    def remove(
        self,
        queue: QueueState,
        ranges: Sequence[tuple[int, int, int]],
        *,
        reason: int = TAKEN,
        delay_ns: int = 0,
        time: int | None = None,
    ) -> int:
        """Remove counter ranges, each (first, last, weight); returns how many were live.

        Weights are what `records_weight` gives for the records of the range.
        """
        if not ranges:
            return 0
        plan = self._plan(queue)
        for first, last, _ in ranges:
            if not 0 < first <= last < plan.genesis.next_counter:
                raise ValueError(
                    f"queue {queue.name!r}: there are no records {first} to {last}; the next "
                    f"counter is {plan.genesis.next_counter}"
                )
        ranges = list(ranges)
        time = self.now if time is None else time
        try:
            parts = encode_removed(ranges, queue=plan.index, time=time, reason=reason)
        except _UNENCODABLE as error:
            raise _unencodable(error) from None
        self._add(parts)
        removed = plan.all_removed()
        count = 0
        weight_total = 0
        for first, last, weight in ranges:
            for start, stop in removed.missing(first, last):
                count += plan.live_in(start, stop)
            removed.add(first, last)
            plan.restored = [c for c in plan.restored if not first <= c <= last]
            weight_total += weight
        self._effects.append(_Remove(queue, ranges, reason, time))
        genesis = plan.genesis
        genesis.queue_bytes -= min(genesis.queue_bytes, weight_total - records_weight(0, count))
        genesis.total_take_count += count
        # It stops at its limit instead of making the queue's genesis unwritable.
        genesis.total_delay_ns = min(genesis.total_delay_ns + max(delay_ns, 0), COUNTER_MAX)
        genesis.last_take_time = max(genesis.last_take_time, time)
        _resize(genesis, -count, self.now)
        return count

    def check_current(self, state: State) -> None:
        """StaleDraft unless every queue is as it was when the draft first touched it."""
        if self.committed or state is not self._state:
            raise StaleDraft(
                "the draft was committed before, or belongs to another store. Nothing was stored. "
                "Build a new one."
            )
        for plan in self.plans.values():
            queue = plan.queue
            if queue.genesis is not plan.base or state.queues.get(queue.name) is not queue:
                raise StaleDraft(
                    f"queue {queue.name!r} changed since the draft was begun, or belongs to "
                    f"another store. Nothing was stored. Build the draft anew and commit it at "
                    f"once; a store is used by one thread at a time."
                )

    def repeat_removal(self, queue: QueueState, entry: UnloggedEntry) -> None:
        """Log a removal that took effect while the disk was full, before this draft was begun."""
        plan = self._plan(queue)
        parts = encode_removed(entry.ranges, queue=plan.index, time=entry.time, reason=entry.reason)
        self._add(parts)
        # In front of the draft's own blocks: one of them may restore what was removed then.
        self.parts = parts + self.parts[: -len(parts)]

    def removals(self) -> list[UnloggedEntry]:
        """What the draft removes, for a checkpoint to remember until the log can hold it."""
        return [
            UnloggedEntry(effect.queue.name, effect.reason, effect.time, list(effect.ranges))
            for effect in self._effects
            if isinstance(effect, _Remove)
        ]

    def checkpoint_growth(self) -> int:
        """Bytes by which a checkpoint can grow, at the most, when the draft is applied."""
        growth = 0
        for plan in self.plans.values():
            growth += GENESIS_GROWTH + JSON_GROWTH * len(plan.genesis.configuration or b"")
        for effect in self._effects:
            if isinstance(effect, _Remove):
                growth += RANGE_GROWTH * len(effect.ranges)
            elif isinstance(effect, _Lease):
                growth += LEASE_GROWTH * len(effect.counters)
        return growth

    def move(
        self,
        queue: QueueState,
        counters: Sequence[int],
        times: Sequence[int],
        payloads: Sequence[Buffer],
        columns: dict[int, Column] | None = None,
    ) -> None:
        """Write records again under the keys they have.

        Either every live record between the first and the last counter, to copy them forward,
        or one that was removed, to restore it at its place.
        """
        if not counters:
            return
        plan = self._plan(queue)
        counters = list(counters)
        self._check_move(plan, counters, times, payloads)
        _check_columns(columns or {}, len(counters))
        try:
            parts, payload_bytes = encode_records(
                payloads,
                queue=plan.index,
                first=counters[0],
                time=times[0],
                times=times,
                columns={**(columns or {}), COUNTERS: counters},
                kind=MOVED,
            )
        except _UNENCODABLE as error:
            _check_payloads(payloads)
            raise _unencodable(error) from None
        self._add(parts)
        self.holds_records = True
        weights = [records_weight(len(payload), 1) for payload in payloads]
        self._effects.append(_Move(queue, counters, weights, times[0]))
        self.only_removes = False
        restored = [counter for counter in counters if not plan.is_live(counter)]
        if not restored:
            self._needs_space()
        else:
            for counter in restored:
                if plan.removed is not None:
                    plan.removed.remove(counter, counter)
            plan.restored += restored
            plan.genesis.queue_bytes += payload_bytes
            plan.genesis.total_take_count -= len(restored)
            _resize(plan.genesis, len(restored), self.now)

    def _check_move(
        self,
        plan: Plan,
        counters: Sequence[int],
        times: Sequence[int],
        payloads: Sequence[Buffer],
    ) -> None:
        """ValueError for a move that would hide records or make no sense when read back."""
        if not len(counters) == len(times) == len(payloads):
            raise ValueError(
                f"{len(counters)} counters, {len(times)} times and {len(payloads)} payloads"
            )
        first, last = counters[0], counters[-1]
        rising = all(a < b for a, b in pairwise(counters))
        if not rising or first < 1 or last >= plan.genesis.next_counter:
            raise ValueError(
                f"counters to move rise from 1 on and stay below {plan.genesis.next_counter}"
            )
        if any(a > b for a, b in pairwise(times)):
            raise ValueError("times of records to move never go back")
        if plan.removed is None and plan.live_in(first, last) > sum(map(plan.is_live, counters)):
            raise ValueError(
                f"there are live records between {first} and {last} that are not moved with them"
            )

    def lease(
        self, queue: QueueState, counters: Sequence[int], attempts: Sequence[int], deadline: int
    ) -> None:
        """Note that records were handed out, each for that attempt."""
        if not counters:
            return
        if len(counters) != len(attempts):
            raise ValueError(f"{len(attempts)} attempts for {len(counters)} records")
        plan = self._plan(queue)
        counters, attempts = list(counters), list(attempts)
        try:
            parts = encode_leases(counters, attempts, queue=plan.index, deadline=deadline)
        except _UNENCODABLE as error:
            raise _unencodable(error) from None
        self._add(parts)
        self._effects.append(_Lease(queue, counters, attempts))

    def set_states(self, entries: Sequence[tuple[str, bytes | None]]) -> None:
        """Set newest values by name; None deletes."""
        if not entries:
            return
        entries = list(entries)
        for name, value in entries:
            if not isinstance(name, str) or not isinstance(value, bytes | None):
                raise TypeError(f"state {name!r:.80} is not a name with bytes or None")
        self._add(encode_state(entries, time=self.now))
        self._needs_space()
        self._effects.append(_States(entries))

    def configure(self, queue: QueueState, configuration: bytes) -> None:
        """Keep `configuration`, UTF-8 text, with the queue's genesis."""
        configuration.decode()
        plan = self._plan(queue)
        self._room(len(configuration))
        plan.genesis.configuration = configuration
        self._needs_space()

    def reserve(self, queue: QueueState, upto: int) -> None:
        """Once this is durable, counters up to there may be shown before their records are."""
        genesis = self._plan(queue).genesis
        genesis.reserved_upto = max(genesis.reserved_upto, min(upto, COUNTER_MAX))
        self._needs_space()

    def set_marks(
        self, queue: QueueState, high: int, high_time: int, low: int, low_time: int
    ) -> None:
        """Give the water marks that were seen between two commits, instead of those of this one.

        The draft must put or remove records of the queue already.
        """
        genesis = self.plans[queue.name].genesis
        genesis.high_water_mark, genesis.high_water_time = high, high_time
        genesis.low_water_mark, genesis.low_water_time = low, low_time

    def touch(self, queue: QueueState) -> None:
        """Write the queue's genesis entry, changed or not."""
        self._plan(queue)
        self._needs_space()

    def apply(self, segment: int, offset: int, index: SegmentIndex | None) -> None:
        """Carry the draft, now written at that place, into the state and the tail's index."""
        state = self._state
        for effect in self._effects:
            if isinstance(effect, _Put):
                queue, first, count, weight, time, last_time = effect
                state.put(queue, segment, first, count, weight, last_time)
                if index is not None:
                    index.note(queue.name, RECORDS, first, first + count - 1, time, offset)
            elif isinstance(effect, _Remove):
                for first, last, weight in effect.ranges:
                    state.remove(effect.queue, first, last, weight)
            elif isinstance(effect, _Move):
                queue, counters, weights, time = effect
                state.move(queue, segment, counters, weights)
                if index is not None:
                    index.note(queue.name, MOVED, counters[0], counters[-1], time, offset)
            elif isinstance(effect, _Lease):
                for counter, attempt in zip(effect.counters, effect.attempts, strict=True):
                    if effect.queue.is_live(counter):
                        effect.queue.attempts[counter] = attempt
            else:
                for name, value in effect.entries:
                    weight = state_weight(name, value)
                    state.set_state(name, segment, offset, weight, value is not None)
        for plan in self.plans.values():
            assert plan.queue.genesis.floor == plan.genesis.floor
            assert plan.queue.genesis.next_counter == plan.genesis.next_counter
            state.set_genesis(plan.queue, plan.genesis, segment)

    def _needs_space(self) -> None:
        self.only_drains = self.only_removes = False

    def _plan(self, queue: QueueState) -> Plan:
        plan = self.plans.get(queue.name)
        if plan is None:
            plan = self.plans[queue.name] = Plan(queue, len(self.plans))
            self._room(GENESIS_BYTES_MAX)
        return plan

    def _add(self, parts: list[Buffer]) -> None:
        self._room(sum(map(len, parts)))
        if self.block_count == BLOCK_COUNT_MAX:
            raise ItemTooLarge(f"a commit holds at most {BLOCK_COUNT_MAX} blocks; split it")
        self.parts += parts
        self.block_count += 1

    def _room(self, size: int) -> None:
        if self.size + size > BODY_BYTES_MAX:
            raise ItemTooLarge(
                f"a commit of {self.size + size} bytes, columns and metadata included, is over the "
                f"limit of {BODY_BYTES_MAX}. Nothing was stored. Put fewer or smaller records at "
                f"once."
            )
        self.size += size


def _unencodable(error: Exception) -> Exception:
    """The caller's mistake, in the class that fits it."""
    if isinstance(error, TypeError):
        return error
    return ValueError(f"a value does not fit its column: {error}. Nothing was stored.")


def _check_columns(columns: dict[int, Column], count: int) -> None:
    for bit, values in columns.items():
        if bit not in OPTIONAL_COLUMNS:
            raise ValueError(f"{bit} is no optional column of records")
        if len(values) != count:
            raise ValueError(f"column {bit} has {len(values)} values for {count} records")


def _check_payloads(payloads: Sequence[Buffer]) -> None:
    for at, payload in enumerate(payloads):
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"payload {at} is {type(payload).__name__}, not bytes") from None


def _resize(genesis: Genesis, change: int, now: int) -> None:
    size = genesis.queue_size + change
    genesis.queue_size = size
    if genesis.high_water_mark is None or size > genesis.high_water_mark:
        genesis.high_water_mark, genesis.high_water_time = size, now
    if genesis.low_water_mark is None or size < genesis.low_water_mark:
        genesis.low_water_mark, genesis.low_water_time = size, now


def _clamped(times: Sequence[int], floor: int) -> Sequence[int]:
    if times[0] >= floor and all(a <= b for a, b in pairwise(times)):
        return times
    clamped = []
    for time in times:
        floor = max(floor, time)
        clamped.append(floor)
    return clamped


def _clamped_runs(
    runs: Sequence[tuple[int, int]], floor: int, count: int
) -> Sequence[tuple[int, int]]:
    if sum(length for length, _ in runs) != count or min(length for length, _ in runs) < 1:
        raise ValueError(f"runs of times for other than {count} records: {runs!r:.80}")
    clamped = []
    for length, time in runs:
        floor = max(floor, time)
        clamped.append((length, floor))
    return clamped


def joined(unlogged: list[UnloggedEntry], more: list[UnloggedEntry]) -> list[UnloggedEntry]:
    """Removals and more of them, as few entries and ranges as hold them all.

    Taking record by record from a full disk must not let the checkpoint grow by each of them.
    """
    entries = {(entry.queue, entry.reason): entry for entry in unlogged}
    for entry in more:
        before = entries.get((entry.queue, entry.reason))
        ranges = sorted([*(before.ranges if before is not None else ()), *entry.ranges])
        entries[entry.queue, entry.reason] = UnloggedEntry(
            entry.queue, entry.reason, entry.time, merged(ranges)
        )
    return list(entries.values())


def merged(ranges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Rising ranges (first, last, weight) with those that touch joined."""
    joined: list[tuple[int, int, int]] = []
    for first, last, weight in ranges:
        if joined and joined[-1][1] == first - 1:
            before = joined[-1]
            joined[-1] = (before[0], last, before[2] + weight)
        else:
            joined.append((first, last, weight))
    return joined
