"""The tail: zeros ahead, a reserve for removals, and a frame that is refused leaves no trace."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.simfiles import SimFiles
from store import AccessError, DiskFull, DurabilityError, LogOptions
from store.directory import Directory
from store.files import Files, Handle
from store.frames import SEGMENT_HEADER_BYTES, SegmentHeader
from store.tail import Tail
from tests.support.faulty import Fault, FaultyFiles

FILL, RESERVE = 1024, 512
FRAME = b"f" * 200


def make_tail(files: Files) -> Tail:
    Directory.make(files, "/store")
    header = SegmentHeader(bytes(16), 1, 0, 1, 0, 0, 0, 1)
    directory = Directory(files, "/store")
    directory.sync_parents()
    file = directory.create_segment(header)
    return Tail(file, SEGMENT_HEADER_BYTES, LogOptions(fill_bytes=FILL, reserve_bytes=RESERVE))


def content(files: SimFiles) -> bytes:
    return files.content("/store/00000000000000000001.log")


def faulty_tail(*faults: Fault) -> tuple[SimFiles, Tail]:
    """A tail with room for a frame; the faults count from its next call on."""
    inner = SimFiles()
    files = FaultyFiles(inner)
    tail = make_tail(files)
    tail.make_room(len(FRAME), reserve=False)
    files.call_count = 0
    files._name_counts.clear()
    files.faults = faults
    return inner, tail


def test_zeros_are_written_ahead_of_the_frames() -> None:
    files = SimFiles()
    tail = make_tail(files)
    assert tail.empty
    assert not tail.has_room(1)
    assert tail.make_room(len(FRAME), reserve=False)
    assert tail.filled == SEGMENT_HEADER_BYTES + len(FRAME) + RESERVE + FILL
    assert tail.append(FRAME) == SEGMENT_HEADER_BYTES
    assert content(files)[SEGMENT_HEADER_BYTES:] == FRAME + bytes(RESERVE + FILL)
    assert not tail.empty


def test_room_that_is_there_needs_no_writing() -> None:
    files = SimFiles()
    tail = make_tail(files)
    tail.make_room(len(FRAME), reserve=False)
    files.op_log = []
    assert tail.has_room(FILL)
    assert tail.make_room(FILL, reserve=False)
    assert files.op_log == []


def test_a_frame_without_room_makes_the_file_longer() -> None:
    files = SimFiles()
    tail = make_tail(files)
    tail.append(FRAME)
    assert tail.filled == tail.length == len(content(files))


def test_a_full_disk_leaves_the_reserve_to_removals() -> None:
    files = SimFiles(capacity=1024)
    tail = make_tail(files)
    assert not tail.make_room(600, reserve=False)
    assert tail.make_room(600, reserve=True)
    assert not tail.make_room(1000, reserve=True)
    assert tail.filled == 1024


def test_a_write_that_makes_no_progress_counts_as_a_full_disk() -> None:
    class Stuck(SimFiles):
        stuck = False

        def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
            return 0 if self.stuck else super().pwrite(handle, data, offset)

    files = Stuck()
    tail = make_tail(files)
    files.stuck = True
    assert not tail.make_room(1, reserve=False)
    with pytest.raises(DiskFull):
        tail.append(FRAME)
    files.stuck = False
    assert tail.append(FRAME) == SEGMENT_HEADER_BYTES


def test_any_other_error_while_filling_goes_on() -> None:
    _, tail = faulty_tail(Fault(at=0, error=errno.EMFILE, call="pwrite"))
    with pytest.raises(OSError, match="Too many open files"):
        tail.make_room(4096, reserve=False)


def test_short_writes_are_completed() -> None:
    files, tail = faulty_tail(Fault(at=0, error="short", call="pwrite", for_ever=True))
    tail.append(FRAME)
    assert content(files)[SEGMENT_HEADER_BYTES:].startswith(FRAME)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_frame_refused_for_want_of_space_is_cut_off_and_the_cut_is_durable(error: int) -> None:
    files, tail = faulty_tail(
        Fault(at=0, error="short", call="pwrite"), Fault(at=1, error=error, call="pwrite")
    )
    with pytest.raises(DiskFull) as caught:
        tail.append(FRAME)
    assert str(caught.value) == (
        f"segment 1: no space for a frame of {len(FRAME)} bytes at byte {SEGMENT_HEADER_BYTES}. "
        f"Nothing of it was stored. Takes and acks still work; free some space."
    )
    assert len(content(files)) == tail.length == tail.filled == SEGMENT_HEADER_BYTES
    assert not files.disk.pending
    assert tail.append(FRAME) == SEGMENT_HEADER_BYTES


def test_a_frame_refused_for_want_of_memory_is_cut_off_too() -> None:
    files, tail = faulty_tail(Fault(at=0, error=errno.ENOMEM, call="pwrite", partial=True))
    with pytest.raises(AccessError) as caught:
        tail.append(FRAME)
    assert str(caught.value) == (
        "segment 1: Cannot allocate memory while writing a frame. Nothing of it was stored; the "
        "store goes on. Try again."
    )
    assert len(content(files)) == SEGMENT_HEADER_BYTES


def test_a_failing_disk_is_not_taken_for_a_full_one() -> None:
    _, tail = faulty_tail(Fault(at=0, error=errno.EIO, call="pwrite"))
    with pytest.raises(OSError, match="Input/output error"):
        tail.append(FRAME)


@pytest.mark.parametrize("call", ["truncate", "datasync"])
def test_a_cut_that_fails_leaves_the_outcome_unknown(call: str) -> None:
    _, tail = faulty_tail(
        Fault(at=0, error=errno.ENOSPC, call="pwrite", partial=True),
        Fault(at=0, error=errno.EIO, call=call),
    )
    with pytest.raises(DurabilityError):
        tail.append(FRAME)


def test_only_what_changed_is_synced() -> None:
    files = SimFiles()
    tail = make_tail(files)
    tail.append(FRAME)
    tail.sync()
    assert not files.disk.pending
    files.op_log = []
    tail.sync()
    assert files.op_log == []


def test_trimming_gives_the_zeros_back_once() -> None:
    files = SimFiles()
    tail = make_tail(files)
    tail.make_room(len(FRAME), reserve=False)
    tail.append(FRAME)
    tail.trim()
    assert len(content(files)) == tail.length
    files.op_log = []
    tail.trim()
    assert files.op_log == []


def test_a_tail_that_is_closed_has_no_room() -> None:
    tail = make_tail(SimFiles())
    tail.make_room(4096, reserve=False)
    tail.closed = True
    assert not tail.has_room(1)
    assert not tail.make_room(1, reserve=True)
