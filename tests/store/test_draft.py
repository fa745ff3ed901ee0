"""Drafts: limits, clamped times, counters, and that a dropped draft changes nothing."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log, LogOptions, open_log
from store.blocks import (
    ACKED,
    EXPIRED,
    HEADERS,
    RecordBlock,
    block_headers,
    decode_block,
    records_weight,
)
from store.checkpoint import UnloggedEntry, encode_checkpoint
from store.draft import Draft
from store.errors import CounterExhausted, DiskFull, ItemTooLarge
from store.frames import BLOCK_COUNT_MAX, BODY_BYTES_MAX
from store.genesis import GENESIS_BYTES_MAX, Genesis, encode_genesis
from store.keys import COUNTER_MAX
from store.ranges import merged
from store.repeats import joined
from store.segment_state import SegmentState
from store.state import QueueState, State
from tests.support.checkpoints import checkpoint_of
from tests.support.clock import ManualClock


@pytest.fixture
def state() -> State:
    found = State()
    found.segments[1] = SegmentState(1, 80, 1, 0)
    return found


@pytest.fixture
def queue(state: State) -> QueueState:
    return state.queue("orders")


def put_times(draft: Draft) -> list[int]:
    """Times of all records in the draft, as they will be read back."""
    body = memoryview(b"".join(draft.parts))
    names = list(draft.plans)
    found: list[int] = []
    for header in block_headers(body, draft.block_count, 0):
        block = decode_block(body, header, names)
        assert isinstance(block, RecordBlock)
        found += block.times()
    return found


def applied(draft: Draft) -> None:
    for plan in draft.plans.values():
        plan.finish()
    draft.apply(1, 80, None)


def test_a_dropped_draft_changes_nothing(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a", b"b"])
    draft.remove(queue, [(1, 1, 17)])
    draft.configure(queue, b"{}")
    draft.set_states([("x", b"1")])
    assert queue.genesis == Genesis("orders")
    assert queue.configuration is None
    assert state.states == {}
    assert queue.spans == []


def test_genesis_follows_what_the_draft_does(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    assert draft.put(queue, [b"aa", b"bbb"]) == 1
    assert draft.put(queue, [b"c"]) == 3
    assert draft.remove(queue, [(1, 1, records_weight(2, 1))], delay_ns=50, reason=ACKED) == 1
    assert draft.remove(queue, [(1, 2, records_weight(3, 1))], time=90, reason=EXPIRED) == 1
    applied(draft)
    assert queue.genesis == Genesis(
        "orders",
        next_counter=4,
        queue_size=1,
        queue_bytes=1,
        total_put_count=3,
        total_take_count=2,
        total_delay_ns=50,
        last_put_time=100,
        last_take_time=100,
        high_water_mark=3,
        low_water_mark=1,
        high_water_time=100,
        low_water_time=100,
        floor=2,
    )


def test_times_of_a_queue_never_go_back(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a"])
    draft.put(queue, [b"b", b"c", b"d"], times=[90, 120, 110])
    draft.put(queue, [b"e"])
    draft.put(queue, [b"f", b"g"], times=[130, 140])
    assert put_times(draft) == [100, 100, 120, 120, 120, 130, 140]
    applied(draft)
    assert state.segments[1].last_time == 140
    assert queue.genesis.last_put_time == 140


def test_counters_given_out_before_may_leave_a_gap(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    assert draft.put(queue, [b"a"], first=5) == 5
    applied(draft)
    assert queue.genesis.floor == 4
    assert not queue.is_live(4)
    draft = Draft(state, 100)
    assert draft.put(queue, [b"b"], first=9) == 9
    assert draft.put(queue, [b"c"]) == 10
    applied(draft)
    assert list(queue.removed) == [(6, 8)]


def test_the_last_counter_is_the_last(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    assert draft.put(queue, [b"a"], first=COUNTER_MAX) == COUNTER_MAX
    with pytest.raises(CounterExhausted, match="'orders': counter 9223372036854775808 is over"):
        draft.put(queue, [b"b"])


def test_a_commit_that_does_not_fit_a_frame_is_refused(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    with pytest.raises(ItemTooLarge, match=r"is over the limit of 67108864\. Nothing was stored"):
        draft.put(queue, [bytes(BODY_BYTES_MAX)])
    assert draft.block_count == 0
    with pytest.raises(ItemTooLarge):
        draft.configure(queue, b"x" * BODY_BYTES_MAX)
    draft.put(queue, [b"small"])
    draft.block_count = BLOCK_COUNT_MAX
    with pytest.raises(ItemTooLarge, match="at most 65535 blocks"):
        draft.put(queue, [b"one more"])


def test_room_is_kept_for_the_largest_genesis_entry(state: State) -> None:
    entry = Genesis("abcdefgh/" + "x" * 64 + ".dlq")
    for field in Genesis.__struct_fields__[1:-1]:
        setattr(entry, field, 2**64 - 1)
    assert len(encode_genesis([entry])) < GENESIS_BYTES_MAX


def test_a_configuration_must_be_text(state: State, queue: QueueState) -> None:
    with pytest.raises(UnicodeDecodeError):
        Draft(state, 1).configure(queue, b"\xff")


def test_reserving_never_goes_back_nor_over_the_limit(state: State, queue: QueueState) -> None:
    draft = Draft(state, 1)
    draft.reserve(queue, 10)
    draft.reserve(queue, 5)
    assert draft.plans["orders"].genesis.reserved_upto == 10
    draft.reserve(queue, COUNTER_MAX + 9)
    assert draft.plans["orders"].genesis.reserved_upto == COUNTER_MAX


def test_a_record_may_come_back_and_go_again_in_one_draft(state: State, queue: QueueState) -> None:
    """Counts and floor once went wrong, and the log stopped, when both were in one commit."""
    draft = Draft(state, 1)
    draft.put(queue, [b"a", b"b", b"c"])
    applied(draft)
    taken = Draft(state, 2)
    taken.remove(queue, [(1, 2, 2 * records_weight(1, 1))])
    applied(taken)
    draft = Draft(state, 3)
    draft.move(queue, [1], [1], [b"a"])
    draft.move(queue, [2], [1], [b"b"])
    assert draft.remove(queue, [(1, 1, records_weight(1, 1))]) == 1
    assert draft.remove(queue, [(3, 3, records_weight(1, 1))]) == 1
    draft.move(queue, [3], [1], [b"c"])
    applied(draft)
    assert [counter for counter in range(5) if queue.is_live(counter)] == [2, 3]
    assert queue.genesis.queue_size == 2
    assert queue.genesis.queue_bytes == 2
    assert state.disagreements(["orders"]) == []


def test_removals_are_remembered_with_reason_and_time(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a", b"b"])
    draft.remove(queue, [(1, 1, 17)], reason=ACKED)
    draft.remove(queue, [(2, 2, 17)], reason=EXPIRED, time=70)
    assert draft.removals() == [
        UnloggedEntry("orders", ACKED, 100, 1, 1, 1, 17),
        UnloggedEntry("orders", EXPIRED, 70, 2, 2, 1, 17),
    ]


def test_nothing_to_put_or_to_set_adds_no_block(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    assert draft.put(queue, []) == 1
    draft.set_states([])
    assert draft.block_count == 0


def test_a_lease_of_a_record_that_goes_in_the_same_draft_is_forgotten(
    state: State, queue: QueueState
) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a", b"b"])
    draft.remove(queue, [(1, 1, 17)])
    draft.lease(queue, [1, 2], [1, 1], 500)
    applied(draft)
    assert queue.attempts == {2: 1}


def checkpoint_bytes(state: State) -> int:
    return len(encode_checkpoint(checkpoint_of(state), bytes(16)))


def test_a_checkpoint_grows_no_more_than_the_draft_says(state: State, queue: QueueState) -> None:
    draft = Draft(state, 2**62)
    draft.put(queue, [b"x"] * 200, first=2**62)
    draft.configure(queue, b"{}")
    assert draft.growth > 0
    applied(draft)
    random = Random(4)
    for _ in range(100):
        before = checkpoint_bytes(state)
        draft = Draft(state, 2**62)
        live = [c for c in range(2**62, 2**62 + 200) if queue.is_live(c)]
        chosen = sorted(random.sample(live, min(len(live), random.randint(1, 4))))
        draft.lease(queue, chosen, [2**32 - 1] * len(chosen), 2**62)
        draft.remove(queue, merged([(c, c, 2**62) for c in chosen[1:] or chosen]))
        if random.random() < 0.2:
            draft.configure(queue, random.choice([b"\x00" * 9, b'"quoted"', "ä".encode() * 40]))
        growth = draft.growth + draft.removal_growth()
        unlogged = joined(state.unlogged, draft.removals())
        applied(draft)
        state.unlogged = unlogged
        assert checkpoint_bytes(state) - before <= growth
        if not live[4:]:
            break


def test_records_are_never_moved_without_writing_them() -> None:
    """On a full disk a move was once committed as if it were a removal, and the record was lost."""
    files = SimFiles(capacity=200_000)
    options = LogOptions(fill_bytes=0, reserve_bytes=0, segment_bytes=65536)
    log = open_log("/q", files=files, clock=ManualClock(), options=options)
    log.put("a", [bytes(1000)] * 60)
    log.put("b", [b"keep"])
    log.rotate()
    log.put("c", [b"1"])
    log.take("a", 59)
    for _ in range(3):
        log.checkpoint()
    hog = files.create(files.open_dir("/"), "hog")
    size = 0
    with suppress(OSError):
        while True:
            size += files.pwrite(hog, bytes(512), size)
    with pytest.raises(DiskFull):
        log.compact()
    assert log.get("b", 1) is not None
    assert [payload for _, payload in log.take("b")] == [b"keep"]


def test_unlogged_removals_of_a_queue_become_one() -> None:
    one = UnloggedEntry("a", ACKED, 5, 3, 9, 2, 34)
    more = [
        UnloggedEntry("a", ACKED, 6, 2, 3, 2, 34),
        UnloggedEntry("a", EXPIRED, 7, 4, 11, 1, 17),
        UnloggedEntry("b", ACKED, 7, 1, 1, 1, 17),
    ]
    unlogged = {"a": one}
    assert joined(unlogged, more) == {
        "a": UnloggedEntry("a", EXPIRED, 7, 2, 11, 5, 85),
        "b": UnloggedEntry("b", ACKED, 7, 1, 1, 1, 17),
    }
    assert unlogged == {"a": UnloggedEntry("a", ACKED, 5, 3, 9, 2, 34)}


def unlogged_removals(state: State, name: str, count: int) -> UnloggedEntry:
    """Every second of that many records is removed, and no frame says so."""
    queue = state.queue(name)
    draft = Draft(state, 5)
    draft.put(queue, [b"x"] * count)
    for counter in range(2, count + 1, 2):
        draft.remove(queue, [(counter, counter, 17)], reason=ACKED)
    unlogged = joined({}, draft.removals())
    applied(draft)
    state.unlogged |= unlogged
    return unlogged[name]


def test_unlogged_removals_are_repeated_in_pieces_the_lowest_first(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.repeats.REPEATED_RANGES_MAX", 5)
    unlogged_removals(state, "a", 16)
    unlogged_removals(state, "b", 6)
    seen = []
    while state.unlogged:
        draft = Draft(state, 9)
        repeats = draft.unrepeated()
        seen.append([(found.queue.name, list(found.ranges)) for found in repeats])
        draft.repeat(repeats)
        assert draft.block_count == len(repeats)
        assert draft.growth == 0
        applied(draft)
    assert seen == [
        [("a", [(c, c, 17) for c in (2, 4, 6, 8, 10)])],
        [("a", [(c, c, 17) for c in (12, 14, 16)]), ("b", [(2, 2, 17), (4, 4, 17)])],
        [("b", [(6, 6, 17)])],
    ]


def test_a_frame_without_room_repeats_nothing(state: State) -> None:
    unlogged_removals(state, "a", 6)
    for size in range(BODY_BYTES_MAX - 2000, BODY_BYTES_MAX, 8):
        draft = Draft(state, 9)
        draft.size = size
        draft.repeat(draft.unrepeated())
        assert draft.size <= BODY_BYTES_MAX
    draft = Draft(state, 9)
    draft.block_count = BLOCK_COUNT_MAX
    assert draft.unrepeated() == []


def test_what_was_restored_is_not_repeated(state: State) -> None:
    entry = unlogged_removals(state, "a", 6)
    queue = state.queue("a")
    for restored, left in ((2, 4), (6, 4), (4, None)):
        draft = Draft(state, 9)
        draft.move(queue, [restored], [1], [b"x"])
        applied(draft)
        assert (entry.first if "a" in state.unlogged else None) == left
    assert Draft(state, 9).unrepeated() == []


def test_a_removal_elsewhere_does_not_pass_for_a_repeated_one(state: State) -> None:
    entry = unlogged_removals(state, "a", 8)
    queue = state.queue("a")
    for counter, first in ((5, 2), (1, 2), (2, 4)):
        state.remove(queue, counter, counter, 17)
        assert entry.first == first
    state.remove(state.queue("b"), 1, 1, 17)
    state.remove(queue, 3, 7, 17)
    assert entry.first == 8
    state.remove(queue, 1, 8, 17)
    assert not state.unlogged


def test_a_repeated_range_weighs_no_more_than_all_of_them(state: State) -> None:
    """Counters that were logged before may lie between: their share must not grow out of bounds."""
    queue = state.queue("a")
    draft = Draft(state, 5)
    draft.put(queue, [b"x"] * 10, first=2**40)
    draft.remove(queue, [(2**40, 2**40, 17)], reason=ACKED)
    applied(draft)
    state.unlogged = {"a": UnloggedEntry("a", ACKED, 5, 1, 2**40, 1, 17)}
    (repeat,) = Draft(state, 9).unrepeated()
    assert repeat.ranges == [(1, 2**40, 17)]


def test_counters_to_reserve_are_whole(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    with pytest.raises(TypeError):
        draft.reserve(queue, 7.5)  # type: ignore[arg-type]
    assert not draft.plans


def test_ranges_that_touch_are_joined() -> None:
    assert merged([]) == []
    assert merged([(1, 1, 5), (2, 4, 6), (6, 6, 1), (7, 7, 2)]) == [(1, 4, 11), (6, 7, 3)]


def test_runs_of_times_never_go_back_either(state: State, queue: QueueState) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a"])
    draft.put(queue, [b"x"] * 5, time_runs=[(2, 90), (1, 120), (2, 110)], item_bytes=1)
    draft.put(queue, [b"b"], time_runs=[(1, 80)])
    assert put_times(draft) == [100, 100, 100, 120, 120, 120, 120]
    applied(draft)
    assert queue.genesis.last_put_time == 120
    assert queue.genesis.queue_bytes == 7


@pytest.mark.parametrize(("time", "found"), [(90, 100), (120, 120)])
def test_one_time_for_all_records_never_goes_back(
    state: State, queue: QueueState, time: int, found: int
) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a"])
    draft.put(queue, [b"b", b"c"], time_runs=[(2, time)])
    assert put_times(draft) == [100, found, found]


@pytest.mark.parametrize("runs", [[], [(1, 5)], [(3, 5)], [(0, 5), (2, 6)], [(3, 5), (-1, 6)]])
def test_runs_of_times_for_other_than_the_records_are_refused(
    state: State, queue: QueueState, runs: list[tuple[int, int]]
) -> None:
    draft = Draft(state, 100)
    with pytest.raises(ValueError, match="runs of times for other than 2 records"):
        draft.put(queue, [b"a", b"b"], time_runs=runs)
    assert draft.parts == []


def test_water_marks_that_were_seen_between_commits_are_kept(
    state: State, queue: QueueState
) -> None:
    """One commit may stand for many puts and takes, whose marks only the caller saw."""
    draft = Draft(state, 100)
    draft.put(queue, [b"a", b"b"])
    draft.set_marks(queue, high=7, high_time=91, low=0, low_time=92)
    applied(draft)
    genesis = queue.genesis
    assert (genesis.high_water_mark, genesis.high_water_time) == (7, 91)
    assert (genesis.low_water_mark, genesis.low_water_time) == (0, 92)
    draft = Draft(state, 200)
    draft.put(queue, [b"x"] * 4)
    applied(draft)
    assert queue.genesis.high_water_mark == 7


def test_an_attempt_with_more_digits_needs_that_much_more_room(
    state: State, queue: QueueState
) -> None:
    draft = Draft(state, 100)
    draft.put(queue, [b"a", b"b"])
    draft.lease(queue, [1, 2], [9, 9], deadline=1)
    applied(draft)
    draft = Draft(state, 100)
    draft.lease(queue, [1, 2], [10, 9], deadline=1)
    assert draft.growth == 1
    applied(draft)
    draft = Draft(state, 100)
    draft.lease(queue, [1, 2], [9, 4_000_000_000], deadline=1)
    assert draft.growth == 9


def test_the_records_of_a_block_are_put_as_they_lie_in_it(log: Log) -> None:
    """Under new counters and with a new time; headers stay."""
    draft = log.draft()
    draft.put(log.queue("a"), [b"0", b"1", b"22"], columns={HEADERS: [b"", b"h", b""]})
    log.commit(draft)
    log.take("a", 1)
    (block,) = log.read("a")
    draft = log.draft()
    assert draft.put_block(log.queue("b"), block) == 1
    log.commit(draft)
    (copy,) = log.read("b")
    assert (copy.payloads(), list(copy.counters())) == ([b"1", b"22"], [1, 2])
    assert copy.columns[HEADERS] == [b"h", b""]


def test_a_block_is_refused_when_no_counters_are_left(log: Log) -> None:
    log.put("a", [b"1", b"2"])
    (block,) = log.read("a")
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"], first=COUNTER_MAX - 1)
    with pytest.raises(CounterExhausted):
        draft.put_block(log.queue("b"), block)


def test_states_that_let_records_go_may_use_what_is_held_for_removals(state: State) -> None:
    draft = Draft(state, 5)
    draft.set_states([("position", b"7")], drains=True)
    assert draft.only_drains
    assert not draft.only_removes, "no checkpoint can stand for it"
    draft.set_states([("other", b"1")])
    assert not draft.only_drains
