"""Expiry: nobody gets a record that is too old; it is removed by whoever comes to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.testing import settle
from fifoq import QueueClosed, QueueEmpty
from fifoq.options import Durability
from tests.fifoq.support import Bench, drained, fake_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")
SECOND = 1_000_000_000


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_is_too_old_is_passed_by_and_counted(
    bench: Bench, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(durability=durability) as q:
        await q.put(b"a", ttl=10)
        await q.put(b"b")
        await q.put(b"c", ttl=20)
        now[0] += 10 * SECOND
        assert await q.peek() == b"b"
        assert (len(q), q.stats().expired) == (2, 1)
        assert await q.take() == b"b"
        now[0] += 10 * SECOND
        with pytest.raises(QueueEmpty):
            q.take_nowait()
        assert (len(q), q.stats().expired) == (0, 2)
    # However young it looks to the next owner.
    now[0] -= 20 * SECOND
    async with bench.open() as q:
        assert len(q) == 0


@pytest.mark.parametrize("durability", LEVELS)
async def test_thousands_that_expired_in_a_row_go_in_one_step(
    bench: Bench, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One range for a commit, and nobody is woken for each; one with a key is a step of its own."""
    now = fake_time(monkeypatch)
    loop = asyncio.get_running_loop()
    calls = 0
    call_soon = loop.call_soon

    def counted(*given: Any, **more: Any) -> asyncio.Handle:
        nonlocal calls
        calls += 1
        return call_soon(*given, **more)

    async with bench.open(durability=durability) as q:
        await q.put_many([b"old"] * 3000, ttl=10)
        await q.put(b"keyed", ttl=10, ordering_key="k")
        await q.put_many([b"old"] * 2000, ttl=10)
        await q.put(b"young")
        await q.flush()
        now[0] += 10 * SECOND
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon", counted)
            assert await q.peek() == b"young"
        assert calls < 50
        assert len(q.expired) <= 3
        assert (len(q), q.stats().expired) == (1, 5001)
        assert await q.take() == b"young"
    # However young they look to the next owner.
    now[0] -= 10 * SECOND
    async with bench.open() as q:
        assert (len(q), q.stats().total_put_count) == (0, 5002)


async def test_a_row_of_expired_records_ends_where_one_is_young(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(durability="memory") as q:
        for item, ttl in ((b"a", 10), (b"b", 10), (b"c", 20), (b"d", 10), (b"e", None)):
            await q.put(item, ttl=ttl)
        now[0] += 10 * SECOND
        assert (await q.peek(), q.stats().expired) == (b"c", 2)
        assert await drained(q) == [b"c", b"e"]
        assert q.stats().expired == 3


async def test_a_record_in_time_is_handed_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", ttl=10)
        now[0] += 10 * SECOND - 1
        async with q.lease() as delivery:
            # Whoever has it may finish.
            now[0] += 60 * SECOND
            assert delivery.item == b"a"
        assert not len(q)


@pytest.mark.parametrize("leasing", [False, True])
async def test_what_expired_on_disk_is_never_handed_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, leasing: bool
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put_many([b"old"] * 3000, ttl=10)
        await q.put_many([b"a", b"b"])
        await q.put_many([b"young"], ttl=60)
    now[0] += 30 * SECOND
    bench.crash()
    async with bench.open(statistics=True) as q:
        if leasing:
            async with q.lease() as delivery:
                assert delivery.item == b"a"
        else:
            assert await q.take() == b"a"
        assert q.stats().expired == 3000
        assert await drained(q) == [b"b", b"young"]
    async with bench.open() as q:
        assert len(q) == 0
        assert q.stats().total_take_count == q.stats().total_put_count == 3003


async def test_a_time_to_live_begins_when_the_delay_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", delay=60, ttl=10)
        await asyncio.sleep(60.1)
        now[0] += 69 * SECOND
        assert await q.peek() == b"a"
        now[0] += 2 * SECOND
        assert await q.peek() is None
        assert not len(q)


async def test_room_of_what_expired_is_given_to_those_who_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(maxsize=1) as q:
        await q.put(b"a", ttl=10)
        putting = await started(q.put(b"b"))
        now[0] += 11 * SECOND
        taking = await started(q.take())
        await settle()
        assert putting.done()
        assert await taking == b"b"


async def test_a_queue_that_is_shut_down_ends_when_the_rest_has_expired(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", ttl=10)
        q.shutdown()
        now[0] += 11 * SECOND
        with pytest.raises(QueueClosed, match="is empty"):
            await q.take()


async def test_a_nacked_record_expires_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open() as q:
        await q.put(b"a", ttl=10)
        delivery = await q.lease()
        now[0] += 11 * SECOND
        delivery.nack(delay=0)
        assert await q.peek() is None
        assert (len(q), q.stats().expired) == (0, 1)


async def test_bytes_of_what_expired_are_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(max_bytes=100) as q:
        await q.put(b"x" * 90, ttl=1)
        now[0] += 2 * SECOND
        assert await q.peek() is None
        await q.put(b"y" * 100)
        assert await q.take() == b"y" * 100


@pytest.mark.parametrize("durability", LEVELS)
async def test_what_expired_may_go_to_the_dead_letters(
    bench: Bench, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open_store() as store:
        q = await store.queue("jobs", durability=durability, on_expire="dlq")
        await q.put(b"a", ttl=10, headers={"k": "v"}, ordering_key="x")
        await q.put(b"b")
        now[0] += 11 * SECOND
        assert await q.take() == b"b"
        await q.flush()
        assert (len(q), q.stats().expired, q.stats().dead_lettered) == (0, 1, 1)
        letters = await store.queue("jobs.dlq")
        async with letters.lease() as letter:
            assert letter.item == b"a"
            assert letter.headers["k"] == "v"
            assert letter.headers["fifoq.dlq.cause"] == "expired"


async def test_what_expired_on_disk_goes_to_the_dead_letters_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open_store() as store:
        q = await store.queue("jobs", on_expire="dlq")
        await q.put_many([b"a", b"b"], ttl=10)
    bench.crash()
    now[0] += 11 * SECOND
    async with bench.open_store() as store:
        q = await store.queue("jobs")
        assert await q.peek() is None
        await q.flush()
        assert await drained(await store.queue("jobs.dlq")) == [b"a", b"b"]
        assert not len(q)
