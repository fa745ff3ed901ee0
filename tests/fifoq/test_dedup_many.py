"""Ids of puts that come together: in transactions, in `put_many`, and in staged files."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import fifoq.sync
from actors.testing import settle
from fifoq import DiskFull, Key, Keys, Queue, QueueFull, Store
from fifoq.attributes import Attributes
from fifoq.testing.simfiles import SimFiles
from store.blocks import DEDUP_ID
from tests.fifoq.support import Bench, Cuts, SmallDisk, cancelled, drained, fake_time, started
from tests.fifoq.test_staged_intake import STAGED, hand_over, names, on_a_loop, store_id
from tests.support.staging import staged_batch

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


class NoLuck(Exception):
    pass


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


async def two_queues(store: Store, **options: Any) -> tuple[Queue[bytes], Queue[bytes]]:
    return await store.queue("one", **options), await store.queue("two", **options)


def ids(**by_payload: str) -> dict[bytes, Attributes]:
    return {p.encode(): Attributes(dedup_id=id.encode()) for p, id in by_payload.items()}


# Transactions.


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_transaction_stores_nothing_for_an_id_that_was_put_and_has_the_first_key(
    bench: Bench, durability: str
) -> None:
    async with bench.open_store() as store:
        one, two = await two_queues(store, durability=durability)
        first = await one.put(b"a", dedup_id="1")
        async with store.transaction() as tx:
            tx.put(one, b"again", dedup_id="1")
            tx.put(one, b"b", dedup_id="2")
            tx.put(one, b"b again", dedup_id="2")
            tx.put(two, b"c", dedup_id="1")
            tx.put(one, b"plain")
        assert tx.keys[0] == first
        assert tx.keys[1] == tx.keys[2]
        assert [key.counter for key in tx.keys] == [1, 2, 2, 1, 3]
        assert await one.put(b"later", dedup_id="2") == tx.keys[1]
        assert await two.put(b"later", dedup_id="1") == tx.keys[3]
        assert (one.stats().duplicates, one.stats().total_put_count) == (3, 3)
    async with bench.open_store() as store:
        one, two = await two_queues(store)
        async with store.transaction() as again:
            for queue, id in ((one, "1"), (one, "2"), (two, "1")):
                again.put(queue, b"x", dedup_id=id)
        assert again.keys == [tx.keys[0], tx.keys[1], tx.keys[3]]
        assert (await drained(one), await drained(two)) == ([b"a", b"b", b"plain"], [b"c"])


async def test_a_transaction_of_known_ids_alone_commits_what_else_it_does(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await two_queues(store)
        key = await two.put(b"done", dedup_id="order 1")
        await one.put(b"order 1")
        async with store.transaction() as tx:
            delivery = await tx.lease(one)
            tx.put(two, b"done", dedup_id="order 1")
            tx.ack(delivery)
        assert tx.keys == [key]
        async with store.transaction() as tx:
            tx.put(two, b"done", dedup_id="order 1")
        assert tx.keys == [key]
        assert (len(one), len(two)) == (0, 1)


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_transaction_that_is_rolled_back_leaves_no_id(
    bench: Bench, durability: str
) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store, durability=durability)

        async def fail() -> None:
            async with store.transaction() as tx:
                tx.put(one, b"a", dedup_id="1")
                raise NoLuck

        with pytest.raises(NoLuck):
            await fail()
        bench.runner.hold()
        blocker = await started(one.put(b"blocker", durability="os"))

        async def leave() -> None:
            async with store.transaction() as tx:
                tx.put(one, b"b", dedup_id="1")

        await cancelled(await started(leave()))
        bench.runner.let_go()
        await blocker
        key = await one.put(b"c", dedup_id="1")
        assert await one.put(b"d", dedup_id="1") == key
        assert await drained(one) == [b"blocker", b"c"]


async def test_a_put_that_comes_while_the_transaction_waits_is_the_first(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store)
        bench.runner.hold()
        blocker = await started(one.put(b"blocker"))

        async def commit() -> list[Key]:
            async with store.transaction() as tx:
                tx.put(one, b"second", dedup_id="1")
            return tx.keys

        waiting = await started(commit())
        first = await started(one.put(b"first", dedup_id="1"))
        bench.runner.let_go()
        await blocker
        assert await waiting == [await first]
        assert await drained(one) == [b"blocker", b"first"]


async def test_a_put_that_leaves_before_the_transaction_is_sealed_takes_its_id_along(
    bench: Bench,
) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store)
        bench.runner.hold()
        blocker = await started(one.put(b"blocker"))
        first = await started(one.put(b"first", dedup_id="1"))

        async def commit() -> list[Key]:
            async with store.transaction() as tx:
                tx.put(one, b"second", dedup_id="1")
            return tx.keys

        waiting = await started(commit())
        await cancelled(first)
        bench.runner.let_go()
        await blocker
        (key,) = await waiting
        assert await one.put(b"third", dedup_id="1") == key
        assert await drained(one) == [b"blocker", b"second"]


async def test_a_put_waits_for_the_transaction_that_was_first(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store)
        bench.runner.hold()

        async def commit() -> list[Key]:
            async with store.transaction() as tx:
                tx.put(one, b"first", dedup_id="1")
            return tx.keys

        waiting = await started(commit())
        second = await started(one.put(b"second", dedup_id="1"))
        assert not second.done()
        bench.runner.let_go()
        assert await waiting == [await second]
        assert await drained(one) == [b"first"]


async def test_a_transaction_that_a_full_disk_refuses_leaves_no_id(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        one, two = await two_queues(store)
        await one.put(b"before", dedup_id="0")
        disk.fill()

        async def commit() -> None:
            async with store.transaction() as tx:
                tx.put(one, bytes(1 << 20), dedup_id="1")
                tx.put(one, b"before", dedup_id="0")
                tx.put(two, b"y")

        with pytest.raises(DiskFull):
            await commit()
        assert (len(one), len(two)) == (1, 0)
        disk.empty()
        key = await one.put(b"after", dedup_id="1")
        assert await one.put(b"after", dedup_id="1") == key
        assert await drained(one) == [b"before", b"after"]
    async with disk.open_store() as store:
        one, _ = await two_queues(store)
        assert await one.put(b"x", dedup_id="1") == key


async def test_a_full_queue_takes_a_transaction_of_known_ids(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store, maxsize=2, overflow="fail")
        keys = [await one.put(b"a", dedup_id="1")]
        async with store.transaction() as tx:
            tx.put(one, b"a", dedup_id="1")
            tx.put(one, b"b", dedup_id="2")
            tx.put(one, b"b", dedup_id="2")
        keys = tx.keys
        async with store.transaction() as tx:
            for id in ("1", "2", "2"):
                tx.put(one, b"x", dedup_id=id)
        assert tx.keys == keys

        async def one_more() -> None:
            async with store.transaction() as tx:
                tx.put(one, b"c", dedup_id="3")

        with pytest.raises(QueueFull):
            await one_more()
        assert await drained(one) == [b"a", b"b"]


async def test_a_wrong_id_is_refused_and_the_transaction_goes_on(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, _ = await two_queues(store)
        async with store.transaction() as tx:
            for wrong, error in ((None, TypeError), ("", ValueError), ("x" * 256, ValueError)):
                with pytest.raises(error, match="dedup_id"):
                    tx.put(one, b"a", dedup_id=wrong)  # type: ignore[arg-type]
            tx.put(one, b"b", dedup_id="x" * 255)
        assert await drained(one) == [b"b"]


def test_power_cuts_leave_a_transaction_with_its_ids_or_none_of_it() -> None:
    files = SimFiles()
    cuts = Cuts(files, limit=2, samples=1)

    async def work() -> None:
        async with Bench(files).open_store() as store:
            one, two = await two_queues(store)
            for n in range(3):
                async with store.transaction() as tx:
                    for m in (n, n + 1):
                        tx.put(one, b"%d" % m, dedup_id=str(m))
                    tx.put(two, b"%d" % n, dedup_id=str(n))

    async def again(disk: SimFiles) -> tuple[list[bytes], list[bytes]]:
        async with Bench(disk).open_store() as store:
            one, two = await two_queues(store)
            # One transaction puts two new ids, each other one: whichever are there, all are.
            assert len(one) == (len(two) + 1 if len(two) else 0)
            for n in range(4):
                await one.put(b"%d" % n, dedup_id=str(n))
            await two.put_many([b"%d" % n for n in range(3)], dedup_ids=["0", "1", "2"])
            return await drained(one), await drained(two)

    with cuts:
        on_a_loop(work())
    assert len(cuts.disks) > 20
    expected = [b"%d" % n for n in range(4)]
    for disk in cuts.disks:
        assert on_a_loop(again(disk)) == (expected, expected[:3])


# Many at once.


@pytest.mark.parametrize("durability", LEVELS)
async def test_put_many_takes_an_id_for_each_record(bench: Bench, durability: str) -> None:
    async with bench.open(durability=durability) as q:
        first = await q.put(b"a", dedup_id="1")
        keys = await q.put_many(
            [b"a", b"b", b"c", b"b", b"d"],
            dedup_ids=["1", "2", None, "2", None],
            headers={"from": "here"},
        )
        assert isinstance(keys, Keys)
        assert [key.counter for key in keys] == [1, 2, 3, 2, 4]
        assert keys[0] == first
        assert keys[1:3] == [keys[1], keys[2]]
        assert repr(keys) == "<Keys of 5 records>"
        assert keys == list(keys)
        assert (await q.lease()).headers == {}
        assert (await q.lease()).headers == {"from": "here"}
        blocks = await q._committer.call(lambda log: list(log.read("main")))
        columns = [id for block in blocks for id in block.columns[DEDUP_ID]]  # type: ignore[attr-defined]
        assert columns == [b"1", b"2", b"", b""]
    async with bench.open() as q:
        assert await q.put_many([b"x", b"y"], dedup_ids=["2", "1"]) == [keys[1], keys[0]]
        assert await q.put_many([], dedup_ids=[]) == []
        assert len(q) == 4


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"dedup_id": "1"}, TypeError, "put_many takes dedup_ids, a list with an id or None"),
        ({"dedup_ids": "12"}, TypeError, "put_many takes dedup_ids, a list with an id or None"),
        ({"dedup_ids": ["1"]}, ValueError, "1 dedup_ids are given for 2 records. Nothing was"),
        ({"dedup_ids": ["1", ""]}, ValueError, "dedup_id has 0 bytes, and 1 to 255 are allowed"),
        ({"dedup_ids": ["1", 2]}, TypeError, "dedup_id is a str, not int. Nothing was stored."),
        ({"dedup_ids": ["1", "2"], "colour": 1}, TypeError, "put takes durability, headers"),
    ],
)
async def test_put_many_refuses_ids_that_are_none_and_stores_nothing(
    bench: Bench, keywords: Any, error: type[Exception], message: str
) -> None:
    async with bench.open() as q:
        with pytest.raises(error, match=message):
            await q.put_many([b"a", b"b"], **keywords)
        with pytest.raises(TypeError, match="items is a list of records, not one bytes"):
            await q.put_many(b"ab", dedup_ids=["1", "2"])
        assert (len(q), q.dedup) == (0, None)


async def test_put_many_with_ids_is_withdrawn_whole_by_one_who_leaves(bench: Bench) -> None:
    async with bench.open() as q:
        bench.runner.hold()
        blocker = await started(q.put(b"blocker"))
        known = await started(q.put(b"known", dedup_id="0"))
        many = await started(q.put_many([b"x", b"a", b"b"], dedup_ids=["0", "1", "2"]))
        await cancelled(many)
        bench.runner.let_go()
        await asyncio.gather(blocker, known)
        keys = await q.put_many([b"a", b"b"], dedup_ids=["2", "1"])
        assert [key.counter - (await known).counter for key in keys] == [1, 2]
        assert await drained(q) == [b"blocker", b"known", b"a", b"b"]


async def test_put_many_with_ids_waits_for_room_and_is_refused_where_none_comes(
    bench: Bench,
) -> None:
    async with bench.open(maxsize=2) as q:
        await q.put_many([b"a", b"b"], dedup_ids=["1", "2"])
        many = await started(q.put_many([b"a", b"c"], dedup_ids=["1", "3"]))
        assert not many.done()
        assert await q.take() == b"a"
        assert [key.counter for key in await many] == [1, 3]
        q.configure(overflow="drop-newest")
        with pytest.raises(QueueFull):
            await q.put_many([b"d"], dedup_ids=["4"])


async def test_the_blocking_face_takes_ids_of_many(tmp_path: Any) -> None:
    with fifoq.sync.open_store(tmp_path / "store") as store:
        q = store.queue()
        keys = q.put_many(iter([b"a", b"b"]), dedup_ids=["1", "2"])
        with store.transaction() as tx:
            tx.put(q, b"b", dedup_id="2")
        assert tx.keys == [keys[1]]
        assert len(q) == 2


# Staged files.


@pytest.mark.parametrize("opened", [True, False])
async def test_staged_records_with_ids_are_in_the_queue_once(bench: Bench, opened: bool) -> None:
    async with bench.open(dedup_window=1000) as q:
        first = await q.put(b"a", dedup_id="1")
    identity = await store_id(bench)
    said = ids(a="1", b="2", b2="2", c="3", d="1")
    async with bench.open_store() as store:
        if opened:
            await store.queue()
        hand_over(
            bench.files,
            staged_batch(identity, [[b"a", b"b", b"b2", b"c"], [b"plain", b"d"]], attributes=said),
        )
        store._staged.wake()
        await settle()
        hand_over(bench.files, staged_batch(identity, [[b"c"], [b"d"]], batch=1, attributes=said))
        store._staged.wake()
        await settle()
        assert names(bench.files, STAGED) == []
        q = await store.queue()
        assert await q.put(b"x", dedup_id="1") == first
        known = await q.put_many([b"x", b"x"], dedup_ids=["2", "3"])
        records = [record async for record in q.browse()]
        assert [record.item for record in records] == [b"a", b"b", b"c", b"plain"]
        assert list(known) == [records[1].key, records[2].key]
    async with bench.open() as q:
        assert await q.put_many([b"x", b"x"], dedup_ids=["2", "3"]) == known
        assert len(q) == 4


@pytest.mark.parametrize("opened", [True, False])
async def test_the_window_of_the_queue_holds_for_staged_records(
    bench: Bench, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = fake_time(monkeypatch)
    async with bench.open(dedup_window=10) as q:
        await q.put(b"a", dedup_id="1")
    identity = await store_id(bench)
    for batch, (seconds, expected) in enumerate(((5, 1), (6, 2), (9, 2), (2, 3))):
        now[0] += seconds * 10**9
        bench.clock.set_wall(now[0])
        hand_over(bench.files, staged_batch(identity, [[b"a"]], batch=batch, attributes=ids(a="1")))
        async with bench.open_store() as store:
            if opened:
                await store.queue()
            await settle()
            assert len(await store.queue()) == expected


@pytest.mark.parametrize("opened", [True, False])
def test_ended_at_any_moment_staged_records_with_ids_are_there_once(opened: bool) -> None:
    bench = Bench()
    identity = on_a_loop(store_id(bench))
    said = ids(a="1", b="2", c="3", a2="1")
    hand_over(bench.files, staged_batch(identity, [[b"a", b"b"], [b"c", b"a2"]], attributes=said))
    cuts = Cuts(bench.files, limit=2, samples=1)

    def bench_on(files: SimFiles) -> Bench:
        """With one time for the log, which takes in for a queue that is not open, and for all."""
        bench = Bench(files)
        bench.clock.set_wall(time.time_ns())
        return bench

    async def work(files: SimFiles) -> None:
        async with bench_on(files).open_store() as store:
            if opened:
                await store.queue()
            await settle()

    async def outcome(files: SimFiles) -> list[bytes]:
        async with bench_on(files).open() as q:
            await settle()
            await q.put_many([b"x"] * 3, dedup_ids=["1", "2", "3"])
            return await drained(q)

    with cuts:
        on_a_loop(work(bench.files))
    for files in cuts.disks:
        assert on_a_loop(outcome(files)) == [b"a", b"b", b"c"]


async def test_a_staged_record_waits_for_the_put_that_has_its_id(bench: Bench) -> None:
    """A put that leaves must not take along the record that stands for the staged one as well."""
    identity = await store_id(bench)
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put(b"before")
        bench.runner.hold()
        blocker = await started(q.put(b"blocker"))
        put = await started(q.put(b"put", dedup_id="1"))
        hand_over(bench.files, staged_batch(identity, [[b"staged"]], attributes=ids(staged="1")))
        store._staged.wake()
        await cancelled(put)
        bench.runner.let_go()
        await blocker
        await settle()
        assert await drained(q) == [b"before", b"blocker", b"staged"]
