"""Upkeep: rotation, reclaiming, retention, compaction, and what is carried out of dead segments."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from fifoq.testing.simfiles import SimFiles
from store import AccessError, DiskFull, Key, Log, LogOptions, Retention, Status, open_log
from store.blocks import ACKED, HEADERS, MOVED, PRIORITY, Column, RecordBlock, records_weight
from store.frames import SEGMENT_HEADER_BYTES
from store.options import SEGMENT_BYTES_MIN
from store.replay import frame_blocks
from store.segment import index_name, segment_name
from tests.store.conftest import PATH, SMALL, OpenStore
from tests.support.clock import NANOSECONDS, WALL_START, ManualClock

RECORD = b"r" * 1000
CHECKPOINTS = ("checkpoint.a", "checkpoint.b")


def options(**more: object) -> LogOptions:
    return LogOptions(fill_bytes=512, reserve_bytes=512, **more)  # type: ignore[arg-type]


def segments(log: Log) -> list[int]:
    return sorted(log.state.segments)


def names(files: SimFiles) -> set[str]:
    return set(files.list_dir(files.open_dir(PATH)))


def payloads(log: Log, queue: str = "orders") -> list[bytes]:
    return [payload for block in log.read(queue) for payload in block.payloads()]


def ack(log: Log, first: int, last: int, queue: str = "orders") -> None:
    count = last - first + 1
    draft = log.draft()
    weight = records_weight(len(RECORD) * count, count)
    draft.remove(log.queue(queue), [(first, last, weight)], reason=ACKED)
    log.commit(draft)


def set_states(log: Log, *entries: tuple[str, bytes | None]) -> None:
    draft = log.draft()
    draft.set_states(entries)
    log.commit(draft)


def configure(log: Log, queue: str, configuration: bytes) -> None:
    draft = log.draft()
    draft.configure(log.queue(queue), configuration)
    log.commit(draft)


def drop_checkpoints(files: SimFiles) -> None:
    for name in CHECKPOINTS:
        files.unlink(files.open_dir(PATH), name)


def compact_all(log: Log) -> None:
    while log.compact():
        pass


def fails(call: str, error: int, name: str = "") -> Callable[[int, str, tuple[object, ...]], None]:
    """A hook that refuses one kind of call, on names that end so."""

    def hook(index: int, called: str, args: tuple[object, ...]) -> None:
        if called == call and (not name or str(args[1]).endswith(name)):
            raise OSError(error, "refused")

    return hook


# Rotation.


def test_a_segment_is_left_before_it_grows_over_its_size(open_store: OpenStore) -> None:
    log = open_store(options(segment_bytes=SEGMENT_BYTES_MIN))
    for _ in range(200):
        log.put("orders", [RECORD])
    assert len(segments(log)) > 2
    assert max(segment.length for segment in log.state.segments.values()) <= SEGMENT_BYTES_MIN


def test_a_frame_larger_than_a_segment_has_one_to_itself(open_store: OpenStore) -> None:
    log = open_store(options(segment_bytes=SEGMENT_BYTES_MIN))
    large = bytes(2 * SEGMENT_BYTES_MIN)
    log.put("orders", [b"small"])
    log.put("orders", [large])
    log.put("orders", [b"small too"])
    assert segments(log) == [1, 2, 3]
    assert payloads(log) == [b"small", large, b"small too"]


def test_a_segment_is_left_when_it_holds_enough_records(open_store: OpenStore) -> None:
    log = open_store(options(segment_records=4))
    for _ in range(4):
        log.put("orders", [b"a"] * 3)
    assert [log.state.segments[n].record_count for n in segments(log)] == [6, 6]


def test_a_segment_is_left_when_it_is_old_enough(open_store: OpenStore, clock: ManualClock) -> None:
    log = open_store(options(segment_seconds=60))
    log.put("orders", [b"a"])
    clock.advance(seconds=60)
    log.put("orders", [b"b"])
    assert segments(log) == [1]
    clock.advance(seconds=1)
    log.put("orders", [b"c"])
    assert segments(log) == [1, 2]


def test_an_empty_tail_is_not_rotated(log: Log, clock: ManualClock) -> None:
    clock.advance(seconds=10**9)
    log.rotate()
    assert segments(log) == [1]
    log.put("orders", [b"a"])
    assert segments(log) == [1]


def test_a_sealed_segment_is_cut_to_its_length_and_has_an_index(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    length = log.tail.length
    assert len(files.content(f"{PATH}/{segment_name(1)}")) > length
    log.rotate()
    assert len(files.content(f"{PATH}/{segment_name(1)}")) == length
    assert index_name(1) in names(files)


def test_a_segment_whose_index_finds_no_space_is_sealed_without_one(
    log: Log, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log.put("orders", [b"a"])
    files.before_op = fails("create", errno.ENOSPC, index_name(1))
    log.rotate()
    files.before_op = None
    assert segments(log) == [1, 2]
    assert index_name(1) not in names(files)
    assert "segment 1 has no index" in caplog.text
    assert payloads(log) == [b"a"]


def test_an_index_that_the_disk_fails_to_take_stops_the_log(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    files.before_op = fails("create", errno.EIO, index_name(1))
    with pytest.raises(Exception, match="while making data durable"):
        log.rotate()
    assert log.status is Status.FAILED


def test_a_segment_for_which_there_is_no_room_is_taken_back(clock: ManualClock) -> None:
    files = SimFiles(capacity=14 << 10)
    log = open_log(PATH, files=files, clock=clock, options=options())
    log.put("orders", [b"a"])
    filler = files.create(files.open_dir(PATH), "filler")
    with suppress(OSError):
        for sector in range(100):
            files.pwrite(filler, bytes(512), sector * 512)
    files.truncate(filler, len(files.content(f"{PATH}/filler")) - 512)
    with pytest.raises(DiskFull) as caught:
        log.rotate()
    assert str(caught.value) == ("/data/store: no space for another segment. Nothing was changed.")
    assert segments(log) == [1]
    assert segment_name(2) not in names(files)
    log.put("orders", [b"b"])
    assert payloads(log) == [b"a", b"b"]
    log.release()


# Checkpoints.


def test_a_checkpoint_is_due_after_so_many_bytes_and_later_without_syncs(
    open_store: OpenStore,
) -> None:
    log = open_store(options(checkpoint_bytes=4096))
    number = log.checkpoints.number
    while log.checkpoints.number == number:
        log.put("orders", [RECORD])
    assert log.queue("orders").genesis.total_put_count == 4
    log.put("orders", [RECORD], sync=False)
    number, count = log.checkpoints.number, log.queue("orders").genesis.total_put_count
    while log.checkpoints.number == number:
        log.put("orders", [RECORD], sync=False)
    assert log.queue("orders").genesis.total_put_count - count > 40
    assert log.durable_upto == log.sequence


def test_a_checkpoint_may_be_asked_for(log: Log, files: SimFiles) -> None:
    log.put("orders", [b"a"], sync=False)
    number = log.checkpoints.number
    log.checkpoint()
    assert log.checkpoints.number == number + 1
    assert not files.disk.pending


# Reclaiming.


def test_a_segment_goes_at_once_with_its_last_record(log: Log, files: SimFiles) -> None:
    log.put("orders", [RECORD, RECORD])
    log.rotate()
    log.put("orders", [b"b"])
    log.take("orders")
    assert segments(log) == [1, 2]
    log.take("orders")
    assert segments(log) == [2]
    assert not {segment_name(1), index_name(1)} & names(files)


def test_a_segment_in_the_middle_may_go_first(log: Log) -> None:
    for _ in range(3):
        log.put("orders", [RECORD])
        log.rotate()
    ack(log, 2, 2)
    assert segments(log) == [1, 3, 4]
    assert [key.counter for key in log.keys("orders")] == [1, 3]


def test_the_tail_is_reclaimed_only_after_it_was_rotated(log: Log) -> None:
    log.put("orders", [RECORD])
    log.take("orders")
    log.put("other", [b"a"])
    assert segments(log) == [1]
    log.take("other")
    log.rotate()
    log.put("orders", [b"b"])
    assert segments(log) == [2]


def test_genesis_configuration_and_states_are_carried_out_of_a_dead_segment(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """What is newest survives a full scan of what is left, with no checkpoint to help."""
    log.put("quiet", [RECORD] * 3)
    log.take("quiet", 3)
    configure(log, "quiet", b'{"a": 1}')
    configure(log, "loud", b'{"b": 2}')
    set_states(log, ("alice", b"10"), ("bob", b"20"))
    set_states(log, ("bob", None))
    log.put("loud", [RECORD] * 3)
    log.rotate()
    log.put("loud", [b"last"])
    log.take("loud", 3)
    assert segments(log) == [2]
    log.close()
    drop_checkpoints(files)
    again = open_store()
    assert again.queue("quiet").configuration == b'{"a": 1}'
    assert again.queue("loud").configuration == b'{"b": 2}'
    assert again.state_of("alice") == b"10"
    assert again.state_of("bob") is None
    assert again.put("quiet", [b"x"]) == range(4, 5)
    assert payloads(again, "loud") == [b"last"]


def test_a_dead_segment_that_is_mostly_newest_entries_stays(log: Log) -> None:
    set_states(log, ("alice", RECORD))
    log.rotate()
    log.put("orders", [b"a"])
    assert segments(log) == [1, 2]
    assert log.state_of("alice") == RECORD
    assert not log.compact()


def test_a_deleted_state_is_remembered_while_an_older_value_lies_in_the_log(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    set_states(log, ("alice", b"10"))
    log.rotate()
    set_states(log, ("alice", None))
    assert not log.state.states["alice"].present
    log.close()
    drop_checkpoints(files)
    again = open_store()
    assert again.state_of("alice") is None
    again.take("orders")
    assert 1 not in segments(again)
    assert "alice" not in again.state.states


def test_carrying_that_finds_no_space_is_tried_again_after_the_next_commit(
    log: Log, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    set_states(log, ("alice", RECORD))
    log.put("orders", [RECORD] * 3)
    log.rotate()
    log.put("other", [b"a"])

    def refuse_growth(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite" and isinstance(args[1], bytes) and not any(args[1]):
            raise OSError(errno.ENOSPC, "No space left on device")

    files.before_op = refuse_growth
    log.take("orders", 3)
    files.before_op = None
    assert segments(log) == [1, 2]
    assert "upkeep put off" in caplog.text
    log.put("other", [b"b"])
    assert segments(log) == [2]
    assert log.state_of("alice") == RECORD


def test_upkeep_that_is_put_off_again_for_the_same_reason_is_told_once(
    log: Log, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk that drains record by record would tell the same after each of them."""
    set_states(log, ("alice", RECORD))
    log.put("orders", [RECORD])
    log.rotate()
    log.put("other", [b"a", b"b"])

    def refuse_growth(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite" and isinstance(args[1], bytes) and not any(args[1]):
            raise OSError(errno.ENOSPC, "No space left on device")

    files.before_op = refuse_growth
    log.take("orders")
    log.take("other")
    log.take("other")
    files.before_op = None
    assert caplog.text.count("upkeep put off") == 1
    assert 1 in segments(log)


def test_reclaiming_that_was_put_off_is_made_up_for_after_a_reopen(
    log: Log, files: SimFiles, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead segment that a checkpoint still listed was kept for ever."""
    log.put("orders", [RECORD])
    log.rotate()
    log.put("other", [b"a"])
    log.queue("orders").retained = True
    log.take("orders")
    log.queue("orders").retained = False
    log.close()
    again = open_store()
    assert segments(again) == [1, 2]
    again.put("other", [b"b"])
    assert segments(again) == [2]


# Retention.


def retained_log(open_store: OpenStore, clock: ManualClock, retention: Retention) -> Log:
    """Five sealed segments of one record each, all taken, one minute apart, and a tail."""
    log = open_store(options(retention=retention))
    log.queue("orders").retained = True
    for _ in range(5):
        log.put("orders", [RECORD])
        log.rotate()
        clock.advance(seconds=60)
    log.put("other", [b"tail"])
    log.take("orders", 5)
    return log


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), [1, 2, 3, 4, 5]),
        (Retention(max_segments=2), [4, 5]),
        (Retention(max_segments=0), [5]),
        (Retention(max_segments=0, min_segments=0), []),
        (Retention(max_segments=1, min_segments=3), [3, 4, 5]),
        (Retention(max_bytes=3 * 1300), [3, 4, 5]),
        (Retention(max_age=130), [4, 5]),
        (Retention(max_age=0), [5]),
    ],
)
def test_what_is_retained_goes_by_age_size_and_number(
    open_store: OpenStore, clock: ManualClock, retention: Retention, kept: list[int]
) -> None:
    log = retained_log(open_store, clock, retention)
    assert segments(log) == [*kept, 6]
    counters = [c for block in log.read("orders", removed=True) for c in block.counters()]
    assert counters == kept


def test_what_is_retained_stays_retained_over_a_reopen(
    open_store: OpenStore, clock: ManualClock
) -> None:
    retained_log(open_store, clock, Retention()).close()
    log = open_store(options(retention=Retention(max_segments=2)))
    assert log.queue("orders").retained
    log.put("other", [b"a"])
    assert segments(log) == [4, 5, 6]


def test_a_live_record_is_never_expired_by_retention(
    open_store: OpenStore, clock: ManualClock
) -> None:
    log = open_store(options(retention=Retention(max_age=0, min_segments=0)))
    log.queue("orders").retained = True
    for _ in range(3):
        log.put("orders", [RECORD])
        log.rotate()
    clock.advance(seconds=1)
    log.take("orders", 2)
    assert segments(log) == [3, 4]
    assert [key.counter for key in log.keys("orders")] == [3]


def test_what_is_no_longer_retained_goes_and_compaction_comes_to_an_end(
    open_store: OpenStore, clock: ManualClock
) -> None:
    """Such a segment was neither reclaimed nor compactable, yet compaction always said: more."""
    log = retained_log(open_store, clock, Retention())
    assert not log.compact()
    log.queue("orders").retained = False
    assert not log.compact()
    log.put("other", [b"a"])
    assert segments(log) == [6]


# Compaction.


def sparse_log(log: Log, clock: ManualClock) -> Log:
    """Ten records, each put a second after the other; 1 and 10 are live, and the tail is new."""
    for _ in range(10):
        log.put("orders", [RECORD])
        clock.advance(seconds=1)
    log.rotate()
    ack(log, 2, 9)
    return log


def test_compaction_copies_what_is_live_forward_with_its_key(
    log: Log, clock: ManualClock, open_store: OpenStore, files: SimFiles
) -> None:
    keys = [Key(1, WALL_START), Key(10, WALL_START + 9 * NANOSECONDS)]
    sparse_log(log, clock)
    assert segments(log) == [1, 2]
    compact_all(log)
    assert segments(log) == [2]
    assert list(log.keys("orders")) == keys
    assert log.seek("orders", WALL_START + 1) == 10
    log.close()
    drop_checkpoints(files)
    again = open_store()
    assert again.take("orders", 2) == [(key, RECORD) for key in keys]
    assert again.put("orders", [b"x"]) == range(11, 12)


def test_compaction_goes_in_bounded_steps_of_at_least_one_record(
    log: Log, clock: ManualClock
) -> None:
    for _ in range(5):
        log.put("orders", [RECORD] * 4)
    log.rotate()
    ack(log, 4, 17)
    sizes = []
    more = True
    while more:
        length = log.tail.length
        more = log.compact(max_bytes=1)
        sizes.append(log.tail.length - length)
    assert len(sizes) == 6
    assert max(sizes) < 2 * len(RECORD)
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 18, 19, 20]


def moved_blocks(log: Log) -> list[list[int]]:
    number = log.tail.file.number
    frames = log.tail.file.frames(SEGMENT_HEADER_BYTES, log.state.segments[number].length)
    return [
        list(block.counters())
        for frame in frames
        for kind, block in frame_blocks(frame)
        if kind == MOVED and isinstance(block, RecordBlock)
    ]


def test_compaction_makes_one_block_of_what_was_put_one_by_one(
    log: Log, clock: ManualClock
) -> None:
    """A block for each: larger than the records, and slow to read."""
    for _ in range(30):
        log.put("orders", [RECORD])
        clock.advance(seconds=1)
    log.rotate()
    ack(log, 4, 4)
    ack(log, 6, 20)
    keys = list(log.keys("orders"))
    compact_all(log)
    assert moved_blocks(log) == [[1, 2, 3, 5, *range(21, 31)]]
    assert list(log.keys("orders")) == keys
    log.rotate()
    ack(log, 1, 3)
    ack(log, 22, 30)
    compact_all(log)
    assert moved_blocks(log) == [[5, 21]]
    assert list(log.keys("orders")) == [keys[3], keys[4]]


def test_a_step_of_compaction_counts_columns_too(log: Log) -> None:
    """Records of a byte with 8 KB of headers each: a step of a quarter of a megabyte wrote 28."""
    queue = log.queue("orders")
    columns: dict[int, Column] = {HEADERS: [b"h" * 1000] * 20, PRIORITY: list(range(20))}
    draft = log.draft()
    draft.put(queue, [b"x"] * 20, columns=columns)
    draft.put(queue, [RECORD] * 60)
    log.commit(draft)
    log.rotate()
    ack(log, 21, 80)
    log.compact(max_bytes=5000)
    assert moved_blocks(log) == [[1, 2, 3, 4, 5]]


def test_compaction_keeps_apart_what_is_no_block(log: Log, clock: ManualClock) -> None:
    """Other columns, or times that go back: both are told for a whole block."""
    queue = log.queue("orders")
    told: tuple[dict[int, Column], ...] = ({}, {PRIORITY: [3, 4]}, {PRIORITY: [5, 6]}, {})
    for columns in told:
        draft = log.draft()
        draft.put(queue, [RECORD] * 2, columns=columns)
        log.commit(draft)
    for counter, time in ((3, 9), (4, 5)):
        draft = log.draft()
        draft.move(queue, [counter], [WALL_START + time], [RECORD], {PRIORITY: [7]})
        log.commit(draft)
    log.put("orders", [RECORD] * 10)
    log.rotate()
    ack(log, 9, 18)
    compact_all(log)
    assert moved_blocks(log) == [[1, 2], [3], [4], [5, 6], [7, 8]]
    found = {
        counter: value
        for block in log.read("orders")
        if PRIORITY in block.columns
        for counter, value in zip(block.counters(), block.columns[PRIORITY], strict=True)
    }
    assert found == {3: 7, 4: 7, 5: 5, 6: 6}


def test_attempts_move_with_their_records(
    log: Log, clock: ManualClock, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 10)
    draft = log.draft()
    draft.lease(log.queue("orders"), [3, 7], [2, 5], 0)
    log.commit(draft)
    log.rotate()
    ack(log, 4, 10)
    compact_all(log)
    assert segments(log) == [2]
    log.close()
    drop_checkpoints(files)
    assert open_store().queue("orders").attempts == {3: 2}


def test_compaction_takes_every_queue_of_the_segment(log: Log) -> None:
    for name in ("orders", "audit", "billing"):
        log.put(name, [RECORD] * 6)
    log.rotate()
    for name in ("orders", "audit", "billing"):
        ack(log, 2, 6, queue=name)
    compact_all(log)
    assert segments(log) == [2]
    assert [payloads(log, name) for name in ("orders", "audit", "billing")] == [[RECORD]] * 3


def test_a_segment_with_nothing_but_newest_entries_is_emptied_by_compaction(
    log: Log,
) -> None:
    set_states(log, ("alice", RECORD), ("bob", RECORD))
    log.rotate()
    log.put("orders", [b"a"])
    set_states(log, ("bob", b"x"))
    assert segments(log) == [1, 2]
    assert not log.compact()
    assert segments(log) == [2]
    assert log.state_of("alice") == RECORD


def test_compaction_without_space_changes_nothing(
    log: Log, clock: ManualClock, files: SimFiles
) -> None:
    sparse_log(log, clock)
    files.before_op = fails("pwrite", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.compact()
    files.before_op = None
    assert segments(log) == [1, 2]
    compact_all(log)
    assert payloads(log) == [RECORD, RECORD]


# Closing.


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_close_without_space_for_its_checkpoint_loses_nothing(
    log: Log,
    files: SimFiles,
    open_store: OpenStore,
    caplog: pytest.LogCaptureFixture,
    error: int,
) -> None:
    log.put("orders", [b"a"])
    log.checkpoints.close()
    files.before_op = fails("open", error, "checkpoint.a")
    with caplog.at_level(logging.WARNING, logger="store"):
        log.close()
    files.before_op = None
    assert "closed without a clean checkpoint" in caplog.text
    assert payloads(open_store()) == [b"a"]


def test_a_close_whose_checkpoint_fails_says_so_and_lets_go(
    log: Log, files: SimFiles, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"])
    log.checkpoints.close()
    files.before_op = fails("open", errno.EIO, "checkpoint.a")
    with pytest.raises(Exception, match="while making data durable"):
        log.close()
    files.before_op = None
    assert log.status is Status.CLOSED
    assert payloads(open_store()) == [b"a"]


def test_a_passing_error_in_a_new_segment_leaves_no_trace_of_it(
    log: Log, files: SimFiles, open_store: OpenStore
) -> None:
    log.put("orders", [b"a"])

    def refuse(index: int, name: str, args: tuple[object, ...]) -> None:
        # The zeros ahead of the new segment, not its header.
        if name == "pwrite" and args[2] == 80:
            raise OSError(errno.ENOMEM, "refused")

    files.before_op = refuse
    with pytest.raises(AccessError):
        log.rotate()
    files.before_op = None
    assert segment_name(2) not in names(files)
    log.put("orders", [b"b"])
    log.release()
    assert payloads(open_store(SMALL)) == [b"a", b"b"]
