"""Backup and restore: a consistent prefix, taken while the owner works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fifoq
import fifoq.sync
from fifoq.consumers import Position, write_position
from fifoq.tools import backup, copying
from fifoq.tools.backup import NoBackup, back_up, read_backup, restore
from fifoq.tools.copying import TargetExists, TargetInside
from fifoq.tools.repair import repair
from store import CorruptionError, LogOptions, Reader, open_log
from store.check import check_store
from tests.support.staging import staged_batch
from tests.tools.support import rows_in

ROOT = Path(__file__).parents[2]
SEGMENT_BYTES = 64 << 10

WRITER = """
import sys, fifoq.sync
with fifoq.sync.open_store(sys.argv[1], segment_bytes=65536) as store:
    first, second = store.queue("first"), store.queue("second", retention="all")
    number = 0
    while True:
        # One frame for both: whoever has the one has the other.
        with store.transaction() as tx:
            for queue in (first, second):
                tx.put(queue, b"%d" % number + b"." * 300)
        if number % 3 == 2:
            first.take_many(2)
        print(number, flush=True)
        number += 1
"""


@contextmanager
def writing(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real owner under full load, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def confirmed(process: subprocess.Popen[str], count: int) -> int:
    """The number of the last put that was confirmed, `count` lines on."""
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(count)][-1]


def test_a_backup_under_full_load_restores_to_a_consistent_prefix(tmp_path: Path) -> None:
    with writing(tmp_path / "live") as process:
        for number, copy in enumerate((False, True, False)):
            before = confirmed(process, 150)
            taken = back_up(tmp_path / "live", tmp_path / f"backup{number}", copy=copy)
            assert (taken.linked > 0) is (not copy)
            restored = restore(tmp_path / f"backup{number}", tmp_path / f"restored{number}")
            assert restored.backup == taken
            check_prefix(tmp_path / f"restored{number}", before)
        assert process.poll() is None
    # The store itself never noticed, and the backups stay what they were.
    assert check_store(str(tmp_path / "live")).sound
    for number in range(3):
        assert check_store(str(tmp_path / f"backup{number}")).sound


def check_prefix(path: Path, before: int) -> None:
    assert check_store(str(path)).sound
    rows = rows_in(path, removed=True)
    second = [int(row.data.rstrip(b".")) for row in rows if row.queue == "second"]
    first = [int(row.data.rstrip(b".")) for row in rows_in(path) if row.queue == "first"]
    assert second == list(range(len(second)))
    # What was confirmed before it began is there, and what was one frame is still one.
    assert len(second) > before
    assert first == list(range(first[0], len(second)))
    with fifoq.sync.open_store(path) as store:
        put = store.queue("second").put(b"goes on")
        assert put.counter > len(second)
        assert store.queue("first").take().rstrip(b".") == b"%d" % first[0]


def some_store(path: Path) -> list[bytes]:
    """Several segments, of which the last is short."""
    payloads = [b"%d" % number * 40 for number in range(1000)]
    with fifoq.sync.open(path, segment_bytes=SEGMENT_BYTES) as queue:
        for start in range(0, 1000, 10):
            queue.put_many(payloads[start : start + 10])
        queue.take_many(5)
    return payloads[5:]


def payloads_in(path: Path) -> list[bytes]:
    return [row.data for row in rows_in(path)]


def test_sealed_segments_are_linked_and_the_last_ones_are_copies(tmp_path: Path) -> None:
    payloads = some_store(tmp_path / "store")
    taken = back_up(tmp_path / "store", tmp_path / "backup")
    names = sorted(path.name for path in (tmp_path / "store").glob("*.log"))
    same = [(tmp_path / "store" / n).samefile(tmp_path / "backup" / n) for n in names]
    assert same == [True] * (len(names) - 2) + [False, False]
    assert (taken.linked, taken.copied) == (len(names) - 2, 2)
    assert payloads_in(tmp_path / "backup") == payloads
    assert read_backup(tmp_path / "backup") == taken
    assert [(q.name, q.records) for q in taken.queues] == [("main", 995)]
    for path in (tmp_path / "backup").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_last_segment_is_cut_at_the_commit_point(tmp_path: Path) -> None:
    """Behind it lie zeros that the owner holds ahead, or what it is writing just now."""
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"one")
        taken = back_up(tmp_path / "store", tmp_path / "backup")
        (source,), (copy,) = ([*path.glob("*.log")] for path in tmp_path.iterdir() if path.is_dir())
        assert {source.stat().st_size, copy.stat().st_size} > {taken.offset}
        assert (tmp_path / "backup" / copy.name).stat().st_size == taken.offset
    assert payloads_in(tmp_path / "backup") == [b"one"]


def test_the_backup_outlives_the_store(tmp_path: Path) -> None:
    payloads = some_store(tmp_path / "store")
    back_up(tmp_path / "store", tmp_path / "backup")
    with fifoq.sync.open(tmp_path / "store") as queue:
        while len(queue):
            queue.take_many(1000)
        queue.put(b"something else")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert payloads_in(tmp_path / "restored") == payloads
    with fifoq.sync.open(tmp_path / "restored") as queue:
        while len(queue):
            queue.take_many(1000)
    restore(tmp_path / "backup", tmp_path / "again", link=True)
    assert payloads_in(tmp_path / "again") == payloads


def test_another_file_system_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = some_store(tmp_path / "store")

    def link(*args: object, **kwargs: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    taken = back_up(tmp_path / "store", tmp_path / "backup")
    assert taken.linked == 0
    assert payloads_in(tmp_path / "backup") == payloads


def test_a_store_that_was_killed_is_backed_up(tmp_path: Path) -> None:
    log = open_log(tmp_path / "store", options=LogOptions(segment_bytes=SEGMENT_BYTES))
    for number in range(200):
        log.put("main", [b"%d" % number * 200])
    log.release()
    back_up(tmp_path / "store", tmp_path / "backup")
    assert payloads_in(tmp_path / "backup") == [b"%d" % number * 200 for number in range(200)]


@pytest.mark.parametrize("at", [1, 2, 4, 6])
def test_a_backup_that_was_interrupted_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    payloads = some_store(tmp_path / "store")
    copied = copying.copy_file
    calls = 0

    def interrupted(*args: object, **kwargs: object) -> int:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return copied(*args, **kwargs)  # type: ignore[arg-type]

    for module in (backup, copying):
        monkeypatch.setattr(module, "copy_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        back_up(tmp_path / "store", tmp_path / "backup", copy=True)
    assert not (tmp_path / "backup").exists()
    with pytest.raises(NoBackup):
        restore(tmp_path / "backup.partial", tmp_path / "restored")
    first = calls
    back_up(tmp_path / "store", tmp_path / "backup", copy=True)
    assert calls - first < len(list((tmp_path / "store").iterdir())) + 3
    assert payloads_in(tmp_path / "backup") == payloads
    assert not list(tmp_path.glob("*.partial"))
    assert not list((tmp_path / "backup").glob("*.new"))


def test_what_a_restore_before_it_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    """A segment of another backup stayed there, and became one of the store."""
    payloads = some_store(tmp_path / "store")
    back_up(tmp_path / "store", tmp_path / "early")
    with fifoq.sync.open(tmp_path / "store") as queue:
        for number in range(200):
            queue.put(b"%d" % number * 500)
    back_up(tmp_path / "store", tmp_path / "late")
    shown = []

    def interrupt(done: int, total: int) -> None:
        shown.append(done / total)
        if done * 2 >= total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "late", tmp_path / "restored", progress=interrupt)
    assert not (tmp_path / "restored").exists()
    restore(
        tmp_path / "early",
        tmp_path / "restored",
        check=False,
        progress=lambda done, total: shown.append(done / total),
    )
    assert shown[-1] == 1
    assert payloads_in(tmp_path / "restored") == payloads
    early, restored = (
        {path.name for path in (tmp_path / name).iterdir()} for name in ("early", "restored")
    )
    assert restored < early


def test_a_backup_is_checked_before_it_is_restored(tmp_path: Path) -> None:
    some_store(tmp_path / "store")
    back_up(tmp_path / "store", tmp_path / "backup", copy=True)
    segment = sorted((tmp_path / "backup").glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError, match=segment.name):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    assert not restore(tmp_path / "backup", tmp_path / "restored", check=False).checked


def test_nothing_goes_into_the_directory_it_comes_from(tmp_path: Path) -> None:
    some_store(tmp_path / "store")
    back_up(tmp_path / "store", tmp_path / "backup")
    (tmp_path / "link").symlink_to("store")
    before = sorted(tmp_path.rglob("*"))
    for target in ("store/sub", "store/deep/sub/", "link/sub", "other/../store/sub"):
        with pytest.raises(TargetInside, match="Name a place elsewhere"):
            back_up(tmp_path / "store", f"{tmp_path}/{target}")
    with pytest.raises(TargetInside):
        restore(tmp_path / "backup", tmp_path / "backup" / "sub")
    with pytest.raises(TargetInside):
        repair(tmp_path / "store", tmp_path / "store" / "sub")
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_that_exists_is_replaced(tmp_path: Path) -> None:
    some_store(tmp_path / "store")
    (tmp_path / "there").mkdir()
    with pytest.raises(TargetExists):
        back_up(tmp_path / "store", tmp_path / "there")
    back_up(tmp_path / "store", tmp_path / "backup")
    with pytest.raises(TargetExists):
        restore(tmp_path / "backup", tmp_path / "there")
    with pytest.raises(NoBackup):
        restore(tmp_path / "there", tmp_path / "other")
    with pytest.raises(fifoq.FifoqError):
        back_up(tmp_path / "nowhere", tmp_path / "other")


def stage(path: Path, batch: int, payloads: list[bytes]) -> None:
    """Hand records to the store as a job of Spark does."""
    with Reader(str(path)) as reader:
        files = staged_batch(reader.store_id, [payloads], batch=batch, once=True)
    (path / "staged").mkdir(exist_ok=True)
    for name, data in files.items():
        (path / "staged" / name).write_bytes(data)


def taken_from(path: Path, count: int) -> list[bytes]:
    with fifoq.sync.open(path) as queue:
        return [queue.take(timeout=10) for _ in range(count)]


def test_what_waits_to_be_taken_in_and_positions_of_consumers_come_along(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"first")
    stage(tmp_path / "store", 0, [b"staged", b"too"])
    (tmp_path / "store/staged/torn.manifest").write_bytes(b"{")
    write_position(str(tmp_path / "store"), "job", Position(queue="main", counter=1, store="x"))
    back_up(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert (tmp_path / "restored/consumers/job.json").is_file()
    assert taken_from(tmp_path / "restored", 3) == [b"first", b"staged", b"too"]


def test_a_batch_that_is_taken_in_meanwhile_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was copied before the log was read: the copy and the log would both have had it."""
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"first")
    stage(tmp_path / "store", 0, [b"staged"])
    take_segments = backup._Work._take_segments
    calls = 0

    def meanwhile(self: backup._Work, point: backup._Point) -> None:
        nonlocal calls
        calls += 1
        take_segments(self, point)
        if calls == 1:
            with fifoq.sync.open(tmp_path / "store") as queue:
                assert [queue.take(timeout=10) for _ in range(2)] == [b"first", b"staged"]
                queue.put_many([b"first", b"staged"])

    monkeypatch.setattr(backup._Work, "_take_segments", meanwhile)
    back_up(tmp_path / "store", tmp_path / "backup")
    assert calls == 2
    restore(tmp_path / "backup", tmp_path / "restored")
    assert taken_from(tmp_path / "restored", 2) == [b"first", b"staged"]
    assert payloads_in(tmp_path / "restored") == []
