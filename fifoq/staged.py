"""Staged files: records that another process hands to the owner of a store.

Under `<store>/staged/` lie *parts*, each the records of one task of a job, and *manifests*, each
the list of the parts that make up one batch of a writer. A batch exists from the moment its
manifest does; parts that no manifest names never happened.

    part        magic (8) | version (u32) | 0 (u32), then blocks to the end of the file
    block       size (u32) | checksum (u32) | a block of records as it lies in a frame
    manifest    one line of JSON, then the line's checksum as 8 hexadecimal digits

Bytes in, values out: this module touches no files. Integers are little-endian, checksums crc32c.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from fifoq.attributes import (
    DEDUP_ID_BYTES_MAX,
    ORDERING_KEY_BYTES_MAX,
    PRIORITY_MAX,
    SECONDS_MAX,
)
from fifoq.codec import decode_headers
from store import DamageError, FormatError, InvalidName, RecordBlock
from store.blocks import (
    COUNTERS,
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    RECORDS,
    block_headers,
    decode_block,
)
from store.checksum import CRC32C, Buffer, check_function
from store.encoding import encode_block
from store.genesis import check_name
from store.keys import COUNTER_MAX

STAGED_DIRECTORY: Final = "staged"
PART_SUFFIX: Final = ".part"
MANIFEST_SUFFIX: Final = ".manifest"
REFUSED_SUFFIX: Final = ".refused"

FORMAT_VERSION: Final = 1
MANIFEST_BYTES_MAX: Final = 64 << 20
BLOCK_BYTES_MAX: Final = 60 << 20
"""No block is larger: it must fit into a frame."""

TIME_MAX: Final = SECONDS_MAX * 1_000_000_000
"""Of a record, in nanoseconds since the epoch."""

_PART = struct.Struct("<8sII")
_BLOCK = struct.Struct("<II")
_MAGIC: Final = b"FIFOQSTG"
_check = check_function(CRC32C)

PART_HEADER_BYTES: Final = _PART.size
BLOCK_PREFIX_BYTES: Final = _BLOCK.size
PART_HEADER: Final = _PART.pack(_MAGIC, FORMAT_VERSION, 0)

_PART_NAME = re.compile(r"[a-z0-9][a-z0-9~-]{0,200}\.part")
_WRITER = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Part(msgspec.Struct, frozen=True, gc=False):
    """One file of records: how many bytes, blocks and records it has."""

    name: str
    size: int
    blocks: int
    records: int


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch of a writer: all of its parts, in order."""

    version: int
    store: str
    queue: str
    writer: str
    batch: int
    parts: list[Part]
    query: str = ""
    """The query or job that wrote it, if it is known: one writer is one query's."""
    once: bool = False
    """The writer is one job, which never comes again."""

    @property
    def record_count(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def parts_checksum(self) -> int:
        return _check(_encode(self.parts), 0)

    @property
    def state_name(self) -> str:
        """Under which name the store keeps how far the writer is."""
        return state_name(self.queue, self.writer, once=self.once)


class Progress(msgspec.Struct, frozen=True):
    """How far a writer is: the last batch of which blocks are in the queue, and how many.

    `blocks` is None once all of them are.
    """

    batch: int
    blocks: int | None
    query: str = ""
    parts: int = 0
    """Checksum of the parts that the blocks are of: others are not gone on with."""


_ONCE_PREFIX: Final = "staged-once/"
_encode = msgspec.json.Encoder().encode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
_decode_progress = msgspec.json.Decoder(Progress).decode


def check_writer(name: str) -> str:
    """The name itself, or InvalidName."""
    if not _WRITER.fullmatch(name):
        raise InvalidName(
            f"writer name {name!r:.80} is not allowed: 1 to 64 of a-z, 0-9 and '-', starting with "
            f"a letter or digit. Nothing was changed."
        )
    return name


def state_name(queue: str, writer: str, *, once: bool) -> str:
    return f"{_ONCE_PREFIX if once else 'staged/'}{queue}/{writer}"


def is_once(name: str) -> bool:
    """Whether a state belongs to a job that never comes again."""
    return name.startswith(_ONCE_PREFIX)


def manifest_name(queue: str, writer: str, batch: int) -> str:
    """The file that makes a batch exist. Names sort by queue, writer and batch."""
    # A queue's name may hold one slash, and a writer's none of these signs.
    return f"{queue.replace('/', '+')}~{writer}~{batch:020d}{MANIFEST_SUFFIX}"


def part_name(writer: str, batch: int, run: str, partition: int, attempt: str) -> str:
    """The file of one attempt of one task; no two attempts share one."""
    return f"{part_prefix(writer, batch, run)}{partition}~{attempt}{PART_SUFFIX}"


def part_prefix(writer: str, batch: int, run: str) -> str:
    """How the names of all parts of one run of a batch begin."""
    return f"{writer}~{batch}~{run}~"


# Parts.


def encode_part_block(block: RecordBlock) -> list[Buffer]:
    """A block as it lies in a part; payloads are not copied."""
    parts = encode_block(msgspec.structs.replace(block, kind=RECORDS, first=1, time=0), queue=0)
    checksum = 0
    for part in parts:
        checksum = _check(part, checksum)
    return [_BLOCK.pack(sum(map(len, parts)), checksum), *parts]


def check_part_header(data: Buffer) -> None:
    """DamageError or FormatError unless a part begins like this."""
    if len(data) < PART_HEADER_BYTES:
        raise DamageError(0, f"the header has {len(data)} of {PART_HEADER_BYTES} bytes")
    magic, version, reserved = _PART.unpack_from(data)
    if magic != _MAGIC or reserved:
        raise DamageError(0, "it does not begin like a part")
    if version != FORMAT_VERSION:
        raise FormatError(f"its format {version} is not the format {FORMAT_VERSION}")


def part_block_bytes(data: Buffer, offset: int) -> int:
    """Size of the block, behind its prefix, whose prefix `data` begins with."""
    if len(data) < BLOCK_PREFIX_BYTES:
        raise DamageError(offset, "a block's prefix runs past the end")
    size = int(_BLOCK.unpack_from(data)[0])
    if size > BLOCK_BYTES_MAX:
        raise DamageError(offset, f"a block of {size} bytes is over the limit {BLOCK_BYTES_MAX}")
    return size


def decode_part_block(data: Buffer, offset: int, queue: str) -> RecordBlock:
    """The block whose prefix `data` begins with, at `offset` of its part. DamageError."""
    size, checksum = _BLOCK.unpack_from(data)
    body = memoryview(data)[BLOCK_PREFIX_BYTES : BLOCK_PREFIX_BYTES + size]
    if len(body) < size:
        raise DamageError(offset, "a block runs past the end")
    if _check(body, 0) != checksum:
        raise DamageError(offset, "a block's checksum does not match")
    (header,) = block_headers(body, 1, 0)
    block = decode_block(body, header, [queue])
    if not isinstance(block, RecordBlock) or block.kind != RECORDS:
        raise DamageError(offset, f"a block of kind {header.kind} is none of records")
    try:
        _check_columns(block)
    except (FormatError, UnicodeDecodeError) as error:
        raise DamageError(offset, str(error)) from None
    return block.decompressed()


def _check_columns(block: RecordBlock) -> None:
    """FormatError for what no put would say of a record.

    Whoever takes it must not be the one who finds out.
    """
    columns = cast("dict[int, Any]", block.columns)
    if COUNTERS in columns:
        raise FormatError("its records have counters, which only their queue gives out")
    for headers in columns.get(HEADERS, ()):
        decode_headers(headers)
    lane = max(columns.get(PRIORITY, (0,)))
    if lane > PRIORITY_MAX:
        raise FormatError(f"a record has the priority {lane}, and the last is {PRIORITY_MAX}")
    due, end = max(columns.get(DELIVER_AT, (0,))), max(columns.get(EXPIRES_AT, (0,)))
    if max(due, end) > TIME_MAX:
        raise FormatError(f"a record has the time {max(due, end)}, and the last is {TIME_MAX}")
    for bit, what, bytes_max in (
        (ORDERING_KEY, "an ordering key", ORDERING_KEY_BYTES_MAX),
        (DEDUP_ID, "an id", DEDUP_ID_BYTES_MAX),
    ):
        for text in columns.get(bit, ()):
            if len(text) > bytes_max:
                raise FormatError(f"a record has {what} of {len(text)} bytes")
            text.decode()


# Manifests.


def encode_manifest(manifest: Manifest) -> bytes:
    line = _encode(manifest)
    return b"%s\n%08x\n" % (line, _check(line, 0))


def decode_manifest(data: bytes) -> Manifest:
    """DamageError, FormatError, or InvalidName for a manifest that cannot be believed."""
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % _check(line, 0):
        raise DamageError(len(line), "the manifest's checksum does not match")
    try:
        manifest = _decode_manifest(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamageError(0, f"the manifest is not one of ours: {error}") from None
    if not 0 <= manifest.batch <= COUNTER_MAX:
        raise DamageError(0, f"there is no batch {manifest.batch}")
    if manifest.version != FORMAT_VERSION:
        raise FormatError(f"its format {manifest.version} is not the format {FORMAT_VERSION}")
    check_name(manifest.queue)
    check_writer(manifest.writer)
    _check_parts(manifest.parts)
    return manifest


def _check_parts(parts: Sequence[Part]) -> None:
    for part in parts:
        # Names come from outside and are opened and unlinked: no separators, no dots in front.
        if not _PART_NAME.fullmatch(part.name):
            raise DamageError(0, f"{part.name!r:.80} is no name of a part")
        if min(part.size - PART_HEADER_BYTES, part.blocks, part.records) < 0:
            raise DamageError(0, f"the part {part.name} has negative sizes")


# Progress.


def encode_progress(progress: Progress) -> bytes:
    return _encode(progress)


def decode_progress(value: bytes | None) -> Progress | None:
    return None if value is None else _decode_progress(value)
