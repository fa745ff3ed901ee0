"""Fifty busy durable actors, until somebody kills this process.

`python -m tests.durable.busy PATH ROUNDS`. Each line on standard output is one event:
`c NAME NUMBER` when a tell was confirmed, `h NAME NUMBER` when a handler had that message. A number
that is not the next one is `x NAME NUMBER LAST`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from msgspec import Struct

from fifoq import Actor, ActorSystem, Context, Ref

ACTORS = 50


class Next(Struct, tag=True, frozen=True):
    """The message after the one before."""

    number: int


class Last(Struct, tag=True, frozen=True):
    """Ask for the number of the last one."""


class Seen(Struct):
    last: int = 0
    total: int = 0


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Counter(Actor[Next | Last]):
    """Knows whether a message came twice, or was lost, or came too early."""

    state: Seen

    async def receive(self, message: Next | Last, ctx: Context[Next | Last]) -> None:
        match message:
            case Next(number):
                name = ctx.self_ref.name
                if number != self.state.last + 1:
                    say("x", name, number, self.state.last)
                say("h", name, number)
                self.state.last = number
                self.state.total += number
            case Last():
                ctx.reply([self.state.last, self.state.total])


async def drive(ref: Ref[Next | Last], rounds: int) -> None:
    last, total = await ref.ask(Last(), returns=list)
    assert total == last * (last + 1) // 2, (last, total)
    say("l", ref.name, last)
    number = last
    for _ in range(rounds):
        number += 1
        await ref.tell(Next(number))
        say("c", ref.name, number)


async def main(path: str, rounds: int) -> None:
    async with ActorSystem(path) as system:
        names = [f"counter-{number}" for number in range(ACTORS)]
        refs = [await system.spawn(Counter, name=name, durable=True) for name in names]
        await asyncio.gather(*(drive(ref, rounds) for ref in refs))
    say("end")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
