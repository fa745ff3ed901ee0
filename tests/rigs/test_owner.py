"""One owner, and nobody else's files: locks, forks, foreign and forged directories, modes."""

from __future__ import annotations

import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store import (
    AccessError,
    AlreadyOpen,
    CorruptionError,
    FifoqError,
    FormatError,
    InvalidName,
    open_log,
)
from store.checkpoint import CHECKPOINT_HEADER_BYTES
from store.checksum import CRC32C, check_function
from store.frames import SEGMENT_HEADER_BYTES
from store.segment import segment_name
from tests.rigs import mounts, scenarios
from tests.rigs.conftest import NotRun
from tests.rigs.trees import open_files, snapshot

VERSION_OFFSET = 8
NEWER_VERSION = 2
SEGMENT = segment_name(1)
CHECKPOINT = "checkpoint.a"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with two records."""
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"one", b"two"])
    return path


# One owner.


def test_a_second_opener_in_this_process_is_refused(store: Path) -> None:
    with open_log(str(store)):
        before, count = snapshot(store), len(open_files())
        with pytest.raises(AlreadyOpen, match="owned by another"):
            open_log(str(store))
        assert snapshot(store) == before
        assert len(open_files()) == count
    open_log(str(store)).close()


def test_a_second_opener_in_another_process_is_refused_at_once(store: Path) -> None:
    with open_log(str(store)):
        before = snapshot(store)
        done = scenarios.run("open_once", store.parent)
        assert "AlreadyOpen" in done.stderr
        assert snapshot(store) == before
    assert scenarios.run("open_once", store.parent).returncode == 0


def test_a_second_opener_through_another_path_is_refused(store: Path) -> None:
    link = store.parent / "link"
    link.symlink_to(store)
    beside = store.parent / "beside"
    beside.mkdir()
    with open_log(str(store)):
        for path in link, beside / ".." / "store", link / ".", Path(f"{store}/"):
            with pytest.raises(AlreadyOpen):
                open_log(str(path))


def test_a_second_opener_through_a_bind_mount_is_refused(tmp_path: Path, not_run: NotRun) -> None:
    not_run.unless_mounts_work()
    mounts.assert_runs_private("tests.rigs.scenarios", "bind_mount", str(tmp_path))


def test_the_lock_dies_with_a_killed_owner(store: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.rigs.scenarios", "own_until_killed", str(store.parent)],
        cwd=mounts.ROOT,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(AlreadyOpen):
            open_log(str(store))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with open_log(str(store)) as log:
        assert len(log.take("orders", 10)) == 2


@pytest.mark.parametrize("scene", ["dead_after_fork", "orphan_holds_nothing"])
def test_a_forked_child_can_do_nothing_and_holds_nothing(tmp_path: Path, scene: str) -> None:
    done = scenarios.run(scene, tmp_path)
    assert done.returncode == 0, done.stderr


# Directories that are not ours, or not as we left them.


def is_foreign(store: Path) -> None:
    for path in store.iterdir():
        path.unlink()
    (store / "letters.txt").write_text("not a store")


def has_a_newer_segment(store: Path) -> None:
    _forge(store / SEGMENT, SEGMENT_HEADER_BYTES - 4)


def has_a_newer_checkpoint(store: Path) -> None:
    for name in "checkpoint.a", "checkpoint.b":
        if (store / name).exists():
            _forge(store / name, CHECKPOINT_HEADER_BYTES - 8)


def has_a_newer_segment_and_no_checkpoint(store: Path) -> None:
    has_a_newer_segment(store)
    for path in store.glob("checkpoint.*"):
        path.unlink()


def _forge(path: Path, checked_bytes: int) -> None:
    """Write a newer version into a header, under a checksum that fits it."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, VERSION_OFFSET, NEWER_VERSION)
    checksum = check_function(CRC32C)(data[:checked_bytes], 0)
    struct.pack_into("<I", data, checked_bytes, checksum)
    path.write_bytes(data)


def has_a_linked_segment(store: Path) -> None:
    _link(store / SEGMENT)


def has_a_linked_checkpoint(store: Path) -> None:
    _link(store / CHECKPOINT)


def _link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def has_a_pipe_for_a_segment(store: Path) -> None:
    (store / SEGMENT).unlink()
    os.mkfifo(store / SEGMENT)


def has_a_pipe_for_a_checkpoint(store: Path) -> None:
    (store / CHECKPOINT).unlink()
    os.mkfifo(store / CHECKPOINT)


def has_a_directory_for_a_segment(store: Path) -> None:
    (store / SEGMENT).unlink()
    (store / SEGMENT).mkdir()


def misses_its_segment(store: Path) -> None:
    (store / SEGMENT).unlink()


def is_a_file(store: Path) -> None:
    for path in store.iterdir():
        path.unlink()
    store.rmdir()
    store.write_text("a file")


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (is_foreign, FormatError),
        (has_a_newer_segment, FormatError),
        (has_a_newer_checkpoint, FormatError),
        (has_a_newer_segment_and_no_checkpoint, FormatError),
        (has_a_linked_segment, AccessError),
        (has_a_linked_checkpoint, AccessError),
        (has_a_pipe_for_a_segment, AccessError),
        (has_a_pipe_for_a_checkpoint, AccessError),
        (has_a_directory_for_a_segment, AccessError),
        (misses_its_segment, CorruptionError),
        (is_a_file, AccessError),
    ],
)
def test_a_directory_that_is_refused_is_named_and_left_as_it_was(
    store: Path, spoil: Callable[[Path], None], kind: type[FifoqError]
) -> None:
    spoil(store)
    before, count = snapshot(store.parent), len(open_files())
    with pytest.raises(kind) as caught:
        open_log(str(store))
    assert type(caught.value) is kind or kind is CorruptionError
    assert str(store) in str(caught.value)
    assert "Nothing was changed." in str(caught.value)
    assert snapshot(store.parent) == before
    assert len(open_files()) == count


def test_a_store_without_permission_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    done = scenarios.run("without_permission", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_way_through_a_file_system_without_directory_sync_is_no_obstacle(tmp_path: Path) -> None:
    """A store could not be made below a directory whose file system answers EINVAL to fsync.

    Read-only ones such as squashfs do, and procfs does: their names are not ours to make durable.
    """
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        with open_log(f"/proc/self/fd/{handle}/store") as log:
            log.put("orders", [b"one"])
    finally:
        os.close(handle)
    with open_log(str(tmp_path / "store")) as log:
        assert [payload for _, payload in log.take("orders")] == [b"one"]


# Names.


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../orders", "a/../b", "/etc", "a" * 65, "Orders", "a\0b", "a\n", "a b", "-a"],
)
def test_a_queue_name_that_breaks_the_rule_is_refused_and_makes_nothing(
    store: Path, name: str
) -> None:
    with open_log(str(store)) as log:
        before = snapshot(store)
        for call in (
            lambda: log.put(name, [b"x"]),
            lambda: log.take(name),
            lambda: log.queue(name),
            lambda: list(log.read(name)),
        ):
            with pytest.raises(InvalidName):
                call()
        assert snapshot(store) == before
        assert list(log.state.queues) == ["orders"]


# Modes.


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask; the old one is back afterwards."""
    old = os.umask(0o077)
    try:
        yield os.umask
    finally:
        os.umask(old)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277, 0o777])
def test_only_the_owner_may_read_a_store_whatever_the_umask(
    tmp_path: Path, umask: Callable[[int], int], mask: int
) -> None:
    """A umask of 0277 used to leave a directory in which its owner could make nothing."""
    umask(mask)
    store = tmp_path / "parent" / "store"
    with open_log(str(store)) as log:
        log.put("orders", [b"x"])
        log.rotate()
        log.put("orders", [b"x"])
        log.checkpoint()
    for directory in store, store.parent:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert {SEGMENT, segment_name(2), "checkpoint.a", "checkpoint.b"} <= modes.keys()
