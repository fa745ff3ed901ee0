"""Type checkers refuse a message that an actor does not take."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = """
from msgspec import Struct
from fifoq import Actor, ActorSystem, Context, Queue, Ref

class Deposit(Struct, tag=True):
    amount: int

class Balance(Struct, tag=True):
    pass

class State(Struct):
    balance: int = 0

class Account(Actor[Deposit | Balance]):
    state: State
    log: Queue[str]
    async def receive(self, message: Deposit | Balance, ctx: Context[Deposit | Balance]) -> None:
        match message:
            case Deposit(amount):
                self.state.balance += amount
                ctx.schedule(Balance(), delay=1)
                ctx.schedule(Balance(), dely=1)  # wrong
                ctx.tell("bob", message)
                ctx.put(self.log, "a deposit", delay=1)
                ctx.put(self.log, amount)  # wrong
                ctx.put(self.log, "a deposit", dely=1)  # wrong
            case Balance():
                ctx.reply(self.state.balance)

async def main() -> int:
    async with ActorSystem("data") as system:
        ref = await system.spawn(Account, name="alice", durable=True)
        await ref.tell(Deposit(1))
        await ref.tell("hello")  # wrong
        await ref.ask(17)  # wrong
        await system.ask(ref, "hello", id="a")  # wrong
        other: Ref[str] = ref  # wrong
        count: str = await ref.ask(Balance(), returns=int)  # wrong
        return await system.ask(ref, Balance(), id="b", returns=int)
"""


def test_a_tell_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    sample = tmp_path / "durable_sample.py"
    sample.write_text(SAMPLE)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(sample)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = {int(line) for line in re.findall(r"sample\.py:(\d+): error", done.stdout)}
    lines = SAMPLE.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
