"""A small program as it is after a migration from pykka: an adder, a counter, a failure.

Run it: python examples/migrate_from_pykka.py
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from msgspec import Struct

from actors import Actor, ActorStopped, ActorSystem, Context, Ref, Supervision


class Add(Struct, frozen=True):
    numbers: tuple[int, ...]


class GetTotal(Struct, frozen=True):
    pass


class Adder(Actor[Add]):
    """Was: class Adder(pykka.ThreadingActor) with `on_receive(self, message)`."""

    async def receive(self, message: Add, ctx: Context[Add]) -> None:
        ctx.reply(sum(message.numbers))  # was: return sum(message["numbers"])


class Total(Actor[Add | GetTotal]):
    def __init__(self, adder: Ref[Add]) -> None:
        self.adder = adder
        self.total = 0

    async def on_start(self, ctx: Context[Add | GetTotal]) -> None:
        print("started as", ctx.self_ref.name)  # was: self.actor_urn

    async def on_stop(self, ctx: Context[Add | GetTotal]) -> None:
        print("stopped with", self.total)

    async def on_restart(self, error: Exception, ctx: Context[Add | GetTotal]) -> None:
        print(
            "made anew after", type(error).__name__
        )  # was: on_failure, and then the actor was dead

    async def receive(self, message: Add | GetTotal, ctx: Context[Add | GetTotal]) -> None:
        match message:
            case Add():
                # Was: self.adder.ask(message), which blocked this thread; here others go on.
                self.total += await self.adder.ask(message, returns=int)
            case GetTotal():
                ctx.reply(self.total)  # was: total_ref.proxy().total.get()
            case _:
                assert_never(message)


async def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # the failure below is on purpose
    async with ActorSystem() as system:  # was: try: ... finally: pykka.ActorRegistry.stop_all()
        adder = await system.spawn(Adder, name="adder")  # was: Adder.start()
        rules = Supervision(backoff_seconds=0.01)
        total = await system.spawn(Total, adder, name="total", supervision=rules)

        await total.tell(Add((1, 2, 3)))  # was: total.tell(...), into a mailbox without a limit
        print("total", await total.ask(GetTotal(), timeout=1.0))

        # Was: [ref.ask(m, block=False) for m in ...] and pykka.get_all(futures).
        asks = (adder.ask(Add((number, number)), returns=int) for number in range(3))
        print("sums", await asyncio.gather(*asks))

        found = system.find("total", Total)  # was: pykka.ActorRegistry.get_by_class_name("Total")
        assert found is total
        await adder.stop()  # was: adder.stop()
        try:
            await adder.tell(Add(()))
        except ActorStopped as error:  # was: pykka.ActorDeadError
            print("dead:", error.name)
        await total.tell(Add((4,)))  # its ask fails: the actor is made anew
        print("total", await total.ask(GetTotal(), timeout=1.0))


if __name__ == "__main__":
    asyncio.run(main())
