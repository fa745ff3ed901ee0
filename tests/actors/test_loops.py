"""The runtime on real event loops, asyncio's own and uvloop."""

from __future__ import annotations

import asyncio

import pytest

from actors import (
    ActorStopped,
    ActorSystem,
    AskTimeout,
    BatchOptions,
    MailboxOptions,
    Supervision,
)
from tests.actors.support import AT_ONCE, Batches, Message, Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param}


async def test_a_whole_life_in_real_time() -> None:
    log: list[Message] = []
    batches: list[tuple[list[Message], str]] = []
    async with ActorSystem() as system:
        ref = await system.spawn(Recorder, log, supervision=AT_ONCE)
        for number in range(2000):
            await ref.tell(number)
        with pytest.raises(ValueError, match="boom"):
            await ref.ask("boom")
        assert await ref.ask("get", returns=list) == log
        options = MailboxOptions(batch=BatchOptions(count_max=2, linger_seconds=0.001))
        batching = await system.spawn(Batches, batches, mailbox=options)
        assert await asyncio.gather(*(batching.ask(number) for number in range(3))) == [2, 2, 1]
    assert log == ["start", *range(2000), "boom", "stop", "start", "get", "stop"]
    assert batches == [([0, 1], "full"), ([2], "time")]


async def test_deadlines_and_escalation_in_real_time() -> None:
    system = await ActorSystem().start()
    stuck = await system.spawn(Recorder, [])
    with pytest.raises(AskTimeout):
        await stuck.ask("hang", timeout=0.001)
    waiting = asyncio.create_task(stuck.ask(1))
    await asyncio.sleep(0)
    assert await stuck.stop(timeout=0.001) == 0
    with pytest.raises(ActorStopped):
        await waiting
    failing = await system.spawn(Recorder, [], supervision=Supervision(strategy="escalate"))
    await failing.tell("boom")
    with pytest.raises(ValueError, match="boom"):
        await asyncio.create_task(system.stop())
