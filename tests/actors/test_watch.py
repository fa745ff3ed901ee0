"""Death watch, names and generations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from actors import Actor, ActorSystem, Context, Ref, Supervision, Terminated
from actors.testing import settle
from tests.actors.support import AT_ONCE, Message, Recorder

pytestmark = pytest.mark.anyio

Watch = tuple[str, Ref[Message]]


class Guard(Actor[Watch | Terminated | str]):
    """Watches and unwatches as it is told."""

    def __init__(self, log: list[Terminated]) -> None:
        self.log = log

    async def receive(
        self, message: Watch | Terminated | str, ctx: Context[Watch | Terminated | str]
    ) -> None:
        match message:
            case ("watch", ref):
                ctx.watch(ref)
            case ("unwatch", ref):
                ctx.unwatch(ref)
            case Terminated():
                self.log.append(message)
            case _:
                raise ValueError(message)


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=0) as system:
        yield system


async def test_a_watcher_is_told_once_when_an_actor_has_stopped(system: ActorSystem) -> None:
    log: list[Terminated] = []
    guard = await system.spawn(Guard, log)
    ref = await system.spawn(Recorder, [], name="a", supervision=AT_ONCE)
    for _ in range(2):
        await guard.tell(("watch", ref))
    await ref.tell("boom")
    await settle()
    assert log == []
    await ref.stop()
    await settle()
    assert log == [Terminated(name="a", generation=1, error=None)]


async def test_a_watcher_hears_which_failure_ended_the_actor(system: ActorSystem) -> None:
    log: list[Terminated] = []
    guard = await system.spawn(Guard, log)
    ref = await system.spawn(Recorder, [], name="a", supervision=Supervision(strategy="stop"))
    await guard.tell(("watch", ref))
    await settle()
    await ref.tell("boom")
    await settle()
    assert log == [Terminated(name="a", generation=0, error="ValueError: boom")]


async def test_whoever_watches_an_actor_that_has_ended_is_told_at_once(
    system: ActorSystem,
) -> None:
    log: list[Terminated] = []
    guard = await system.spawn(Guard, log)
    ref = await system.spawn(Recorder, [], name="a")
    await ref.stop()
    await guard.tell(("watch", ref))
    await settle()
    assert [found.name for found in log] == ["a"]


async def test_an_actor_that_is_watched_no_more_ends_unnoticed(system: ActorSystem) -> None:
    log: list[Terminated] = []
    guard = await system.spawn(Guard, log)
    ref = await system.spawn(Recorder, [])
    for word in ("unwatch", "watch", "unwatch"):
        await guard.tell((word, ref))
    await settle()
    await ref.stop()
    await settle()
    assert log == []


async def test_a_restart_of_the_watcher_ends_its_watches(system: ActorSystem) -> None:
    log: list[Terminated] = []
    guard = await system.spawn(Guard, log, supervision=AT_ONCE)
    ref = await system.spawn(Recorder, [])
    await guard.tell(("watch", ref))
    await guard.tell("fail")
    await settle()
    await ref.stop()
    await settle()
    assert (log, guard.generation) == ([], 1)


async def test_a_watcher_that_has_stopped_is_told_nothing_and_leaves_nothing(
    system: ActorSystem,
) -> None:
    guard = await system.spawn(Guard, [])
    ref = await system.spawn(Recorder, [])
    await guard.tell(("watch", ref))
    await settle()
    await guard.stop()
    watches = ref.cell.tree.watches
    assert (watches._by_watched, watches._by_watcher) == ({}, {})
    await ref.stop()


async def test_two_that_watch_each_other_end_with_the_system(system: ActorSystem) -> None:
    class Twin(Actor[Ref[object] | Terminated]):
        async def receive(
            self, message: Ref[object] | Terminated, ctx: Context[Ref[object] | Terminated]
        ) -> None:
            if isinstance(message, Ref):
                ctx.watch(message)

    twins = [await system.spawn(Twin) for _ in range(2)]
    await twins[0].tell(twins[1])  # type: ignore[arg-type]
    await twins[1].tell(twins[0])  # type: ignore[arg-type]
    await settle()
    assert await system.stop(1) == 0


async def test_code_outside_of_actors_can_wait_for_the_end_of_one(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [])
    waiting = asyncio.create_task(ref.wait_until_stopped())
    await settle()
    assert not waiting.done()
    await ref.stop()
    await waiting


async def test_actors_are_found_by_name_and_class(system: ActorSystem) -> None:
    ref = await system.spawn(Recorder, [], name="a")
    found = system.find("a", Recorder)
    assert found is ref
    assert system.find("a") is ref
    assert system.find("b") is None
    with pytest.raises(TypeError, match="actor 'a' is a Recorder, not a Guard"):
        system.find("a", Guard)
    await ref.stop()
    assert system.find("a", Recorder) is None


async def test_a_handler_finds_actors_too_children_by_their_full_name(system: ActorSystem) -> None:
    class Parent(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            ctx.spawn(Recorder, [], name="child")

        async def receive(self, message: str, ctx: Context[str]) -> None:
            found = ctx.find(message, Recorder)
            assert (ctx.find(message) is None) == (found is None)
            ctx.reply(None if found is None else found.name)

    parent = await system.spawn(Parent, name="parent")
    assert [await parent.ask(name) for name in ("parent/child", "child")] == ["parent/child", None]


async def test_a_generation_counts_the_restarts_and_begins_anew_with_the_name(
    system: ActorSystem,
) -> None:
    ref = await system.spawn(Recorder, [], name="a", supervision=AT_ONCE)
    assert ref.generation == 0
    await ref.tell("boom")
    await settle()
    assert ref.generation == 1
    await ref.stop()
    again = await system.spawn(Recorder, [], name="a")
    assert (ref.generation, again.generation) == (1, 0)
