"""SimFiles as a `Files`: handles, locks, space, faults. Errnos are in `test_differential`."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.disk import SyncFailure
from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store.files import Files, Handle


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def root(files: SimFiles) -> Handle:
    return files.open_dir("/")


def test_it_is_a_files() -> None:
    files: Files = SimFiles()
    assert files.list_dir(files.open_dir("/")) == []


def test_an_unlinked_file_works_until_it_is_closed(files: SimFiles, root: Handle) -> None:
    handle = files.create(root, "a")
    files.unlink(root, "a")
    files.sync_dir(root)
    files.pwrite(handle, b"still here", 0)
    files.datasync(handle)
    assert files.pread(handle, 99, 0) == b"still here"
    files.close(handle)
    assert len(files.disk.nodes) == 1
    assert files.disk.pending == []


def test_a_handle_is_never_given_out_again(files: SimFiles, root: Handle) -> None:
    handle = files.create(root, "a")
    files.close(handle)
    assert files.open(root, "a", write=False) != handle
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.size(handle)


def test_a_lock_belongs_to_one_handle_and_dies_with_it(files: SimFiles, root: Handle) -> None:
    other = files.open_dir("/")
    files.lock_dir(root)
    files.lock_dir(root)
    with pytest.raises(BlockingIOError):
        files.lock_dir(other)
    files.close(root)
    files.lock_dir(other)


def test_a_process_crash_takes_handles_and_locks_and_leaves_the_live_view(
    files: SimFiles, root: Handle
) -> None:
    files.lock_dir(root)
    handle = files.create(root, "a")
    files.pwrite(handle, b"cached", 0)
    pending = files.disk.pending.copy()
    files.process_crash()
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.size(handle)
    again = files.open_dir("/")
    files.lock_dir(again)
    assert files.content("/a") == b"cached"
    assert files.disk.pending == pending


def test_a_copy_goes_its_own_way(files: SimFiles, root: Handle) -> None:
    handle = files.create(root, "a")
    files.pwrite(handle, b"one", 0)
    twin = files.copy()
    twin.pwrite(handle, b"two", 0)
    twin.create(root, "b")
    twin.datasync(handle)
    assert files.pread(handle, 9, 0) == b"one"
    assert files.list_dir(root) == ["a"]
    assert len(files.disk.pending) == 2


def test_image_and_back(files: SimFiles, root: Handle) -> None:
    files.make_dir("/q")
    files.pwrite(files.create(files.open_dir("/q"), "a"), b"text", 0)
    files.create(root, "b")
    image = files.image()
    assert image.files == {"/q/a": b"text", "/b": b""}
    assert image == Image.of(image.files)
    assert image.digest == Image.of(image.files).digest
    again = SimFiles.from_image(image)
    assert again.image() == image
    assert again.disk.pending == []


class TestCapacity:
    def test_a_full_disk_writes_what_fits_and_then_refuses(self) -> None:
        files = SimFiles(capacity=1024)
        handle = files.create(files.open_dir("/"), "a")
        assert files.pwrite(handle, bytes(1000), 100) == 924
        with pytest.raises(OSError, match="No space left"):
            files.pwrite(handle, b"x", 1024)

    def test_overwriting_takes_no_space(self) -> None:
        files = SimFiles(capacity=1024)
        handle = files.create(files.open_dir("/"), "a")
        files.pwrite(handle, bytes(1024), 0)
        assert files.pwrite(handle, b"x" * 1024, 0) == 1024

    def test_a_hole_takes_space_only_when_written(self) -> None:
        files = SimFiles(capacity=512)
        handle = files.create(files.open_dir("/"), "a")
        files.truncate(handle, 100_000)
        assert files.pwrite(handle, b"x", 5000) == 1
        with pytest.raises(OSError, match="No space left"):
            files.pwrite(handle, b"x", 0)
        files.truncate(handle, 0)
        assert files.pwrite(handle, b"x", 0) == 1

    @pytest.mark.parametrize("how", ["close", "crash"])
    def test_space_comes_back_with_the_last_name_and_the_last_handle(self, how: str) -> None:
        files = SimFiles(capacity=512)
        root = files.open_dir("/")
        old = files.create(root, "old")
        files.pwrite(old, b"x", 0)
        files.unlink(root, "old")
        new = files.create(root, "new")
        with pytest.raises(OSError, match="No space left"):
            files.pwrite(new, b"x", 0)
        if how == "close":
            files.close(old)
        else:
            files.process_crash()
            new = files.open(files.open_dir("/"), "new", write=True)
        assert files.pwrite(new, b"x", 0) == 1

    def test_an_image_fills_its_new_disk(self) -> None:
        files = SimFiles.from_image(Image.of({"/a": bytes(600)}), capacity=1024)
        handle = files.open(files.open_dir("/"), "a", write=True)
        assert files.pwrite(handle, bytes(1024), 512) == 512


class TestFailedSync:
    """F1 to F3: the error is told once, the cache shows ghosts, dropping it shows the truth."""

    @pytest.fixture
    def handle(self, files: SimFiles, root: Handle) -> Handle:
        handle = files.create(root, "a")
        files.pwrite(handle, b"old!", 0)
        files.datasync(handle)
        return handle

    def test_lost_writes_are_read_until_the_cache_is_dropped(
        self, files: SimFiles, handle: Handle
    ) -> None:
        files.pwrite(handle, b"new!", 0)
        files.fail_next_datasync(SyncFailure.LOST)
        with pytest.raises(OSError, match="Input/output error"):
            files.datasync(handle)
        files.datasync(handle)
        assert files.pread(handle, 9, 0) == b"new!"
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == b"old!"

    def test_another_process_reads_the_ghost_too(self, files: SimFiles, handle: Handle) -> None:
        files.pwrite(handle, b"new!", 0)
        files.fail_next_datasync(SyncFailure.LOST)
        with pytest.raises(OSError, match="Input/output error"):
            files.datasync(handle)
        files.process_crash()
        root = files.open_dir("/")
        files.sync_dir(root)
        # Its name was never synced, yet the live view has it.
        again = files.open(root, "a", write=True)
        files.datasync(again)
        assert files.pread(again, 9, 0) == b"new!"
        files.forget_cache(again)
        assert files.pread(again, 9, 0) == b"old!"

    def test_dirty_pages_are_not_dropped(self, files: SimFiles, handle: Handle) -> None:
        files.pwrite(handle, b"new!", 0)
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == b"new!"
        files.fail_next_datasync(SyncFailure.LOST)
        with pytest.raises(OSError, match="Input/output error"):
            files.datasync(handle)
        files.pwrite(handle, b"??", 4)
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == b"new!??"
        files.datasync(handle)
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == b"old!??"

    def test_a_failing_sync_may_have_done_its_work(self, files: SimFiles, handle: Handle) -> None:
        files.pwrite(handle, b"new!", 0)
        files.fail_next_datasync(SyncFailure.DURABLE, error=errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            files.datasync(handle)
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == b"new!"

    def test_a_failing_sync_may_have_done_part_of_its_work(self) -> None:
        found = set()
        for seed in range(40):
            files = SimFiles()
            handle = files.create(files.open_dir("/"), "a")
            files.pwrite(handle, b"a", 0)
            files.pwrite(handle, b"b", 1)
            files.fail_next_datasync(SyncFailure.SUBSET, seed=seed)
            with pytest.raises(OSError, match="Input/output error"):
                files.datasync(handle)
            files.forget_cache(handle)
            found.add(files.pread(handle, 9, 0))
        assert {b"", b"a", b"\0b", b"ab"} <= found


class TestDamage:
    def test_a_bad_sector_is_an_error_after_what_can_be_read(self) -> None:
        files = SimFiles.from_image(Image.of({"/a": bytes(1500)}))
        handle = files.open(files.open_dir("/"), "a", write=False)
        files.fail_reads("/a", sector=1)
        assert len(files.pread(handle, 1500, 0)) == 512
        assert len(files.pread(handle, 1500, 1024)) == 476
        for offset in (512, 600, 1023):
            with pytest.raises(OSError, match="Input/output error"):
                files.pread(handle, 10, offset)
        files.heal_reads()
        assert len(files.pread(handle, 1500, 0)) == 1500

    def test_a_flipped_bit_is_in_the_cache_and_on_the_disk(self) -> None:
        files = SimFiles.from_image(Image.of({"/a": b"abc"}))
        files.flip_bit("/a", offset=1, bit=0)
        assert files.content("/a") == b"acc"
        assert files.image().files == {"/a": b"acc"}
        assert [node.durable for node in files.disk.nodes.values()] == [b"", b"acc"]


def test_every_call_is_counted_announced_and_logged(files: SimFiles) -> None:
    seen: list[tuple[int, str, tuple[object, ...]]] = []
    files.before_op = lambda index, name, args: seen.append((index, name, args))
    files.op_log = []
    root = files.open_dir("/")
    handle = files.create(root, "a")
    with pytest.raises(FileExistsError):
        files.create(root, "a")
    files.pwrite(handle, memoryview(b"xy"), 3)
    assert seen == [
        (0, "open_dir", ("/",)),
        (1, "create", (root, "a")),
        (2, "create", (root, "a")),
        (3, "pwrite", (handle, b"xy", 3)),
    ]
    assert files.op_log == [(name, args) for _, name, args in seen]
    assert files.op_count == 4


def test_fork_watchers_are_held_weakly_and_called_in_the_child(files: SimFiles) -> None:
    class Owner:
        forked = 0

        def on_fork(self) -> None:
            Owner.forked += 1

    owner, gone = Owner(), Owner()
    files.watch_fork(owner.on_fork)
    files.watch_fork(gone.on_fork)
    del gone
    files.fork_in_child()
    assert Owner.forked == 1
