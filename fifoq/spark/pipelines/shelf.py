"""What an archive holds: one small file for each unit, beside the Parquet files.

A unit is a range of counters of one queue that lay in one segment. Its file is there before the
first of its records is written, and says so; once all of them are, it says that. A run that was
killed in between leaves units that are only planned: the next run takes their files away before
it plans its own, so that no record is ever there twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from store import FifoqError

NOTES: Final = "_fifoq"
"""The directory of the units' files. Spark passes over names that begin like this."""


class ArchiveError(FifoqError):
    """The archive is in use, of another store, or not a directory of this machine."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Counters first..last of a queue, from one segment of the store."""

    queue: str
    store: str
    segment: int
    first: int
    last: int
    records: int = 0
    state: Literal["planned", "done"] = "planned"

    @property
    def id(self) -> str:
        return f"{self.segment:020}-{self.first}-{self.last}"


class Shelf:
    """The archive at a directory of this machine, which one run at a time may add to."""

    def __init__(self, target: str) -> None:
        scheme, colon, rest = target.partition("://")
        if colon and scheme != "file":
            raise ArchiveError(
                f"{target}: an archive is written to a directory that driver and executors share, "
                f"not to {scheme}://. Nothing was changed."
            )
        self.path = Path(rest if colon else target.removeprefix("file:")).absolute()
        self._notes = self.path / NOTES

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Until the end of the block nobody else adds to it. ArchiveError if somebody does."""
        self._notes.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(
                    f"{self.path}: another run is adding to this archive. Nothing was changed. "
                    f"Wait for it."
                ) from None
            yield
        finally:
            os.close(handle)

    def units(self, queue: str | None = None) -> list[Unit]:
        """Those of a queue, or of all, by counter."""
        found = [
            msgspec.json.decode(path.read_bytes(), type=Unit)
            for path in sorted(self._notes.glob("*.json"))
        ]
        wanted = [unit for unit in found if queue in (None, unit.queue)]
        return sorted(wanted, key=lambda unit: (unit.queue, unit.first))

    def check_store(self, queue: str, store: str) -> None:
        """ArchiveError if the queue's units are of another store."""
        others = {unit.store for unit in self.units(queue)} - {store}
        if others:
            raise ArchiveError(
                f"{self.path}: it holds queue {queue!r} of store {min(others)}, and this is store "
                f"{store}. Nothing was changed. Archive into another directory."
            )

    def drop_planned(self, queue: str) -> int:
        """Take away what a run that was killed has left; returns how many units that were."""
        planned = [unit for unit in self.units(queue) if unit.state == "planned"]
        for unit in planned:
            for directory in self.path.glob(f"queue={_escaped(queue)}/date=*/unit={unit.id}"):
                shutil.rmtree(directory)
            self._note(unit).unlink()
        return len(planned)

    def write(self, units: Iterable[Unit]) -> None:
        """Keep what is known of units; durable on return."""
        for unit in units:
            note = self._note(unit)
            made = note.with_suffix(".tmp")
            with made.open("wb") as file:
                file.write(msgspec.json.encode(unit))
                file.flush()
                os.fsync(file.fileno())
            made.replace(note)
        handle = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _note(self, unit: Unit) -> Path:
        return self._notes / f"{_escaped(unit.queue)}-{unit.id}.json"


def _escaped(queue: str) -> str:
    """A queue's name as part of a path, as Spark escapes it too."""
    return quote(queue, safe="-.")
