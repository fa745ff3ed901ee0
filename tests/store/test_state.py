"""State against a plain model, and the same state again from frames and from a checkpoint.

Random drafts are applied three ways: as the owner does after a commit, as recovery does from the
frame's bytes, and through a checkpoint. All three must agree with each other field by field, and
with a model that is no more than a dictionary of live records for each queue.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store import LogOptions, open_log
from store.blocks import ACKED, records_weight
from store.checkpoint import UnloggedEntry, decode_checkpoint, encode_checkpoint
from store.checksum import CRC32C, check_function, segment_seed
from store.directory import Directory
from store.draft import Draft
from store.errors import CorruptionError, DamageError
from store.frames import (
    FLAG_SEAL,
    SEGMENT_HEADER_BYTES,
    check_body,
    decode_header,
    encode_frame,
)
from store.genesis import Genesis, encode_genesis
from store.index import SegmentIndex
from store.log import Log
from store.ranges import merged
from store.recovery import recover
from store.replay import apply_frame
from store.segment import Frame
from store.segment_state import SegmentState
from store.state import QueueState, State
from tests.support.checkpoints import checkpoint_of
from tests.support.clock import ManualClock

CHECK = check_function(CRC32C)
SEED = segment_seed(CHECK, bytes(16), 1)
QUEUES = ("a", "b")
SEGMENT_FIELDS = SegmentState.__slots__
QUEUE_FIELDS = [field for field in QueueState.__slots__ if field not in ("removed", "spans")]


def facts(state: State) -> dict[str, object]:
    """Every field of a state, in a form that can be compared and stays as it is."""
    found = {
        "queues": {
            name: {
                **{field: getattr(queue, field) for field in QUEUE_FIELDS},
                "removed": list(queue.removed),
                "spans": queue.spans,
            }
            for name, queue in state.queues.items()
            if queue.genesis_segment
        },
        "segments": {
            number: {field: getattr(segment, field) for field in SEGMENT_FIELDS}
            for number, segment in state.segments.items()
        },
        "states": state.states,
        "damage": state.damage,
        "unlogged": state.unlogged,
    }
    return copy.deepcopy(found)


class Model:
    """One queue as a dictionary of live records."""

    def __init__(self) -> None:
        self.next_counter = 1
        self.live: dict[int, bytes] = {}
        self.segments: dict[int, int] = {}
        self.taken: dict[int, bytes] = {}
        self.put_count = 0

    @property
    def floor(self) -> int:
        return min(self.live, default=self.next_counter) - 1


class Twins:
    """A state that commits, a state that replays the frames, and the model of both."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.owner, self.replayed = State(), State()
        self.indexes = SegmentIndex(SEGMENT_HEADER_BYTES), SegmentIndex(SEGMENT_HEADER_BYTES)
        self.models = {name: Model() for name in QUEUES}
        self.values: dict[str, bytes] = {}
        self.segment, self.offset, self.sequence, self.now = 0, 0, 0, 1000
        self.start_segment()

    def start_segment(self) -> None:
        self.segment += 1
        self.offset = SEGMENT_HEADER_BYTES
        self.indexes = SegmentIndex(self.offset), SegmentIndex(self.offset)
        for state in (self.owner, self.replayed):
            state.segments[self.segment] = SegmentState(
                self.segment, self.offset, self.sequence + 1, self.now
            )

    # Steps of a draft. Each changes the model as well.

    def put(self, draft: Draft, name: str) -> None:
        random, model = self.random, self.models[name]
        payloads = [random.randbytes(random.randrange(40)) for _ in range(random.randint(1, 5))]
        first = None
        if random.random() < 0.2:
            first = model.next_counter = model.next_counter + random.randrange(4)
        times = None
        if random.random() < 0.3:
            times = [self.now + random.randrange(-50, 50) for _ in payloads]
        got = draft.put(self.owner.queue(name), payloads, first=first, times=times)
        assert got == model.next_counter
        for counter, payload in enumerate(payloads, got):
            model.live[counter] = payload
            model.segments[counter] = self.segment
        model.next_counter = got + len(payloads)
        model.put_count += len(payloads)

    def remove(self, draft: Draft, name: str) -> None:
        random, model = self.random, self.models[name]
        if model.next_counter == 1:
            return
        ranges = []
        for _ in range(random.randint(1, 3)):
            first = random.randrange(1, model.next_counter)
            last = min(first + random.randrange(8), model.next_counter - 1)
            gone = [model.live.pop(c) for c in range(first, last + 1) if c in model.live]
            weight = records_weight(sum(map(len, gone)), len(gone))
            ranges.append((first, last, weight, len(gone)))
            model.taken.update(zip(range(first, last + 1), gone, strict=False))
        count = draft.remove(
            self.owner.queue(name), [found[:3] for found in ranges], reason=ACKED, delay_ns=7
        )
        assert count == sum(found[3] for found in ranges)

    def lease(self, draft: Draft, name: str) -> None:
        counters = sorted(self.models[name].live)[:3]
        if counters:
            attempts = [self.random.randint(1, 9) for _ in counters]
            draft.lease(self.owner.queue(name), counters, attempts, self.now + 5)

    def move(self, draft: Draft, name: str) -> None:
        """Copy forward a stretch of live records, as compaction does."""
        model = self.models[name]
        live = sorted(model.live)
        plan = draft.plans.get(name)
        if not live or (plan and plan.puts):
            return
        start = self.random.randrange(len(live))
        counters = live[start : start + self.random.randint(1, 6)]
        self._write_again(draft, name, counters, [model.live[c] for c in counters])

    def restore(self, draft: Draft, name: str) -> None:
        model = self.models[name]
        plan = draft.plans.get(name)
        if not model.taken or (plan and plan.puts):
            return
        counter = self.random.choice(sorted(model.taken))
        payload = model.taken.pop(counter)
        if counter not in model.live:
            self._write_again(draft, name, [counter], [payload])

    def _write_again(
        self, draft: Draft, name: str, counters: list[int], payloads: list[bytes]
    ) -> None:
        draft.move(self.owner.queue(name), counters, [900 + c for c in counters], payloads)
        model = self.models[name]
        model.live.update(zip(counters, payloads, strict=True))
        model.segments.update(dict.fromkeys(counters, self.segment))

    def set_state(self, draft: Draft, name: str) -> None:
        key = self.random.choice(["x", "y"])
        value = self.random.choice([None, b"", b"value"])
        draft.set_states([(key, value)])
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value

    def configure(self, draft: Draft, name: str) -> None:
        draft.configure(self.owner.queue(name), self.random.choice([b"{}", b'{"a":1}']))

    def touch(self, draft: Draft, name: str) -> None:
        draft.touch(self.owner.queue(name))
        draft.reserve(self.owner.queue(name), self.models[name].next_counter + 5)

    STEPS = (put, put, put, remove, remove, lease, move, restore, set_state, configure, touch)

    def commit(self) -> None:
        """One random draft into both states."""
        self.now += self.random.randrange(20)
        draft = Draft(self.owner, self.now)
        for _ in range(self.random.randint(1, 3)):
            self.random.choice(self.STEPS)(self, draft, self.random.choice(QUEUES))
        for plan in draft.plans.values():
            plan.finish()
        if not draft.block_count and not draft.plans:
            return
        frame = self.written(draft)
        draft.apply(self.segment, frame.offset, self.indexes[0])
        place = self.owner.segments[self.segment]
        place.length = self.indexes[0].length = frame.end
        if draft.holds_records:
            place.record_frame_bytes += frame.header.frame_bytes
        for plan in draft.plans.values():
            plan.queue.reserved_durable = plan.genesis.reserved_upto
        touched = apply_frame(self.replayed, self.segment, frame, self.indexes[1])
        self.indexes[1].length = frame.end
        assert touched == list(draft.plans)

    def written(self, draft: Draft) -> Frame:
        genesis = encode_genesis([plan.genesis for plan in draft.plans.values()])
        data, checksum = encode_frame(
            draft.parts,
            genesis,
            block_count=draft.block_count,
            flags=0,
            sequence=self.sequence + 1,
            durable_upto=self.sequence,
            previous=0,
            check=CHECK,
            seed=SEED,
            offset=self.offset,
        )
        header = decode_header(data, 0, check=CHECK, seed=SEED, offset=self.offset)
        body, stored = check_body(data, 0, header, check=CHECK, offset=self.offset)
        assert stored == checksum
        frame = Frame(self.offset, header, body, checksum)
        self.sequence, self.offset = header.sequence, frame.end
        return frame

    def reclaim(self) -> None:
        for number in [n for n, s in self.owner.segments.items() if s.dead and n != self.segment]:
            assert number in self.owner.emptied or not self.owner.segments[number].record_count
            for state in (self.owner, self.replayed):
                state.forget_segment(number)

    # Checks.

    def check(self) -> None:
        assert facts(self.replayed) == facts(self.owner)
        assert self.indexes[0].queues == self.indexes[1].queues
        for name, model in self.models.items():
            self.check_queue(self.owner.queue(name), model)
        self.check_segments()
        present = {name for name, entry in self.owner.states.items() if entry.present}
        assert present == set(self.values)
        assert self.owner.disagreements(QUEUES) == []

    def check_queue(self, queue: QueueState, model: Model) -> None:
        genesis = queue.genesis
        assert genesis.next_counter == model.next_counter
        assert genesis.floor == model.floor
        assert genesis.queue_size == len(model.live)
        assert genesis.queue_bytes == sum(map(len, model.live.values()))
        assert genesis.total_put_count == model.put_count
        assert genesis.total_take_count == model.put_count - len(model.live)
        assert (genesis.low_water_mark or 0) <= genesis.queue_size
        assert (genesis.high_water_mark or 0) >= genesis.queue_size
        for counter in range(model.next_counter + 3):
            assert queue.is_live(counter) == (counter in model.live)
        assert all(span.last < following.first for span, following in pairwise(queue.spans))
        for span in queue.spans:
            inside = [c for c in model.live if span.first <= c <= span.last]
            assert span.live == len(inside)
            assert {model.segments[counter] for counter in inside} <= {span.segment}
            assert span.weight >= 0
            assert span.live or not span.weight
        assert set(queue.attempts) <= set(model.live)

    def check_segments(self) -> None:
        for number, segment in self.owner.segments.items():
            spans = [s for q in self.owner.queues.values() for s in q.spans if s.segment == number]
            assert segment.live_count == sum(span.live for span in spans)
            assert segment.live_weight == sum(span.weight for span in spans)
            assert segment.dead == (not segment.live_count and not segment.meta_count)
            assert segment.live_bytes >= 0
            assert segment.record_count >= segment.live_count
            newest = [q for q in self.owner.queues.values() if q.genesis_segment == number]
            configured = [
                q
                for q in self.owner.queues.values()
                if q.configuration is not None and q.configuration_segment == number
            ]
            states = [e for e in self.owner.states.values() if e.segment == number]
            assert segment.meta_count == len(newest) + len(configured) + len(states)
            assert segment.meta_weight >= 0


def through_checkpoint(state: State) -> State:
    checkpoint = checkpoint_of(state)
    loaded = State()
    loaded.load(decode_checkpoint(encode_checkpoint(checkpoint, bytes(16)))[1])
    return loaded


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_committing_and_replaying_lead_to_the_same_state(seed: int, count: int) -> None:
    twins = Twins(Random(seed))
    for _ in range(count):
        twins.commit()
        if twins.random.random() < 0.15:
            twins.start_segment()
        if twins.random.random() < 0.2:
            twins.reclaim()
        twins.check()
        if twins.random.random() < 0.3:
            loaded = through_checkpoint(twins.replayed)
            assert facts(loaded) == facts(twins.owner)
            # Recovery goes on from what it loaded.
            twins.replayed = loaded


# The same with the real log on a simulated disk.

OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512, segment_bytes=65536, checkpoint_bytes=2000)


def random_work(log: Log, random: Random, steps: int) -> None:
    for _ in range(steps):
        name = random.choice(QUEUES)
        kind = random.randrange(10)
        if kind < 4:
            log.put(name, [random.randbytes(random.randrange(300))] * random.randint(1, 9))
        elif kind < 6:
            log.take(name, random.randint(1, 12))
        elif kind == 6:
            draft = log.draft()
            counters = [key.counter for key in log.keys(name)]
            if counters:
                draft.lease(log.queue(name), counters[:2], [1] * len(counters[:2]), 5)
                chosen = random.sample(counters, min(3, len(counters)))
                ranges = merged(sorted((c, c, records_weight(10, 1)) for c in chosen))
                draft.remove(log.queue(name), ranges, reason=ACKED)
            draft.set_states([("timer", random.choice([None, b"value"]))])
            log.commit(draft, sync=random.random() < 0.5)
        elif kind == 7:
            log.rotate()
        elif kind == 8:
            log.compact(random.randint(1, 2000))
        else:
            log.seal()


def recovered(files: SimFiles) -> State:
    """What recovery makes of a copy of the disk."""
    directory = Directory(files.copy(), "/q")
    found = recover(directory, directory.names())
    assert found is not None
    return found.state


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 50))
def test_recovery_finds_the_state_that_the_owner_had(seed: int, steps: int) -> None:
    random, files, clock = Random(seed), SimFiles(), ManualClock()
    log = open_log("/q", files=files, clock=clock, options=OPTIONS)
    for _ in range(3):
        random_work(log, random, steps // 3 + 1)
        clock.set_wall(clock.wall() + random.randrange(-(10**9), 10**10))
        log.flush()
        assert facts(recovered(files)) == facts(log.state)
    log.close()
    assert facts(recovered(files)) == facts(log.state)


def without_checkpoints(files: SimFiles) -> SimFiles:
    content = dict(files.image().files)
    for name in ("/q/checkpoint.a", "/q/checkpoint.b"):
        content[name] = b"rotten"
    return SimFiles.from_image(Image.of(content))


def live_records(state: State) -> dict[str, list[int]]:
    return {
        name: [c for s in queue.spans for c in range(s.first, s.last + 1) if queue.is_live(c)]
        for name, queue in state.queues.items()
        if queue.genesis.queue_size
    }


def test_a_full_scan_finds_the_same_live_records_or_refuses() -> None:
    """It refuses where a removal's frame was reclaimed before the record's own segment was."""
    accepted = 0
    for seed in range(40):
        random, files = Random(seed), SimFiles()
        log = open_log("/q", files=files, clock=ManualClock(), options=OPTIONS)
        random_work(log, random, 12)
        log.put("a", [b"1", b"2", b"3"], sync=False)
        files.process_crash()
        log = open_log("/q", files=files, clock=ManualClock(), options=OPTIONS)
        random_work(log, random, 12)
        log.close()
        try:
            scanned = recovered(without_checkpoints(files))
        except CorruptionError as error:
            assert "genesis says" in error.reason  # noqa: PT017
            continue
        accepted += 1
        assert live_records(scanned) == live_records(log.state), seed
    assert accepted > 20


def test_a_full_scan_does_not_take_a_gap_for_records() -> None:
    """The gap that a crash leaves once counted as records where its first frames were gone."""
    files = SimFiles()
    log = open_log("/q", files=files, clock=ManualClock(), options=OPTIONS)
    log.put("a", [b"1", b"2", b"3", b"4"], sync=False)
    files.process_crash()
    log = open_log("/q", files=files, clock=ManualClock(), options=OPTIONS)
    log.take("a", 1)
    log.put("a", [b"5", b"6"])
    log.take("a", 4)
    log.close()
    scanned = open_log("/q", files=without_checkpoints(files), clock=ManualClock(), options=OPTIONS)
    assert [payload for _, payload in scanned.take("a", 9)] == [b"6"]


# Single rules.


def state_with(name: str, *segments: int) -> tuple[State, QueueState]:
    state = State()
    for number in segments:
        state.segments[number] = SegmentState(number, 4096, 1, 0)
    return state, state.queue(name)


def test_a_removal_that_is_repeated_changes_nothing() -> None:
    """Weights were once subtracted again when a frame repeated an unlogged removal."""
    state, queue = state_with("a", 1)
    state.put(queue, 1, 1, 3, 100, 0)
    assert state.remove(queue, 2, 2, 30) == 1
    before = facts(state), queue.spans[0].weight
    assert state.remove(queue, 2, 2, 30) == 0
    assert (facts(state), queue.spans[0].weight) == before
    assert queue.spans[0].weight == 70


def test_what_was_unlogged_is_logged_once_a_frame_holds_it() -> None:
    twins = Twins(Random(1))
    for state in (twins.owner, twins.replayed):
        queue = state.queue("a")
        state.put(queue, 1, 1, 3, 100, 0)
        state.set_genesis(queue, Genesis("a", next_counter=4, queue_size=3), 1)
        state.remove(queue, 1, 1, 30)
        queue.genesis.queue_size = 2
        state.unlogged["a"] = UnloggedEntry("a", ACKED, 5, 1, 1, 1, 30)
    draft = Draft(twins.owner, 6)
    draft.repeat(draft.unrepeated())
    frame = twins.written(draft)
    apply_frame(twins.replayed, 1, frame, None)
    assert twins.replayed.unlogged == {}
    draft.apply(1, frame.offset, None)
    twins.owner.segments[1].length = frame.end
    assert facts(twins.replayed) == facts(twins.owner)


def test_a_seal_frame_only_lengthens_its_segment() -> None:
    state, _ = state_with("a", 1)
    data, checksum = encode_frame(
        [bytes(16)],
        b"",
        block_count=0,
        flags=FLAG_SEAL,
        sequence=1,
        durable_upto=0,
        previous=0,
        check=CHECK,
        seed=SEED,
        offset=80,
    )
    header = decode_header(data, 0, check=CHECK, seed=SEED, offset=80)
    assert apply_frame(state, 1, Frame(80, header, memoryview(data)[40:56], checksum), None) == []
    assert state.segments[1].length == 80 + len(data)


def test_a_counter_that_comes_again_is_damage() -> None:
    twins = Twins(Random(1))
    draft = Draft(twins.owner, 5)
    draft.put(twins.owner.queue("a"), [b"x"])
    frame = twins.written(draft)
    apply_frame(twins.replayed, 1, frame, None)
    with pytest.raises(DamageError, match="frame 1: counter 1 of 'a' comes again") as caught:
        apply_frame(twins.replayed, 1, frame, None)
    assert caught.value.offset == frame.offset


def test_disagreements_are_told_in_words() -> None:
    state, queue = state_with("a", 1)
    state.put(queue, 1, 1, 3, 100, 0)
    assert state.disagreements(["a"]) == [
        "queue 'a': genesis says 0 records, the log holds 3",
    ]


def test_a_segment_is_sparse_below_half_of_its_length() -> None:
    state, queue = state_with("a", 1)
    segment = state.segments[1]
    segment.length = 1000
    segment.record_frame_bytes = 1000
    state.put(queue, 1, 1, 10, 500, 0)
    assert (segment.live_bytes, segment.sparse) == (1000, False)
    state.remove(queue, 1, 5, 250)
    assert (segment.live_bytes, segment.sparse) == (500, False)
    state.remove(queue, 6, 6, 50)
    assert (segment.live_bytes, segment.sparse) == (400, True)
    assert not segment.dead


def test_a_deletion_is_forgotten_once_nothing_older_can_hold_a_value() -> None:
    state, _ = state_with("a", 1, 2)
    state.set_state("x", 1, 80, 10, True)
    state.set_state("x", 2, 80, 1, False)
    assert "x" in state.states
    state.forget_segment(1)
    assert state.states == {}
    assert state.segments[2].meta_count == 0
    state.set_state("never set", 2, 80, 1, False)
    assert state.states == {}


def test_attempts_go_with_their_records() -> None:
    state, queue = state_with("a", 1)
    state.put(queue, 1, 1, 9, 100, 0)
    queue.attempts = {2: 1, 3: 1, 8: 4}
    state.remove(queue, 3, 3, 10)
    assert queue.attempts == {2: 1, 8: 4}
    state.remove(queue, 1, 7, 70)
    assert queue.attempts == {8: 4}


def test_an_entry_of_a_segment_that_is_gone_counts_nowhere() -> None:
    state, queue = state_with("a", 2)
    state.put(queue, 2, 1, 1, 10, 0)
    state.set_genesis(queue, Genesis("a", next_counter=2, queue_size=1, configuration=b"{}"), 2)
    loaded = through_checkpoint(state)
    assert loaded.segments[2].meta_count == 2
    del state.segments[2]
    loaded = through_checkpoint(state)
    assert loaded.queues["a"].spans == queue.spans
    assert loaded.segments == {}
