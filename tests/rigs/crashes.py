"""Crashes of queues under traffic: `python -m tests.rigs.crashes PLAN`. Prints the outcome as JSON.

This process forks one that works on a store, hears all it says, and kills it or cuts the power of
its file system; for the latter it must run in a mount namespace. The history that it hears is
checked here, where no crash reaches it.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import sys
import time
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from tests.rigs import mounts, traffic
from tests.rigs.lives import life_lengths
from tests.support.history import Crash, History

IMAGE_BYTES = 32 * mounts.MIB
DELAY_SECONDS_MAX = 0.030
SILENCE_SECONDS_MAX = 60.0
ITEMS_PER_LIFE = 1 << 40
CLOSES, CLOSING_OPERATIONS = 0.15, 60
"""How often a worker closes its store after so many calls, and may be hit while it does."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`crashes` is how often; with `operations` each process lives until it made so many calls."""

    directory: str
    seed: int
    crashes: int
    power: bool = False
    options: tuple[str, ...] = ("",)
    operations: int = 0
    writers: tuple[Literal["io_uring", "thread"], ...] = ("io_uring", "thread")
    mutant: Literal["", "datasync"] = ""
    stop_early: bool = False


class Outcome(msgspec.Struct, kw_only=True):
    crashes: int = 0
    operations: int = 0
    confirmed: int = 0
    violations: list[str] = []
    interrupted: list[str] = []
    rings: int = 0
    """Processes whose commits were written by io_uring."""


def tell(history: History, event: traffic.Event, end: Crash) -> None:
    """Let the history know of an event; `end` is how the store was left before this process."""
    match event[0]:
        case "c":
            _, number, kind, queue, level, items, count = event
            history.called(number, kind, queue, level, items=items, count=count)
        case "r":
            history.returned(event[1], event[2], event[3])
        case "l":
            history.left(event[1])
        case "e":
            history.empty(event[1])
        case "n":
            history.refused(event[1])
        case "f":
            history.failed(event[1])
        case "d":
            found = {queue: [(c, i) for c, i in rows] for queue, rows in event[1].items()}
            history.opened(end, found)


class Worker:
    """A forked process with traffic on a store."""

    def __init__(self, job: traffic.Job) -> None:
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._reader)
                traffic.run(job, writer)
            finally:
                os._exit(0)
        os.close(writer)
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder().decode
        self.found: dict[str, Any] | None = None
        self.ended = self.rings = False

    def hear(self, history: History, seconds: float, end: Crash) -> bool:
        """Hear what comes within `seconds`; False once nothing more will."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                return True
            data = os.read(self._reader, 1 << 20)
            if not data:
                return False
            self._buffer += data
            self._take_apart(history, end)
            if not left:
                return True

    def _take_apart(self, history: History, end: Crash) -> None:
        at, buffer = 0, self._buffer
        while len(buffer) >= at + 4:
            stop = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) < stop:
                break
            for event in self._decode(bytes(buffer[at + 4 : stop])):
                self._tell(history, event, end)
            at = stop
        del buffer[:at]

    def _tell(self, history: History, event: list[Any], end: Crash) -> None:
        tell(history, event, end)
        if event[0] == "d":
            self.found = event[1]
        elif event[0] == "w":
            self.rings = True
        elif event[0] == "z":
            self.ended = True

    def kill(self, history: History, end: Crash) -> None:
        """Kill it and hear the rest."""
        os.kill(self.pid, signal.SIGKILL)
        while self.hear(history, SILENCE_SECONDS_MAX, end):
            pass
        self.reap()

    def reap(self) -> None:
        os.waitpid(self.pid, 0)
        os.close(self._reader)


class Rig:
    """Stores that are crashed again and again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = Random(plan.seed)
        self._directory = Path(plan.directory)
        self._point = self._directory / "mounted"
        self._point.mkdir()
        self.outcome = Outcome()
        if plan.power:
            mounts.make_image(self._directory / "template", IMAGE_BYTES)

    def run(self) -> Outcome:
        for life, length in enumerate(life_lengths(self._random, self._plan.crashes)):
            self._live(life, length)
            if self._plan.stop_early and self.outcome.violations:
                break
        return self.outcome

    def _live(self, life: int, length: int) -> None:
        options = self._plan.options[life % len(self._plan.options)]
        image, history = self._directory / "image", History()
        self._crashes = 0
        if self._plan.power:
            mounts.copy_image(self._directory / "template", image)
            mounts.mount_image(image, self._point, options)
        try:
            before: Crash = "close"
            for number in count():
                last = self._crashes >= length
                before = self._work(history, number, before, last=last)
                if before == "power":
                    mounts.unmount(self._point)
                    mounts.mount_image(image, self._point, options)
                if last or history.violations:
                    break
        finally:
            if self._plan.power:
                mounts.unmount(self._point)
            else:
                shutil.rmtree(self._point / "store", ignore_errors=True)
        outcome = self.outcome
        outcome.crashes += self._crashes
        outcome.operations += history.op_count
        outcome.confirmed += history.confirmed_count
        outcome.interrupted = sorted({*outcome.interrupted, *history.interrupted})
        where = f"seed {self._plan.seed}, store {life}, {options or 'plain'}"
        outcome.violations += [f"{where}: {text}" for text in history.violations]

    def _work(self, history: History, number: int, before: Crash, *, last: bool) -> Crash:
        """One process: until it is crashed, or, as the last one, until it has looked around."""
        closes = self._random.random() < CLOSES and not self._plan.operations
        job = traffic.Job(
            path=str(self._point / "store"),
            seed=self._random.getrandbits(32),
            first_item=1 + number * ITEMS_PER_LIFE,
            operations=1 if last else CLOSING_OPERATIONS if closes else 0,
            mutant=self._plan.mutant,
            loop=self._random.choice(("asyncio", "uvloop")),
            writer=self._random.choice(self._plan.writers),
        )
        history.restarted()
        worker = Worker(job)
        if last:
            self._hear_out(worker, history, before)
            return "close"
        if self._plan.operations:
            wanted = history.op_count + self._plan.operations
            while history.op_count < wanted and not history.violations:
                if not worker.hear(history, 1.0, before):
                    break
        else:
            if self._random.random() < 0.7:
                self._until_open(worker, history, before)
            worker.hear(history, self._random.uniform(0, DELAY_SECONDS_MAX), before)
        was_open = worker.found is not None
        if self._plan.power:
            # What was confirmed while there was power counts; nothing behind it does.
            while worker.hear(history, 0.0, before) and self._more(worker):
                pass
            history.distrust()
            mounts.cut_power(self._point)
        worker.kill(history, before)
        self.outcome.rings += worker.rings
        was_open = was_open or worker.found is not None
        if worker.ended and closes and not self._plan.power:
            return "close"
        if worker.ended and not closes:
            history.failed("the worker ended by itself")
        self._crashes += 1
        if not was_open:
            # Nobody saw the store open, so its earlier life has not been judged yet.
            return "power" if self._plan.power else before if before != "close" else "kill"
        return "power" if self._plan.power else "kill"

    @staticmethod
    def _more(worker: Worker) -> bool:
        return bool(select.select([worker._reader], [], [], 0)[0])

    @staticmethod
    def _until_open(worker: Worker, history: History, before: Crash) -> None:
        deadline = time.monotonic() + SILENCE_SECONDS_MAX
        while worker.found is None and worker.hear(history, 0.002, before):
            if time.monotonic() > deadline:
                history.failed("the store did not open in time")
                return

    @staticmethod
    def _hear_out(worker: Worker, history: History, before: Crash) -> None:
        deadline = time.monotonic() + SILENCE_SECONDS_MAX
        while worker.hear(history, 1.0, before):
            if time.monotonic() > deadline:
                os.kill(worker.pid, signal.SIGKILL)
                history.failed("the worker hangs")
        worker.reap()
        if not worker.ended or worker.found is None:
            history.failed("the store could not be opened and closed")


def main(text: str) -> None:
    logging.getLogger("store").addHandler(logging.NullHandler())
    logging.getLogger("fifoq").addHandler(logging.NullHandler())
    outcome = Rig(msgspec.json.decode(text, type=Plan)).run()
    sys.stdout.write(msgspec.json.encode(outcome).decode())


if __name__ == "__main__":
    main(sys.argv[1])
