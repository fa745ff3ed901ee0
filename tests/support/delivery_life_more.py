"""The rest of a random life: cursors, removals, dead letters that are replayed, and full disks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from actors.testing import settle
from fifoq import Cursor, DiskFull, Key, RangeGone
from fifoq.options import Durability
from fifoq.testing.capacity import Capacity
from fifoq.testing.pending import SECTOR_BYTES
from store.keys import RESERVED_COUNTERS
from tests.fifoq.support import started
from tests.support.delivery_life import LEVELS, NAMES, Life
from tests.support.delivery_model import DEAD, Record

CURSOR = "reader"
SPACE_BYTES = 1 << 40


class FullLife(Life):
    """A life with all that a queue can do."""

    def __init__(self, seed: int, kind: str, level: Durability) -> None:
        super().__init__(seed, kind, level)
        self.reads = self.random.random() < 0.5
        """Whether there are cursors: they keep what would be reclaimed otherwise."""
        self.cursors: dict[str, Cursor[bytes]] = {}
        self.written_upto: dict[str, int] = {}
        """While the disk is full: what was written before."""

    def _steps(self) -> list[Callable[[], Awaitable[None]]]:
        steps = super()._steps()
        steps += [self.replay, self.purge, self.full_disk]
        if self.kind != "lanes":
            steps.append(self.remove_upto)
        if self.reads:
            steps += [*[self.read] * 3, self.commit_cursor, self.lease_from_cursor, self.seek]
        return steps

    async def _open(self) -> None:
        await super()._open()
        if self.reads:
            for name in NAMES:
                self.cursors[name] = await self.queues[name].cursor(CURSOR)
            if len(self.log) == 0:
                # Lost again, it would start behind what is gone by then.
                await self.store.flush()

    # Cursors.

    async def _cursor_done(self, name: str) -> int:
        if not self.reads or name not in NAMES:
            return 0
        cursor, history = self.cursors[name], self.model.queues[name].history
        done = sum(counter < cursor.committed for counter, _ in history)
        # A put that was cancelled leaves a counter that no record has; a crash leaves very many.
        steps = [b - a for (a, _), (b, _) in pairwise(history)]
        withdrawn = sum(step - 1 for step in steps if step < RESERVED_COUNTERS)
        lag = await cursor.lag()
        assert lag.records <= self.queues[name].stats().total_put_count - done + withdrawn
        return done

    async def _written(self) -> str:
        """Cursors see what is written."""
        await self.store.flush()
        self.model.changed("sync")
        return self.random.choice(NAMES)

    async def read(self) -> None:
        name = await self._written()
        model, cursor = self.model.queues[name], self.cursors[name]
        model.cursor_done, model.handed = model.cursor_done + model.handed, 0
        count = self.random.randint(1, 5)
        task = await started(cursor.take_many(count))
        if not task.done():
            assert not self._following(name, None)
            model.handed = 0
            task.cancel()
            await settle()
            return
        found = task.result()
        assert 1 <= len(found) <= count
        for payload in found:
            following = self._following(name, payload)
            assert following[:1] == [payload]
            model.handed += 1

    def _following(self, name: str, found: bytes | None) -> list[bytes]:
        """What the cursor comes to, if that was found: it passes by what nobody kept for it."""
        model = self.model.queues[name]
        rest = model.history[model.cursor_done + model.handed :]
        while rest and rest[0][1] != found and rest[0][0] in model.perhaps_gone:
            model.handed += 1
            del rest[0]
        return [payload for _, payload in rest]

    async def commit_cursor(self) -> None:
        name = self.random.choice(NAMES)
        model = self.model.queues[name]
        await self.cursors[name].commit()
        model.cursor_done, model.handed = model.cursor_done + model.handed, 0
        if model.cursor_kept != model.cursor_done:
            model.cursor_kept = model.cursor_done
            self.model.changed(self.level)

    async def lease_from_cursor(self) -> None:
        await self.commit_cursor()
        name = await self._written()
        model, cursor = self.model.queues[name], self.cursors[name]
        if model.handed:
            return
        task = await started(_wait_for(cursor.lease()))
        if not task.done():
            assert not self._following(name, None)
            model.handed = 0
            task.cancel()
            await settle()
            return
        delivery = task.result()
        assert self._following(name, delivery.item)[:1] == [delivery.item]
        passed, model.handed = model.handed, 0
        if self.random.random() < 0.3:
            delivery.nack(delay=0)
            return
        assert await delivery.ack()
        model.cursor_done += passed + 1
        model.cursor_kept = model.cursor_done
        self.model.changed(self.level)

    async def seek(self) -> None:
        name = await self._written()
        model, cursor = self.model.queues[name], self.cursors[name]
        if not model.history:
            return
        place = self.random.randrange(len(model.history))
        counter = model.history[place][0]
        try:
            landed = await cursor.seek(counter=counter)
        except RangeGone:
            assert place < model.cursor_kept, "what a cursor has not passed is kept for it"
            return
        passed = model.history[place : model.cursor_kept]
        while place < len(model.history) and model.history[place][0] < landed:
            gone = model.history[place][0]
            assert place < model.cursor_kept or gone in model.perhaps_gone
            place += 1
        model.perhaps_gone |= {counter for counter, _ in passed}
        model.cursor_done = model.cursor_kept = place
        model.handed = 0
        self.model.changed(self.level)

    # Removing.

    async def remove_upto(self) -> None:
        name, queue, model = self.queue()
        self.model.bury(name)
        if not model.records:
            return
        counter = self.random.choice([record.counter for record in model.records.values()])
        gone = [record for record in model.records.values() if record.counter <= counter]
        assert await queue.remove_upto(counter) == len(gone)
        for record in gone:
            model.gone(record)
        await self._sure()

    # Dead letters.

    def _some_letters(self, name: str) -> list[Record]:
        """Which ones, in order."""
        there = [record for _, record in sorted(self.model.queues[name + DEAD].records.items())]
        if self.random.random() < 0.3:
            return there
        return self.random.sample(there, min(len(there), 2))

    async def _counters(self, name: str, chosen: list[Record]) -> list[int]:
        found = {
            record.item: record.key.counter async for record in self.queues[name + DEAD].browse()
        }
        return [found[record.payload] for record in chosen]

    async def replay(self) -> None:
        name = self.random.choice(NAMES)
        chosen = self._some_letters(name)
        if not chosen:
            return
        letters = await self.store.dead_letters(name)
        counters = await self._counters(name, chosen)
        assert await letters.replay(*counters, dry_run=True) == len(chosen)
        assert await letters.replay(*counters) == len(chosen)
        for record in sorted(chosen, key=lambda record: record.place):
            self.model.queues[name + DEAD].gone(record)
            again = Record(0, record.payload, priority=record.priority, key=record.key)
            again.put_time, again.counter = await self._key_of(name, record.payload)
            self.keys[record.payload] = Key(again.counter, again.put_time)
            self.model.put(name, [again], self.now, self.wall)
        # The record that it was once may not come back: the model knows one of that payload.
        await self._sure()

    async def purge(self) -> None:
        name = self.random.choice(NAMES)
        chosen = self._some_letters(name)
        if not chosen:
            return
        letters = await self.store.dead_letters(name)
        assert await letters.purge(*await self._counters(name, chosen)) == len(chosen)
        for record in chosen:
            self.model.queues[name + DEAD].gone(record)
        self.model.changed("os" if self.level == "memory" else self.level)

    async def _sure(self) -> None:
        await self.store.flush()
        self.model.changed("sync")

    # A full disk.

    async def full_disk(self) -> None:
        """Whatever is refused has changed nothing; what is taken away goes; later all is well."""
        await self._after()
        await self._sure()
        self.written_upto = {name: self.queues[name].next - 1 for name in NAMES}
        self._fill()
        try:
            for _ in range(self.random.randint(1, 5)):
                if not self._all_buried():
                    break
                step = self.random.choice(self._steps_when_full())
                self.log.append(step.__name__)
                await step()
                await settle()
        finally:
            self.bench.files._capacity = None
        await asyncio.sleep(self.random.uniform(2, 3))
        await self.store.flush()
        for name in NAMES:
            self.model.queues[name].advance(self.now)
        await settle()
        for name in NAMES:
            self.model.bury(name)
        await self._sure()

    def _steps_when_full(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self._put_when_full,
            self._take_when_full,
            self._lease_when_full,
            self._end_when_full,
            self._commit_when_full,
            self._remove_when_full,
        ]

    def _fill(self) -> None:
        capacity = Capacity(SPACE_BYTES)
        for node in self.bench.files.disk.nodes.values():
            capacity.take(node.ino, 0, len(node.live))
        capacity._sectors_max = capacity._used + self.random.choice([0, 1, 8])
        assert capacity._sectors_max < SPACE_BYTES // SECTOR_BYTES
        self.bench.files._capacity = capacity

    def _all_buried(self) -> bool:
        """Whether what is on its way to the dead letters is there, or nothing of it."""
        for name in NAMES:
            model = self.model.queues[name]
            buried = self.queues[name].stats().dead_lettered
            if buried == model.buried + len(model.burying):
                self.model.bury(name)
            elif buried != model.buried:
                return False
        return True

    async def _refused(self, work: Awaitable[Any]) -> tuple[bool, Any]:
        try:
            return False, await work
        except DiskFull as error:
            return True, error

    async def _head_when_full(self) -> tuple[str, Record | None]:
        name, queue, model = self.queue()
        head = model.head(self.wall)
        found = await queue.peek()
        await settle()
        if model.burying:
            return name, None
        assert found == (head and head.payload)
        return name, head

    async def _put_when_full(self) -> None:
        name, queue, model = self.queue()
        payload, given, id = self._payload(), self._keywords(), self._id()
        record = self._record(payload, given)
        if not model.fits(1):
            return
        level: Any = self.random.choice(LEVELS)
        asked = given if id is None else {**given, "dedup_id": id}
        refused, key = await self._refused(queue.put(payload, durability=level, **asked))
        if not refused:
            self._added(name, [record], [key], [id])

    async def _take_when_full(self) -> None:
        name, head = await self._head_when_full()
        if head is None:
            return
        model = self.model.queues[name]
        refused, found = await self._refused(self.queues[name].take())
        model.claim(head)
        if refused:
            # It waits in memory itself: it cannot be removed before it is put.
            model.let_follow(head)
            return
        assert found == head.payload
        model.gone(head)

    async def _lease_when_full(self) -> None:
        name, head = await self._head_when_full()
        model = self.model.queues[name]
        if head is None or model.spent(head):
            return
        seconds = self._term()
        refused, found = await self._refused(_wait_for(self.queues[name].lease(seconds=seconds)))
        if refused:
            model.claim(head)
            if head.key:
                model.keys[head.key] = head.place
            return
        assert model.lease(head, self.now + seconds)
        self._leased(name, [head], [found])

    async def _end_when_full(self) -> None:
        if not self.leased:
            return
        name, record, delivery = self.random.choice(self.leased)
        model = self.model.queues[name]
        how = self.random.choice(["ack", "nack", "reject"])
        if how == "nack":
            delivery.nack(delay=0)
            model.release(record, self.now)
        elif how == "ack":
            # Refused, it is written once there is space: nobody gets the record again.
            await self._refused(delivery.ack())
            model.gone(record)
        else:
            refused, _ = await self._refused(delivery.reject("no"))
            if refused:
                assert delivery.state == "leased"
                return
            self.model.move(name, record)
        self.leased.remove((name, record, delivery))
        if how != "ack":
            self.ended.append(delivery)

    async def _commit_when_full(self) -> None:
        name, queue, model = self.queue()
        payload, given, id = self._payload(), self._keywords(), self._id()
        record = self._record(payload, given)
        if not model.fits(1):
            return
        leased = self.leased[:1]
        tx = self.store.transaction()
        try:
            async with tx:
                for _, _, delivery in leased:
                    tx.ack(delivery)
                tx.put(queue, payload, **(given if id is None else {**given, "dedup_id": id}))
        except DiskFull:
            for _, _, delivery in leased:
                assert delivery.state == "leased"
            return
        self._commit(tx.keys, [(name, record, id)], [(*entry, "ack") for entry in leased])
        self._end([], [(*entry, "ack") for entry in leased])

    async def _remove_when_full(self) -> None:
        """What waits in memory alone is left out: it cannot be removed before it is put."""
        name, queue, model = self.queue()
        counters = [record.counter for record in model.records.values()]
        written = [counter for counter in counters if counter <= self.written_upto[name]]
        if self.kind == "lanes" or not written:
            return
        counter = self.random.choice(written)
        gone = [record for record in model.records.values() if record.counter <= counter]
        assert await queue.remove_upto(counter) == len(gone)
        for record in gone:
            if record in model.burying:
                model.burying.remove(record)
            model.gone(record)
        for entry in [entry for entry in self.leased if entry[1] in gone]:
            self.leased.remove(entry)
            self.ended.append(entry[2])


async def _wait_for(work: Any) -> Any:
    return await work
