"""T5: callers leave at any moment, in any way, and nobody else is harmed (C5).

Most rounds run on a runner that holds each job back until the round goes on: the writer stands
before its first write, or it is done and the loop has not heard of it. The others run on the real
writer, whose thread is stopped inside its writes and syncs. After each round every record is
accounted for.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import pytest
import uvloop

import fifoq
from fifoq import Delivery, Queue, Store
from fifoq.options import Durability
from fifoq.testing.simfiles import SimFiles
from store.files import Handle
from store.osfiles import OsFiles
from tests.support.figures import record
from tests.support.runners import BeginningRunner, ManualRunner

SEED: Final = int(os.environ.get("FIFOQ_SEED", "20261117"))
ROUND_SECONDS_MAX: Final = 10.0
ROUNDS_PER_STORE: Final = 25
LEVELS: Final[tuple[Durability, ...]] = ("sync", "os", "memory")
WAYS: Final = ("cancel", "wait_for", "timeout", "group")

Kind = Literal["put", "put_many", "take", "take_many", "lease", "ack", "flush"]
KINDS: Final[tuple[Kind, ...]] = ("put", "put_many", "take", "take_many", "lease", "ack", "flush")
Main = Callable[[], Coroutine[Any, Any, int]]
RUN: Final[dict[str, Callable[[Coroutine[Any, Any, int]], int]]] = {
    "asyncio": asyncio.run,
    "uvloop": uvloop.run,
}


class Enough(Exception):
    """What a sibling raises to make a task group cancel the others."""


@dataclass
class Caller:
    """One call, how it may be made to leave, and what came of it."""

    kind: Kind
    way: str
    items: list[bytes] = field(default_factory=list)
    count: int = 0
    task: asyncio.Task[Any] = field(init=False)
    scope: asyncio.Timeout | None = None
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    was_told: bool = False
    inner: asyncio.Task[Any] | None = None
    """The call itself, if it has a task of its own whose outcome the outer one does not tell."""

    def start(self, call: Callable[[], Awaitable[Any]]) -> None:
        self.task = asyncio.ensure_future(self._run(call))

    async def _run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.way == "wait_for":
            return await asyncio.wait_for(_await(call), 1000)
        if self.way == "timeout":
            async with asyncio.timeout(None) as self.scope:
                return await call()
        if self.way == "group":
            async with asyncio.TaskGroup() as group:
                task = self.inner = group.create_task(_await(call))
                sibling = group.create_task(self._fail_when_told())
                task.add_done_callback(lambda _: sibling.cancel())
            return task.result()
        return await call()

    async def _fail_when_told(self) -> None:
        await self.enough.wait()
        raise Enough

    def leave(self) -> None:
        """Make it leave now, in its way."""
        self.was_told = True
        if self.way == "group":
            self.enough.set()
        elif self.way == "timeout" and self.scope is not None:
            if not self.task.done():
                self.scope.reschedule(asyncio.get_running_loop().time())
        else:
            self.task.cancel()

    @property
    def returned(self) -> bool:
        task = self.inner or self.task
        return not task.cancelled() and task.exception() is None

    def result(self) -> Any:
        return (self.inner or self.task).result()

    def check(self) -> None:
        """Whoever left left in the way it was told to, and nobody else did."""
        if not self.task.cancelled():
            self.task.exception()
        if self.returned:
            return
        assert self.was_told, f"{self.kind} did not return: {self.task}"
        if not self.task.cancelled():
            error = self.task.exception()
            assert isinstance(error, TimeoutError | ExceptionGroup), repr(error)


async def _await(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


class Rounds:
    """Rounds on one queue, with the account of its records."""

    def __init__(self, store: Store, queue: Queue[bytes], random: Random) -> None:
        self._store, self._queue, self._random = store, queue, random
        self._known: list[bytes] = []
        self._counters: dict[bytes, int] = {}
        self._next_item = 0
        self.cancelled = 0

    def new_items(self, count: int) -> list[bytes]:
        first, self._next_item = self._next_item, self._next_item + count
        return [b"%d" % number for number in range(first, first + count)]

    async def round(self, park: Callable[[], Awaitable[None]], free: Callable[[], None]) -> None:
        """Callers start, the writer is parked, some leave, the writer goes on."""
        random = self._random
        filler = self.new_items(random.randint(2, 7))
        await self._queue.put_many(filler)
        self._known += filler
        held: Delivery[bytes] = await self._queue.lease(seconds=1000)
        callers = [Caller(kind, random.choice(WAYS)) for kind in self._kinds()]
        for caller in callers:
            self._start(caller, held)
            if random.random() < 0.3:
                await asyncio.sleep(0)
        await park()
        leaving = random.sample(callers, random.randint(1, len(callers)))
        for caller in leaving:
            caller.leave()
            if random.random() < 0.3:
                await asyncio.sleep(0)
        await _turns(random.randint(0, 3))
        free()
        await self._end(callers)
        await self._check(callers, held)

    def _kinds(self) -> list[Kind]:
        kinds = self._random.choices(KINDS, k=self._random.randint(2, 7))
        # A delivery is acked by one caller.
        return [k for at, k in enumerate(kinds) if k != "ack" or "ack" not in kinds[:at]]

    def _start(self, caller: Caller, held: Delivery[bytes]) -> None:
        queue, random = self._queue, self._random
        calls: dict[Kind, Callable[[], Awaitable[Any]]] = {
            "put": lambda: queue.put(caller.items[0]),
            "put_many": lambda: queue.put_many(caller.items),
            "take": queue.take,
            "take_many": lambda: queue.take_many(caller.count),
            "lease": lambda: queue.lease(seconds=1000),
            "ack": held.ack,
            "flush": queue.flush,
        }
        if caller.kind in ("put", "put_many"):
            caller.items = self.new_items(1 if caller.kind == "put" else random.randint(2, 4))
        elif caller.kind in ("take", "take_many", "lease"):
            caller.count = random.randint(1, 3) if caller.kind == "take_many" else 1
        caller.start(calls[caller.kind])

    async def _end(self, callers: list[Caller]) -> None:
        """Wait for all; takers that still wait for records are told to leave."""
        tasks = [caller.task for caller in callers]
        async with asyncio.timeout(ROUND_SECONDS_MAX):
            for caller in callers:
                if caller.kind in ("put", "put_many", "ack", "flush"):
                    await asyncio.wait([caller.task])
            await self._queue.flush()
            await _turns(4)
            for caller in callers:
                if not caller.task.done():
                    caller.leave()
            await asyncio.wait(tasks)
            # A taker that left late gives its records back with the next frame.
            await self._queue.flush()
            await self._queue.flush()

    async def _check(self, callers: list[Caller], held: Delivery[bytes]) -> None:
        taken: list[bytes] = []
        skipped = 1
        if held.state == "leased":
            held.nack(delay=0)
        for caller in callers:
            caller.check()
            self.cancelled += caller.was_told
            if caller.kind in ("take", "take_many", "lease") and not caller.returned:
                skipped += caller.count
            elif caller.kind in ("take", "take_many"):
                result = caller.result()
                taken += [result] if caller.kind == "take" else result
            elif caller.kind == "lease":
                caller.result().nack(delay=0)
                skipped += 1
        acks = [caller for caller in callers if caller.kind == "ack"]
        acked = [held.item] if acks else []
        found = [(r.key.counter, r.item) async for r in self._queue.browse()]
        self._check_contents(callers, taken, acked, [item for _, item in found])
        if acks and acks[0].returned:
            assert held.item not in [item for _, item in found]
        self._check_order(found, taken, skipped)
        self._check_stats(len(found))
        self._known = [item for _, item in found]

    def _check_contents(
        self, callers: list[Caller], taken: list[bytes], acked: list[bytes], there: list[bytes]
    ) -> None:
        everywhere = taken + there
        assert len(everywhere) == len(set(everywhere)), "a record is there twice"
        possible = set(self._known)
        for caller in callers:
            here = [item in everywhere for item in caller.items]
            assert all(here) or not any(here), "a put_many was torn"
            assert not caller.items or all(here) or not caller.returned, "a put was lost"
            possible.update(caller.items)
        assert set(everywhere) <= possible, "a record came from nowhere"
        lost = set(self._known) - {*everywhere, *acked}
        assert not lost, f"records were lost: {lost}"

    def _check_order(
        self, found: list[tuple[int, bytes]], taken: list[bytes], skipped: int
    ) -> None:
        for counter, item in found:
            assert self._counters.setdefault(item, counter) == counter, "a counter changed"
        order = [item for _, item in found]
        known = [item for item in self._known if item in set(order)]
        assert order[: len(known)] == known, "records changed places"
        behind = [self._known.index(item) for item in taken if item in self._known]
        if behind:
            passed = sum(item in set(order) for item in self._known[: max(behind)])
            assert passed <= skipped, "a take passed a record that nobody held"

    def _check_stats(self, size: int) -> None:
        stats = self._queue.stats()
        assert (len(self._queue), stats.current_size, stats.ready) == (size, size, size)
        assert stats.leased == 0
        assert stats.total_put_count - stats.total_take_count == size


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Complaints:
    """Collects what the loop, or a destructor, says to nobody in particular."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[str] = []
        monkeypatch.setattr("sys.unraisablehook", lambda args: self.heard.append(str(args)))

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.heard.append(str(context)))


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> Complaints:
    return Complaints(monkeypatch)


async def sweep_held_jobs(seed: int, store_count: int, complaints: Complaints) -> int:
    """Rounds with the writer before its first write, or done and not yet heard of."""
    complaints.listen()
    random = Random(seed)
    cancelled = 0
    for number in range(store_count):
        runners: list[ManualRunner] = []

        kind = BeginningRunner if number % 2 else ManualRunner

        def make(
            *args: Any, made: list[ManualRunner] = runners, kind: type[ManualRunner] = kind
        ) -> ManualRunner:
            made.append(kind(*args))
            return made[-1]

        async def park(made: list[ManualRunner] = runners) -> None:
            made[0].hold()
            await _turns(random.randint(0, 5))
            for _ in range(random.randint(0, 2)):
                made[0].step()
                await _turns(random.randint(0, 2))

        files = SimFiles()
        level = LEVELS[number % len(LEVELS)]
        store = await fifoq.open_store("/store", files=files, runner=make)
        queue = await store.queue(durability=level, max_retries=None)
        rounds = Rounds(store, queue, random)
        try:
            for _ in range(ROUNDS_PER_STORE):
                await rounds.round(park, lambda made=runners: made[0].let_go())  # type: ignore[misc]
        except BaseException as error:
            error.add_note(f"seed {seed}, store {number}, level {level}")
            raise
        cancelled += rounds.cancelled + await _close_and_compare(store, files, rounds, random)
    return cancelled


async def _close_and_compare(store: Store, files: SimFiles, rounds: Rounds, random: Random) -> int:
    """Close the store by a call that leaves, then by one that stays; look what is on disk."""
    leaving = asyncio.ensure_future(store.close())
    await _turns(random.randint(0, 4))
    leaving.cancel()
    await asyncio.wait([leaving])
    async with asyncio.timeout(ROUND_SECONDS_MAX):
        await store.close()
        async with fifoq.open("/store", files=files) as queue:
            assert [r.item async for r in queue.browse()] == rounds._known
    return 1


@pytest.mark.parametrize("loop", RUN)
@pytest.mark.parametrize(
    "store_count",
    [
        pytest.param(40, id="suite"),
        pytest.param(1200, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(3600)]),
    ],
)
def test_whoever_leaves_at_any_moment_harms_nobody(
    loop: str, store_count: int, complaints: Complaints
) -> None:
    cancelled = RUN[loop](sweep_held_jobs(SEED, store_count, complaints))
    gc.collect()
    record("T5 cancellations", loop=loop, cancellations=cancelled, seed=SEED)
    assert complaints.heard == []
    assert cancelled >= 60 * store_count


class GatedFiles(OsFiles):
    """The real files, whose writer stops before or after a chosen call until it may go on."""

    def __init__(self) -> None:
        self.stops: Literal["", "before pwrite", "after pwrite", "before sync", "after sync"] = ""
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        self._gate("before pwrite")
        count = super().pwrite(handle, data, offset)
        self._gate("after pwrite")
        return count

    def datasync(self, handle: Handle) -> None:
        self._gate("before sync")
        super().datasync(handle)
        self._gate("after sync")

    def _gate(self, place: str) -> None:
        if self.stops == place:
            self.stops = ""
            self.reached.set()
            self.go_on.wait(ROUND_SECONDS_MAX)

    def close_at(self, place: Any) -> None:
        self.reached.clear()
        self.go_on.clear()
        self.stops = place

    def release(self) -> None:
        self.stops = ""
        self.go_on.set()


PLACES: Final = ("before pwrite", "after pwrite", "before sync", "after sync")


async def sweep_real_writer(path: Path, seed: int, round_count: int, complaints: Complaints) -> int:
    complaints.listen()
    random = Random(seed)
    files = GatedFiles()
    cancelled = 0
    for level in LEVELS:
        store = await fifoq.open_store(path / level, files=files)
        queue = await store.queue(durability=level, max_retries=None)
        rounds = Rounds(store, queue, random)
        for number in range(round_count):

            async def park(place: str = PLACES[number % len(PLACES)]) -> None:
                files.close_at(place)
                for _ in range(random.randint(5, 60)):
                    if files.reached.is_set():
                        break
                    await asyncio.sleep(0)

            await rounds.round(park, files.release)
        cancelled += rounds.cancelled
        await store.close()
    return cancelled


@pytest.mark.parametrize("loop", RUN)
def test_whoever_leaves_while_the_writer_is_in_the_kernel_harms_nobody(
    loop: str, tmp_path: Path, complaints: Complaints
) -> None:
    cancelled = RUN[loop](sweep_real_writer(tmp_path, SEED, 80, complaints))
    gc.collect()
    record("T5 cancellations", loop=loop, cancellations=cancelled, seed=SEED)
    assert complaints.heard == []
    assert cancelled >= 240


@pytest.mark.parametrize("loop", RUN)
def test_takers_that_are_woken_and_then_leave_pass_their_turn_on(
    loop: str, complaints: Complaints
) -> None:
    """Each record wakes one taker; that one leaves, and the next must get the record."""

    async def main() -> int:
        complaints.listen()
        # No commit comes meanwhile, which would wake those who were forgotten.
        async with fifoq.open(
            "/store", files=SimFiles(), durability="memory", auto_flush=False
        ) as queue:
            for number in range(300):
                takers = [asyncio.ensure_future(queue.take()) for _ in range(5)]
                await _turns(2)
                await queue.put(b"%d" % number)
                for taker in takers[: number % 5]:
                    taker.cancel()
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    done, rest = await asyncio.wait(
                        takers[number % 5 :], return_when=asyncio.FIRST_COMPLETED
                    )
                assert [taker.result() for taker in done] == [b"%d" % number]
                for taker in rest:
                    taker.cancel()
                await asyncio.wait(takers)
            assert queue.empty()
        return 300 * 4

    cancelled = RUN[loop](main())
    record("T5 cancellations", loop=loop, cancellations=cancelled, seed=SEED)
    assert complaints.heard == []


@pytest.mark.parametrize("loop", RUN)
def test_tasks_that_nobody_keeps_end_with_the_loop(
    loop: str, tmp_path: Path, complaints: Complaints
) -> None:
    """Callers are dropped in mid-call; the loop ends, and the store has what was confirmed."""
    confirmed: list[bytes] = []

    async def put(queue: Queue[bytes], item: bytes) -> None:
        await queue.put(item)
        confirmed.append(item)

    async def take(queue: Queue[bytes]) -> None:
        with pytest.raises(fifoq.QueueClosed):
            await queue.take()

    dropped: set[asyncio.Future[Any]] = set()

    async def main() -> int:
        complaints.listen()
        store = await fifoq.open_store(tmp_path / "store")
        queue = await store.queue()
        for number in range(20):
            dropped.add(asyncio.ensure_future(put(queue, b"%d" % number)))
        dropped.add(asyncio.ensure_future(take(await store.queue("empty"))))
        await _turns(3)
        dropped.clear()
        gc.collect()
        await store.close()
        return 0

    RUN[loop](main())

    async def look() -> int:
        async with fifoq.open(tmp_path / "store") as queue:
            found = [r.item async for r in queue.browse()]
        assert set(confirmed) <= set(found)
        assert found == sorted(found, key=int)
        return 0

    RUN[loop](look())
    gc.collect()
    assert complaints.heard == []


@pytest.mark.parametrize("loop", RUN)
def test_an_opening_that_is_cancelled_leaves_the_store_to_others(
    loop: str, tmp_path: Path, complaints: Complaints
) -> None:
    async def main() -> int:
        complaints.listen()
        for turns in range(40):
            opening = asyncio.ensure_future(_open(tmp_path / "store"))
            await _turns(turns)
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                await opening.result().close()
            async with asyncio.timeout(ROUND_SECONDS_MAX):
                await (await _open(tmp_path / "store")).close()
        return 40

    cancelled = RUN[loop](main())
    record("T5 cancellations", loop=loop, cancellations=cancelled, seed=SEED)
    gc.collect()
    assert complaints.heard == []


async def _open(path: Path) -> Queue[bytes]:
    return await fifoq.open(path)
