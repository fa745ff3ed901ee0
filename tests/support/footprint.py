"""What a run read of its disk, so that it need not be run again on a disk that reads the same.

A store is deterministic: it does what the results of its calls make it do. If another disk has the
same names and sizes, and the same bytes at every place that a run read, then a run there gets the
same results call by call, whatever lies at other places. That spares most of the work on the many
disks that differ only in what a crash left where nobody looks any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from fifoq.testing.disk import Disk
from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store.files import Handle

T = TypeVar("T")

Contents = Mapping[str, bytes]
"""Live content by name; names are unique on the disks of one store."""

RUNS_MAX = 8
"""So many runs are remembered of disks with the same names and sizes."""


class TracedFiles(SimFiles):
    """Notes what of the content at `start_trace` was read since then."""

    def __init__(self) -> None:
        super().__init__()
        self._before: Contents = {}
        self._reads: dict[tuple[str, int], bytes] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}

    @classmethod
    def of(cls, image: Image) -> TracedFiles:
        """A machine just started on this disk."""
        files = cls()
        files.disk = Disk.from_image(image)
        return files

    def start_trace(self) -> Contents:
        """Forget what was read so far; returns what every file holds now."""
        nodes = self.disk.nodes.values()
        self._before = {node.home[1]: bytes(node.live) for node in nodes if node.linked}
        self._reads = {}
        self._written = {}
        return self._before

    @property
    def changed(self) -> bool:
        """Whether anything was written since."""
        return bool(self._written)

    def footprint(self) -> list[tuple[str, int, bytes]]:
        """What was read, the longest pieces first: they tell disks apart soonest."""
        pieces = [(name, offset, data) for (name, offset), data in self._reads.items() if data]
        return sorted(pieces, key=lambda piece: -len(piece[2]))

    def create(self, directory: Handle, name: str) -> Handle:
        # Whatever a file of that name held, the new one is this run's own.
        self._written[name] = [(0, len(self._before.get(name, b"")))]
        return super().create(directory, name)

    def unlink(self, directory: Handle, name: str) -> None:
        self._written.setdefault(name, [])
        super().unlink(directory, name)

    def truncate(self, handle: Handle, size: int) -> None:
        self._written.setdefault(self._node(handle).home[1], [])
        super().truncate(handle, size)

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        count = super().pwrite(handle, data, offset)
        ranges = self._written.setdefault(self._node(handle).home[1], [])
        ranges.append((offset, offset + count))
        return count

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        data = super().pread(handle, count, offset)
        name = self._node(handle).home[1]
        written = self._written.get(name)
        if written is None:
            known = self._reads.get((name, offset))
            if known is None or len(known) < len(data):
                self._reads[name, offset] = data
        elif not any(start <= offset and offset + count <= stop for start, stop in written):
            # Perhaps some of it was there before: then all that was is taken as read.
            self._reads[name, 0] = self._before.get(name, b"")
        return data


class Memory(Generic[T]):
    """Results of runs, found again by what the runs read."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, list[tuple[list[tuple[str, int, bytes]], T]]] = {}

    def find(self, subject: Hashable, contents: Contents) -> T | None:
        """The result of a run about the same subject on a disk that reads the same, if any."""
        for footprint, result in self._runs.get(self._key(subject, contents), ()):
            if all(contents[name].startswith(data, at) for name, at, data in footprint):
                return result
        return None

    def keep(self, subject: Hashable, contents: Contents, files: TracedFiles, result: T) -> None:
        """Remember the run that began on `contents` and has just ended."""
        runs = self._runs.setdefault(self._key(subject, contents), [])
        runs.insert(0, (files.footprint(), result))
        del runs[RUNS_MAX:]

    @staticmethod
    def _key(subject: Hashable, contents: Contents) -> Hashable:
        return subject, frozenset((name, len(data)) for name, data in contents.items())
