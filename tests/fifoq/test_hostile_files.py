"""Files of other processes that make no sense: they harm nobody else and stop nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

import fifoq.sync
from fifoq.consumers import Position, local_path, proved, read_positions, write_position
from fifoq.staged import Manifest, decode_manifest, encode_manifest
from store import DamageError
from store.checksum import CRC32C, check_function
from tests.fifoq.server.support import until

GOOD = Position(queue="main", counter=250, store="s", checkpoint="", query="", written_at=1)


def position(**changes: object) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(GOOD, **changes))


@pytest.mark.parametrize(
    "content",
    [
        position(counter=0),
        position(counter=-5),
        position(counter=2**63),
        position(checkpoint="/a\0b"),
        b"[" * 100_000,
        b'{"queue": "\xff"}',
    ],
)
def test_a_position_that_cannot_be_is_none_and_hides_no_other(
    tmp_path: Path, content: bytes
) -> None:
    """A counter below 1 let the records of every other consumer go."""
    write_position(str(tmp_path), "good", GOOD)
    (tmp_path / "consumers/evil.json").write_bytes(content)
    assert read_positions(str(tmp_path)) == {"evil": None, "good": GOOD}


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_what_is_no_file_is_no_position(tmp_path: Path, kind: str) -> None:
    """Nothing was reclaimed for anybody while it lay there."""
    write_position(str(tmp_path), "good", GOOD)
    make(tmp_path / "consumers/evil.json", kind)
    assert read_positions(str(tmp_path)) == {"evil": None, "good": GOOD}


def make(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        os.mkfifo(path)


def test_a_checkpoint_that_is_no_address_proves_nothing() -> None:
    assert local_path("file://[x") is None
    assert proved("file://[x", "s", "main") is None


@pytest.mark.parametrize("line", [b'{"query": "\xff"}', b"[" * 100_000])
def test_a_manifest_with_a_right_checksum_and_no_sense_is_damaged(line: bytes) -> None:
    """The intake died of it, and every batch behind it waited for ever."""
    checksum = check_function(CRC32C)(line, 0)
    with pytest.raises(DamageError):
        decode_manifest(b"%s\n%08x\n" % (line, checksum))


@pytest.mark.parametrize("batch", [-1, 2**64])
def test_a_batch_that_cannot_be_is_damaged(batch: int) -> None:
    with pytest.raises(DamageError, match="there is no batch"):
        decode_manifest(encode_manifest(Manifest(1, "s", "main", "w", batch, [])))


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_is_no_manifest_holds_up_no_other(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path) as queue:
        queue.put(b"x")
    staged = path / "staged"
    staged.mkdir(mode=0o700)
    make(staged / "a.manifest", kind)
    behind = staged / "b.manifest"
    behind.write_bytes(b"damaged")
    with fifoq.sync.open(path) as queue:
        assert queue.take(timeout=10) == b"x"
        until(lambda: not behind.exists())
    assert (staged / "b.refused").exists()
    assert os.path.lexists(staged / "a.manifest")
