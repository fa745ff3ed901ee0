"""Checksums know the algorithm and the place of the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.checksum import CRC32, CRC32C, check_function, place_seed, segment_seed
from store.errors import FormatError

# RFC 3720, B.4, and the check value of the CRC catalogue.
KNOWN = [
    (CRC32C, bytes(32), 0x8A9136AA),
    (CRC32C, b"\xff" * 32, 0x62A8AB43),
    (CRC32C, bytes(range(32)), 0x46DD794E),
    (CRC32C, b"123456789", 0xE3069283),
    (CRC32, b"123456789", 0xCBF43926),
]


@pytest.mark.parametrize(("algorithm", "data", "expected"), KNOWN)
def test_published_values_come_out(algorithm: int, data: bytes, expected: int) -> None:
    assert check_function(algorithm)(data, 0) == expected


@given(st.sampled_from([CRC32, CRC32C]), st.binary(max_size=64), st.integers(0, 64))
def test_a_checksum_goes_on_from_a_part(algorithm: int, data: bytes, cut: int) -> None:
    check = check_function(algorithm)
    assert check(data[cut:], check(data[:cut], 0)) == check(memoryview(data), 0)


@pytest.mark.parametrize("algorithm", [0, 3, 255])
def test_an_unknown_algorithm_is_from_a_newer_version(algorithm: int) -> None:
    with pytest.raises(FormatError, match=f"checksum algorithm {algorithm} is unknown"):
        check_function(algorithm)


def test_every_place_has_a_seed_of_its_own() -> None:
    check = check_function(CRC32C)
    seeds = {
        place_seed(check, segment_seed(check, store_id, number), offset)
        for store_id in (bytes(16), bytes(15) + b"\1")
        for number in range(1, 20)
        for offset in range(0, 4096, 8)
    }
    assert len(seeds) == 2 * 19 * 512
