"""Keyed actors: one for each key, in order, however often they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from actors import (
    Actor,
    ActorStopped,
    ActorSystem,
    AskTimeout,
    Context,
    Keyed,
    MailboxFull,
    MailboxOptions,
    Ref,
    Supervision,
)
from actors.testing import settle

pytestmark = pytest.mark.anyio

Message = str | int


class Note(Actor[Message]):
    """Notes what it handles; `boom` raises, `wait` waits a second, `who` replies with itself."""

    def __init__(self, key: str, log: dict[str, list[Message]]) -> None:
        self.key, self.log = key, log

    async def on_start(self, ctx: Context[Message]) -> None:
        assert self.log.setdefault(self.key, ["stop"])[-1] == "stop", "two actors of one key"
        self.log[self.key].append("start")

    async def on_stop(self, ctx: Context[Message]) -> None:
        await asyncio.sleep(0)
        self.log[self.key].append("stop")

    async def receive(self, message: Message, ctx: Context[Message]) -> None:
        self.log[self.key].append(message)
        match message:
            case "boom":
                raise ValueError("boom")
            case "wait":
                await asyncio.sleep(1)
            case "end":
                ctx.stop()
        ctx.reply(ctx.self_ref)


Log = dict[str, list[Message]]


def noting(log: Log) -> Callable[[str], Note]:
    return lambda key: Note(key, log)


def messages(log: Log, key: str) -> list[Message]:
    return [message for message in log[key] if message not in ("start", "stop")]


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem(stop_timeout=5) as system:
        yield system


async def test_the_first_message_activates_and_idleness_passivates(system: ActorSystem) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", idle_seconds=10)
    assert (log, keyed.stats().active) == ({}, 0)
    await keyed.tell("a", 1)
    await keyed.tell("a", 2)
    await settle()
    assert log == {"a": ["stop", "start", 1, 2]}
    await asyncio.sleep(21)
    assert log == {"a": ["stop", "start", 1, 2, "stop"]}
    await keyed.tell("a", 3)
    await settle()
    assert log["a"][-2:] == ["start", 3]
    stats = keyed.stats()
    assert (stats.active, stats.activated, stats.passivated) == (1, 2, 1)


async def test_an_actor_that_is_used_or_busy_stays(system: ActorSystem) -> None:
    class Busy(Note):
        async def receive(self, message: Message, ctx: Context[Message]) -> None:
            await asyncio.sleep(100)
            ctx.reply("done")

    log: Log = {}
    keyed = await system.keyed(lambda key: Busy(key, log), name="notes", idle_seconds=10)
    assert await keyed.ask("a", "go", timeout=None) == "done"
    assert log == {"a": ["stop", "start"]}
    used = await system.keyed(noting(log), name="used", idle_seconds=10)
    for _ in range(20):
        await used.tell("b", 1)
        await asyncio.sleep(9)
    assert log["b"].count("start") == 1


async def test_an_actor_that_will_tell_or_reply_later_is_not_idle(system: ActorSystem) -> None:
    class Later(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            if message == "timer":
                ctx.schedule("ring", delay=50)
            elif message == "ring":
                rang.append(message)
            else:
                reply = ctx.defer_reply()
                asyncio.get_running_loop().call_later(50, reply.resolve, "later")

    rang: list[str] = []
    keyed = await system.keyed(lambda _: Later(), name="later", idle_seconds=5)
    await keyed.tell("a", "timer")
    assert await keyed.ask("b", "reply", timeout=None) == "later"
    assert rang == ["ring"]
    await asyncio.sleep(20)
    assert keyed.stats().active == 0


async def test_refs_are_good_for_ever_also_those_that_an_actor_gives_away(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes")
    ref = keyed.ref("a")
    own = await ref.ask("who", returns=Ref)
    assert (ref.name, own.name) == ("notes/a", "notes/a")
    assert system.find("notes/a") is not None
    for address in (ref, own):
        assert await address.stop() == 0
        assert (repr(address), address.stats().handled) == ("<Ref 'notes/a' depth=0 stopped>", 0)
        await address.wait_until_stopped()
        await address.tell("again")
        address.tell_nowait("and again")
        await settle()
        assert (address.stats().handled, address.generation) == (2, 0)
    assert messages(log, "a") == ["who", *["again", "and again"] * 2]


async def test_messages_told_while_an_actor_leaves_are_handled_by_the_next_one_in_order(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", idle_seconds=1)
    await keyed.tell("a", 0)
    await settle()
    keyed.slots.passivate(keyed.slots.slots["a"])
    told = [asyncio.create_task(_tell(keyed, "a", number)) for number in (1, 2)]
    await asyncio.sleep(0)
    keyed.ref("a").tell_nowait(3)
    told.append(asyncio.create_task(_tell(keyed, "a", 4)))
    await asyncio.sleep(0)
    keyed.ref("a").tell_exempt(5)
    await asyncio.gather(*told)
    await keyed.tell("a", 6)
    await settle()
    assert log["a"] == ["stop", "start", 0, "stop", "start", 1, 2, 3, 4, 5, 6]


async def _tell(keyed: Keyed[Message], key: str, message: Message) -> None:
    await keyed.tell(key, message)


@pytest.mark.parametrize("seed", range(6))
async def test_order_and_count_hold_in_a_random_crowd(system: ActorSystem, seed: int) -> None:
    """Senders, passivations, evictions and self-made stops in any order: nothing lost or doubled.

    The actors themselves notice if there are two of one key.
    """
    random = Random(seed)
    log: Log = {}
    options = MailboxOptions(size_max=3)
    keyed = await system.keyed(
        noting(log), name="notes", idle_seconds=0.01, active_max=4, mailbox=options
    )
    keys = [f"k{number}" for number in range(12)]

    async def send(sender: int) -> None:
        for number in range(60):
            key = random.choice(keys)
            await keyed.tell(key, sender * 1000 + number)
            if random.random() < 0.3:
                await asyncio.sleep(random.choice((0, 0, 0.005, 0.05)))
            if random.random() < 0.1:
                slot = random.choice(list(keyed.slots.slots.values()) or [None])
                if slot is not None and slot.active and not slot.sending:
                    keyed.slots.passivate(slot)
            if random.random() < 0.05:
                await keyed.tell(key, "end")

    await asyncio.gather(*(send(sender) for sender in range(8)))
    assert await keyed.stop(None) == 0
    handled = [[m for m in messages(log, key) if m != "end"] for key in log]
    every = sorted(message for found in handled for message in found if isinstance(message, int))
    assert every == [s * 1000 + n for s in range(8) for n in range(60)]
    for found in handled:
        for sender in range(8):
            own = [m for m in found if isinstance(m, int) and m // 1000 == sender]
            assert own == sorted(own)
    assert keyed.stats().waiting == keyed.stats().active == 0


@pytest.mark.parametrize(
    ("keys", "room"), [(1000, 20), pytest.param(100_000, 1000, marks=pytest.mark.deep)]
)
async def test_no_more_actors_live_than_there_is_room_for(
    system: ActorSystem, keys: int, room: int
) -> None:
    """And what is kept grows with them, not with the keys that there ever were."""
    handled: list[str] = []

    class Counting(Actor[str]):
        def __init__(self, key: str) -> None:
            """Has no state."""

        async def receive(self, message: str, ctx: Context[str]) -> None:
            handled.append(message)

    keyed = await system.keyed(Counting, name="counting", active_max=room)
    most = 0
    for number in range(keys):
        await keyed.tell(str(number), str(number))
        most = max(most, keyed.stats().active)
    assert most == room
    assert len(system.stats().actors) <= room + 1
    assert len(keyed.slots.slots) <= room
    assert await keyed.stop() == 0
    assert sorted(handled, key=int) == [str(number) for number in range(keys)]
    assert (len(keyed.slots.slots), keyed.slots.living) == (0, 0)


async def test_whoever_finds_no_room_waits_for_a_busy_actor_and_tell_nowait_says_so(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", active_max=2)
    for key in "ab":
        await keyed.tell(key, "wait")
    await settle()
    with pytest.raises(MailboxFull, match="'notes/c'"):
        keyed.ref("c").tell_nowait(1)
    with pytest.raises(AskTimeout):
        await keyed.ask("c", 1, timeout=0.5)
    assert (keyed.stats().waiting, keyed.stats().active) == (0, 2)
    told = asyncio.create_task(_tell(keyed, "c", 2))
    await settle()
    assert repr(keyed) == "<Keyed 'notes' active=2 waiting=1>"
    await told
    assert 1 <= asyncio.get_running_loop().time() < 1.2
    await settle()
    assert messages(log, "c") == [2]


async def test_a_sender_that_leaves_its_place_lets_the_next_one_through(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", active_max=1)
    await keyed.tell("a", "wait")
    await settle()
    told = [asyncio.create_task(_tell(keyed, "b", number)) for number in range(3)]
    await settle()
    told[0].cancel()
    await asyncio.gather(*told, return_exceptions=True)
    await settle()
    assert messages(log, "b") == [1, 2]


async def test_actors_do_not_wait_for_room(system: ActorSystem) -> None:
    """Two busy actors that each tell a new key would wait for each other for ever."""
    handled: list[str] = []

    class Chain(Actor[int]):
        def __init__(self, key: str) -> None:
            self.key = key

        async def receive(self, message: int, ctx: Context[int]) -> None:
            handled.append(self.key)
            if message:
                await keyed.tell(f"{self.key}{message}", message - 1)
                ctx.tell(keyed.ref(f"{self.key}x"), 0)

    keyed = await system.keyed(Chain, name="chain", active_max=2)
    for key in "ab":
        await keyed.tell(key, 3)
    await settle()
    assert len(handled) == 14
    await asyncio.sleep(130)
    assert keyed.stats().active <= 2


async def test_a_key_that_fails_too_often_stops_alone_and_comes_again(system: ActorSystem) -> None:
    log: Log = {}
    rules = Supervision(max_restarts=1, backoff_seconds=0, exhausted="stop")
    keyed = await system.keyed(noting(log), name="notes", supervision=rules)
    await keyed.tell("b", 1)
    for _ in range(2):
        await keyed.tell("a", "boom")
    await settle()
    assert (keyed.stats().active, log["a"].count("start")) == (1, 2)
    await keyed.tell("a", 2)
    await settle()
    assert log["a"][-2:] == ["start", 2]
    assert log["b"] == ["stop", "start", 1]


async def test_a_factory_that_fails_is_raised_to_the_sender_and_leaves_nothing(
    system: ActorSystem,
) -> None:
    def factory(key: str) -> Note:
        if key == "bad":
            raise LookupError(key)
        return Note(key, {})

    keyed = await system.keyed(factory, name="notes")
    with pytest.raises(LookupError):
        await keyed.tell("bad", 1)
    with pytest.raises(LookupError):
        keyed.ref("bad").tell_nowait(1)
    await keyed.tell("good", 1)
    assert (list(keyed.slots.slots), keyed.stats().active) == (["good"], 1)


async def test_waking_a_key_needs_no_message_but_room(system: ActorSystem) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", active_max=2)
    for key in "abcd":
        keyed.wake(key)
    keyed.wake("a")
    await asyncio.sleep(0)
    assert (keyed.stats().active, keyed.stats().waiting) == (2, 2)
    await asyncio.sleep(1)
    assert [log[key].count("start") for key in "abcd"] == [1, 1, 1, 1]
    assert keyed.stats().active <= 2


async def test_a_key_that_is_woken_while_its_actor_leaves_gets_another(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes")
    keyed.wake("a")
    await settle()
    keyed.slots.passivate(keyed.slots.slots["a"])
    keyed.wake("a")
    await settle()
    assert log == {"a": ["stop", "start", "stop", "start"]}


async def test_a_handler_tells_keyed_actors_by_name_whether_they_are_there_or_not(
    system: ActorSystem,
) -> None:
    class Teller(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            ctx.tell(message, 1)
            ctx.reply("told")

    log: Log = {}
    inner: Log = {}
    await system.keyed(noting(log), name="notes")
    await system.keyed(noting(inner), name="notes/inner")
    teller = await system.spawn(Teller)
    for name in ("notes/a", "notes/a", "notes/inner/b"):
        assert await teller.ask(name) == "told"
    await settle()
    assert (messages(log, "a"), messages(inner, "b"), list(log)) == ([1, 1], [1], ["a"])
    with pytest.raises(ActorStopped, match="'others/a'"):
        await teller.ask("others/a")


async def test_a_stop_handles_what_was_told_and_refuses_what_comes_later(
    system: ActorSystem,
) -> None:
    log: Log = {}
    keyed = await system.keyed(noting(log), name="notes", active_max=1)
    await keyed.tell("a", "wait")
    await settle()
    keyed.ref("b").tell_exempt(1)
    waiting = asyncio.create_task(_tell(keyed, "c", 2))
    await settle()
    stopping = asyncio.create_task(keyed.stop())
    await settle()
    with pytest.raises(ActorStopped):
        await waiting
    with pytest.raises(ActorStopped, match="'notes/d'"):
        await keyed.tell("d", 3)
    assert await stopping == 0
    assert (messages(log, "a"), messages(log, "b")) == (["wait"], [1])
    assert "c" not in log


async def test_older_keyed_actors_still_hear_younger_ones_while_the_system_stops() -> None:
    log: Log = {}

    class Last(Actor[str]):
        async def receive(self, message: str, ctx: Context[str]) -> None:
            """Only its end matters."""

        async def on_stop(self, ctx: Context[str]) -> None:
            ctx.tell(keyed.ref("late"), "last words")

    async with ActorSystem() as system:
        keyed = await system.keyed(noting(log), name="notes")
        await system.spawn(Last)
    assert messages(log, "late") == ["last words"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"idle_seconds": 0.0}, "idle_seconds is 0"), ({"active_max": 0}, "active_max is 0")],
)
async def test_an_option_without_sense_is_refused(
    system: ActorSystem, options: dict[str, int], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        await system.keyed(noting({}), name="notes", **options)  # type: ignore[arg-type]


async def test_the_name_of_all_keys_is_the_address_of_none(system: ActorSystem) -> None:
    keyed = await system.keyed(noting({}), name="notes")
    ref: Ref[Message] | None = system.find("notes", Actor)
    assert ref is not None
    with pytest.raises(TypeError, match="the mailbox of actor 'notes' has no put"):
        ref.tell_nowait("x")
    assert keyed.stats().active == 0
