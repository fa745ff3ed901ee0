"""Commits in two steps: what is begun, what is left to one step, and every way in which it ends."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.crashes import power_images
from fifoq.testing.simfiles import SimFiles
from store import (
    Begun,
    DiskFull,
    Draft,
    DurabilityError,
    Log,
    LogOptions,
    Status,
    StoreClosed,
    StoreFailed,
    open_log,
)
from store.begun import BEGUN_BYTES_MAX, UNSYNCED_BYTES_MAX
from store.blocks import records_weight
from store.compression import ZLIB, Compression
from store.errors import ConcurrentUse
from store.plain import PlainPut
from store.segment import segment_name
from tests.store.conftest import PATH
from tests.support.clock import ManualClock

OPTIONS = LogOptions(segment_bytes=4 << 20, fill_bytes=512 << 10, reserve_bytes=4096)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def log(files: SimFiles) -> Log:
    """A log whose end is durable, with zeros ahead."""
    log = open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)
    log.put("a", [b"first"])
    return log


def prepared(log: Log, payload: bytes = b"second", *, sync: bool = True) -> Draft | PlainPut:
    queue = log.queue("a")
    return log.prepare_put(
        queue,
        [payload],
        first=queue.genesis.next_counter,
        time_runs=[(1, log.clock.wall())],
        item_bytes=None,
        marks=None,
        sync=sync,
    )


def begun_put(log: Log, *, sync: bool = True) -> Begun:
    begun = log.begin(prepared(log, sync=sync), sync=sync)
    assert begun is not None
    return begun


def write(files: SimFiles, begun: Begun) -> None:
    assert files.pwrite(begun.file.handle, begun.frame, begun.offset) == len(begun.frame)
    files.datasync(begun.file.handle)


def payloads(log: Log) -> list[bytes]:
    return [payload for block in log.read("a") for payload in block.payloads()]


def find_no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def find_no_memory(*_: object) -> None:
    raise MemoryError


def test_what_was_begun_and_written_is_there_once_it_has_ended(files: SimFiles, log: Log) -> None:
    begun = begun_put(log)
    write(files, begun)
    begun.end(0.25)
    assert payloads(log) == [b"first", b"second"]
    assert (log.durable_upto, log.last_sync_seconds) == (log.sequence, 0.25)
    log.put("a", [b"third"])
    log.close()
    with open_log(PATH, files=files, clock=ManualClock()) as again:
        assert payloads(again) == [b"first", b"second", b"third"]


def test_while_a_commit_is_under_way_the_log_takes_no_other_work(files: SimFiles, log: Log) -> None:
    begun = begun_put(log)
    assert log.begin(prepared_elsewhere(log), sync=True) is None
    with pytest.raises(ConcurrentUse):
        log.put("a", [b"x"])
    assert log.status is Status.FAILED, "nobody may believe a state that is behind the file"
    write(files, begun)
    begun.end(0.0)
    log.put("a", [b"third"])
    assert payloads(log) == [b"first", b"second", b"third"]
    log.close()


def prepared_elsewhere(log: Log) -> Draft:
    return Draft(log.state, log.clock.wall())


def test_a_commit_that_was_begun_can_be_written_in_the_usual_way(log: Log) -> None:
    begun_put(log).write()
    draft = removal_of_first(log)
    begun = log.begin(draft, sync=True)
    assert begun is not None
    begun.write()
    assert draft.committed
    assert payloads(log) == [b"second"]
    assert log.durable_upto == log.sequence
    log.close()


def test_a_write_or_sync_that_failed_stops_the_log(files: SimFiles, log: Log) -> None:
    error = begun_put(log).fail(OSError(errno.EIO, "Input/output error"))
    assert isinstance(error, DurabilityError)
    with pytest.raises(StoreFailed):
        log.put("a", [b"third"])
    log.close()
    files.process_crash()
    with open_log(PATH, files=files, clock=ManualClock()) as again:
        assert payloads(again) == [b"first"]


def test_a_disk_that_is_full_all_the_same_refuses_it_and_the_log_goes_on(
    files: SimFiles, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_put(log)

    with monkeypatch.context() as patch:
        patch.setattr(files, "pwrite", find_no_space)
        with pytest.raises(DiskFull):
            begun.write()
    assert log.status is Status.OPEN
    log.put("a", [b"third"])
    assert payloads(log) == [b"first", b"third"]
    log.close()


def test_a_state_that_can_not_be_noted_stops_the_log(
    files: SimFiles, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_put(log)
    write(files, begun)

    monkeypatch.setattr(log.state, "put", find_no_memory)
    with pytest.raises(MemoryError):
        begun.end(0.0)
    with pytest.raises(StoreFailed):
        log.put("a", [b"third"])
    log.close()


def test_what_was_noted_while_it_was_written_is_noted_once(files: SimFiles, log: Log) -> None:
    for drafted in (prepared, removal_of_first):
        begun = log.begin(drafted(log), sync=True)
        assert begun is not None
        before = log.sequence
        begun.note()
        assert log.status is Status.FAILED, "nobody may believe what is not durable"
        assert log.durable_upto == before
        write(files, begun)
        begun.end(0.0)
        assert log.durable_upto == log.sequence == before + 1
    log.put("a", [b"third"])
    assert payloads(log) == [b"second", b"third"]
    log.close()
    with open_log(PATH, files=files, clock=ManualClock()) as again:
        assert payloads(again) == [b"second", b"third"]


def removal_of_first(log: Log) -> Draft:
    draft = log.draft()
    draft.remove(log.queue("a"), [(1, 1, records_weight(len(b"first"), 1))])
    return draft


def test_what_was_noted_can_still_be_written_in_the_usual_way(files: SimFiles, log: Log) -> None:
    begun = begun_put(log)
    begun.note()
    begun.write()
    assert (log.status, log.durable_upto) == (Status.OPEN, log.sequence)
    for image in power_images(files):
        with open_log(PATH, files=SimFiles.from_image(image), clock=ManualClock()) as again:
            assert payloads(again) == [b"first", b"second"]
    log.put("a", [b"third"])
    assert payloads(log) == [b"first", b"second", b"third"]
    log.close()


def test_a_disk_that_refuses_what_was_noted_stops_the_log(
    files: SimFiles, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_put(log)
    begun.note()

    with monkeypatch.context() as patch:
        patch.setattr(files, "pwrite", find_no_space)
        with pytest.raises(DurabilityError):
            begun.write()
    with pytest.raises(StoreFailed):
        log.put("a", [b"third"])
    log.close()
    files.process_crash()
    with open_log(PATH, files=files, clock=ManualClock()) as again:
        assert payloads(again) == [b"first"]


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "written"])
def test_what_was_noted_half_way_stops_the_log(
    files: SimFiles, log: Log, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    begun = begun_put(log)

    with monkeypatch.context() as patch:
        patch.setattr(log.state, "put", find_no_memory)
        with pytest.raises(MemoryError):
            begun.note()
    write(files, begun)
    if ends:
        with pytest.raises(InterruptedError) as raised:
            begun.end(0.0)
        assert isinstance(raised.value.__cause__, MemoryError)
    else:
        with pytest.raises(DurabilityError):
            begun.write()
    with pytest.raises(StoreFailed):
        log.put("a", [b"third"])
    log.close()


def test_room_is_held_for_the_removal_of_what_was_begun(log: Log) -> None:
    """On a disk that is full, whatever was put can be removed in any order."""
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    needed, growth = log.needed, draft.growth
    assert growth > 0
    begun = log.begin(draft, sync=True)
    assert begun is not None
    begun.write()
    assert log.needed == needed + growth <= log.held
    log.close()


# What is not synced.


@pytest.fixture
def covered(log: Log) -> Log:
    """A log that may show counters without a sync."""
    log.put("a", [b"covers those that follow"], sync=False)
    assert log.durable_upto == log.sequence
    return log


def test_what_is_begun_without_a_sync_is_durable_with_the_next_one(
    files: SimFiles, covered: Log
) -> None:
    log, durable = covered, covered.durable_upto
    begun = begun_put(log, sync=False)
    files.pwrite(begun.file.handle, begun.frame, begun.offset)
    begun.end(0.25)
    assert payloads(log)[-1] == b"second"
    assert (log.durable_upto, log.status) == (durable, Status.OPEN)
    assert log.begin(prepared(log), sync=True) is None, "its sync would not cover this one"
    log.flush()
    assert log.durable_upto == log.sequence
    for image in power_images(files):
        with open_log(PATH, files=SimFiles.from_image(image), clock=ManualClock()) as again:
            assert payloads(again)[-1] == b"second"
    log.close()


def test_it_may_follow_others_that_are_not_synced(files: SimFiles, covered: Log) -> None:
    for _ in range(3):
        begun = begun_put(covered, sync=False)
        files.pwrite(begun.file.handle, begun.frame, begun.offset)
        begun.end(0.0)
    assert payloads(covered)[2:] == [b"second"] * 3
    covered.close()
    with open_log(PATH, files=files, clock=ManualClock()) as again:
        assert payloads(again)[2:] == [b"second"] * 3


def test_written_in_the_usual_way_it_is_not_synced_either(covered: Log) -> None:
    durable = covered.durable_upto
    begun_put(covered, sync=False).write()
    assert covered.durable_upto == durable < covered.sequence
    covered.close()


def test_what_was_noted_and_is_not_to_be_synced_is_written_in_the_usual_way(covered: Log) -> None:
    begun = begun_put(covered, sync=False)
    begun.note()
    begun.write()
    assert covered.status is Status.OPEN
    assert covered.durable_upto < covered.sequence
    assert payloads(covered)[-1] == b"second"


def test_a_counter_that_nothing_covers_is_not_shown_without_a_sync(log: Log) -> None:
    """After a crash it would be given to another record."""
    log.put("b", [b"x"] * 10)
    log.take("b", 10)
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    assert log.begin(draft, sync=False) is None
    log.commit(draft, sync=False)
    assert log.durable_upto == log.sequence
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    begun = log.begin(draft, sync=False)
    assert begun is not None, "that was all that was amiss"
    begun.write()
    log.close()


def test_without_a_sync_larger_frames_are_begun(files: SimFiles) -> None:
    options = LogOptions(fill_bytes=1 << 20, reserve_bytes=4096)
    log = open_log(PATH, files=files, clock=ManualClock(), options=options)
    log.put("a", [b"covers those that follow"], sync=False)
    put = prepared(log, bytes(2 * BEGUN_BYTES_MAX), sync=False)
    assert log.begin(put, sync=True) is None
    begun = log.begin(put, sync=False)
    assert begun is not None
    begun.write()
    draft = log.draft()
    draft.put(log.queue("a"), [bytes(UNSYNCED_BYTES_MAX // 2 + 1)])
    assert log.begin(draft, sync=False) is None
    log.commit(draft, sync=False)
    log.close()


# What is left to one step.


def test_nothing_is_begun_behind_a_frame_that_is_not_durable(log: Log) -> None:
    """The caller syncs its own frame; what lies before it would count as durable and not be."""
    log.put("a", [b"synced, since it covers counters"], sync=False)
    log.put("a", [b"unsynced"], sync=False)
    assert log.durable_upto < log.sequence
    assert log.begin(prepared(log), sync=True) is None
    log.flush()
    assert begun_put(log) is not None
    log.turn.append(None)
    log.fail()
    log.close()


def test_nothing_is_begun_behind_zeros_that_are_not_durable(log: Log) -> None:
    log.tail.dirty = True
    assert log.begin(prepared(log), sync=True) is None
    log.close()


def test_a_large_frame_is_left_to_one_step(log: Log) -> None:
    log.put("a", [bytes(100)])
    put = prepared(log, bytes(BEGUN_BYTES_MAX))
    assert isinstance(put, PlainPut)
    assert log.begin(put, sync=True) is None
    log.commit(put)
    draft = log.draft()
    draft.put(log.queue("b"), [bytes(BEGUN_BYTES_MAX // 2 + 1)])
    assert log.begin(draft, sync=True) is None
    log.commit(draft)
    log.close()


def test_a_frame_for_which_there_are_no_zeros_is_left_to_one_step(files: SimFiles) -> None:
    options = LogOptions(fill_bytes=0, reserve_bytes=0)
    log = open_log(PATH, files=files, clock=ManualClock(), options=options)
    log.put("a", [b"first"])
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    assert log.begin(draft, sync=True) is None
    log.commit(draft)
    log.close()


def test_what_is_compressed_is_left_to_one_step(log: Log) -> None:
    """It takes time, and whoever begins a commit is a loop."""
    log.compress("a", Compression(ZLIB, level=6))
    draft = log.draft()
    draft.put(log.queue("a"), [bytes(5000)])
    assert log.begin(draft, sync=True) is None
    log.commit(draft)
    log.close()


def test_a_stale_commit_is_not_begun(log: Log) -> None:
    put, draft = prepared(log), log.draft()
    draft.put(log.queue("a"), [b"x"])
    log.put("a", [b"second"])
    assert log.begin(put, sync=True) is None
    assert log.begin(draft, sync=True) is None
    log.close()


def test_room_that_must_first_be_held_for_removals_is_left_to_one_step(log: Log) -> None:
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    log.recount_room()
    assert log.begin(draft, sync=True) is None
    log.commit(draft)
    log.close()


def test_a_segment_that_is_due_to_end_is_ended_in_one_step(files: SimFiles) -> None:
    options = LogOptions(segment_records=1)
    log = open_log(PATH, files=files, clock=ManualClock(), options=options)
    log.put("a", [b"first"])
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    assert log.begin(draft, sync=True) is None
    log.commit(draft)
    log.close()


def test_nothing_is_prepared_for_a_log_that_takes_no_work(log: Log) -> None:
    queue = log.queue("a")

    def prepare() -> None:
        runs = [(1, log.clock.wall())]
        first = queue.genesis.next_counter
        log.prepare_put(
            queue, [b"x"], first=first, time_runs=runs, item_bytes=1, marks=None, sync=True
        )

    begun = begun_put(log)
    with pytest.raises(ConcurrentUse):
        prepare()
    begun.write()
    prepare()
    log.fail()
    with pytest.raises(StoreFailed):
        prepare()
    log.close()
    with pytest.raises(StoreClosed):
        prepare()


def test_a_log_that_failed_begins_nothing(log: Log) -> None:
    put = prepared(log)
    log.fail()
    assert log.begin(put, sync=True) is None
    log.close()


def test_nothing_is_begun_while_somebody_else_has_the_log(log: Log) -> None:
    put = prepared(log)
    turn = log.turn.pop()
    assert log.begin(put, sync=True) is None
    log.turn.append(turn)
    begun = log.begin(put, sync=True)
    assert begun is not None
    assert begun.filled >= begun.offset + len(begun.frame)
    begun.write()
    log.close()


def test_a_commit_that_failed_behind_its_end_stops_the_log(files: SimFiles, log: Log) -> None:
    """Whoever was interrupted as it ended does not know how far it came."""
    begun = begun_put(log)
    files.pwrite(begun.file.handle, begun.frame, begun.offset)
    begun.end(0.0)
    assert log.status is Status.OPEN
    assert isinstance(begun.fail(OSError(errno.EINTR, "interrupted")), DurabilityError)
    with pytest.raises(StoreFailed):
        log.put("a", [b"x"])
    log.close()


def test_a_commit_that_has_ended_may_end_again(files: SimFiles, log: Log) -> None:
    """Whoever was interrupted as it ended finds its result again."""
    begun = begun_put(log)
    write(files, begun)
    begun.end(0.0)
    sequence = log.sequence
    begun.end(0.0)
    assert (log.sequence, log.durable_upto, log.status) == (sequence, sequence, Status.OPEN)
    log.put("a", [b"third"])
    assert payloads(log) == [b"first", b"second", b"third"]
    log.close()


def test_a_segment_gives_back_the_handle_for_direct_writes(files: SimFiles, log: Log) -> None:
    file = log.tail.file
    file.direct = files.open(log.directory.handle, segment_name(file.number), write=True)
    log.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.size(file.direct)
