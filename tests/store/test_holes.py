"""Failures that only a mutant of the store showed to be untested; each docstring tells one.

The mutants are in `tests/mutants`. Most of these stores are made by the real one and then put into
a state that several faults or a crash at one certain step would have left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fifoq.testing.crashes import (
    after_process_crash,
    crash_points,
    image_after,
    power_images,
)
from fifoq.testing.disk import SyncFailure
from fifoq.testing.image import Image
from fifoq.testing.pending import ABSENT, SECTOR_BYTES, Outcome, Pending
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    AlreadyOpen,
    CorruptionError,
    DiskFull,
    DurabilityError,
    ForkError,
    Log,
    LogOptions,
    Status,
    StoreFailed,
    open_log,
)
from store.blocks import ACKED, records_weight
from store.checkpoint import CHECKPOINT_NAMES
from store.draft import Draft
from store.files import Handle
from store.frames import FRAME_MAGIC, SEGMENT_HEADER_BYTES
from store.osfiles import OsFiles
from store.reader import UNWITNESSED_SECONDS, Reader
from store.segment import index_name, segment_name
from store.state import State
from tests.store.conftest import PATH, SMALL, OpenStore
from tests.support.clock import ManualClock
from tests.support.faulty import Fault, FaultyFiles

FIRST_SECTOR = Outcome(1)
"""Of a longer write only that became durable; anything else is done."""

Payloads = dict[str, list[bytes]]


def always(outcome: Outcome) -> Callable[[Pending], Outcome]:
    return lambda _: outcome


def reopened(files: SimFiles, options: LogOptions = SMALL) -> Log:
    return open_log(PATH, files=files, clock=ManualClock(), options=options)


def payloads(log: Log) -> Payloads:
    found: Payloads = {}
    for name in log.state.queues:
        records = [payload for block in log.read(name) for payload in block.payloads()]
        if records:
            found[name] = records
    return found


def ack(log: Log, name: str, counter: int, payload: bytes) -> None:
    draft = log.draft()
    weight = records_weight(len(payload), 1)
    draft.remove(log.queue(name), [(counter, counter, weight)], reason=ACKED)
    log.commit(draft)


def contents(files: SimFiles) -> dict[str, bytes]:
    """The files of the store by name."""
    return {path.rpartition("/")[2]: data for path, data in files.image().files.items()}


def disk_with(stored: dict[str, bytes]) -> SimFiles:
    return SimFiles.from_image(Image.of({f"{PATH}/{name}": data for name, data in stored.items()}))


def checkpoints_of(files: SimFiles) -> dict[str, bytes]:
    return {name: data for name, data in contents(files).items() if name in CHECKPOINT_NAMES}


def assert_damaged(stored: dict[str, bytes], *, match: str) -> None:
    """Opening says so, and changes nothing."""
    files = disk_with(stored)
    with pytest.raises(CorruptionError, match=match):
        reopened(files)
    assert contents(files) == stored


def last_frame(data: bytes) -> int:
    return data.rindex(FRAME_MAGIC)


# Commits.


class AlmostFull(SimFiles):
    """A disk that once writes all of a frame but its last byte, and then is full."""

    armed = False

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.armed and bytes(data[:4]) == FRAME_MAGIC:
            self.armed = False
            super().pwrite(handle, bytes(data[:-1]), offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(handle, data, offset)


@pytest.mark.parametrize("by_draft", [False, True])
@pytest.mark.parametrize("queue", ["a" * length for length in range(1, 9)])
def test_a_refused_frame_does_not_come_back_although_all_of_it_was_written(
    queue: str, by_draft: bool
) -> None:
    """The last bytes of a frame are zeros, as is the space ahead: what was refused was whole."""
    files = AlmostFull()
    log = reopened(files)
    log.put(queue, [b"confirmed"])
    files.armed = True
    with pytest.raises(DiskFull):
        # What is no list is put by a draft.
        log.put(queue, (b"refused",) if by_draft else [b"refused"])
    assert not files.armed
    images = [after_process_crash(files), *map(SimFiles.from_image, power_images(files))]
    for twin in images:
        assert payloads(reopened(twin)) == {queue: [b"confirmed"]}
    assert log.put(queue, [b"later"]) == range(2, 3)
    assert payloads(reopened(after_process_crash(files))) == {queue: [b"confirmed", b"later"]}


@pytest.mark.parametrize(("owner", "method"), [(Draft, "apply"), (State, "put")])
def test_a_log_whose_state_could_not_follow_its_file_stops(
    log: Log, files: SimFiles, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    """For want of memory a commit was written and not applied; the next one broke the counters."""
    log.put("a", [b"1"])
    with monkeypatch.context() as patch:

        def no_memory(*_: object) -> None:
            raise MemoryError

        patch.setattr(owner, method, no_memory)
        with pytest.raises(MemoryError):
            log.put("a", (b"2",) if owner is Draft else [b"2"])
    assert log.status is Status.FAILED
    with pytest.raises(StoreFailed):
        log.put("a", [b"3"])
    assert payloads(reopened(after_process_crash(files))) == {"a": [b"1", b"2"]}


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("size", range(0, SECTOR_BYTES, 48))
def test_no_single_bad_sector_hides_a_witnessed_commit(size: int, closed: bool) -> None:
    """Commit and witness in one sector were lost together, and the loss looked like a torn tail.

    A close whose checkpoint found no space has only the seal for a witness, too.
    """
    files = SimFiles()
    log = reopened(files)
    expected = {"a": [b"1" * size], "b": [b"2"]}
    log.put("a", expected["a"])
    log.put("b", expected["b"])
    before = checkpoints_of(files)
    if closed:
        log.close()
    else:
        log.seal()
    stored = contents(files) | before
    name = segment_name(1)
    data = stored[name]
    for start in range(0, len(data), SECTOR_BYTES):
        bad = data[:start] + bytes(SECTOR_BYTES) + data[start + SECTOR_BYTES :]
        try:
            found = payloads(reopened(disk_with({**stored, name: bad[: len(data)]})))
        except CorruptionError:
            continue
        assert found == expected, start


def test_a_closed_store_goes_on_where_it_ended(open_store: OpenStore) -> None:
    """A clean checkpoint that was written too early made every open a recovery."""
    log = open_store()
    log.put("a", [b"1"], sync=False)
    log.close()
    end = log.tail.file.number, log.tail.length, log.sequence
    log = open_store()
    assert (log.tail.file.number, log.tail.length, log.sequence) == end
    assert log.put("a", [b"2"]) == range(2, 3)


# Space.


def test_a_rotation_that_finds_no_space_for_the_reserve_stays() -> None:
    """A segment without its reserve was gone into, and its removals had nowhere to go."""
    options = LogOptions(fill_bytes=0, reserve_bytes=4096)
    files = SimFiles(capacity=64 << 10)
    log = reopened(files, options)
    log.put("a", [b"1"])
    capacity = files._capacity
    assert capacity is not None
    capacity._sectors_max = capacity._used + 3
    with pytest.raises(DiskFull):
        log.rotate()
    assert log.status is Status.OPEN
    assert list(log.state.segments) == [1]
    assert log.directory.names().segments == [1]
    sequence = log.sequence
    assert [payload for _, payload in log.take("a")] == [b"1"]
    assert log.sequence > sequence, "the reserve of the old segment was there for the removal"


def test_puts_leave_the_reserve_to_removals() -> None:
    """Zeros that were held for removals were used by a put, since they were there already."""
    options = LogOptions(fill_bytes=0, reserve_bytes=2048)
    files = SimFiles(capacity=64 << 10)
    log = reopened(files, options)
    log.put("a", [b"1"])
    capacity = files._capacity
    assert capacity is not None
    capacity._sectors_max = capacity._used
    with pytest.raises(DiskFull):
        log.put("a", [b"2" * 600])
    assert log.tail.filled - log.tail.length >= options.reserve_bytes


def test_a_removal_that_would_not_fit_its_checkpoint_copy_is_refused() -> None:
    """The log failed where it could have refused: the copy was overwritten and did not fit."""
    options = LogOptions(fill_bytes=0, reserve_bytes=0)
    files = SimFiles(capacity=256 << 10)
    log = reopened(files, options)
    counters = log.put("a", [b"x"] * 2000)
    log.checkpoint()
    log.checkpoint()
    capacity = files._capacity
    assert capacity is not None
    for copy in ("checkpoint.a", "checkpoint.b"):
        # As if they came from elsewhere: the room that was held is gone.
        files.truncate(log.checkpoints._open(copy), log.checkpoints.size + 2000)
    capacity._sectors_max = capacity._used
    refused = False
    for counter in list(counters)[1::2]:
        try:
            ack(log, "a", counter, b"x")
        except DiskFull:
            refused = True
            break
    assert refused, "the copies have room for everything, so this tests nothing"
    assert log.status is Status.OPEN
    expected = payloads(log)
    assert payloads(reopened(after_process_crash(files), options)) == expected


def test_the_log_alone_tells_of_a_removal_out_of_order_that_found_no_space() -> None:
    """Only checkpoints held it, and when they were lost the record was back.

    The floor in the next genesis entry tells of removals at the head, so those hid the failure.
    """
    options = LogOptions(fill_bytes=0, reserve_bytes=0)
    files = SimFiles(capacity=64 << 10)
    log = reopened(files, options)
    counters = log.put("a", [b"1", b"2", b"3"])
    capacity = files._capacity
    assert capacity is not None
    sectors_max, capacity._sectors_max = capacity._sectors_max, capacity._used
    draft = log.draft()
    # Said often enough to be longer than what is left of the last sector.
    draft.remove(log.queue("a"), [(counters[1], counters[1], 17)] * 20, reason=ACKED)
    log.commit(draft)
    assert log.state.unlogged, "the removal found space, so this tests nothing"
    capacity._sectors_max = sectors_max
    log.put("a", [b"4"])
    stored = contents(files)
    for name in CHECKPOINT_NAMES:
        del stored[name]
    assert payloads(reopened(disk_with(stored))) == {"a": [b"1", b"3", b"4"]}


def test_recovery_on_a_full_disk_writes_nothing_behind_a_torn_tail() -> None:
    """Removals went behind torn bytes, where a frame of before the crash could follow them."""
    files = SimFiles(capacity=64 << 10)
    options = LogOptions(fill_bytes=0, reserve_bytes=1024)
    log = reopened(files, options)
    log.put("a", [b"1", b"2"])
    files.damage(f"{PATH}/{segment_name(1)}", log.tail.length, b"torn" * 8)
    twin = after_process_crash(files)
    capacity = twin._capacity
    assert capacity is not None
    capacity._sectors_max = capacity._used
    log = reopened(twin, options)
    before = twin.content(f"{PATH}/{segment_name(1)}")
    assert len(log.take("a")) == 1
    assert twin.content(f"{PATH}/{segment_name(1)}") == before
    assert payloads(reopened(after_process_crash(twin), options)) == {"a": [b"2"]}


# Files.


def test_a_store_deep_below_new_directories_survives_a_power_cut() -> None:
    """The store's own name was durable and the name of a directory above it was not."""
    files = SimFiles()
    path = "/new/newer/newest/store"
    log = open_log(path, files=files, clock=ManualClock(), options=SMALL)
    log.put("a", [b"1"])
    for image in power_images(files):
        twin = SimFiles.from_image(image)
        again = open_log(path, files=twin, clock=ManualClock(), options=SMALL)
        assert payloads(again) == {"a": [b"1"]}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ENOMEM, errno.EIO])
def test_a_rotation_may_fail_at_any_call_and_what_follows_is_kept(error: int) -> None:
    """A half-made segment says where the one before it ends, and more came into that one."""
    call, struck = 0, True
    while struck:
        inner = SimFiles()
        files = FaultyFiles(inner)
        log = open_log(PATH, files=files, clock=ManualClock(), options=SMALL)
        log.put("a", [b"1"], sync=False)
        files.faults = (Fault(at=files.call_count + call, error=error),)
        expected = {"a": [b"1"]}
        try:
            log.rotate()
        except (DiskFull, AccessError):
            assert log.status is Status.OPEN
        except DurabilityError:
            assert log.status is Status.FAILED
        struck = files.fired > 0
        files.faults = ()
        if log.status is Status.OPEN:
            log.put("a", [b"2"])
            expected = {"a": [b"1", b"2"]}
            for image in power_images(inner, limit=256, samples=32):
                assert payloads(reopened(SimFiles.from_image(image))) == expected, call
        assert payloads(reopened(after_process_crash(inner))) == expected, call
        call += 1
    assert call > 10


def test_a_second_owner_is_refused_on_the_real_disk(tmp_path: Path) -> None:
    """Two owners wrote into each other's frames."""
    path = str(tmp_path / "store")
    with open_log(path) as log:
        with pytest.raises(AlreadyOpen):
            open_log(path)
        log.put("a", [b"1"])
    with open_log(path) as log:
        assert payloads(log) == {"a": [b"1"]}


def test_a_forked_child_can_not_write_and_does_not_hold_the_lock(tmp_path: Path) -> None:
    """A child that lived on kept the store owned for ever, or wrote into it beside its parent."""
    path = str(tmp_path / "store")
    log = open_log(path)
    log.put("a", [b"1"])
    told, tell = os.pipe()
    started, start = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(tell)
            os.write(start, b"!")
            os.read(told, 1)
            log.put("a", [b"from the child"])
        except ForkError:
            links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            status = sum(path in os.readlink(link) for link in links if os.path.lexists(link))
        finally:
            os._exit(status)
    try:
        os.close(told)
        os.close(start)
        assert os.read(started, 1) == b"!"
        log.close()
        with open_log(path) as again:
            assert payloads(again) == {"a": [b"1"]}
    finally:
        os.close(tell)
        os.close(started)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_sync_reaches_the_operating_system() -> None:
    """The seam forgot to pass a sync on; only a real power cut would have shown it.

    A pipe cannot be synced, and the kernel says so to whoever asks.
    """
    reading, writing = os.pipe()
    files = OsFiles()
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            files.datasync(Handle(writing))
        with pytest.raises(OSError, match="Invalid argument"):
            files.sync_dir(Handle(reading))
    finally:
        os.close(reading)
        os.close(writing)


# Upkeep.


def test_a_new_segment_that_goes_missing_is_noticed(log: Log, files: SimFiles) -> None:
    """Nothing but its own file knew of the newest segment, and its loss left a smaller store."""
    log.put("a", [b"1"])
    log.rotate()
    log.put("a", [b"2"])
    stored = contents(files)
    del stored[segment_name(2)]
    assert_damaged(stored, match="missing")


def test_the_segment_of_a_recovery_that_goes_missing_is_noticed(log: Log, files: SimFiles) -> None:
    """The same after a crash: what was confirmed since was in a file that nobody knew of."""
    log.put("a", [b"1"])
    twin = after_process_crash(files)
    reopened(twin).put("a", [b"2"])
    stored = contents(twin)
    del stored[segment_name(2)]
    assert_damaged(stored, match="missing")


def test_a_record_that_is_moved_keeps_its_attempts_and_its_queue_the_configuration(
    log: Log, files: SimFiles
) -> None:
    """With the segment they lay in, only the checkpoints knew them; those may both rot."""
    payload = b"x" * 400
    counters = log.put("a", [payload] * 8)
    draft = log.draft()
    draft.configure(log.queue("a"), b"{}")
    draft.lease(log.queue("a"), [counters[3]], [5], 9)
    log.commit(draft)
    log.rotate()
    for counter in counters:
        if counter != counters[3]:
            ack(log, "a", counter, payload)
    for _ in range(9):
        log.compact()
    log.put("b", [b"something else"])
    assert 1 not in log.state.segments, "the old segment is not gone, so this tests nothing"
    stored = contents(files)
    for name in CHECKPOINT_NAMES:
        del stored[name]
    found = reopened(disk_with(stored))
    assert payloads(found) == {"a": [payload], "b": [b"something else"]}
    assert found.queue("a").attempts == {counters[3]: 5}
    assert found.queue("a").configuration == b"{}"


def test_a_queue_that_is_empty_never_uses_a_counter_again(log: Log, files: SimFiles) -> None:
    """Its last genesis entry went with its last segment; without checkpoints it began at 1."""
    log.put("a", [b"1" * 400])
    log.rotate()
    log.take("a")
    log.put("b", [b"2"])
    log.rotate()
    log.put("b", [b"3"])
    log.flush()
    assert 1 not in log.state.segments
    stored = {name: data for name, data in contents(files).items() if name not in CHECKPOINT_NAMES}
    assert reopened(disk_with(stored)).put("a", [b"4"]) == range(2, 3)


def test_a_state_keeps_its_segment_although_no_record_is_left_in_it(
    log: Log, files: SimFiles
) -> None:
    """The newest value of a state was unlinked with the last record beside it."""
    draft = log.draft()
    draft.put(log.queue("a"), [b"1"])
    draft.set_states([("large", b"x" * 2000)])
    log.commit(draft)
    log.rotate()
    log.take("a")
    log.put("b", [b"2"])
    log.checkpoint()
    assert log.state_of("large") == b"x" * 2000
    assert reopened(after_process_crash(files)).state_of("large") == b"x" * 2000


def test_a_deleted_state_does_not_come_back_with_an_old_segment(log: Log, files: SimFiles) -> None:
    """The deletion was forgotten while an older segment still held the value, which then won."""
    draft = log.draft()
    draft.put(log.queue("stays"), [b"1" * 400])
    draft.set_states([("x", b"old")])
    log.commit(draft)
    log.rotate()
    draft = log.draft()
    draft.put(log.queue("goes-later"), [b"2" * 400])
    draft.set_states([("x", None)])
    log.commit(draft)
    log.rotate()
    log.put("goes", [b"3" * 400])
    log.rotate()
    log.take("goes")
    log.take("goes-later")
    log.rotate()
    log.put("stays", [b"4"])
    assert sorted(log.state.segments)[0] == 1
    assert not {2, 3} & set(log.state.segments), "they are not gone, so this tests nothing"
    stored = {name: data for name, data in contents(files).items() if name not in CHECKPOINT_NAMES}
    found = reopened(disk_with(stored))
    assert payloads(found) == {"stays": [b"1" * 400, b"4"]}
    assert found.state_of("x") is None


# Recovery.


@pytest.mark.parametrize("options", [SMALL, LogOptions(fill_bytes=0, reserve_bytes=0)])
def test_what_recovery_found_after_a_failed_sync_survives_a_power_cut(options: LogOptions) -> None:
    """The cache called a frame clean that the disk never got, and recovery showed it."""
    files = SimFiles()
    log = reopened(files, options)
    log.put("a", [b"1"])
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        log.put("a", [b"dropped"])
    twin = after_process_crash(files)
    found = payloads(reopened(twin, options))
    again = SimFiles.from_image(image_after(twin, always(ABSENT)))
    assert payloads(reopened(again, options)) == found


class EndOfProcess(BaseException):
    """Where the process ends."""


def test_a_checkpoint_that_only_the_cache_holds_is_made_durable_before_it_is_relied_on(
    log: Log, files: SimFiles
) -> None:
    """The next checkpoint went over the only copy on the disk, and the power went as well."""
    counters = log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    ack(log, "a", counters[1], b"2")
    log.rotate()
    log.put("a", [b"4"])
    log.flush()
    expected = {"a": [b"1", b"3", b"4"]}

    def end_at_sync(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "datasync":
            raise EndOfProcess

    files.before_op = end_at_sync
    with pytest.raises(EndOfProcess):
        log.checkpoint()
    twin = after_process_crash(files)

    def visit(point: int, disk: SimFiles) -> None:
        for outcome in (ABSENT, FIRST_SECTOR):
            image = image_after(disk, always(outcome))
            assert payloads(reopened(SimFiles.from_image(image))) == expected, point

    crash_points(reopened, visit, files=twin)


def test_what_a_full_scan_found_survives_a_power_cut(files: SimFiles) -> None:
    """Frames that only the page cache held were counted as durable."""
    options = LogOptions(fill_bytes=0, reserve_bytes=0)
    log = reopened(files, options)
    log.put("a", [b"1"])
    log.put("a", [b"2"], sync=False)
    log.put("a", [b"3"], sync=False)
    twin = after_process_crash(files)
    for name in CHECKPOINT_NAMES:
        twin.damage(f"{PATH}/{name}", 0, b"????????")
    assert payloads(reopened(twin, options)) == {"a": [b"1", b"2", b"3"]}
    again = SimFiles.from_image(image_after(twin, always(ABSENT)))
    assert payloads(reopened(again, options)) == {"a": [b"1", b"2", b"3"]}


def test_damage_before_a_witness_is_no_torn_tail(log: Log, files: SimFiles) -> None:
    """A commit that a later frame calls durable was dropped as if it had never been written."""
    log.put("a", [b"1"])
    log.put("b", [b"2"])
    log.put("a", [b"3"])
    stored = contents(files)
    name = segment_name(1)
    at = stored[name].rindex(FRAME_MAGIC, 0, last_frame(stored[name])) + 60
    stored[name] = stored[name][:at] + b"?" + stored[name][at + 1 :]
    assert_damaged(stored, match="were durable")


def in_the_middle_of_a_rotation(log: Log, files: SimFiles) -> dict[str, bytes]:
    """Queue a is in segment 1; segment 2 is there, and no checkpoint knows it yet."""
    log.put("b", [b"1"])
    log.put("a", [b"2"])
    before = checkpoints_of(files)
    log.rotate()
    return contents(files) | before


def test_damage_in_front_of_another_segment_is_no_torn_tail(log: Log, files: SimFiles) -> None:
    """The last frame of a segment was dropped although the next one says where it ended."""
    stored = in_the_middle_of_a_rotation(log, files)
    assert payloads(reopened(disk_with(stored))) == {"b": [b"1"], "a": [b"2"]}
    name = segment_name(1)
    stored[name] = stored[name][:-60] + b"?" + stored[name][-59:]
    assert_damaged(stored, match="checksum of frame 2 does not match")


def test_a_damaged_header_in_front_of_frames_is_no_unborn_segment(
    log: Log, files: SimFiles
) -> None:
    """A segment with one flipped bit was taken for one that never got its header."""
    stored = in_the_middle_of_a_rotation(log, files)
    log.put("a", [b"3"])
    name = segment_name(2)
    data = contents(files)[name]
    stored[name] = data[:20] + bytes([data[20] ^ 1]) + data[21:]
    assert_damaged(stored, match="segment header checksum does not match")


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_segment_is_never_an_empty_range(missing: int, log: Log, files: SimFiles) -> None:
    """Its queue simply had fewer records."""
    for name in ("a", "b", "c"):
        log.put(name, [name.encode()])
        log.rotate()
    stored = contents(files)
    del stored[segment_name(missing)]
    stored.pop(index_name(missing), None)
    assert_damaged(stored, match="the segment is missing")


def test_a_missing_segment_behind_the_checkpoints_is_noticed(log: Log, files: SimFiles) -> None:
    """While checkpoints find no space only the numbers of the segments tell that one is gone."""
    before = checkpoints_of(files)
    for name in ("a", "b", "c"):
        log.put(name, [name.encode()])
        log.rotate()
    stored = contents(files) | before
    assert payloads(reopened(disk_with(stored))) == {"a": [b"a"], "b": [b"b"], "c": [b"c"]}
    del stored[segment_name(2)]
    assert_damaged(stored, match="the segment is missing")


def test_a_segment_that_lost_its_end_is_noticed(log: Log, files: SimFiles) -> None:
    """A sealed segment was opened without its last frame; only a read would have told."""
    log.put("a", [b"1"])
    log.rotate()
    log.put("a", [b"2"])
    stored = contents(files)
    stored[segment_name(1)] = stored[segment_name(1)][:-8]
    assert_damaged(stored, match="8 bytes early")


def test_checkpoints_of_two_stores_are_not_mixed(log: Log, files: SimFiles) -> None:
    """The checkpoint with the higher number won, and the segments looked damaged or, worse, fit."""
    log.put("a", [b"1"])
    log.close()
    other = SimFiles()
    with open_log(PATH, files=other, clock=ManualClock(seed=1), options=SMALL) as another:
        another.put("a", [b"2"])
    stored = contents(files)
    newest = log.checkpoints._newest
    name = next(name for name in CHECKPOINT_NAMES if name != newest)
    stored[name] = contents(other)[name]
    assert_damaged(stored, match="different stores")


def test_genesis_and_log_must_agree(log: Log, files: SimFiles) -> None:
    """A queue whose records are not all there was opened with those that are."""
    log.put("a", [b"1"])
    log.queue("a").genesis.queue_size += 1
    log.put("a", [b"2"])
    assert_damaged(contents(files), match="genesis says 3 records, the log holds 2")


def test_a_full_scan_does_not_bring_removed_records_back(log: Log, files: SimFiles) -> None:
    """The removal's frame was reclaimed and the record's was not: it came back to life."""
    counters = log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    ack(log, "a", counters[1], b"2")
    log.rotate()
    log.put("a", [b"4"])
    log.flush()
    assert sorted(log.state.segments) == [1, 3]
    stored = {name: data for name, data in contents(files).items() if name not in CHECKPOINT_NAMES}
    assert_damaged(stored, match="genesis says")


def test_a_full_scan_learns_from_a_floor_what_reclaimed_frames_had_removed(
    log: Log, files: SimFiles
) -> None:
    """A store that had lost nothing was refused for a disagreement of its own making."""
    log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    log.take("a")
    log.rotate()
    log.put("a", [b"4"])
    log.flush()
    assert sorted(log.state.segments) == [1, 3]
    stored = {name: data for name, data in contents(files).items() if name not in CHECKPOINT_NAMES}
    assert payloads(reopened(disk_with(stored))) == {"a": [b"2", b"3", b"4"]}


def test_an_older_checkpoint_is_a_witness_in_a_full_scan(log: Log, files: SimFiles) -> None:
    """The newest copy rotted, and so did the end of the log, which looked like a torn tail."""
    log.put("a", [b"1" * 400])
    log.rotate()
    log.put("b", [b"2"])
    end = log.tail.length
    log.put("b", [b"3"])
    log.put("b", [b"4"])
    log.checkpoint()
    log.take("a")
    log.flush()
    assert list(log.state.segments) == [2]
    newest = log.checkpoints._newest
    assert newest is not None
    stored = contents(files)
    stored[newest] = b"????????" + stored[newest][8:]
    assert payloads(reopened(disk_with(stored))) == {"b": [b"2", b"3", b"4"]}
    data = stored[segment_name(2)]
    stored[segment_name(2)] = data[:end] + bytes(len(data) - end)
    assert_damaged(stored, match="were durable")


def test_a_store_that_was_half_made_is_made_again_whatever_is_cut(
    log: Log, files: SimFiles
) -> None:
    """A torn checkpoint came back without the segment, which looked like the loss of everything."""
    stored = contents(files)
    header = stored[segment_name(1)][:SEGMENT_HEADER_BYTES]
    half_made = disk_with({segment_name(1): header, CHECKPOINT_NAMES[0]: b"torn"})

    def visit(point: int, disk: SimFiles) -> None:
        for image in power_images(disk):
            again = reopened(SimFiles.from_image(image))
            assert payloads(again) == {}
            assert again.put("a", [b"1"]) == range(1, 2)

    crash_points(reopened, visit, files=half_made)


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_store_without_checkpoints_is_not_made_anew(how: str, log: Log, files: SimFiles) -> None:
    """Everything was lost: a store with one segment looked as if it had never been made."""
    log.put("a", [b"1"])
    stored = contents(files)
    for name in CHECKPOINT_NAMES:
        data = stored.pop(name)
        if how == "damaged":
            stored[name] = b"????????" + data[8:]
    assert payloads(reopened(disk_with(stored))) == {"a": [b"1"]}


def test_a_store_without_segments_is_not_made_anew(log: Log, files: SimFiles) -> None:
    """Damaged checkpoints and nothing else: something was there, so it must not be replaced."""
    log.put("a", [b"1"])
    stored = {name: b"????????" + data[8:] for name, data in checkpoints_of(files).items()}
    assert_damaged(stored, match="every segment is missing")


# Readers.


def reader_of(files: SimFiles, clock: ManualClock) -> Reader:
    return Reader(PATH, files=files, clock=clock)


def seen_by(reader: Reader) -> list[bytes]:
    return [payload for block in reader.blocks("a") for payload in block.payloads()]


def test_a_reader_does_not_show_what_a_failed_sync_dropped(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    """The cache still held the frame, called clean: a sync of the reader's own said all is well."""
    log.put("a", [b"1"])
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        log.put("a", [b"dropped"])
    assert seen_by(reader_of(files, clock)) == [b"1"]


def test_a_reader_believes_nothing_that_came_after_its_own_sync(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    """The owner wrote on between the reader's sync and its second look, and that was believed."""
    log.put("a", [b"1"])
    log.put("a", [b"2"], sync=False)
    log.put("a", [b"3"], sync=False)
    reader = reader_of(files, clock)
    log.put("a", [b"4"], sync=False)
    reader.refresh()
    clock.advance(seconds=UNWITNESSED_SECONDS)

    def write_on(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "forget_cache":
            files.before_op = None
            log.put("a", [b"5"], sync=False)

    files.before_op = write_on
    reader.refresh()
    assert files.before_op is None, "the reader did not sync, so this tests nothing"
    survivors = reopened(SimFiles.from_image(image_after(files, always(ABSENT))))
    assert payloads(survivors) == {"a": seen_by(reader)}


def test_a_reader_does_not_follow_an_index_past_what_it_believes(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    """The owner wrote the index of a segment of which the reader knew only the beginning."""

    def take_and_restore() -> None:
        [(key, payload)] = log.take("a")
        draft = log.draft()
        draft.move(log.queue("a"), [key.counter], [key.timestamp], [payload])
        log.commit(draft)

    log.put("a", [b"1"])
    take_and_restore()
    log.seal()
    reader = reader_of(files, clock)
    take_and_restore()
    log.rotate()
    assert seen_by(reader) == [b"1"]


@pytest.mark.parametrize("rotten", CHECKPOINT_NAMES)
def test_a_store_that_was_only_made_outlives_the_loss_of_either_checkpoint(
    files: SimFiles, log: Log, rotten: str
) -> None:
    """With one copy the loss of it made another store there, and nobody was told."""
    made = log.store_id
    files.process_crash()
    assert files.content(f"{PATH}/{rotten}")
    files.damage(f"{PATH}/{rotten}", 20, b"????")
    clock = ManualClock(seed=1)
    with open_log(PATH, files=files, clock=clock, options=SMALL) as again:
        assert again.store_id == made
