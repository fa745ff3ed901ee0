"""Supervision: what happens to actors that fail, alone and with their siblings.

Run it: python examples/supervise.py
"""

from __future__ import annotations

import asyncio
import logging

from msgspec import Struct

from actors import Actor, ActorSystem, Context, Ref, Supervision, Terminated


class BadOrder(Exception):
    """The order makes no sense; that says nothing against the actor."""


class LinkDown(Exception):
    """The other side is gone."""


class Order(Struct, frozen=True):
    text: str


class Desk(Actor[Order]):
    """Takes orders, and counts those that it took since it was made."""

    def __init__(self) -> None:
        self.taken = 0

    async def receive(self, message: Order, ctx: Context[Order]) -> None:
        if not message.text:
            raise BadOrder("an empty order")
        self.taken += 1
        if message.text == "coffee":
            raise RuntimeError("the machine is broken")
        ctx.reply(self.taken)


async def by_the_kind_of_error(system: ActorSystem) -> None:
    rules = Supervision(
        by_error={BadOrder: "resume"},  # goes on with the object and its state
        strategy="restart",  # whatever else: a new object, same mailbox and ref
        max_restarts=3,
        within_seconds=60,
        backoff_seconds=0.01,
    )
    desk = await system.spawn(Desk, name="desk", supervision=rules)
    print("tea:", await desk.ask(Order("tea")))
    for text in ("", "coffee"):
        try:
            await desk.ask(Order(text))
        except (BadOrder, RuntimeError) as error:
            print(f"refused: {error}")
        print("tea:", await desk.ask(Order("tea")), "generation", desk.generation)


class Link(Actor[str]):
    """A connection; whoever uses it must begin anew when it does."""

    async def on_start(self, ctx: Context[str]) -> None:
        print("link: connected")

    async def on_restart(self, error: Exception, ctx: Context[str]) -> None:
        print(f"link: again, after {type(error).__name__}")

    async def receive(self, message: str, ctx: Context[str]) -> None:
        if message == "cut":
            raise LinkDown


class Session(Actor[str]):
    """Has logged in over the link: worth nothing over another one."""

    async def on_start(self, ctx: Context[str]) -> None:
        print("session: logged in")

    async def on_stop(self, ctx: Context[str]) -> None:
        print("session: gone")

    async def receive(self, message: str, ctx: Context[str]) -> None:
        ctx.reply(f"{message}, done")


async def together(system: ActorSystem) -> None:
    rules = Supervision(scope="rest-for-one", backoff_seconds=0.01)
    link = await system.spawn(Link, name="link", supervision=rules)
    session = await system.spawn(Session, name="session", supervision=rules)
    await link.tell("cut")
    # It waits in the mailbox until the session has logged in again.
    print(await session.ask("hello"))


class Boss(Actor[Terminated]):
    """Spawns a worker, and another one whenever the worker has ended for good."""

    def __init__(self, workers: asyncio.Queue[Ref[Order]]) -> None:
        self.workers = workers

    async def on_start(self, ctx: Context[Terminated]) -> None:
        self.hire(ctx)

    async def receive(self, message: Terminated, ctx: Context[Terminated]) -> None:
        print(f"{message.name} ended: {message.error}")
        self.hire(ctx)

    def hire(self, ctx: Context[Terminated]) -> None:
        # One restart, and then it stops: without `exhausted` it would be the boss that fails.
        rules = Supervision(max_restarts=1, backoff_seconds=0.01, exhausted="stop")
        worker = ctx.spawn(Desk, supervision=rules)
        ctx.watch(worker)
        self.workers.put_nowait(worker)


async def watched(system: ActorSystem) -> None:
    workers: asyncio.Queue[Ref[Order]] = asyncio.Queue()
    await system.spawn(Boss, workers, name="boss")
    worker = await workers.get()
    for _ in range(2):
        await worker.tell(Order("coffee"))
    second = await workers.get()
    print(f"then came {second.name}")


async def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # the failures are on purpose
    for part in (by_the_kind_of_error, together, watched):
        async with ActorSystem() as system:
            await part(system)


if __name__ == "__main__":
    asyncio.run(main())
