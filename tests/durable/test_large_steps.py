"""Steps that are too large for a frame fail alone; large ones share no frame that is too small."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct

from fifoq import Actor, Context, ItemTooLarge
from fifoq.durable.steps import STEP_BYTES_MAX, Step
from tests.durable.support import AT_ONCE, Town, account, balance

pytestmark = pytest.mark.anyio

MIB = 1 << 20


class Grow(Struct, frozen=True):
    """Do that with so many MiB."""

    how: str
    size: int


class Memory(Struct):
    grown: int = 0
    data: bytes = b""


class Hoarder(Actor[Grow]):
    """Does a lot in one step."""

    state: Memory

    async def receive(self, message: Grow, ctx: Context[Grow]) -> None:
        if message.how == "get":
            ctx.reply(self.state.grown)
            return
        self.state.grown += 1
        data = bytes(message.size * MIB)
        match message.how:
            case "state":
                self.state.data = data
            case "tells":
                for start in range(0, len(data), 10 * MIB):
                    ctx.tell("sink", data[start : start + 10 * MIB])
            case "timers":
                for start in range(0, len(data), 10 * MIB):
                    part = data[start : start + 10 * MIB]
                    ctx.schedule(part, to="sink", delay=60, name=str(start))
            case "reply":
                ctx.reply(data)
            case how:
                raise AssertionError(how)


@pytest.mark.parametrize("how", ["state", "tells", "timers", "reply"])
async def test_a_step_that_is_too_large_fails_alone(town: Town, how: str) -> None:
    async with town.system() as system:
        ref = await system.spawn(Hoarder, name="hoarder", durable=True, mailbox=AT_ONCE)
        other = await account(system)
        with pytest.raises(Exception, match=f"hoarder.* bytes.* limit of {STEP_BYTES_MAX}"):
            await system.ask(ref, Grow(how, 50), id="large")
        (dead,) = await (await system.dead_letters()).list()
        assert dead.letter.error_type == ItemTooLarge.__name__
        assert await ref.ask(Grow("get", 0)) == 0
        assert await balance(other) == 0
        town = town.after_crash()
    async with town.system() as system:
        assert await balance(await account(system)) == 0


async def test_large_steps_share_no_frame(town: Town) -> None:
    async with town.system() as system:
        refs = [
            await system.spawn(Hoarder, name=f"hoarder{i}", durable=True, mailbox=AT_ONCE)
            for i in range(2)
        ]
        await asyncio.gather(*(ref.tell(Grow("state", 46)) for ref in refs))
        assert [await ref.ask(Grow("get", 0)) for ref in refs] == [1, 1]


async def test_a_frame_with_a_large_step_has_less_room_for_records(town: Town) -> None:
    async with town.system() as system:
        queue = await system.store.queue("beside", type=bytes)
        steps = system._office.post.steps  # type: ignore[union-attr]
        # The first one is on its way at once; the others wait for the frame of the step.
        for size in (1, 9, 9):
            queue.submit(bytes(size * MIB))
        step = Step()
        step.set_state("actor/somebody", bytes(47 * MIB))
        steps.add(step)
        steps._submit()
        await steps.flush()
        await queue.flush()
        assert len(queue) == 3
