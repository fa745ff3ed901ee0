"""Positions of consumers as files, and what a checkpoint directory of Spark proves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fifoq import InvalidName
from fifoq.consumers import (
    Position,
    check_consumer_name,
    local_path,
    proved,
    read_position,
    read_positions,
    remove_position,
    write_position,
)
from fifoq.testing.crashes import image_after
from fifoq.testing.pending import ABSENT
from fifoq.testing.simfiles import SimFiles

STORE = "0190aabbccddeeff0011223344556677"
HERE = Position(
    queue="orders",
    counter=7,
    store=STORE,
    checkpoint="/checkpoints/a",
    query="5f0c",
    written_at=1_700_000_000_000,
)
METADATA = b'{"batchWatermarkMs":0,"batchTimestampMs":1794936571762,"conf":{}}'


def offsets(*lines: bytes) -> bytes:
    """A file `offsets/N` as Spark 4.3 writes it: no newline at its end."""
    return b"\n".join([b"v1", METADATA, *lines])


def offset(counter: int, store: str = STORE) -> bytes:
    return b'{"counter": %d, "store": "%s"}' % (counter, store.encode())


def checkpoint(root: Path, batches: dict[int, bytes], commits: dict[int, bytes]) -> str:
    for name, files in (("offsets", batches), ("commits", commits)):
        (root / name).mkdir(parents=True)
        for batch, data in files.items():
            (root / name / str(batch)).write_bytes(data)
            (root / name / f".{batch}.crc").write_bytes(b"crc")
    (root / "metadata").write_text('{"id":"x"}')
    return str(root)


DONE = b'v1\n{"nextBatchWatermarkMs":0}'


# Positions.


def test_a_position_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    store = str(tmp_path)
    assert read_positions(store) == {}
    assert read_position(store, "a") is None
    write_position(store, "a", HERE)
    moved = msgspec.structs.replace(HERE, counter=9)
    write_position(store, "b-2", moved)
    write_position(store, "a", moved)
    assert read_position(store, "a") == moved
    assert read_positions(store) == {"a": moved, "b-2": moved}
    assert sorted(os.listdir(tmp_path / "consumers")) == ["a.json", "b-2.json"]
    assert (tmp_path / "consumers").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "consumers/a.json").stat().st_mode & 0o777 == 0o600
    assert remove_position(store, "a")
    assert not remove_position(store, "a")
    assert read_positions(store) == {"b-2": moved}


def test_the_file_is_json_with_these_names(tmp_path: Path) -> None:
    write_position(str(tmp_path), "a", HERE)
    assert msgspec.json.decode((tmp_path / "consumers/a.json").read_bytes()) == {
        "queue": "orders",
        "counter": 7,
        "store": STORE,
        "checkpoint": "/checkpoints/a",
        "query": "5f0c",
        "written_at": 1_700_000_000_000,
    }


@pytest.mark.parametrize("name", ["", "A", "a.b", "../a", "a/b", "-a", "a" * 65, ".a", "ü", None])
def test_a_name_that_is_no_queue_name_is_refused(name: str, tmp_path: Path) -> None:
    for call in (
        lambda: check_consumer_name(name),
        lambda: write_position(str(tmp_path), name, HERE),
        lambda: read_position(str(tmp_path), name),
        lambda: remove_position(str(tmp_path), name),
    ):
        with pytest.raises(InvalidName, match=r"^consumer name .* is not allowed: 1 to 64 of"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_position_is_none_and_the_others_are_read(tmp_path: Path) -> None:
    write_position(str(tmp_path), "good", HERE)
    directory = tmp_path / "consumers"
    (directory / "cut.json").write_bytes(b'{"queue": "ord')
    (directory / "empty.json").write_bytes(b"")
    (directory / "wrong.json").write_bytes(b'{"queue": "orders", "counter": "7", "store": ""}')
    (directory / "utf.json").write_bytes(b'{"queue": "\xff"}')
    (directory / "huge.json").write_bytes(b" " * (64 << 10) + msgspec.json.encode(HERE))
    (directory / ".good.1.tmp").write_bytes(b"")
    (directory / "Not-A-Name.json").write_bytes(b"")
    (directory / "notes.txt").write_bytes(b"")
    assert read_positions(str(tmp_path)) == {
        "good": HERE,
        **dict.fromkeys(("cut", "empty", "wrong", "utf", "huge")),
    }


def test_fields_of_a_later_version_do_no_harm(tmp_path: Path) -> None:
    write_position(str(tmp_path), "a", HERE)
    more = {**msgspec.to_builtins(HERE), "later": [1]}
    (tmp_path / "consumers/a.json").write_bytes(msgspec.json.encode(more))
    assert read_position(str(tmp_path), "a") == HERE


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_writing_that_fails_leaves_the_old_position_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_position(str(tmp_path), "a", HERE)

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            write_position(str(tmp_path), "a", msgspec.structs.replace(HERE, counter=9))
    assert read_positions(str(tmp_path)) == {"a": HERE}
    assert os.listdir(tmp_path / "consumers") == ["a.json"]


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write: Callable[[int, bytes], int] = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        write_position(str(tmp_path), "a", HERE)
    assert read_position(str(tmp_path), "a") == HERE
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: 0)
        with pytest.raises(OSError, match="no progress"):
            write_position(str(tmp_path), "a", HERE)


def test_the_leftover_of_a_killed_writer_is_in_nobody_s_way(tmp_path: Path) -> None:
    write_position(str(tmp_path), "a", HERE)
    (tmp_path / f"consumers/.a.{os.getpid()}.tmp").write_bytes(b"half")
    write_position(str(tmp_path), "a", HERE)
    assert os.listdir(tmp_path / "consumers") == ["a.json"]


# Proofs.


def test_the_newest_committed_batch_is_the_proof(tmp_path: Path) -> None:
    planned = {batch: offsets(offset(10 * batch)) for batch in (8, 9, 10, 11)}
    place = checkpoint(tmp_path / "c", planned, dict.fromkeys((8, 9, 10), DONE))
    assert proved(place, STORE, "orders") == 100
    assert proved(f"file://{place}/", STORE, "orders") == 100
    assert proved(f"file:{place}", STORE, "orders", above=99) == 100
    assert proved(place, STORE, "orders", above=100) is None
    assert proved(place, "another", "orders") is None


def test_what_is_planned_but_not_committed_proves_nothing(tmp_path: Path) -> None:
    place = checkpoint(tmp_path / "c", {0: offsets(offset(5))}, {})
    assert proved(place, STORE, "orders") is None
    os.rmdir(tmp_path / "c/commits")
    assert proved(place, STORE, "orders") is None
    assert proved(str(tmp_path / "nowhere"), STORE, "orders") is None
    assert proved("", STORE, "orders") is None
    assert proved("hdfs://host/checkpoint", STORE, "orders") is None


def test_a_file_that_a_power_cut_emptied_is_passed_over(tmp_path: Path) -> None:
    planned = {0: offsets(offset(5)), 1: offsets(offset(9)), 2: b"", 3: offsets(offset(30))}
    place = checkpoint(tmp_path / "c", planned, {0: DONE, 1: DONE, 2: DONE, 3: b""})
    assert proved(place, STORE, "orders") == 9


def test_a_query_of_several_sources_is_as_far_as_the_slowest(tmp_path: Path) -> None:
    lines = [b"-", b'{"topic":{"0":3}}', offset(40), offset(70, "other"), offset(30), b"7", b"\xff"]
    place = checkpoint(tmp_path / "c", {0: offsets(*lines)}, {0: DONE})
    assert proved(place, STORE, "orders") == 30
    named = [b'{"counter": 8, "store": "%s", "queue": "other"}' % STORE.encode(), offset(50)]
    place = checkpoint(tmp_path / "d", {0: offsets(*named)}, {0: DONE})
    assert proved(place, STORE, "orders") == 50
    assert proved(place, STORE, "other") == 8


def test_the_first_two_lines_are_never_taken_for_an_offset(tmp_path: Path) -> None:
    data = b"\n".join([offset(90), offset(91), offset(5)])
    place = checkpoint(tmp_path / "c", {0: data}, {0: DONE})
    assert proved(place, STORE, "orders") == 5


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b/", "/a/b"),
        ("/", "/"),
        ("file:///a%20b", "/a b"),
        ("file:/a", "/a"),
        ("file://localhost/a", "/a"),
        ("file://elsewhere/a", None),
        ("file:///", None),
        ("s3a://bucket/a", None),
        ("", None),
    ],
)
def test_only_local_checkpoints_are_looked_at(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_a_relative_checkpoint_is_one_of_this_directory() -> None:
    assert local_path("checkpoints/a") == os.path.abspath("checkpoints/a")


def test_a_proof_is_durable_before_it_is_believed() -> None:
    files = SimFiles()
    for path in ("/c", "/c/offsets", "/c/commits"):
        files.add_dir(path)
    for name, data in (("offsets", offsets(offset(5))), ("commits", DONE)):
        directory = files.open_dir(f"/c/{name}")
        handle = files.create(directory, "0")
        files.pwrite(handle, data, 0)
        files.close(handle)
        files.close(directory)
    lost = SimFiles.from_image(image_after(files, lambda _: ABSENT))
    assert proved("/c", STORE, "orders", files=lost) is None
    assert proved("/c", STORE, "orders", files=files) == 5
    kept = SimFiles.from_image(image_after(files, lambda _: ABSENT))
    assert proved("/c", STORE, "orders", files=kept) == 5
