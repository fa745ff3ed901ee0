"""A process that uses all of delivery at once, and says on its output what was confirmed.

    python -m tests.rigs.delivery_process PATH FIRST SEED LEVEL

Orders are put with their numbers as ids, some alone and some with an event of a topic in one
transaction; workers move them on to `done` and `lanes` in one frame, or reject them; others empty
the lanes; a cursor reads every order; a schedule ticks. It runs until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from random import Random
from typing import Any

import uvloop

import fifoq
from fifoq import Cursor, Queue, Store, Topic

PARTITIONS = 3
KEYS = ("a", "b", "c", "d")


def say(*words: object) -> None:
    """In one write: a line is there whole or not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def feed(store: Store, orders: Queue[bytes], topic: Topic[bytes], first: int) -> None:
    """Orders first, first + 1 and so on, each once: the first one may be there already."""
    number = first
    while True:
        payload, id = b"%d" % number, str(number)
        key = KEYS[number % len(KEYS)]
        if number % 3 == 0:
            async with store.transaction() as tx:
                tx.put(orders, payload, dedup_id=id, ordering_key=key)
                partition = topic.partition(topic.partition_of(key))
                tx.put(partition, payload, dedup_id=id)
        elif number % 3 == 1:
            await orders.put(payload, dedup_id=id, ordering_key=key, delay=0.001)
        else:
            await orders.put_many([payload, payload], dedup_ids=[id, id], ordering_key=key)
        say("put", number)
        number += 1
        await asyncio.sleep(0)


async def work(
    store: Store, orders: Queue[bytes], done: Queue[bytes], lanes: Queue[bytes], random: Random
) -> None:
    while True:
        async with store.transaction() as tx:
            delivery = await tx.lease(orders)
            number = int(delivery.item)
            if number % 11 == 7:
                tx.reject(delivery, "unlucky")
            else:
                tx.put(done, delivery.item, dedup_id=f"done {number}")
                tx.put(lanes, delivery.item, priority=number % 10)
                tx.ack(delivery)
        say("moved", number)
        if random.random() < 0.2:
            # Somebody who gives it back, or forgets it.
            delivery = await orders.lease(seconds=0.05)
            if random.random() < 0.5:
                delivery.nack(delay=0)


async def empty(lanes: Queue[bytes]) -> None:
    while True:
        deliveries = await lanes.lease_many(5)
        await lanes.ack_many(deliveries)
        say("emptied", *[int(delivery.item) for delivery in deliveries])


async def audit(cursor: Cursor[bytes]) -> None:
    while True:
        for item in await cursor.take_many(4):
            say("read", int(item))
        await cursor.commit()
        say("committed")


async def main(path: str, first: int, seed: int, level: str) -> None:
    random = Random(seed)
    options: dict[str, Any] = {
        "durability": level,
        "max_retries": None,
        "retry_backoff": 0,
        "dedup_window": 3600,
    }
    async with fifoq.open_store(path, segment_bytes=1 << 16, segment_records=100) as store:
        orders = await store.queue("orders", **options)
        done = await store.queue("done", **options)
        lanes = await store.queue("lanes", priorities=True, **options)
        topic = await store.topic("events", partitions=PARTITIONS, **options)
        ticks = await store.queue("ticks", **options)
        await ticks.schedule("tick", b"tick", every=0.01, overlap=True)
        cursor = await orders.cursor("audit")
        say("ready")
        async with asyncio.TaskGroup() as group:
            group.create_task(feed(store, orders, topic, first))
            for _ in range(3):
                group.create_task(work(store, orders, done, lanes, random))
            group.create_task(empty(lanes))
            group.create_task(audit(cursor))


if __name__ == "__main__":
    path, first, seed, level = sys.argv[1:]
    run = uvloop.run if int(seed) % 2 else asyncio.run
    run(main(path, int(first), int(seed), level))
