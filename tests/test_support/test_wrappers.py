"""FaultyFiles fails by plan, RecordingFiles writes down; both are otherwise transparent."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal

import pytest

from fifoq.testing.disk import SyncFailure
from fifoq.testing.simfiles import SimFiles
from store.files import Files, Handle
from store.osfiles import OsFiles
from tests.support.faulty import ERRORS, Fault, FaultyFiles
from tests.support.recording import Call, RecordingFiles


def use_everything(files: Files, base: str) -> list[object]:
    """Call each method once and return what they said, handles left out."""
    files.make_dir(f"{base}/q")
    root = files.open_dir(f"{base}/q")
    files.lock_dir(root)
    handle = files.create(root, "a")
    said: list[object] = [files.pwrite(handle, b"0123456789", 0)]
    files.truncate(handle, 8)
    files.datasync(handle)
    files.sync_dir(root)
    files.forget_cache(handle)
    said += [files.size(handle), files.pread(handle, 4, 2)]
    files.close(handle)
    files.close(files.open(root, "a", write=False))
    said.append(files.list_dir(root))
    files.unlink(root, "a")
    files.close(root)
    return said


CALLS = (
    *("make_dir", "open_dir", "lock_dir", "create", "pwrite", "truncate", "datasync", "sync_dir"),
    *("forget_cache", "size", "pread", "close", "open", "close", "list_dir", "unlink", "close"),
)
SAID = [10, 8, b"2345", ["a"]]


def written(files: FaultyFiles, data: bytes) -> tuple[Handle, int]:
    handle = files.create(files.open_dir("/"), "a")
    return handle, files.pwrite(handle, data, 0)


def test_recording_keeps_calls_results_and_errnos(tmp_path: Path) -> None:
    for inner, base in ((SimFiles(), ""), (OsFiles(), str(tmp_path))):
        files = RecordingFiles(inner)
        assert use_everything(files, base) == SAID
        assert tuple(files.names()) == CALLS
        with pytest.raises(FileExistsError):
            files.make_dir(f"{base}/q")
        assert files.calls[-1] == Call("make_dir", (f"{base}/q",), None, errno.EEXIST)
        assert files.calls[10].args[1:] == (4, 2)
        assert files.calls[10].result == b"2345"


def test_without_a_fault_nothing_changes() -> None:
    files = FaultyFiles(SimFiles(), Fault(at=len(CALLS), error=errno.EIO))
    assert use_everything(files, "") == SAID
    assert (files.fired, files.call_count) == (0, len(CALLS))


@pytest.mark.parametrize("error", ERRORS)
def test_every_call_can_fail(error: int) -> None:
    for at, name in enumerate(CALLS):
        inner = RecordingFiles(SimFiles())
        files = FaultyFiles(inner, Fault(at=at, error=error))
        with pytest.raises(OSError) as caught:
            use_everything(files, "")
        assert caught.value.errno == error
        assert (files.fired, files.call_count) == (1, at + 1)
        reached = [*CALLS[:at], "close"] if name == "close" else list(CALLS[:at])
        assert inner.names() == reached


@pytest.mark.parametrize("for_ever", [False, True])
def test_a_fault_strikes_once_or_for_ever(for_ever: bool) -> None:
    files = FaultyFiles(
        SimFiles(), Fault(at=1, call="make_dir", error=errno.EROFS, for_ever=for_ever)
    )
    failed = []
    for index in range(4):
        try:
            files.make_dir(f"/{index}")
        except OSError:
            failed.append(index)
    assert failed == ([1, 2, 3] if for_ever else [1])
    assert files.list_dir(files.open_dir("/"))


def test_a_short_write_writes_a_real_part() -> None:
    inner = SimFiles()
    files = FaultyFiles(inner, Fault(at=0, call="pwrite", error="short"))
    handle, count = written(files, b"0123456789")
    assert 0 < count < 10
    assert inner.content("/a") == b"0123456789"[:count]
    assert files.pwrite(handle, b"rest", count) == 4


def test_a_short_read_gives_a_part() -> None:
    files = FaultyFiles(SimFiles(), Fault(at=0, call="pread", error="short", for_ever=True))
    handle, _ = written(files, b"0123456789")
    found = b""
    while len(found) < 10:
        part = files.pread(handle, 10 - len(found), len(found))
        assert part
        found += part
    assert found == b"0123456789"
    assert files.fired > 0


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"pread", "pwrite"}))
def test_short_means_nothing_to_other_calls(name: str) -> None:
    short: Literal["short"] = "short"
    files = FaultyFiles(SimFiles(), Fault(at=0, call=name, error=short, for_ever=True))
    assert use_everything(files, "") == SAID
    assert files.fired == 0


def test_a_failing_write_may_leave_a_part() -> None:
    found = set()
    for seed in range(30):
        inner = SimFiles()
        fault = Fault(at=0, call="pwrite", error=errno.ENOSPC, partial=True, seed=seed)
        with pytest.raises(OSError, match="No space left"):
            written(FaultyFiles(inner, fault), b"0123")
        found.add(inner.content("/a"))
    assert found == {b"", b"0", b"01", b"012"}


def test_a_failing_datasync_leaves_what_the_plan_says() -> None:
    for failure, kept in ((SyncFailure.LOST, b""), (SyncFailure.DURABLE, b"0123")):
        inner = SimFiles()
        fault = Fault(at=0, call="datasync", error=errno.EIO, sync_failure=failure)
        files = FaultyFiles(inner, fault)
        handle, _ = written(files, b"0123")
        with pytest.raises(OSError, match="Input/output error"):
            files.datasync(handle)
        files.datasync(handle)
        files.forget_cache(handle)
        assert files.pread(handle, 9, 0) == kept
        assert files.fired == 1
