"""A type checker refuses messages that an actor does not accept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SAMPLE = """
from actors import Actor, ActorSystem, Context, Keyed, Ref, Router, Terminated


class Account(Actor[int | str]):
    async def receive(self, message: int | str, ctx: Context[int | str]) -> None:
        ctx.tell(ctx.self_ref, 1)
        ctx.tell(ctx.self_ref, b"no")  # refused
        ctx.watch(ctx.self_ref)  # refused


class Guard(Actor[int | Terminated]):
    async def receive(self, message: int | Terminated, ctx: Context[int | Terminated]) -> None:
        ctx.watch(ctx.self_ref)
        found = ctx.find("account", Account)
        if found is not None:
            ctx.tell(found, "yes")
            ctx.tell(found, 1.5)  # refused
        unknown = ctx.find("account")
        if unknown is not None:
            ctx.tell(unknown, 1)  # refused


async def main(system: ActorSystem, accounts: Keyed[int | str], router: Router[int | str]) -> None:
    ref = await system.spawn(Account)
    narrower: Ref[int] = ref
    await ref.tell("yes")
    await ref.tell(b"no")  # refused
    await narrower.tell("no")  # refused
    number: int = await ref.ask(1, returns=int)
    text: str = await ref.ask(1, returns=int)  # refused
    await accounts.tell("alice", 1)
    await accounts.tell("alice", None)  # refused
    await router.tell([])  # refused
    print(number, text)
"""


def test_mypy_refuses_what_an_actor_does_not_accept(tmp_path: Path) -> None:
    sample = tmp_path / "actors_sample.py"
    sample.write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(sample)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = {int(line) for line in re.findall(r"sample\.py:(\d+): error", done.stdout)}
    lines = SAMPLE.splitlines()
    assert found == {number for number, line in enumerate(lines, 1) if "# refused" in line}, (
        done.stdout
    )
