"""A process with 50 busy durable actors is killed again and again, and goes on each time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.rigs.actor_process import ACTORS, Fold, Job
from tests.rigs.driver import ROOT, SILENCE_SECONDS_MAX
from tests.support.figures import record

SEED = int(os.environ.get("FIFOQ_SEED", "20251117"))
EARLY_SECONDS_MAX, BUSY_SECONDS_MAX = 0.08, 0.01
TELLS_MAX = 400
"""How many messages are confirmed in a life at the most before it is killed for being busy."""
KILLS_PER_STORE = 20


class Process:
    """Forks processes of busy actors and hears what they say. Use it in a `with`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.actor_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self._rest = b""
        self._lines: deque[bytes] = deque()
        self._pid = 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        self._process.communicate(timeout=SILENCE_SECONDS_MAX)

    def start(self, job: Job) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        self._process.stdin.flush()

    def heard(self, seconds: float) -> Iterator[list[str]]:
        """What is said in so many seconds from now on, up to `exit`."""
        deadline = time.monotonic() + seconds
        while self._lines or self._hear(deadline - time.monotonic()):
            words = self._lines.popleft().decode().split(" ")
            if words[0] == "pid":
                self._pid = int(words[1])
            yield words
            if words[0] == "exit":
                self._pid = 0
                return

    def _hear(self, seconds: float) -> bool:
        """Wait for a line at least; False if none comes in time."""
        assert self._process.stdout is not None
        while not self._lines:
            if not select.select([self._process.stdout], [], [], max(0.0, seconds))[0]:
                return False
            said = os.read(self._process.stdout.fileno(), 1 << 16)
            assert said, "the process that starts others is gone"
            *lines, self._rest = (self._rest + said).split(b"\n")
            self._lines.extend(lines)
        return True

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


class Oracle:
    """Knows what was told and what reached handlers, and what must have become of it."""

    def __init__(self) -> None:
        self.following = [1] * ACTORS
        self.confirmed: list[set[int]] = [set() for _ in range(ACTORS)]
        self.started: list[set[int]] = [set() for _ in range(ACTORS)]
        self.redelivered = 0
        self.violations: list[str] = []
        self._back = [0] * ACTORS
        self._latest = [0] * ACTORS
        self.ended: dict[int, int] = {}
        self.tallied: dict[int, int] = {}

    def hear(self, words: list[str]) -> None:
        match words:
            case ["tell", actor, number]:
                self.following[int(actor)] = int(number) + 1
            case ["told", actor, number]:
                self.confirmed[int(actor)].add(int(number))
            case ["start", actor, number]:
                self._start(int(actor), int(number))
            case ["back", actor, *fold]:
                self._came_back(int(actor), *map(int, fold))
            case ["end", actor, *fold]:
                self._came_back(int(actor), *map(int, fold))
                self.ended[int(actor)] = int(fold[0])
            case ["tally", actor, count]:
                self.tallied[int(actor)] = int(count)
            case ["failed", *why]:
                self.violations.append(" ".join(why))

    def _start(self, actor: int, number: int) -> None:
        if number <= self._back[actor]:
            self._wrong(actor, f"{number} was handled for good, and came again")
        if number <= self._latest[actor]:
            self._wrong(actor, f"{number} came after {self._latest[actor]} in the same life")
        if number >= self.following[actor]:
            self._wrong(actor, f"{number} was never told")
        self.redelivered += number in self.started[actor]
        self._latest[actor] = number
        self.started[actor].add(number)

    def _came_back(self, actor: int, count: int, last: int, digest: int) -> None:
        if last < self._back[actor]:
            self._wrong(actor, f"its state went back from {self._back[actor]} to {last}")
        expected = Fold()
        for number in sorted(self.started[actor]):
            if number <= last:
                expected.add(number)
        if (expected.count, expected.last, expected.digest) != (count, last, digest):
            self._wrong(actor, f"its state is no fold of what it handled up to {last}")
        self._back[actor], self._latest[actor] = last, 0

    def end(self) -> None:
        """After everything was drained."""
        for actor in range(ACTORS):
            missing = self.confirmed[actor] - self.started[actor]
            if missing:
                self._wrong(actor, f"{min(missing)} and {len(missing) - 1} others were lost")
            handled = len(self.started[actor])
            if self.ended.get(actor) != handled:
                self._wrong(actor, f"{handled} were handled, and it says {self.ended.get(actor)}")
            if self.tallied.get(actor, 0) != handled:
                self._wrong(actor, f"{handled} were handled, and {self.tallied.get(actor)} tallied")

    def _wrong(self, actor: int, what: str) -> None:
        self.violations.append(f"actor {actor}: {what}")


def lives_of_one_store(process: Process, path: Path, kills: int, random: Random) -> Oracle:
    oracle = Oracle()
    for _ in range(kills):
        process.start(Job(str(path), oracle.following))
        # Mostly while they are busy, sometimes while they come back. Busy is counted, not timed:
        # a slow machine is to be killed at as much work as a quick one.
        early = random.random() < 0.2
        awaited, left = ("pid", 1) if early else ("told", random.randint(1, TELLS_MAX))
        for words in process.heard(SILENCE_SECONDS_MAX):
            oracle.hear(words)
            left -= words[0] == awaited
            if not left:
                break
        assert not left, f"no more was said in {SILENCE_SECONDS_MAX} s"
        rest = random.random() * (EARLY_SECONDS_MAX if early else BUSY_SECONDS_MAX)
        for words in process.heard(rest):
            oracle.hear(words)
        process.kill()
        for words in process.heard(SILENCE_SECONDS_MAX):
            oracle.hear(words)
    process.start(Job(str(path)))
    for words in process.heard(SILENCE_SECONDS_MAX):
        oracle.hear(words)
    oracle.end()
    return oracle


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(20, id="suite"),
        pytest.param(200, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(3600)]),
    ],
)
def test_busy_actors_that_are_killed_go_on_where_their_last_step_left_them(
    tmp_path: Path, kills: int
) -> None:
    """Nothing confirmed is lost, order is kept, and state is the fold of what was handled.

    A message comes again only if its step was not committed, and once after each kill at most.
    """
    random = Random(SEED)
    handled = redelivered = confirmed = 0
    violations: list[str] = []
    with Process() as process:
        for store in range(kills // KILLS_PER_STORE):
            oracle = lives_of_one_store(
                process, tmp_path / f"store-{store}", KILLS_PER_STORE, random
            )
            handled += sum(map(len, oracle.started))
            confirmed += sum(map(len, oracle.confirmed))
            redelivered += oracle.redelivered
            violations += [f"store {store}, {what}" for what in oracle.violations]
    record(
        "actors killed",
        kills=kills,
        actors=ACTORS,
        confirmed=confirmed,
        handled=handled,
        redelivered=redelivered,
        violations=len(violations),
        seed=SEED,
    )
    assert violations == []
    assert handled >= confirmed > 100 * kills
    assert redelivered > 0
