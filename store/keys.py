"""Keys: a record's counter and put time in 128 bits.

    counter: u64 | timestamp: u64, nanoseconds since the epoch

Both are big-endian, so that keys sort as bytes in FIFO order. Key 0 is genesis.
"""

from __future__ import annotations

import struct
from typing import NewType

import msgspec

Counter = NewType("Counter", int)
Offset = NewType("Offset", int)

COUNTER_MAX = 2**63 - 1
TOTAL_MAX = 2**32 - 1
RESERVED_COUNTERS = 1 << 20
"""Counters that commits without a sync may show before their records are durable."""

_KEY = struct.Struct(">QQ")
_FAT_KEY = struct.Struct(">QQII")
KEY_BYTES = _KEY.size
FAT_KEY_BYTES = _FAT_KEY.size


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """A record's number and the time it was put; compares, sorts and hashes by value."""

    counter: int
    timestamp: int

    def __bytes__(self) -> bytes:
        return _KEY.pack(self.counter, self.timestamp)

    @classmethod
    def from_bytes(cls, data: bytes) -> Key:
        """Read a key from its 16 bytes. ValueError for any other length."""
        if len(data) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(data)}")
        return cls(*_KEY.unpack(data))


GENESIS_KEY = Key(0, 0)


def pack_fat_key(key: Key, total_put: int, total_take: int) -> bytes:
    """The 24-byte form used by import and export; totals stop at 2³²−1 instead of wrapping."""
    return _FAT_KEY.pack(
        key.counter, key.timestamp, min(total_put, TOTAL_MAX), min(total_take, TOTAL_MAX)
    )


def unpack_fat_key(data: bytes) -> tuple[Key, int, int]:
    """Key, total puts and total takes of a 24-byte key. ValueError for any other length."""
    if len(data) != FAT_KEY_BYTES:
        raise ValueError(f"a fat key has {FAT_KEY_BYTES} bytes, not {len(data)}")
    counter, timestamp, total_put, total_take = _FAT_KEY.unpack(data)
    return Key(counter, timestamp), total_put, total_take
