"""Drafts: what one commit will hold, gathered before anything is written.

A draft encodes blocks as they are added and plans each touched queue's next genesis entry beside
the current one. Dropping a draft, or failing to commit it, changes nothing.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from store.blocks import (
    BLOCK_HEADER_BYTES,
    COUNTERS,
    MOVED,
    OPTIONAL_COLUMNS,
    RECORDS,
    TAKEN,
    Column,
    RecordBlock,
    block_bytes,
    encode_block,
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
from store.packing import BITMAP_BYTES, RANGE_JSON, READABLE_RANGES, put_growth
from store.ranges import CHUNK_BITS, RangeSet
from store.state import QueueState, State

GENESIS_BYTES_MAX = 1 << 10
"""Room that is kept for each genesis entry, configuration aside."""

RANGE_BYTES = 24
REPEAT_BYTES = GENESIS_BYTES_MAX + BLOCK_HEADER_BYTES
REPEATED_RANGES_MAX = 8192
"""How many ranges of unlogged removals one commit repeats; the next one goes on with the rest."""

# What a draft can add to the JSON of a checkpoint, where numbers have up to 20 digits.
GENESIS_GROWTH = 320
QUEUE_GROWTH = 2300
"""A queue that is new, what is held for every queue included."""
UNLOGGED_GROWTH = 240
"""An entry of unlogged removals, and from where on the queue's records are held."""
RANGE_GROWTH = 128
LEASE_GROWTH = 48
STATE_GROWTH = 80
STATE_HELD = 32
"""Held for each state: its place gets more digits when it is set again."""
RECORD_GROWTH = 6
CHUNK_GROWTH = 128
SPAN_GROWTH = 130
RESTORED_GROWTH = CHUNK_GROWTH + RANGE_JSON + RECORD_GROWTH
QUEUE_HELD = GENESIS_GROWTH + UNLOGGED_GROWTH + SPAN_GROWTH + 2 * CHUNK_GROWTH
"""Held for each queue once and for all, so that known queues need not be counted again."""


_NOT_A_LIST = (bytes, bytearray, memoryview, str)
UNENCODABLE = (TypeError, OverflowError, struct.error)


class Plan:
    """A queue's genesis after the commit, and what leads there."""

    __slots__ = ("base", "genesis", "index", "puts", "queue", "removed", "restored")

    def __init__(self, queue: QueueState, index: int) -> None:
        self.queue = queue
        self.index = index
        self.base: Genesis = queue.genesis
        self.genesis: Genesis = queue.genesis.__copy__()
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


class Repeat(NamedTuple):
    """A removal that takes effect no more, but gets its place in the log."""

    queue: QueueState
    ranges: Sequence[tuple[int, int, int]]
    reason: int
    time: int

    @property
    def size(self) -> int:
        """Bytes that it needs in a frame, at the most."""
        return REPEAT_BYTES + RANGE_BYTES * len(self.ranges)


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
        "_repeats",
        "_state",
        "block_count",
        "body_bytes",
        "committed",
        "frees_segment",
        "growth",
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
        self.body_bytes = 0
        """Of all blocks; `size` is what they and their metadata may come to."""
        self.block_count = 0
        self.committed = False
        self.size = 0
        self.holds_records = False
        self.growth = 0
        """Bytes of checkpoint that must be held for what it adds, at the most. Removals have it."""
        self.only_drains = True
        """It only takes away, or gives back what was taken: it may use the reserve."""
        self.frees_segment = False
        """It carries the rest out of a dead segment: it may use the reserve to the last byte."""
        self.only_removes = True
        """It holds nothing that a checkpoint does not: on a full disk one can stand for it."""
        self.plans: dict[str, Plan] = {}
        self._effects: list[_Put | _Remove | _Move | _Lease | _States] = []
        self._repeats: Sequence[Repeat] = ()

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
            time_runs = clamped_runs(time_runs, time, count)
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
        except UNENCODABLE as error:
            _check_payloads(payloads)
            raise _unencodable(error) from None
        self._add(parts)
        self._note_put(plan, first, count, payload_bytes, time, last_time)
        return first

    def put_block(self, queue: QueueState, block: RecordBlock) -> int:
        """Add the records of a block as they lie in it; returns the counter of the first.

        Payloads, headers and other columns stay; counters and times are new: the next ones, and
        now. No object is made for each record.
        """
        plan = self._plan(queue)
        first = plan.genesis.next_counter
        if first + block.count - 1 > COUNTER_MAX:
            raise CounterExhausted(f"queue {queue.name!r}: no {block.count} counters are left")
        columns = {bit: column for bit, column in block.columns.items() if bit != COUNTERS}
        time = max(plan.genesis.last_put_time, self.now)
        anew = msgspec.structs.replace(
            block, kind=RECORDS, first=first, time=time, time_differences=None, columns=columns
        )
        self._add(encode_block(anew, queue=plan.index))
        payload_bytes = int(block.offsets[-1] - block.offsets[0])
        self._note_put(plan, first, block.count, payload_bytes, time, time)
        return first

    def _note_put(
        self, plan: Plan, first: int, count: int, payload_bytes: int, time: int, last_time: int
    ) -> None:
        genesis = plan.genesis
        last = first + count - 1
        weight = records_weight(payload_bytes, count)
        plan.puts.append((first, last, weight))
        self.holds_records = True
        self._needs_space()
        skips = first > genesis.next_counter
        genesis.next_counter = last + 1
        genesis.queue_bytes += payload_bytes
        genesis.total_put_count += count
        genesis.last_put_time = last_time
        self._effects.append(_Put(plan.queue, first, count, weight, time, last_time))
        queue = plan.queue
        if skips or queue.removed or plan.removed is not None or plan.restored:
            self.growth += _any_growth(first, count, skips=skips)
        else:
            self.growth += put_growth(genesis.queue_size, genesis.floor, first, count)
        resize(genesis, count, self.now)

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
        except UNENCODABLE as error:
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
        resize(genesis, -count, self.now)
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

    def unrepeated(self) -> list[Repeat]:
        """Unlogged removals that fit into this commit, the lowest of each queue first.

        What is left stays unlogged. Counters that were logged before may be among them.
        """
        repeats: list[Repeat] = []
        left = BODY_BYTES_MAX - self.size
        limit = REPEATED_RANGES_MAX
        for entry in self._state.unlogged.values():
            left -= REPEAT_BYTES
            fits = min(limit, left // RANGE_BYTES)
            if fits <= 0 or self.block_count + len(repeats) == BLOCK_COUNT_MAX:
                break
            queue = self._state.queues[entry.queue]
            average = entry.weight // max(entry.record_count, 1)
            ranges = [
                (first, last, min(average * (last - first + 1), entry.weight))
                for first, last in queue.not_live(entry.first, entry.last, fits)
            ]
            repeats.append(Repeat(queue, ranges, entry.reason, entry.time))
            limit -= len(ranges)
            left -= RANGE_BYTES * len(ranges)
        return repeats

    def repeat(self, repeats: Sequence[Repeat]) -> None:
        """Log removals that took effect on a full disk before this draft was begun."""
        before: list[Buffer] = []
        for queue, ranges, reason, time in repeats:
            plan = self._plan(queue)
            parts = encode_removed(ranges, queue=plan.index, time=time, reason=reason)
            size = block_bytes(parts)
            self._room(size)
            self.body_bytes += size
            self.block_count += 1
            before += parts
        # In front of the draft's own blocks: one of them may restore what was removed then.
        self.parts = before + self.parts
        self._repeats = repeats

    def removals(self) -> list[UnloggedEntry]:
        """What the draft removes, for a checkpoint to remember until the log can hold it."""
        return [
            UnloggedEntry(
                effect.queue.name,
                effect.reason,
                effect.time,
                min(first for first, _, _ in effect.ranges),
                max(last for _, last, _ in effect.ranges),
                sum(last - first + 1 for first, last, _ in effect.ranges),
                sum(weight for _, _, weight in effect.ranges),
            )
            for effect in self._effects
            if isinstance(effect, _Remove)
        ]

    def removal_growth(self) -> int:
        """Bytes by which a checkpoint can grow, at the most, for what the draft removes."""
        ranges = sum(len(effect.ranges) for effect in self._effects if isinstance(effect, _Remove))
        # As soon as the ranges are few they are a list again, which is longer.
        readable = RANGE_JSON * READABLE_RANGES
        each = GENESIS_GROWTH + UNLOGGED_GROWTH + readable
        return RANGE_GROWTH * ranges + each * len(self.plans)

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
        except UNENCODABLE as error:
            _check_payloads(payloads)
            raise _unencodable(error) from None
        self._add(parts)
        self.holds_records = True
        weights = [records_weight(len(payload), 1) for payload in payloads]
        self._effects.append(_Move(queue, counters, weights, times[0]))
        self.only_removes = False
        restored = [counter for counter in counters if not plan.is_live(counter)]
        self.growth += 2 * SPAN_GROWTH + RESTORED_GROWTH * len(restored)
        if not restored:
            self._needs_space()
        else:
            for counter in restored:
                if plan.removed is not None:
                    plan.removed.remove(counter, counter)
            plan.restored += restored
            plan.genesis.queue_bytes += payload_bytes
            plan.genesis.total_take_count -= len(restored)
            resize(plan.genesis, len(restored), self.now)

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
        except UNENCODABLE as error:
            raise _unencodable(error) from None
        self._add(parts)
        self._effects.append(_Lease(queue, counters, attempts))
        known = queue.attempts
        for counter, attempt in zip(counters, attempts, strict=True):
            before = known.get(counter)
            if before is None:
                self.growth += LEASE_GROWTH
            elif attempt > before:
                self.growth += len(str(attempt)) - len(str(before))

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
        known = self._state.states
        for name, _ in entries:
            if name not in known:
                self.growth += STATE_GROWTH + len(msgspec.json.encode(name))

    def configure(self, queue: QueueState, configuration: bytes) -> None:
        """Keep `configuration`, UTF-8 text, with the queue's genesis."""
        configuration.decode()
        plan = self._plan(queue)
        self._room(len(configuration))
        plan.genesis.configuration = configuration
        if configuration != queue.configuration:
            self.growth += len(msgspec.json.encode(configuration.decode()))
        self._needs_space()

    def reserve(self, queue: QueueState, upto: int) -> None:
        """Once this is durable, counters up to there may be shown before their records are."""
        upto = operator.index(upto)
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
        for repeat in self._repeats:
            for first, last, weight in repeat.ranges:
                state.remove(repeat.queue, first, last, weight)
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
            if not queue.genesis_segment:
                self.growth += QUEUE_GROWTH
        return plan

    def _add(self, parts: list[Buffer]) -> None:
        size = block_bytes(parts)
        self._room(size)
        if self.block_count == BLOCK_COUNT_MAX:
            raise ItemTooLarge(f"a commit holds at most {BLOCK_COUNT_MAX} blocks; split it")
        self.parts += parts
        self.body_bytes += size
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


def resize(genesis: Genesis, change: int, now: int) -> None:
    size = genesis.queue_size + change
    genesis.queue_size = size
    if genesis.high_water_mark is None or size > genesis.high_water_mark:
        genesis.high_water_mark, genesis.high_water_time = size, now
    if genesis.low_water_mark is None or size < genesis.low_water_mark:
        genesis.low_water_mark, genesis.low_water_time = size, now


def _any_growth(first: int, count: int, *, skips: bool) -> int:
    """Of the space to hold for records put into a queue of any state, at the most."""
    chunks = ((first + count - 1) >> CHUNK_BITS) - ((first - 1) >> CHUNK_BITS) + skips
    packed = min(RECORD_GROWTH * count, 2 * BITMAP_BYTES * (chunks + 1))
    return packed + RANGE_JSON * min(count, READABLE_RANGES) + CHUNK_GROWTH * chunks


def _clamped(times: Sequence[int], floor: int) -> Sequence[int]:
    if times[0] >= floor and all(a <= b for a, b in pairwise(times)):
        return times
    clamped = []
    for time in times:
        floor = max(floor, time)
        clamped.append(floor)
    return clamped


def clamped_runs(
    runs: Sequence[tuple[int, int]], floor: int, count: int
) -> Sequence[tuple[int, int]]:
    if len(runs) == 1 and runs[0][0] == count:
        return [(count, max(floor, runs[0][1]))]
    if sum(length for length, _ in runs) != count or min(length for length, _ in runs) < 1:
        raise ValueError(f"runs of times for other than {count} records: {runs!r:.80}")
    clamped = []
    for length, time in runs:
        floor = max(floor, time)
        clamped.append((length, floor))
    return clamped


def joined(
    unlogged: dict[str, UnloggedEntry], more: list[UnloggedEntry]
) -> dict[str, UnloggedEntry]:
    """Removals and more of them, one entry for each queue.

    Removing record by record from a full disk must not let the checkpoint grow by each of them.
    """
    entries = dict(unlogged)
    for entry in more:
        before = entries.get(entry.queue)
        if before is not None:
            entry = UnloggedEntry(
                entry.queue,
                entry.reason,
                entry.time,
                min(before.first, entry.first),
                max(before.last, entry.last),
                before.record_count + entry.record_count,
                before.weight + entry.weight,
            )
        entries[entry.queue] = entry
    return entries


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
