"""MurmurHash3, 32 bits, for x86: which partition a key belongs to, here and in other systems."""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593


def murmur3(data: bytes, seed: int = 0) -> int:
    """The hash of some bytes, as an unsigned number."""
    length = len(data)
    rest = length & 3
    value = seed
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        word = word * _C1 & _MASK
        word = (word << 15 | word >> 17) * _C2 & _MASK
        value ^= word
        value = ((value << 13 | value >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK
    if rest:
        word = int.from_bytes(data[-rest:], "little") * _C1 & _MASK
        value ^= (word << 15 | word >> 17) * _C2 & _MASK
    value ^= length
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16
