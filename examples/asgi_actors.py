"""Actors inside an ASGI service: they live as long as its lifespan.

The server hears the signals, finishes its requests and then ends the lifespan; leaving the
`async with` drains the actors. The application is plain ASGI, so that no framework is needed to run
it; in Starlette and FastAPI the body of `lifespan` is that of your own lifespan function.
Run it: python examples/asgi_actors.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from actors import Actor, ActorSystem, Context, Ref

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Mailer(Actor[str]):
    """Sends mail after the request has had its answer."""

    async def receive(self, message: str, ctx: Context[str]) -> None:
        await asyncio.sleep(0.01)
        print(f"mailed {message}")


@asynccontextmanager
async def lifespan() -> AsyncIterator[Ref[str]]:
    # Less than the server is given before it is killed.
    async with ActorSystem(stop_timeout=20) as system:
        yield await system.spawn(Mailer, name="mailer")


class Application:
    mailer: Ref[str]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        await self.mailer.tell(scope["path"])  # waits only while its mailbox is full
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with lifespan() as self.mailer:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def serve(app: Application) -> None:
    """What a server does: start, three requests, and a stop right after them."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    living = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    print((await from_app.get())["type"])
    for number in range(1, 4):
        answers: asyncio.Queue[Message] = asyncio.Queue()
        await app({"type": "http", "path": f"/orders/{number}"}, to_app.get, answers.put)
        print("answered", (await answers.get())["status"])
    await to_app.put({"type": "lifespan.shutdown"})
    print((await from_app.get())["type"])
    await living


if __name__ == "__main__":
    asyncio.run(serve(Application()))
