"""Systems: starting, spawning, failing at the top, stopping all, from whatever task."""

from __future__ import annotations

import asyncio
import gc
import warnings

import anyio
import pytest

from actors import (
    Actor,
    ActorStopped,
    ActorSystem,
    Context,
    NameTaken,
    Ref,
    Supervision,
    SystemStopped,
)
from actors.hooks import ON_STOP_SECONDS
from actors.testing import settle
from tests.actors.support import AT_ONCE, Message, Recorder

pytestmark = pytest.mark.anyio

ESCALATE = Supervision(strategy="escalate")


async def test_a_system_may_be_started_and_stopped_by_different_tasks() -> None:
    system = ActorSystem()
    assert repr(system) == "<ActorSystem actors=0 new>"
    assert await asyncio.create_task(system.start()) is system
    ref = await asyncio.create_task(system.spawn(Recorder, []))
    await ref.tell("wait")
    assert repr(system) == "<ActorSystem actors=1 running>"
    stopping = asyncio.create_task(system.stop())
    await settle()
    assert repr(system) == "<ActorSystem actors=1 stopping>"
    assert [await stopping, await system.stop()] == [0, 0]
    assert repr(system) == "<ActorSystem actors=0 stopped>"


async def test_a_system_spawns_only_while_it_runs() -> None:
    system = ActorSystem()
    with pytest.raises(SystemStopped, match="not running: it can not spawn an actor"):
        await system.spawn(Recorder, [])
    async with system:
        with pytest.raises(SystemStopped, match="start again"):
            await system.start()
    with pytest.raises(SystemStopped):
        await system.spawn(Recorder, [])


@pytest.mark.parametrize("raised", [OSError, MemoryError])
async def test_a_system_that_cannot_start_says_so(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """Whoever started it waited for ever: without descriptors, for what is imported then."""

    def fails() -> None:
        raise raised

    monkeypatch.setattr("actors.system.create_task_group", fails)
    system = ActorSystem()
    started = asyncio.ensure_future(system.start())
    async with asyncio.timeout(5):
        await asyncio.wait([started])
    assert isinstance(started.exception(), raised)


async def test_a_system_that_never_started_can_be_stopped() -> None:
    system = ActorSystem()
    assert await system.stop() == 0
    assert repr(system) == "<ActorSystem actors=0 stopped>"
    with pytest.raises(SystemStopped):
        await system.start()


async def test_names_are_unique_among_the_living() -> None:
    async with ActorSystem() as system:
        first = await system.spawn(Recorder, [], name="a")
        with pytest.raises(NameTaken, match="'a' is alive; nothing was spawned"):
            await system.spawn(Recorder, [], name="a")
        await first.stop()
        again = await system.spawn(Recorder, [], name="a")
        assert again.name == "a"
        await system.spawn(Recorder, [], name="recorder-2")
        names = [(await system.spawn(Recorder, [])).name for _ in range(2)]
        assert names == ["recorder-1", "recorder-3"]


async def test_a_failing_constructor_spawns_nothing() -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError):
            await system.spawn(Recorder, [], "one argument too many")
        assert system.stats().actors == {}


class Failing(Recorder):
    async def on_start(self, ctx: Context[Message]) -> None:
        raise OSError("no start")


async def test_a_failing_start_is_raised_to_the_spawner_and_leaves_no_actor() -> None:
    async with ActorSystem() as system:
        log: list[Message] = []
        with pytest.raises(OSError, match="no start"):
            await system.spawn(Failing, log, name="a", supervision=AT_ONCE)
        assert (log, system.stats().actors) == ([], {})


class Slow(Recorder):
    async def on_start(self, ctx: Context[Message]) -> None:
        await asyncio.sleep(10)


async def test_a_spawner_that_leaves_takes_the_actor_with_it() -> None:
    async with ActorSystem() as system:
        spawning = asyncio.create_task(system.spawn(Slow, []))
        await settle()
        spawning.cancel()
        await settle()
        assert (spawning.cancelled(), system.stats().actors) == (True, {})


async def test_a_system_that_stops_during_a_start_says_so_to_the_spawner() -> None:
    async with ActorSystem() as system:
        spawning = asyncio.create_task(system.spawn(Slow, []))
        await settle()
        await system.stop(1)
        with pytest.raises(ActorStopped):
            await spawning


async def test_leaving_handles_what_waits_the_youngest_first() -> None:
    class Forward(Actor[Message]):
        def __init__(self, target: Ref[Message]) -> None:
            self.target = target

        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await asyncio.sleep(1)
            await self.target.tell(message)

    log: list[Message] = []
    async with ActorSystem() as system:
        sink = await system.spawn(Recorder, log)
        forward = await system.spawn(Forward, sink)
        for number in range(3):
            await forward.tell(number)
    assert log == ["start", 0, 1, 2, "stop"]


async def test_an_exception_in_the_body_stops_at_once_and_goes_on() -> None:
    async def body() -> None:
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder, log)
            await ref.tell("hang")
            await settle()
            raise KeyError

    log: list[Message] = []
    with pytest.raises(KeyError):
        await body()
    assert asyncio.get_running_loop().time() == 0
    assert log == ["start", "hang", "stop"]


async def test_a_cancelled_body_waits_for_the_actors_to_end() -> None:
    log: list[Message] = []
    with anyio.move_on_after(1) as scope:
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder, log, supervision=ESCALATE)
            await ref.tell("hang")
            await asyncio.sleep(5)
    assert scope.cancelled_caught
    assert log == ["start", "hang", "stop"]


async def test_one_deadline_holds_for_all_actors() -> None:
    system = await ActorSystem().start()
    refs = [await system.spawn(Recorder, []) for _ in range(3)]
    for ref in refs:
        for message in ("hang", 1):
            await ref.tell(message)
    first = asyncio.create_task(system.stop(60))
    await settle()
    assert await system.stop(7) == 6
    assert await first == 6
    assert asyncio.get_running_loop().time() == 7
    assert await system.stop(None) == 6
    assert system.stats().undelivered == 6


async def test_a_failure_at_the_top_stops_the_system_and_reaches_its_owner_once() -> None:
    log: list[Message] = []
    system = await ActorSystem(stop_timeout=None).start()
    other = await system.spawn(Recorder, log)
    ref = await system.spawn(Recorder, [], supervision=ESCALATE)
    await other.tell("wait")
    await ref.tell("boom")
    with pytest.raises(ValueError, match="boom"):
        await system.wait_until_stopped()
    assert log == ["start", "wait", "stop"]
    assert await system.stop() == 0


async def test_a_failure_at_the_top_is_raised_when_the_body_ends() -> None:
    async def body() -> None:
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder, [], supervision=ESCALATE)
            await ref.tell("boom")
            await settle()
            with pytest.raises(SystemStopped):
                await system.spawn(Recorder, [])

    with pytest.raises(ValueError, match="boom"):
        await body()


async def test_a_failure_at_the_top_goes_before_an_exception_of_the_body() -> None:
    async def body() -> None:
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder, [], supervision=ESCALATE)
            await ref.tell("boom")
            await ref.ask(1)

    with pytest.raises(ValueError, match="boom") as caught:
        await body()
    assert isinstance(caught.value.__context__, ActorStopped)


async def test_a_cancellation_of_the_body_goes_before_a_failure_at_the_top() -> None:
    async def body() -> None:
        async with ActorSystem() as system:
            ref = await system.spawn(Recorder, [], supervision=ESCALATE)
            await ref.tell("boom")
            await asyncio.sleep(5)

    task = asyncio.create_task(body())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_too_many_restarts_stop_the_system_and_the_error_tells() -> None:
    rules = Supervision(max_restarts=2, backoff_seconds=1, jitter=0)
    system = await ActorSystem().start()
    ref = await system.spawn(Recorder, [], name="a", supervision=rules)
    for _ in range(4):
        await ref.tell("boom")
    with pytest.raises(ValueError, match="boom") as caught:
        await system.wait_until_stopped()
    assert caught.value.__notes__ == ["actor 'a' failed too often to be restarted once more"]
    assert asyncio.get_running_loop().time() == 3
    stats = system.stats()
    assert (stats.restarts, stats.failed, stats.undelivered) == (2, 3, 1)


async def test_an_actor_may_stop_its_system() -> None:
    class Master(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            assert await system.stop() == 0

    system = await ActorSystem().start()
    ref = await system.spawn(Master)
    await ref.tell("stop")
    await system.wait_until_stopped()
    assert ref.stats().handled == 1


async def test_what_is_neither_error_nor_cancellation_ends_everything_and_is_raised() -> None:
    class Fatal(BaseException):
        pass

    class Dying(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            raise Fatal

    system = await ActorSystem().start()
    ref, other = await system.spawn(Dying), await system.spawn(Recorder, [])
    await ref.tell("die")
    with pytest.raises(BaseExceptionGroup) as caught:
        await system.wait_until_stopped()
    assert caught.group_contains(Fatal)
    assert {ref.stats().state, other.stats().state} == {"stopped"}
    assert ref.stats().undelivered == 1


async def test_cancelling_every_task_gives_every_message_its_outcome() -> None:
    """What `asyncio.run` does at its end, also to an actor whose task never took a step."""
    system = await ActorSystem().start()
    ref = await system.spawn(Recorder, [])
    asks = [asyncio.create_task(ref.ask(message)) for message in ("hang", 1)]
    await settle()
    spawning = asyncio.create_task(system.spawn(Recorder, []))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task(), spawning, *asks}:
        if task.get_name().startswith("actor"):
            task.cancel()
    with warnings.catch_warnings():
        # A task that is cancelled before its first step never awaits its coroutine.
        warnings.simplefilter("ignore", RuntimeWarning)
        await asyncio.wait([*asks, spawning])
        await settle()
        gc.collect()
    outcomes = [task.exception() for task in (*asks, spawning)]
    assert [type(outcome) for outcome in outcomes] == [ActorStopped] * 3
    assert await system.stop() == 0


async def test_sums_go_on_after_an_actor_has_stopped() -> None:
    async with ActorSystem() as system:
        refs = [await system.spawn(Recorder, [], name=name) for name in "ab"]
        for ref in refs:
            await ref.ask("get")
        await refs[0].stop()
        await refs[1].tell(1)
        stats = system.stats()
        assert list(stats.actors) == ["b"]
        assert (stats.handled, stats.depth) == (2, 1)


async def test_on_stop_has_its_time_even_after_the_deadline_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Lingering(Recorder):
        async def on_stop(self, ctx: Context[Message]) -> None:
            await asyncio.sleep(1e9)

    class Broken(Recorder):
        async def on_stop(self, ctx: Context[Message]) -> None:
            raise OSError("no stop")

    async with ActorSystem() as system:
        for kind in (Lingering, Broken):
            ref = await system.spawn(kind, [], name=kind.__name__)
            assert await ref.stop(0) == 0
    assert asyncio.get_running_loop().time() == ON_STOP_SECONDS
    assert caplog.messages == [
        "actor 'Lingering': on_stop took over 5.0 s",
        "actor 'Broken': on_stop failed",
    ]
