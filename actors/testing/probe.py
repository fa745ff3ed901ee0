"""Probes: actors of a test, which show what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from actors.actor import Actor, Context
from actors.ref import Ref
from actors.system import ActorSystem

M = TypeVar("M")

PROBE_SECONDS = 3.0
"""How long a probe waits for a message, if the test does not say otherwise."""


class Probe(Generic[M]):
    """Stands where an actor would: `ref` is its address, `messages` all it was told so far.

    `await Probe[M].spawn(system)`. Those who ask it get what its `replies` returns for the
    message, or `NoReply`. Messages are looked at one by one, in the order they came.
    """

    def __init__(self) -> None:
        self.messages: list[M] = []
        self.ref: Ref[M]
        self._seen = 0
        self._news = asyncio.Event()

    @classmethod
    async def spawn(
        cls,
        system: ActorSystem,
        *,
        name: str | None = None,
        replies: Callable[[M], object] | None = None,
    ) -> Probe[M]:
        """A probe in that system."""
        probe = cls()
        probe.ref = await system.spawn(_Listener[M], probe._note, replies, name=name or "probe")
        return probe

    async def next(self, *, timeout: float = PROBE_SECONDS) -> M:
        """Wait for the first message that was not looked at yet; AssertionError if none comes."""
        try:
            async with asyncio.timeout(timeout):
                while self._seen == len(self.messages):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self!r}: no message in {timeout} seconds") from None
        self._seen += 1
        return self.messages[self._seen - 1]

    async def expect(self, *messages: M, timeout: float = PROBE_SECONDS) -> None:
        """The next messages are equal to these, in this order; AssertionError if not."""
        for number, wanted in enumerate(messages, 1):
            found = await self.next(timeout=timeout)
            if found != wanted:
                raise AssertionError(f"{self!r}: message {number} is {found!r}, not {wanted!r}")

    async def expect_nothing(self, *, seconds: float = PROBE_SECONDS) -> None:
        """No message that was not looked at is there, and none comes; AssertionError if not."""
        if self._seen == len(self.messages):
            await asyncio.sleep(seconds)
        waiting = self.messages[self._seen :]
        if waiting:
            raise AssertionError(f"{self!r}: expected nothing, and got {waiting!r}")

    def _note(self, message: M) -> None:
        self.messages.append(message)
        self._news.set()

    def __repr__(self) -> str:
        waiting = len(self.messages) - self._seen
        return f"<Probe {self.ref.name!r} messages={len(self.messages)} new={waiting}>"


class _Listener(Actor[M]):
    """The actor behind a probe."""

    def __init__(self, note: Callable[[M], None], replies: Callable[[M], object] | None) -> None:
        self._note = note
        self._replies = replies

    async def receive(self, message: M, ctx: Context[M]) -> None:
        self._note(message)
        if self._replies is not None:
            ctx.reply(self._replies(message))
