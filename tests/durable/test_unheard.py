"""What a step tells outside of its store may be refused: the step stands, and all others go on."""

from __future__ import annotations

import pytest

from actors import Terminated
from actors.testing import settle
from fifoq import Actor, Context, DurabilityError, Ref, StoreFailed
from fifoq.durable.steps import Step
from tests.durable.support import Deposit, Town, account, balance

pytestmark = pytest.mark.anyio


class Teller(Actor[int]):
    """Tells somebody of another system what that does not take."""

    def __init__(self, other: Ref[object]) -> None:
        self._other = other

    async def receive(self, message: int, ctx: Context[int]) -> None:
        ctx.tell("alice", Deposit(message))
        ctx.tell(self._other, "neither a deposit nor a transfer")
        ctx.reply(message)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_refusal_of_another_system_does_not_harm_the_step(
    town: Town, caplog: pytest.LogCaptureFixture, closed: bool
) -> None:
    async with town.system() as system:
        async with Town().system() as elsewhere:
            other = await account(elsewhere)
            teller = await system.spawn(Teller, other, name="teller", durable=True)
            alice = await account(system)
            if not closed:
                assert await teller.ask(5) == 5
                assert await balance(alice) == 5
        assert await teller.ask(6) == 6
        assert await balance(alice) == (6 if closed else 11)
    events = {getattr(record, "event", None) for record in caplog.records}
    assert closed or "step_unheard" in events
    assert "neither" not in caplog.text


class Watching(Actor[str | Terminated]):
    """Watches whoever it is told to."""

    async def receive(self, message: str | Terminated, ctx: Context[str | Terminated]) -> None:
        if isinstance(message, str):
            ref = ctx.find(message)
            assert ref is not None
            ctx.watch(ref)


async def test_a_watcher_whose_mailbox_failed_does_not_hide_why_the_system_ends(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """What the watcher's mailbox raised went through the actor that ended to the whole system."""
    system = await town.system().start()
    watching = await system.spawn(Watching, name="watching", durable=True)
    await system.spawn(Watching, name="watched")
    await watching.tell("watched")
    await settle()
    town.files.fail_next_datasync("ghost")
    with pytest.raises(DurabilityError):
        await watching.tell("watched")
    with pytest.raises(StoreFailed):
        await system.wait_until_stopped()
    assert "unheard" in {getattr(record, "event", None) for record in caplog.records}


async def test_all_others_are_told_of_a_commit(town: Town) -> None:
    told: list[str] = []

    def refuse() -> None:
        raise ValueError("refuse")

    async with town.system() as system:
        steps = system._office.post.steps  # type: ignore[union-attr]
        step = Step()
        step.set_state("actor/somebody", b"x")
        for call in (refuse, lambda: told.append("first"), refuse, lambda: told.append("second")):
            step.when_committed(call)
        await steps.committed(steps.add(step))
        assert told == ["first", "second"]
        assert await balance(await account(system)) == 0
