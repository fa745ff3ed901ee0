"""Topics: which partition a record goes to, in which order it stays, and what is kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fifoq
import fifoq.sync
from actors.testing import VirtualTimeLoop, settle
from fifoq.murmur3 import murmur3
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from fifoq.topic import PARTITIONS_MAX
from tests.fifoq.support import Bench, cancelled, drained, started

pytestmark = pytest.mark.anyio

SEED = 0x9747B28C


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"\0\0\0", 0, 0x85F0B427),
        (b"\0\0", 0, 0x30F4C306),
        (b"\0", 0, 0x514E28B7),
        (b"aaaa", SEED, 0x5A97808A),
        (b"aaa", SEED, 0x283E0130),
        (b"aa", SEED, 0x5D211726),
        (b"a", SEED, 0x7FA09EA6),
        (b"abcd", SEED, 0xF0478627),
        (b"abc", SEED, 0xC84A62DD),
        (b"ab", SEED, 0x74875592),
        (b"Hello, world!", SEED, 0x24884CBA),
        ("ππππππππ".encode(), SEED, 0xD58063C1),
        (b"The quick brown fox jumps over the lazy dog", SEED, 0x2FA826CD),
        (b"a" * 256, SEED, 0x37405BDC),
    ],
)
def test_the_hash_is_the_published_one(data: bytes, seed: int, expected: int) -> None:
    assert murmur3(data, seed) == expected


def slowly(data: bytes, seed: int) -> int:
    """The same as its author writes it down, byte by byte."""

    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> 32 - bits) % 2**32

    h = seed
    blocks = len(data) // 4
    for at in range(blocks):
        k = sum(byte << 8 * i for i, byte in enumerate(data[4 * at : 4 * at + 4]))
        k = rotated(k * 0xCC9E2D51 % 2**32, 15) * 0x1B873593 % 2**32
        h = (rotated(h ^ k, 13) * 5 + 0xE6546B64) % 2**32
    k = sum(byte << 8 * i for i, byte in enumerate(data[4 * blocks :]))
    h ^= rotated(k * 0xCC9E2D51 % 2**32, 15) * 0x1B873593 % 2**32
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


@given(st.binary(max_size=70), st.integers(0, 2**32 - 1))
def test_the_hash_is_the_same_as_byte_by_byte(data: bytes, seed: int) -> None:
    assert murmur3(data, seed) == slowly(data, seed)


# Where records go.


async def test_a_key_has_its_partition_and_its_records_their_order(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("orders", partitions=6)
        keys = [f"customer-{n}" for n in range(40)]
        for number in range(4):
            for key in keys:
                item = f"{key} {number}".encode()
                partition, record = await topic.put(item, key=key)
                assert partition == topic.partition_of(key) == murmur3(key.encode()) % 6
                assert record.counter > 0
        assert len(topic) == 160
        seen: dict[str, list[int]] = {}
        for at in range(6):
            for item in await drained(topic.partition(at)):
                key, _, number_text = item.decode().partition(" ")
                assert topic.partition_of(key) == at
                seen.setdefault(key, []).append(int(number_text))
        assert seen == {key: [0, 1, 2, 3] for key in keys}


async def test_text_and_its_bytes_are_the_same_key(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=100)
        assert topic.partition_of("ä") == topic.partition_of("ä".encode())
        assert topic.partition_of("") == 0


async def test_without_a_key_partitions_take_turns(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=3)
        put = [(await topic.put(b"x"))[0] for _ in range(7)]
        assert put == [0, 1, 2, 0, 1, 2, 0]


async def test_a_partition_may_be_named(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=3)
        assert [(await topic.put(b"x", partition=2)) for _ in range(2)][1][0] == 2
        assert len(topic.partition(2)) == 2
        for wrong in (-1, 3):
            with pytest.raises(ValueError, match="has the partitions 0 to 2"):
                await topic.put(b"x", partition=wrong)
            with pytest.raises(ValueError, match="has the partitions 0 to 2"):
                topic.partition(wrong)
        with pytest.raises(TypeError):
            await topic.put(b"x", partition=True)
        with pytest.raises(TypeError):
            await topic.put(b"x", key=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="not both"):
            await topic.put(b"x", key="k", partition=1)
        assert len(topic) == 2


async def test_what_put_takes_is_passed_on(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=2)
        await topic.put(b"x", key="k", headers={"a": "b"}, durability="os")
        delivery = await topic.partition(topic.partition_of("k")).lease()
        assert delivery.headers == {"a": "b"}


async def test_many_records_are_one_commit_over_partitions(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=4)
        commits = topic.partition(0).stats().commits
        items = [b"%d" % n for n in range(100)]
        put = await topic.put_many(items, key=lambda item: item)
        assert topic.partition(0).stats().commits == commits + 1
        assert [partition for partition, _ in put] == [topic.partition_of(i) for i in items]
        for at in range(4):
            mine = [item for item in items if topic.partition_of(item) == at]
            counters = [key.counter for partition, key in put if partition == at]
            assert counters == list(range(1, len(mine) + 1))
            assert await drained(topic.partition(at)) == mine


async def test_many_records_without_a_key_are_spread_evenly(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=4)
        put = await topic.put_many([b"x"] * 40)
        assert Counter(partition for partition, _ in put) == dict.fromkeys(range(4), 10)
        assert await topic.put_many([]) == []
        assert [p for p, _ in await topic.put_many([b"a", b"b"], partition=3)] == [3, 3]


async def test_many_records_of_which_one_is_wrong_are_none(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=4, type=int)
        with pytest.raises((TypeError, ValueError)):
            await topic.put_many([1, 2, "three", 4])  # type: ignore[list-item]
        assert len(topic) == 0


# Types.


class Order(msgspec.Struct):
    customer: str
    amount: int


async def test_an_item_of_another_type_is_refused_when_it_is_put(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("orders", partitions=3, type=Order)
        order = Order("alice", 5)
        partition, _ = await topic.put(order, key=order.customer)
        wrong: Any
        for wrong in ({"customer": "bob"}, b"bytes", Order("carl", "much")):  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError)):
                await topic.put(wrong, key="bob")
        assert len(topic) == 1
        assert await topic.partition(partition).take() == order


async def test_a_topic_of_another_type_is_refused_when_it_is_opened(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("orders", partitions=2, type=Order)
        for at in range(2):
            await topic.put(Order("a", 1), partition=at)
        with pytest.raises(fifoq.SchemaMismatch):
            await store.topic("orders", type=int)
    async with bench.open_store() as store:
        with pytest.raises(fifoq.SchemaMismatch):
            await store.topic("orders", type=int)
        assert len(await store.topic("orders", type=Order)) == 2


# What is kept.


async def test_the_count_is_kept_and_stays(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("orders", partitions=3, maxsize=50)
        assert await store.topic("orders") is topic
        assert await store.topic("orders", partitions=3) is topic
        await topic.put(b"x", key="k")
    async with bench.open_store() as store:
        for wrong in (2, 4):
            with pytest.raises(ValueError, match="has 3 partitions, not"):
                await store.topic("orders", partitions=wrong)
        topic = await store.topic("orders")
        assert (topic.partitions, len(topic)) == (3, 1)
        assert topic.partition(0).options.maxsize == 50
        assert store.queues() == ["orders-0", "orders-1", "orders-2"]
        assert await store.queue("orders-1") is topic.partition(1)
        assert repr(topic) == "<Topic 'orders' partitions=3 depth=1>"


async def test_a_topic_never_takes_a_queue_that_is_there(bench: Bench) -> None:
    async with bench.open_store() as store:
        await (await store.queue("orders-1")).put(b"mine")
        with pytest.raises(ValueError, match="would take the queue 'orders-1'"):
            await store.topic("orders", partitions=2)
        assert "orders-0" not in store.queues()
        assert (await store.topic("orders", partitions=1)).partitions == 1


async def test_nonsense_is_refused_and_nothing_is_made(bench: Bench) -> None:
    async with bench.open_store() as store:
        count: Any
        for count in (0, -1, PARTITIONS_MAX + 1, True, 2.0, "2"):
            with pytest.raises(ValueError, match="partitions="):
                await store.topic("t", partitions=count)
        name: Any
        for name in ("", "T", "a/b", "a.dlq", "-a", "a" * 61, None):
            with pytest.raises(fifoq.InvalidName):
                await store.topic(name, partitions=1)
        with pytest.raises(ValueError, match="say how many"):
            await store.topic("t")
        with pytest.raises(ValueError):
            await store.topic("t", partitions=1, maxsize=0)
        with pytest.raises(TypeError):
            await store.topic("t", partitions=1, colour=1)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            await store.topic("t", partitions=1, type=object())  # type: ignore[call-overload]
        assert store.queues() == []
        longest = await store.topic("a" * 60, partitions=PARTITIONS_MAX)
        await longest.put(b"x", partition=PARTITIONS_MAX - 1)
    with pytest.raises(fifoq.QueueClosed):
        await store.topic("t", partitions=1)


async def test_a_topic_that_two_open_at_once_is_one(bench: Bench) -> None:
    async with bench.open_store() as store:
        opened = await asyncio.gather(*(store.topic("t", partitions=2) for _ in range(5)))
        assert len(set(map(id, opened))) == 1


async def test_whoever_leaves_while_many_are_written_leaves_all_or_none(bench: Bench) -> None:
    async with bench.open_store() as store:
        topic = await store.topic("t", partitions=3)
        for sealed in (False, True):
            bench.runner.hold()
            before = len(topic)
            if not sealed:
                # Something else is under way: the batch waits.
                busy = await started(topic.put(b"busy", partition=0))
            task = await started(topic.put_many([b"x"] * 3))
            await cancelled(task)
            bench.runner.let_go()
            await settle()
            if not sealed:
                await busy
            assert len(topic) - before == (3 if sealed else 1)


def on_a_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def test_ended_at_any_moment_a_topic_is_whole_and_a_batch_is_there_or_not() -> None:
    """Kill, or cut the power, at every change of the disk while a topic is made and filled."""
    done: list[str] = []

    async def work(files: SimFiles) -> None:
        async with Bench(files).open_store() as store:
            topic = await store.topic("t", partitions=3)
            done.append("made")
            await topic.put_many([b"a", b"b", b"c", b"d"])
            done.append("put")

    found: list[tuple[int, SimFiles]] = []

    def visit(index: int, files: SimFiles) -> None:
        found.append((len(done), after_process_crash(files)))
        images = power_images(files, limit=8, samples=4, seed=index)
        found.extend((len(done), SimFiles.from_image(image)) for image in images)

    async def outcome(files: SimFiles) -> tuple[bool, int]:
        async with Bench(files).open_store() as store:
            try:
                topic = await store.topic("t")
            except ValueError:
                # It never happened, and can be made.
                return False, len(await store.topic("t", partitions=2))
            return topic.partitions == 3, len(topic)

    crash_points(lambda files: on_a_loop(work(files)), visit)
    for confirmed, files in found:
        there, size = on_a_loop(outcome(files))
        assert there or not confirmed
        assert size in ((0, 4) if there else (0,))
        assert size == 4 or confirmed < 2


def test_threads_have_topics_too(tmp_path: Any) -> None:
    with fifoq.sync.open_store(tmp_path) as store:
        topic = store.topic("orders", partitions=2, type=int)
        assert store.topic("orders", type=int) is topic
        partition, _ = topic.put(1, key="k")
        assert partition == topic.partition_of("k")
        put = topic.put_many(iter([2, 3]), key=str)
        assert [p for p, _ in put] == [topic.partition_of("2"), topic.partition_of("3")]
        assert (topic.partitions, len(topic)) == (2, 3)
        assert topic.partition(partition).take() == 1
        assert store.queue("orders-0", type=int) is topic.partition(0)
        with pytest.raises(ValueError):
            topic.partition(2)
        assert "sync.Topic 'orders'" in repr(topic)
