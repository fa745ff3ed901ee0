"""Checksums, each seeded with the place the bytes belong to.

The seed holds the store's id, the segment's number and the byte offset. Bytes from another
store, another file, another place or an earlier life of the same file never validate, nor does
a copy of a segment inside somebody's payload.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import crc32c as _crc32c

from store.errors import FormatError

CRC32C: Final = 1
CRC32: Final = 2

Buffer = bytes | bytearray | memoryview
Check = Callable[[Buffer, int], int]

_PLACE = struct.Struct("<16sQ")
_OFFSET = struct.Struct("<Q")

ALGORITHMS: dict[int, Check] = {CRC32C: _crc32c.crc32c, CRC32: zlib.crc32}


def check_function(algorithm: int) -> Check:
    """The function `(data, start) -> checksum` of an algorithm byte."""
    try:
        return ALGORITHMS[algorithm]
    except KeyError:
        raise FormatError(
            f"checksum algorithm {algorithm} is unknown; the store was written by a newer version"
        ) from None


def segment_seed(check: Check, store_id: bytes, number: int) -> int:
    """What every checksum of a segment starts from, before the offset is mixed in."""
    return check(_PLACE.pack(store_id, number), 0)


def place_seed(check: Check, seed: int, offset: int) -> int:
    """The start value for bytes at `offset` of the segment with that seed."""
    return check(_OFFSET.pack(offset), seed)
