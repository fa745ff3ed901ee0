"""Runs mutants of the store, each in a process of its own, and says what killed them.

    python -m tests.mutants.run [--all | --rotate N | NAME ...]

A mutant lives in memory alone: the process that is to run it finds the changed text of one module
where it would import the real one. Nothing is written. First the battery runs on the store as it
is, since what fails there kills nobody. The status is 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

import pytest

from tests.mutants.catalogue import BATTERY, MUTANTS, Mutant
from tests.mutants.queue_catalogue import QUEUE_MUTANTS

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 120
TEST_SECONDS_MAX: Final = 30
"""A mutant may make a test wait for ever: the test is stopped, and has killed it."""
_RUN_IN_CHILD: Final = "--child"
_SURVIVED: Final = "survived"
_NOT_USED: Final = "the real module was loaded"
_NOT_A_KILL: Final = ("NameError", "UnboundLocalError", "SyntaxError", "ImportError")
"""Errors that tell of a mutant which is not what it says it is."""


class StaleMutant(Exception):
    """The text that a mutant changes is not in the store exactly once."""


def path_of(mutant: Mutant) -> Path:
    """The module's file; its name may have dots."""
    return ROOT / mutant.package / f"{mutant.module.replace('.', '/')}.py"


def source_of(mutant: Mutant) -> str:
    return path_of(mutant).read_text(encoding="utf-8")


def mutated(mutant: Mutant) -> str:
    """The module's text with the mutant in it. StaleMutant if it does not fit any more."""
    source = source_of(mutant)
    count = source.count(mutant.old)
    if count != 1:
        raise StaleMutant(
            f"{mutant.name!r}: the old text is {count} times in "
            f"{mutant.package}/{mutant.module}.py. "
            f"Adapt the mutant in tests/mutants to the code as it is now:\n"
            f"{mutant.old}"
        )
    return source.replace(mutant.old, mutant.new)


def rotation(count: int) -> list[Mutant]:
    """Some mutants, the same ones until the store changes: then it is the turn of others."""
    state = blake2b(digest_size=8)
    for path in sorted((ROOT / "store").glob("*.py")):
        state.update(path.read_bytes())
    turn = int.from_bytes(state.digest(), "big") % len(MUTANTS)
    return [MUTANTS[(turn + i * _stride()) % len(MUTANTS)] for i in range(min(count, len(MUTANTS)))]


def _stride() -> int:
    """A step that spreads a rotation over all modules and never meets a mutant twice."""
    length = len(MUTANTS)
    step = max(1, length // 8)
    while any(length % n == 0 and step % n == 0 for n in range(2, step + 1)):
        step += 1
    return step


# One mutant in its process.


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module with another text."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = f"{mutant.package}.{mutant.module}"
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        file = str(path_of(self._mutant))
        loader = _Loader(name, file, mutated(self._mutant))
        return importlib.machinery.ModuleSpec(name, loader, origin=file)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the text it was given; no cached bytecode is read or written."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        code = compile(self._text, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Reporter:
    """Remembers the first test that failed, and why."""

    def __init__(self) -> None:
        self.failed: str | None = None

    def pytest_exception_interact(
        self,
        node: pytest.Item | pytest.Collector,
        call: pytest.CallInfo[object],
        report: pytest.TestReport,
    ) -> None:
        if self.failed is None and call.excinfo is not None:
            self.failed = f"{node.nodeid} {call.excinfo.typename}"


def run_here(name: str | None, killers: Sequence[str]) -> int:
    """Become the mutant, if there is one, and run killers; prints what failed first."""
    if name is not None:
        sys.meta_path.insert(0, _Finder(by_name(name)))
    sys.dont_write_bytecode = True
    reporter = _Reporter()
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly"]
    # Plain asserts: since the kit is a plugin, pytest would load our packages itself otherwise.
    arguments = [*options, "--assert=plain", "-m", "not deep", "--no-header", "--tb=short"]
    arguments += [f"--timeout={TEST_SECONDS_MAX}", *killers]
    status = int(pytest.main(arguments, plugins=[reporter]))
    if name is not None:
        mutant = by_name(name)
        module = sys.modules.get(f"{mutant.package}.{mutant.module}")
        if module is not None and not isinstance(module.__loader__, _Loader):
            reporter.failed = _NOT_USED
    sys.stdout.flush()
    print(f"\n{status} {reporter.failed or _SURVIVED}")
    return status


# All of them, from outside.


class Outcome(NamedTuple):
    """What became of a mutant. `killer` is None if it survived."""

    name: str
    killer: str | None
    seconds: float
    output: str

    def __str__(self) -> str:
        fate = "SURVIVED" if self.killer is None else f"killed by {self.killer}"
        return f"{self.seconds:5.1f} s  {self.name}: {fate}"


def try_mutant(mutant: Mutant, battery: Sequence[str]) -> Outcome:
    """Run the killers that should do it, then all others."""
    mutated(mutant)
    started = time.monotonic()
    killer, output = None, ""
    for killers in (mutant.killers, tuple(battery)):
        if killers and killer is None:
            killer, output = _run_child(mutant.name, killers)
    return Outcome(mutant.name, killer, time.monotonic() - started, output)


def killers_of(outcome: Outcome, mutant: Mutant, battery: Sequence[str]) -> tuple[str, ...]:
    """The test that killed it; where none is named, all that were tried."""
    test = (outcome.killer or "").rpartition(" ")[0]
    return (test,) if "::" in test else (*mutant.killers, *battery)


def try_original(battery: Sequence[str]) -> Outcome:
    """The store as it is, which nothing may kill."""
    started = time.monotonic()
    killer, output = _run_child(None, battery)
    return Outcome("the store as it is", killer, time.monotonic() - started, output)


def _run_child(name: str | None, killers: Sequence[str]) -> tuple[str | None, str]:
    command = [sys.executable, "-m", "tests.mutants.run", _RUN_IN_CHILD, name or "", *killers]
    environment = {k: v for k, v in os.environ.items() if k != "FIFOQ_FIGURES"}
    environment["PYTHONHASHSEED"] = "0"
    try:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the time limit", ""
    output = result.stdout.decode(errors="replace")
    status, _, failed = output.rstrip().rpartition("\n")[2].partition(" ")
    if failed == _NOT_USED:
        raise RuntimeError(f"{name}: {failed}, and not the mutant\n{output}")
    if status == str(int(pytest.ExitCode.OK)):
        return None, output
    if name is not None and status == str(int(pytest.ExitCode.INTERRUPTED)):
        # One that a test raises, and that is caught where nothing is mutated.
        return "an interrupt that nobody caught", output
    if status != str(int(pytest.ExitCode.TESTS_FAILED)):
        # pytest itself was stopped, as by an argument that is no test.
        if status in map(str, map(int, pytest.ExitCode)):
            raise RuntimeError(f"{name}: pytest ended with {status}\n{output}")
        return f"the end of its process, status {result.returncode}", output
    if failed.endswith(_NOT_A_KILL):
        raise RuntimeError(f"{name}: the mutant is not sound Python: {failed}\n{output}")
    return failed, output


def by_name(name: str) -> Mutant:
    for mutant in (*MUTANTS, *QUEUE_MUTANTS):
        if mutant.name == name:
            return mutant
    raise SystemExit(f"no mutant is called {name!r}; --list names them")


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == [_RUN_IN_CHILD]:
        return run_here(arguments[1] or None, arguments[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--rotate", type=int, metavar="N", help="N mutants whose turn it is")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--verbose", action="store_true", help="show what the killer said")
    options = parser.parse_args(arguments)
    chosen = [by_name(name) for name in options.names]
    chosen += MUTANTS if options.all else rotation(options.rotate or 0)
    if options.list:
        print("\n".join(mutant.name for mutant in chosen or MUTANTS))
        return 0
    original = try_original(BATTERY)
    print(f"{original.seconds:5.1f} s  {original.name}: {original.killer or 'passes'}", flush=True)
    if original.killer is not None:
        print(original.output)
        return 1
    survivors = 0
    for mutant in chosen:
        outcome = try_mutant(mutant, BATTERY)
        print(outcome, flush=True)
        if options.verbose:
            print(outcome.output)
        survivors += outcome.killer is None
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
