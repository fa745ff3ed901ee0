"""Arguments that make no sense: the error names them, and nothing was leased, taken or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fifoq.sync
from tests.fifoq.support import Bench, drained

pytestmark = pytest.mark.anyio

NO_SECONDS = "is not a number of seconds. Nothing was"
INF, NAN = float("inf"), float("nan")


def wrong(value: object) -> Any:
    """The value, past the type checker."""
    return value


@pytest.mark.parametrize("durability", ["memory", "sync"])
async def test_a_wrong_lease_leases_nothing(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b"])
        for value in ("1", True, b"1"):
            with pytest.raises(TypeError, match=f"seconds={value!r} {NO_SECONDS} leased"):
                await q.lease(seconds=wrong(value))
            with pytest.raises(TypeError, match=f"seconds={value!r} {NO_SECONDS} leased"):
                await q.lease_many(2, seconds=wrong(value))
            with pytest.raises(TypeError, match=f"timeout={value!r} {NO_SECONDS} leased"):
                await q.lease(timeout=wrong(value))
            with pytest.raises(TypeError, match=f"timeout={value!r} {NO_SECONDS} leased"):
                await q.lease_many(2, timeout=wrong(value))
            with pytest.raises(TypeError, match=f"count={value!r} is not a whole number. Nothing"):
                await q.lease_many(wrong(value))
        for seconds in (0, -1, INF, NAN):
            with pytest.raises(ValueError, match=f"seconds={seconds} is not above 0.*was leased"):
                await q.lease(seconds=seconds)
        assert q.stats().leased == 0
        assert [(await q.lease()).attempt, (await q.lease()).attempt] == [1, 1]


@pytest.mark.parametrize("durability", ["memory", "sync"])
async def test_a_wrong_take_takes_nothing(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put_many([b"a", b"b"])
        for value in ("x", True):
            with pytest.raises(TypeError, match=f"timeout={value!r} {NO_SECONDS} taken"):
                await q.take(timeout=wrong(value))
            with pytest.raises(TypeError, match=f"count={value!r} is not a whole number. Nothing"):
                await q.take_many(wrong(value))
        with pytest.raises(ValueError, match=r"count=0 is below 1\. Nothing was taken"):
            await q.take_many(0)
        assert await drained(q) == [b"a", b"b"]


@pytest.mark.parametrize("durability", ["memory", "sync"])
async def test_a_wrong_end_of_a_lease_changes_nothing(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        await q.put(b"a")
        delivery = await q.lease()
        deadline = delivery.deadline
        for value in ("x", True):
            with pytest.raises(TypeError, match=f"delay={value!r} {NO_SECONDS} changed"):
                delivery.nack(delay=wrong(value))
            with pytest.raises(TypeError, match=f"seconds={value!r} {NO_SECONDS} changed"):
                delivery.extend(wrong(value))
        for seconds in (-1, INF, NAN):
            with pytest.raises(ValueError, match=f"delay={seconds} is not 0 or more.*was changed"):
                delivery.nack(delay=seconds)
            with pytest.raises(ValueError, match=f"seconds={seconds} is not above 0.*was changed"):
                delivery.extend(seconds)
        with pytest.raises(TypeError, match=r"deliveries has 1, which is not a Delivery\. Nothing"):
            await q.ack_many([delivery, wrong(1)])
        assert (delivery.state, delivery.deadline, q.stats().leased) == ("leased", deadline, 1)
        assert await delivery.ack()


@pytest.mark.parametrize("name", ["ordering_key", "dedup_id"])
async def test_text_that_no_file_holds_is_refused(bench: Bench, name: str) -> None:
    async with bench.open() as q:
        with pytest.raises(ValueError) as caught:
            await q.put(b"a", **wrong({name: "\ud800"}))
        assert str(caught.value) == (
            f"{name} has a lone surrogate, which no file holds. Nothing was stored."
        )
        assert len(q) == 0


async def test_a_wrong_timeout_of_a_cursor_takes_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        cursor = await q.cursor("reader")
        await q.put(b"a")
        for value in ("1", True, b"1"):
            with pytest.raises(TypeError, match=f"timeout={value!r} {NO_SECONDS} taken"):
                await cursor.take(timeout=wrong(value))
            with pytest.raises(TypeError, match=f"timeout={value!r} {NO_SECONDS} leased"):
                await cursor.lease(timeout=wrong(value))
        assert await cursor.take(timeout=1) == b"a"


async def test_the_blocking_face_names_what_is_wrong_as_well(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as q:
        q.put(b"a")
        with pytest.raises(TypeError, match=f"timeout='x' {NO_SECONDS} taken"):
            q.take(timeout=wrong("x"))
        with pytest.raises(TypeError, match="deliveries has 1, which is not a Delivery"):
            q.ack_many([wrong(1)])
        with pytest.raises(TypeError, match=f"timeout='x' {NO_SECONDS} taken"):
            q.cursor("reader").take(timeout=wrong("x"))
        assert q.take() == b"a"
