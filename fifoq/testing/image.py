"""What a disk holds when the power comes back: a tree of names and the bytes under them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from fifoq.testing.pending import Plan, Scraps


class Kind(Enum):
    """What a name stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "fifo"


class Place(NamedTuple):
    """A name in an image; `parent` is the index of the directory that holds it."""

    parent: int
    name: str
    kind: Kind


ROOT_PLACE = Place(0, "", Kind.DIRECTORY)


class Image:
    """An immutable disk content. Two images are equal if a program could not tell them apart.

    `places` begins with the root and parents come before children; `contents` runs beside it
    (the target for a symbolic link, nothing for a directory).
    """

    __slots__ = ("_entry_plan", "_file_plans", "contents", "places", "scraps")

    def __init__(
        self,
        places: tuple[Place, ...],
        contents: tuple[bytes, ...],
        *,
        scraps: Scraps | None = None,
        entry_plan: Plan = (),
        file_plans: tuple[Mapping[bytes, Plan], ...] = (),
    ) -> None:
        self.places = places
        self.contents = contents
        self.scraps = scraps or Scraps()
        self._entry_plan = entry_plan
        self._file_plans = file_plans

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Image:
        """An image with these files; their directories come with them."""
        places, contents = [ROOT_PLACE], [b""]
        indexes = {"": 0}
        for path in sorted(files):
            *directories, name = path.strip("/").split("/")
            parent, prefix = 0, ""
            for directory in directories:
                prefix += "/" + directory
                if prefix not in indexes:
                    indexes[prefix] = len(places)
                    places.append(Place(parent, directory, Kind.DIRECTORY))
                    contents.append(b"")
                parent = indexes[prefix]
            places.append(Place(parent, name, Kind.FILE))
            contents.append(files[path])
        return cls(tuple(places), tuple(contents))

    @property
    def paths(self) -> tuple[str, ...]:
        """The absolute path of every place; the root's is the empty string."""
        paths: list[str] = []
        for place in self.places:
            paths.append(f"{paths[place.parent]}/{place.name}" if paths else "")
        return tuple(paths)

    @property
    def files(self) -> dict[str, bytes]:
        """Absolute path to content, for the regular files."""
        rows = zip(self.paths, self.places, self.contents, strict=True)
        return {path: content for path, place, content in rows if place.kind is Kind.FILE}

    @property
    def digest(self) -> str:
        """A name for this content that is the same in every process."""
        state = blake2b(digest_size=16)
        for path, place, content in zip(self.paths, self.places, self.contents, strict=True):
            state.update(f"{path}\0{place.kind.value}\0{len(content)}\0".encode())
            state.update(content)
        return state.hexdigest()

    @property
    def plan(self) -> Plan:
        """One choice of outcomes that gives this image, for a message about a failure."""
        plan = self._entry_plan
        for content, plans in zip(self.contents, self._file_plans, strict=False):
            plan += plans.get(content, ())
        return plan

    def describe(self) -> str:
        """The image in a few lines: what became of each pending operation, and the files."""
        lines = [f"{operation} -> {outcome}" for operation, outcome in self.plan]
        lines += [f"{path}: {len(content)} bytes" for path, content in self.files.items()]
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        return self.contents == other.contents and self.places == other.places

    def __hash__(self) -> int:
        return hash((self.places, self.contents))

    def __repr__(self) -> str:
        return f"<Image {self.digest[:8]} files={sorted(self.files)}>"
