"""Staged files from Spark's side: parts written by tasks, manifests made by the driver.

How rows become blocks is in `fifoq.spark.rows`, how the files look in `fifoq.staged`; who takes
them in is the store's owner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from fifoq.spark.rows import blocks_of
from fifoq.staged import (
    MANIFEST_SUFFIX,
    PART_HEADER,
    PART_SUFFIX,
    REFUSED_SUFFIX,
    STAGED_DIRECTORY,
    Manifest,
    Part,
    decode_manifest,
    encode_manifest,
    encode_part_block,
    manifest_name,
)
from store import DamageError, FormatError, InvalidName
from store.osfiles import DIRECTORY_MODE, FILE_MODE

LEFTOVER_SECONDS: Final = 7 * 24 * 3600.0
"""Parts that no manifest names go after this time: what was killed cannot clean up."""


def staged_path(store_path: str) -> Path:
    return Path(store_path) / STAGED_DIRECTORY


# Parts.


class PartFile:
    """One part in the making. Durable after `finish`, gone after `discard`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._name = name
        self._path = directory / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(self._path, flags, FILE_MODE), "wb")
        self._file.write(PART_HEADER)
        self._blocks = self._records = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch with a column `data` and perhaps others."""
        for block in blocks_of(batch):
            self._file.writelines(encode_part_block(block))
            self._blocks += 1
            self._records += block.count

    def finish(self) -> Part | None:
        """What a manifest says of it; None, and no file, if nothing was written."""
        if not self._records:
            self.discard()
            return None
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return Part(self._name, size, self._blocks, self._records)

    def discard(self) -> None:
        self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()


# Manifests.


def make_directory(directory: Path) -> None:
    """The directory of staged files, durable by its name."""
    try:
        directory.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        return
    _sync(directory.parent)


def publish(directory: Path, manifest: Manifest) -> bool:
    """Let the batch exist, durably. False if it does already: then nothing was changed.

    From here on it will be in the queue, once, whatever becomes of this process.
    """
    name = manifest_name(manifest.queue, manifest.writer, manifest.batch)
    drafted = directory / f"{name}.{os.getpid()}.{time.time_ns()}.draft"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(drafted, flags, FILE_MODE), "wb") as file:
        file.write(encode_manifest(manifest))
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        # Of an earlier try that was refused: this one gets an answer of its own.
        _refused(directory, name).unlink()
    # The names of the parts first: a manifest must never be there without them.
    _sync(directory)
    try:
        # A link, not a rename: of two that try at once, one is told.
        os.link(drafted, directory / name)
    except FileExistsError:
        return False
    finally:
        drafted.unlink()
    _sync(directory)
    return True


def refusal(directory: Path, name: str) -> str | None:
    """Why the owner refused a manifest that is gone; None if it took it in."""
    try:
        with _refused(directory, name).open("rb") as file:
            return file.readline().decode(errors="replace").strip()
    except FileNotFoundError:
        return None


def discard(directory: Path, names: Iterable[str]) -> None:
    """Remove files that may be gone already."""
    for name in names:
        with suppress(FileNotFoundError):
            (directory / name).unlink()


def discard_prefix(directory: Path, prefix: str, *, but: Iterable[str] = ()) -> None:
    """Remove the parts whose names begin so: attempts that failed or came second."""
    kept = set(but)
    with suppress(FileNotFoundError):
        discard(
            directory,
            [
                name
                for name in os.listdir(directory)
                if name.startswith(prefix) and name.endswith(PART_SUFFIX) and name not in kept
            ],
        )


def discard_leftovers(directory: Path) -> None:
    """Remove old parts that no manifest names. While anything is set aside, nothing is removed."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if any(name.endswith(REFUSED_SUFFIX) for name in names):
        return
    before = time.time() - LEFTOVER_SECONDS
    old = [name for name in names if name.endswith((PART_SUFFIX, ".draft"))]
    old = [name for name in old if _changed_before(directory / name, before)]
    if not old:
        return
    named: set[str] = set()
    for name in names:
        if name.endswith(MANIFEST_SUFFIX):
            try:
                manifest = decode_manifest((directory / name).read_bytes())
            except FileNotFoundError:
                continue
            except (DamageError, FormatError, InvalidName):
                # Nobody knows which parts it names: the owner sets it aside, and says so.
                return
            named.update(part.name for part in manifest.parts)
    discard(directory, set(old) - named)


def _changed_before(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        return False


def _refused(directory: Path, name: str) -> Path:
    return directory / (name.removesuffix(MANIFEST_SUFFIX) + REFUSED_SUFFIX)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
