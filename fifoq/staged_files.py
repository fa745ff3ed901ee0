"""The owner's file work on staged files: listing, reading, checking, removing, setting aside.

Plain blocking code behind the `Files` seam, run on the writer like all file work of a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from fifoq.runs import COLUMN_BYTES
from fifoq.staged import (
    BLOCK_PREFIX_BYTES,
    MANIFEST_BYTES_MAX,
    MANIFEST_SUFFIX,
    PART_HEADER_BYTES,
    REFUSED_SUFFIX,
    STAGED_DIRECTORY,
    Manifest,
    Part,
    check_part_header,
    decode_manifest,
    decode_part_block,
    part_block_bytes,
)
from store import DamageError, RecordBlock
from store.directory import Directory
from store.files import Files, Handle
from store.segment import let_go, read_exactly


class Place(NamedTuple):
    """Where in a batch somebody is: the part, the offset in it, blocks before it in all parts."""

    part: int = 0
    offset: int = PART_HEADER_BYTES
    blocks: int = 0
    in_part: int = 0
    """Of those, how many are in this part."""
    records: int = 0
    """Records of this part that are before it."""


class StagedFiles:
    """The staged files of one store."""

    def __init__(self, files: Files, store_path: str) -> None:
        self._files = files
        self.path = f"{store_path}/{STAGED_DIRECTORY}"

    def exist(self) -> bool:
        """Whether the directory is there, or may be: reading it tells what is wrong with it."""
        try:
            with self._directory():
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def manifests(self) -> list[str] | None:
        """Names of the manifests, a writer's in the order of its batches; None: no directory."""
        try:
            with self._directory() as directory:
                names = self._files.list_dir(directory.handle)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return sorted(name for name in names if name.endswith(MANIFEST_SUFFIX))

    def load(self, name: str) -> Manifest:
        """DamageError, FormatError or InvalidName if it cannot be believed."""
        with self._opened(name) as handle:
            size = self._files.size(handle)
            if size > MANIFEST_BYTES_MAX:
                raise DamageError(0, f"a manifest of {size} bytes is over {MANIFEST_BYTES_MAX}")
            return decode_manifest(read_exactly(self._files, handle, size, 0))

    def place_of(self, manifest: Manifest, blocks: int) -> Place:
        """The place behind the first so many blocks."""
        place = Place()
        if blocks > sum(part.blocks for part in manifest.parts):
            raise DamageError(
                0, f"the manifest has fewer than {blocks} blocks, which were taken in"
            )
        while place.blocks + manifest.parts[place.part].blocks < blocks:
            place = Place(place.part + 1, blocks=place.blocks + manifest.parts[place.part].blocks)
        return self._walk(manifest, place, blocks - place.blocks) if blocks else place

    def _walk(self, manifest: Manifest, place: Place, count: int) -> Place:
        part, offset = manifest.parts[place.part], place.offset
        with self._opened(part.name) as handle:
            for _ in range(count):
                prefix = read_exactly(self._files, handle, BLOCK_PREFIX_BYTES, offset)
                offset += BLOCK_PREFIX_BYTES + part_block_bytes(prefix, offset)
        # The records before it were counted when the batch was checked.
        return Place(place.part, offset, place.blocks + count, count, -1)

    def read(
        self, manifest: Manifest, place: Place, budget: int
    ) -> tuple[list[RecordBlock], Place | None]:
        """Blocks from a place on, of about `budget` bytes in a frame, and where the next ones are.

        At least one, if there is one. The place is None at the end. DamageError if the parts are
        not what the manifest says.
        """
        blocks: list[RecordBlock] = []
        size = 0
        while place.part < len(manifest.parts):
            part = manifest.parts[place.part]
            with self._opened(part.name) as handle:
                if place.in_part == 0:
                    self._check_part(handle, part)
                while place.in_part < part.blocks:
                    if blocks and size >= budget:
                        return blocks, place
                    block, place = self._next_block(handle, manifest.queue, part, place)
                    blocks.append(block)
                    size += frame_bytes(block)
            if place.offset != part.size or place.records not in (part.records, -1):
                raise DamageError(place.offset, f"{part.name} holds other than its manifest says")
            place = Place(place.part + 1, blocks=place.blocks)
        return blocks, None

    def _check_part(self, handle: Handle, part: Part) -> None:
        size = self._files.size(handle)
        if size != part.size:
            raise DamageError(size, f"{part.name} has {size} bytes, not {part.size}")
        check_part_header(read_exactly(self._files, handle, PART_HEADER_BYTES, 0))

    def _next_block(
        self, handle: Handle, queue: str, part: Part, place: Place
    ) -> tuple[RecordBlock, Place]:
        offset = place.offset
        prefix = read_exactly(self._files, handle, BLOCK_PREFIX_BYTES, offset)
        size = BLOCK_PREFIX_BYTES + part_block_bytes(prefix, offset)
        data = read_exactly(self._files, handle, size, offset)
        try:
            block = decode_part_block(data, offset, queue)
        except DamageError as error:
            raise DamageError(offset, f"{part.name}: {error.reason}") from None
        records = place.records + block.count if place.records >= 0 else -1
        return block, Place(place.part, offset + size, place.blocks + 1, place.in_part + 1, records)

    def remove(self, name: str, manifest: Manifest) -> None:
        """Let a batch go that is in the queue.

        The manifest last: as long as it is there somebody looks, and no part is left behind.
        """
        with self._directory() as directory:
            for part in manifest.parts:
                directory.remove(part.name)
            directory.sync()
            directory.remove(name)
            directory.sync()

    def refuse(self, name: str, reason: str) -> None:
        """Set a manifest aside, with the reason in front of it. Parts stay as they are."""
        data = reason.encode() + b"\n"
        with suppress(OSError), self._opened(name) as handle:
            size = min(self._files.size(handle), MANIFEST_BYTES_MAX)
            data += read_exactly(self._files, handle, size, 0)
        with self._directory() as directory:
            let_go(self._files, directory.create(refused_name(name), data))
            directory.sync()
            directory.remove(name)
            directory.sync()

    @contextmanager
    def _directory(self) -> Iterator[Directory]:
        directory = Directory(self._files, self.path)
        try:
            yield directory
        finally:
            directory.close()

    @contextmanager
    def _opened(self, name: str) -> Iterator[Handle]:
        with self._directory() as directory:
            handle = self._files.open(directory.handle, name, write=False)
            try:
                yield handle
            finally:
                let_go(self._files, handle)


def refused_name(manifest_name: str) -> str:
    return manifest_name.removesuffix(MANIFEST_SUFFIX) + REFUSED_SUFFIX


def frame_bytes(block: RecordBlock) -> int:
    """What a block may need in a frame and while it waits for one."""
    size = int(block.offsets[-1] - block.offsets[0]) + COLUMN_BYTES * block.count
    for column in block.columns.values():
        size += sum(map(len, column)) if isinstance(column, list) else column.nbytes
    return size
