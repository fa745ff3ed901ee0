"""Quarantine of a damaged store, judged: what it saves, what it tells, what it leaves behind.

A `Case` is opened with `recover="quarantine"`. Every intact record must be there and every other
one told; then the store must be as any other: sound to the check, open to everybody, and no counter
may be given out again.
"""

from __future__ import annotations

from collections.abc import Iterator

from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, Key, Log, Quarantine, open_log
from store.blocks import RecordBlock
from store.check import check_store
from store.frames import SegmentHeader
from store.keys import COUNTER_MAX
from store.opening import Recover
from store.replay import frame_blocks
from store.segment import SegmentFile
from tests.support.clock import ManualClock
from tests.support.damage import OPTIONS, PATH, Case, Ending, Sample, Truth, disk_of, read_truth

Record = tuple[str, int]
"""A queue and a counter."""
NOTHING = Quarantine({}, [], [], {})


class Intact:
    """What the quarantine of a damaged copy is measured by."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.records = by_counter(sample.truth)
        self.ever = [by_counter(earlier) for earlier in sample.earlier]
        self.places = dict(_places(sample))
        with opened(disk_of(sample.files)) as log:
            queues = log.state.queues.items()
            self.next_counters = {name: queue.genesis.next_counter for name, queue in queues}

    def in_damage(self, case: Case) -> set[Record]:
        """Records whose frame is not as it was."""
        stretches = {
            name: list(_differences(self.sample.files[name], case.files.get(name, b"")))
            for name in self.sample.segments
        }
        return {
            record
            for record, (file, start, end) in self.places.items()
            if any(first < end and start < stop for first, stop in stretches[file])
        }


def by_counter(truth: Truth) -> dict[Record, tuple[Key, bytes]]:
    return {
        (name, key.counter): (key, payload)
        for name, queue in truth.queues.items()
        for key, payload in queue.records
    }


def _places(sample: Sample) -> Iterator[tuple[Record, tuple[str, int, int]]]:
    """Where the newest copy of each record lies: file, first byte and end of its frame."""
    disk = disk_of(sample.files)
    directory = disk.open_dir(PATH)
    for extent in sample.extents:
        handle = disk.open(directory, extent.file, write=False)
        header = SegmentHeader.decode(sample.files[extent.file])
        file = SegmentFile(disk, handle, header.number, header.store_id)
        for _, block in frame_blocks(next(file.frames(extent.start, extent.end))):
            if isinstance(block, RecordBlock):
                for counter in block.counters():
                    yield (block.queue, counter), (extent.file, extent.start, extent.end)


def _differences(old: bytes, new: bytes, step: int = 8) -> Iterator[tuple[int, int]]:
    for start in range(0, len(old), step):
        if old[start : start + step] != new[start : start + step]:
            yield start, start + step


def opened(disk: SimFiles, recover: Recover = "refuse") -> Log:
    return open_log(PATH, files=disk, clock=ManualClock(), options=OPTIONS, recover=recover)


def judge(intact: Intact, case: Case) -> str:
    """Quarantine a case and look at everything; returns in a word what it came to."""
    disk = disk_of(case.files)
    try:
        log = opened(disk, "quarantine")
    except CorruptionError:
        assert not may_be_told_apart(intact, case), "there was something to start from"
        assert disk.image() == disk_of(case.files).image(), "a failed open changed the files"
        return "refused"
    told = log.quarantine or NOTHING
    found = read_truth(log)
    log.release()
    reused = may_lose_tail(intact.sample, case) and log.quarantine is None
    _judge_afterwards(disk, told, found, {} if reused else intact.next_counters)
    return _judge_contents(intact, case, told, found)


def may_be_told_apart(intact: Intact, case: Case) -> bool:
    """Whether any segment is left where one belongs."""
    return any(name in case.files for name in intact.sample.segments)


def _judge_contents(intact: Intact, case: Case, told: Quarantine, truth: Truth) -> str:
    sample, found = intact.sample, by_counter(truth)
    for record, value in found.items():
        # Nothing is invented; what comes again was there once, and its removal is in the damage.
        assert any(then.get(record) == value for then in intact.ever), "a record is invented"
    lost = intact.records.keys() - found.keys()
    assert lost <= intact.in_damage(case), "an intact record is not there"
    listed = {
        (name, counter)
        for name, ranges in told.missing.items()
        for first, last in ranges
        for counter in range(first, last + 1)
    }
    assert listed <= lost, "a record is told to be missing that is there, or was taken"
    lost_states = sample.truth.states.keys() - truth.states.keys()
    if not may_lose_tail(sample, case):
        untold = {
            (name, counter)
            for name, counter in lost - listed
            if counter < told.unknown.get(name, COUNTER_MAX)
        }
        assert not untold, "a record is lost, and not told to be"
        assert lost_states <= {*told.states} or told.unknown, "a state is lost without a word"
    return "lost" if lost or lost_states else "saved"


def _judge_afterwards(
    disk: SimFiles, told: Quarantine, found: Truth, next_counters: dict[str, int]
) -> None:
    """The store that is left is a store like any other, whether closed or not."""
    _assert_sound(disk)
    with opened(disk) as log:
        assert records_in(read_truth(log)) == records_in(found), "the next open reads other records"
        for name, following in next_counters.items():
            if name in found.queues:
                (counter,) = log.put(name, [b"next"])
                assert counter >= following, "a counter is given out again"
                assert not any(a <= counter <= b for a, b in told.missing.get(name, ()))
        expected = read_truth(log)
    _assert_sound(disk)
    with opened(disk, "quarantine") as log:
        assert log.quarantine is None, "the same damage is met again"
        assert read_truth(log) == expected


def _assert_sound(disk: SimFiles) -> None:
    report = check_store(PATH, files=disk, clock=ManualClock())
    assert report.sound, f"the check finds {report.damage}, {report.missing}"


def records_in(truth: Truth) -> dict[str, list[tuple[Key, bytes]]]:
    return {name: queue.records for name, queue in truth.queues.items()}


def may_lose_tail(sample: Sample, case: Case) -> bool:
    """Of a store that was not closed, no file elsewhere knows how long its last segment was."""
    cut_short = case.kind == "truncate" and sample.segments[-1] in case.damaged
    return cut_short and sample.ending is not Ending.CLOSED
