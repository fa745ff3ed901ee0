"""Cursors against a model: a list of records, a position, and what was committed; with crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import fifoq
from fifoq import Cursor, Delivery, Queue
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench
from tests.fifoq.test_staged_intake import on_a_loop

STEPS = 60
RUNS = 50
SMALL = {"segment_bytes": 1 << 16, "segment_records": 7}


class Model:
    """What must be: records by counter, and of each cursor what is done, now and for good."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}
        self.done: dict[str, set[int]] = {}
        self.kept: dict[str, set[int]] = {}

    def rest(self, name: str) -> list[bytes]:
        return [item for counter, item in self.records.items() if counter not in self.done[name]]


class Run:
    """One random life, or several, of a queue with two cursors."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench()
        self.model = Model()
        self.count = 0
        self.queue: Queue[bytes]
        self.cursors: dict[str, Cursor[bytes]] = {}
        self.leased: dict[str, list[Delivery[bytes]]] = {}
        self.handed: dict[str, list[int]] = {}

    async def play(self) -> None:
        await self.start()
        for _ in range(STEPS):
            await self.random.choice(self.steps())()
        await self.check()
        await self.queue.close()

    def steps(self) -> list[Callable[[], Any]]:
        many = [self.put, self.take, self.take, self.commit, self.lease, self.lease, self.ack]
        return [*many, self.ack, self.nack, self.seek, self.remove, self.reopen, self.crash]

    async def start(self) -> None:
        self.queue = await self.bench.open(retention="all", **SMALL)
        for name in ("a", "b"):
            self.cursors[name] = await self.queue.cursor(name)
            self.model.kept.setdefault(name, set())
            self.model.done[name] = set(self.model.kept[name])
            self.leased[name], self.handed[name] = [], []

    def one(self) -> tuple[str, Cursor[bytes]]:
        name = self.random.choice(["a", "b"])
        return name, self.cursors[name]

    def out(self, name: str) -> set[int]:
        return {d.key.counter for d in self.leased[name]} | set(self.handed[name])

    def expected(self, name: str) -> list[tuple[int, bytes]]:
        """What is handed out next, in order."""
        gone = self.model.done[name] | self.out(name)
        return [(c, item) for c, item in self.model.records.items() if c not in gone]

    async def put(self) -> None:
        items = [b"%d" % (self.count + at) for at in range(self.random.randint(1, 5))]
        self.count += len(items)
        keys = await self.queue.put_many(items)
        self.model.records.update((key.counter, i) for key, i in zip(keys, items, strict=True))

    async def take(self) -> None:
        name, cursor = self.one()
        self.settle(name)
        expected = self.expected(name)
        if not expected:
            with pytest.raises(TimeoutError):
                await cursor.take(timeout=0.1)
            return
        taken = await cursor.take_many(self.random.randint(1, 6))
        assert taken == [item for _, item in expected[: len(taken)]]
        self.handed[name] = [counter for counter, _ in expected[: len(taken)]]

    def settle(self, name: str) -> None:
        self.model.done[name].update(self.handed[name])
        self.handed[name] = []

    async def commit(self) -> None:
        name, cursor = self.one()
        self.settle(name)
        await cursor.commit()
        self.model.kept[name] = set(self.model.done[name])

    async def lease(self) -> None:
        name, cursor = self.one()
        expected = self.expected(name)
        if not expected:
            return
        delivery = await cursor.lease(seconds=10_000)
        assert (delivery.key.counter, delivery.item) == expected[0]
        self.leased[name].append(delivery)

    async def ack(self) -> None:
        name, _ = self.one()
        if self.leased[name]:
            delivery = self.leased[name].pop(self.random.randrange(len(self.leased[name])))
            assert await delivery.ack()
            self.model.done[name].add(delivery.key.counter)
            self.model.kept[name] = set(self.model.done[name])

    async def nack(self) -> None:
        name, _ = self.one()
        if self.leased[name]:
            self.leased[name].pop(self.random.randrange(len(self.leased[name]))).nack(delay=0)

    async def seek(self) -> None:
        name, cursor = self.one()
        counters = [*self.model.records]
        if not counters:
            return
        place = self.random.choice(counters)
        assert await cursor.seek(counter=place) == place
        self.model.done[name] = {counter for counter in counters if counter < place}
        self.model.kept[name] = set(self.model.done[name])
        self.leased[name], self.handed[name] = [], []

    async def remove(self) -> None:
        if len(self.queue):
            await self.queue.take_many(self.random.randint(1, 5))

    async def reopen(self) -> None:
        await self.queue.close()
        await self.start()

    async def crash(self) -> None:
        crashed = self.bench.after_crash()
        await self.queue.close()
        self.bench = crashed
        await self.start()

    async def check(self) -> None:
        for name, cursor in self.cursors.items():
            for delivery in self.leased[name]:
                delivery.nack(delay=0)
            self.leased[name] = []
            self.settle(name)
            expected = self.model.rest(name)
            lag = await cursor.lag()
            # Counters of no record count for less than nothing.
            assert lag.records >= len(expected)
            assert [r.item async for r in cursor.records(wait=False)] == expected


@pytest.mark.parametrize("part", range(5))
def test_cursors_do_what_a_list_and_a_position_do(part: int) -> None:
    assert_like_the_model(range(part * RUNS // 5, (part + 1) * RUNS // 5))


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_cursors_do_what_a_list_and_a_position_do_many_times() -> None:
    assert_like_the_model(range(RUNS, 100 * RUNS))


def assert_like_the_model(seeds: range) -> None:
    for seed in seeds:
        try:
            on_a_loop(Run(seed).play())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_committed_position_survives_a_cut_or_a_kill_at_every_call() -> None:
    """Takes with commits, leases with acks, a seek and a deletion, with small segments."""
    items = [b"%d" % number for number in range(1, 31)]
    promised: dict[str, set[int]] = {"a": {1}, "b": {1}}
    deleted = [False]
    found: list[tuple[SimFiles, dict[str, set[int]], bool]] = []

    async def prepare(files: SimFiles) -> None:
        async with Bench(files).open(retention="all", **SMALL) as queue:
            await queue.put_many(items)
            for name in promised:
                await queue.cursor(name)

    async def work(files: SimFiles) -> None:
        async with Bench(files).open(retention="all", **SMALL) as queue:
            a, b = await queue.cursor("a"), await queue.cursor("b")
            for place in (6, 11):
                await a.take_many(5)
                # Until it is confirmed, both may be.
                promised["a"].add(place)
                await a.commit()
                promised["a"] = {place}
            deliveries = [await b.lease() for _ in range(4)]
            for at, place in ((1, 1), (0, 3), (2, 4)):
                promised["b"].add(place)
                await deliveries[at].ack()
                promised["b"] = {place}
            promised["a"].add(3)
            await a.seek(counter=3)
            promised["a"] = {3}
            deleted[0] = True
            await b.delete()

    def visit(index: int, files: SimFiles) -> None:
        state = {name: set(places) for name, places in promised.items()}
        disks = [after_process_crash(files)]
        disks += map(SimFiles.from_image, power_images(files, limit=8, samples=4, seed=index))
        found.extend((disk, state, deleted[0]) for disk in disks)

    async def check(files: SimFiles, state: dict[str, set[int]], gone: bool) -> None:
        async with Bench(files).open(retention="all", **SMALL) as queue:
            assert queue.cursors() in ([["a", "b"], ["a"]] if gone else [["a", "b"]])
            for name in queue.cursors():
                cursor = await queue.cursor(name, "latest")
                assert cursor.position in state[name]
                seen = [record.item async for record in cursor.records(wait=False)]
                assert set(items[cursor.position - 1 :]) - set(seen) <= {b"2", b"3"}

    base = SimFiles()
    on_a_loop(prepare(base))
    image = base.image()
    count = crash_points(
        lambda files: on_a_loop(work(files)), visit, files=SimFiles.from_image(image)
    )
    assert count > 20
    for files, state, gone in found:
        on_a_loop(check(files, state, gone))


def test_whoever_leaves_at_any_step_harms_no_other_reader() -> None:
    """Cancel one of three after each of its steps: the others get everything, each record once."""

    async def play(steps: int, seed: int) -> bool:
        bench = Bench()
        async with bench.open() as queue:
            cursor = await queue.cursor("shared")
            seen: list[bytes] = []

            async def member() -> None:
                while True:
                    async with cursor.lease() as delivery:
                        await asyncio.sleep(0)
                        seen.append(delivery.item)

            members = [asyncio.ensure_future(member()) for _ in range(3)]
            putting = asyncio.ensure_future(queue.put_many([b"%d" % n for n in range(10)]))
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = not members[seed].cancel()
            await putting
            await asyncio.sleep(5)
            lag = await cursor.lag()
            assert lag.records == 0
            assert set(seen) == {b"%d" % n for n in range(10)}
            assert len(seen) <= 11
            for task in members:
                task.cancel()
            await asyncio.gather(*members, return_exceptions=True)
            return ended

    for seed in range(3):
        for steps in range(60):
            on_a_loop(play(steps, seed))


def test_a_store_that_fails_tells_whoever_waits() -> None:
    async def play() -> None:
        bench = Bench()
        queue = await bench.open()
        await queue.put(b"x")
        cursor = await queue.cursor("reader")
        await cursor.take()
        waiting = asyncio.ensure_future(cursor.take())
        await asyncio.sleep(1)
        bench.files.fail_next_datasync("lost")
        with pytest.raises(fifoq.DurabilityError):
            await cursor.commit()
        with pytest.raises(fifoq.StoreFailed):
            await waiting
        await queue.close()

    on_a_loop(play())


def test_a_cursor_that_is_let_go_never_misses_a_record_in_silence() -> None:
    """Cut or killed at every call while what it needs is reclaimed: read, or told to be gone."""
    limits = {"segment_bytes": 1 << 16, "segment_records": 5, "cursor_cap_bytes": 6000}
    put = [0]
    found: list[tuple[SimFiles, int]] = []

    async def work(files: SimFiles) -> None:
        async with Bench(files).open(**limits) as queue:
            await queue.put(b"x" * 1000)
            cursor = await queue.cursor("slow")
            await cursor.take()
            await cursor.commit()
            for number in range(2, 20):
                await queue.put(b"x" * 1000)
                put[0] = number
                await queue.take()
            await asyncio.sleep(5)
            await queue.take()

    def visit(index: int, files: SimFiles) -> None:
        if put[0] > 1 and index % 2:
            disks = [after_process_crash(files)]
            disks += map(SimFiles.from_image, power_images(files, limit=4, samples=2, seed=index))
            found.extend((disk, put[0]) for disk in disks)

    async def check(files: SimFiles, last: int) -> bool:
        async with Bench(files).open(**{**limits, "cursor_cap_bytes": 1 << 30}) as queue:
            cursor = await queue.cursor("slow", "latest")
            first, gone = cursor.position, False
            assert first == 2
            seen: set[int] = set()
            while True:
                try:
                    seen |= {r.key.counter async for r in cursor.records(wait=False)}
                    break
                except fifoq.RangeGone as error:
                    gone = True
                    seen |= set(range(error.wanted, error.oldest))
                    await cursor.seek(counter=error.oldest)
            assert seen >= set(range(first, last + 1))
            return gone

    crash_points(lambda files: on_a_loop(work(files)), visit, files=SimFiles())
    told = [on_a_loop(check(*state)) for state in found]
    assert True in told
    assert False in told


def test_damage_to_a_position_is_told_by_opening_and_set_aside_on_request() -> None:
    async def prepare(files: SimFiles) -> None:
        async with Bench(files).open() as queue:
            await queue.put_many([b"1", b"2", b"3"])
            cursor = await queue.cursor("reader")
            await cursor.take()
            await cursor.commit()
            await queue.put(b"4")

    async def check(files: SimFiles) -> None:
        with pytest.raises(fifoq.CorruptionError):
            await Bench(files).open()
        async with Bench(files).open_store(recover="quarantine") as store:
            assert store.quarantine is not None
            assert "cursor/main/reader" in store.quarantine.states
            queue = await store.queue()
            assert queue.cursors() == []
            cursor = await queue.cursor("reader")
            assert [r.item async for r in cursor.records(wait=False)] == [b"1", b"2", b"3", b"4"]

    files = SimFiles()
    on_a_loop(prepare(files))
    name = f"/data/{1:020}.log"
    at = files.content(name).rindex(b"cursor/main/reader")
    files.flip_bit(name, offset=at + 3, bit=1)
    on_a_loop(check(files))
