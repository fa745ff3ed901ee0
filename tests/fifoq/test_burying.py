"""Dead letters: which records are moved, when, with what, and that it is all or nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from actors.testing import settle
from fifoq import DiskFull, Queue, StaleLease, Store, burying
from fifoq.burying import PREFIX, letter_headers, printable, traceback_text
from fifoq.codec import decode_headers, read_kept
from fifoq.joint import Joint
from fifoq.options import Durability
from fifoq.runs import Returned
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench, Cuts, SmallDisk, cancelled, drained, fake_time, started

pytestmark = pytest.mark.anyio

LEVELS = ("memory", "os", "sync")


class NoLuck(Exception):
    """What goes wrong in a handler."""


async def handle(queue: Queue[bytes]) -> None:
    async with queue.lease():
        raise NoLuck("the printer is on fire")


async def letters_of(store: Store, name: str = "orders") -> list[tuple[bytes, dict[str, str]]]:
    dlq = await store.queue(f"{name}.dlq")
    found = []
    async for record in dlq.browse():
        headers = {key.removeprefix(PREFIX): text for key, text in record.headers.items()}
        found.append((record.item, headers))
    return found


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_rejected_record_is_in_the_dead_letters(
    bench: Bench, durability: Durability
) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders", durability=durability)
        key = await orders.put(b"a", headers={"from": "web"})
        await orders.put(b"b")
        delivery = await orders.lease()
        await delivery.reject("no such\taddress")
        assert (delivery.state, len(orders), orders.stats().leased) == ("dead-lettered", 1, 0)
        assert orders.stats().dead_lettered == 1
        with pytest.raises(StaleLease, match="it is done"):
            await delivery.reject()
        [(payload, headers)] = await letters_of(store)
        assert payload == b"a"
        assert headers.pop("time").isdecimal()
        assert headers == {
            "from": "web",
            "queue": "orders",
            "counter": "1",
            "timestamp": str(key.timestamp),
            "key": bytes(key).hex(),
            "attempts": "1",
            "cause": "rejected",
            "reason": "no such address",
        }
        assert await drained(orders) == [b"b"]
    async with bench.open_store() as store:
        assert await drained(await store.queue("orders.dlq")) == [b"a"]


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("max_retries", [3, 1, 0])
async def test_a_record_is_leased_once_and_retried_so_often(
    bench: Bench, durability: Durability, max_retries: int
) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders", durability=durability, max_retries=max_retries)
        await orders.put_many([b"a", b"b"])
        for attempt in range(1, max_retries + 2):
            delivery = await orders.lease()
            assert (delivery.item, delivery.attempt) == (b"a", attempt)
            delivery.nack(delay=0)
        assert delivery.state == "dead-lettered"
        await store.flush()
        assert await orders.peek() == b"b"
        assert (len(orders), orders.stats().dead_lettered) == (1, 1)
        [(payload, headers)] = await letters_of(store)
        assert (payload, headers["attempts"]) == (b"a", str(max_retries + 1))
        assert (headers["cause"], headers["reason"]) == ("max-retries", "it was given back")


async def test_three_retries_are_the_default_and_none_is_no_limit(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders")
        assert orders.options.max_retries == 3
        endless = await store.queue("endless", max_retries=None)
        await endless.put(b"a")
        for attempt in range(1, 20):
            delivery = await endless.lease()
            assert delivery.attempt == attempt
            delivery.nack(delay=0)
        assert len(endless) == 1
        for wrong in (-1, 1.5, "3", True):
            with pytest.raises(ValueError, match="max_retries"):
                orders.configure(max_retries=wrong)  # type: ignore[arg-type]


async def test_counts_agree_while_a_record_is_moved(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put_many([b"a", b"b"])
        delivery = await q.lease()
        bench.runner.hold()
        rejecting = await started(delivery.reject())
        seen = set()
        while not rejecting.done():
            stats = q.stats()
            assert stats.ready == 1
            seen.add((stats.leased, stats.current_size))
            await bench.step()
        assert seen <= {(1, 2), (0, 1)}
        bench.runner.let_go()
        assert (q.stats().leased, len(q)) == (0, 1)


async def test_the_last_error_goes_along_with_its_traceback(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders", max_retries=1)
        await orders.put(b"a")
        for _ in range(2):
            with pytest.raises(NoLuck):
                await handle(orders)
        await store.flush()
        [(_, headers)] = await letters_of(store)
        assert headers["reason"] == "the printer is on fire"
        assert headers["error_type"] == "NoLuck"
        assert headers["traceback"].startswith("Traceback (most recent call last)")
        assert headers["traceback"].endswith("NoLuck: the printer is on fire")
        assert 'raise NoLuck("the printer is on fire")' in headers["traceback"]


@pytest.mark.parametrize("durability", LEVELS)
async def test_a_lease_that_ends_counts(bench: Bench, durability: Durability) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders", durability=durability, max_retries=0)
        await orders.put_many([b"a", b"b"])
        await orders.lease(seconds=5)
        await asyncio.sleep(6)
        [(payload, headers)] = await letters_of(store)
        assert (payload, headers["reason"]) == (b"a", "its lease ended")
        assert await drained(orders) == [b"b"]


async def test_a_transaction_that_fails_each_time_ends_there(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await store.queue("orders", max_retries=1), await store.queue("bills")
        await orders.put(b"a")

        async def fail() -> None:
            async with store.transaction() as tx:
                tx.put(bills, await tx.take(orders))
                raise NoLuck("no paper")

        for _ in range(2):
            with pytest.raises(NoLuck):
                await fail()
        await store.flush()
        [(_, headers)] = await letters_of(store)
        assert (headers["attempts"], headers["reason"]) == ("2", "no paper")
        assert (len(orders), len(bills)) == (0, 0)


async def test_a_record_that_kills_its_consumer_ends_there(bench: Bench) -> None:
    for attempt in (1, 2):
        store = await bench.open_store()
        orders = await store.queue("orders", max_retries=1)
        if attempt == 1:
            await orders.put_many([b"poison", b"b"])
        assert (await orders.lease()).attempt == attempt
        bench.files = bench.files.copy()
        bench.crash()
        store._committer.closed = True
    async with bench.open_store() as store:
        orders = await store.queue("orders")
        delivery = await orders.lease()
        assert (delivery.item, delivery.attempt) == (b"b", 1)
        await store.flush()
        [(payload, headers)] = await letters_of(store)
        assert (payload, headers["attempts"]) == (b"poison", "2")
        assert headers["reason"] == "whoever leased it last never gave it back"


async def test_a_transaction_rejects_as_a_part_of_it(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, bills = await store.queue("orders"), await store.queue("bills")
        await orders.put_many([b"a", b"b"])
        outside = await orders.lease()
        log = store._committer.log
        assert log is not None
        async with store.transaction() as tx:
            tx.reject(outside, "no address")
            with pytest.raises(ValueError, match="settled in this transaction already"):
                tx.ack(outside)
            tx.put(bills, b"x")
            before = log.sequence
        assert log.sequence == before + 1
        assert [key.counter for key in tx.keys] == [1]
        assert (outside.state, orders.stats().dead_lettered) == ("dead-lettered", 1)
        [(payload, headers)] = await letters_of(store)
        assert (payload, headers["reason"]) == (b"a", "no address")


async def test_there_are_no_dead_letters_of_dead_letters(bench: Bench) -> None:
    async with bench.open_store() as store:
        dlq = await store.queue("orders.dlq", max_retries=0)
        await dlq.put(b"a")
        for attempt in range(1, 6):
            delivery = await dlq.lease()
            assert delivery.attempt == attempt
            delivery.nack(delay=0)
        delivery = await dlq.lease()
        with pytest.raises(ValueError, match="holds dead letters, and there is no other place"):
            await delivery.reject("again")
        with pytest.raises(TypeError, match="a reason is a str, not bytes"):
            await delivery.reject(b"again")  # type: ignore[arg-type]
        assert delivery.state == "leased"
        assert store.queues() == ["orders.dlq"]


async def test_dead_letters_know_the_type_of_their_queue(bench: Bench) -> None:
    class Order(msgspec.Struct):
        name: str

    async with bench.open_store() as store:
        orders = await store.queue("orders", type=Order, maxsize=5)
        await orders.put(Order("tea"))
        await (await orders.lease()).reject()
        configuration = store._committer._open_log.state.queues["orders.dlq"].configuration
        kept = read_kept(configuration)
        assert (kept.schema, kept.options) == (orders.codec.schema, {})
        dlq = await store.queue("orders.dlq", type=Order)
        assert await dlq.take() == Order("tea")


async def test_an_open_queue_of_dead_letters_sees_them_come(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders, dlq = await store.queue("orders"), await store.queue("orders.dlq", maxsize=1)
        await dlq.put(b"old")
        await orders.put(b"a")
        taking = [await started(dlq.take()) for _ in range(2)]
        await (await orders.lease()).reject()
        assert [await task for task in taking] == [b"old", b"a"]


async def test_what_a_cursor_leased_is_not_its_to_move(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders")
        await orders.put(b"a")
        cursor = await orders.cursor("audit")
        delivery = await cursor.lease()
        with pytest.raises(ValueError, match="it removes nothing"):
            await delivery.reject()
        async with store.transaction() as tx:
            with pytest.raises(ValueError, match="it removes nothing"):
                tx.ack(delivery)
            with pytest.raises(ValueError, match="it removes nothing"):
                tx.reject(delivery)
        assert (len(orders), delivery.state) == (1, "leased")


# Trouble.


async def test_a_full_disk_leaves_a_rejected_record_leased(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        orders = await store.queue("orders")
        await orders.put(b"x" * 1_600_000)
        delivery = await orders.lease()
        disk.fill()
        with pytest.raises(DiskFull):
            await delivery.reject("bad")
        assert (delivery.state, len(orders)) == ("leased", 1)
        assert "orders.dlq" not in store.queues() or not len(await store.queue("orders.dlq"))
        assert await delivery.ack()
        disk.empty()


async def test_a_full_disk_puts_off_a_move_that_nobody_waits_for(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        orders = await store.queue("orders", max_retries=0)
        await orders.put_many([b"x" * 1_600_000, b"b"])
        delivery = await orders.lease()
        disk.fill()
        delivery.nack(delay=0)
        await asyncio.sleep(2)
        assert (len(orders), orders.stats().dead_lettered) == (2, 0)
        # Others go on.
        assert await orders.take() == b"b"
        twin = disk.files.copy()
        disk.empty()
        await asyncio.sleep(1)
        assert (len(orders), orders.stats().dead_lettered) == (0, 1)
        assert [payload for payload, _ in await letters_of(store)] == [b"x" * 1_600_000]
    twin.process_crash()
    again = SmallDisk()
    again.files = twin
    async with again.open_store() as store:
        # Nothing was lost by a crash meanwhile.
        orders = await store.queue("orders")
        assert len(orders) == 1
        again.empty()
        waiting = await started(orders.lease())
        await asyncio.sleep(1)
        await cancelled(waiting)
        assert [payload for payload, _ in await letters_of(store)] == [b"x" * 1_600_000]


async def buried_on_a_full_disk(
    disk: SmallDisk, store: Store, count: int, pairs: int
) -> Queue[bytes]:
    """A queue whose records have had their last attempt, and nowhere to go yet."""
    orders = await store.queue("orders", max_retries=0)
    await orders.put_many([b"%02d" % number * pairs for number in range(count)])
    deliveries = await orders.lease_many(count)
    disk.fill()
    for delivery in deliveries:
        delivery.nack(delay=0)
    return orders


async def test_while_the_disk_is_full_one_move_is_tried_for_all(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had a timer of its own: with many of them a full disk was a busy processor."""
    count = 3
    async with disk.open_store() as store:
        orders = await buried_on_a_full_disk(disk, store, count, 200_000)
        await asyncio.sleep(1)
        submitted = []
        submit = orders._committer.joints.submit

        def noted(joint: Joint) -> None:
            submitted.append(joint)
            submit(joint)

        monkeypatch.setattr(orders._committer.joints, "submit", noted)
        await asyncio.sleep(10 * burying.RETRY_SECONDS)
        assert 0 < len(submitted) <= 10
        assert len(set(map(id, submitted))) == 1
        disk.empty()
        await asyncio.sleep(1)
        assert (len(orders), orders.stats().dead_lettered) == (0, count)
        found = [payload[:2] for payload, _ in await letters_of(store)]
        assert found == [b"%02d" % number for number in range(count)]


async def test_a_disk_with_little_space_is_not_asked_for_all_moves_again(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that went was followed by all others, each refused again, four times a second."""
    count = 20
    async with disk.open_store() as store:
        orders = await buried_on_a_full_disk(disk, store, count, 10_000)
        await asyncio.sleep(1.1)
        submitted: list[Joint] = []
        submit, loop = orders._committer.joints.submit, asyncio.get_running_loop()

        def noted(joint: Joint) -> None:
            submitted.append(joint)
            assert joint.undone is not None
            if len(submitted) == 1:
                submit(joint)
            else:
                loop.call_soon(joint.undone, DiskFull("there was space for one"))

        monkeypatch.setattr(orders._committer.joints, "submit", noted)
        disk.empty()
        await asyncio.sleep(1.1 * burying.RETRY_SECONDS)
        assert orders.stats().dead_lettered == 1
        assert len(submitted) == 3
        monkeypatch.undo()
        await asyncio.sleep(1)
        assert (len(orders), orders.stats().dead_lettered) == (0, count)
        found = [payload[:2] for payload, _ in await letters_of(store)]
        assert found == [b"%02d" % number for number in range(count)]


async def test_whoever_leaves_a_reject_leaves_it_moved_or_leased() -> None:
    outcomes = set()
    for steps in range(12):
        bench = Bench()
        async with bench.open_store() as store:
            orders = await store.queue("orders")
            await orders.put(b"a")
            delivery = await orders.lease()
            bench.runner.hold()
            busy = asyncio.ensure_future(orders.put(b"b"))
            await asyncio.sleep(0)
            rejecting = asyncio.ensure_future(delivery.reject("bad"))
            for step in range(steps):
                await asyncio.sleep(0)
                if step % 4 == 3:
                    bench.runner.step()
            rejecting.cancel()
            await settle()
            bench.runner.let_go()
            await busy
            await store.flush()
            moved = len(await letters_of(store))
            assert delivery.state == ("dead-lettered" if moved else "leased")
            assert len(orders) == 2 - moved
            outcomes.add((moved, rejecting.cancelled()))
    assert outcomes == {(0, True), (1, True), (1, False)}


@pytest.mark.parametrize("durability", ["os", "sync"])
async def test_the_power_cut_at_every_call_leaves_it_in_one_place(
    bench: Bench, durability: Durability
) -> None:
    async def found(disk: SimFiles) -> tuple[list[bytes], list[bytes]]:
        async with Bench(disk).open_store() as again:
            letters = [payload for payload, _ in await letters_of(again)]
            return await drained(await again.queue("orders")), letters

    async with bench.open_store() as store:
        orders = await store.queue("orders", durability=durability, max_retries=0)
        await orders.put_many([b"a", b"b"])
        await store.flush()
        delivery = await orders.lease()
        with Cuts(bench.files) as cuts:
            delivery.nack(delay=0)
            await store.flush()
        outcomes = [await found(disk) for disk in cuts.disks]
        assert all(both in outcomes for both in (([b"a", b"b"], []), ([b"b"], [b"a"])))
        assert all(sorted(here + there) == [b"a", b"b"] for here, there in outcomes)


# What goes along.


def test_texts_that_go_along_are_short_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_time(monkeypatch)
    assert printable("a\x1b[31m\nb" + "x" * 1000) == "a [31m b" + "x" * 492

    class Nasty(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text either")

    deep = NoLuck("x" * 100_000 + "end")
    assert len(traceback_text(deep)) <= 4000
    assert traceback_text(deep).endswith("end")
    assert "Nasty" in traceback_text(Nasty())
    headers = decode_headers(
        letter_headers(
            "orders",
            Returned(7, 9, b"x"),
            "max-retries",
            11,
            attempts=4,
            reason="",
            error=Nasty(),
        )
    )
    assert headers[PREFIX + "reason"] == ""
    assert headers[PREFIX + "error_type"].endswith("Nasty")


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


async def test_the_queue_of_dead_letters_is_made_by_the_first_of_them(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders")
        await orders.put(b"a")
        assert store.queues() == ["orders"]
        await (await orders.lease()).reject()
        assert store.queues() == ["orders", "orders.dlq"]


async def test_each_partition_of_a_topic_has_its_own_dead_letters(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("orders", partitions=2)
        for index in range(2):
            await topic.put(b"%d" % index, partition=index)
            await (await topic.partition(index).lease()).reject()
        for index in range(2):
            [(payload, headers)] = await letters_of(store, f"orders-{index}")
            assert (payload, headers["queue"]) == (b"%d" % index, f"orders-{index}")


async def test_a_dead_letter_says_where_it_came_from_when_and_why(bench: Bench) -> None:
    async with bench.open_store() as store:
        orders = await store.queue("orders", max_retries=0)
        key = await orders.put(b"a", headers={"trace": "7"})
        with pytest.raises(NoLuck):
            await handle(orders)
        await store.flush()
        [letter] = await (await store.dead_letters("orders")).list()
        assert (letter.payload, letter.headers) == (b"a", {"trace": "7"})
        assert (letter.queue, letter.original_key) == ("orders", key)
        assert (letter.attempts, letter.cause) == (1, "max-retries")
        assert (letter.reason, letter.error_type) == ("the printer is on fire", "NoLuck")
        assert letter.time >= key.timestamp
