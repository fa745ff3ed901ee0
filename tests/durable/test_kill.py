"""Kill a process with fifty busy durable actors, again and again, and count what they handled."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Watcher:
    """What the killed processes said, and what must hold of it."""

    def __init__(self) -> None:
        self.confirmed: dict[str, int] = {}
        self.handled: Counter[tuple[str, int]] = Counter()
        self.kills = 0

    def life(self, path: Path, *, lines: int | None) -> None:
        """One process; killed after it has said so many lines, if that is given."""
        rounds = "100000" if lines is not None else "0"
        command = [sys.executable, "-m", "tests.durable.busy", str(path), rounds]
        in_this_life: dict[str, int] = {}
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for count, line in enumerate(process.stdout):
                if not line.endswith("\n"):
                    break
                self.note(line.split(), in_this_life)
                if lines is not None and count == lines:
                    process.kill()
        if lines is None:
            assert process.returncode == 0
        else:
            self.kills += 1

    def note(self, words: list[str], in_this_life: dict[str, int]) -> None:
        match words:
            case ["c", name, number]:
                self.confirmed[name] = int(number)
            case ["h", name, number]:
                self.handled[name, int(number)] += 1
                # In order, and none twice in one life.
                assert in_this_life.get(name, int(number) - 1) == int(number) - 1
                in_this_life[name] = int(number)
            case ["l", name, last]:
                # Nothing that was confirmed is lost, and what was asked came behind all of it.
                assert int(last) >= self.confirmed.get(name, 0)
            case ["end"]:
                pass
            case _:
                raise AssertionError(words)


def kill(path: Path, times: int, seed: int) -> Watcher:
    chance = random.Random(seed)
    watcher = Watcher()
    for _ in range(times):
        watcher.life(path, lines=chance.randrange(200, 4000))
    watcher.life(path, lines=None)
    assert watcher.handled
    # At most one redelivery for each time that the process was killed.
    assert max(watcher.handled.values()) <= 1 + watcher.kills
    return watcher


def test_a_killed_process_goes_on_where_it_stopped(tmp_path: Path) -> None:
    watcher = kill(tmp_path / "store", times=3, seed=17)
    assert watcher.kills == 3


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    watcher = kill(tmp_path / "store", times=200, seed=18)
    assert watcher.kills == 200
