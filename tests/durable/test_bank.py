"""The example bank is killed at every commit: money is conserved, each transfer happens once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec import field

from examples.bank import Account, AccountMessage, AccountState, Credit, GetBalance, Transfer
from fifoq import ActorSystem, Context
from fifoq.durable.post import STATE_PREFIX
from fifoq.durable.steps import Step, Steps
from fifoq.testing import CrashFailure, Machine, crash_matrix, settle
from tests.support.figures import record

BALANCE = AccountState().balance
SEGMENT_BYTES = 64 << 10
"""As small as can be: there are many, and crashes meet all that is done about them."""


class AuditedState(AccountState):
    """Knows which transfers it has seen, besides."""

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


class Audited(Account):
    """The account of the example, with a statement."""

    state: AuditedState

    async def receive(self, message: AccountMessage, ctx: Context[AccountMessage]) -> None:
        await super().receive(message, ctx)
        match message:
            case Transfer(id=id):
                self.state.sent.append(id)
            case Credit(id=id):
                self.state.received.append(id)


class Bank:
    """Transfers between accounts by some clerks side by side, and what must be true after them."""

    def __init__(self, *, accounts: int, transfers: int, clerks: int, seed: int = 0) -> None:
        random = Random(seed)
        self.names = [f"account-{number}" for number in range(accounts)]
        self.clerks = clerks
        self.transfers: list[tuple[str, Transfer]] = []
        for number in range(1, transfers + 1):
            source, target = random.sample(self.names, 2)
            # Never more than is there for sure, so that each of them must happen.
            self.transfers.append((source, Transfer(number, target, random.randint(1, 3))))
        assert max(Counter(source for source, _ in self.transfers).values()) * 3 <= BALANCE
        self.checked = 0

    def open(self) -> ActorSystem:
        return ActorSystem("bank", segment_bytes=SEGMENT_BYTES)

    async def day(self, machine: Machine) -> None:
        """Everybody is there, and all transfers are made."""
        async with self.open() as system:
            refs = {
                name: await system.spawn(Audited, name=name, durable=True) for name in self.names
            }

            async def clerk(number: int) -> None:
                for source, transfer in self.transfers[number :: self.clerks]:
                    machine.notes.append(-transfer.id)
                    await refs[source].tell(transfer)
                    machine.notes.append(transfer.id)

            await asyncio.gather(*(clerk(number) for number in range(self.clerks)))
            await settle()

    async def holds(self, machine: Machine) -> None:
        """After a restart and when all mail is handled."""
        self.checked += 1
        states = await self.states()
        sent = Counter(id for state in states.values() for id in state.sent)
        received = Counter(id for state in states.values() for id in state.received)
        confirmed = {id for id in machine.notes if id > 0}
        tried = {-id for id in machine.notes if id < 0}
        assert sum(state.balance for state in states.values()) == BALANCE * len(self.names)
        assert max(sent.values(), default=1) == 1, "a transfer was sent twice"
        assert sent == received
        assert confirmed <= sent.keys() <= tried
        expected = dict.fromkeys(self.names, BALANCE)
        for source, transfer in self.transfers:
            if transfer.id in sent:
                expected[source] -= transfer.amount
                expected[transfer.to] += transfer.amount
        assert {name: state.balance for name, state in states.items()} == expected

    async def states(self) -> dict[str, AuditedState]:
        """The accounts once all mail is handled, read from the store.

        Only those who have mail are spawned. To spawn all of them each time is what a program
        would do, and takes a hundred times as long: see `test_a_whole_bank_comes_back`.
        """
        async with self.open() as system:
            assert system._office is not None
            post = system._office.post
            while post.absent:
                for name in list(post.absent):
                    await system.spawn(Audited, name=name, durable=True)
                await settle()
            keys = {STATE_PREFIX + name: name for name in self.names}
            kept: Any = await post.committer.call(lambda log: log.states_of(list(keys)))
            states = system._office.kind_of(Audited).states
            found = {
                keys[key]: states.decode(states.restore(keys[key], value))
                for key, value in kept.items()
            }
            return {name: found.get(name, AuditedState()) for name in self.names}


DEEP_PARTS = 8


@pytest.mark.parametrize(
    ("transfers", "clerks", "part", "power"),
    [
        pytest.param(40, 2, (1, 2), True, id="suite"),
        pytest.param(
            *(1950, 1, (1, 1), False),
            id="deep-killed",
            marks=[pytest.mark.deep, pytest.mark.timeout(3600)],
        ),
        *(
            pytest.param(
                *(1000, 1, (part, DEEP_PARTS), True),
                id=f"deep-{part}",
                marks=[pytest.mark.deep, pytest.mark.timeout(3600)],
            )
            for part in range(1, DEEP_PARTS + 1)
        ),
    ],
)
def test_money_is_conserved_and_every_transfer_happens_once(
    transfers: int, clerks: int, part: tuple[int, int], power: bool
) -> None:
    bank = Bank(accounts=1000, transfers=transfers, clerks=clerks)
    report = crash_matrix(bank.day, bank.holds, power=power, states_max=3, part=part)
    record("bank", points=report.points, states=report.states, violations=0, seed=0)
    assert bank.checked == report.states >= report.points


async def a_whole_bank_comes_back(machine: Machine) -> None:
    """As a program does it: everybody is spawned, and asked."""
    bank = Bank(accounts=30, transfers=12, clerks=2)
    async with bank.open() as system:
        refs = [await system.spawn(Audited, name=name, durable=True) for name in bank.names]
        await settle()
        balances = [await ref.ask(GetBalance(), returns=int) for ref in refs]
    assert sum(balances) == BALANCE * len(refs)


def test_a_whole_bank_comes_back() -> None:
    bank = Bank(accounts=30, transfers=12, clerks=2)
    report = crash_matrix(bank.day, a_whole_bank_comes_back, twice=True)
    assert report.points >= 30


def effects_first(steps: Steps, step: Step, add: Callable[[Steps, Step], int]) -> int:
    """The mutant whose step is two frames: what it does, and then its ack."""
    ack = Step()
    ack.removals, step.removals = step.removals, ()
    step.when_committed(lambda: _add_later(add, steps, ack))
    return add(steps, step)


def ack_first(steps: Steps, step: Step, add: Callable[[Steps, Step], int]) -> int:
    """The mutant whose step is two frames: its ack, and then what it does."""
    ack = Step()
    ack.removals, step.removals = step.removals, ()
    ack.when_committed(lambda: _add_later(add, steps, step))
    return add(steps, ack)


def _add_later(add: Callable[[Steps, Step], int], steps: Steps, step: Step) -> None:
    add(steps, step)


@pytest.mark.parametrize("mutant", [effects_first, ack_first])
def test_a_step_that_is_not_atomic_is_found(
    mutant: Callable[[Steps, Step, Callable[[Steps, Step], int]], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = Bank(accounts=5, transfers=6, clerks=1)
    assert crash_matrix(bank.day, bank.holds).points >= 18
    add = Steps.add
    monkeypatch.setattr(Steps, "add", lambda steps, step: mutant(steps, step, add))
    with pytest.raises(CrashFailure):
        crash_matrix(bank.day, bank.holds)
