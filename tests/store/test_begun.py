"""Commits in two steps: what is begun, what is left to one step, and every way in which it ends."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.simfiles import SimFiles
from store import (
    Begun,
    DiskFull,
    Draft,
    DurabilityError,
    Log,
    LogOptions,
    Status,
    StoreFailed,
    open_log,
)
from store.begun import BEGUN_BYTES_MAX
from store.blocks import records_weight
from store.compression import ZLIB, Compression
from store.errors import ConcurrentUse
from store.plain import PlainPut
from tests.store.conftest import PATH
from tests.support.clock import ManualClock

OPTIONS = LogOptions(segment_bytes=1 << 20, fill_bytes=512 << 10, reserve_bytes=4096)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def log(files: SimFiles) -> Log:
    """A log whose end is durable, with zeros ahead."""
    log = open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)
    log.put("a", [b"first"])
    return log


def prepared(log: Log, payload: bytes = b"second") -> Draft | PlainPut:
    queue = log.queue("a")
    return log.prepare_put(
        queue,
        [payload],
        first=queue.genesis.next_counter,
        time_runs=[(1, log.clock.wall())],
        item_bytes=None,
        marks=None,
        sync=True,
    )


def begun_put(log: Log) -> Begun:
    begun = log.begin(prepared(log))
    assert begun is not None
    return begun


def write(files: SimFiles, begun: Begun) -> None:
    assert files.pwrite(begun.file.handle, begun.frame, begun.offset) == len(begun.frame)
    files.datasync(begun.file.handle)


def payloads(log: Log) -> list[bytes]:
    return [payload for block in log.read("a") for payload in block.payloads()]


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
    assert log.begin(prepared_elsewhere(log)) is None
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
    draft = log.draft()
    draft.remove(log.queue("a"), [(1, 1, records_weight(len(b"first"), 1))])
    begun = log.begin(draft)
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

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "pwrite", full)
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

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(log.state, "put", no_memory)
    with pytest.raises(MemoryError):
        begun.end(0.0)
    with pytest.raises(StoreFailed):
        log.put("a", [b"third"])
    log.close()


def test_room_is_held_for_the_removal_of_what_was_begun(log: Log) -> None:
    """On a disk that is full, whatever was put can be removed in any order."""
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    needed, growth = log.needed, draft.growth
    assert growth > 0
    begun = log.begin(draft)
    assert begun is not None
    begun.write()
    assert log.needed == needed + growth <= log.held
    log.close()


# What is left to one step.


def test_nothing_is_begun_behind_a_frame_that_is_not_durable(log: Log) -> None:
    """The caller syncs its own frame; what lies before it would count as durable and not be."""
    log.put("a", [b"synced, since it covers counters"], sync=False)
    log.put("a", [b"unsynced"], sync=False)
    assert log.durable_upto < log.sequence
    assert log.begin(prepared(log)) is None
    log.flush()
    assert begun_put(log) is not None
    log.turn.append(None)
    log.fail()
    log.close()


def test_nothing_is_begun_behind_zeros_that_are_not_durable(log: Log) -> None:
    log.tail.dirty = True
    assert log.begin(prepared(log)) is None
    log.close()


def test_a_large_frame_is_left_to_one_step(log: Log) -> None:
    log.put("a", [bytes(100)])
    put = prepared(log, bytes(BEGUN_BYTES_MAX))
    assert isinstance(put, PlainPut)
    assert log.begin(put) is None
    log.commit(put)
    draft = log.draft()
    draft.put(log.queue("b"), [bytes(BEGUN_BYTES_MAX // 2 + 1)])
    assert log.begin(draft) is None
    log.commit(draft)
    log.close()


def test_a_frame_for_which_there_are_no_zeros_is_left_to_one_step(files: SimFiles) -> None:
    options = LogOptions(fill_bytes=0, reserve_bytes=0)
    log = open_log(PATH, files=files, clock=ManualClock(), options=options)
    log.put("a", [b"first"])
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    assert log.begin(draft) is None
    log.commit(draft)
    log.close()


def test_what_is_compressed_is_left_to_one_step(log: Log) -> None:
    """It takes time, and whoever begins a commit is a loop."""
    log.compress("a", Compression(ZLIB, level=6))
    draft = log.draft()
    draft.put(log.queue("a"), [bytes(5000)])
    assert log.begin(draft) is None
    log.commit(draft)
    log.close()


def test_a_stale_commit_is_not_begun(log: Log) -> None:
    put, draft = prepared(log), log.draft()
    draft.put(log.queue("a"), [b"x"])
    log.put("a", [b"second"])
    assert log.begin(put) is None
    assert log.begin(draft) is None
    log.close()


def test_room_that_must_first_be_held_for_removals_is_left_to_one_step(log: Log) -> None:
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    log.recount_room()
    assert log.begin(draft) is None
    log.commit(draft)
    log.close()


def test_a_segment_that_is_due_to_end_is_ended_in_one_step(files: SimFiles) -> None:
    options = LogOptions(segment_records=1)
    log = open_log(PATH, files=files, clock=ManualClock(), options=options)
    log.put("a", [b"first"])
    draft = log.draft()
    draft.put(log.queue("b"), [b"x"])
    assert log.begin(draft) is None
    log.commit(draft)
    log.close()


def test_a_log_that_failed_begins_nothing(log: Log) -> None:
    put = prepared(log)
    log.fail()
    assert log.begin(put) is None
    log.close()
