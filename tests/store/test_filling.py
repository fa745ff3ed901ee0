"""Zeros ahead that somebody else writes between two commits: nothing depends on them."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.crashes import power_images
from fifoq.testing.simfiles import SimFiles
from store import Filling, Log, LogOptions, Status, open_log
from store.errors import ConcurrentUse
from store.options import HELD_BYTES_MAX
from tests.store.conftest import PATH
from tests.support.clock import ManualClock

OPTIONS = LogOptions(segment_bytes=1 << 20, fill_bytes=16384, reserve_bytes=4096)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def log(files: SimFiles) -> Log:
    """A log with less than half of what it fills ahead."""
    log = open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)
    # Synced all the same, since it shows counters that nothing covers; what follows shows none.
    log.put("a", [b"first"], sync=False)
    log.put("a", [bytes(9000)])
    assert log.filling_due()
    return log


def begun_filling(log: Log) -> Filling:
    filling = log.begin_filling()
    assert filling is not None
    return filling


def write(files: SimFiles, filling: Filling, count: int | None = None) -> None:
    zeros = filling.frame[:count]
    assert files.pwrite(filling.file.handle, zeros, filling.offset) == len(zeros)


def lengths(log: Log) -> list[int]:
    return [len(payload) for block in log.read("a") for payload in block.payloads()]


def reopened(files: SimFiles) -> list[int]:
    with open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS) as log:
        return lengths(log)


def test_it_reaches_as_far_ahead_as_the_options_say(files: SimFiles, log: Log) -> None:
    tail, filling = log.tail, begun_filling(log)
    assert filling.offset == tail.filled
    assert bytes(filling.frame) == bytes(len(filling.frame))
    write(files, filling)
    filling.end(0.0)
    assert tail.filled == tail.length + OPTIONS.fill_bytes + OPTIONS.reserve_bytes
    assert tail.filled == files.size(tail.file.handle)
    assert not log.filling_due()
    assert log.begin_filling() is None
    writes = files.pwrite
    sizes: list[int] = []

    def counting(handle: object, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return writes(handle, data, offset)  # type: ignore[arg-type]

    files.pwrite = counting  # type: ignore[method-assign, assignment]
    log.put("a", [b"third"], sync=False)
    assert len(sizes) == 1, "the frame found its room"
    log.close()
    assert reopened(files) == [5, 9000, 5]


def test_zeros_that_are_not_durable_keep_synced_frames_from_being_begun(
    files: SimFiles, log: Log
) -> None:
    filling = begun_filling(log)
    write(files, filling)
    filling.end(0.0)
    queue = log.queue("a")
    put = log.prepare_put(
        queue,
        [b"third"],
        first=queue.genesis.next_counter,
        time_runs=[(1, log.clock.wall())],
        item_bytes=None,
        marks=None,
        sync=True,
    )
    assert log.begin(put, sync=True) is None
    log.commit(put)
    assert log.durable_upto == log.sequence
    log.close()


def test_while_it_is_under_way_nobody_else_has_the_log(files: SimFiles, log: Log) -> None:
    filling = begun_filling(log)
    assert log.begin_filling() is None
    with pytest.raises(ConcurrentUse):
        log.put("a", [b"third"])
    filling.write()
    log.put("a", [b"third"])
    log.close()
    assert reopened(files) == [5, 9000, 5]


@pytest.mark.parametrize("count", [0, 1, 4096, 5000])
def test_what_is_left_undone_is_done_by_whoever_needs_it(
    files: SimFiles, log: Log, count: int
) -> None:
    """A disk that is full half way: what lies there already is only written again."""
    filled, filling = log.tail.filled, begun_filling(log)
    write(files, filling, count)
    filling.write()
    assert (log.tail.filled, log.status) == (filled, Status.OPEN)
    log.put("a", [bytes(12_000)])
    log.put("a", [b"fourth"])
    log.close()
    assert reopened(files) == [5, 9000, 12_000, 6]


def test_one_whose_end_nobody_saw_does_no_harm(files: SimFiles, log: Log) -> None:
    filling = begun_filling(log)
    error = OSError(errno.EINTR, "interrupted")
    assert filling.fail(error) is error
    assert log.status is Status.OPEN
    log.put("a", [b"third"])
    log.close()
    assert reopened(files) == [5, 9000, 5]


def test_where_there_was_no_space_nobody_tries_before_there_is(files: SimFiles, log: Log) -> None:
    begun_filling(log).write()
    assert not log.filling_due()
    assert log.begin_filling() is None
    log.put("a", [b"it has its room"])
    assert not log.filling_due()
    log.put("a", [bytes(12_000)])
    log.put("a", [bytes(10_000)])
    assert log.filling_due(), "the frame that needed room found some"
    log.close()


def test_without_memory_nobody_takes_the_log(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("store.filling.Filling", none)
        with pytest.raises(MemoryError):
            log.begin_filling()
    log.put("a", [b"third"])
    log.close()


def test_no_more_is_held_than_there_are_zeros_for() -> None:
    options = LogOptions(fill_bytes=HELD_BYTES_MAX - 4096, reserve_bytes=4096)
    files = SimFiles()
    with open_log(PATH, files=files, clock=ManualClock(), options=options) as log:
        log.put("a", [b"first"])
        log.put("a", [bytes(1_100_000)])
        filling = begun_filling(log)
        assert filling.offset + len(filling.frame) == log.tail.wanted
        filling.write()


def test_it_may_end_twice(files: SimFiles, log: Log) -> None:
    """Whoever was interrupted as it ended finds its result again."""
    filling = begun_filling(log)
    write(files, filling)
    filling.end(0.0)
    filling.end(0.0)
    log.put("a", [b"third"])
    log.close()
    assert reopened(files) == [5, 9000, 5]


def test_a_power_cut_leaves_what_was_durable(files: SimFiles, log: Log) -> None:
    """Whatever of the zeros is there, and of the frame behind them."""
    filling = begun_filling(log)
    write(files, filling)
    filling.end(0.0)
    log.put("a", [b"third"], sync=False)
    found = set()
    for image in power_images(files):
        found.add(tuple(reopened(SimFiles.from_image(image))))
    assert found <= {(5, 9000), (5, 9000, 5)}
    assert (5, 9000) in found
    log.close()


def test_a_closed_segment_and_a_log_that_failed_are_not_filled(log: Log) -> None:
    log.tail.closed = True
    assert not log.filling_due()
    log.tail.closed = False
    log.fail()
    assert log.begin_filling() is None
    log.close()
