"""Context through the disk: variables chosen by name, and the trace."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest

from actors.testing import settle
from fifoq import Actor, Context
from fifoq.durable import traceparent
from fifoq.durable.carried import Carried
from tests.durable.support import Town

pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
tenant: ContextVar[str] = ContextVar("tenant")
other: ContextVar[str] = ContextVar("other")


class Teller(Actor[str]):
    """Notes what the context holds, and tells itself once more."""

    def __init__(self, seen: list[tuple[str, ...]]) -> None:
        self.seen = seen

    async def receive(self, message: str, ctx: Context[str]) -> None:
        values = (tenant.get("-"), other.get("-"), traceparent.get("-"))
        self.seen.append((message, *values, ctx.headers.get("tenant", "-")))
        if message == "first":
            ctx.tell(ctx.self_ref, "second")


async def test_the_context_of_the_teller_is_that_of_the_handler_after_a_restart(town: Town) -> None:
    async with town.system(context=[tenant]) as system:
        # Told to somebody who is not there yet.
        gone = await system.spawn(Teller, [], name="teller", durable=True)
        await gone.stop()
        token, trace = tenant.set("acme"), traceparent.set(TRACE)
        hidden = other.set("mine alone")
        step: Any = system._office.letter("teller", None, "first")  # type: ignore[union-attr]
        await system._office.post.queue.put(step)  # type: ignore[union-attr]
        tenant.reset(token)
        traceparent.reset(trace)
        other.reset(hidden)
        town = town.after_crash()
    seen: list[tuple[str, ...]] = []
    async with town.system(context=[tenant]) as system:
        ref = await system.spawn(Teller, seen, name="teller", durable=True)
        await settle()
        await ref.tell("third")
        await settle()
    assert seen == [
        ("first", "acme", "-", TRACE, "acme"),
        ("second", "acme", "-", TRACE, "acme"),
        ("third", "-", "-", "-", "-"),
    ]


async def test_a_trace_that_is_none_is_not_carried(town: Town) -> None:
    seen: list[tuple[str, ...]] = []
    async with town.system(context=[tenant]) as system:
        ref = await system.spawn(Teller, seen, name="teller", durable=True)
        token = traceparent.set("nonsense")
        await ref.tell("x")
        traceparent.reset(token)
        await settle()
        number = tenant.set(17)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="'tenant' holds a int"):
            await ref.tell("x")
        tenant.reset(number)
        number = tenant.set("x" * 5000)
        with pytest.raises(ValueError, match="over 4096 bytes"):
            await ref.tell("x")
        tenant.reset(number)
    assert seen == [("x", "-", "-", "-", "-")]


def test_names_that_would_clash_are_refused() -> None:
    with pytest.raises(ValueError, match="the same name"):
        Carried([tenant, ContextVar("tenant")])
    with pytest.raises(ValueError, match="are taken"):
        Carried([ContextVar("fifoq.ask")])
