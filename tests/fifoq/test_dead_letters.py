"""Dead letters: listed, replayed, purged, beside whoever takes them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import msgspec
import pytest

from actors.testing import settle
from fifoq import DeadLetters, DiskFull, InvalidName, Key, Queue, Store
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench, Cuts, SmallDisk, cancelled, drained, started

pytestmark = pytest.mark.anyio


async def with_letters(
    store: Store, *items: bytes, **options: Any
) -> tuple[Queue[bytes], DeadLetters]:
    """A queue of which these records were rejected."""
    orders = await store.queue("orders", **options)
    for item in items:
        await orders.put(item, headers={"from": "web"})
        await (await orders.lease()).reject(f"{item.decode()} is bad")
    return orders, await store.dead_letters("orders")


async def test_they_are_listed_with_what_is_known(bench: Bench) -> None:
    async with bench.open_store() as store:
        _, letters = await with_letters(store, b"a", b"b", b"c")
        assert (len(letters), repr(letters)) == (3, "<DeadLetters of 'orders' 3>")
        first, second, third = await letters.list()
        assert (first.payload, first.headers, first.queue) == (b"a", {"from": "web"}, "orders")
        assert (first.key.counter, first.original_key.counter) == (1, 1)
        assert (second.cause, second.reason, second.attempts) == ("rejected", "b is bad", 1)
        assert second.time >= second.original_key.timestamp
        assert await letters.list(start=2, count=1) == [second]
        assert await letters.list(start=4) == []
        assert await letters.get(3) == third
        assert await letters.get(4) is None
        for wrong in (0, 1001):
            with pytest.raises(ValueError, match="is not one of 1 to 1000"):
                await letters.list(count=wrong)


async def test_what_somebody_put_there_is_listed_too(bench: Bench) -> None:
    async with bench.open_store() as store:
        dlq = await store.queue("orders.dlq", durability="memory")
        await dlq.put(b"by hand")
        letters = await store.dead_letters("orders")
        [letter] = await letters.list()
        assert (letter.cause, letter.original_key, letter.queue) == ("", letter.key, "orders")
        assert await letters.replay() == 1
        assert await drained(await store.queue("orders")) == [b"by hand"]


async def test_one_some_and_all_are_replayed(bench: Bench) -> None:
    async with bench.open_store() as store:
        items = [b"%d" % i for i in range(8)]
        orders, letters = await with_letters(store, *items, maxsize=5)
        listed = await letters.list()
        assert await letters.replay(3, 99, dry_run=True) == 1
        assert await letters.replay(dry_run=True) == 8
        assert (len(letters), len(orders)) == (8, 0)
        assert await letters.replay(3) == 1
        assert await letters.replay(3) == 0
        assert await letters.replay(8, 1, 2, 2) == 3
        assert await letters.replay() == 4
        assert (len(letters), len(orders)) == (0, 8)
        delivery = await orders.lease()
        assert (delivery.item, delivery.attempt, delivery.key.counter) == (b"2", 1, 9)
        original = bytes(listed[2].original_key).hex()
        assert delivery.headers == {"from": "web", "fifoq.original_key": original}
        await delivery.reject("bad again")
        [again] = await letters.list()
        assert again.original_key == delivery.key
        assert again.headers["fifoq.original_key"] == original
        await letters.replay()
        assert (await drained(orders)) == [b"0", b"1", b"7", b"3", b"4", b"5", b"6", b"2"]


async def test_they_are_purged(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, letters = await with_letters(store, b"a", b"b", b"c", b"d")
        assert await letters.purge(2, dry_run=True) == 1
        assert await letters.purge(2, 3) == 2
        assert [letter.payload for letter in await letters.list()] == [b"a", b"d"]
        assert await letters.purge() == 2
        assert (len(letters), len(orders)) == (0, 0)
        assert letters.queue.stats().total_take_count == 4
    async with bench.open_store() as store:
        assert len(await store.dead_letters("orders")) == 0


async def test_each_is_one_frame(bench: Bench) -> None:
    async with bench.open_store() as store:
        _, letters = await with_letters(store, *[b"%d" % i for i in range(20)])
        log = store._committer.log
        assert log is not None
        before = log.sequence
        await letters.replay(1, 2, 9)
        assert log.sequence == before + 1
        await letters.replay()
        assert log.sequence == before + 2


async def test_wrong_names_and_counters_are_told(bench: Bench) -> None:
    async with bench.open_store() as store:
        with pytest.raises(ValueError, match="holds dead letters itself"):
            await store.dead_letters("orders.dlq")
        with pytest.raises(InvalidName):
            await store.dead_letters("Orders!")
        letters = await store.dead_letters("orders")
        with pytest.raises(TypeError, match="not a whole number"):
            await letters.replay(cast(Any, "1"))
        with pytest.raises(ValueError, match="below 1"):
            await letters.purge(0)
        assert await letters.replay() == await letters.purge(7) == 0


async def test_dead_letters_of_a_typed_queue_are_of_its_type(bench: Bench) -> None:
    class Order(msgspec.Struct):
        name: str

    async with bench.open_store() as store:
        orders = await store.queue("orders", type=Order)
        await orders.put(Order("tea"))
        await (await orders.lease()).reject()
        letters = await store.dead_letters("orders")
        assert await letters.queue.peek() == Order("tea")
        assert await letters.replay() == 1
        assert await orders.take() == Order("tea")


# Beside whoever takes them.


async def test_what_is_leased_stays_with_who_leased_it(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, letters = await with_letters(store, b"a", b"b", b"c", b"d")
        dlq = letters.queue
        leased, nacked = await dlq.lease(), await dlq.lease()
        nacked.nack(delay=60)
        assert await letters.replay(1, 2, 4, dry_run=True) == 2
        assert await letters.replay(1, 2, 4) == 2
        assert await drained(orders) == [b"b", b"d"]
        assert (len(dlq), dlq.stats().leased) == (2, 1)
        assert await dlq.take() == b"c"
        assert await leased.ack()
        assert len(dlq) == 0


@pytest.mark.parametrize("priorities", [False, True])
async def test_what_waits_is_replayed_and_comes_back_if_not(
    disk: SmallDisk, priorities: bool
) -> None:
    """For its time, for its next attempt, for its ordering key; in lanes and without."""
    async with disk.open_store() as store:
        dlq = await store.queue("orders.dlq", priorities=priorities)
        big = b"x" * 200_000
        await dlq.put(b"nacked" + big)
        for item in (b"key 1", b"key 2"):
            await dlq.put(item + big, ordering_key="k")
        await dlq.put(b"delayed" + big, delay=30)
        await dlq.put(b"plain" + big)
        letters = await store.dead_letters("orders")
        (await dlq.lease()).nack(delay=10)
        out = await dlq.lease()
        assert out.item == b"key 1" + big
        assert (await dlq.lease()).item == b"plain" + big
        # The second one of its key was passed by.
        disk.fill()
        with pytest.raises(DiskFull):
            await letters.replay()
        await settle()
        assert (len(dlq), dlq.stats().leased) == (5, 2)
        disk.empty()
        back = await started(dlq.take())
        assert await back == b"nacked" + big
        assert await letters.replay(1, 2, 3, 4) == 2
        orders = await store.queue("orders")
        assert [item[:7] for item in await drained(orders)] == [b"key 2xx", b"delayed"]
        await out.ack()
        await asyncio.sleep(60)
        assert await dlq.take() == b"plain" + big
        assert len(dlq) == 0


async def test_nobody_takes_what_is_being_replayed(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, letters = await with_letters(store, b"a", b"b", b"c")
        bench.runner.hold()
        replaying = await started(letters.replay(1, 3))
        await bench.step()
        # The first is picked, the other is not yet; and takers read from disk what they lack.
        taking = await started(letters.queue.take())
        bench.runner.let_go()
        assert (await taking, await replaying) == (b"b", 2)
        assert (len(letters), await drained(orders)) == (0, [b"a", b"c"])


async def test_remove_upto_does_not_count_what_is_replayed(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, letters = await with_letters(store, b"a", b"b", b"c", b"d")
        bench.runner.hold()
        replaying = await started(letters.replay(2))
        await bench.step()
        removing = await started(letters.queue.remove_upto(4))
        bench.runner.let_go()
        assert (await replaying, await removing) == (1, 3)
        assert (len(letters), len(orders)) == (0, 1)


@pytest.mark.parametrize("seed", range(6))
async def test_any_mix_of_picking_and_taking_keeps_the_order(seed: int) -> None:
    random = Random(seed)
    disk = SmallDisk()
    expected: list[bytes] = []
    async with disk.open_store() as store:
        letters = await store.dead_letters("orders")
        dlq = letters.queue
        dlq.configure(durability=random.choice(("memory", "sync")))
        orders = await store.queue("orders")
        counters: dict[bytes, int] = {}
        number = 0
        for _ in range(60):
            action = random.randrange(6)
            if action < 2:
                items = [b"%d" % (number + i) for i in range(random.randint(1, 6))]
                number += len(items)
                keys = await dlq.put_many(items)
                counters.update((i, k.counter) for i, k in zip(items, keys, strict=True))
                expected += items
            elif action == 2 and expected:
                assert await dlq.take() == expected.pop(0)
            elif action == 3 and expected:
                deliveries = [await dlq.lease() for _ in range(min(3, len(expected)))]
                assert [delivery.item for delivery in deliveries] == expected[:3]
                for delivery in random.sample(deliveries, len(deliveries)):
                    delivery.nack(delay=0)
            elif action == 4 and expected:
                chosen = random.sample(expected, min(len(expected), 2))
                wanted = [counters[item] for item in chosen]
                assert await letters.replay(*wanted) == len(chosen)
                expected = [item for item in expected if item not in chosen]
                assert sorted(await drained(orders)) == sorted(chosen)
            elif action == 5 and expected:
                await dlq.flush()
                wanted = [counters[item] for item in random.sample(expected, 1)]
                disk.runner.hold()
                replaying = await started(letters.replay(*wanted))
                for _ in range(random.randint(0, 1)):
                    await disk.step()
                waiting = [await started(dlq.take())] if random.random() < 0.5 else []
                await cancelled(replaying)
                disk.runner.let_go()
                await settle()
                await store.flush()
                await settle()
                taken = [task.result() for task in waiting if task.done()]
                if waiting and not taken:
                    # There was only the one that was replayed.
                    await cancelled(waiting[0])
                left = [record.item async for record in dlq.browse()]
                for item in await drained(orders):
                    expected.remove(item)
                for item in taken:
                    expected.remove(item)
                assert sorted(left) == sorted(expected)
            assert len(dlq) == len(expected)
        assert await drained(dlq) == expected


# Trouble.


async def test_a_full_disk_leaves_them_where_they_are(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        big = b"x" * 1_200_000
        orders = await store.queue("orders")
        for item in (b"a", big, b"c"):
            await orders.put(item)
            await (await orders.lease()).reject()
        letters = await store.dead_letters("orders")
        disk.fill()
        with pytest.raises(DiskFull):
            await letters.replay(2)
        await settle()
        assert (len(letters), len(orders)) == (3, 0)
        assert await letters.purge(3) == 1
        assert await letters.queue.take() == b"a"
        assert await letters.queue.take() == big
        disk.empty()


async def test_whoever_leaves_a_replay_leaves_it_done_or_not_begun() -> None:
    outcomes = set()
    for steps in range(24):
        bench = Bench()
        async with bench.open_store() as store:
            orders, letters = await with_letters(store, b"a", b"b", b"c")
            bench.runner.hold()
            replaying = asyncio.ensure_future(letters.replay(1, 3))
            for step in range(steps):
                await asyncio.sleep(0)
                if step % 3 == 2:
                    bench.runner.step()
            replaying.cancel()
            await settle()
            bench.runner.let_go()
            await settle()
            await store.flush()
            found = (tuple(await drained(orders)), tuple(await drained(letters.queue)))
            outcomes.add(found)
            assert letters.queue.stats().leased == 0
    assert outcomes == {((), (b"a", b"b", b"c")), ((b"a", b"c"), (b"b",))}


async def test_the_power_cut_at_every_call_leaves_each_in_one_place(bench: Bench) -> None:
    async def found(disk: SimFiles) -> tuple[list[bytes], list[bytes]]:
        async with Bench(disk).open_store() as again:
            letters = await again.dead_letters("orders")
            return await drained(await again.queue("orders")), await drained(letters.queue)

    async with bench.open_store() as store:
        _, letters = await with_letters(store, b"a", b"b", b"c")
        with Cuts(bench.files) as cuts:
            await letters.replay(1, 3)
        outcomes = [await found(disk) for disk in cuts.disks]
        either: list[tuple[list[bytes], list[bytes]]] = [
            ([], [b"a", b"b", b"c"]),
            ([b"a", b"c"], [b"b"]),
        ]
        assert all(state in outcomes for state in either)
        assert all(outcome in either for outcome in outcomes)


def test_a_key_goes_through_its_header() -> None:
    key = Key(7, 2**63)
    assert Key.from_bytes(bytes.fromhex(bytes(key).hex())) == key


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()
