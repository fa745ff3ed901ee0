"""The oracle: what a store may show after a crash, as a plain model and ten rules.

The model is the list of commits that were attempted, in order, with a `View` of the whole store
after each. A crash may take commits from the end of that list and nothing else: at a power cut
those that were not confirmed, at the end of the process alone those that had not returned. So a
store that was opened must show exactly one of the last views. Each rule of RELIABILITY 3.2 is one
assertion; the narrow ones come first, so that a failure names what was broken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from store import Log
from store.segment import index_name, segment_name


class Record(NamedTuple):
    """A record as anybody can see it."""

    counter: int
    time: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class QueueView:
    """What one queue shows; `records` are the live ones by counter."""

    records: dict[int, Record] = field(default_factory=dict)
    put_count: int = 0
    take_count: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    configuration: bytes | None = None

    @property
    def last_counter(self) -> int:
        return max(self.records, default=0)


Queues = dict[str, QueueView]


@dataclass(frozen=True, slots=True)
class View:
    """What a store shows: queues and newest states."""

    queues: Queues = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)

    def queue(self, name: str) -> QueueView:
        return self.queues.get(name) or QueueView()

    def live(self) -> dict[tuple[str, int], Record]:
        return {
            (name, counter): record
            for name, queue in self.queues.items()
            for counter, record in queue.records.items()
        }


@dataclass(frozen=True, slots=True)
class Found:
    """What an opened store showed, and the next counter of each queue."""

    view: View
    next_counters: dict[str, int]


@dataclass(slots=True)
class Commit:
    """What one commit does. `puts` may hold a record that was removed before: it is restored."""

    puts: list[tuple[str, Record]] = field(default_factory=list)
    removes: list[tuple[str, int]] = field(default_factory=list)
    leases: list[tuple[str, int, int]] = field(default_factory=list)
    states: list[tuple[str, bytes | None]] = field(default_factory=list)
    configurations: list[tuple[str, bytes]] = field(default_factory=list)
    restores: bool = False

    def after(self, view: View) -> View:
        """The view once this commit happened to it."""
        queues, states = dict(view.queues), dict(view.states)
        for name, record in self.puts:
            old = queues.get(name) or QueueView()
            records = dict(sorted({**old.records, record.counter: record}.items()))
            if self.restores:
                queues[name] = replace(old, records=records, take_count=old.take_count - 1)
            else:
                queues[name] = replace(old, records=records, put_count=old.put_count + 1)
        for name, counter in self.removes:
            old = queues[name]
            records = {c: record for c, record in old.records.items() if c != counter}
            attempts = {c: attempt for c, attempt in old.attempts.items() if c != counter}
            takes = old.take_count + 1
            queues[name] = replace(old, records=records, attempts=attempts, take_count=takes)
        for name, counter, attempt in self.leases:
            old = queues[name]
            queues[name] = replace(old, attempts={**old.attempts, counter: attempt})
        for name, configuration in self.configurations:
            old = queues.get(name) or QueueView()
            queues[name] = replace(old, configuration=configuration)
        for name, value in self.states:
            states.pop(name, None)
            if value is not None:
                states[name] = value
        return View(queues, states)


class Model:
    """Commits in order. The first `durable` outlive a power cut, the first `returned` the process.

    `views[n]` is the store after n commits. `shown` is the highest counter of each queue that
    anybody was ever told, lost ones included.
    """

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.views = [View()]
        self.durable = 0
        self.returned = 0
        self.shown: dict[str, int] = {}

    def copy(self) -> Model:
        model = Model()
        model.commits, model.views = self.commits.copy(), self.views.copy()
        model.durable, model.returned = self.durable, self.returned
        model.shown = self.shown.copy()
        return model

    @property
    def now(self) -> View:
        return self.views[-1]

    def attempt(self, commit: Commit) -> None:
        """The store is about to be asked for this."""
        self.commits.append(commit)
        self.views.append(commit.after(self.now))

    def withdraw(self) -> None:
        """The store refused the last commit and said that nothing of it was stored."""
        self.commits.pop()
        self.views.pop()

    def confirm(self, *, durable: bool) -> None:
        """Everything attempted so far returned; with `durable` no power cut may undo it."""
        self.returned = len(self.commits)
        if durable:
            self.durable = self.returned
        for name, record in self.commits[-1].puts if self.commits else ():
            self.shown[name] = max(self.shown.get(name, 0), record.counter)

    def settle(self, count: int) -> None:
        """A store was opened and showed `count` commits: they are durable, the rest is gone."""
        del self.commits[count:], self.views[count + 1 :]
        self.durable = self.returned = count


def observe(log: Log) -> Found:
    """Everything that an open store shows, read back from its files; rule 9 on the way."""
    queues: Queues = {}
    next_counters: dict[str, int] = {}
    for name, queue in log.state.queues.items():
        if not queue.genesis_segment:
            continue
        records: dict[int, Record] = {}
        for block in log.read(name):
            for key, payload in zip(block.keys(), block.payloads(), strict=True):
                assert key.counter > max(records, default=0), (
                    f"rule 4: {name} counter {key.counter} follows {max(records)}"
                )
                records[key.counter] = Record(key.counter, key.timestamp, payload)
        genesis = queue.genesis
        assert genesis.queue_size == len(records), (
            f"totals: {name} says it holds {genesis.queue_size} records, {len(records)} are there"
        )
        payload_bytes = sum(len(record.payload) for record in records.values())
        assert genesis.queue_bytes == payload_bytes, (
            f"totals: {name} says {genesis.queue_bytes} bytes, {payload_bytes} are there"
        )
        puts, takes = genesis.total_put_count, genesis.total_take_count
        queues[name] = QueueView(records, puts, takes, dict(queue.attempts), queue.configuration)
        next_counters[name] = genesis.next_counter
    states = {name: log.state_of(name) for name in log.state.states}
    check_segments(log)
    present = {name: value for name, value in states.items() if value is not None}
    return Found(View(queues, present), next_counters)


def check_segments(log: Log) -> None:
    """Rule 9: what is needed is there; and the books about live records are right."""
    names = set(log.directory.files.list_dir(log.directory.handle))
    for number, segment in log.state.segments.items():
        assert segment_name(number) in names, f"rule 9: segment {number} is needed and gone"
        spans = [
            span
            for queue in log.state.queues.values()
            for span in queue.spans
            if span.segment == number
        ]
        live = sum(span.live for span in spans)
        assert segment.live_count == live, (
            f"books: segment {number} counts {segment.live_count} live records, spans say {live}"
        )
        weight = sum(span.weight for span in spans)
        assert segment.live_weight == weight, f"books: segment {number} weighs {weight}"
        metas = [queue.genesis_segment == number for queue in log.state.queues.values()]
        metas += [
            queue.configuration is not None and queue.configuration_segment == number
            for queue in log.state.queues.values()
        ]
        metas += [entry.segment == number for entry in log.state.states.values()]
        assert segment.meta_count == sum(metas), (
            f"books: segment {number} counts {segment.meta_count} newest entries, not {sum(metas)}"
        )


def check_names(log: Log) -> None:
    """No file lies there that the store forgot: it would stay for ever."""
    known = {"checkpoint.a", "checkpoint.b"}
    for number in {*log.state.segments, *log.doomed}:
        known |= {segment_name(number), index_name(number)}
    names = set(log.directory.files.list_dir(log.directory.handle))
    assert names <= known, f"forgotten files: {sorted(names - known)}"


def check_survivors(found: Found, model: Model, least: int) -> int:
    """Rules 1 to 5 and 8: at least `least` commits survived, and nothing else is there.

    Returns how many did.
    """
    view, live = found.view, found.view.live()
    confirmed = model.views[least].live()
    later = model.commits[least:]
    removed_later = {key for commit in later for key in commit.removes}
    missing = {key for key in confirmed if key not in removed_later} - live.keys()
    assert not missing, f"rule 1: confirmed records are lost: {sorted(missing)}"

    put_later = {(name, record.counter) for commit in later for name, record in commit.puts}
    known = {key for commit in model.commits[:least] for key in _put_keys(commit)}
    back = (known - confirmed.keys() - put_later) & live.keys()
    assert not back, f"rule 2: removed records are back: {sorted(back)}"

    attempted = dict(confirmed)
    for commit in later:
        attempted.update({(name, record.counter): record for name, record in commit.puts})
    invented = {key: record for key, record in live.items() if attempted.get(key) != record}
    assert not invented, f"rule 3: records that nobody put: {_brief(invented)}"

    there = [_records_there(commit, live, removed_later) for commit in later]
    torn = [least + n for n, answers in enumerate(there) if len(answers) > 1]
    assert not torn, f"rule 5: commits {torn} are there in part"
    certain = [answers.pop() for answers in there if answers]
    assert certain == sorted(certain, reverse=True), f"rule 4: a hole in commit order: {certain}"

    for name, counter in model.shown.items():
        following = found.next_counters.get(name, 1)
        assert following > counter, (
            f"rule 8: {name} shows {following} as its next counter, {counter} was given out"
        )
    matching = [n for n in range(least, len(model.views)) if model.views[n] == view]
    assert matching, (
        f"rule 4, 5, totals: what is there is no prefix of the commits.\n  found {view}\n  "
        f"allowed " + "\n  or ".join(map(str, model.views[least:]))
    )
    return matching[-1]


def _put_keys(commit: Commit) -> Iterable[tuple[str, int]]:
    return ((name, record.counter) for name, record in commit.puts)


def _records_there(
    commit: Commit, live: dict[tuple[str, int], Record], removed: set[tuple[str, int]]
) -> set[bool]:
    """Whether records of a commit are there; nothing is known of those that may be removed."""
    return {key in live for key in _put_keys(commit) if key not in removed}


def _brief(records: dict[tuple[str, int], Record]) -> str:
    return str({key: record.payload[:24] for key, record in records.items()})
