"""The directory: names by kind, one lock, and files that are there whole or not at all."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.simfiles import SimFiles
from store import AlreadyOpen, DamageError, DiskFull, DurabilityError, FormatError
from store.checkpoint import CHECKPOINT_HEADER_BYTES
from store.directory import Directory, access_error, sync_error, write_all
from store.files import Handle
from store.frames import SegmentHeader
from store.index import SegmentIndex
from store.segment import index_name, segment_name
from tests.support.faulty import Fault, FaultyFiles

STORE_ID = bytes(range(16))
HEADER = SegmentHeader(STORE_ID, 1, 0, 1, 0, 0, 0, 1)


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles()
    files.add_dir("/store")
    return files


@pytest.fixture
def directory(files: SimFiles) -> Directory:
    return Directory(files, "/store")


def faulty(files: SimFiles, *faults: Fault) -> Directory:
    return Directory(FaultyFiles(files, *faults), "/store")


def names(files: SimFiles) -> list[str]:
    return sorted(files.list_dir(files.open_dir("/store")))


def refuse(call: str, error: int) -> Fault:
    return Fault(at=0, error=error, call=call)


# Making it.


def test_parents_are_made_where_they_are_missing(files: SimFiles) -> None:
    Directory.make(files, "/a/b/c")
    Directory.make(files, "/a/b/c")
    assert files.list_dir(files.open_dir("/a/b")) == ["c"]


def test_a_directory_below_a_file_cannot_be_made(files: SimFiles) -> None:
    files.add_file("/plain", b"")
    with pytest.raises(NotADirectoryError):
        Directory.make(files, "/plain/store")


def test_a_directory_without_a_name_cannot_be_made(files: SimFiles) -> None:
    with pytest.raises(FileNotFoundError):
        Directory.make(files, "")


def test_every_parent_is_synced_up_to_the_root(files: SimFiles) -> None:
    Directory.make(files, "/a/b/c")
    Directory(files, "/a/b/c").sync_parents()
    assert not files.disk.pending


def test_a_relative_path_is_synced_up_to_where_it_starts(files: SimFiles) -> None:
    Directory.make(files, "a/b")
    files.op_log = []
    Directory(files, "a/b").sync_parents()
    opened = [args[0] for name, args in files.op_log if name == "open_dir"]
    assert opened == ["a/b", "a", "."]


def test_parents_that_we_may_not_open_end_the_syncing(files: SimFiles) -> None:
    Directory.make(files, "/a/b")
    directory = Directory(
        FaultyFiles(files, Fault(at=2, error=errno.EACCES, call="open_dir")), "/a/b"
    )
    directory.sync_parents()
    assert len(files.disk.pending) == 1


def test_a_parent_that_cannot_be_synced_is_told(files: SimFiles) -> None:
    directory = faulty(files, refuse("sync_dir", errno.EIO))
    with pytest.raises(DurabilityError):
        directory.sync_parents()
    assert len(files._handles) == 1


def test_a_parent_whose_file_system_knows_no_sync_is_left_so(files: SimFiles) -> None:
    directory = faulty(files, refuse("sync_dir", errno.EINVAL))
    directory.sync_parents()
    assert len(files._handles) == 1


# The lock.


def test_the_lock_is_for_one_and_goes_with_the_close(files: SimFiles, directory: Directory) -> None:
    directory.lock()
    other = Directory(files, "/store")
    with pytest.raises(AlreadyOpen) as caught:
        other.lock()
    assert caught.value.path == "/store"
    directory.close()
    directory.close()
    other.lock()


# Names.


def test_names_are_sorted_by_kind_and_what_is_set_aside_is_nobodys(
    files: SimFiles, directory: Directory
) -> None:
    for name in (
        segment_name(10),
        segment_name(9),
        index_name(9),
        "checkpoint.b",
        f"{1:020}-80.bad",
        "letter.txt",
        "9.log",
        f"{0:020}.log",
    ):
        files.add_file(f"/store/{name}", b"")
    found = directory.names()
    assert (found.segments, found.indexes) == ([9, 10], [9])
    assert found.checkpoints == ["checkpoint.b"]
    assert found.others == [f"{0:020}.log", "9.log", "letter.txt"]


def test_a_name_that_is_gone_already_is_removed(files: SimFiles, directory: Directory) -> None:
    before = names(files)
    directory.remove("nothing")
    assert names(files) == before


def test_a_directory_that_cannot_be_synced_is_told(files: SimFiles) -> None:
    with pytest.raises(DurabilityError) as caught:
        faulty(files, refuse("sync_dir", errno.EIO)).sync()
    assert str(caught.value) == (
        "/store: Input/output error while making data durable. What is on disk is unknown until "
        "the store is opened anew; this one has stopped. Close it, see to the disk, reopen."
    )


# Files that are there whole or not at all.


def test_a_new_segment_is_durable_with_its_name(files: SimFiles, directory: Directory) -> None:
    file = directory.create_segment(HEADER)
    assert not files.disk.pending
    assert file.header() == HEADER


def test_a_file_is_made_in_place_of_a_leftover(files: SimFiles, directory: Directory) -> None:
    files.add_file(f"/store/{segment_name(1)}", b"left over" * 100)
    directory.create_segment(HEADER)
    assert files.content(f"/store/{segment_name(1)}") == HEADER.encode()


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (refuse("create", errno.EMFILE), []),
        (refuse("pwrite", errno.ENOSPC), []),
        (refuse("datasync", errno.EIO), [segment_name(1)]),
        (refuse("sync_dir", errno.EIO), [segment_name(1)]),
        (refuse("pread", errno.EIO), []),
    ],
)
def test_a_segment_that_cannot_be_made_is_not_left_unless_a_sync_failed(
    files: SimFiles, fault: Fault, left: list[str]
) -> None:
    with pytest.raises((OSError, DurabilityError)):
        faulty(files, fault).create_segment(HEADER)
    assert names(files) == left
    if not left:
        assert not files.disk.pending


def test_a_name_that_cannot_be_taken_back_leaves_the_outcome_unknown(files: SimFiles) -> None:
    directory = faulty(
        files, refuse("pwrite", errno.ENOSPC), Fault(at=1, error=errno.EIO, call="unlink")
    )
    with pytest.raises(DurabilityError):
        directory.create("file", b"data")


def test_a_segment_whose_first_read_fails_leaves_no_handle(
    files: SimFiles, directory: Directory
) -> None:
    directory.create_segment(HEADER).close()
    handles = len(files._handles)
    broken = faulty(files, refuse("pread", errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        broken.open_segment(1, STORE_ID)
    broken.close()
    assert len(files._handles) == handles


def test_an_index_is_read_back_and_a_broken_one_is_as_none(
    files: SimFiles, directory: Directory
) -> None:
    index = SegmentIndex(80)
    index.note("orders", 1, 1, 3, 7, 80)
    index.length = 200
    directory.write_index(index, 1, STORE_ID)
    found = directory.read_index(1, STORE_ID)
    assert found is not None
    assert (found.length, found.queues) == (index.length, index.queues)
    files.flip_bit(f"/store/{index_name(1)}", offset=30, bit=1)
    assert directory.read_index(1, STORE_ID) is None
    assert directory.read_index(2, STORE_ID) is None


def test_a_checkpoint_that_is_no_checkpoint_is_damage(
    files: SimFiles, directory: Directory
) -> None:
    files.add_file("/store/checkpoint.a", b"x" * CHECKPOINT_HEADER_BYTES)
    with pytest.raises(DamageError):
        directory.read_checkpoint("checkpoint.a")


def test_a_newer_format_is_told_with_the_file_that_has_it(
    files: SimFiles, directory: Directory
) -> None:
    files.add_file("/store/file", b"")
    with (
        pytest.raises(FormatError) as caught,
        directory.reading("file"),
    ):
        raise FormatError("format 9 is newer")
    assert str(caught.value) == "/store/file: format 9 is newer"


# Writing, and errors in our words.


def test_a_short_write_is_completed_and_one_without_progress_is_a_full_disk() -> None:
    class Stuck(SimFiles):
        def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
            return 0 if offset >= 5 else super().pwrite(handle, bytes(data)[:2], offset)

    stuck = Stuck()
    handle = stuck.create(stuck.open_dir("/"), "file")
    write_all(stuck, handle, b"abcdef", 0)
    assert stuck.content("/file") == b"abcdef"
    with pytest.raises(OSError, match="a write made no progress") as caught:
        write_all(stuck, handle, b"abcdefgh", 0)
    assert caught.value.errno == errno.ENOSPC


def test_an_error_without_words_of_its_own_is_told_all_the_same() -> None:
    assert "boom" in str(access_error("/store", OSError("boom")))
    assert "boom" in str(sync_error("/store", OSError("boom")))


def test_what_finds_no_space_is_no_matter_of_access() -> None:
    told = access_error("/q", OSError(errno.ENOSPC, "No space left on device"))
    assert isinstance(told, DiskFull)
    assert str(told) == "/q: No space left on device. Nothing was changed. Free some space."
