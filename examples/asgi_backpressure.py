"""An ASGI endpoint that says 202 once an order is durable, and 503 while too many wait.

The application is plain ASGI, so that no framework is needed to run it; in FastAPI the body of
`accept` is the body of your endpoint. A few lines of client below drive it in this process.
Run it: python examples/asgi_backpressure.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import fifoq

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = tuple[int, dict[bytes, bytes]]


class Orders:
    """POST an order; it is in the queue, on the disk, before the answer is sent."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.q: fifoq.Queue[bytes] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        body = await read_body(receive)
        status, headers = await self.accept(body)
        await send(
            {"type": "http.response.start", "status": status, "headers": list(headers.items())}
        )
        await send({"type": "http.response.body", "body": b""})

    async def accept(self, body: bytes) -> Answer:
        """The endpoint."""
        assert self.q is not None
        # From 20 waiting orders on we refuse, until only 10 wait: no flapping in between.
        if self.q.stats().under_pressure:
            return 503, {b"retry-after": b"1"}
        try:
            # Not `put`, which would wait for room while the client waits too. The receipt waits
            # for the commit alone, and a client that leaves changes nothing.
            key = await self.q.submit(body)
        except (fifoq.QueueFull, fifoq.DiskFull):
            return 503, {b"retry-after": b"5"}
        return 202, {b"location": b"/orders/%d" % key.counter}

    async def live(self, receive: Receive, send: Send) -> None:
        """The server tells when it starts and stops; the queue belongs to its event loop."""
        await receive()
        self.q = await fifoq.open(self.path, pressure_high=20, pressure_low=10, maxsize=1000)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.q.close(timeout=5.0)
        await send({"type": "lifespan.shutdown.complete"})


async def read_body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


# What a server and its clients do, as far as this example needs it.


async def post(app: Orders, body: bytes) -> Answer:
    answers: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        answers.append(message)

    await app({"type": "http", "method": "POST", "path": "/orders"}, receive, send)
    return answers[0]["status"], dict(answers[0]["headers"])


async def main(path: str) -> None:
    app = Orders(path)
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    server = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    await from_app.get()
    assert app.q is not None

    answers = [await post(app, b"order %d" % number) for number in range(1, 25)]
    statuses = [status for status, _ in answers]
    print(f"24 orders, nobody takes them: {statuses.count(202)} x 202, {statuses.count(503)} x 503")
    print("the last answer says:", answers[-1])

    await app.q.take_many(5)
    print("5 were taken, 15 wait:", (await post(app, b"order 25"))[0])
    await app.q.take_many(5)
    print("10 wait:", (await post(app, b"order 25"))[0])

    await to_app.put({"type": "lifespan.shutdown"})
    await from_app.get()
    await server
    async with fifoq.open(path) as q:
        print(f"after a restart {len(q)} orders wait, the oldest is {await q.peek()!r}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(f"{scratch}/orders"))
