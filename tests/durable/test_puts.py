"""What a step puts into queues of its store: with the ack, once, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from actors.testing import settle
from fifoq import Actor, ActorSystem, Context, DurableMailbox, ItemTooLarge, Queue, QueueClosed
from fifoq.durable import handling, reproduce, steps
from fifoq.testing import Machine, crash_matrix
from tests.durable.support import AT_ONCE, Town
from tests.fifoq.support import started

pytestmark = pytest.mark.anyio


class Bill(Struct, frozen=True):
    number: int


class Order(Struct, tag=True, frozen=True):
    """Bill it; it fails before that `attempt`."""

    number: int
    attempt: int = 1


class HowMany(Struct, tag=True, frozen=True):
    pass


class Billed(Struct):
    count: int = 0


class Shop(Actor[Order | HowMany]):
    """Counts its orders, and puts a bill for each into a queue."""

    state: Billed

    def __init__(self, bills: Queue[Bill], **keywords: Any) -> None:
        self.bills, self.keywords = bills, keywords

    async def receive(self, message: Order | HowMany, ctx: Context[Order | HowMany]) -> None:
        match message:
            case Order(number=number, attempt=attempt):
                self.state.count += 1
                ctx.put(self.bills, Bill(number), **self.keywords)
                if ctx.attempt < attempt:
                    raise ValueError("too early")
            case HowMany():
                ctx.reply(self.state.count)


async def open_shop(system: ActorSystem, **options: Any) -> tuple[Queue[Bill], Any]:
    bills = await system.store.queue("bills", type=Bill)
    return bills, await system.spawn(Shop, bills, name="shop", durable=True, **options)


async def numbers_in(bills: Queue[Bill]) -> list[int]:
    return [record.item.number async for record in bills.browse()]


async def a_day(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        _, shop = await open_shop(system, mailbox=AT_ONCE)
        for number in range(3):
            # Every second one fails first: what it put then never was.
            await shop.tell(Order(number, attempt=1 + number % 2))
            machine.notes.append(number)


async def every_order_has_one_bill(machine: Machine) -> None:
    async with ActorSystem("data") as system:
        bills, shop = await open_shop(system, mailbox=AT_ONCE)
        await settle()
        found = await numbers_in(bills)
        assert found == list(range(len(found))), found
        assert len(found) >= len(machine.notes), (found, machine.notes)
        assert await shop.ask(HowMany()) == len(found)


def test_every_order_has_one_bill_whatever_crashes() -> None:
    report = crash_matrix(a_day, every_order_has_one_bill, power=True, states_max=2)
    assert report.points > 20


@pytest.mark.deep
def test_every_order_has_one_bill_though_the_restart_crashes_too() -> None:
    report = crash_matrix(a_day, every_order_has_one_bill, power=True, twice=True)
    assert report.states > 300


async def test_nobody_gets_what_a_step_puts_before_it_is_committed(town: Town) -> None:
    async with town.system() as system:
        bills, shop = await open_shop(system)
        taking = await started(bills.take())
        await shop.tell(Order(1))
        await settle()
        assert await taking == Bill(1)
        town.runner.hold()
        telling = await started(shop.tell(Order(2)))
        taking = await started(bills.take())
        town.runner.step()
        await settle()
        assert shop.stats().handled == 2
        assert not taking.done()
        town.runner.let_go()
        assert await taking == Bill(2)
        await telling


async def test_no_limit_of_the_queue_holds_a_step_up(town: Town) -> None:
    async with town.system() as system:
        bills = await system.store.queue("bills", type=Bill, maxsize=1)
        shop = await system.spawn(Shop, bills, name="shop", durable=True)
        for number in range(3):
            await shop.tell(Order(number))
        assert await shop.ask(HowMany()) == 3
        assert await numbers_in(bills) == [0, 1, 2]


async def test_a_step_puts_with_the_keywords_of_a_put(town: Town) -> None:
    async with town.system() as system:
        bills = await system.store.queue("bills", type=Bill)
        keywords = {"delay": 5, "headers": {"to": "us"}, "dedup_id": "one"}
        shop = await system.spawn(Shop, bills, name="shop", durable=True, **keywords)  # type: ignore[arg-type]
        for number in range(2):
            await shop.tell(Order(number))
        assert await shop.ask(HowMany()) == 2
        assert (len(bills), bills.stats().ready) == (1, 0)
        await asyncio.sleep(6)
        async with bills.lease() as delivery:
            assert (delivery.item, delivery.headers) == (Bill(0), {"to": "us"})


def test_a_frame_is_as_durable_as_the_queues_in_it() -> None:
    """A system at `memory` has what it puts into a queue at `sync` on the disk, synced."""
    machine = Machine()

    async def sell() -> list[Machine]:
        async with ActorSystem("data", durability="memory", sync_interval=None) as system:
            _, shop = await open_shop(system)
            await shop.tell(Order(1))
            await settle()
            return list(machine.unplugged(states_max=4))

    async def bills_there() -> list[int]:
        async with ActorSystem("data") as system:
            return await numbers_in(await system.store.queue("bills", type=Bill))

    unplugged = machine.run(sell())
    assert [left.run(bills_there()) for left in unplugged] == [[1]] * len(unplugged)
    assert unplugged


class Tries(Actor[str]):
    """Puts where it can not."""

    def __init__(self, errors: list[str], *queues: Any) -> None:
        self.errors, self.queues = errors, queues

    async def receive(self, message: str, ctx: Context[str]) -> None:
        for queue in self.queues:
            with pytest.raises((TypeError, ValueError, QueueClosed)) as caught:
                ctx.put(queue, Bill(1))
            self.errors.append(str(caught.value))
        with pytest.raises(TypeError):
            ctx.put(self.queues[0], Bill(1), "more")
        ctx.reply(None)


async def test_what_is_no_queue_of_the_store_is_refused(town: Town) -> None:
    errors: list[str] = []
    async with town.system() as system, ActorSystem() as other:
        good = await system.store.queue("good", type=Bill)
        typed = await system.store.queue("typed", type=int)
        shut = await system.store.queue("shut", type=Bill)
        shut.shutdown()
        far = await other.store.queue("far", type=Bill)
        queues = (typed, shut, far, asyncio.Queue[Bill]())
        ref = await system.spawn(Tries, errors, *queues, name="tries", durable=True)
        await ref.ask("go")
        memory = await system.spawn(Tries, errors, good, name="memory")
        await memory.ask("go")
        assert [len(queue) for queue in (good, typed, shut, far)] == [0, 0, 0, 0]
    assert "shut down" in errors[1]
    assert "is not of the store of this system" in errors[2]
    assert "is no queue of a store" in errors[3]
    assert "'memory' is in memory alone" in errors[4]


async def test_a_step_puts_into_as_many_queues_as_a_frame_holds(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "QUEUES_MAX", 2)
    monkeypatch.setattr(handling, "QUEUES_MAX", 2)

    class Many(Actor[int]):
        async def receive(self, message: int, ctx: Context[int]) -> None:
            for queue in queues[:message]:
                ctx.put(queue, b"x")
            ctx.reply(None)

    async with town.system() as system:
        queues = [await system.store.queue(f"q{number}") for number in range(3)]
        refs = [
            await system.spawn(Many, name=f"many{number}", durable=True, mailbox=AT_ONCE)
            for number in range(3)
        ]
        await asyncio.gather(*(ref.ask(2) for ref in refs))
        assert [len(queue) for queue in queues] == [3, 3, 0]
        with pytest.raises(ItemTooLarge, match="puts into 3 queues"):
            await refs[0].ask(3)
        assert [len(queue) for queue in queues] == [3, 3, 0]


async def test_what_a_dead_letter_would_put_is_noted(town: Town) -> None:
    async with town.system() as system:
        bills, shop = await open_shop(system, mailbox=DurableMailbox(max_retries=0))
        await shop.tell(Order(7, attempt=9))
        await settle()
        (dead,) = await (await system.dead_letters()).list()
        assert len(bills) == 0
        found = await reproduce(dead, Shop, bills, raises=False)
        assert found.puts == [("bills", Bill(7))]
        assert len(bills) == 0
