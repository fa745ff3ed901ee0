"""Messages that an actor tells later, and those it tells by name."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from actors import Actor, ActorStopped, ActorSystem, Context
from actors.timers import first_delay
from tests.actors.support import Message, Recorder

pytestmark = pytest.mark.anyio


class Clock(Actor[str]):
    """Sets timers as it is told, and notes what they tell it."""

    def __init__(self, heard: list[tuple[str, float]]) -> None:
        self.heard = heard

    async def receive(self, message: str, ctx: Context[str]) -> None:
        self.heard.append((message, asyncio.get_running_loop().time()))
        match message:
            case "once":
                ctx.schedule("rang", delay=5)
            case "often":
                ctx.schedule("tick", every=10, name="beat")
            case "sooner":
                ctx.schedule("tock", delay=1, name="beat")
            case "quiet":
                ctx.unschedule("beat")
            case "others":
                ctx.tell("other", "told")
                ctx.schedule("later", to="other", delay=1)
                ctx.schedule("lost", to="nobody", delay=1)


def names(heard: list[tuple[str, float]]) -> list[str]:
    return [name for name, _ in heard]


async def test_a_timer_rings_when_its_time_has_come() -> None:
    heard: list[tuple[str, float]] = []
    async with ActorSystem(stop_timeout=0) as system:
        ref = await system.spawn(Clock, heard)
        await ref.tell("once")
        await asyncio.sleep(4.9)
        assert names(heard) == ["once"]
        await asyncio.sleep(0.2)
        assert names(heard) == ["once", "rang"]
        assert heard[1][1] - heard[0][1] == pytest.approx(5)


async def test_a_timer_of_the_same_name_is_replaced_and_one_can_be_forgotten() -> None:
    heard: list[tuple[str, float]] = []
    async with ActorSystem(stop_timeout=0) as system:
        ref = await system.spawn(Clock, heard)
        await ref.tell("often")
        await asyncio.sleep(25)
        assert names(heard) == ["often", "tick", "tick"]
        await ref.tell("sooner")
        await asyncio.sleep(20)
        assert names(heard)[3:] == ["sooner", "tock"]
        await ref.tell("often")
        await ref.tell("quiet")
        await asyncio.sleep(20)
        assert names(heard)[5:] == ["often", "quiet"]


async def test_a_timer_ends_with_its_actor() -> None:
    heard: list[tuple[str, float]] = []
    async with ActorSystem(stop_timeout=0) as system:
        ref = await system.spawn(Clock, heard)
        await ref.tell("often")
        await ref.stop()
        await asyncio.sleep(60)
    assert names(heard) == ["often"]


async def test_actors_are_told_by_name() -> None:
    log: list[Message] = []
    async with ActorSystem(stop_timeout=0) as system:
        await system.spawn(Recorder, log, name="other")
        ref = await system.spawn(Clock, [])
        await ref.tell("others")
        await asyncio.sleep(2)
        assert log == ["start", "told", "later"]
        with pytest.raises(ActorStopped, match="nobody"):
            ref.cell.told.tell("nobody", "x")


async def test_a_durable_actor_needs_a_place_to_last() -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError, match=r"fifoq\.ActorSystem has durable actors"):
            await system.spawn(Recorder, [], name="a", durable=True)


@pytest.mark.parametrize(
    "wrong",
    [
        (None, None, None),
        (1, 2.0, None),
        (-1, None, None),
        (1, None, 0),
        (1, None, 1e-10),
        (None, None, 1e12),
        (1e12, None, None),
        (float("nan"), None, None),
        (None, float("nan"), None),
        (None, 1e12, None),
        (None, datetime(2030, 1, 1), None),
    ],
)
def test_times_that_make_no_sense_are_refused(wrong: tuple[float, datetime, float]) -> None:
    with pytest.raises(ValueError, match="Nothing was changed"):
        first_delay(*wrong)


def test_a_time_of_the_clock_is_as_far_away_as_it_is() -> None:
    assert first_delay(None, time.time() + 50, None) == pytest.approx(50, abs=5)
    assert first_delay(None, datetime.fromtimestamp(time.time() + 50, UTC), 1) > 40
    assert first_delay(None, 17.0, None) == 0
    assert first_delay(None, None, 3) == 3
