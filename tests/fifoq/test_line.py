"""The line against a plain list: any order of steps, nothing lost, doubled, reordered or early."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from fifoq import line as line_module
from fifoq.attributes import Attributes
from fifoq.histogram import Histogram
from fifoq.line import Line
from fifoq.runs import Claim, Returned, Run, coarse_times, removal_of, time_runs
from store.blocks import records_weight
from tests.support.machines import assert_machine_holds

CACHE_BYTES = 600
picks = st.integers(0, 1000)


@dataclass
class Model:
    """Records by counter, each in one place; and what a commit has made of them."""

    payloads: dict[int, bytes] = field(default_factory=dict)
    headers: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)
    """Put, not withdrawn, not taken away."""
    strong: set[int] = field(default_factory=set)
    """Of those, the ones of a level above memory that no commit has confirmed."""
    disk: set[int] = field(default_factory=set)
    """Live on disk."""


class LineMachine(RuleBasedStateMachine):
    """Steps as Queue, Committer and jobs do them."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line("q", next_counter=5, floor=4, size=0, last_put_time=7)
        self.line.delays = Histogram()
        self.model = Model()
        self.now = 10**6
        self.claimed: list[Claim] = []
        self.leased: dict[int, Returned] = {}
        self.high: int | None = None
        self.low: int | None = None
        self.unsealed: list[tuple[int, int]] = []
        self.delay_total = 0

    # What the model says.

    def size(self) -> int:
        return len(self.model.there - self.model.strong) + len(self.leased)

    def note(self) -> None:
        size = self.size()
        if self.high is None or self.low is None:
            if size:
                self.high = self.low = size
            return
        self.high, self.low = max(self.high, size), min(self.low, size)

    def next_up(self) -> int | None:
        """The record that a take must get now, if any may be taken."""
        if not self.model.there:
            return None
        first = min(self.model.there)
        return None if self.model.strong and first >= min(self.model.strong) else first

    def look(self) -> None:
        self.line.look(self.now)

    # Putting.

    @rule(count=st.integers(1, 5), size=st.integers(0, 40), strong=st.booleans())
    def put(self, count: int, size: int, strong: bool) -> None:
        line, model = self.line, self.model
        self.look()
        payloads = [bytes([(line.next + n) % 256]) * size for n in range(count)]
        if not strong:
            line.first_put(self.now, count)
        moment = line.stamp_put(self.now)
        if count == 1:
            first = line.append(payloads[0], strong=strong)
        else:
            first = line.extend(payloads, strong=strong)
        for counter, payload in enumerate(payloads, first):
            assert counter not in model.payloads
            model.payloads[counter] = payload
            model.times[counter] = moment
            model.there.add(counter)
        if strong:
            line.count_tail()
            model.strong |= set(range(first, first + count))
            self.unsealed.append((first, count))
        elif not line.strong_upto:
            line.open_puts(line.window)
        self.note()

    @rule(size=st.integers(0, 20))
    def put_in_the_window(self, size: int) -> None:
        line = self.line
        if line.next < line.put_limit:
            counter = line.next
            payload = bytes([counter % 256]) * size
            line.next += 1
            line.tail.append(payload)
            self.model.payloads[counter] = payload
            self.model.times[counter] = line.put_time
            self.model.there.add(counter)
            self.note()

    @rule()
    def put_with_headers(self) -> None:
        self.put(1, 3, False)
        counter = self.line.next - 1
        self.model.headers[counter] = b"h%d" % counter
        self.line.attach(counter, 1, Attributes(self.model.headers[counter]))

    @rule(pick=picks)
    @precondition(lambda self: self.unsealed)
    def withdraw(self, pick: int) -> None:
        first, count = self.unsealed.pop(pick % len(self.unsealed))
        assert self.line.withdraw(first, count)
        gone = set(range(first, first + count))
        self.model.there -= gone
        self.model.strong -= gone

    # Taking.

    def ready(self) -> bool:
        self.look()
        self.line.stamp_take(self.now)
        ready = self.line.has_ready()
        expected = self.next_up()
        if ready:
            assert expected is not None
            assert not self.line.restoring, "nobody passes what is on its way back"
        elif self.line.restoring:
            return False
        elif expected is not None and not self.model.strong:
            # Behind a strong record that was withdrawn, weak ones may wait for the next commit
            # as long as any strong one waits for it.
            assert self.line.gap is not None
            assert self.line.gap[0] <= expected <= self.line.gap[1]
        return ready

    @rule(count=st.integers(1, 4))
    def take_fast(self, count: int) -> None:
        line = self.line
        if not self.ready() or line.returned:
            return
        line.open_takes(count)
        while line.head < line.take_limit:
            counter = line.head
            line.head += 1
            self._taken(counter, line.ready.popleft())

    def _taken(self, counter: int, payload: bytes) -> None:
        assert counter == self.next_up()
        assert payload == self.model.payloads[counter]
        self.model.there.discard(counter)
        self.note()

    def _claim(self) -> Returned:
        expected = self.next_up()
        record = self.line.claim_head()
        assert record.counter == expected
        assert record.payload == self.model.payloads[record.counter]
        assert record.attributes == attributes_of(self.model, record.counter)
        self.model.there.discard(record.counter)
        return record

    @rule(count=st.integers(1, 3))
    def claim(self, count: int) -> None:
        records: list[Returned] = []
        while len(records) < count and self.ready():
            records.append(self._claim())
            self.note()
        if records:
            claim = Claim(records)
            self.line.claims.append(claim)
            self.claimed.append(claim)

    @rule()
    def claim_and_remove(self) -> None:
        if self.ready():
            record = self._claim()
            self.line.removed.append(removal_of(record))
            self.note()

    @rule()
    def lease(self) -> None:
        if self.ready():
            record = self._claim()
            self.line.bias += 1
            self.leased[record.counter] = record
            self.line.leases[record.counter] = 1

    @rule(pick=picks, ack=st.booleans())
    @precondition(lambda self: self.leased)
    def end_lease(self, pick: int, ack: bool) -> None:
        counter = sorted(self.leased)[pick % len(self.leased)]
        record = self.leased.pop(counter)
        self.look()
        self.line.bias -= 1
        self.line.leases.pop(counter, None)
        if ack:
            self.line.acked.append(removal_of(record))
        else:
            self.line.give_back(record)
            self.model.there.add(counter)
        self.note()

    @rule(pick=picks)
    @precondition(lambda self: self.claimed)
    def leave(self, pick: int) -> None:
        """A taker is cancelled."""
        claim = self.claimed.pop(pick % len(self.claimed))
        if claim.sealed:
            if self.line.sealed is None:
                self.line.restored += claim.records
                self.line.restoring += len(claim.records)
            else:
                self.claimed.append(claim)
        else:
            self.look()
            self.line.claims.remove(claim)
            for record in claim.records:
                self.line.give_back(record)
                self.model.there.add(record.counter)
            self.note()

    @rule()
    def peek(self) -> None:
        expected = self.next_up() if self.ready() else None
        found = self.line.peek_head()
        assert found == (None if expected is None else self.model.payloads[expected])

    # Commits.

    @rule(puts=st.booleans())
    @precondition(lambda self: self.line.sealed is None)
    def seal(self, puts: bool) -> None:
        line = self.line
        line.count_tail()
        if line.dirty:
            batch = line.seal(puts=puts)
            assert all(run.payloads for run in batch.runs)
            if puts:
                self.unsealed = []
            if not batch:
                line.confirm()

    @rule()
    @precondition(lambda self: self.line.sealed is not None)
    def confirm(self) -> None:
        line, model = self.line, self.model
        batch = line.sealed
        assert batch is not None
        for run in batch.runs:
            assert run.item_bytes is None or {len(p) for p in run.payloads} == {run.item_bytes}
            assert [time for n, time in time_runs(run) for _ in range(n)] == [
                model.times[c] for c in range(run.first, run.end)
            ]
            for counter, payload in enumerate(run.payloads, run.first):
                assert payload == model.payloads[counter]
                assert batch.attributes.get(counter) == attributes_of(model, counter)
                assert counter not in model.disk
                model.disk.add(counter)
        model.disk |= {record.counter for record in batch.restored}
        for first, last, weight in [*batch.taken, *batch.acked]:
            gone = range(first, last + 1)
            assert weight == records_weight(sum(len(model.payloads[c]) for c in gone), len(gone))
            for counter in gone:
                model.disk.remove(counter)
        line.note_size(self.now)
        line.confirm()
        line.note_size(self.now)
        if batch.upto:
            model.strong = {c for c in model.strong if c > batch.upto}
        for record in batch.restored:
            model.there.add(record.counter)
        self.note()

    @rule()
    @precondition(lambda self: self.line.sealed is not None)
    def refuse(self) -> None:
        """A full disk: strong puts of the batch are withdrawn, the rest waits."""
        batch = self.line.sealed
        assert batch is not None
        self.line.unseal()
        if batch.upto:
            hidden = sorted(c for c in self.model.strong if batch.first <= c <= batch.upto)
            for counter in hidden:
                assert self.line.withdraw(counter, 1)
            self.model.there -= set(hidden)
            self.model.strong -= set(hidden)

    @rule(count=st.integers(1, 6))
    @precondition(lambda self: self.line.gap is not None)
    def read(self, count: int) -> None:
        """Bring some of what is only on disk back."""
        line, model = self.line, self.model
        assert line.gap is not None
        first, last = line.gap
        found = [c for c in sorted(model.disk) if first <= c <= last][:count]
        runs: list[Run] = []
        for counter in found:
            if counter in model.headers:
                line.attributes[counter] = Attributes(model.headers[counter])
            payload, time = model.payloads[counter], model.times[counter]
            runs.append(Run(counter, (payload,), coarse_times(counter, [time])))
        line.fill_gap(runs, found[-1] if found else last)

    @rule(step=st.sampled_from([1, 50_000, 150_000, 10**9]))
    def wait(self, step: int) -> None:
        self.now += step

    # What always holds.

    @invariant()
    def size_and_marks_are_exact(self) -> None:
        assert len(self.line) == self.size()
        self.line.note_size(self.now)
        assert (self.line.high, self.line.low) == (self.high, self.low)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.line.cached_bytes >= 0
        assert bool(self.line.cached_bytes) == bool(self.line.chunks)
        assert len(self.line.take_marks) <= len(self.line.removed) + 300

    def teardown(self) -> None:
        """Everything that is there can be taken, in order."""
        if self.line.sealed is not None:
            self.confirm()
        for leased in list(self.leased):
            self.end_lease(sorted(self.leased).index(leased), False)
        for _ in range(3):
            if self.line.dirty:
                self.line.count_tail()
                self.seal(True)
                if self.line.sealed is not None:
                    self.confirm()
        expected = sorted(self.model.there)
        found = []
        while self.model.there:
            if self.ready():
                found.append(self._claim().counter)
            else:
                self.read(6)
        assert found == expected
        assert not self.ready()
        assert len(self.line) == 0


def attributes_of(model: Model, counter: int) -> Attributes | None:
    return Attributes(model.headers[counter]) if counter in model.headers else None


def test_a_line_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "CACHE_BYTES_MAX", CACHE_BYTES)
    assert_machine_holds(LineMachine, examples=400, steps=50)


def test_times_that_are_close_are_one_stretch() -> None:
    times = [0, 10, 100_000, 100_001, 400_000, 400_000]
    assert coarse_times(7, times) == [(7, 0), (10, 100_001), (11, 400_000)]
    assert len(coarse_times(1, list(range(0, 10**9, 10**5)))) <= 65


def test_records_that_come_after_a_seal_are_a_block_of_one_time() -> None:
    """The time of the frame before stood in front of theirs, and was looked at for nothing."""
    line = Line("q", next_counter=5, floor=4, size=0, last_put_time=7)
    for now in (10**9, 2 * 10**9):
        line.stamp_put(now)
        first = line.extend([b"a", b"b"], strong=True)
        (run,) = line.seal().runs
        assert (run.first, time_runs(run)) == (first, [(2, now)])
        assert run.times == [(first, now)]
        line.confirm()


def test_takes_without_a_run_leave_no_marks_behind() -> None:
    """Each look for something to take left a mark for ever when takes were claims."""
    line = Line("q", next_counter=1, floor=0, size=0, last_put_time=0)
    line.delays = Histogram()
    for n in range(100):
        line.stamp_take(n * 10**9)
    assert len(line.take_marks) == 1


def test_headers_of_claimed_records_are_forgotten() -> None:
    """Headers read from disk stayed in memory when a queue was drained without any put."""
    line = Line("q", next_counter=11, floor=0, size=10, last_put_time=0)
    line.attributes = dict.fromkeys(range(1, 11), Attributes(b"h"))
    line.fill_gap([Run(1, [b"x"] * 10, [(1, 0)])], 10)
    for _ in range(10):
        assert line.has_ready()
        assert line.claim_head().attributes == Attributes(b"h")
    assert not line.attributes


def refused_line(*payloads: bytes) -> Line:
    """A line whose first record was sealed, then refused, while the others were put."""
    line = Line("q", next_counter=1, floor=0, size=0, last_put_time=0)
    line.stamp_put(1)
    line.append(payloads[0], strong=False)
    line.seal()
    for payload in payloads[1:]:
        line.append(payload, strong=False)
    line.unseal()
    return line


def test_records_of_a_refused_frame_can_be_taken() -> None:
    """They counted as shown to takers already, and were never seen again until a reopen."""
    line = refused_line(b"a", b"b")
    for payload in (b"a", b"b"):
        assert line.has_ready()
        assert line.claim_head().payload == payload


def test_a_refused_frame_does_not_make_lengths_even() -> None:
    """Records of one length, refused, then sealed with others of another length, were cut apart
    at the wrong bytes, because the length of the later ones stood for all."""
    batch = refused_line(b"a", b"bbb").seal()
    assert [run.item_bytes for run in batch.runs] == [None]


def test_removals_wait_for_the_puts_of_what_they_remove() -> None:
    """On a full disk, removing what was put, taken and never written raised in the loop."""
    line = refused_line(b"a", b"b", b"c", b"d")
    assert line.has_ready()
    line.removed.append(removal_of(line.claim_head()))
    line.claims.append(Claim([line.claim_head()]))
    line.acked.append(removal_of(line.claim_head()))
    line.leases[4] = 1
    assert not line.seal(puts=False)
    line.confirm()
    assert line.seal().taken == [(1, 1, records_weight(1, 1)), (2, 2, records_weight(1, 1))]


def test_nothing_is_hidden_behind_a_strong_record_that_was_withdrawn() -> None:
    """The commit before it showed nothing at all, not even its own records."""
    line = Line("q", next_counter=1, floor=0, size=0, last_put_time=0)
    line.stamp_put(1)
    line.append(b"a", strong=True)
    line.seal()
    line.append(b"gone", strong=True)
    line.append(b"weak", strong=False)
    line.count_tail()
    assert line.withdraw(2, 1)
    line.confirm()
    for payload in (b"a", b"weak"):
        assert line.has_ready()
        assert line.claim_head().payload == payload
