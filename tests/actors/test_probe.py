"""Probes and `run`: what a test of actors stands on."""

from __future__ import annotations

import asyncio
import time

import pytest

from actors import Actor, ActorSystem, Context, NoReply, Ref
from actors.testing import Probe, Stuck, run, settle


class Relay(Actor[str]):
    """Passes everything on, a minute later."""

    def __init__(self, to: Ref[str]) -> None:
        self.to = to

    async def receive(self, message: str, ctx: Context[str]) -> None:
        await asyncio.sleep(60)
        ctx.tell(self.to, message.upper())


def test_a_probe_shows_what_it_is_told_in_order_and_minutes_take_no_time() -> None:
    async def main() -> None:
        async with ActorSystem() as system:
            probe = await Probe[str].spawn(system)
            relay = await system.spawn(Relay, probe.ref)
            await relay.tell("a")
            await relay.tell("b")
            await relay.tell("c")
            assert await probe.next(timeout=61) == "A"
            await probe.expect("B", "C", timeout=61)
            await probe.expect_nothing()
            assert probe.messages == ["A", "B", "C"]

    began = time.monotonic()
    run(main())
    assert time.monotonic() - began < 30


def test_a_message_that_does_not_come_and_one_that_is_not_expected_are_told() -> None:
    async def main() -> None:
        async with ActorSystem() as system:
            probe = await Probe[str].spawn(system, name="clerk")
            with pytest.raises(AssertionError) as caught:
                await probe.next(timeout=5)
            assert str(caught.value) == "<Probe 'clerk' messages=0 new=0>: no message in 5 seconds"
            await probe.ref.tell("a")
            await settle()
            with pytest.raises(AssertionError) as caught:
                await probe.expect_nothing()
            assert str(caught.value) == (
                "<Probe 'clerk' messages=1 new=1>: expected nothing, and got ['a']"
            )
            with pytest.raises(AssertionError) as caught:
                await probe.expect("b")
            assert str(caught.value) == (
                "<Probe 'clerk' messages=1 new=0>: message 1 is 'a', not 'b'"
            )

    run(main())


def test_a_probe_answers_as_it_is_told_to() -> None:
    async def main() -> None:
        async with ActorSystem() as system:
            probe = await Probe[int].spawn(system, replies=lambda number: number + 1)
            assert await probe.ref.ask(41) == 42
            dumb = await Probe[int].spawn(system, name="dumb")
            with pytest.raises(NoReply):
                await dumb.ref.ask(1)
            assert (probe.messages, dumb.messages) == ([41], [1])

    run(main())


def test_run_returns_what_the_program_does_and_a_dead_end_is_told() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    assert run(main()) == 3600.0
    with pytest.raises(Stuck):
        run(stuck())
