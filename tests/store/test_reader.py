"""Readers without a lock: what they may believe, and what they do when the owner moves things."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import pytest

from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    CorruptionError,
    DiskFull,
    DurabilityError,
    FormatError,
    Log,
    RangeGone,
    StoreClosed,
    open_log,
)
from store.blocks import RECORD_WEIGHT
from store.check import check_store
from store.frames import SegmentHeader
from store.reader import LOAD_TRIES_MAX, UNWITNESSED_SECONDS, Reader
from store.segment import segment_name
from tests.store.conftest import PATH, SMALL, OpenStore
from tests.support.clock import ManualClock
from tests.support.faulty import Fault, FaultyFiles


def payloads(reader: Reader, queue: str = "orders", first: int = 1) -> list[bytes]:
    return [payload for block in reader.blocks(queue, first) for payload in block.payloads()]


@pytest.fixture
def reader(log: Log, files: SimFiles, clock: ManualClock) -> Reader:
    log.put("orders", [b"first"])
    log.seal()
    return Reader(PATH, files=files, clock=clock)


def test_a_reader_sees_a_sealed_commit_beside_the_live_owner(reader: Reader) -> None:
    assert payloads(reader) == [b"first"]
    assert reader.queues()["orders"].queue_size == 1


def test_a_commit_is_not_believed_before_something_later_witnesses_it(
    log: Log, reader: Reader
) -> None:
    log.put("orders", [b"second"])
    assert not reader.refresh()
    assert payloads(reader) == [b"first"]
    log.put("orders", [b"third"])
    assert reader.refresh()
    assert payloads(reader) == [b"first", b"second"]


def test_frames_that_were_not_synced_do_not_witness_each_other(log: Log, reader: Reader) -> None:
    log.put("orders", [b"covers the counters"], sync=False)
    log.put("orders", [b"unsynced"], sync=False)
    log.put("orders", [b"unsynced too"], sync=False)
    reader.refresh()
    assert payloads(reader) == [b"first", b"covers the counters"]


def test_a_tail_that_nobody_witnesses_is_synced_by_the_reader_and_then_believed(
    log: Log, reader: Reader, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"second"], sync=False)
    log.put("orders", [b"third"], sync=False)
    reader.refresh()
    before = len(files.disk.pending)
    clock.advance(seconds=UNWITNESSED_SECONDS)
    assert reader.refresh()
    assert payloads(reader) == [b"first", b"second", b"third"]
    assert len(files.disk.pending) < before


def test_opening_a_crashed_store_waits_once_and_then_shows_everything(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"confirmed"])
    files.process_crash()
    reader = Reader(PATH, files=files, clock=clock)
    assert payloads(reader) == [b"confirmed"]
    assert clock.naps == [UNWITNESSED_SECONDS]


def test_a_reader_follows_the_owner_through_rotation_and_checkpoints(
    log: Log, reader: Reader
) -> None:
    for number in range(5):
        log.put("orders", [b"%d" % number])
        log.rotate()
        reader.refresh()
    assert payloads(reader) == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_follow_hands_out_records_as_they_are_committed(log: Log, reader: Reader) -> None:
    stream = reader.follow("orders")
    assert next(stream).payloads() == [b"first"]
    log.put("orders", [b"second"])
    log.put("orders", [b"third"])
    log.seal()
    assert [block.payloads() for block in islice(stream, 2)] == [[b"second"], [b"third"]]


def test_follow_waits_for_a_queue_that_does_not_exist_yet(
    log: Log, reader: Reader, clock: ManualClock
) -> None:
    stream = reader.follow("later")
    naps = len(clock.naps)
    log.put("later", [b"here"])
    log.seal()
    assert next(stream).payloads() == [b"here"]
    assert len(clock.naps) >= naps


def test_two_queues_may_be_followed_by_one_reader(log: Log, reader: Reader) -> None:
    """What one of them read ahead was skipped by the other, which had paused."""
    orders, audit = reader.follow("orders"), reader.follow("audit")
    assert next(orders).payloads() == [b"first"]
    draft = log.draft()
    draft.put(log.queue("orders"), [b"second"])
    draft.put(log.queue("audit"), [b"a"])
    log.commit(draft)
    log.seal()
    assert next(audit).payloads() == [b"a"]
    assert next(orders).payloads() == [b"second"]


class WakingClock(ManualClock):
    """Lets the owner commit while a reader sleeps."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.log.put("orders", [b"%d" % len(self.naps)])
        self.log.seal()


def test_follow_sleeps_while_nothing_comes(log: Log, files: SimFiles) -> None:
    clock = WakingClock(log)
    reader = Reader(PATH, files=files, clock=clock)
    stream = reader.follow("orders", pause=0.5)
    assert [block.payloads() for block in islice(stream, 3)] == [[b"1"], [b"2"], [b"3"]]
    assert clock.naps == [0.5] * 3


def test_a_commit_at_any_moment_of_a_refresh_is_seen_by_it_or_by_the_next(
    clock: ManualClock,
) -> None:
    moments = 0
    landed = True
    while landed:
        files = SimFiles()
        log = open_log(PATH, files=files, clock=clock, options=SMALL)
        log.put("orders", [b"first"])
        log.seal()
        reader = Reader(PATH, files=files, clock=clock)
        log.put("orders", [b"second"])
        log.seal()
        reader.refresh()
        clock.advance(seconds=2 * UNWITNESSED_SECONDS)
        assert reader.refresh()
        landed = commits_at(files, log, reader, moments)
        reader.refresh()
        assert payloads(reader) == [b"first", b"second", b"third"][: 2 + landed]
        moments += 1
        reader.close()
        log.release()
    assert moments > 5


def commits_at(files: SimFiles, log: Log, reader: Reader, moment: int) -> bool:
    """Refresh, and let the owner commit before that call to the disk; False if there is none."""
    calls = 0
    landed = False

    def commit(index: int, name: str, args: tuple[object, ...]) -> None:
        nonlocal calls, landed
        calls += 1
        if calls == moment + 1:
            files.before_op = None
            landed = True
            log.put("orders", [b"third"])
            log.seal()

    files.before_op = commit
    reader.refresh()
    files.before_op = None
    return landed


def test_damage_at_the_end_is_told_also_after_nothing_was_there_for_a_while(
    log: Log, files: SimFiles, reader: Reader, clock: ManualClock
) -> None:
    """The end was searched once, and what was damaged there later went unseen for ever."""
    clock.advance(seconds=2 * UNWITNESSED_SECONDS)
    for _ in range(3):
        reader.refresh()
    start = log.tail.length
    log.put("orders", [b"second"])
    log.put("orders", [b"third"])
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=start + 60, bit=0)
    with pytest.raises(CorruptionError) as caught:
        reader.refresh()
    assert caught.value.offset == start


def test_what_was_reclaimed_is_an_error_that_names_the_oldest_record_left(
    log: Log, reader: Reader
) -> None:
    log.put("orders", [b"second", b"third"])
    log.take("orders", 3)
    log.rotate()
    log.put("orders", [b"fourth"])
    log.seal()
    reader.refresh()
    with pytest.raises(RangeGone) as caught:
        payloads(reader, first=2)
    assert (caught.value.wanted, caught.value.oldest) == (2, 4)
    assert str(caught.value) == (
        "queue 'orders': counter 2 was reclaimed by the owner; the next one that is still there is "
        "4. Nothing was read. Start at 4 or later."
    )
    assert payloads(reader) == [b"fourth"]


@pytest.fixture
def three_segments(log: Log, clock: ManualClock) -> Log:
    """Records 1 to 15, five to a segment, a second apart."""
    for _ in range(3):
        clock.advance(seconds=1)
        log.put("orders", [b"x" * 3000] * 5)
        log.rotate()
    log.seal()
    return log


def remove_the_middle(log: Log) -> None:
    """Let the owner reclaim the second segment, 6 to 10."""
    draft = log.draft()
    draft.remove(log.queue("orders"), [(6, 10, 5 * (3000 + RECORD_WEIGHT))])
    log.commit(draft)
    log.seal()
    assert sorted(log.state.segments) == [1, 3, 4]


def test_a_first_counter_in_a_reclaimed_middle_segment_is_gone(
    three_segments: Log, files: SimFiles, clock: ManualClock
) -> None:
    """It was passed over in silence: only what lay before the oldest record was told."""
    remove_the_middle(three_segments)
    reader = Reader(PATH, files=files, clock=clock)
    with pytest.raises(RangeGone) as caught:
        payloads(reader, first=7)
    assert (caught.value.wanted, caught.value.oldest) == (7, 11)
    with pytest.raises(RangeGone):
        reader.get("orders", 10)
    assert len(payloads(reader)) == 10
    assert len(payloads(reader, first=11)) == 5
    assert [b.first for b in reader.blocks("orders", 7, removed=False)] == [11]
    assert payloads(reader, first=16) == []


def test_what_is_reclaimed_behind_the_last_record_there_is_gone_too(
    log: Log, reader: Reader
) -> None:
    log.put("orders", [b"second"])
    log.rotate()
    log.take("orders", 2)
    log.put("audit", [b"a"])
    log.seal()
    reader.refresh()
    with pytest.raises(RangeGone) as caught:
        reader.get("orders", 2)
    assert caught.value.oldest == 3


def test_what_is_reclaimed_during_a_scan_is_told_by_it(
    three_segments: Log, files: SimFiles, clock: ManualClock
) -> None:
    reader = Reader(PATH, files=files, clock=clock)
    scan = reader.blocks("orders")
    assert next(scan).last == 5
    remove_the_middle(three_segments)
    with pytest.raises(RangeGone) as caught:
        next(scan)
    assert (caught.value.wanted, caught.value.oldest) == (6, 11)


def test_a_scan_from_the_oldest_record_does_not_mind_that_it_is_reclaimed(
    three_segments: Log, files: SimFiles, clock: ManualClock
) -> None:
    reader = Reader(PATH, files=files, clock=clock)
    three_segments.take("orders", 5)
    three_segments.seal()
    assert [block.first for block in reader.blocks("orders")] == [6, 11]


def test_follow_passes_over_counters_that_a_crash_skipped(
    open_store: OpenStore, reader: Reader, log: Log
) -> None:
    """Counters that were never used are not reclaimed, and no reason to stop."""
    log.put("orders", [b"second"], sync=False)
    log.seal()
    stream = reader.follow("orders")
    assert [block.payloads() for block in islice(stream, 2)] == [[b"first"], [b"second"]]
    log.release()
    again = open_store()
    (counter,) = again.put("orders", [b"third"])
    again.seal()
    assert counter > 3
    assert next(stream).payloads() == [b"third"]


def test_follow_tells_what_was_reclaimed_while_it_was_away(
    three_segments: Log, files: SimFiles, clock: ManualClock
) -> None:
    log = three_segments
    reader = Reader(PATH, files=files, clock=clock)
    stream = reader.follow("orders", 11)
    assert next(stream).last == 15
    for _ in range(3):
        log.put("orders", [b"x"] * 5)
        log.rotate()
    log.take("orders", 20)
    log.put("orders", [b"y"])
    log.seal()
    with pytest.raises(RangeGone) as caught:
        next(stream)
    assert (caught.value.wanted, caught.value.oldest) == (16, 21)
    with pytest.raises(RangeGone):
        next(reader.follow("orders", 2))


def test_a_reader_in_the_middle_of_a_scan_survives_compaction(log: Log, reader: Reader) -> None:
    log.put("orders", [b"x" * 300] * 20)
    log.rotate()
    stuck = 10
    scan = reader.blocks("orders", removed=False)
    reader.refresh()
    log.take("orders", stuck - 1)
    draft = log.draft()
    draft.remove(log.queue("orders"), [(stuck + 1, 21, 11 * (300 + RECORD_WEIGHT))])
    log.commit(draft)
    while log.compact():
        pass
    log.seal()
    assert 1 not in log.state.segments
    reader.refresh()
    counters = [counter for block in scan for counter in block.counters()]
    assert counters == [stuck]


def test_a_scan_that_pauses_goes_on_after_the_reader_had_to_start_anew(
    log: Log, reader: Reader
) -> None:
    """The segments of a reader that started anew were closed under its scans."""
    for _ in range(4):
        log.put("orders", [b"x" * 1000] * 300)
    log.seal()
    reader.refresh()
    scans = [reader.blocks("orders", removed=False) for _ in range(2)]
    seen = [[c for block in islice(scan, 2) for c in block.counters()] for scan in scans]
    log.rotate()
    draft = log.draft()
    draft.remove(log.queue("orders"), [(302, 1101, 800 * (1000 + RECORD_WEIGHT))])
    log.commit(draft)
    while log.compact():
        pass
    assert 1 not in log.state.segments
    log.seal()
    reader.refresh()
    for scan, counters in zip(scans, seen, strict=True):
        counters += [counter for block in scan for counter in block.counters()]
        assert counters == [*range(1, 302), *range(1102, 1202)]


def test_a_scan_of_a_reader_that_is_closed_meanwhile_says_so(log: Log, reader: Reader) -> None:
    for _ in range(3):
        log.put("orders", [b"x" * 1000] * 300)
    log.seal()
    reader.refresh()
    scan = reader.blocks("orders")
    next(scan)
    next(scan)
    reader.close()
    with pytest.raises(StoreClosed):
        list(scan)


def test_a_segment_of_another_store_is_not_followed(
    log: Log, reader: Reader, files: SimFiles
) -> None:
    header = SegmentHeader(b"x" * 16, 2, 0, 9, 1, 80, 0, 1)
    files.add_file(f"{PATH}/{segment_name(2)}", header.encode())
    log.put("orders", [b"second"])
    log.seal()
    reader.refresh()
    assert payloads(reader) == [b"first", b"second"]


def test_get_and_seek_read_single_records(log: Log, reader: Reader, clock: ManualClock) -> None:
    clock.advance(seconds=60)
    later = clock.wall()
    log.put("orders", [b"second"])
    log.seal()
    reader.refresh()
    assert reader.seek("orders", later) == 2
    found = reader.get("orders", 2)
    assert found is not None
    assert found[1] == b"second"
    assert reader.get("orders", 3) is None


def test_the_newest_state_is_found_wherever_it_went(log: Log, reader: Reader) -> None:
    def set_state(value: bytes | None) -> None:
        draft = log.draft()
        draft.set_states([("here", value)])
        log.commit(draft)
        log.seal()

    assert reader.state_of("here") is None
    set_state(b"1")
    assert reader.state_of("here") is None
    reader.refresh()
    assert reader.state_of("here") == b"1"
    set_state(b"2")
    log.take("orders", 1)
    log.rotate()
    set_state(b"3")
    while log.compact():
        pass
    log.checkpoint()
    # As of the last refresh, or, where that is gone, as of now.
    assert reader.state_of("here") in (b"1", b"3")
    reader.refresh()
    assert reader.state_of("here") == b"3"
    set_state(None)
    reader.refresh()
    assert reader.state_of("here") is None
    reader.close()
    with pytest.raises(StoreClosed):
        reader.state_of("here")


def test_seek_finds_its_way_after_a_reclaim(log: Log, reader: Reader, clock: ManualClock) -> None:
    log.take("orders", 1)
    log.rotate()
    clock.advance(seconds=60)
    log.put("orders", [b"second"])
    log.seal()
    assert reader.seek("orders", 0) == 2


def test_a_store_without_checkpoints_is_read_from_its_first_segment(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"a"])
    log.close()
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    assert payloads(Reader(PATH, files=files, clock=clock)) == [b"a"]


def test_neither_checkpoint_nor_header_is_corruption(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"a"])
    log.close()
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=20, bit=0)
    with pytest.raises(CorruptionError):
        Reader(PATH, files=files, clock=clock)


def test_damage_between_two_segments_is_told(
    log: Log, files: SimFiles, clock: ManualClock, reader: Reader
) -> None:
    log.put("orders", [b"second"])
    offset = log.tail.length
    log.put("orders", [b"third"])
    files.flip_bit(f"{PATH}/{segment_name(1)}", offset=offset + 50, bit=0)
    log.rotate()
    with pytest.raises(CorruptionError) as caught:
        reader.refresh()
    assert caught.value.path.endswith(segment_name(1))


def test_an_empty_directory_holds_no_store(files: SimFiles, clock: ManualClock) -> None:
    files.make_dir("/empty")
    with pytest.raises(FormatError):
        Reader("/empty", files=files, clock=clock)


def test_a_missing_directory_is_an_access_error(files: SimFiles, clock: ManualClock) -> None:
    with pytest.raises(AccessError):
        Reader("/nowhere", files=files, clock=clock)


def test_a_missing_segment_is_corruption_after_looking_again(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"a"])
    log.close()
    files.unlink(files.open_dir(PATH), segment_name(1))
    with pytest.raises(CorruptionError) as caught:
        Reader(PATH, files=files, clock=clock)
    assert caught.value.path == f"{PATH}/{segment_name(1)}"
    assert caught.value.reason == "the segment is missing"
    assert len(clock.naps) == LOAD_TRIES_MAX - 1


def test_a_segment_that_is_missing_is_told_by_whatever_needs_it(
    three_segments: Log, files: SimFiles, clock: ManualClock
) -> None:
    """Readings went round for ever, since the end of the log could still be read."""
    three_segments.close()
    files.unlink(files.open_dir(PATH), segment_name(2))
    reader = Reader(PATH, files=files, clock=clock)
    assert len(list(reader.blocks("orders", 1, 5))) == 1
    assert len(payloads(reader, first=11)) == 5
    readings: list[Callable[[], object]] = [
        lambda: payloads(reader),
        lambda: reader.get("orders", 7),
        lambda: list(reader.blocks("orders", removed=False)),
        lambda: reader.seek("orders", three_segments.state.segments[2].last_time),
    ]
    for reading in readings:
        clock.naps.clear()
        with pytest.raises(CorruptionError) as caught:
            reading()
        assert caught.value.path == f"{PATH}/{segment_name(2)}"
        assert (caught.value.offset, caught.value.reason) == (0, "the segment is missing")
        assert len(clock.naps) == LOAD_TRIES_MAX


def rotate_without_space(log: Log, files: SimFiles, reader: Reader) -> None:
    """Begin a segment, show it to the reader, and take it back for want of space."""

    def refresh(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "sync_dir":
            files.before_op = None
            reader.refresh()
            files.before_op = refuse

    def refuse(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite":
            files.before_op = None
            raise OSError(errno.ENOSPC, "No space left on device")

    files.before_op = refresh
    with pytest.raises(DiskFull):
        log.rotate()


def test_a_segment_that_was_taken_back_is_forgotten_by_a_reader_that_saw_it(
    log: Log, reader: Reader, files: SimFiles
) -> None:
    rotate_without_space(log, files, reader)
    log.put("orders", [b"second"])
    log.seal()
    assert reader.refresh()
    assert payloads(reader) == [b"first", b"second"]


@pytest.mark.parametrize("header_damaged", [True, False])
def test_a_segment_made_in_place_of_one_that_was_taken_back_is_read(
    log: Log, reader: Reader, files: SimFiles, header_damaged: bool
) -> None:
    """The reader stood at the start of the first one and called the second one damaged."""
    rotate_without_space(log, files, reader)
    log.put("orders", [b"second"])
    log.rotate()
    log.put("orders", [b"third"])
    log.put("orders", [b"fourth"])
    log.seal()
    if header_damaged:
        files.flip_bit(f"{PATH}/{segment_name(2)}", offset=20, bit=0)
    assert reader.refresh()
    assert payloads(reader) == [b"first", b"second", b"third", b"fourth"]


def test_a_closed_reader_refuses_and_may_be_closed_twice(reader: Reader) -> None:
    with reader:
        pass
    reader.close()
    with pytest.raises(StoreClosed):
        payloads(reader)


def test_a_reader_leaves_no_trace_on_the_disk(open_store: OpenStore, files: SimFiles) -> None:
    log = open_store()
    log.put("orders", [b"a"])
    log.close()
    image = files.image()
    with Reader(PATH, files=files, clock=ManualClock()) as reader:
        assert payloads(reader) == [b"a"]
    assert files.image() == image


# What the operating system refuses.


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
@pytest.mark.parametrize(
    "step", ["open", "refresh", "blocks", "seek", "entries", "start anew", "check"]
)
def test_a_file_that_cannot_be_opened_is_an_access_error(
    log: Log, files: SimFiles, clock: ManualClock, step: str, error: int
) -> None:
    """Whichever call it is; and the reader goes on when the next try is let through."""
    for at in range(3):
        log.put("orders", [b"%d" % at])
        log.rotate()
    log.close()
    faulty = FaultyFiles(files)
    reader = Reader(PATH, files=faulty, clock=clock)
    steps: dict[str, Callable[[], object]] = {
        "open": lambda: Reader(PATH, files=faulty, clock=clock).close(),
        "refresh": reader.refresh,
        "blocks": lambda: list(reader.blocks("orders")),
        "seek": lambda: reader.seek("orders", 1),
        "entries": lambda: reader.entries("orders", 1),
        "start anew": lambda: reader.start_anew([1]),
        "check": lambda: check_store(PATH, files=faulty, clock=clock),
    }
    at, struck = 0, True
    while struck:
        faulty.faults = (Fault(at=faulty.call_count + at, error=error),)
        faulty.fired = 0
        with suppress(AccessError, DurabilityError):
            steps[step]()
        struck = faulty.fired > 0
        at += 1
    assert at > 2
    faulty.faults = ()
    assert payloads(reader) == [b"0", b"1", b"2"]
    reader.close()
    assert not files._handles


def test_too_many_open_files_are_told_with_advice(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [b"a"])
    faulty = FaultyFiles(files, Fault(at=0, call="open", error=errno.EMFILE))
    with pytest.raises(AccessError) as caught:
        Reader(PATH, files=faulty, clock=clock)
    assert str(caught.value) == (
        "/data/store: Too many open files. Nothing was changed. Try again."
    )


# Whole segments.


def sequences(reader: Reader, number: int) -> list[int]:
    return [frame.header.sequence for frame in reader.frames(number)]


def test_the_frames_of_a_segment_are_those_that_are_believed(log: Log, reader: Reader) -> None:
    assert sequences(reader, 1)[-1] == 3
    log.put("orders", [b"second"])
    log.put("orders", [b"third"])
    assert sequences(reader, 1)[-1] == 3
    reader.refresh()
    assert sequences(reader, 1)[-1] == 4
    reader.close()
    with pytest.raises(StoreClosed):
        sequences(reader, 1)


def test_frames_of_a_segment_that_is_gone_or_never_was_are_refused(reader: Reader) -> None:
    with pytest.raises(AccessError, match="the segment is not there; if it ever was"):
        sequences(reader, 7)


def test_frames_are_read_up_to_the_damage(log: Log, reader: Reader, files: SimFiles) -> None:
    log.put("orders", [b"second"])
    log.seal()
    reader.refresh()
    name = segment_name(1)
    at = files.content(f"{PATH}/{name}").index(b"second")
    files.flip_bit(f"{PATH}/{name}", offset=at, bit=0)
    with pytest.raises(CorruptionError, match="checksum of frame 4"):
        sequences(reader, 1)
    assert next(reader.frames(1)).header.sequence == 1


def test_a_segment_that_cannot_be_read_is_an_access_error(
    log: Log, reader: Reader, files: SimFiles
) -> None:
    files.fail_reads(f"{PATH}/{segment_name(1)}", sector=0)
    with pytest.raises(AccessError, match="Check that it is a directory of regular files"):
        sequences(reader, 1)


def test_entries_tell_where_a_queues_records_start_in_a_segment(log: Log, reader: Reader) -> None:
    for _ in range(3):
        log.put("orders", [b"x" * 1000] * 10)
    log.seal()
    reader.refresh()
    (number,) = reader.state.segments
    entries = reader.entries("orders", number)
    assert entries is not None
    assert entries.counters.tolist() == [1, 12, 22]
    assert entries.offsets.tolist() == sorted(entries.offsets)
    assert reader.entries("nobody", number) is None
    assert reader.entries("orders", number + 1) is None


def test_entries_of_a_segment_that_was_reclaimed_are_none(log: Log, reader: Reader) -> None:
    log.put("orders", [b"x" * 1000] * 10)
    log.rotate()
    log.put("orders", [b"y"])
    log.seal()
    reader.refresh()
    first = min(reader.state.segments)
    log.take("orders", 11)
    log.checkpoint()
    assert first not in log.state.segments
    assert first in reader.state.segments
    assert reader.entries("orders", first) is None
