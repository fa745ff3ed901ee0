"""Retries: what was nacked waits for its next attempt, longer each time."""

from __future__ import annotations

import asyncio

import pytest

from actors.testing import settle
from fifoq import StaleLease, jobs, line
from fifoq.lease import Leases
from tests.fifoq.support import Bench, drained, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_nacked_record_waits_and_others_pass(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability, retry_backoff=4) as q:
        await q.put_many([b"a", b"b"])
        delivery = await q.lease()
        delivery.nack()
        assert (len(q), q.stats().ready, q.stats().delayed) == (2, 1, 1)
        assert await q.take() == b"b"
        again = await started(q.lease())
        await asyncio.sleep(1.9)
        assert not again.done()
        await asyncio.sleep(2.2)
        delivery = await again
        assert (delivery.item, delivery.attempt) == (b"a", 2)


async def test_each_wait_is_about_twice_as_long_up_to_a_limit(bench: Bench) -> None:
    async with bench.open(retry_backoff=1, retry_backoff_max=10) as q:
        leases: Leases[bytes] = q.leasing
        for attempt, longest in enumerate((1, 2, 4, 8, 10, 10), 1):
            waits = [leases._backoff(attempt) for _ in range(200)]
            assert longest / 2 <= min(waits) < longest * 0.6
            assert longest * 0.9 < max(waits) <= longest
        assert leases._backoff(10_000) <= 10


async def test_no_backoff_brings_the_record_back_at_once(bench: Bench) -> None:
    async with bench.open(retry_backoff=0) as q:
        await q.put_many([b"a", b"b"])
        (await q.lease()).nack()
        assert (await q.lease()).item == b"a"


async def test_a_nack_may_say_how_long(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
        delivery = await q.lease()
        delivery.nack(delay=600)
        with pytest.raises(StaleLease):
            delivery.nack(delay=1)
        await asyncio.sleep(599)
        assert await q.take() == b"b"
        assert await q.take(timeout=1.1) == b"a"


async def test_a_negative_delay_changes_nothing(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        delivery = await q.lease()
        with pytest.raises(ValueError, match="delay=-1 is not 0 or more"):
            delivery.nack(delay=-1)
        assert await delivery.ack()


async def test_an_exception_in_the_block_waits_as_a_nack_does(bench: Bench) -> None:
    async with bench.open(retry_backoff=4) as q:
        await q.put(b"a")
        with pytest.raises(RuntimeError):
            async with q.lease():
                raise RuntimeError
        assert q.stats().delayed == 1
        assert await q.take(timeout=4.1) == b"a"


async def test_an_expired_lease_and_a_reopen_bring_it_back_at_once(bench: Bench) -> None:
    async with bench.open(lease_seconds=5) as q:
        await q.put_many([b"a", b"b"])
        await q.lease()
        await asyncio.sleep(5.1)
        delivery = await q.lease()
        assert (delivery.item, delivery.attempt) == (b"a", 2)
        delivery.nack(delay=3600)
    async with bench.open() as q:
        delivery = await q.lease()
        assert (delivery.item, delivery.attempt) == (b"a", 3)


async def test_a_strict_queue_waits_with_the_record(bench: Bench) -> None:
    async with bench.open(strict=True) as q:
        await q.put_many([b"a", b"b", b"c"])
        first, second = await q.lease(), await q.lease()
        second.nack(delay=5)
        first.nack(delay=0)
        assert (await q.lease()).item == b"a"
        waiting = await started(q.lease())
        await asyncio.sleep(4.9)
        assert not waiting.done()
        assert await q.peek() is None
        await asyncio.sleep(0.2)
        assert (await waiting).item == b"b"
        assert (await q.lease()).item == b"c"


async def test_a_strict_queue_goes_on_when_the_wait_is_over(bench: Bench) -> None:
    async with bench.open(strict=True, durability="memory") as q:
        await q.put_many([b"a", b"b", b"c"])
        (await q.lease()).nack(delay=5)
        taking = await started(drained(q))
        await settle()
        assert not taking.done()
        assert await taking == [b"a", b"b", b"c"]


@pytest.mark.parametrize("durability", ["memory", "os", "sync"])
async def test_behind_a_record_that_waits_a_strict_queue_reads_no_more_than_it_must(
    bench: Bench, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest stays on disk, whoever waits for it; and a look at it does not wait."""
    monkeypatch.setattr(line, "CACHE_BYTES_MAX", 0)
    monkeypatch.setattr(jobs, "READ_RECORDS", 4)
    items = [b"%03d" % number for number in range(100)]
    async with bench.open(strict=True, durability=durability) as q:
        for item in items:
            await q.put(item)
            await q.flush()
        (await q.lease()).nack(delay=60)
        taking = await started(q.take())
        async with asyncio.timeout(30):
            assert await q.peek() is None
        assert not taking.done()
        assert sum(len(run.payloads) for run in q.chunks) + len(q.ready) <= 16
        assert await taking == items[0]
        assert await drained(q) == items[1:]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
async def test_a_take_that_is_given_up_forgets_no_attempts(
    bench: Bench, sealed: bool, reopened: bool
) -> None:
    """The count began anew: a record that kills its consumers was tried for ever."""
    async with bench.open() as q:
        await q.put(b"a")
        (await q.lease()).nack(delay=0)
        bench.runner.hold()
        taking = await started(q.take())
        if not sealed:
            taking.cancel()
        await settle()
        taking.cancel()
        await settle()
        bench.runner.let_go()
        await q.flush()
        if not reopened:
            assert (await q.lease()).attempt == 2
    if reopened:
        bench.crash()
        async with bench.open() as q:
            assert (await q.lease()).attempt == 2
