"""Checks what callers of queues saw, from call to return and across crashes. Pure.

Events come in the order in which they happened in the process that worked. Between two opens lies
a life. In a life no record may come from nowhere (phantom), come twice (repeat), be passed by a
later one (order), or be missing where it surely was (false empty). Across its end nothing that was
confirmed may be lost, nothing that was removed may be revived, weaker levels lose only the end of
what was put, batches are whole, and counters stay with their records.

What a taker does that leaves early is unknown until it has left. So meanwhile order is not judged;
once it has left, what it held is back, or nobody takes what is behind it. Emptiness is not judged
before a commit has brought it back, and at a crash such a taker explains as many missing records as
it asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["put", "take", "lease", "ack", "nack", "drop", "flush"]
End = Literal["open", "done", "left", "empty", "refused"]
Crash = Literal["close", "kill", "power"]

NEEDED: Final[dict[Crash, int]] = {"close": 0, "kill": 1, "power": 2}
"""The level at which a confirmation outlives each kind of end: memory 0, os 1, sync 2."""
NEVER: Final = 1 << 60


@dataclass(slots=True)
class Op:
    """One call. `items` are those put, acked or given back, or those that came back."""

    number: int
    kind: Kind
    queue: str
    level: int
    call: int
    items: Sequence[int] = ()
    count: int = 1
    ret: int = NEVER
    end: End = "open"


@dataclass(slots=True)
class Seen:
    """One queue: what it held when it was opened, and what happened to it since."""

    kept: list[tuple[int, int]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    counters: dict[int, int] = field(default_factory=dict)
    """By item, for all lives."""
    items: dict[int, int] = field(default_factory=dict)
    """By counter, for all lives."""


class History:
    """Everything that one store went through. `violations` says in words what was wrong."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.op_count = 0
        self.confirmed_count = 0
        self.crash_count = 0
        self.interrupted: set[str] = set()
        self._clock = 0
        self._trusted = True
        self._ops: dict[int, Op] = {}
        self._queues: dict[str, Seen] = {}

    # Events.

    def called(
        self,
        number: int,
        kind: Kind,
        queue: str,
        level: int,
        *,
        items: Sequence[int] = (),
        count: int = 1,
    ) -> None:
        """A caller is about to put, ack or give back `items`, or to take up to `count`."""
        self._clock += 1
        op = Op(number, kind, queue, level, self._clock, items, count)
        self._ops[number] = op
        self._seen(queue).ops.append(op)
        self.op_count += 1

    def returned(self, number: int, items: Sequence[int] = (), first_counter: int = 0) -> None:
        """It returned: with these items if it took, with this counter if it put."""
        op = self._end(number, "done")
        if op is None:
            return
        if op.kind in ("take", "lease"):
            op.items = items
        elif op.kind == "put":
            self._learn(self._seen(op.queue), op.queue, first_counter, op.items)
        self.confirmed_count += 1

    def left(self, number: int) -> None:
        """It was cancelled or timed out."""
        self._end(number, "left")

    def empty(self, number: int) -> None:
        """It was told that there is nothing to take."""
        self._end(number, "empty")

    def refused(self, number: int) -> None:
        """It raised an error that says that nothing was changed."""
        self._end(number, "refused")

    def failed(self, reason: str) -> None:
        """Something was raised, or read, that never may; without power anything may."""
        if self._trusted:
            self.violations.append(reason)

    def distrust(self) -> None:
        """From here on returns count for nothing: the power is about to go."""
        self._trusted = False

    def restarted(self) -> None:
        """Another process is at work, with power: what it says counts, also if it cannot open."""
        self._trusted = True

    def opened(self, end: Crash, found: dict[str, list[tuple[int, int]]]) -> None:
        """The store was opened after this end; it holds these (counter, item), in order."""
        self.crash_count += end != "close"
        self.interrupted.update(op.kind for op in self._ops.values() if op.end == "open")
        for name in sorted({*found, *self._queues}):
            seen, now = self._seen(name), found.get(name, [])
            try:
                self._judge_life(name, seen)
                self._judge_end(name, seen, now, end)
            finally:
                seen.kept, seen.ops = now, []
        self._ops.clear()
        self._trusted = True

    def _seen(self, queue: str) -> Seen:
        return self._queues.setdefault(queue, Seen())

    def _end(self, number: int, end: End) -> Op | None:
        self._clock += 1
        op = self._ops.get(number)
        if op is None or not self._trusted:
            return None
        op.ret, op.end = self._clock, end
        return op

    def _learn(self, seen: Seen, name: str, first: int, items: Iterable[int]) -> None:
        for counter, item in enumerate(items, first):
            other = seen.items.setdefault(counter, item)
            known = seen.counters.setdefault(item, counter)
            if other != item:
                self._say(name, f"counter {counter} was given to {other} and to {item}")
            elif known != counter:
                self._say(name, f"item {item} has counters {known} and {counter}")

    def _say(self, queue: str, text: str) -> None:
        self.violations.append(f"{queue}, before open {self.crash_count}: {text}")

    # One life.

    def _judge_life(self, name: str, seen: Seen) -> None:
        life = _Life(seen)
        for text in (
            *life.phantoms_and_repeats(),
            *life.wrong_order_of_puts(),
            *life.passed_over(),
            *life.false_empties(),
        ):
            self._say(name, text)

    # The end of one.

    def _judge_end(self, name: str, seen: Seen, now: list[tuple[int, int]], end: Crash) -> None:
        needed = NEEDED[end]
        found = {item for _, item in now}
        for counter, item in now:
            self._learn(seen, name, counter, (item,))
        if [counter for counter, _ in now] != sorted({counter for counter, _ in now}):
            self._say(name, "records are not in the order of their counters")
        if len(found) != len(now):
            self._say(name, "repeat: a record is in the queue twice")
        proof = self._proof(needed)
        puts = [op for op in seen.ops if op.kind == "put" and op.end != "refused"]
        attempted = {item for op in puts for item in op.items} | {item for _, item in seen.kept}
        for item in sorted(found - attempted):
            self._say(name, f"phantom or revived: {item} is there and nobody can have put it")
        removed, surely = self._removed(seen, needed, proof)
        for item in sorted(found & surely):
            self._say(name, f"revived: {item} was removed for good")
        there = found | removed
        missing = [item for _, item in seen.kept if item not in there]
        for op in puts:
            safe = op.end == "done" and (op.level >= needed or op.ret < proof)
            if safe:
                missing += [item for item in op.items if item not in there]
        unknown = self._may_hold(seen, needed)
        if len(missing) > unknown:
            self._say(name, f"lost: {missing[:5]} are missing, {unknown} may have been taken")
        self._judge_batches(name, seen, puts, found, there, unknown)

    def _judge_batches(
        self, name: str, seen: Seen, puts: list[Op], found: set[int], there: set[int], unknown: int
    ) -> None:
        torn = [
            op for op in puts if not found.isdisjoint(op.items) and not there.issuperset(op.items)
        ]
        if len(torn) > unknown:
            self._say(name, f"torn: of {list(torn[0].items)} only a part is there")
        known = sorted(
            (seen.counters[item], item) for op in puts for item in op.items if item in seen.counters
        )
        last = max((at for at, (_, item) in enumerate(known) if item in found), default=-1)
        holes = sum(item not in there for _, item in known[: last + 1])
        # A put that was withdrawn leaves a counter that nobody knows, and so no hole here.
        if holes > unknown:
            self._say(name, f"hole: {holes} records are missing before one that is there")

    def _proof(self, needed: int) -> int:
        """Whatever returned before this moment is as durable as needed."""
        if needed == 0:
            return NEVER
        calls = [op.call for op in self._ops.values() if op.end == "done" and op.level >= needed]
        return max(calls, default=-1)

    @staticmethod
    def _removed(seen: Seen, needed: int, proof: int) -> tuple[set[int], set[int]]:
        """Items that may be gone, and items that must be."""
        removed: set[int] = set()
        surely: set[int] = set()
        for op in seen.ops:
            if op.kind not in ("take", "ack"):
                continue
            removed.update(op.items)
            if op.end == "done" and (op.level >= needed or op.ret < proof):
                surely.update(op.items)
        return removed, surely

    def _may_hold(self, seen: Seen, needed: int) -> int:
        """How many records takers whose end is not known may have removed.

        The removal of one that left is undone by the next frame, at its level; so it counts only
        until somebody's later call proves that there was one.
        """
        proof = self._proof(max(needed, 1))
        return sum(
            op.count
            for op in seen.ops
            if op.kind == "take"
            and (op.end == "open" or (op.end == "left" and op.ret > proof and needed))
        )


class _Life:
    """The calls on one queue between two opens."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._puts: dict[int, Op] = {
            item: op for op in seen.ops if op.kind == "put" for item in op.items
        }
        self._kept = {item for _, item in seen.kept}
        self._handed = sorted(
            (op for op in seen.ops if op.kind in ("take", "lease") and op.end == "done"),
            key=lambda op: op.ret,
        )
        leaving = [
            op for op in seen.ops if op.kind in ("take", "lease") and op.end in ("left", "open")
        ]
        self._leaving = _merged((op.call, op.ret) for op in leaving)
        self._on_their_way = _merged((op.call, _until(op, seen.ops)) for op in leaving)
        self._spans = self._available()

    def phantoms_and_repeats(self) -> list[str]:
        wrong = []
        out: set[int] = set()
        backs = sorted(
            (op for op in self._seen.ops if op.kind in ("nack", "drop")), key=lambda op: op.call
        )
        at = 0
        for op in self._handed:
            while at < len(backs) and backs[at].call < op.ret:
                out.difference_update(backs[at].items)
                at += 1
            for item in op.items:
                put = self._puts.get(item)
                if item not in self._kept and (put is None or put.call > op.ret):
                    wrong.append(f"phantom: {item} was taken and never put")
                if item in out:
                    wrong.append(f"repeat: {item} was handed out twice")
                out.add(item)
        return wrong

    def wrong_order_of_puts(self) -> list[str]:
        """If one put returned before another was called, its counter is lower."""
        counters = self._seen.counters
        known = sorted((counters[item], item) for item in self._puts if item in counters)
        latest_call = -1
        wrong = []
        for counter, item in known:
            op = self._puts[item]
            if op.ret < latest_call:
                wrong.append(f"order: {item} (counter {counter}) was put before a lower counter")
            latest_call = max(latest_call, op.call)
        return wrong

    def _available(self) -> list[tuple[int, int, int, int]]:
        """(counter, from, surely from, to) for each stretch in which a record lay in the queue.

        From the first moment on nothing behind the record may be handed out before it; it is
        there for certain from the second on.
        """
        counters = self._seen.counters
        begin: dict[int, tuple[int, int]] = dict.fromkeys(self._kept, (-1, -1))
        blocked = self._strong_puts()
        for item, op in self._puts.items():
            if item in counters and op.end == "done":
                at = bisect_left(blocked, (op.ret, -1))
                begin[item] = (-1, max(op.ret, blocked[at - 1][1] if at else -1))
        events: list[tuple[int, int, Op]] = []
        for op in self._seen.ops:
            if op.kind in ("take", "lease") and op.end == "done":
                events.append((op.ret, 0, op))
            elif op.kind == "nack" and op.end == "done":
                events.append((op.ret, 1, op))
        spans = []
        for moment, back, op in sorted(events, key=lambda event: event[0]):
            for item in op.items:
                if back:
                    begin[item] = (moment, moment)
                elif (start := begin.pop(item, None)) is not None and item in counters:
                    spans.append((counters[item], *start, op.call))
        acked = {item for op in self._seen.ops if op.kind == "ack" for item in op.items}
        spans += [
            (counters[item], *start, NEVER)
            for item, start in begin.items()
            if item in counters and item not in acked
        ]
        return spans

    def _strong_puts(self) -> list[tuple[int, int]]:
        """(call, until) of puts above memory: what is behind one is hidden until its commit."""
        latest, found = -1, []
        for op in self._seen.ops:
            if op.kind == "put" and op.level:
                ends = op.ret if op.end == "done" else _until(op, self._seen.ops)
                latest = max(latest, ends)
                found.append((op.call, latest))
        return found

    def passed_over(self) -> list[str]:
        """A later record was handed out, from call to return, while an earlier one lay there."""
        counters = self._seen.counters
        takes = [
            (op.call, op.ret, counters[item], item)
            for op in self._handed
            if not _overlaps(self._leaving, op)
            for item in op.items
            if item in counters
        ]
        takes.sort(reverse=True)
        ranks = sorted({counter for _, _, counter, _ in takes})
        first_return = _LeastBehind(len(ranks))
        wrong, at = [], 0
        for counter, start, _, end in sorted(self._spans, key=lambda span: -span[1]):
            while at < len(takes) and takes[at][0] > start:
                _, ret, taken, item = takes[at]
                first_return.put(bisect_left(ranks, taken), ret, item)
                at += 1
            ret, item = first_return.least_from(bisect_left(ranks, counter + 1))
            if ret < end:
                wrong.append(f"order: {item} was handed out before counter {counter}")
        return wrong

    def false_empties(self) -> list[str]:
        spans = sorted((surely, end, counter) for counter, _, surely, end in self._spans)
        starts = [span[0] for span in spans]
        longest: list[tuple[int, int]] = []
        for _, end, counter in spans:
            longest.append(max(longest[-1], (end, counter)) if longest else (end, counter))
        wrong = []
        for op in self._seen.ops:
            if op.end != "empty" or _overlaps(self._on_their_way, op):
                continue
            at = bisect_left(starts, op.call)
            if at and longest[at - 1][0] > op.ret:
                wrong.append(f"false empty: counter {longest[at - 1][1]} was there")
        return wrong


def _overlaps(intervals: list[tuple[int, int]], op: Op) -> bool:
    """Whether the call was under way in one of these intervals, which do not touch each other."""
    at = bisect_left(intervals, (op.ret, -1))
    return at > 0 and intervals[at - 1][1] >= op.call


def _until(op: Op, ops: list[Op]) -> int:
    """Until when a taker that left may still hold a record: the next frame brings it back."""
    if op.end == "open":
        return NEVER
    at = bisect_left(ops, op.ret, key=lambda later: later.call)
    following = [later for later in ops[at : at + 200] if later.level and later.end == "done"]
    return min((later.ret for later in following), default=NEVER)


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class _LeastBehind:
    """The least of what was put at or behind a rank, in logarithmic time (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._least: list[tuple[int, int]] = [(NEVER, 0)] * (size + 1)

    def put(self, rank: int, value: int, label: int) -> None:
        at = self._size - rank
        while at <= self._size:
            if value < self._least[at][0]:
                self._least[at] = (value, label)
            at += at & -at

    def least_from(self, rank: int) -> tuple[int, int]:
        at = self._size - rank
        found = (NEVER, 0)
        while at > 0:
            found = min(found, self._least[at])
            at -= at & -at
        return found
