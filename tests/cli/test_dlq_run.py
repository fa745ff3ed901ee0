"""`fifoq dlq run`: a message that killed its actor is run again, and nothing else happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fifoq import ActorSystem
from tests.cli.support import here
from tests.durable.support import AT_ONCE, Boom, Deposit, account, balance
from tests.durable.test_dead import Mended

ACCOUNT = "tests.durable.support:Account"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """An account with 5, and a message that it could not handle."""

    async def fill() -> None:
        async with ActorSystem(tmp_path) as system:
            alice = await account(system, mailbox=AT_ONCE)
            await alice.tell(Deposit(5))
            await alice.tell(Boom())
            assert await balance(alice) == 5

    asyncio.run(fill())
    return tmp_path


def test_it_fails_as_it_failed_and_shows_what_it_did(bank: Path) -> None:
    before = {path.name: path.read_bytes() for path in bank.iterdir() if path.is_file()}
    told = here("dlq", "run", bank, "1", "--actor", ACCOUNT, "--json", status=1).json
    assert (told["actor"], told["message"]["type"]) == ("alice", "Boom")
    assert (told["before"]["balance"], told["after"]["balance"]) == (5, -1)
    assert told["told"] == [["bob", {"type": "Deposit", "amount": 1000}]]
    assert (told["replies"], told["error"]) == (["never"], "ValueError('boom')")
    said = here("dlq", "run", bank, "1", "--actor", ACCOUNT, status=1).lines
    assert said[-1] == "ValueError: boom"
    assert {path.name: path.read_bytes() for path in bank.iterdir() if path.is_file()} == before


def test_with_the_fix_it_is_handled(bank: Path) -> None:
    mended = f"{Mended.__module__}:{Mended.__name__}"
    assert here("dlq", "run", bank, "1", "--actor", mended).lines[-1] == "it was handled"


def test_no_code_is_loaded_because_a_file_names_it(bank: Path) -> None:
    said = here("dlq", "run", bank, "1", status=2)
    assert f"the one that it died in is '{ACCOUNT}'" in " ".join(said.err.split())
    for wrong in ("no.such.module:Account", "tests.durable.support:Nobody", "asyncio:Queue"):
        here("dlq", "run", bank, "1", "--actor", wrong, status=2)
    here("dlq", "run", bank, "9", "--actor", ACCOUNT, status=3)
