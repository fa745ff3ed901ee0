"""Delays and handler times in the stats, and the records of the log."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors import Actor, ActorSystem, Context, MailboxOptions, Ref, Supervision, timing
from actors.handling import TURN_MESSAGES
from actors.testing import settle
from actors.timing import Durations, Timing
from tests.actors.support import AT_ONCE, Batches, Message, Recorder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations are in the loop's time, which is virtual here."""

    def now() -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    for module in ("timing", "memory", "handling"):
        monkeypatch.setattr(f"actors.{module}.clock", now)


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


def test_percentiles_are_right_within_their_error() -> None:
    durations = Durations()
    assert durations.percentile(0.5) is None
    for number in range(1, 1001):
        durations.add(number * 1000)
    for share in (0.5, 0.99):
        found = durations.percentile(share)
        assert found is not None
        assert abs(found - share / 1000) <= 0.07 * share / 1000
    small = Durations()
    for number in range(16):
        small.add(number)
    assert small.percentile(1) == 15e-9


def test_two_that_are_merged_are_as_one() -> None:
    both, first, second = Timing(), Timing(), Timing()
    for timed, value in ((first, 10), (second, 1000), (both, 10), (both, 1000)):
        timed.delays.add(value)
        timed.handlers.add(value)
    first.merge(second)
    assert first.percentiles() == both.percentiles()


@pytest.mark.anyio
@pytest.mark.usefixtures("clock")
async def test_stats_tell_how_long_handlers_take(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    assert (ref.stats().handler_p50, ref.stats().delay_p50) == (None, None)
    for _ in range(8):
        await ref.ask("wait")
    stats = ref.stats()
    assert stats.handler_p50 == stats.handler_p99 == pytest.approx(1, rel=0.07)
    assert stats.delay_p99 == 0
    assert system.stats().handler_p50 == stats.handler_p50
    await ref.stop()
    assert system.stats().handler_p50 == stats.handler_p50, "also of those that have ended"


class Paced(Actor[int]):
    """Takes a second for each message."""

    async def receive(self, message: int, ctx: Context[int]) -> None:
        await asyncio.sleep(1)


@pytest.mark.anyio
@pytest.mark.usefixtures("clock")
async def test_stats_tell_how_long_messages_wait_in_a_backlog(system: ActorSystem) -> None:
    ref = await system.spawn(Paced, mailbox=MailboxOptions(size_max=10_000))
    count = TURN_MESSAGES * 4
    for number in range(count):
        ref.tell_nowait(number)
    await asyncio.sleep(count + 1)
    found = ref.stats().delay_p99
    # Timed from the end of the first turn on, when so many were left.
    assert found == pytest.approx(count - TURN_MESSAGES, rel=0.07)


@pytest.mark.anyio
@pytest.mark.usefixtures("clock")
async def test_batches_are_timed_as_a_whole(system: ActorSystem) -> None:
    ref = await system.spawn(Batches, [])
    await asyncio.sleep(1)
    await ref.tell(1)
    await settle()
    assert (ref.stats().handler_p50, ref.stats().delay_p50) == (0, 0)


def test_most_turns_are_not_timed() -> None:
    timed = Timing()
    due = [timed.is_due() for _ in range(timing.SAMPLED_TURNS * 3)]
    assert due.count(True) == 3
    assert due[0]


# The log.


async def everything_that_is_logged(system: ActorSystem) -> None:
    log: list[Message] = []

    class Sick(Recorder):
        async def on_stop(self, ctx: Context[Message]) -> None:
            if self.log.count("boom") > 1:
                await asyncio.sleep(1e9)
            raise OSError("no stop")

    group = Supervision(scope="one-for-all", backoff_seconds=0)
    one = await system.spawn(Recorder, [], name="one", supervision=group)
    await system.spawn(Recorder, [], name="two", supervision=AT_ONCE)
    await one.tell("boom")
    await settle()
    sick: Ref[Message] = await system.spawn(Sick, log, name="sick", supervision=AT_ONCE)
    for message in ("boom", "boom"):
        await sick.tell(message)
    await asyncio.sleep(10)

    class Watching(Recorder):
        async def on_start(self, ctx: Context[Any]) -> None:
            ctx.watch(one)

    class Refusing:
        def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
            raise OSError("no disk")

    watching: Any = await system.spawn(Watching, [], name="watching")
    watching._mailbox = Refusing()
    await one.tell("secret-payload")
    await one.stop(0)


@pytest.mark.anyio
async def test_every_record_has_the_fields_that_the_reference_lists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "actors")
    async with ActorSystem() as system:
        await everything_that_is_logged(system)
        waiting = asyncio.create_task(system.run_until_signal(deadline=1))
        await settle()
        os.kill(os.getpid(), signal.SIGTERM)
        await waiting
    listed = dict(reference_of_events())
    seen: dict[str, set[str]] = {}
    plain = set(vars(logging.makeLogRecord({})))
    for record in caplog.records:
        fields = set(vars(record)) - plain - {"message", "asctime"}
        event = record.__dict__["event"]
        assert fields == {"event", "actor", *listed[event]}, event
        seen.setdefault(event, set()).add(record.levelname.lower())
    assert set(seen) == set(listed)
    assert "secret-payload" not in caplog.text


def reference_of_events() -> Iterator[tuple[str, set[str]]]:
    page = (ROOT / "docs/reference/actors.md").read_text()
    table = page.partition("| level | event |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        _, _, event, fields, _, _ = line.split("|")
        yield event.strip(" `"), {field.strip(" `") for field in fields.split(",") if field.strip()}
