"""An ASGI endpoint that says 202 once an event is durable; Spark makes a Parquet table of them.

The application is plain ASGI, so that no framework is needed to run it; in FastAPI the body of
`accept` is the body of your endpoint and `live` is your lifespan. A few lines of client below
drive it in this process. Run it: python examples/events_to_parquet.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import fifoq.spark
from fifoq.spark import StagingBuffer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def columns(records: DataFrame) -> DataFrame:
    """The table's columns: those of the event, behind the record's own."""
    event = f.from_json(f.col("data").cast("string"), "user STRING, amount INT")
    return records.select("counter", "timestamp", event.alias("event")).select(
        "counter", "timestamp", "event.*"
    )


class Events:
    """POST an event as JSON; it is on the disk before the answer is sent, in the table soon."""

    def __init__(self, root: str) -> None:
        self.buffer = StagingBuffer(
            f"{root}/staging",
            fifoq.spark.session,  # called in a thread for the first drain
            to=f"{root}/events",
            transform=columns,
            drain_records=2_000,  # a drain begins when so many wait,
            drain_seconds=5.0,  # or when the oldest has waited so long
            pressure_high=50_000,  # Spark fell behind: puts would wait from here on
        )

    async def accept(self, body: bytes) -> int:
        """The endpoint."""
        if self.buffer.stats().queue.under_pressure:
            return 503
        await self.buffer.put(body)
        return 202

    async def live(self, receive: Receive, send: Send) -> None:
        """The server tells when it starts and stops; the buffer belongs to its event loop."""
        await receive()
        await self.buffer.open()  # goes on where the last run was left, killed or not
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.buffer.close()  # drains what is left
        await send({"type": "lifespan.shutdown.complete"})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        status = await self.accept((await receive())["body"])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


# What a server and its clients do, as far as this example needs it.


async def post(app: Events, event: dict[str, Any]) -> int:
    answers: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(event).encode()}

    async def send(message: Message) -> None:
        answers.append(message)

    await app({"type": "http", "method": "POST", "path": "/events"}, receive, send)
    status: int = answers[0]["status"]
    return status


async def serve(root: str, events: list[dict[str, Any]]) -> None:
    app = Events(root)
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    server = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    await from_app.get()
    statuses = await asyncio.gather(*(post(app, event) for event in events))
    print(f"{len(events)} events: {statuses.count(202)} x 202; {len(app.buffer)} wait for Spark")
    await to_app.put({"type": "lifespan.shutdown"})
    await from_app.get()
    await server
    stats = app.buffer.stats()
    print(f"stopped: {stats.waiting} wait, {stats.removed_records} are in the table")


def main(root: str) -> None:
    events = [{"user": f"user-{n % 3}", "amount": n % 10} for n in range(3_000)]
    for day in (events[:1_000], events[1_000:]):
        asyncio.run(serve(root, day))
    spark = fifoq.spark.session()
    table = spark.read.parquet(f"{root}/events")
    totals = table.groupBy("user").agg(f.count("*").alias("events"), f.sum("amount").alias("sum"))
    for row in totals.orderBy("user").collect():
        print(row.user, row.events, row["sum"])
    print(
        "events in the table, and different counters:",
        *table.agg(f.count("counter"), f.countDistinct("counter")).first() or (),
    )
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
