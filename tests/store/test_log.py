"""The log as its owner uses it: commits, records one call at a time, life and death."""

from __future__ import annotations

import errno
import logging
from contextlib import suppress

import pytest

from fifoq.testing.disk import SyncFailure
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    ConcurrentUse,
    CorruptionError,
    CounterExhausted,
    DiskFull,
    DurabilityError,
    ForkError,
    InvalidName,
    ItemTooLarge,
    Key,
    Log,
    LogOptions,
    Status,
    StoreClosed,
    StoreFailed,
    open_log,
    upkeep,
)
from store.appending import SECTOR_BYTES
from store.blocks import (
    ACKED,
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    Column,
    RecordBlock,
    records_weight,
)
from store.cache import OPEN_SEGMENTS_MAX
from store.checkpoint import CHECKPOINT_NAMES
from store.checkpoints import Checkpoints
from store.frames import BODY_BYTES_MAX
from store.keys import COUNTER_MAX, RESERVED_COUNTERS
from store.segment import READ_BYTES, segment_name
from tests.store.conftest import PATH, SMALL, OpenStore
from tests.support.clock import NANOSECONDS, WALL_START, ManualClock
from tests.support.faulty import Fault, FaultyFiles

SECRET = b"the payload itself"
COLUMNS: dict[int, Column] = {
    DELIVER_AT: [5, 6],
    EXPIRES_AT: [7, 8],
    PRIORITY: [1, 9],
    HEADERS: [b"h1", b""],
    DEDUP_ID: [b"d1", b"d2"],
    ORDERING_KEY: [b"", b"o2"],
}


def payloads(log: Log, queue: str = "orders") -> list[bytes]:
    return [payload for block in log.read(queue) for payload in block.payloads()]


def counters(log: Log, queue: str = "orders") -> list[int]:
    return [key.counter for key in log.keys(queue)]


def remove(log: Log, queue: str, first: int, last: int, payload_bytes: int = 1) -> int:
    """Ack records of that many payload bytes each; returns how many were live."""
    count = last - first + 1
    draft = log.draft()
    weight = records_weight(payload_bytes * count, count)
    live = draft.remove(log.queue(queue), [(first, last, weight)], reason=ACKED)
    log.commit(draft)
    return live


def columns_of(block: RecordBlock) -> dict[int, list[int] | list[bytes]]:
    return {
        bit: column.tolist() if isinstance(column, memoryview) else column
        for bit, column in block.columns.items()
    }


def put_until_full(log: Log, payload_bytes: int) -> None:
    with suppress(DiskFull):
        while True:
            log.put("orders", [b"x" * payload_bytes])


# Records, one call at a time.


def test_put_gives_consecutive_counters_and_take_gives_the_oldest_first(log: Log) -> None:
    assert log.put("orders", [b"a", b"b"]) == range(1, 3)
    assert log.put("orders", [b"c"]) == range(3, 4)
    assert log.take("orders", 2) == [(Key(1, WALL_START), b"a"), (Key(2, WALL_START), b"b")]
    assert log.take("orders") == [(Key(3, WALL_START), b"c")]
    assert log.take("orders") == []


def test_queues_of_one_store_count_for_themselves(log: Log) -> None:
    log.put("orders", [b"a"])
    assert log.put("audit", [b"b"]) == range(1, 2)
    assert log.take("audit", 9) == [(Key(1, WALL_START), b"b")]
    assert payloads(log) == [b"a"]


def test_take_crosses_commits_and_segments_in_order(log: Log) -> None:
    for number in range(6):
        log.put("orders", [b"%d" % number])
        if number % 2:
            log.rotate()
    assert [payload for _, payload in log.take("orders", 5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("others", [0, 3])
def test_a_large_commit_right_behind_a_small_one_is_read(log: Log, others: int) -> None:
    """It has no entry of its own in the index, and was jumped over to the next that has one."""
    sizes = [5, 100_000, 6, 7, 300_000, 8]
    for size in sizes:
        log.put("orders", [b"x" * size])
        for _ in range(others):
            log.put("other", [b"y" * 40_000])
    assert [len(payload) for payload in payloads(log)] == sizes
    assert [len(payload) for _, payload in log.take("orders", 6)] == sizes


def test_taking_none_takes_nothing(log: Log) -> None:
    log.put("orders", [b"a"])
    sequence = log.sequence
    assert log.take("orders", 0) == []
    assert (log.sequence, payloads(log)) == (sequence, [b"a"])


def test_putting_no_record_and_setting_no_state_leaves_a_log_that_reopens(
    log: Log, open_store: OpenStore
) -> None:
    """A block of nothing was written once, and no reader believed the frame, nor any behind it."""
    assert log.put("orders", []) == range(1, 1)
    draft = log.draft()
    draft.set_states([])
    log.commit(draft)
    log.put("orders", [b"a"])
    log.release()
    assert payloads(open_store()) == [b"a"]


def test_take_adds_the_waiting_time_of_each_record(log: Log, clock: ManualClock) -> None:
    log.put("orders", [b"a", b"b"])
    clock.advance(seconds=2)
    log.take("orders", 2)
    genesis = log.queue("orders").genesis
    assert genesis.total_delay_ns == 4 * NANOSECONDS
    assert genesis.last_take_time == clock.wall()


def test_genesis_tells_sizes_totals_and_water_marks(log: Log, clock: ManualClock) -> None:
    log.put("orders", [b"aa", b"bb", b"cc"])
    clock.advance(seconds=1)
    log.take("orders", 2)
    log.take("orders", 1)
    log.put("orders", [b"d"])
    genesis = log.queue("orders").genesis
    assert (genesis.queue_size, genesis.queue_bytes) == (1, 1)
    assert (genesis.total_put_count, genesis.total_take_count) == (4, 3)
    assert (genesis.high_water_mark, genesis.high_water_time) == (3, WALL_START)
    assert (genesis.low_water_mark, genesis.low_water_time) == (0, clock.wall())


def test_get_and_exists_find_a_live_record_by_its_counter(log: Log) -> None:
    log.put("orders", [b"a", b"b"])
    log.take("orders")
    assert log.get("orders", 2) == (Key(2, WALL_START), b"b")
    assert log.get("orders", 1) is None
    assert log.get("orders", 3) is None
    assert [log.exists("orders", counter) for counter in (0, 1, 2, 3)] == [
        False,
        False,
        True,
        False,
    ]
    assert not log.exists("nobody", 1)


def test_keys_and_read_give_the_range_that_was_asked_for(log: Log, clock: ManualClock) -> None:
    for number in range(4):
        log.put("orders", [b"%d" % number])
        clock.advance(seconds=1)
    assert list(log.keys("orders", 2, 3)) == [
        Key(2, WALL_START + NANOSECONDS),
        Key(3, WALL_START + 2 * NANOSECONDS),
    ]
    assert [block.payloads() for block in log.read("orders", 3)] == [[b"2"], [b"3"]]


def test_read_with_removed_gives_what_is_retained(log: Log) -> None:
    log.put("orders", [b"a", b"b", b"c"])
    remove(log, "orders", 2, 2)
    assert payloads(log) == [b"a", b"c"]
    (block,) = log.read("orders", removed=True)
    assert block.payloads() == [b"a", b"b", b"c"]


def test_seek_finds_the_first_record_put_at_a_time_or_later_across_segments(
    log: Log, clock: ManualClock
) -> None:
    for _ in range(3):
        for _ in range(2):
            log.put("orders", [b"a"])
            clock.advance(seconds=10)
        log.rotate()
    seconds = {0: 1, 1: 2, 10: 2, 11: 3, 20: 3, 41: 6, 50: 6, 51: 7}
    found = {at: log.seek("orders", WALL_START + at * NANOSECONDS) for at in seconds}
    assert found == seconds


def test_seek_takes_whole_nanoseconds(log: Log) -> None:
    with pytest.raises(TypeError):
        log.seek("orders", 1.5)  # type: ignore[arg-type]


def test_a_reading_that_pauses_goes_on_after_the_segment_was_compacted_away(log: Log) -> None:
    """A segment closed under a reading was read through a handle that was no longer ours."""
    record = b"x" * 1000
    for _ in range(4):
        log.put("orders", [record] * 300)
    assert log.tail.length > 2 * READ_BYTES
    log.rotate()
    reading = log.read("orders")
    seen = list(next(reading).counters())
    remove(log, "orders", 301, 1100, len(record))
    while log.compact():
        pass
    assert list(log.state.segments) == [2]
    seen += [counter for block in reading for counter in block.counters()]
    assert seen == [*range(1, 301), *range(1101, 1201)]


def test_a_reading_that_pauses_goes_on_after_many_other_segments_were_read(log: Log) -> None:
    for _ in range(OPEN_SEGMENTS_MAX + 2):
        for _ in range(2):
            log.put("orders", [b"x" * 1000] * 300)
        log.rotate()
    reading = log.read("orders")
    next(reading)
    total = sum(block.count for block in log.read("orders"))
    assert sum(block.count for block in reading) == total - 300


def test_a_reading_of_a_log_that_is_closed_meanwhile_says_so(log: Log) -> None:
    log.put("orders", [b"a"])
    log.put("orders", [b"b"])
    reading = log.read("orders")
    next(reading)
    log.close()
    with pytest.raises(StoreClosed):
        next(reading)
    assert log.status is Status.CLOSED


def test_a_name_that_breaks_the_rule_creates_nothing(log: Log) -> None:
    with pytest.raises(InvalidName):
        log.put("../orders", [b"a"])
    assert log.state.queues == {}


# Commits.


def test_a_commit_over_many_queues_is_one_frame(log: Log) -> None:
    draft = log.draft()
    for name in ("orders", "audit", "billing"):
        draft.put(log.queue(name), [name.encode()])
    assert log.commit(draft) == 1
    assert [payloads(log, name) for name in ("orders", "audit", "billing")] == [
        [b"orders"],
        [b"audit"],
        [b"billing"],
    ]


def test_a_dropped_draft_changes_nothing(log: Log) -> None:
    log.put("orders", [b"a"])
    draft = log.draft()
    draft.put(log.queue("orders"), [b"b"])
    draft.remove(log.queue("orders"), [(1, 1, records_weight(1, 1))])
    assert payloads(log) == [b"a"]
    assert log.put("orders", [b"c"]) == range(2, 3)


def test_first_may_leave_a_gap_that_is_never_filled(log: Log, open_store: OpenStore) -> None:
    draft = log.draft()
    assert draft.put(log.queue("orders"), [b"a"], first=5) == 5
    assert draft.put(log.queue("orders"), [b"b"], first=9) == 9
    log.commit(draft)
    assert counters(log) == [5, 9]
    assert not log.exists("orders", 6)
    log.release()
    again = open_store()
    assert counters(again) == [5, 9]
    assert again.put("orders", [b"c"]) == range(10, 11)


def test_put_times_never_go_back_when_the_wall_clock_does(log: Log, clock: ManualClock) -> None:
    log.put("orders", [b"a"])
    clock.set_wall(WALL_START - 3600 * NANOSECONDS)
    log.put("orders", [b"b"])
    draft = log.draft()
    times = [WALL_START - 1, WALL_START + 5, WALL_START + 2]
    draft.put(log.queue("orders"), [b"c", b"d", b"e"], times=times)
    log.commit(draft)
    assert [key.timestamp - WALL_START for key in log.keys("orders")] == [0, 0, 0, 5, 5]


def test_a_clock_that_went_back_never_makes_a_delay_negative(log: Log, clock: ManualClock) -> None:
    log.put("orders", [b"a"])
    clock.set_wall(0)
    log.take("orders")
    assert log.queue("orders").genesis.total_delay_ns == 0


def test_optional_columns_come_back_from_commit_reopen_and_compaction(
    log: Log, open_store: OpenStore
) -> None:
    draft = log.draft()
    draft.put(log.queue("orders"), [b"a", b"b"], columns=COLUMNS)
    draft.put(log.queue("orders"), [b"x" * 1000] * 9)
    log.commit(draft)
    block = next(log.read("orders"))
    assert columns_of(block) == COLUMNS
    log.rotate()
    remove(log, "orders", 3, 11, 1000)
    while log.compact():
        pass
    assert 1 not in log.state.segments
    log.close()
    again = open_store()
    (moved,) = [columns_of(block) for block in again.read("orders")]
    assert {bit: column for bit, column in moved.items() if bit in COLUMNS} == COLUMNS


def test_a_taken_record_is_restored_at_its_place(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a", b"b", b"c"])
    ((key, payload),) = log.take("orders")
    draft = log.draft()
    draft.move(log.queue("orders"), [key.counter], [key.timestamp], [payload])
    log.commit(draft)
    assert payloads(log) == [b"a", b"b", b"c"]
    genesis = log.queue("orders").genesis
    assert (genesis.queue_size, genesis.queue_bytes, genesis.total_take_count) == (3, 3, 0)
    log.release()
    again = open_store()
    assert again.take("orders", 3) == [(Key(n, WALL_START), bytes([96 + n])) for n in (1, 2, 3)]


def test_attempts_survive_a_reopen_and_go_with_the_record(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a", b"b"])
    draft = log.draft()
    draft.lease(log.queue("orders"), [1, 2], [1, 3], clock_deadline(log))
    log.commit(draft)
    assert log.queue("orders").attempts == {1: 1, 2: 3}
    log.release()
    again = open_store()
    assert again.queue("orders").attempts == {1: 1, 2: 3}
    remove(again, "orders", 2, 2)
    assert again.queue("orders").attempts == {1: 1}
    again.close()
    assert open_store().queue("orders").attempts == {1: 1}


def clock_deadline(log: Log) -> int:
    return log.clock.wall() + 30 * NANOSECONDS


def test_a_lease_of_a_record_that_is_gone_leaves_no_attempt(log: Log) -> None:
    log.put("orders", [b"a"])
    log.take("orders")
    draft = log.draft()
    draft.lease(log.queue("orders"), [1], [1], 0)
    log.commit(draft)
    assert log.queue("orders").attempts == {}


def test_the_newest_state_counts_and_none_deletes(log: Log, open_store: OpenStore) -> None:
    for value in (b"1", b"2"):
        draft = log.draft()
        draft.set_states([("alice", value), ("bob", b"x")])
        log.commit(draft)
    draft = log.draft()
    draft.set_states([("bob", None), ("nobody", None)])
    log.commit(draft)
    assert [log.state_of(name) for name in ("alice", "bob", "nobody")] == [b"2", None, None]
    assert log.states_of(("alice", "bob", "nobody")) == {"alice": b"2"}
    log.release()
    again = open_store()
    assert [again.state_of(name) for name in ("alice", "bob", "nobody")] == [b"2", None, None]


def test_a_commit_over_the_frame_limit_stores_nothing(log: Log, open_store: OpenStore) -> None:
    log.put("orders", [b"a"])
    with pytest.raises(ItemTooLarge) as caught:
        log.put("orders", [bytes(BODY_BYTES_MAX)])
    assert str(caught.value).split(" bytes, ", 1)[1] == (
        f"columns and metadata included, is over the limit of {BODY_BYTES_MAX}. Nothing was "
        f"stored. Put fewer or smaller records at once."
    )
    assert log.put("orders", [b"b"]) == range(2, 3)
    log.close()
    assert payloads(open_store()) == [b"a", b"b"]


def test_counters_end_and_never_wrap(log: Log) -> None:
    log.queue("orders").genesis.next_counter = COUNTER_MAX
    log.queue("orders").genesis.floor = COUNTER_MAX - 1
    with pytest.raises(CounterExhausted):
        log.put("orders", [b"a", b"b"])
    assert log.put("orders", [b"a"]) == range(COUNTER_MAX, COUNTER_MAX + 1)
    with pytest.raises(CounterExhausted):
        log.put("orders", [b"b"])
    assert payloads(log) == [b"a"]


# Durability of what was committed without a sync.


def test_an_unsynced_commit_is_synced_once_to_reserve_its_counters(
    log: Log, files: SimFiles
) -> None:
    files.op_log = []
    log.put("orders", [b"a"], sync=False)
    log.put("orders", [b"b"], sync=False)
    assert [name for name, _ in files.op_log].count("datasync") == 1
    assert log.durable_upto == 1
    assert log.queue("orders").reserved_durable == 2 + RESERVED_COUNTERS


def test_a_reservation_ends_at_the_last_counter(log: Log) -> None:
    log.queue("orders").genesis.next_counter = COUNTER_MAX - 1
    log.queue("orders").genesis.floor = COUNTER_MAX - 2
    log.put("orders", [b"a"], sync=False)
    assert log.queue("orders").reserved_durable == COUNTER_MAX


def test_removals_without_a_sync_need_no_reservation(log: Log) -> None:
    log.put("orders", [b"a"])
    log.take("orders", sync=False)
    assert log.tail.dirty


def test_flush_makes_everything_so_far_durable(log: Log, files: SimFiles) -> None:
    for number in range(3):
        log.put("orders", [b"%d" % number], sync=False)
    log.flush()
    assert log.durable_upto == log.sequence
    assert not files.disk.pending


def test_a_caller_may_keep_house_when_it_suits_him(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"1"])
    log.rotate()
    log.put("orders", [b"2"])
    assert not log.upkeep_due()
    draft = log.draft()
    draft.remove(log.queue("orders"), [(1, 1, records_weight(1, 1))])
    log.commit(draft, upkeep=False)
    assert log.upkeep_due()
    assert files.content(f"{PATH}/{segment_name(1)}"), "upkeep was done with the commit"
    log.keep_house()
    assert not log.upkeep_due()
    with pytest.raises(FileNotFoundError):
        files.content(f"{PATH}/{segment_name(1)}")
    log.close()
    with pytest.raises(StoreClosed):
        log.keep_house()


def test_a_commit_does_the_upkeep_that_is_due_unless_told_otherwise(log: Log) -> None:
    log.put("orders", [b"1"])
    log.rotate()
    draft = log.draft()
    draft.remove(log.queue("orders"), [(1, 1, records_weight(1, 1))])
    log.commit(draft)
    assert not log.upkeep_due()
    assert list(log.state.segments) == [2]


def test_a_length_that_is_not_true_stops_the_commit_before_it_is_written(log: Log) -> None:
    """Of all that a caller tells, this alone is believed; its harm must not reach the file."""
    log.put("orders", [b"before"])
    length = log.tail.length
    draft = log.draft()
    draft.put(log.queue("orders"), [b"a", b"bcd"], item_bytes=1)
    with pytest.raises(AssertionError):
        log.commit(draft)
    assert log.tail.length == length
    log.put("orders", [b"behind"])
    assert payloads(log) == [b"before", b"behind"]


def test_the_log_tells_how_long_its_last_sync_took(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = log.tail.sync

    def slow_sync() -> None:
        clock.advance(seconds=0.25)
        sync()

    monkeypatch.setattr(log.tail, "sync", slow_sync)
    log.put("orders", [b"1"])
    assert log.last_sync_seconds == pytest.approx(0.25)


def test_a_seal_stands_in_a_sector_of_its_own_and_is_written_once(log: Log) -> None:
    log.put("orders", [b"a"])
    log.seal()
    sequence, length = log.sequence, log.tail.length
    file, _ = log.cache.open(1)
    *_, padding, seal = file.frames(80, length)
    assert padding.header.flags == seal.header.flags == 1
    assert seal.offset % SECTOR_BYTES == 0
    assert padding.header.durable_upto == seal.header.durable_upto == 1
    log.seal()
    assert (log.sequence, log.tail.length) == (sequence, length)


def test_a_seal_goes_to_the_sector_after_the_next_when_the_gap_is_too_small(log: Log) -> None:
    size = 0
    while -log.tail.length % SECTOR_BYTES not in range(1, 48):
        log.put("orders", [b"x" * size])
        size += 8
    end = log.tail.length
    log.seal()
    assert log.tail.length // SECTOR_BYTES == end // SECTOR_BYTES + 2


def test_what_is_not_durable_is_not_sealed(log: Log) -> None:
    log.put("orders", [b"a"])
    log.put("orders", [b"b"], sync=False)
    log.put("orders", [b"c"], sync=False)
    sequence = log.sequence
    log.seal()
    assert log.sequence == sequence


def test_a_seal_without_space_is_left_out(clock: ManualClock) -> None:
    files = SimFiles(capacity=10 << 10)
    log = open_log(
        PATH, files=files, clock=clock, options=LogOptions(fill_bytes=0, reserve_bytes=0)
    )
    put_until_full(log, 100)
    sequence = log.sequence
    log.seal()
    assert (log.sequence, log.status) == (sequence, Status.OPEN)
    log.release()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ENOMEM])
def test_a_refused_seal_takes_its_sequences_back(error: int) -> None:
    _, log = faulty_log(Fault(at=0, error=error, call="pwrite", partial=True))
    log.tail.filled += 4096
    before = log.sequence, log.checksum
    with pytest.raises((DiskFull, AccessError)):
        log.seal()
    assert (log.sequence, log.checksum, log.status) == (*before, Status.OPEN)
    log.seal()
    assert log.sequence == before[0] + 2
    log.close()


# What it says and what it logs.


def test_every_write_is_traced_and_no_line_holds_a_payload(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="store")
    offset = log.tail.length
    log.put("orders", [SECRET])
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"write segment=1 offset={offset} bytes={log.tail.length - offset}"]
    log.rotate()
    log.take("orders")
    log.close()
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "checkpoint number=3 sequence=1" in text
    assert "unlink segment=1" in text
    assert SECRET.decode() not in text


def test_no_error_holds_a_payload(log: Log, open_store: OpenStore, files: SimFiles) -> None:
    start = log.tail.length
    log.put("orders", [SECRET])
    log.put("orders", [SECRET])
    log.release()
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=start + 100, bit=0)
    with pytest.raises(CorruptionError) as caught:
        open_store()
    assert SECRET.decode() not in str(caught.value)


def test_repr_tells_path_frames_and_status(log: Log) -> None:
    log.put("orders", [b"a"])
    assert repr(log) == "<Log '/data/store' frames=1 open>"
    log.close()
    assert repr(log) == "<Log '/data/store' frames=3 closed>"


def test_a_damaged_record_is_told_by_the_reading_that_reaches_it(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    start = log.tail.length
    log.put("orders", [b"b" * 100])
    log.put("audit", [b"c"])
    log.rotate()
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=start + 120, bit=0)
    reading = log.read("orders")
    assert next(reading).payloads() == [b"a"]
    with pytest.raises(CorruptionError) as caught:
        next(reading)
    assert caught.value.offset == start
    assert str(caught.value) == (
        f"/data/store/{segment_name(1)}: damaged at byte {start}: {caught.value.reason}. Nothing "
        f"was changed. `python -m store check /data/store` lists what is intact; "
        f'recover="quarantine" opens with that and sets the rest aside.'
    )
    assert log.status is Status.OPEN


# Life and death.


def test_a_closed_log_refuses_everything_and_may_be_closed_twice(log: Log, files: SimFiles) -> None:
    with log:
        log.put("orders", [b"a"])
    log.close()
    assert log.status is Status.CLOSED
    with pytest.raises(StoreClosed) as caught:
        log.put("orders", [b"b"])
    assert str(caught.value) == "/data/store: the store is closed. Open it anew."
    for refused in (log.flush, log.seal, log.rotate, log.checkpoint, log.compact, log.draft):
        with pytest.raises(StoreClosed):
            refused()
    for asked in (log.get, log.exists, log.seek):
        with pytest.raises(StoreClosed):
            asked("orders", 1)
    with pytest.raises(StoreClosed):
        log.state_of("alice")


def test_no_handle_is_left_open_by_a_close(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    payloads(log)
    log.close()
    assert not files._handles


def test_a_flush_that_fails_stops_the_log(log: Log, files: SimFiles) -> None:
    # The first one is synced all the same: it shows a counter that nothing durable covers.
    for payload in (b"a", b"b"):
        log.put("orders", [payload], sync=False)
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        log.flush()
    assert log.status is Status.FAILED
    with pytest.raises(StoreFailed):
        log.flush()


def test_a_failed_sync_stops_the_log_and_a_reopen_tells_what_is_there(
    log: Log, files: SimFiles, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"])
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError) as caught:
        log.put("orders", [b"b"])
    assert str(caught.value) == (
        "segment 1: Input/output error while making data durable. What is on disk is unknown until "
        "the store is opened anew; this one has stopped. Close it, see to the disk, reopen."
    )
    assert log.status is Status.FAILED
    with pytest.raises(StoreFailed) as refused:
        log.take("orders")
    assert str(refused.value) == (
        "/data/store: an earlier failure stopped the store. Everything confirmed before it is "
        "safe; what was under way is known after a reopen. Close it, see to the disk, reopen."
    )
    files.op_log = []
    log.close()
    assert {name for name, _ in files.op_log} == {"close"}
    assert payloads(open_store()) == [b"a"]


def test_a_sync_that_fails_in_the_upkeep_after_a_commit_is_not_the_commits_failure(
    log: Log, files: SimFiles, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b"])
    syncs = 0

    def fail_second_sync(index: int, name: str, args: tuple[object, ...]) -> None:
        nonlocal syncs
        syncs += name == "datasync"
        if syncs == 2:
            raise OSError(errno.EIO, "Input/output error")

    files.before_op = fail_second_sync
    assert log.take("orders") == [(Key(1, WALL_START), b"a")]
    files.before_op = None
    assert log.status is Status.FAILED
    with pytest.raises(DurabilityError):
        log.close()
    assert payloads(open_store()) == [b"b"]


def test_after_a_fork_the_childs_log_is_dead_and_has_let_go(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    files.fork_in_child()
    assert log.status is Status.FORKED
    assert not files._handles
    with pytest.raises(ForkError) as caught:
        log.put("orders", [b"b"])
    assert str(caught.value) == (
        "/data/store: the store was opened before a fork, and only the parent may use it. Nothing "
        "was changed. Open it in one process, after forking."
    )
    log.close()
    assert repr(log) == "<Log '/data/store' frames=1 forked>"


def test_whoever_has_the_turn_of_a_childs_log_is_the_parents(log: Log, files: SimFiles) -> None:
    log.turn.pop()
    files.fork_in_child()
    with pytest.raises(ForkError, match="only the parent"):
        log.put("orders", [b"b"])
    log.turn.append(None)


def test_a_fork_after_the_close_changes_nothing(log: Log, files: SimFiles) -> None:
    log.close()
    files.fork_in_child()
    assert log.status is Status.CLOSED


def test_a_released_log_counts_as_failed(log: Log) -> None:
    log.release()
    with pytest.raises(StoreFailed):
        log.flush()


def test_a_call_while_another_is_under_way_is_refused_and_does_nothing(
    log: Log, files: SimFiles
) -> None:
    refused: list[str] = []

    def intrude(index: int, name: str, args: tuple[object, ...]) -> None:
        with pytest.raises(ConcurrentUse) as caught:
            log.put("orders", [b"intruder"])
        refused.append(str(caught.value))

    files.before_op = intrude
    log.put("orders", [b"a"])
    files.before_op = None
    assert set(refused) == {
        "/data/store: another thread is using the store. This call did nothing. Use a store from "
        "one thread at a time."
    }
    assert payloads(log) == [b"a"]


# A full disk, and other refusals.


@pytest.fixture
def full(clock: ManualClock) -> Log:
    """A log on a disk with no space left, and a record in it."""
    files = SimFiles(capacity=12 << 10)
    log = open_log(PATH, files=files, clock=clock, options=SMALL)
    put_until_full(log, 200)
    return log


def test_a_full_disk_refuses_puts_with_advice_and_still_drains(full: Log) -> None:
    sequence = full.sequence
    with pytest.raises(DiskFull) as caught:
        full.put("orders", [b"y" * 200])
    words = str(caught.value).split(" of ", 1)
    assert words[0] == "/data/store: no space for a frame"
    assert words[1].split(" bytes. ", 1)[1] == (
        "Nothing of it was stored. Takes and acks still work; free some space and try again."
    )
    assert full.sequence == sequence
    count = full.queue("orders").genesis.queue_size
    assert len(full.take("orders", count)) == count
    full.release()


def test_room_for_removals_is_held_before_records_are_added(log: Log) -> None:
    files = log.directory.files
    log.put("orders", [b""] * 60_000)
    assert log.checkpoints.room() >= upkeep.needed_bytes(log)
    for name in CHECKPOINT_NAMES:
        files.truncate(log.checkpoints._open(name), log.checkpoints.size)
    log.rotate()
    log.put("orders", [b""])
    assert log.checkpoints.room() >= upkeep.needed_bytes(log), "the room was not counted anew"


def test_a_put_is_refused_when_no_room_can_be_held_for_its_removal(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put("orders", [b"a"])
    monkeypatch.setattr(Checkpoints, "_hold_room", lambda *_: None)
    for name in CHECKPOINT_NAMES:
        log.directory.files.truncate(log.checkpoints._open(name), log.checkpoints.size + 100)
    log.recount_room()
    for _ in range(2):
        with pytest.raises(DiskFull) as caught:
            log.put("orders", [b"b"])
        assert str(caught.value) == (
            "/data/store: no space to hold for the removal of what would be added. Nothing of it "
            "was stored. Takes and acks still work; free some space and try again."
        )
    assert payloads(log) == [b"a"]
    monkeypatch.undo()
    log.put("orders", [b"b"])
    assert payloads(log) == [b"a", b"b"]


def test_states_are_refused_on_a_full_disk_too(full: Log) -> None:
    while full.tail.make_room(200, reserve=True):
        assert full.take("orders")
    draft = full.draft()
    draft.set_states([("alice", b"1")])
    with pytest.raises(DiskFull):
        full.commit(draft)
    full.release()


def test_removals_that_do_not_fit_the_checkpoint_either_are_refused(full: Log) -> None:
    size = full.queue("orders").genesis.queue_size
    # Every other record, many times over, and nothing of the room that was held is left.
    files = full.directory.files
    assert isinstance(files, SimFiles)
    for name in CHECKPOINT_NAMES:
        files.truncate(full.checkpoints._open(name), full.checkpoints.size + 100)
    assert files._capacity is not None
    files._capacity._sectors_max = files._capacity._used
    draft = full.draft()
    draft.remove(full.queue("orders"), [(c, c, 216) for c in range(2, size, 2)] * 30)
    with pytest.raises(DiskFull) as caught:
        full.commit(draft)
    assert str(caught.value) == (
        "/data/store: the disk is full, and so is the space held for removals. Nothing was "
        "changed. Free some space and try again."
    )
    assert full.status is Status.OPEN
    full.release()


def test_a_sync_that_fails_while_a_removal_goes_into_the_checkpoint_stops_the_log(
    full: Log,
) -> None:
    while full.tail.make_room(200, reserve=True):
        assert full.take("orders")
    files = full.directory.files
    assert isinstance(files, SimFiles)
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        full.take("orders")
    assert full.status is Status.FAILED
    full.release()


def test_a_write_that_fails_while_a_removal_goes_into_the_checkpoint_stops_the_log(
    full: Log,
) -> None:
    while full.tail.make_room(200, reserve=True):
        assert full.take("orders")
    files = full.directory.files
    assert isinstance(files, SimFiles)

    def refuse(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite" and args[2] == 0:
            raise OSError(errno.EIO, "Input/output error")

    files.before_op = refuse
    with pytest.raises(DurabilityError):
        full.take("orders")
    assert full.status is Status.FAILED
    full.release()


def faulty_log(fault: Fault) -> tuple[FaultyFiles, Log]:
    """A log with a record in it whose next calls are counted from 0."""
    inner = SimFiles()
    files = FaultyFiles(inner)
    log = open_log(PATH, files=files, clock=ManualClock(), options=SMALL)
    log.put("orders", [b"a"])
    files.call_count = 0
    files._name_counts.clear()
    files.faults = (fault,)
    return files, log


@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EMFILE])
def test_a_rotation_refused_for_a_passing_reason_leaves_the_log_where_it_was(error: int) -> None:
    _, log = faulty_log(Fault(at=0, error=error, call="create"))
    with pytest.raises(AccessError) as caught:
        log.rotate()
    assert str(caught.value).endswith("Nothing was stored, and the store goes on. Try again.")
    assert (log.status, log.tail.file.number) == (Status.OPEN, 1)
    log.rotate()
    assert log.tail.file.number == 2
    log.close()


def test_a_commit_stays_in_its_segment_when_no_new_one_can_be_made() -> None:
    _, log = faulty_log(Fault(at=0, error=errno.ENOSPC, call="create", for_ever=True))
    log.options = LogOptions(fill_bytes=512, reserve_bytes=512, segment_records=1)
    assert log.put("orders", [b"b"]) == range(2, 3)
    assert log.tail.file.number == 1
    assert payloads(log) == [b"a", b"b"]
    log.release()


def test_a_refused_frame_takes_its_sequence_back() -> None:
    _, log = faulty_log(Fault(at=0, error=errno.ENOSPC, call="pwrite", partial=True))
    log.tail.filled += 4096
    before = log.sequence, log.checksum
    with pytest.raises(DiskFull):
        log.put("orders", [b"b"])
    assert (log.sequence, log.checksum, log.status) == (*before, Status.OPEN)
    log.put("orders", [b"c"])
    assert payloads(log) == [b"a", b"c"]
    log.close()


def test_a_write_that_fails_for_good_stops_the_log() -> None:
    _, log = faulty_log(Fault(at=0, error=errno.EIO, call="pwrite"))
    log.tail.filled += 4096
    with pytest.raises(DurabilityError):
        log.put("orders", [b"b"])
    assert log.status is Status.FAILED
    log.close()


def test_an_interrupt_while_writing_stops_the_log_and_goes_on(log: Log, files: SimFiles) -> None:
    def interrupt(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite":
            raise KeyboardInterrupt

    log.tail.filled += 4096
    files.before_op = interrupt
    with pytest.raises(KeyboardInterrupt):
        log.put("orders", [b"b"])
    assert log.status is Status.FAILED


def test_an_interrupt_between_file_and_state_stops_the_log(
    log: Log, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = log.draft()
    draft.put(log.queue("orders"), [b"a"])
    monkeypatch.setattr(type(draft), "apply", interrupt_here)
    with pytest.raises(KeyboardInterrupt):
        log.commit(draft)
    monkeypatch.undo()
    assert log.status is Status.FAILED
    log.close()
    assert payloads(open_store()) == [b"a"]


@pytest.mark.parametrize("step", ["store.upkeep.keep_house", "store.upkeep.new_segment"])
def test_an_interrupt_in_the_middle_of_upkeep_stops_the_log(
    log: Log, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b"])
    monkeypatch.setattr(step, interrupt_here)
    with pytest.raises(KeyboardInterrupt):
        log.rotate() if step.endswith("segment") else log.take("orders")
    monkeypatch.undo()
    assert log.status is Status.FAILED
    log.close()
    assert payloads(open_store())[-1] == b"b"


def interrupt_here(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_a_removal_goes_into_the_checkpoint_stops_the_log(
    full: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    while full.tail.make_room(200, reserve=True):
        assert full.take("orders")
    monkeypatch.setattr("store.upkeep.write_checkpoint", interrupt_here)
    with pytest.raises(KeyboardInterrupt):
        full.take("orders")
    assert full.status is Status.FAILED
    full.release()


def test_close_tells_a_failed_sync_that_no_call_has_told(
    open_store: OpenStore, files: SimFiles
) -> None:
    """Upkeep met it behind a commit that was fine: with nothing after it, nobody would know."""
    log = open_store(LogOptions(fill_bytes=512, reserve_bytes=512, checkpoint_bytes=1))
    syncs = 0

    def fail_the_second_sync(index: int, name: str, args: tuple[object, ...]) -> None:
        nonlocal syncs
        syncs += name == "datasync"
        if syncs == 2:
            files.fail_next_datasync(SyncFailure.LOST)

    files.before_op = fail_the_second_sync
    log.put("orders", [b"a" * 40_000])
    files.before_op = None
    assert log.status is Status.FAILED
    with pytest.raises(DurabilityError):
        log.close()
    log.close()
    assert open_store().get("orders", 1) is not None
