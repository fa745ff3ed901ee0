"""Runs by what they read: a disk that reads the same is found again, and no other."""

from __future__ import annotations

import logging

import pytest

from fifoq.testing.image import Image
from store import checkpoints
from tests.store import test_exhaustive as exhaustive
from tests.support.footprint import RUNS_MAX, Memory, TracedFiles

FIRST = b"head" + bytes(60) + b"tail"


def disk(**contents: bytes) -> TracedFiles:
    return TracedFiles.of(Image.of({f"/store/{name}": data for name, data in contents.items()}))


def known(memory: Memory[str], subject: str = "run", **contents: bytes) -> str | None:
    return memory.find(subject, disk(**contents).start_trace())


@pytest.fixture
def files() -> TracedFiles:
    return disk(a=FIRST, b=b"other")


def test_a_disk_that_differs_only_where_nobody_read_is_known(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    contents = files.start_trace()
    directory = files.open_dir("/store")
    handle = files.open(directory, "a", write=False)
    assert files.pread(handle, 4, 0) == b"head"
    memory.keep("run", contents, files, "result")
    assert known(memory, a=FIRST, b=b"other") == "result"
    assert known(memory, a=b"head" + b"x" * 64, b=b"OTHER") == "result"
    assert known(memory, a=b"Head" + FIRST[4:], b=b"other") is None


def test_names_sizes_and_subject_must_be_the_same(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    memory.keep("run", files.start_trace(), files, "result")
    assert known(memory, a=FIRST, b=b"other") == "result"
    assert known(memory, "another run", a=FIRST, b=b"other") is None
    assert known(memory, a=FIRST, b=b"others") is None
    assert known(memory, a=FIRST, c=b"other") is None
    assert known(memory, a=FIRST) is None


def test_what_the_run_wrote_itself_is_not_what_it_found(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    contents = files.start_trace()
    directory = files.open_dir("/store")
    handle = files.open(directory, "a", write=True)
    files.pwrite(handle, b"mine", 0)
    assert files.pread(handle, 4, 0) == b"mine"
    made = files.create(directory, "c")
    files.pwrite(made, b"new", 0)
    assert files.pread(made, 3, 0) == b"new"
    assert files.changed
    memory.keep("run", contents, files, "result")
    assert known(memory, a=b"else" + FIRST[4:], b=b"other") == "result"


def test_a_read_over_the_edge_of_what_was_written_takes_the_whole_file(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    contents = files.start_trace()
    handle = files.open(files.open_dir("/store"), "a", write=True)
    files.pwrite(handle, b"mine", 0)
    assert files.pread(handle, 8, 0) == b"mine" + bytes(4)
    memory.keep("run", contents, files, "result")
    assert known(memory, a=FIRST, b=b"other") == "result"
    assert known(memory, a=FIRST[:-1] + b"L", b=b"other") is None


def test_reads_of_a_file_that_was_cut_take_the_whole_of_it(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    contents = files.start_trace()
    handle = files.open(files.open_dir("/store"), "a", write=True)
    files.truncate(handle, 10)
    assert files.pread(handle, 4, 0) == b"head"
    memory.keep("run", contents, files, "result")
    assert known(memory, a=b"Head" + FIRST[4:], b=b"other") is None


def test_the_oldest_runs_are_forgotten(files: TracedFiles) -> None:
    memory: Memory[str] = Memory()
    for number in range(RUNS_MAX + 1):
        content = b"%04d" % number + FIRST[4:]
        files = disk(a=content)
        contents = files.start_trace()
        files.pread(files.open(files.open_dir("/store"), "a", write=False), 4, 0)
        memory.keep("run", contents, files, f"result {number}")
    assert known(memory, a=b"0000" + FIRST[4:]) is None
    assert known(memory, a=b"0001" + FIRST[4:]) == "result 1"


@pytest.mark.parametrize("operations", [("put", "rotate"), ("put_os", "crash"), ("take", "reopen")])
def test_the_explorer_finds_the_same_with_and_without_it(
    operations: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found again is what looking would have shown, on every disk of a few workloads."""
    monkeypatch.setattr(checkpoints, "SLACK_BYTES", 0)
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)
    with_memory = exhaustive.Explorer(thorough=True)
    with_memory.cut("used", operations)
    monkeypatch.setattr(Memory, "find", lambda *_: None)
    without = exhaustive.Explorer(thorough=True)
    without.cut("used", operations)
    assert with_memory._seen == without._seen
    assert with_memory.states == without.states > 20
