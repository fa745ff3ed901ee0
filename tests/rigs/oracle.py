"""The oracle: listens to writers that are killed and says what their store may hold afterwards.

Commits are a line. Each one tried makes a new state out of the one before, and a crash keeps a
beginning of that line: at least up to the last one that was promised, at most up to the last one
tried. So what a writer finds when it opens the store must be exactly one of these states: nothing
lost, revived, altered, invented, reordered or half done.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from tests.rigs.events import (
    Configure,
    Done,
    Dumped,
    Effect,
    Event,
    Exited,
    Failed,
    Lease,
    Made,
    Put,
    Remove,
    Restore,
    Rows,
    SetStates,
    Started,
    Synced,
    Take,
    Trying,
)

NO_STEP = "between steps"
OPEN_STEP = "open"


class Content:
    """What a store holds, as far as anybody can see it."""

    def __init__(self) -> None:
        self.records: dict[str, dict[int, bytes]] = {}
        self.attempts: dict[str, dict[int, int]] = {}
        self.configurations: dict[str, bytes] = {}
        self.states: dict[str, bytes] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self._shown() == other._shown()

    def _shown(self) -> tuple[object, ...]:
        """Everything; a queue without records or attempts is as good as none."""
        return (
            {name: records for name, records in self.records.items() if records},
            {name: attempts for name, attempts in self.attempts.items() if attempts},
            self.configurations,
            self.states,
        )

    def copy(self) -> Content:
        twin = Content()
        twin.records = {name: dict(records) for name, records in self.records.items()}
        twin.attempts = {name: dict(attempts) for name, attempts in self.attempts.items()}
        twin.configurations = dict(self.configurations)
        twin.states = dict(self.states)
        return twin

    def apply(self, effects: list[Effect]) -> list[tuple[int, bytes]]:
        """Do what a commit does; returns what it takes, oldest first."""
        taken: list[tuple[int, bytes]] = []
        for effect in effects:
            match effect:
                case Put(queue, first, payloads):
                    self.records.setdefault(queue, {}).update(enumerate(payloads, first))
                case Take(queue, count):
                    taken = sorted(self.records.get(queue, {}).items())[:count]
                    self._remove(queue, [counter for counter, _ in taken])
                case Remove(queue, counters):
                    self._remove(queue, counters)
                case Restore(queue, counter, payload):
                    self.records.setdefault(queue, {})[counter] = payload
                case Lease(queue, attempts):
                    self.attempts.setdefault(queue, {}).update(attempts)
                case SetStates(entries):
                    for name, value in entries:
                        if value is None:
                            self.states.pop(name, None)
                        else:
                            self.states[name] = value
                case Configure(queue, configuration):
                    self.configurations[queue] = configuration
                case _:
                    assert_never(effect)
        return taken

    def _remove(self, queue: str, counters: list[int]) -> None:
        for counter in counters:
            self.records[queue].pop(counter, None)
            self.attempts.get(queue, {}).pop(counter, None)


class Oracle:
    """Judges one store over many crashes.

    With `power` only what was synced is promised; without it, everything that returned is, since
    the kernel outlives the process. `violations` are sentences; `interrupted` counts the steps
    that were under way at a crash.
    """

    def __init__(self, *, power: bool) -> None:
        self.violations: list[str] = []
        self.interrupted: Counter[str] = Counter()
        self.crash_count = 0
        self.confirmed_count = 0
        self.loose_names: dict[str, set[str]] = {}
        self._power = power
        self._trusted = True
        self._promised = Content()
        self._tried: list[Trying] = []
        self._latest = Content()
        self._expected_take: list[tuple[int, bytes]] = []
        self._shown: Counter[str] = Counter()
        self._times: dict[tuple[str, int], int] = {}
        self._rows: dict[str, list[tuple[int, int, bytes]]] = {}
        self._step = NO_STEP

    def distrust(self) -> None:
        """From now on the writer's disk is gone: what it confirms is not promised.

        A sync that is under way while the power goes can report success for data that is lost.
        """
        self._trusted = False

    def crashed(self) -> None:
        """The writer is dead and all it said was heard."""
        self.crash_count += 1
        self.interrupted[self._step] += 1
        self._trusted = True
        self._step = NO_STEP

    def hear(self, event: Event) -> None:
        match event:
            case Started():
                self._rows = {}
                self._step = OPEN_STEP
            case Trying():
                self._try(event)
            case Done(taken):
                self._confirm(taken)
            case Rows(queue, rows):
                self._rows.setdefault(queue, []).extend(rows)
            case Dumped():
                self._judge(event)
            case Failed(reason):
                if self._trusted:
                    self._complain(f"{self._step}: {reason}")
            case Made(directory, name):
                self.loose_names.setdefault(directory, set()).add(name)
            case Synced(directory):
                self.loose_names.pop(directory, None)
            case Exited():
                pass
            case _:
                assert_never(event)

    def _complain(self, text: str) -> None:
        self.violations.append(f"after {self.crash_count} crashes: {text}")

    def _try(self, event: Trying) -> None:
        self._step = event.step
        for effect in event.effects:
            if isinstance(effect, Put) and effect.first <= self._shown[effect.queue]:
                self._complain(f"{effect.queue}: counter {effect.first} is used again")
        self._expected_take = self._latest.apply(event.effects)
        self._tried.append(event)

    def _confirm(self, taken: list[tuple[int, bytes]]) -> None:
        event = self._tried[-1]
        if taken != self._expected_take:
            got, wanted = [c for c, _ in taken], [c for c, _ in self._expected_take]
            self._complain(f"took {got} instead of {wanted}, or other bytes")
        self._step = NO_STEP
        if not self._trusted:
            return
        self.confirmed_count += 1
        for effect in event.effects:
            if isinstance(effect, Put):
                self._show(effect.queue, effect.first + len(effect.payloads) - 1)
        if event.sync or not self._power:
            for tried in self._tried:
                self._promised.apply(tried.effects)
            self._tried.clear()

    def _show(self, queue: str, counter: int) -> None:
        self._shown[queue] = max(self._shown[queue], counter)

    # What was found.

    def _judge(self, dump: Dumped) -> None:
        self._step = NO_STEP
        found = self._found(dump)
        kept = self._kept(found)
        if kept is None:
            self._complain(self._explain(found))
            self._promised, kept = found.copy(), 0
        del self._tried[kept:]
        self._latest = found
        if self._trusted:
            # Opening promises that everything found is durable from now on.
            self._promised = found.copy()
            self._tried.clear()
            for name, facts in dump.queues.items():
                self._show(name, facts.next_counter - 1)

    def _found(self, dump: Dumped) -> Content:
        found = Content()
        found.states = dump.states
        for name, facts in dump.queues.items():
            rows = self._rows.get(name, [])
            found.records[name] = {counter: payload for counter, _, payload in rows}
            found.attempts[name] = facts.attempts
            if facts.configuration is not None:
                found.configurations[name] = facts.configuration
            self._check_rows(name, rows)
            if facts.size != len(rows):
                self._complain(f"{name}: says {facts.size} records, shows {len(rows)}")
        self._rows = {}
        return found

    def _check_rows(self, name: str, rows: list[tuple[int, int, bytes]]) -> None:
        counters = [counter for counter, _, _ in rows]
        times = [time for _, time, _ in rows]
        if counters != sorted(set(counters)) or times != sorted(times):
            self._complain(f"{name}: not in the order of puts")
        for counter, time, _ in rows:
            if self._trusted and self._times.setdefault((name, counter), time) != time:
                self._complain(f"{name}: record {counter} has another time than before")

    def _kept(self, found: Content) -> int | None:
        """How many of the commits tried since the last promise are in what was found."""
        state = self._promised.copy()
        kept = 0 if state == found else None
        for count, tried in enumerate(self._tried, 1):
            state.apply(tried.effects)
            if state == found:
                kept = count
        return kept

    def _explain(self, found: Content) -> str:
        """Which rule was broken, as near as can be said."""
        states = [self._promised.copy()]
        for tried in self._tried:
            states.append(states[-1].copy())
            states[-1].apply(tried.effects)
        lost = altered = revived = 0
        for name in {name for state in [found, *states] for name in state.records}:
            here = found.records.get(name, {})
            there = [state.records.get(name, {}) for state in states]
            lost += sum(all(c in t for t in there) and c not in here for c in there[0])
            revived += sum(not any(c in t for t in there) for c in here)
            altered += sum(
                any(c in t for t in there) and not any(t.get(c) == p for t in there)
                for c, p in here.items()
            )
        return (
            f"{lost} records lost, {revived} revived or invented, {altered} altered; the store is "
            f"in none of the {len(states)} states that it may be in"
        )
