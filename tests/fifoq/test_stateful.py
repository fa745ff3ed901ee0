"""Long random lives of two queues of one store, with crashes of the process and of the power.

Every step is one change of what callers see, so what a crash leaves must be the store after some
step: not before the last one that was surely kept, with no hole, nothing altered or invented.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from actors.testing import VirtualTimeLoop, settle
from fifoq import Delivery, Queue, QueueEmpty, Store
from fifoq.options import Durability
from fifoq.testing.crashes import image_after
from fifoq.testing.pending import random_outcome
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench, cancelled, started
from tests.support.machines import assert_machine_holds

T = TypeVar("T")
Contents = dict[str, dict[int, bytes]]
NAMES = ("a", "b")

names = st.sampled_from(NAMES)
levels = st.sampled_from(["memory", "os", "sync"])
sizes = st.sampled_from([0, 1, 30, 30, 5000])


class QueueMachine(RuleBasedStateMachine):
    """Two queues; `states[0]` is surely durable, what is before `written` survives the process."""

    @initialize(level=levels, other=levels)
    def begin(self, level: Durability, other: Durability) -> None:
        self.loop = VirtualTimeLoop()
        self.bench = Bench()
        self.levels: dict[str, Durability] = {"a": level, "b": other}
        self.states: list[Contents] = [{name: {} for name in NAMES}]
        self.written = 0
        self.shown: dict[str, set[int]] = {name: set() for name in NAMES}
        self.leased: list[tuple[str, Delivery[bytes]]] = []
        self.number = 0
        self.run(self._open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _open(self) -> None:
        self.store: Store = await self.bench.open_store(segment_records=20)
        self.queues: dict[str, Queue[bytes]] = {
            name: await self.store.queue(name, durability=self.levels[name], max_retries=None)
            for name in NAMES
        }

    @property
    def now(self) -> Contents:
        return self.states[-1]

    def changed(self, level: str | None = None) -> Contents:
        """A new state like the newest, sure as its level says; the caller changes it."""
        self.states.append({name: dict(records) for name, records in self.now.items()})
        if level is not None:
            self.sure(level)
        return self.now

    def sure(self, level: str) -> None:
        if level != "memory":
            self.written = len(self.states) - 1
        if level == "sync":
            self.states, self.written = self.states[-1:], 0

    def payload(self, size: int) -> bytes:
        self.number += 1
        return b"%d." % self.number + b"x" * size

    # Work.

    @rule(name=names, level=levels, size=sizes)
    def put(self, name: str, level: Any, size: int) -> None:
        payload = self.payload(size)
        key = self.run(self.queues[name].put(payload, durability=level))
        self._added(name, [key.counter], [payload], level)

    @rule(name=names, count=st.integers(2, 9), level=levels)
    def put_many(self, name: str, count: int, level: Any) -> None:
        payloads = [self.payload(3) for _ in range(count)]
        keys = self.run(self.queues[name].put_many(payloads, durability=level))
        self._added(name, [key.counter for key in keys], payloads, level)

    @rule(name=names, count=st.integers(1, 20))
    def put_nowait(self, name: str, count: int) -> None:
        async def put() -> None:
            for _ in range(count):
                payload = self.payload(1)
                key = self.queues[name].put_nowait(payload)
                self._added(name, [key.counter], [payload], "memory")

        self.run(put())

    def _added(self, name: str, counters: list[int], payloads: list[bytes], level: str) -> None:
        assert not self.shown[name] & set(counters), "a counter was used again"
        assert min(counters) > max(self.shown[name], default=0)
        self.shown[name] |= set(counters)
        self.changed(level)[name].update(zip(counters, payloads, strict=True))

    def ready(self, name: str) -> list[int]:
        leased = {d.key.counter for n, d in self.leased if n == name}
        return sorted(set(self.now[name]) - leased)

    @rule(name=names, count=st.integers(1, 6))
    def take(self, name: str, count: int) -> None:
        ready = self.ready(name)
        if ready:
            found = self.run(self.queues[name].take_many(count))
            taken = ready[: len(found)]
            assert found == [self.now[name][counter] for counter in taken]
            state = self.changed()
            for counter in taken:
                del state[name][counter]
            self.sure(self.levels[name])

    @rule(name=names, count=st.integers(1, 6))
    def take_nowait(self, name: str, count: int) -> None:
        async def take() -> None:
            for _ in range(count):
                try:
                    item = self.queues[name].take_nowait()
                except QueueEmpty:
                    await settle()
                    return
                counter = self.ready(name)[0]
                assert item == self.changed()[name].pop(counter)

        self.run(take())

    @rule(name=names, share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def remove_upto(self, name: str, share: float) -> None:
        queue = self.queues[name]
        upto = int(queue.next * share)
        on_disk = queue.gap[0] if queue.gap is not None else queue.next
        # What is only on disk is a step of its own.
        removed = 0
        for first, last in ((0, min(upto, on_disk - 1)), (on_disk, upto)):
            gone = [counter for counter in self.now[name] if first <= counter <= last]
            state = self.changed()
            for counter in gone:
                del state[name][counter]
            removed += len(gone)
        assert self.run(queue.remove_upto(upto)) == removed
        if removed:
            self.sure(self.levels[name])
        for other, delivery in list(self.leased):
            if other == name and delivery.key.counter <= upto:
                assert delivery.state == "removed"
                self.leased.remove((other, delivery))

    @rule(name=names)
    def lease(self, name: str) -> None:
        ready = self.ready(name)
        if ready:
            delivery = self.run(started_lease(self.queues[name]))
            assert delivery.key.counter == ready[0]
            assert delivery.item == self.now[name][ready[0]]
            self.leased.append((name, delivery))

    @rule(pick=st.integers(0, 99), ack=st.booleans())
    @precondition(lambda self: self.leased)
    def end_lease(self, pick: int, ack: bool) -> None:
        name, delivery = self.leased.pop(pick % len(self.leased))

        async def end() -> bool:
            if ack:
                return await delivery.ack()
            delivery.nack(delay=0)
            return False

        if self.run(end()):
            del self.changed()[name][delivery.key.counter]
            self.sure(self.levels[name])

    @rule(name=names, sealed=st.booleans(), takes=st.booleans())
    def leave(self, name: str, sealed: bool, takes: bool) -> None:
        """A caller is cancelled, before or after its frame is sealed."""
        if self.levels[name] == "memory" or (takes and not self.ready(name)):
            return
        payload = self.payload(2)
        other = next(n for n in NAMES if n != name)

        async def work() -> None:
            queue, runner = self.queues[name], self.bench.runner
            await self.store.flush()
            runner.hold()
            neighbour = None
            if not sealed:
                key_bytes = self.payload(1)
                neighbour = await started(self.queues[other].put(key_bytes, durability="os"))
            counter = queue.next
            task: Any = await started(queue.take() if takes else queue.put(payload))
            # The log's upkeep may have been first.
            was_sealed = queue.tail_first > counter
            await cancelled(task)
            runner.let_go()
            await settle()
            if neighbour is not None:
                key = await neighbour
                self._added(other, [key.counter], [key_bytes], "os")
            if was_sealed and not takes:
                # Withdrawn before that, nobody has seen its counter.
                self.shown[name].add(counter)
                self.changed()[name][counter] = payload

        self.sure("sync")
        self.run(work())
        self.run(self.store.flush())
        self.sure("sync")

    @rule()
    def flush(self) -> None:
        self.run(self.store.flush())
        self.sure("sync")

    @rule(seconds=st.sampled_from([0.01, 0.06, 1.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # Ends of a life.

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.sure("sync")
        self._go_on(self.bench.files)

    @rule()
    def lose_the_process(self) -> None:
        twin = self.bench.files.copy()
        twin.process_crash()
        self._end_life()
        self.states, self.written = self.states[self.written :], 0
        self._go_on(twin)

    @rule(seed=st.integers(0, 2**16))
    def lose_the_power(self, seed: int) -> None:
        random = Random(seed)
        image = image_after(self.bench.files, lambda operation: random_outcome(operation, random))
        self._end_life()
        self._go_on(SimFiles.from_image(image))

    @rule(name=names, ran=st.booleans(), power=st.booleans(), seed=st.integers(0, 2**16))
    def lose_it_while_putting(self, name: str, ran: bool, power: bool, seed: int) -> None:
        payload = self.payload(9)
        random = Random(seed)

        async def cut() -> SimFiles:
            self.bench.runner.hold()
            counter = self.queues[name].next
            put = await started(self.queues[name].put(payload, durability="sync"))
            self.shown[name].add(counter)
            self.changed()[name][counter] = payload
            if ran:
                self.bench.runner.step()
            if power:
                files = SimFiles.from_image(
                    image_after(self.bench.files, lambda op: random_outcome(op, random))
                )
            else:
                files = self.bench.files.copy()
                files.process_crash()
            self.bench.runner.let_go()
            await put
            return files

        files = self.run(cut())
        self._end_life()
        if ran:
            self.sure("sync")
        elif not power:
            self.states, self.written = self.states[self.written :], 0
        self._go_on(files)

    def _end_life(self) -> None:
        self.run(self.store.close())

    def _go_on(self, files: SimFiles) -> None:
        self.bench.files = files
        self.leased = []
        self.run(self._open())
        found = self.run(self._contents())
        assert found in self.states, f"found {found}\nallowed {self.states}"
        self.states, self.written = [found], 0

    async def _contents(self) -> Contents:
        return {
            name: {record.key.counter: record.item async for record in queue.browse()}
            for name, queue in self.queues.items()
        }

    @invariant()
    def sizes_are_right(self) -> None:
        if hasattr(self, "loop"):
            for name, queue in self.queues.items():
                assert len(queue) == len(self.now[name])
                stats = queue.stats()
                assert stats.total_put_count - stats.total_take_count == len(queue)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.store.close())
            self.loop.close()


async def started_lease(queue: Queue[bytes]) -> Delivery[bytes]:
    return await queue.lease(seconds=1e6)


def test_any_life_of_a_store_keeps_its_promises() -> None:
    assert_machine_holds(QueueMachine, examples=60, steps=30)
