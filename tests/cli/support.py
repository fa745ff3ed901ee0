"""The command line as a user runs it, and an owner of a store in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fifoq.cli import app

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "fifoq", *map(str, arguments)]


def fifoq(
    *arguments: str | Path, input: bytes = b"", status: int = 0, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        input=input,
        capture_output=True,
        env=environment(**variables),
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    assert b"Traceback" not in done.stderr
    return done


def bound_by_modes(words: list[str]) -> list[str]:
    """The same command by a user who may do what the modes of files allow, even if that is root."""
    return [sys.executable, "-c", _DROP_PRIVILEGES, *words]


_DROP_PRIVILEGES = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def is_running(process: subprocess.Popen[bytes]) -> bool:
    """Whether it still does, after giving it a moment to."""
    try:
        process.wait(0.005)
    except subprocess.TimeoutExpired:
        return True
    return False


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, status: int, out: bytes, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def here(*arguments: str | Path, status: int = 0) -> Said:
    """Run a command in this process: the same, and a third of a second less."""
    done = CliRunner().invoke(app, [*map(str, arguments)], prog_name="fifoq")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    said = Said(done.exit_code, done.stdout_bytes, done.stderr)
    assert said.status == status, (said.out, said.err)
    return said


class Owner:
    """A process that owns a store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def do(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def owner(path: Path) -> Iterator[Owner]:
    """Own the store at `path` in another process; it is closed at the end, if it still can be."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.owner", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready")
            yield Owner(process)
        except BaseException:
            process.kill()
            raise
