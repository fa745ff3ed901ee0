"""Headers of a put: what is refused before anything is stored, and that the rest comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifoq.codec import (
    HEADER_NAME_BYTES_MAX,
    HEADER_VALUE_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    decode_headers,
    encode_headers,
    encode_own_headers,
)
from tests.fifoq.support import Bench

pytestmark = pytest.mark.anyio

LARGEST = {f"{n:02}" + "k" * (HEADER_NAME_BYTES_MAX - 2): "v" * 440 for n in range(HEADERS_MAX)}
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "too many": (
        {str(n): "" for n in range(17)},
        "17 headers are over the limit of 16. Nothing was stored.",
    ),
    "no name": (
        {"a": "1", "": "x"},
        "header 2: a name of 0 bytes is not one of 1 to 64. Nothing was stored.",
    ),
    "long name": (
        {"k" * 65: "x"},
        "header 1: a name of 65 bytes is not one of 1 to 64. Nothing was stored.",
    ),
    "long name in bytes": (
        {"é" * 33: "x"},
        "header 1: a name of 66 bytes is not one of 1 to 64. Nothing was stored.",
    ),
    "long value": (
        {"a": "v" * 513},
        "header 1: a value of 513 bytes is over the limit of 512. Nothing was stored.",
    ),
    "own name": (
        {"fifoq.trace": "x"},
        "header 1: names that begin with fifoq. are taken. Nothing was stored.",
    ),
    "surrogate": (
        {"a": "\ud800"},
        "header 1 has a lone surrogate, which no file holds. Nothing was stored.",
    ),
    "together": (
        {f"{n:02}": "v" * 512 for n in range(16)},
        "headers of 8291 bytes are over the limit of 8192 for all of them. Nothing was stored.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_header_over_a_limit_is_refused_and_nothing_is_stored(
    bench: Bench, case: str
) -> None:
    """At most 16 headers, names of 64 bytes, values of 512 (E104), and 8 KiB together."""
    headers, message = WRONG[case]
    async with bench.open() as q:
        with pytest.raises(ValueError) as refused:
            await q.put(b"a", headers=headers)
        assert str(refused.value) == message
        for put in (q.submit, q.put_nowait):
            with pytest.raises(ValueError) as refused:
                put(b"a", headers=headers)
            assert str(refused.value) == message
        assert len(q) == 0
        assert q.stats().total_put_count == 0
        await q.put(b"b", headers={"a": "b"})
    async with bench.open() as q:
        assert [(r.item, r.key.counter, r.headers) async for r in q.browse()] == [
            (b"b", 1, {"a": "b"})
        ]


@pytest.mark.parametrize("wrong", [{"a": 1}, {1: "a"}, ["x"], "x", {"a": None}, {"a": b"b"}])
async def test_headers_that_are_no_strings_are_refused_and_nothing_is_stored(
    bench: Bench, wrong: Any
) -> None:
    async with bench.open() as q:
        with pytest.raises(TypeError, match="dict of strings to strings"):
            await q.put(b"a", headers=wrong)
        assert len(q) == 0


async def test_headers_up_to_every_limit_are_kept(bench: Bench) -> None:
    assert HEADERS_BYTES_MAX - 250 < len(encode_headers(LARGEST)) <= HEADERS_BYTES_MAX
    async with bench.open() as q:
        await q.put(b"a", headers=LARGEST)
        await q.put(b"b", headers={"v": "é" * (HEADER_VALUE_BYTES_MAX // 2)})
        await q.put(b"c", headers={})
    async with bench.open() as q:
        found = [record.headers async for record in q.browse()]
    assert found == [LARGEST, {"v": "é" * 256}, {}]


def test_what_the_queue_adds_itself_is_not_bound_by_the_limits_of_a_put() -> None:
    own = {f"fifoq.{n}": "v" * 1000 for n in range(20)}
    assert decode_headers(encode_own_headers(own)) == own


@given(st.dictionaries(st.text(max_size=70), st.text(max_size=600), max_size=20))
def test_headers_are_refused_or_come_back_as_they_were(headers: dict[str, str]) -> None:
    try:
        encoded = encode_headers(headers)
    except ValueError:
        return
    assert decode_headers(encoded) == headers
    assert len(encoded) <= HEADERS_BYTES_MAX
