"""Genesis entries inside frames, and the same facts as JSON for people."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import DamageError, InvalidName
from store.genesis import Genesis, GenesisView, check_name, decode_genesis, encode_genesis

numbers = st.integers(0, 2**63 - 1)
names = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,63}(\.dlq)?\Z")
entries = st.builds(
    Genesis,
    name=names,
    next_counter=numbers,
    queue_size=numbers,
    queue_bytes=numbers,
    total_put_count=numbers,
    total_take_count=numbers,
    total_delay_ns=numbers,
    last_put_time=numbers,
    last_take_time=numbers,
    high_water_mark=st.none() | numbers,
    low_water_mark=st.none() | numbers,
    high_water_time=numbers,
    low_water_time=numbers,
    floor=numbers,
    reserved_upto=numbers,
)


@given(st.lists(entries, max_size=4), st.binary(max_size=9), st.none() | st.just(b"{}"))
def test_entries_come_back_from_the_end_of_a_body(
    found: list[Genesis], blocks: bytes, configuration: bytes | None
) -> None:
    for entry in found:
        entry.configuration = configuration
    data = encode_genesis(found)
    assert decode_genesis(memoryview(blocks + data), len(data)) == found


def test_a_body_without_entries_has_none() -> None:
    assert decode_genesis(memoryview(b"blocks"), 0) == []


@given(entries, st.none() | st.text(max_size=10))
def test_the_readable_form_loses_nothing(entry: Genesis, text: str | None) -> None:
    configuration = None if text is None else text.encode()
    view = GenesisView.of(entry, configuration)
    again = msgspec.json.decode(msgspec.json.encode(view), type=GenesisView)
    assert again == view
    assert again.genesis(entry.name) == entry
    assert again.configuration == text
    assert again.last_put_time == entry.last_put_time // 1_000_000


def test_a_cut_entry_is_damage() -> None:
    data = encode_genesis([Genesis("orders", queue_size=300, configuration=b"{}")])
    for size in range(1, len(data)):
        with pytest.raises(DamageError, match="genesis entries do not decode"):
            decode_genesis(memoryview(data[:size]), size)


@pytest.mark.parametrize(
    "stored",
    [
        b"\x91\x91\xa1\xff",  # a name that is not UTF-8
        msgspec.msgpack.encode([["Not a name"]]),
        msgspec.msgpack.encode([["orders", "not a number"]]),
        msgspec.msgpack.encode({}),
        encode_genesis([Genesis("orders", configuration=b"\xff")]),
        b"\x91\xdc\x00\x12\xa1a" + b"\xc0" * 15 + b"\x91" * 5000,  # nested beyond reason
        msgspec.msgpack.encode([]) + b"\0",
    ],
)
def test_entries_that_make_no_sense_are_damage(stored: bytes) -> None:
    with pytest.raises(DamageError, match="genesis entries do not decode") as caught:
        decode_genesis(memoryview(b"blocks!!" + stored), len(stored))
    assert caught.value.offset == 8


@pytest.mark.parametrize("name", ["a", "0", "orders", "a-b", "x" * 64, "orders.dlq", "actor/x-1"])
def test_names_by_the_rule_are_allowed(name: str) -> None:
    assert check_name(name) == name


BAD_NAMES: list[object] = ["", "-a", "A", "a b", "a/b/c", "../a", "a\n", "x" * 65, "a.dlq.dlq", "ä"]


@pytest.mark.parametrize("name", [*BAD_NAMES, None, b"a", 1])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="is not allowed"):
        check_name(name)
