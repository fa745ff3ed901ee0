"""What a store may hold after anything went wrong: every state it passed through since it was sure.

A `Contents` is all that callers can see of a store. The `Ledger` lists the contents after each
commit from the last one that is surely durable up to the newest. Whatever a crash leaves must be
exactly one of them, so a hole, a half commit or an invented record all show as a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from store import Log

Change = Callable[["Contents"], None]


@dataclass
class QueueContents:
    """One queue: live records by counter, attempts, totals, configuration."""

    records: dict[int, bytes] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    put_count: int = 0
    take_count: int = 0
    configuration: bytes | None = None


@dataclass
class Contents:
    """Everything that a caller can read."""

    queues: dict[str, QueueContents] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> Contents:
        queues = {
            name: replace(queue, records=queue.records.copy(), attempts=queue.attempts.copy())
            for name, queue in self.queues.items()
        }
        return Contents(queues, self.states.copy())

    def put(self, name: str, counters: range, payloads: list[bytes]) -> None:
        queue = self.queues.setdefault(name, QueueContents())
        queue.records.update(zip(counters, payloads, strict=True))
        queue.put_count += len(payloads)

    def remove(self, name: str, counters: list[int]) -> None:
        queue = self.queues[name]
        for counter in counters:
            del queue.records[counter]
            queue.attempts.pop(counter, None)
        queue.take_count += len(counters)

    def restore(self, name: str, counter: int, payload: bytes) -> None:
        queue = self.queues[name]
        queue.records = dict(sorted({**queue.records, counter: payload}.items()))
        queue.take_count -= 1

    def set_states(self, entries: list[tuple[str, bytes | None]]) -> None:
        for name, value in entries:
            self.states.pop(name, None)
            if value is not None:
                self.states[name] = value


def contents_of(log: Log) -> Contents:
    """Read everything; checks on the way that order, sizes and genesis agree."""
    contents = Contents()
    for name, queue in log.state.queues.items():
        if not queue.genesis_segment:
            continue
        found = QueueContents()
        for block in log.read(name):
            found.records.update(zip(block.counters(), block.payloads(), strict=True))
        assert list(found.records) == sorted(found.records), f"{name}: out of order"
        genesis = queue.genesis
        assert genesis.queue_size == len(found.records), f"{name}: genesis tells another size"
        assert genesis.queue_bytes == sum(map(len, found.records.values()))
        assert all(genesis.floor < counter < genesis.next_counter for counter in found.records)
        found.attempts = dict(queue.attempts)
        found.put_count, found.take_count = genesis.total_put_count, genesis.total_take_count
        found.configuration = queue.configuration
        contents.queues[name] = found
    for name in list(log.state.states):
        value = log.state_of(name)
        if value is not None:
            contents.states[name] = value
    return contents


class Ledger:
    """The contents that a store may have now, the surely durable one first."""

    def __init__(self) -> None:
        self.possible = [Contents()]
        self.doubtful = False
        """A sync failed, or a call ended without an answer: not only the newest may be found."""

    @property
    def newest(self) -> Contents:
        return self.possible[-1]

    def committed(self, change: Change, *, durable: bool) -> None:
        """A commit was confirmed."""
        self._add(change)
        if durable:
            self.sure()

    def doubted(self, change: Change | None = None) -> None:
        """A commit, or something that changes no contents, ended with an unknown outcome."""
        if change is not None:
            self._add(change)
        self.doubtful = True

    def at_crash(self, under_way: Change | None) -> Ledger:
        """What may be found if the process ends now, in the middle of that commit."""
        ledger = Ledger()
        ledger.possible = self.possible.copy()
        ledger.doubtful = self.doubtful
        if under_way is not None:
            if not self.doubtful:
                ledger.possible = [self.newest]
            ledger.doubted(under_way)
        return ledger

    def sure(self) -> None:
        """Everything so far is durable."""
        self.possible = [self.newest]

    def found(self, contents: Contents) -> None:
        """A reopened store holds this, durably."""
        self.possible = [contents]
        self.doubtful = False

    def check(self, contents: Contents, *, power_lost: bool = False) -> None:
        """Raise AssertionError if the contents are none of the possible ones."""
        allowed = self.possible if power_lost or self.doubtful else [self.newest]
        if contents not in allowed:
            raise AssertionError(f"found {contents}\nallowed {allowed}")

    def _add(self, change: Change) -> None:
        contents = self.newest.copy()
        change(contents)
        self.possible.append(contents)
