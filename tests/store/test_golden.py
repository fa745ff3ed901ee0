"""Golden stores of every released format open, hold what they must, and go on working."""

from __future__ import annotations

import filecmp
import logging
import shutil
from pathlib import Path

import msgspec
import pytest

from store import FormatError, LogOptions, open_log
from store.checksum import CRC32C, check_function
from store.frames import FORMAT_VERSION, SEGMENT_HEADER_BYTES
from store.log import Log
from tests.golden.make import OPTIONS, contents, golden, make
from tests.support.clock import ManualClock

VERSIONS = range(1, FORMAT_VERSION + 1)
KINDS = ("closed", "crashed", "compressed")
SIZE_MAX = 60_000

PINNED = [golden(version) / kind for version in VERSIONS for kind in KINDS]
# Of the same format, by a writer that made more checkpoints and numbered them otherwise.
PINNED.append(golden().parent / "v1_earlier" / "closed")
# And by one that copied each record of a compaction as a block of its own.
PINNED += [golden().parent / "v1_apart" / kind for kind in ("closed", "compressed")]

stores = pytest.mark.parametrize(
    "pinned", [pytest.param(path, id="-".join(path.parts[-2:])) for path in PINNED]
)


def copied(pinned: Path, where: Path) -> Path:
    target = where / pinned.name
    shutil.copytree(pinned, target)
    return target


def opened(path: Path) -> Log:
    return open_log(str(path), clock=ManualClock(seed=9), options=LogOptions(fill_bytes=512))


def expected(pinned: Path) -> object:
    return record_by_record(pinned.with_suffix(".json").read_bytes())


def plain(log: Log) -> object:
    return record_by_record(msgspec.json.encode(contents(log)))


def record_by_record(told: bytes) -> object:
    """Columns are told by blocks, and how these are read is no format."""
    found = msgspec.json.decode(told)
    for queue in found["queues"].values():
        queue["columns"] = [
            dict(zip(block, values, strict=True))
            for block in queue["columns"]
            for values in zip(*block.values(), strict=True)
        ]
    return found


@stores
def test_a_golden_store_holds_what_it_must(pinned: Path, tmp_path: Path) -> None:
    with opened(copied(pinned, tmp_path)) as log:
        assert plain(log) == expected(pinned)


@stores
def test_a_golden_store_goes_on_working(pinned: Path, tmp_path: Path) -> None:
    path = copied(pinned, tmp_path)
    with opened(path) as log:
        before = [key.counter for key in log.keys("orders")]
        (counter,) = log.put("orders", [b"new"])
        assert counter > max(before)
        ((key, _),) = log.take("orders")
        assert key.counter == before[0]
    with opened(path) as log:
        assert [key.counter for key in log.keys("orders")] == [*before[1:], counter]
        assert log.get("orders", counter) is not None
        log.compact()
        while log.take("orders", 100):
            pass
    with opened(path) as log:
        assert list(log.keys("orders")) == []


@stores
def test_a_golden_store_is_found_without_its_checkpoints_and_indexes(
    pinned: Path, tmp_path: Path
) -> None:
    path = copied(pinned, tmp_path)
    for found in [*path.glob("checkpoint.*"), *path.glob("*.idx")]:
        found.write_bytes(b"rotten")
    with opened(path) as log:
        queues = expected(pinned)["queues"]  # type: ignore[index]
        assert {name: queue["records"] for name, queue in queues.items()} == {
            name: queue["records"]
            for name, queue in plain(log)["queues"].items()  # type: ignore[index]
        }


def test_the_crashed_store_has_a_torn_tail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = copied(golden(1) / "crashed", tmp_path)
    torn = (path / "00000000000000000001.log").read_bytes()
    with caplog.at_level(logging.WARNING), opened(path) as log:
        assert log.tail.file.number == 2
    assert "torn tail behind frame 3" in caplog.text
    kept = (path / "00000000000000000001.log").read_bytes()
    assert kept == torn


def frames(root: Path) -> dict[str, bytes]:
    """The files below a directory, segments without the zeros ahead: how many is no format."""
    return {
        path.relative_to(root).as_posix(): (
            path.read_bytes().rstrip(b"\0") if path.suffix == ".log" else path.read_bytes()
        )
        for path in root.rglob("*")
        if path.is_file()
    }


def test_the_writer_still_writes_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "again")
    pinned, made = frames(golden()), frames(tmp_path / "again")
    assert sorted(made) == sorted(pinned)
    other = [name for name, data in made.items() if data != pinned[name]]
    # What zlib and zstd make of the same bytes is theirs to say; `compressed.json` is not.
    assert [name for name in other if not name.startswith("compressed/")] == []


@stores
def test_golden_stores_are_small_and_stay_as_they_are(pinned: Path, tmp_path: Path) -> None:
    assert sum(path.stat().st_size for path in pinned.iterdir()) < SIZE_MAX // 2
    copy = copied(pinned, tmp_path)
    opened(copy).close()
    assert filecmp.dircmp(pinned, copy).left_only == []


def test_a_store_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = copied(golden(1) / "closed", tmp_path)
    check = check_function(CRC32C)
    for found in path.iterdir():
        data = bytearray(found.read_bytes())
        if found.suffix == ".idx":
            continue
        data[8] = FORMAT_VERSION + 1
        if found.suffix == ".log":
            head = bytes(data[: SEGMENT_HEADER_BYTES - 4])
            data[SEGMENT_HEADER_BYTES - 4 : SEGMENT_HEADER_BYTES] = check(head, 0).to_bytes(
                4, "little"
            )
        else:
            data[48:52] = check(bytes(data[:48]), 0).to_bytes(4, "little")
        found.write_bytes(data)
    before = {found.name: found.read_bytes() for found in path.iterdir()}
    with pytest.raises(FormatError, match=r"Nothing was changed\. Use a newer fifoq"):
        open_log(str(path), clock=ManualClock(), options=OPTIONS)
    assert {found.name: found.read_bytes() for found in path.iterdir()} == before
