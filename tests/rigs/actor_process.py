"""A process with 50 busy durable actors, which says what it does, to be killed.

    python -m tests.rigs.actor_process

reads jobs from its standard input, a line of JSON each, and forks a process for each. That one
opens the system, tells every actor numbers one after another, and says on standard output, a line
for each: a number is about to be told (`tell`), is confirmed (`told`), reached a handler (`start`),
and with which state an actor came back (`back`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final
from zlib import crc32

import msgspec

from fifoq import Actor, ActorSystem, Context, Ref

ACTORS: Final = 50
TALLY: Final = "tally"


class Job(msgspec.Struct):
    """Where the system is, the next number for each actor; None: tell nothing, drain and end."""

    path: str
    following: list[int] | None = None


class Number(msgspec.Struct, frozen=True, tag=True):
    """A message to a busy actor."""

    number: int


class Handled(msgspec.Struct, frozen=True, tag=True):
    """What each of them tells the tally, with its step."""

    actor: int


class Ask(msgspec.Struct, frozen=True, tag=True):
    """How far are you?"""


class Fold(msgspec.Struct):
    """What an actor makes of the numbers that it has handled."""

    count: int = 0
    last: int = 0
    digest: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.last = number
        self.digest = crc32(number.to_bytes(8, "little"), self.digest)


class Counts(msgspec.Struct):
    """How many messages each actor says that it has handled."""

    counts: dict[int, int] = msgspec.field(default_factory=dict)


def say(*words: object) -> None:
    """One write: it is with the kernel before whatever comes next."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Busy(Actor[Number | Ask]):
    """Folds its numbers, and tells the tally of each."""

    state: Fold

    def __init__(self, number: int) -> None:
        self.number = number

    async def on_start(self, ctx: Context[Number | Ask]) -> None:
        state = self.state
        say("back", self.number, state.count, state.last, state.digest)

    async def receive(self, message: Number | Ask, ctx: Context[Number | Ask]) -> None:
        if isinstance(message, Ask):
            ctx.reply([self.state.count, self.state.last, self.state.digest])
            return
        say("start", self.number, message.number)
        self.state.add(message.number)
        if message.number % 3 == 0:
            await asyncio.sleep(0)
        ctx.tell(TALLY, Handled(self.number))


class Tally(Actor[Handled | Ask]):
    """Counts what the others have handled, as they say."""

    state: Counts

    async def receive(self, message: Handled | Ask, ctx: Context[Handled | Ask]) -> None:
        if isinstance(message, Ask):
            ctx.reply(list(self.state.counts.items()))
            return
        counts = self.state.counts
        counts[message.actor] = counts.get(message.actor, 0) + 1


async def tell_for_ever(ref: Ref[Number | Ask], actor: int, number: int) -> None:
    while True:
        say("tell", actor, number)
        await ref.tell(Number(number))
        say("told", actor, number)
        number += 1


async def work(job: Job) -> None:
    async with ActorSystem(job.path) as system:
        tally = await system.spawn(Tally, name=TALLY, durable=True)
        refs = [
            await system.spawn(Busy, actor, name=f"busy-{actor}", durable=True)
            for actor in range(ACTORS)
        ]
        if job.following is not None:
            say("busy")
            rows = zip(refs, range(ACTORS), job.following, strict=True)
            await asyncio.gather(*(tell_for_ever(*row) for row in rows))
        for actor, ref in enumerate(refs):
            say("end", actor, *await ref.ask(Ask(), returns=list))
        for actor, count in await tally.ask(Ask(), returns=list):
            say("tally", actor, count)


def main() -> None:
    # What recovery finds after a kill is no news here.
    logging.getLogger("store").addHandler(logging.NullHandler())
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        pid = os.fork()
        if pid == 0:
            try:
                say("pid", os.getpid())
                asyncio.run(work(job))
            except Exception as error:
                say("failed", f"{type(error).__name__}: {error}".replace("\n", " "))
            finally:
                # Nothing of the parent's is ours to clean up.
                os._exit(0)
        os.waitpid(pid, 0)
        say("exit")


if __name__ == "__main__":
    main()
