"""The crash matrix: the user's own program is killed wherever it could be, and must hold.

The program runs once to see how often its disk changes. Then it runs again, and before each change
it stands still while the machine that a crash would leave at this moment is started, and the
invariant is asked of it. So each state costs one restart, however far the program had come.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Final

from msgspec import Struct

from fifoq.testing.machine import Machine

Program = Callable[[Machine], Awaitable[object]]

PROGRESS_SECONDS: Final = 5.0
"""How often a long matrix says how far it is."""
LIFE_SECONDS: Final = 24 * 3600.0
"""Time on the machine after which a program counts as one that never ends."""

_THREAD: Final = "crash matrix"
_SEEN_BY_A_PROCESS: Final = {"make_dir", "create", "unlink", "pwrite", "truncate"}
"""Disk calls after which the next process finds something else; the others change what a power
cut may leave."""


class CrashReport(Struct, frozen=True):
    """What a crash matrix went through: `points` in the program, `states` the disk was left in."""

    points: int
    states: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.points:,} crash points, {self.states:,} states, {self.seconds:.1f} s"


class CrashFailure(AssertionError):
    """A crash after which the invariant does not hold. The `__cause__` is what it raised.

    `at` names the state: give it to `crash_matrix(at=...)`, or to pytest as `--crash-at`, and that
    one alone is tried again.
    """

    def __init__(self, at: str, crash: str, error: BaseException) -> None:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(
            f"crash at {at}, {crash}: the invariant does not hold: {said}\n"
            f'This one alone: crash_matrix(..., at="{at}"), or pytest --crash-at={at}'
        )
        self.at, self.crash = at, crash


class NotRepeatable(Exception):
    """The program did not do the same when it was run again, so no crash has a name that lasts."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(
            f"the scenario changed the disk {first} times when it was run first and {second} times "
            "then: it depends on more than its machine. Look for a variable that outlives the "
            "function, real time, threads, and random numbers that are not of `random`."
        )


def crash_matrix(
    scenario: Program,
    invariant: Program,
    *,
    prepare: Program | None = None,
    power: bool = False,
    twice: bool = False,
    states_max: int = 8,
    at: str | None = None,
    part: tuple[int, int] = (1, 1),
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> CrashReport:
    """Kill `scenario` at every point where its disk changes, and ask `invariant` after a restart.

    Each is an `async def` that gets a `Machine`; the stores and actor systems that it opens are on
    that machine's disk. `invariant` is called on the machine as a crash left it: it opens what it
    needs, lets it settle, and raises if something is wrong. What the scenario wrote to
    `machine.notes` before the crash is there. `prepare` runs first, and no crash interrupts it.

    A crash is the end of the process: what was written is there. With `power`, each sync is a
    crash point too, and each point is tried with up to `states_max` of the states that a power cut
    may leave. With `twice`, each restart is crashed too, once, somewhere while the invariant runs,
    and the invariant is asked again. `at` tries one state alone, as a failure names it;
    `part=(2, 4)` the second of four parts of the points. `seed` chooses among states, and what
    `random` gives.

    Raises CrashFailure at the first state that does not hold, what the scenario itself raises,
    NotRepeatable, and ValueError for what names no state or part. The scenario runs twice, so it
    starts from nothing but its machine. While it lasts, a line is given to `progress` every few
    seconds (default: to stderr). What fifoq logs of restarts is dropped, unless `at` is given: a
    torn tail is no news here.
    """
    if not 1 <= part[0] <= part[1]:
        raise ValueError(f"part={part} is not like (2, 4), the second of four.")
    if states_max < 1:
        raise ValueError(f"states_max={states_max} is not 1 or more.")
    rehearsal = _run(Machine(seed=seed), scenario, prepare, lambda machine, call: None)
    matrix = _Matrix(invariant, rehearsal, power, twice, states_max, at, part, progress or _print)
    with matrix.thread, _quiet(unless=at is not None):
        performed = _run(Machine(seed=seed), scenario, prepare, matrix.visit)
    if matrix.failure is not None:
        raise matrix.failure
    if performed != rehearsal:
        raise NotRepeatable(rehearsal, performed)
    if at is not None and not matrix.states:
        raise ValueError(f"there is no state {at!r} among {rehearsal} crash points.")
    return matrix.report()


@contextmanager
def _quiet(*, unless: bool) -> Iterator[None]:
    """Our own loggers say nothing of what restarts find."""

    def is_heard(record: logging.LogRecord) -> bool:
        return unless or not (record.threadName or "").startswith(_THREAD)

    loggers = [logging.getLogger(name) for name in ("store", "actors", "fifoq")]
    for logger in loggers:
        logger.addFilter(is_heard)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_heard)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(
    machine: Machine,
    scenario: Program,
    prepare: Program | None,
    visit: Callable[[Machine, str], None],
) -> int:
    """Run a scenario to its end and count the changes of its disk, the end as one more.

    Before each of them `visit` is called, with the name of the disk call that is under way.
    """
    if prepare is not None:
        machine.run(_live(prepare, machine))
    count = 0
    call = ""

    def at_call(index: int, name: str, args: tuple[object, ...]) -> None:
        nonlocal call
        call = name

    def at_change() -> None:
        nonlocal count
        count += 1
        visit(machine, call)

    machine.files.before_op, machine.files.disk.before_change = at_call, at_change
    try:
        machine.run(_live(scenario, machine))
    finally:
        machine.files.before_op = machine.files.disk.before_change = None
    call = ""
    at_change()
    return count


async def _live(program: Program, machine: Machine) -> None:
    async with asyncio.timeout(LIFE_SECONDS):
        await program(machine)


class _Matrix:
    """One run through all crash points."""

    def __init__(
        self,
        invariant: Program,
        total: int,
        power: bool,
        twice: bool,
        states_max: int,
        at: str | None,
        part: tuple[int, int],
        progress: Callable[[str], None],
    ) -> None:
        self.points = self.states = 0
        self.failure: CrashFailure | None = None
        # The scenario's loop stands still in the middle of a step: restarts need another thread.
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=_THREAD)
        self._invariant = invariant
        self._total = total
        self._power, self._twice, self._states_max = power, twice, states_max
        self._point_wanted, _, self._state_wanted = (at or "").partition(".")
        self._part = part
        self._progress = progress
        self._number = 0
        self._began = self._told = time.monotonic()

    def visit(self, machine: Machine, call: str) -> None:
        """Try every crash that is wanted of the scenario as it stands."""
        self._number += 1
        if self.failure is not None or not self._wants(str(self._number)):
            return
        states = self.states
        for at, crash, left in self._crashes(machine, call):
            second = _Second(at, left, power=self._power) if self._twice else None
            if not self._holds(at, crash, left):
                return
            if second is not None and second.left is not None:
                left.files.disk.before_change = None
                if not self._holds(at, f"{crash}, and once more while it came back", second.left):
                    return
        if self.states > states:
            self.points += 1
            self._tell()

    def _holds(self, at: str, crash: str, machine: Machine) -> bool:
        self.states += 1
        error = self.thread.submit(_outcome, self._invariant, machine).result()
        if error is None:
            return True
        # Not raised here: the store under way would take it for a failure of its disk.
        self.failure = CrashFailure(at, crash, error)
        self.failure.__cause__ = error
        return False

    def _wants(self, point: str) -> bool:
        if self._point_wanted:
            return point == self._point_wanted
        number, count = self._part
        return self._number % count == number % count

    def _crashes(self, machine: Machine, call: str) -> Iterator[tuple[str, str, Machine]]:
        where = f"before disk call {machine.files.op_count}, {call}" if call else "after the end"
        point, wanted = str(self._number), self._state_wanted
        if not wanted and (call in _SEEN_BY_A_PROCESS or not call):
            yield point, f"killed {where}", machine.killed()
        if not self._power:
            return
        for index, left in enumerate(machine.unplugged(states_max=self._states_max), 1):
            if wanted in ("", str(index)):
                yield f"{point}.{index}", f"power cut {where}", left

    def _tell(self) -> None:
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            where = f"at change {self._number:,} of {self._total:,} of the disk"
            self._progress(f"crash matrix: {where}, {self.states:,} states hold")

    def report(self) -> CrashReport:
        """What was done."""
        return CrashReport(self.points, self.states, time.monotonic() - self._began)


class _Second:
    """One of the machines that a crash of a restart could leave, each as likely as the others."""

    def __init__(self, at: str, machine: Machine, *, power: bool) -> None:
        self.left: Machine | None = None
        self._machine = machine
        self._power = power
        self._chance = Random(f"{machine.seed} {at}")
        self._changes = 0
        machine.files.disk.before_change = self._at_change

    def _at_change(self) -> None:
        self._changes += 1
        if self._chance.random() * self._changes >= 1:
            return
        if self._power and self._chance.random() < 0.5:
            self.left = self._chance.choice([*self._machine.unplugged()])
        else:
            self.left = self._machine.killed()


def _outcome(invariant: Program, machine: Machine) -> BaseException | None:
    """What the invariant says of a machine; an error of any kind is a no."""
    try:
        machine.run(_live(invariant, machine))
    except BaseException as error:
        return error
    return None
