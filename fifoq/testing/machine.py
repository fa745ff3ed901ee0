"""A simulated machine: a disk in memory and a time of its own, for programs that open stores.

What runs on it is a pure function of its input: no thread, no real file, no real clock. Both time
and chance are the machine's while it runs: `time.time`, `time.time_ns` and the loop's own time move
only when everybody waits, and `random` is seeded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from random import Random
from typing import Any, TypeVar

from actors.testing import VirtualTimeLoop
from fifoq.inline import InlineRunner
from fifoq.testing.crashes import after_process_crash, power_images
from fifoq.testing.simfiles import SimFiles
from fifoq.world import WORLD, World

T = TypeVar("T")

WALL_START = 1_767_225_600
"""Where the wall clock of a new machine stands: the first second of 2026, since the epoch."""
_NS = 1_000_000_000


class Machine:
    """A computer in memory, which can be killed and unplugged.

    Whatever opens a store below `run` opens it on this machine's disk, `fifoq.open` with any path
    for one; `fifoq.sync`, which has a loop of its own, does not. `notes` is for what the world
    outside has seen: it outlives crashes. `capacity` is the size of the disk in bytes; `files` is
    the disk itself, which can be damaged and can refuse.
    """

    def __init__(self, *, capacity: int | None = None, seed: int = 0) -> None:
        self.files = SimFiles(capacity=capacity)
        self.notes: list[Any] = []
        self.seed = seed
        self._chance = Random(seed)
        self._past = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def seconds(self) -> float:
        """How long the machine has been there, in seconds of its own; crashes do not reset it."""
        return self._past + (0.0 if self._loop is None else self._loop.time())

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a program to its end, as `asyncio.run` does; one at a time.

        Raises what it raises, and `Stuck` if nothing could ever have happened again.
        """
        if self._loop is not None:
            main.close()
            raise RuntimeError("this machine runs a program already: give each its own machine.")
        context = copy_context()
        context.run(WORLD.set, World(self.files, _MachineClock(self), InlineRunner))
        with _virtual_wall_clock(), _seeded_chance(self._chance.random()):
            try:
                with asyncio.Runner(loop_factory=self._start) as runner:
                    return runner.run(main, context=context)
            finally:
                self._past, self._loop = self.seconds, None

    def killed(self) -> Machine:
        """Another machine, as this one would be if its process were killed now.

        What was written is there, synced or not. May be called while a program runs, by the
        program itself, and changes nothing here.
        """
        return self._with(after_process_crash(self.files))

    def unplugged(self, *, states_max: int = 16) -> Iterator[Machine]:
        """Other machines, as a power cut now may leave this one: at most `states_max` of them.

        Of what was not synced, some survives and some does not, down to single sectors. All such
        states if they are that few; else nothing of it, all of it, and a seeded choice.
        """
        images = list(power_images(self.files, limit=states_max, samples=states_max))
        if len(images) > states_max:
            chance = Random(f"{self.seed} {self.files.op_count}")
            images = images[:2] + chance.sample(images[2:], max(0, states_max - 2))
        for image in images[:states_max]:
            yield self._with(SimFiles.from_image(image))

    def _with(self, files: SimFiles) -> Machine:
        machine = Machine(seed=self.seed)
        machine.files = files
        machine.notes = self.notes.copy()
        machine._past = self.seconds
        # Or the next life would draw the same tokens as this one did.
        machine._chance = Random(f"{self.seed} {self.files.op_count}")
        return machine

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = _MachineLoop(self)
        return self._loop

    def __repr__(self) -> str:
        state = "off" if self._loop is None else "running"
        return f"<Machine seconds={self.seconds:.3f} notes={len(self.notes)} {state}>"


class _MachineLoop(VirtualTimeLoop):
    """Knows whose loop it is, for those who ask for the wall clock."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        super().__init__()


class _MachineClock:
    """The `Clock` of the stores on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def monotonic(self) -> float:
        return self._machine.seconds

    def wall(self) -> int:
        return _wall_ns(self._machine)

    def token(self, count: int) -> bytes:
        return self._machine._chance.randbytes(count)

    def sleep(self, seconds: float) -> None:
        self._machine._past += seconds


def _wall_ns(machine: Machine) -> int:
    return WALL_START * _NS + round(machine.seconds * _NS)


_real_time, _real_time_ns = time.time, time.time_ns
_users = 0


def _time_ns() -> int:
    loop = asyncio._get_running_loop()
    return _wall_ns(loop.machine) if isinstance(loop, _MachineLoop) else _real_time_ns()


def _time() -> float:
    loop = asyncio._get_running_loop()
    return _wall_ns(loop.machine) / _NS if isinstance(loop, _MachineLoop) else _real_time()


@contextmanager
def _virtual_wall_clock() -> Iterator[None]:
    """Those who run on a machine see its time; everybody else in the process sees the real one."""
    global _users
    _users += 1
    time.time, time.time_ns = _time, _time_ns
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            time.time, time.time_ns = _real_time, _real_time_ns


@contextmanager
def _seeded_chance(seed: float) -> Iterator[None]:
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
