"""What users do wrong, and what a review found: each is refused, or does no harm."""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    ConcurrentUse,
    CorruptionError,
    DiskFull,
    Draft,
    ItemTooLarge,
    Log,
    LogOptions,
    Reader,
    StaleDraft,
    open_log,
)
from store.blocks import RECORD_WEIGHT
from store.checkpoint import decode_checkpoint
from store.frames import BODY_BYTES_MAX
from store.keys import COUNTER_MAX, RESERVED_COUNTERS
from store.segment import segment_name
from tests.store.conftest import PATH, OpenStore
from tests.support.clock import ManualClock

SMALL_SEGMENTS = LogOptions(fill_bytes=0, reserve_bytes=512, segment_bytes=64 << 10)


def counters(log: Log, queue: str = "orders") -> list[int]:
    return [key.counter for key in log.keys(queue)]


def fill_disk(log: Log, size: int = 2000) -> int:
    """Put until the disk is full; returns how many records are in."""
    count = 0
    while True:
        try:
            log.put("orders", [bytes(size)])
        except DiskFull:
            return count
        count += 1


# Drafts.


def test_a_draft_is_committed_once(log: Log) -> None:
    draft = log.draft()
    draft.put(log.queue("orders"), [b"a"])
    log.commit(draft)
    with pytest.raises(StaleDraft):
        log.commit(draft)
    assert counters(log) == [1]


def test_a_draft_whose_queue_changed_since_is_refused(log: Log, open_store: OpenStore) -> None:
    """Two of them would give out the same counters; the second one's records were lost."""
    first, second = log.draft(), log.draft()
    for draft in (first, second):
        draft.put(log.queue("orders"), [b"x"])
    log.commit(first)
    with pytest.raises(StaleDraft):
        log.commit(second)
    log.close()
    assert counters(open_store()) == [1]


def test_a_draft_of_another_store_or_of_an_earlier_life_is_refused(
    log: Log, open_store: OpenStore, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"a"])
    with open_log("/data/other", files=files, clock=clock) as other, pytest.raises(StaleDraft):
        log.commit(other.draft())
    old_queue = log.queue("orders")
    log.close()
    again = open_store()
    draft = again.draft()
    draft.put(old_queue, [b"b"])
    with pytest.raises(StaleDraft):
        again.commit(draft)
    assert counters(again) == [1]


def test_a_draft_that_met_a_full_disk_may_be_committed_again(
    files: SimFiles, clock: ManualClock
) -> None:
    files = SimFiles(capacity=100 << 10)
    log = open_log(PATH, files=files, clock=clock, options=SMALL_SEGMENTS)
    fill_disk(log)
    draft = log.draft()
    draft.put(log.queue("later"), [bytes(2000)])
    with pytest.raises(DiskFull):
        log.commit(draft)
    while log.take("orders", 8):
        pass
    log.commit(draft)
    assert counters(log, "later") == [1]


def test_only_records_that_exist_can_be_removed(log: Log) -> None:
    """A range past the end raised the floor above records that were put later."""
    log.put("orders", [b"a"])
    queue = log.queue("orders")
    for first, last in ((1, 10), (0, 1), (2, 1)):
        with pytest.raises(ValueError, match="the next counter is 2"):
            log.draft().remove(queue, [(first, last, 0)])
    log.put("orders", [b"b"])
    assert counters(log) == [1, 2]


def test_a_removal_that_does_not_fit_leaves_the_draft_as_it_was(log: Log) -> None:
    log.put("orders", [b"a"] * 3)
    draft = log.draft()
    draft.put(log.queue("other"), [bytes(BODY_BYTES_MAX - 3000)])
    with pytest.raises(ItemTooLarge):
        draft.remove(log.queue("orders"), [(1, 1, 17)] * 100)
    log.commit(draft)
    assert counters(log) == [1, 2, 3]


def test_empty_lists_change_nothing(log: Log) -> None:
    log.put("orders", [b"a"])
    draft = log.draft()
    queue = log.queue("orders")
    assert draft.remove(queue, []) == 0
    draft.lease(queue, [], [], 0)
    draft.move(queue, [], [], [])
    draft.set_states([])
    assert draft.put(queue, []) == 2
    assert draft.block_count == 0


def test_counters_never_go_back(log: Log) -> None:
    log.put("orders", [b"a"])
    with pytest.raises(ValueError, match="first=1 is below the next counter 2"):
        log.draft().put(log.queue("orders"), [b"b"], first=1)


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        (b"hello", "payloads is a list of bytes, not bytes"),
        ("hello", "payloads is a list of bytes, not str"),
        ([b"fine", "text"], "payload 1 is str, not bytes"),
        ([None], "payload 0 is NoneType, not bytes"),
    ],
)
def test_payloads_that_are_not_bytes_are_named(log: Log, payloads: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        log.put("orders", payloads)  # type: ignore[arg-type]
    assert counters(log) == []


def test_a_column_of_the_wrong_type_is_the_callers_type_error(log: Log) -> None:
    with pytest.raises(TypeError):
        log.draft().put(log.queue("orders"), [b"a"], columns={2: ["soon"]})  # type: ignore[dict-item]


def test_more_payload_than_a_frame_holds_is_refused_before_it_is_encoded(log: Log) -> None:
    with pytest.raises(ItemTooLarge, match="Nothing was stored"):
        log.put("orders", [bytes(BODY_BYTES_MAX + 1)])


# Calls.


def test_looking_at_a_queue_does_not_make_it(log: Log) -> None:
    assert log.get("nothing", 1) is None
    assert not log.exists("nothing", 1)
    assert log.seek("nothing", 0) == 1
    assert log.take("nothing") == []
    assert "nothing" not in log.state.queues


def test_a_time_in_seconds_is_refused(log: Log) -> None:
    with pytest.raises(TypeError, match="whole number of nanoseconds"):
        log.seek("orders", 1.5)  # type: ignore[arg-type]


def test_a_read_does_not_show_what_was_taken_while_it_paused(log: Log) -> None:
    for payload in (b"a", b"b", b"c", b"d"):
        log.put("orders", [payload])
    reading = log.read("orders")
    assert next(reading).payloads() == [b"a"]
    log.take("orders", 3)
    assert [block.payloads() for block in reading] == [[b"d"]]


def test_a_second_thread_is_refused_before_it_can_do_harm(log: Log, files: SimFiles) -> None:
    """Stands for another thread: a call that comes while a commit is under way."""
    refused: list[str] = []

    def intrude(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite":
            for call in (log.flush, log.draft, lambda: log.put("orders", [b"b"])):
                with pytest.raises(ConcurrentUse):
                    call()
                refused.append(name)

    files.before_op = intrude
    log.put("orders", [b"a"])
    files.before_op = None
    assert refused
    assert counters(log) == [1]


def test_recover_takes_only_its_two_words(open_store: OpenStore, files: SimFiles) -> None:
    for wrong in (False, None, "yes", "Refuse"):
        with pytest.raises(ValueError, match="recover="):
            open_store(recover=wrong)


def test_a_path_object_is_a_path_and_nonsense_is_none(tmp_path: Path) -> None:
    with open_log(tmp_path / "store") as log:
        log.put("orders", [b"a"])
    for wrong in ("", "a\0b"):
        with pytest.raises(AccessError, match="is no path"):
            open_log(wrong)
    for number in (b"/tmp/store", 5, None):
        with pytest.raises(TypeError, match="is neither text nor a path"):
            open_log(number)  # type: ignore[arg-type]


# A full disk and damage, with several segments.


def test_a_full_disk_comes_back_by_draining_although_another_queue_is_idle(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The idle queue's newest genesis pinned every dead segment: space never came back."""
    log = open_log(PATH, files=SimFiles(capacity=400 << 10), clock=clock, options=SMALL_SEGMENTS)
    log.put("idle", [b"x"])
    log.take("idle")
    count = fill_disk(log)
    assert len(log.state.segments) > 3
    with caplog.at_level(logging.WARNING, "store"):
        assert sum(len(log.take("orders")) for _ in range(count)) == count
    assert len(caplog.records) < 10
    assert len(log.state.segments) <= 2
    log.put("orders", [bytes(2000)])
    assert log.queue("idle").genesis.next_counter == 2


def test_a_disk_that_one_segment_filled_takes_puts_again_once_it_is_drained(
    clock: ManualClock,
) -> None:
    """Everything was taken, yet the tail kept its dead records and every put was refused."""
    options = LogOptions(fill_bytes=512, reserve_bytes=4096, segment_bytes=64 << 10)
    for capacity in (40 << 10, 60 << 10):
        log = open_log(PATH, files=SimFiles(capacity=capacity), clock=clock, options=options)
        for _ in range(3):
            count = fill_disk(log, 500)
            assert count > 10
            assert sum(len(log.take("orders")) for _ in range(count)) == count


def test_takes_go_on_when_the_checkpoint_nearly_fills_its_file(clock: ManualClock) -> None:
    for extra in range(0, 3000, 50):
        log = open_log(PATH, files=SimFiles(capacity=40 << 10), clock=clock, options=SMALL_SEGMENTS)
        draft = log.draft()
        draft.set_states([("s" * (1 + extra), b"v")])
        log.commit(draft)
        log.checkpoint()
        log.checkpoint()
        count = fill_disk(log, 300)
        assert sum(len(log.take("orders")) for _ in range(count)) == count


def test_a_removal_on_a_full_disk_survives_damage_of_the_newest_checkpoint(
    clock: ManualClock,
) -> None:
    files = SimFiles(capacity=60 << 10)
    log = open_log(PATH, files=files, clock=clock, options=SMALL_SEGMENTS)
    fill_disk(log, 500)
    while not log.state.unlogged:
        log.take("orders")
    floor = log.queue("orders").genesis.floor
    log.release()
    newest = max(
        ("checkpoint.a", "checkpoint.b"),
        key=lambda name: decode_checkpoint(files.content(f"{PATH}/{name}"))[1].number,
    )
    files.flip_bit(f"{PATH}/{newest}", offset=100, bit=0)
    again = open_log(PATH, files=files, clock=clock, options=SMALL_SEGMENTS)
    assert again.queue("orders").genesis.floor == floor


def test_a_damaged_state_does_not_keep_other_dead_segments(
    open_store: OpenStore, files: SimFiles
) -> None:
    log = open_store()
    draft = log.draft()
    draft.set_states([("alice", b"10" * 50)])
    log.commit(draft)
    log.put("orders", [bytes(500)])
    log.rotate()
    for _ in range(3):
        log.put("orders", [bytes(500)])
        log.rotate()
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=150, bit=0)
    log.cache.forget(1)
    log.take("orders", 4)
    log.put("orders", [b"more"])
    assert sorted(log.state.segments) == [1, max(log.state.segments)]


def test_one_damaged_sparse_segment_does_not_stop_compaction_of_the_others(
    open_store: OpenStore, files: SimFiles
) -> None:
    log = open_store()
    for name in ("a", "b"):
        log.put(name, [bytes(300)] * 20)
        log.rotate()
    for name in ("a", "b"):
        draft = log.draft()
        draft.remove(log.queue(name), [(1, 19, 19 * (300 + RECORD_WEIGHT))])
        log.commit(draft)
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=300, bit=0)
    log.cache.forget(1)
    with pytest.raises(CorruptionError):
        log.compact()
    while log.compact():
        pass
    assert 2 not in log.state.segments
    assert counters(log, "b") == [20]


def test_retained_records_stay_until_the_limits_let_them_go(open_store: OpenStore) -> None:
    log = open_store()
    log.retain("orders")
    log.put("orders", [b"a"])
    log.take("orders")
    log.rotate()
    log.put("orders", [b"b"])
    assert [block.payloads() for block in log.read("orders", removed=True)] == [[b"a"], [b"b"]]


def test_many_newest_entries_are_carried_forward_in_several_commits(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.upkeep.CARRY_BYTES", 3000)
    log = open_store()
    draft = log.draft()
    for number in range(10):
        queue = log.queue(f"queue-{number}")
        draft.put(queue, [b"x" * 2000])
        draft.configure(queue, b"{}")
    draft.set_states([(f"state-{number}", b"s" * 300) for number in range(20)])
    log.commit(draft)
    log.rotate()
    before = log.sequence
    for number in range(10):
        log.take(f"queue-{number}")
    while log.compact():
        pass
    log.put("queue-0", [b"y"])
    assert log.sequence - before > 13
    assert 1 not in log.state.segments
    assert log.state_of("state-19") == b"s" * 300
    assert log.queue("queue-9").configuration == b"{}"


def test_counters_lost_without_a_trace_are_not_given_again(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b" * 100])
    end = log.tail.length
    log.put("orders", [b"c" * 100])
    log.release()
    for offset in (80 + 120, end + 120):
        files.flip_bit(f"{PATH}/{segment_name(2)}", offset=offset, bit=0)
    again = open_store(recover="quarantine")
    assert again.put("orders", [b"d"]).start > 1 + RESERVED_COUNTERS


# What an adversary found.


@pytest.mark.parametrize("payload", [memoryview(array("I", [1, 2, 3])), array("I", [4, 5])])
def test_a_view_of_larger_items_is_refused_and_tears_nothing(log: Log, payload: object) -> None:
    """Its length counts items, so it used to end early and take the next record with it."""
    for payloads in ([payload], [payload, b"next"]):
        with pytest.raises(TypeError):
            log.put("orders", payloads)  # type: ignore[arg-type]
    assert counters(log) == []


def test_the_sum_of_all_delays_stops_at_its_limit(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a", b"b"])
    queue = log.queue("orders")
    for counter in (1, 2):
        draft = log.draft()
        draft.remove(queue, [(counter, counter, 17)], delay_ns=COUNTER_MAX - 5)
        log.commit(draft)
    log.close()
    assert open_store().queue("orders").genesis.total_delay_ns == COUNTER_MAX


def test_arguments_that_do_not_fit_are_refused_before_anything_is_written(log: Log) -> None:
    log.put("orders", [b"a"] * 8)
    log.take("orders", 4)
    queue = log.queue("orders")
    sequence = log.sequence
    wrong: list[Callable[[Draft], object]] = [
        lambda draft: draft.put(queue, [b"a", b"b"], times=[1]),
        lambda draft: draft.put(queue, [b"a"], times=[2**64]),
        lambda draft: draft.put(queue, [b"a", b"b"], columns={8: [1]}),
        lambda draft: draft.put(queue, [b"a"], columns={128: [1]}),
        lambda draft: draft.put(queue, [b"a"], columns={1: [5]}),
        lambda draft: draft.lease(queue, [5, 6], [1], 0),
        lambda draft: draft.lease(queue, [5], [1], -1),
        lambda draft: draft.remove(queue, [(5, 5, -1)]),
        lambda draft: draft.move(queue, [5, 8], [1, 1], [b"a", b"a"]),
        lambda draft: draft.move(queue, [5, 5], [1, 1], [b"a", b"a"]),
        lambda draft: draft.move(queue, [1000], [1], [b"a"]),
        lambda draft: draft.move(queue, [1], [1, 2], [b"a"]),
        lambda draft: draft.move(queue, [1, 2], [2, 1], [b"a", b"a"]),
        lambda draft: draft.move(queue, [1], [2**64], [b"a"]),
    ]
    for mistake in wrong:
        with pytest.raises(ValueError):
            mistake(log.draft())
    with pytest.raises(TypeError):
        log.draft().move(queue, [1], [1], ["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        log.draft().set_states([("name", 5)])  # type: ignore[list-item]
    assert log.sequence == sequence
    assert counters(log) == [5, 6, 7, 8]


def test_a_draft_keeps_its_own_copy_of_what_it_was_given(log: Log) -> None:
    log.put("orders", [b"a"] * 3)
    ranges = [(1, 1, 17)]
    draft = log.draft()
    draft.remove(log.queue("orders"), ranges)
    ranges[0] = (1, 3, 51)
    log.commit(draft)
    assert counters(log) == [2, 3]


def test_two_threads_never_take_the_same_record(tmp_path: Path) -> None:
    with open_log(tmp_path / "store", options=SMALL_SEGMENTS) as log:
        for _ in range(10):
            log.put("orders", [b"x"] * 50, sync=False)
        taken: list[int] = []

        def consume() -> None:
            while True:
                try:
                    got = log.take("orders", sync=False)
                except ConcurrentUse:
                    continue
                if not got:
                    return
                taken.append(got[0][0].counter)

        threads = [threading.Thread(target=consume) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == list(range(1, 501))


def test_a_lost_tail_segment_leaves_neither_its_index_nor_its_entries_behind(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """The next segment has its number: the old index was believed, and upkeep never ended."""
    log.put("orders", [bytes(3000)])
    log.rotate()
    log.put("orders", [bytes(3000)])
    draft = log.draft()
    draft.configure(log.queue("orders"), b"{}")
    log.commit(draft)
    lost = log.tail.file.number
    log.close()
    files.unlink(files.open_dir(PATH), segment_name(lost))
    again = open_store(recover="quarantine")
    assert again.tail.file.number == lost
    again.put("orders", [b"new"])
    again.rotate()
    again.put("orders", [b"newer"])
    assert again.take("orders", 3)[-1][1] == b"newer"
    again.release()
    assert counters(open_store()) == []


def test_a_damaged_header_is_quarantined_once(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.close()
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=30, bit=0)
    open_store(recover="quarantine").close()
    assert counters(open_store()) == [1]


def test_small_states_are_not_rewritten_for_ever(open_store: OpenStore) -> None:
    log = open_store(LogOptions(fill_bytes=512, reserve_bytes=512, segment_bytes=64 << 10))
    for start in range(0, 6000, 2000):
        draft = log.draft()
        draft.set_states([(f"{start + at:05}", b"") for at in range(2000)])
        log.commit(draft)
        log.rotate()
    steps = 0
    while log.compact():
        steps += 1
        assert steps < 20
    assert log.state_of("05999") == b""


def test_a_reader_that_follows_for_long_keeps_only_what_is_there(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    with _reader(log, files, clock) as reader:
        for number in range(120):
            log.put("orders", [b"%d" % number])
            log.take("orders")
            log.rotate()
            reader.refresh()
        assert len(reader.state.segments) < 80


def _reader(log: Log, files: SimFiles, clock: ManualClock) -> Reader:
    log.put("orders", [b"first"])
    log.seal()
    return Reader(PATH, files=files, clock=clock)


def test_a_segment_taken_away_under_the_owner_stops_only_its_queue(
    log: Log, files: SimFiles
) -> None:
    log.put("old", [b"a"])
    log.rotate()
    log.put("young", [b"b"])
    log.cache.forget(1)
    files.unlink(files.open_dir(PATH), segment_name(1))
    with pytest.raises(CorruptionError, match="the segment is missing"):
        log.take("old")
    assert log.take("young")[0][1] == b"b"


def test_a_full_disk_drains_with_many_queues(clock: ManualClock) -> None:
    options = LogOptions(fill_bytes=512, reserve_bytes=64 << 10, segment_bytes=64 << 10)
    log = open_log(PATH, files=SimFiles(capacity=400 << 10), clock=clock, options=options)
    names = [f"queue-{number}" for number in range(40)]
    try:
        while True:
            for name in names:
                log.put(name, [bytes(300)])
    except DiskFull:
        pass
    while sum(len(log.take(name)) for name in names):
        pass
    assert all(log.queue(name).genesis.queue_size == 0 for name in names)
    log.put("queue-0", [bytes(300)])
