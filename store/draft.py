"""Drafts: what one commit will hold, gathered before anything is written.

A draft encodes blocks as they are added and plans each touched queue's next genesis entry beside
the current one. Dropping a draft, or failing to commit it, changes nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from store.blocks import COUNTERS, MOVED, RECORDS, TAKEN, Column, RecordBlock, records_weight
from store.checkpoint import UnloggedEntry
from store.checksum import Buffer
from store.effects import Lease, Move, Put, Remove, States
from store.encoding import (
    block_bytes,
    encode_block,
    encode_leases,
    encode_records,
    encode_removed,
    encode_state,
)
from store.errors import CounterExhausted
from store.gathering import Gathering
from store.given import (
    UNENCODABLE,
    check_columns,
    check_payloads,
    clamped_runs,
    clamped_times,
    unencodable,
)
from store.growth import (
    LEASE_GROWTH,
    RESTORED_GROWTH,
    SPAN_GROWTH,
    STATE_GROWTH,
    any_growth,
    removal_growth,
)
from store.keys import COUNTER_MAX
from store.packing import put_growth
from store.plan import Plan, resize
from store.repeats import Repeat, unrepeated
from store.state import QueueState

_NOT_A_LIST: Final = (bytes, bytearray, memoryview, str)


class Draft(Gathering):
    """One commit in the making."""

    __slots__ = ()

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
            times = clamped_times(times, time)
            time, last_time = times[0], times[-1]
        else:
            time = last_time = max(time, self.now)
        if columns:
            check_columns(columns, count)
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
            check_payloads(payloads)
            raise unencodable(error) from None
        self._add(parts)
        if queue.compression is not None:
            payload_parts = 1 if item_bytes is None else count
            self._compress_later(len(parts), payload_parts, queue.compression)
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
        parts = encode_block(anew, queue=plan.index)
        self._add(parts)
        if queue.compression is not None:
            self._compress_later(len(parts), 1, queue.compression)
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
        self._effects.append(Put(plan.queue, first, count, weight, time, last_time))
        queue = plan.queue
        if skips or queue.removed or plan.removed is not None or plan.restored:
            self.growth += any_growth(first, count, skips=skips)
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
            raise unencodable(error) from None
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
        self._effects.append(Remove(queue, ranges, reason, time))
        genesis = plan.genesis
        genesis.queue_bytes -= min(genesis.queue_bytes, weight_total - records_weight(0, count))
        genesis.total_take_count += count
        # It stops at its limit instead of making the queue's genesis unwritable.
        genesis.total_delay_ns = min(genesis.total_delay_ns + max(delay_ns, 0), COUNTER_MAX)
        genesis.last_take_time = max(genesis.last_take_time, time)
        resize(genesis, -count, self.now)
        return count

    def unrepeated(self) -> list[Repeat]:
        """Unlogged removals that fit into this commit; what is left stays unlogged."""
        return unrepeated(self._state, body_bytes=self.size, block_count=self.block_count)

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
            if isinstance(effect, Remove)
        ]

    def removal_growth(self) -> int:
        """Bytes by which a checkpoint can grow, at the most, for what the draft removes."""
        ranges = sum(len(effect.ranges) for effect in self._effects if isinstance(effect, Remove))
        return removal_growth(ranges, len(self.plans))

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
        check_columns(columns or {}, len(counters))
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
            check_payloads(payloads)
            raise unencodable(error) from None
        self._add(parts)
        if queue.compression is not None:
            self._compress_later(len(parts), 1, queue.compression)
        self.holds_records = True
        weights = [records_weight(len(payload), 1) for payload in payloads]
        self._effects.append(Move(queue, counters, weights, times[0]))
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
            raise unencodable(error) from None
        self._add(parts)
        self._effects.append(Lease(queue, counters, attempts))
        known = queue.attempts
        for counter, attempt in zip(counters, attempts, strict=True):
            before = known.get(counter)
            if before is None:
                self.growth += LEASE_GROWTH
            elif attempt > before:
                self.growth += len(str(attempt)) - len(str(before))

    def set_states(
        self, entries: Sequence[tuple[str, bytes | None]], *, drains: bool = False
    ) -> None:
        """Set newest values by name; None deletes.

        With `drains` they let records go, and may use the space that is held for that.
        """
        if not entries:
            return
        entries = list(entries)
        for name, value in entries:
            if not isinstance(name, str) or not isinstance(value, bytes | None):
                raise TypeError(f"state {name!r:.80} is not a name with bytes or None")
        self._add(encode_state(entries, time=self.now))
        if drains:
            self.only_removes = False
        else:
            self._needs_space()
        self._effects.append(States(entries))
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
