"""Keys sort in FIFO order, as values and as bytes, and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.keys import (
    FAT_KEY_BYTES,
    GENESIS_KEY,
    KEY_BYTES,
    TOTAL_MAX,
    Key,
    pack_fat_key,
    unpack_fat_key,
)

u64 = st.integers(0, 2**64 - 1)
keys = st.builds(Key, u64, u64)


@given(keys)
def test_a_key_comes_back_as_it_was(key: Key) -> None:
    data = bytes(key)
    assert len(data) == KEY_BYTES
    assert Key.from_bytes(data) == key
    assert len({key, Key.from_bytes(data)}) == 1


@given(keys, keys)
def test_keys_and_their_bytes_sort_alike(one: Key, other: Key) -> None:
    assert (one < other) == (bytes(one) < bytes(other))
    assert (one < other) == ((one.counter, one.timestamp) < (other.counter, other.timestamp))


def test_genesis_is_key_0() -> None:
    assert bytes(GENESIS_KEY) == bytes(16)


@pytest.mark.parametrize("size", [0, 1, 15, 17, 24])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a key has 16 bytes, not {size}"):
        Key.from_bytes(bytes(size))


@given(keys, u64, u64)
def test_totals_of_a_fat_key_stop_at_their_limit(key: Key, puts: int, takes: int) -> None:
    data = pack_fat_key(key, puts, takes)
    assert len(data) == FAT_KEY_BYTES
    assert unpack_fat_key(data) == (key, min(puts, TOTAL_MAX), min(takes, TOTAL_MAX))
    assert data[:KEY_BYTES] == bytes(key)


@pytest.mark.parametrize("size", [0, 16, 23, 25])
def test_a_fat_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a fat key has 24 bytes, not {size}"):
        unpack_fat_key(bytes(size))
