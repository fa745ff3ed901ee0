"""What stats tell those who only look: services that ask before they put, and other processes."""

from __future__ import annotations

import asyncio
from inspect import Parameter, signature
from pathlib import Path

import pytest

import fifoq
from fifoq.attributes import KEYWORDS, PutKeywords, attributes_from
from fifoq.options import Durability


@pytest.mark.parametrize("durability", ["memory", "os", "sync"])
def test_the_high_water_mark_of_a_commit_is_never_below_its_size(
    tmp_path: Path, durability: Durability
) -> None:
    """Marks were those seen in memory before the commit, and its own records were not among them.

    A reader in another process was told of a queue with 15 records that never had more than 14.
    """

    async def run() -> None:
        async with fifoq.open(tmp_path, durability=durability) as q:
            for count in (1, 3, 2, 5):
                await q.put_many([b"x"] * count)
                await q.flush()
                async with fifoq.open_store(tmp_path, read_only=True) as store:
                    seen = await (await store.queue("main")).stats()
                assert seen.high_water_mark is not None
                assert seen.high_water_mark >= seen.current_size
            assert q.stats().high_water_mark == 11

    asyncio.run(run())


def test_the_low_water_mark_of_a_commit_is_never_above_its_size(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            await q.put_many([b"x"] * 5)
            for _ in range(5):
                await q.take()
        async with fifoq.open_store(tmp_path, read_only=True) as store:
            seen = await (await store.queue("main")).stats()
        assert (seen.current_size, seen.low_water_mark, seen.high_water_mark) == (0, 0, 5)

    asyncio.run(run())


def test_stats_tell_pressure_to_one_who_never_waits_and_that_it_has_gone(tmp_path: Path) -> None:
    """It was noticed by puts alone: a service that refused because of it never heard of its end."""

    async def run() -> None:
        async with fifoq.open(tmp_path, pressure_high=4, pressure_low=2) as q:
            for _ in range(4):
                assert not q.stats().under_pressure
                await q.submit(b"x")
            assert q.stats().under_pressure
            await q.take()
            assert q.stats().under_pressure
            await q.take()
            assert not q.stats().under_pressure

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"maxsize": 3},
            "'maxsize' is an option of a queue: give it to store.queue, or to fifoq.open. Nothing "
            "was changed.",
        ),
        (
            {"segmentbytes": 3},
            "unknown store option 'segmentbytes'; there are segment_bytes, segment_records, "
            "segment_seconds, sync_interval, sync_every, cursor_cap_bytes. Nothing was changed.",
        ),
    ],
)
def test_a_wrong_option_of_a_store_is_told_with_where_it_belongs(
    tmp_path: Path, options: dict[str, int], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        fifoq.open_store(tmp_path / "store", **options)  # type: ignore[call-overload]
    assert str(caught.value) == message
    assert not (tmp_path / "store").exists()


def test_a_wrong_keyword_of_put_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            with pytest.raises(TypeError) as caught:
                await q.put(b"x", prio=1)  # type: ignore[call-arg]
            assert str(caught.value) == (
                "put takes durability, headers, delay, deliver_at, ttl, priority, ordering_key, "
                "dedup_id, not 'prio'. Nothing was stored."
            )
            assert q.empty()

    asyncio.run(run())


def test_a_receipt_tells_its_record_and_outcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as q:
            receipt, other = q.submit(b"x"), q.submit(b"y")
            assert repr(receipt) == "<Receipt 1 pending>"
            assert other.withdraw()
            await receipt
            assert repr(receipt) == "<Receipt 1 committed>"
            assert repr(other) == "<Receipt 2 withdrawn>"

    asyncio.run(run())


async def left_by(path: Path) -> list[bytes]:
    async with fifoq.open(path) as q:
        return [record.item async for record in q.browse()]


@pytest.mark.parametrize("durability", ["memory", "sync"])
def test_a_record_of_another_type_is_refused_by_every_call_and_stays(
    tmp_path: Path, durability: Durability
) -> None:
    """It was removed first and decoded then: whoever opened with a wrong type lost the record."""

    async def run() -> None:
        async with fifoq.open(tmp_path) as plain:
            await plain.put(b"not msgpack")
        async with fifoq.open(tmp_path, type=int, durability=durability) as q:
            for call in (q.take, q.peek, lambda: q.take_many(5), lambda: q.lease(timeout=1.0)):
                with pytest.raises(fifoq.SchemaMismatch) as caught:
                    await call()
                assert str(caught.value).startswith(
                    "queue 'main': the oldest record is not of the queue's type ("
                )
                assert str(caught.value).endswith(
                    "Nothing was changed. Open the queue without a type to take its bytes."
                )
            with pytest.raises(fifoq.SchemaMismatch):
                q.take_nowait()
            with pytest.raises(fifoq.SchemaMismatch):
                q.take_record_nowait()
            assert (len(q), q.stats().leased) == (1, 0)
        assert await left_by(tmp_path) == [b"not msgpack"]

    asyncio.run(run())


def test_many_records_are_taken_up_to_the_one_of_another_type(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path, type=int) as q:
            await q.put_many([1, 2])
        async with fifoq.open(tmp_path) as plain:
            await plain.put(b"not msgpack")
        async with fifoq.open(tmp_path, type=int) as q:
            assert await q.take_many(5) == [1, 2]
            with pytest.raises(fifoq.SchemaMismatch):
                await q.take_many(5)
        assert await left_by(tmp_path) == [b"not msgpack"]

    asyncio.run(run())


def test_every_taker_is_told_of_a_record_of_another_type(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open(tmp_path) as plain:
            await plain.put_many([b"not msgpack"])
        async with fifoq.open(tmp_path, type=int, durability="memory") as q:
            takers = [asyncio.create_task(q.take(timeout=30.0)) for _ in range(3)]
            outcomes = await asyncio.gather(*takers, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [fifoq.SchemaMismatch] * 3

    asyncio.run(run())


def test_the_keywords_that_type_checkers_see_are_those_that_a_put_takes() -> None:
    parameters = signature(attributes_from).parameters.values()
    taken = {known.name for known in parameters if known.kind is Parameter.KEYWORD_ONLY}
    # Those two are more than an attribute of the record.
    assert set(PutKeywords.__annotations__) == {*taken, "durability", "dedup_id"}
    assert set(KEYWORDS) == set(PutKeywords.__annotations__)
