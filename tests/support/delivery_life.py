"""A long random life of a store with two queues, against the model of what they promise.

Here are puts, takes, leases, transactions, time and trouble; the rest is in `delivery_life_more`.
After every step the counts must be those of the model, and every record that is handed out must be
the very one that the model names. A difference says the seed of its life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import repeat
from random import Random
from typing import Any

import pytest

from actors.testing import VirtualTimeLoop, settle
from fifoq import Delivery, Key, Queue, QueueFull, StaleLease, Store
from fifoq.dedup import digest_of
from fifoq.options import Durability
from fifoq.testing.crashes import after_process_crash, image_after
from fifoq.testing.pending import random_outcome
from fifoq.testing.simfiles import SimFiles
from tests.fifoq.support import Bench, cancelled, started
from tests.support.delivery_model import (
    DEAD,
    NS,
    Contents,
    Kept,
    QueueModel,
    Record,
    Rules,
    Seen,
    StoreModel,
)

LEVELS = ("memory", "os", "sync")
NAMES = ("a", "b")
IDS = ("1", "2", "3", "4", "5")
START = 2 * 10**18
COUNTS = ("ready", "leased", "delayed", "expired", "dead_lettered")
"""Of a queue, behind its size."""


class Wall:
    """The wall clock of the life being lived: the loop's time, and by how much it is off."""

    def __init__(self) -> None:
        self.loop: VirtualTimeLoop | None = None
        self.offset = 0

    def read(self) -> int:
        elapsed = 0 if self.loop is None else round(self.loop.now * NS)
        return START + elapsed + self.offset


WALL = Wall()


class Life:
    """One store with two queues of a kind, and the model of it."""

    def __init__(self, seed: int, kind: str, level: Durability) -> None:
        self.random = random = Random(f"{seed} {kind} {level}")
        self.kind, self.level = kind, level
        self.bench = Bench()
        rules = Rules(
            max_retries=random.choice([None, 0, 1, 3]),
            backoff=random.choice([0.0, 1.0, 2.0]),
            strict=kind == "strict",
            lanes=kind == "lanes",
            aging=random.choice([None, 5.0, 30.0]),
            expired_to_dead=random.random() < 0.4,
            maxsize=random.choice([None, None, 8]),
            weights=random.choice([None, None, (4, 1, 3, 1, 1, 2, 1, 1, 1, 1)]),
            dedup_window=random.choice([3.0, 15.0, 300.0]),
        )
        self.options: dict[str, Any] = {
            "max_retries": rules.max_retries,
            "retry_backoff": rules.backoff,
            "strict": rules.strict,
            "priorities": rules.lanes,
            "priority_aging": rules.aging,
            "priority_weights": rules.weights,
            "dedup_window": rules.dedup_window,
            "on_expire": "dlq" if rules.expired_to_dead else "drop",
            "maxsize": rules.maxsize,
            "overflow": "fail",
        }
        dead = {name + DEAD: Rules() for name in NAMES}
        self.model = StoreModel({**dict.fromkeys(NAMES, rules), **dead})
        self.store: Store
        self.queues: dict[str, Queue[bytes]] = {}
        self.leased: list[tuple[str, Record, Delivery[bytes]]] = []
        self.ended: list[Delivery[bytes]] = []
        self.keys: dict[bytes, Key] = {}
        self.digests: dict[bytes, str] = {}
        self.number = 0
        self.log: list[str] = []

    # Time.

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def wall(self) -> int:
        return WALL.read()

    # A life.

    async def live(self, steps: int) -> None:
        WALL.offset = 0
        WALL.loop = asyncio.get_running_loop()  # type: ignore[assignment]
        await self._open()
        for _ in range(steps):
            step = self.random.choice(self._steps())
            self.log.append(step.__name__)
            await step()
            await self._after()
        await self.reopen()
        await self.store.close()

    def _steps(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            *[self.put] * 6,
            *[self.put_many] * 2,
            self.put_nowait,
            *[self.take] * 3,
            *[self.take_many] * 2,
            *[self.peek] * 2,
            *[self.lease] * 6,
            self.lease_many,
            *[self.ack] * 3,
            self.ack_stale,
            *[self.nack] * 4,
            *[self.reject] * 2,
            self.extend,
            self.cancel_delayed,
            self.take_letter,
            *[self.transaction] * 4,
            *[self.pass_time] * 4,
            self.set_clock,
            self.flush,
            self.leave,
            *[self.reopen, self.lose_the_process, self.lose_the_power],
        ]

    async def _open(self) -> None:
        self.store = await self.bench.open_store(segment_records=20)
        for name in NAMES:
            self.queues[name] = await self.store.queue(name, durability=self.level, **self.options)
            self.queues[name + DEAD] = await self.store.queue(name + DEAD, durability=self.level)

    async def _after(self) -> None:
        """What was under way has ended; everybody agrees on the counts."""
        await settle()
        buried = [name for name in NAMES if self.model.bury(name)]
        if buried:
            # Its frame may be before or after that of what else the step did.
            await self.store.flush()
            self.model.changed("sync")
        self.model.changed()
        for name, queue in self.queues.items():
            model = self.model.queues[name]
            if queue.expired_count > model.expired:
                await self._expired_unread(name, queue.expired_count)
            found = self._counts(queue)
            leased, waiting = len(model.leased), len(model.waiting)
            wanted = (model.size, model.ready, leased, waiting, model.expired, model.buried)
            assert found == wanted, f"{name}: {COUNTS} {found} {wanted}"
        for name, record, delivery in list(self.leased):
            if record.place not in self.model.queues[name].leased:
                self.leased.remove((name, record, delivery))
                self.ended.append(delivery)
                assert delivery.state != "leased"

    def _counts(self, queue: Queue[bytes]) -> tuple[int, ...]:
        """What `stats` counts; asked itself now and then, since it knows much else as well."""
        if len(self.log) % 8 == 0:
            stats = queue.stats()
            return len(queue), *(getattr(stats, name) for name in COUNTS)
        leasing = queue.leasing
        parts = queue.ready_count, leasing.count, queue.waiting_count, queue.expired_count
        return len(queue), *parts, leasing.burials.count

    async def _expired_unread(self, name: str, count: int) -> None:
        """What is too old may go as soon as it is read from disk, before anybody comes to it."""
        model = self.model.queues[name]
        found = {record.item async for record in self.queues[name].browse()}
        gone = [record for record in model.records.values() if record.payload not in found]
        for record in sorted(gone, key=lambda record: model.rank(record, self.wall)):
            assert record.expires_at, f"{record} is gone"
            assert record.expires_at <= self.wall, f"{record} is gone"
            assert record.place not in model.leased
            model.expire(record)
        self.model.bury(name)
        assert model.expired == count
        await self.store.flush()
        self.model.changed("sync")

    def queue(self) -> tuple[str, Queue[bytes], QueueModel]:
        name = self.random.choice(NAMES)
        return name, self.queues[name], self.model.queues[name]

    # Putting.

    def _payload(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def _keywords(self) -> dict[str, Any]:
        random = self.random
        keywords: dict[str, Any] = {}
        if random.random() < 0.25:
            keywords["delay"] = random.choice([0, 1, 5, 20]) * random.uniform(0.5, 1)
        elif random.random() < 0.15:
            keywords["deliver_at"] = self.wall / NS + random.uniform(-2, 10)
        if random.random() < 0.25:
            keywords["ttl"] = random.choice([1, 5, 20]) * random.uniform(0.5, 1)
        if self.kind == "lanes" and random.random() < 0.7:
            keywords["priority"] = random.choice([0, 2, 5, 9])
        if random.random() < (0.8 if self.kind == "keyed" else 0.1):
            keywords["ordering_key"] = random.choice(["x", "y", "z"])
        return keywords

    def _record(self, payload: bytes, given: dict[str, Any]) -> Record:
        wall = self.wall
        due = 0
        if "delay" in given:
            due = wall + round(given["delay"] * NS)
        if "deliver_at" in given:
            due = round(given["deliver_at"] * NS)
        expires_at = max(wall, due) + round(given["ttl"] * NS) if "ttl" in given else 0
        return Record(
            0,
            payload,
            due=due if due > wall else 0,
            expires_at=expires_at,
            priority=given.get("priority", 5),
            key=given.get("ordering_key", ""),
        )

    def _added(
        self,
        name: str,
        records: list[Record],
        keys: Iterable[Key],
        ids: Iterable[str | None] = repeat(None),
    ) -> None:
        """Records were put; those whose ids were known are the ones of then."""
        model = self.model.queues[name]
        for record, key, id in zip(records, keys, ids, strict=False):
            if id is not None and (known := model.known(id, self.now)) is not None:
                assert (key.counter, key.timestamp) == (known.counter, known.time)
                continue
            record.put_time, record.counter = key.timestamp, key.counter
            self.keys[record.payload] = key
            self.model.put(name, [record], self.now, self.wall)
            if id is not None:
                self.model.remember(name, id, record, self.now)

    def _id(self) -> str | None:
        if self.random.random() < 0.75:
            return None
        id = self.random.choice(IDS)
        self.digests[digest_of(id.encode())] = id
        return id

    def _new_count(self, name: str, ids: Iterable[str | None]) -> int:
        """How many records puts with these ids add."""
        model, listed = self.model.queues[name], list(ids)
        fresh = {id for id in listed if id is not None and model.known(id, self.now) is None}
        return listed.count(None) + len(fresh)

    async def put(self) -> None:
        name, queue, model = self.queue()
        payload, given = self._payload(), self._keywords()
        record = self._record(payload, given)
        level: Any = self.random.choice([self.level, *LEVELS])
        id = self._id()
        asked = given if id is None else {**given, "dedup_id": id}
        new = self._new_count(name, [id])
        if new and not model.fits(1):
            with pytest.raises(QueueFull):
                await queue.put(payload, durability=level, **asked)
            return
        key = await queue.put(payload, durability=level, **asked)
        self._added(name, [record], [key], [id])
        self.model.changed(level if new else "memory")

    async def put_many(self) -> None:
        name, queue, model = self.queue()
        given = self._keywords()
        payloads = [self._payload() for _ in range(self.random.randint(2, 5))]
        records = [self._record(payload, given) for payload in payloads]
        ids = [self._id() for _ in payloads]
        if any(ids):
            given["dedup_ids"] = ids
        new = self._new_count(name, ids)
        if new and not model.fits(new):
            with pytest.raises(QueueFull):
                await queue.put_many(payloads, **given)
            return
        keys = await queue.put_many(payloads, **given)
        self._added(name, records, keys, ids)
        self.model.changed("os" if any(ids) and self.level == "memory" else self.level)

    async def put_nowait(self) -> None:
        name, queue, model = self.queue()
        for _ in range(self.random.randint(1, 6)):
            payload, given, id = self._payload(), self._keywords(), self._id()
            asked = given if id is None else {**given, "dedup_id": id}
            if self._new_count(name, [id]) and not model.fits(1):
                with pytest.raises(QueueFull):
                    queue.put_nowait(payload, **asked)
                return
            record = self._record(payload, given)
            self._added(name, [record], [queue.put_nowait(payload, **asked)], [id])
            self.model.changed()

    # Taking.

    def _head(self, name: str, seen: Seen | None = None) -> Record | None:
        """What one who waits gets; until then what is to be buried is."""
        model = self.model.queues[name]
        while True:
            record = model.head(self.wall, seen)
            if record is not None or not self.model.bury(name):
                return record

    async def _come_to_head(self, name: str) -> Record | None:
        """The same once somebody has looked for it until nothing was in the way any more."""
        queue, head = self.queues[name], self._head(name)
        found, expired = None, -1
        while expired < queue.expired_count:
            expired = queue.expired_count
            found = await queue.peek()
            await settle()
        assert found == (head and head.payload)
        return head

    async def _look_on(self, name: str) -> None:
        """Whoever got fewer than asked for may have looked at the next one, or not."""
        await settle()
        await self._come_to_head(name)
        await self.store.flush()
        self.model.changed("sync")

    async def peek(self) -> None:
        name, queue, model = self.queue()
        now = self.now
        found = await queue.peek()
        seen = found and Seen(found, queue.stats().dead_lettered)
        record = model.head(self.wall, seen or None)
        if found is None and record is None:
            return
        if record is None:
            # Those that are being buried may be away by then.
            record = self._head(name)
        assert found == (record and record.payload)
        assert self.now == now, "time passed"

    async def take(self) -> None:
        name, queue, model = self.queue()
        record = self._head(name)
        if record is None:
            await self._come_to_head(name)
            return
        self.model.changed()
        now = self.now
        assert await queue.take() == record.payload
        assert self.now == now, "time passed"
        model.claim(record)
        model.gone(record)
        self.model.changed(self.level)

    async def take_many(self) -> None:
        name, queue, model = self.queue()
        count = self.random.randint(1, 6)
        record = self._head(name)
        if record is None:
            await self._come_to_head(name)
            return
        self.model.changed()
        found = await queue.take_many(count)
        # What must be read first is not waited for.
        assert 1 <= len(found) <= count
        wanted: list[bytes] = []
        while record is not None and len(wanted) < len(found):
            wanted.append(record.payload)
            model.claim(record)
            model.gone(record)
            record = model.head(self.wall) if len(wanted) < len(found) else None
        assert found == wanted
        self.model.changed(self.level)
        if len(found) < count:
            await self._look_on(name)

    async def take_letter(self) -> None:
        name = self.random.choice(NAMES) + DEAD
        record = self._head(name)
        if record is None:
            await self._come_to_head(name)
            return
        assert await self.queues[name].take() == record.payload
        self.model.queues[name].gone(record)
        self.model.changed(self.level)

    # Leases.

    def _lease(
        self, name: str, deadline: float, count: int = 1, seen: Seen | None = None
    ) -> list[Record]:
        """What is leased next; records that were leased too often are buried on the way."""
        model = self.model.queues[name]
        found: list[Record] = []
        while not found:
            if self._head(name, seen) is None:
                return []
            while len(found) < count:
                record = model.head(self.wall, seen)
                if record is None:
                    break
                if model.lease(record, deadline):
                    found.append(record)
        return found

    def _term(self) -> float:
        return self.random.choice([2, 10, 60]) * self.random.uniform(0.5, 1)

    async def _hand_out(
        self, name: str, work: Awaitable[Delivery[bytes]], deadline: float
    ) -> tuple[Record, Delivery[bytes]] | None:
        """Lease a record, unless one would have to wait for it; it must be that of the model.

        Whoever waits sees to it as well that records are buried that were leased too often.
        """
        task = await started(work)
        if not task.done():
            await cancelled(task)
            assert self._lease(name, deadline) == []
            return None
        delivery = task.result()
        seen = Seen(delivery.item, self.queues[name].stats().dead_lettered)
        records = self._lease(name, deadline, seen=seen)
        wanted = [(record.payload, record.attempts) for record in records]
        assert [(delivery.item, delivery.attempt)] == wanted
        self.model.changed("memory" if self.level == "memory" else "os")
        return records[0], delivery

    async def lease(self) -> None:
        name, queue, _ = self.queue()
        seconds = self._term()
        handed = await self._hand_out(name, queue.lease(seconds=seconds), self.now + seconds)
        if handed is not None:
            self.leased.append((name, *handed))

    async def lease_many(self) -> None:
        name, queue, model = self.queue()
        seconds, count = self._term(), self.random.randint(1, 4)
        head = self._head(name)
        if head is None or any(map(model.spent, model.records.values())):
            # Those that were leased too often are the part of `lease`.
            await self._come_to_head(name)
            return
        deadline = self.now + seconds
        deliveries = await queue.lease_many(count, seconds=seconds)
        # What must be read first is not waited for.
        assert 1 <= len(deliveries) <= count
        self._leased(name, self._lease(name, deadline, len(deliveries)), deliveries)
        if len(deliveries) < count:
            await self._look_on(name)

    def _leased(self, name: str, records: list[Record], deliveries: list[Delivery[bytes]]) -> None:
        found = [(delivery.item, delivery.attempt) for delivery in deliveries]
        assert found == [(record.payload, record.attempts) for record in records]
        for record, delivery in zip(records, deliveries, strict=True):
            self.leased.append((name, record, delivery))
        self.model.changed("memory" if self.level == "memory" else "os")

    def _pick(self) -> tuple[str, Record, Delivery[bytes]] | None:
        if not self.leased:
            return None
        return self.leased.pop(self.random.randrange(len(self.leased)))

    async def ack(self) -> None:
        if picked := self._pick():
            name, record, delivery = picked
            assert await delivery.ack()
            self.model.queues[name].gone(record)
            self.model.changed(self.level)
            assert not await delivery.ack()

    async def ack_stale(self) -> None:
        if self.ended:
            with pytest.raises(StaleLease):
                await self.random.choice(self.ended).ack()

    async def nack(self) -> None:
        if picked := self._pick():
            name, record, delivery = picked
            model = self.model.queues[name]
            delay = self.random.choice([None, 0, self.random.uniform(0.5, 8)])
            delivery.nack(delay=delay)
            model.release(record, self.now, model.backoff(record) if delay is None else delay)
            self.ended.append(delivery)

    async def reject(self) -> None:
        if picked := self._pick():
            name, record, delivery = picked
            await delivery.reject("no")
            self.model.move(name, record)
            self.model.changed("os" if self.level == "memory" else self.level)
            self.ended.append(delivery)

    async def extend(self) -> None:
        if self.leased:
            name, record, delivery = self.random.choice(self.leased)
            seconds = self._term()
            delivery.extend(seconds)
            self.model.queues[name].leased[record.place] = self.now + seconds

    async def cancel_delayed(self) -> None:
        _, queue, model = self.queue()
        if not model.records:
            return
        place = self.random.choice(list(model.waiting) or list(model.records))
        record = model.records[place]
        waits = place in model.waiting
        assert await queue.cancel(self.keys[record.payload]) == waits
        if waits:
            model.gone(record)
            self.model.changed(self.level)

    # Transactions.

    async def transaction(self) -> None:
        random = self.random
        fails = random.random() < 0.3
        ended: list[tuple[str, Record, Delivery[bytes], str]] = []
        puts: list[tuple[str, Record, str | None]] = []
        inside: list[tuple[str, Record, Delivery[bytes]]] = []
        full = False
        tx = self.store.transaction()
        try:
            async with tx:
                for _ in range(random.randint(0, 2)):
                    name, queue, _ = self.queue()
                    handed = await self._hand_out(name, tx.lease(queue), self.now + 1e9)
                    if handed is not None:
                        inside.append((name, *handed))
                        if self.model.bury(name):
                            await self.store.flush()
                            self.model.changed("sync")
                for entry in [*inside, *random.sample(self.leased, min(1, len(self.leased)))]:
                    how = random.choice(["ack", "ack", "reject", "nack", "nothing"])
                    if how != "nothing":
                        getattr(tx, how)(entry[2])
                        ended.append((*entry, how))
                for _ in range(random.randint(0, 3)):
                    name, queue, _ = self.queue()
                    payload, given, id = self._payload(), self._keywords(), self._id()
                    puts.append((name, self._record(payload, given), id))
                    tx.put(queue, payload, **(given if id is None else {**given, "dedup_id": id}))
                full = any(not self._room(name, puts, ended) for name in NAMES)
                if fails:
                    raise _RollBack
        except _RollBack:
            assert fails
        except QueueFull:
            assert full
            fails = True
        else:
            assert not full
        if not fails:
            self._commit(tx.keys, puts, ended)
        self._end(inside, [] if fails else ended)

    def _room(self, name: str, puts: list[tuple[str, Record, str | None]], ended: Any) -> bool:
        count = self._new_count(name, [id for other, _, id in puts if other == name])
        away = sum(1 for other, _, _, how in ended if other == name and how != "nack")
        return count <= away or self.model.queues[name].fits(count - away)

    def _commit(
        self,
        keys: Any,
        puts: list[tuple[str, Record, str | None]],
        ended: list[tuple[str, Record, Delivery[bytes], str]],
    ) -> None:
        for (name, record, id), key in zip(puts, keys, strict=True):
            self._added(name, [record], [key], [id])
        for name, record, _, how in ended:
            if how == "ack":
                self.model.queues[name].gone(record)
            elif how == "reject":
                self.model.move(name, record)
        if puts or any(how != "nack" for _, _, _, how in ended):
            self.model.changed("os" if self.level == "memory" else self.level)

    def _end(
        self,
        inside: list[tuple[str, Record, Delivery[bytes]]],
        ended: list[tuple[str, Record, Delivery[bytes], str]],
    ) -> None:
        """Those that were nacked wait; what was leased in the block and is still out is back."""
        for name, record, delivery, how in ended:
            entry = (name, record, delivery)
            if entry in self.leased:
                self.leased.remove(entry)
            if how == "nack":
                model = self.model.queues[name]
                model.release(record, self.now, model.backoff(record))
            if how != "ack":
                self.ended.append(delivery)
        for name, record, delivery in inside:
            if record.place in self.model.queues[name].leased:
                self.model.queues[name].release(record, self.now)
                self.ended.append(delivery)

    # Time and trouble.

    async def pass_time(self) -> None:
        seconds = self.random.choice([0.05, 0.5, 2, 8, 40]) * self.random.uniform(0.5, 1)
        await asyncio.sleep(seconds)
        for name in NAMES:
            self.model.queues[name].advance(self.now)

    async def set_clock(self) -> None:
        WALL.offset += round(self.random.uniform(-30, 30) * NS)

    async def flush(self) -> None:
        await self.store.flush()
        self.model.changed("sync")

    async def leave(self) -> None:
        """Somebody is cancelled, before or after the work of the disk."""
        if self.level == "memory":
            return
        name, queue, model = self.queue()
        # Whatever is too old is away, so that what is cancelled is one change.
        head = await self._come_to_head(name)
        await self._after()
        await self.store.flush()
        self.model.changed("sync")
        how = self.random.choice(["put", "take", "lease", "ack", "reject"])
        work: Any
        if how == "put":
            if not model.fits(1):
                return
            payload, given = self._payload(), self._keywords()
            record = self._record(payload, given)
            work = queue.put(payload, **given)
        elif how in ("take", "lease"):
            if head is None or (how == "lease" and model.spent(head)):
                return
            work = queue.take() if how == "take" else _wait_for(queue.lease(seconds=1e9))
        else:
            if not self.leased:
                return
            name, record, delivery = self.random.choice(self.leased)
            work = delivery.ack() if how == "ack" else delivery.reject("no")
        self.bench.runner.hold()
        task = await started(work)
        for _ in range(self.random.randint(0, 1)):
            await self.bench.step()
        task.cancel()
        self.bench.runner.let_go()
        await settle()
        done = not task.cancelled()
        await self.store.flush()
        self.log.append(f"{how} {'done' if done else 'cancelled'}")
        if how in ("take", "lease") and head is not None:
            model = self.model.queues[name]
            if done and how == "lease":
                model.lease(head, self.now + 1e9)
                self._leased(name, [head], [task.result()])
            else:
                model.claim(head)
                if done:
                    model.gone(head)
                elif how == "take":
                    model.let_follow(head)
                elif head.key:
                    model.keys[head.key] = head.place
        elif how == "put":
            found = await self._contents_of(name)
            if done or (record.payload, 0) in found:
                timestamp, counter = await self._key_of(name, payload)
                self._added(name, [record], [Key(counter, timestamp)])
        elif delivery.state != "leased":
            if how == "ack":
                model = self.model.queues[name]
                model.gone(record)
            else:
                self.model.move(name, record)
                self.ended.append(delivery)
            self.leased.remove((name, record, delivery))
        self.model.changed("sync")

    async def _key_of(self, name: str, payload: bytes) -> tuple[int, int]:
        async for record in self.queues[name].browse():
            if record.item == payload:
                return record.key.timestamp, record.key.counter
        raise AssertionError(f"{payload!r} was put and is not there")

    async def reopen(self) -> None:
        await self.store.close()
        self.model.changed("sync")
        await self._go_on(self.bench.files)

    async def lose_the_process(self) -> None:
        twin = after_process_crash(self.bench.files)
        await self.store.close()
        self.model.states = self.model.states[self.model.written :]
        await self._go_on(twin)

    async def lose_the_power(self) -> None:
        image = image_after(self.bench.files, lambda op: random_outcome(op, self.random))
        await self.store.close()
        await self._go_on(SimFiles.from_image(image))

    async def _go_on(self, files: SimFiles) -> None:
        self.bench.files = files
        self.leased, self.ended = [], []
        await self._open()
        found = await self._contents()
        states = self.model.states
        disk = next((state for state in states if self._left(state, found)), None)
        assert disk is not None, _difference(states[-1], found)
        stamps = {name: queue.put_time for name, queue in self.queues.items()}
        self.model.crash(disk, found, self.now, self.wall, stamps)
        for name in NAMES:
            self.model.queues[name].expired = self.queues[name].stats().expired

    def _left(self, state: Contents, found: Contents) -> bool:
        """Whether that state may have become this one: what is too old may go as it is read."""
        for before, after in zip(state, found, strict=True):
            name, there = before.name, {payload for payload, _ in after.records}
            kept = [r for r in before.records if r[0] in there or not self._too_old(name, r[0])]
            if (tuple(kept), before.puts, before.cursor) != (
                after.records,
                after.puts,
                after.cursor,
            ):
                return False
            if not self._sure_ids(before) <= after.ids <= before.ids | self.model.old_ids[name]:
                return False
            earliest = self._earliest(name)
            assert all(self.model.put_times[name, put] > earliest for _, put in after.ids)
        return True

    def _earliest(self, name: str) -> int:
        """Ids that were put then or before are over, by the clock or by the log's own time."""
        latest = max(self.wall, self.queues[name].put_time)
        return latest - round(self.model.queues[name].rules.dedup_window * NS)

    def _sure_ids(self, state: Kept) -> frozenset[tuple[str, int]]:
        """Ids that must be there: neither clock says that their window is over."""
        model, window = self.model.queues[state.name], self.model.queues[state.name].rules
        earliest = self._earliest(state.name)
        return frozenset(
            (id, counter)
            for id, counter in state.ids
            if (put := model.ids.get(id)) is not None
            and put.counter == counter
            and put.time > earliest
            and put.since > self.now - window.dedup_window
        )

    def _too_old(self, name: str, payload: bytes) -> bool:
        return 0 < self.model.known[name, payload].expires_at <= self.wall

    async def _contents(self) -> Contents:
        return tuple([await self._kept(name) for name in self.model.queues])

    async def _kept(self, name: str) -> Kept:
        queue = self.queues[name]
        puts = queue.stats().total_put_count
        known = queue.dedup._ids if queue.dedup is not None else {}
        ids = {(self.digests[digest], put.counter) for digest, put in known.items()}
        records = await self._contents_of(name)
        return Kept(name, records, puts, frozenset(ids), await self._cursor_done(name))

    async def _cursor_done(self, name: str) -> int:
        """How many records ever put the cursor of the queue has done."""
        return 0

    async def _contents_of(self, name: str) -> tuple[tuple[bytes, int], ...]:
        queue = self.queues[name]
        attempts = queue.leasing.attempts_of
        return tuple(
            [(record.item, attempts(record.key.counter)) async for record in queue.browse()]
        )


def _difference(wanted: Contents, found: Contents) -> str:
    """Where what was found is not the newest state; it is none of the older ones either."""
    told = [f"wanted {a}, found {b}" for a, b in zip(wanted, found, strict=True) if a != b]
    return "; ".join(told)


class _RollBack(Exception):
    pass


async def _wait_for(work: Any) -> Any:
    return await work
