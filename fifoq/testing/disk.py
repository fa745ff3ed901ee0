"""The crash model: what a simulated disk holds, and what of it would outlive a power cut.

Every file has a live content, which programs read as from a page cache, and a durable one. The
two differ by the pending operations and, after a failed sync, by *ghosts*: bytes that the cache
shows as clean and the disk never got. The rules are those of RELIABILITY 3.2:

- writes and truncates become durable by `datasync` of their file, and by nothing else;
- names become durable by `sync_dir` of their directory, and by nothing else.

Handles, errnos and limits belong to `simfiles`; the states after a power cut to `crashes`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

from fifoq.testing.image import ROOT_PLACE, Image, Kind, Place
from fifoq.testing.pending import (
    EntryOp,
    Link,
    Pending,
    Scraps,
    Truncate,
    Unlink,
    Write,
    done,
    random_outcome,
    settle,
)

PAGE_BYTES = 4096
ROOT_INO = 1


class SyncFailure(Enum):
    """What a failing datasync does before it reports."""

    LOST = "the writes are dropped and their pages are called clean"
    SUBSET = "some of the writes, or parts of them, became durable; the rest is dropped"
    DURABLE = "everything became durable"


class Node:
    """A file, directory, symbolic link or fifo. `live` is bytes until it is first written."""

    __slots__ = (
        "durable",
        "durable_entries",
        "entries",
        "ghosts",
        "home",
        "ino",
        "kind",
        "linked",
        "live",
        "open_count",
    )

    def __init__(self, ino: int, kind: Kind, home: tuple[int, str], content: bytes = b"") -> None:
        self.ino = ino
        self.kind = kind
        self.home = home
        self.live: bytes | bytearray = content
        self.durable = content
        self.ghosts = False
        self.entries: dict[str, int] = {}
        self.durable_entries: dict[str, int] = {}
        self.linked = True
        self.open_count = 0

    def copy(self) -> Node:
        node = Node(self.ino, self.kind, self.home, self.durable)
        live = self.live
        node.live = live if type(live) is bytes else live[:]
        node.ghosts = self.ghosts
        node.entries = self.entries.copy()
        node.durable_entries = self.durable_entries.copy()
        node.linked = self.linked
        node.open_count = self.open_count
        return node


class Disk:
    """Nodes and pending operations. It trusts its caller about kinds and existence.

    `before_change` is called just before anything changes that a power cut could show: what
    it sees is one state that the disk passed through, with all that was promised of it.
    """

    def __init__(self) -> None:
        self.nodes = {ROOT_INO: Node(ROOT_INO, Kind.DIRECTORY, (ROOT_INO, ""))}
        self.pending: list[Pending] = []
        self.scraps = Scraps()
        self.before_change: Callable[[], None] | None = None
        self._next_ino = ROOT_INO + 1

    @classmethod
    def from_image(cls, image: Image) -> Disk:
        disk = cls()
        disk.scraps = image.scraps
        nodes = disk.nodes
        row = [nodes[ROOT_INO]]
        ino = ROOT_INO
        for place, content in zip(image.places[1:], image.contents[1:], strict=True):
            ino += 1
            parent = row[place.parent]
            node = nodes[ino] = Node(ino, place.kind, (parent.ino, place.name), content)
            parent.entries[place.name] = parent.durable_entries[place.name] = ino
            row.append(node)
        disk._next_ino = ino + 1
        return disk

    def image(self) -> Image:
        """What an orderly shutdown would leave: the live view."""
        places, contents = [ROOT_PLACE], [b""]
        todo = [(0, self.nodes[ROOT_INO])]
        for parent, directory in todo:
            for name in sorted(directory.entries):
                node = self.nodes[directory.entries[name]]
                if node.kind is Kind.DIRECTORY:
                    todo.append((len(places), node))
                places.append(Place(parent, name, node.kind))
                contents.append(bytes(node.live))
        return Image(tuple(places), tuple(contents), scraps=self.scraps)

    def fingerprint(self) -> int:
        """The same for disks that no program and no power cut can tell apart."""
        nodes = tuple(
            (ino, bytes(node.live), node.durable, node.ghosts, node.linked)
            for ino, node in self.nodes.items()
        )
        names = tuple(
            (*node.entries.items(), ino, *node.durable_entries.items())
            for ino, node in self.nodes.items()
        )
        return hash((nodes, names, tuple(self.pending), self.scraps.pieces))

    def copy(self) -> Disk:
        """The same state, sharing nothing that can change; without the hook."""
        disk = Disk()
        disk.nodes = {ino: node.copy() for ino, node in self.nodes.items()}
        disk.pending = self.pending.copy()
        disk.scraps = self.scraps
        disk._next_ino = self._next_ino
        return disk

    def link(self, directory: Node, name: str, kind: Kind, content: bytes = b"") -> Node:
        """Make a node under a name that is free."""
        self._announce()
        node = Node(self._next_ino, kind, (directory.ino, name), content)
        self._next_ino += 1
        self.nodes[node.ino] = node
        directory.entries[name] = node.ino
        self.pending.append(Link(directory.ino, name, node.ino))
        return node

    def unlink(self, directory: Node, name: str) -> Node:
        self._announce()
        node = self.nodes[directory.entries.pop(name)]
        node.linked = False
        self.pending.append(Unlink(directory.ino, name))
        self.release(node)
        return node

    def write(self, node: Node, offset: int, data: bytes) -> None:
        self._announce()
        live = self._writable(node)
        if offset > len(live):
            live.extend(bytes(offset - len(live)))
        live[offset : offset + len(data)] = data
        self.pending.append(Write(node.ino, offset, data))

    def truncate(self, node: Node, size: int) -> None:
        self._announce()
        live = self._writable(node)
        if size < len(live):
            self.scraps = self.scraps.with_piece(size, bytes(live[size:]))
            del live[size:]
        else:
            live.extend(bytes(size - len(live)))
        self.pending.append(Truncate(node.ino, size))

    def datasync(self, node: Node) -> None:
        mine = self._content_ops(node)
        if not mine:
            return
        self._announce()
        if node.ghosts:
            for operation in mine:
                node.durable = settle(node.durable, operation, done(operation), self.scraps)
        else:
            node.durable = bytes(node.live)
        self._drop_pending(mine)

    def fail_datasync(self, node: Node, failure: SyncFailure, random: Random) -> None:
        """What is left of the node when a datasync reports an error.

        Nothing stays pending: what did not become durable is a ghost, and the next datasync
        has nothing to do and succeeds.
        """
        if failure is SyncFailure.DURABLE:
            return self.datasync(node)
        mine = self._content_ops(node)
        if not mine:
            return None
        self._announce()
        if failure is SyncFailure.SUBSET:
            for operation in mine:
                outcome = random_outcome(operation, random)
                node.durable = settle(node.durable, operation, outcome, self.scraps)
        node.ghosts = True
        self._drop_pending(mine)
        return None

    def forget_cache(self, node: Node) -> None:
        """Show the disk's truth wherever no page is dirty; it shows ghosts until then."""
        if not node.ghosts:
            return
        mine = self._content_ops(node)
        fresh = bytearray(node.durable)
        for operation in mine:
            fresh = bytearray(settle(bytes(fresh), operation, done(operation), self.scraps))
        live = node.live
        dirty_pages = {page for operation in mine for page in _pages(operation)}
        for page in dirty_pages:
            start = page * PAGE_BYTES
            kept = live[start : min(start + PAGE_BYTES, len(fresh))]
            fresh[start : start + len(kept)] = kept
        node.live = fresh
        node.ghosts = bool(dirty_pages)

    def sync_dir(self, directory: Node) -> None:
        mine = [
            operation
            for operation in self.pending
            if isinstance(operation, (Link, Unlink)) and operation.directory == directory.ino
        ]
        if not mine:
            return
        self._announce()
        self._drop_pending(mine)
        for operation in mine:
            if isinstance(operation, Link):
                directory.durable_entries[operation.name] = operation.ino
                continue
            ino = directory.durable_entries.pop(operation.name, None)
            if ino is not None:
                self._collect(self.nodes[ino])

    def release(self, node: Node) -> None:
        """Free what a node held if it has lost its name and its last handle."""
        if node.linked or node.open_count or node.ino not in self.nodes:
            return
        self.scraps = self.scraps.with_piece(0, bytes(node.live))
        self._collect(node)

    def forget_handles(self) -> None:
        """The process is gone: nothing is open any more."""
        for node in list(self.nodes.values()):
            if node.open_count:
                node.open_count = 0
                self.release(node)

    def _announce(self) -> None:
        if self.before_change is not None:
            self.before_change()

    def _content_ops(self, node: Node) -> list[Write | Truncate]:
        ino = node.ino
        return [
            operation
            for operation in self.pending
            if isinstance(operation, (Write, Truncate)) and operation.ino == ino
        ]

    def _drop_pending(self, operations: list[Write | Truncate] | list[EntryOp]) -> None:
        gone = {id(operation) for operation in operations}
        self.pending = [operation for operation in self.pending if id(operation) not in gone]

    @staticmethod
    def _writable(node: Node) -> bytearray:
        live = node.live
        if type(live) is not bytearray:
            live = node.live = bytearray(live)
        return live

    def _collect(self, node: Node) -> None:
        """Drop a node that neither a program nor any power cut can show again."""
        directory, name = node.home
        if node.linked or node.open_count:
            return
        if self.nodes[directory].durable_entries.get(name) == node.ino:
            return
        if any(
            isinstance(operation, Link) and operation.ino == node.ino for operation in self.pending
        ):
            return
        del self.nodes[node.ino]
        self._drop_pending(self._content_ops(node))


def _pages(operation: Write | Truncate) -> range:
    if isinstance(operation, Truncate):
        return range(0)
    last = operation.offset + len(operation.data) - 1
    return range(operation.offset // PAGE_BYTES, last // PAGE_BYTES + 1)
