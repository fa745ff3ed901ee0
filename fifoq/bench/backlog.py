"""Opening a store with a backlog: filled, left without a close, and opened by fresh processes."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fifoq.bench.measure import Absent, Row, Setting

ROUNDS_MAX = 3
RECORDS = 1_000_000
SECONDS = 0.2
MEGABYTES = 32.0


def open_backlog(setting: Setting) -> list[Row | Absent]:
    """Opening with a million records ready, and with ten times as many."""
    rows: list[Row | Absent] = []
    for count in (setting.count(RECORDS), setting.count(RECORDS) * 10):

        def fill(path: str, count: int = count) -> None:
            _child("fill", path, str(count))

        name = f"open, backlog of {count:,}"
        command = [sys.executable, "-m", "fifoq.bench.child", "open"]
        rows += open_rows(setting, name, fill, command, seconds=SECONDS, megabytes=MEGABYTES)
    return rows


def open_rows(
    setting: Setting,
    name: str,
    fill: Callable[[str], None],
    command: list[str],
    *,
    seconds: float,
    megabytes: float,
) -> list[Row]:
    """Fill a store, which `fill` leaves without a close, and open copies of it by `command`.

    The command is given the path, opens, takes one record, and prints the seconds of both and the
    growth of memory in megabytes.
    """
    with setting.fresh("filled") as path:
        fill(str(path))
        rounds = [
            _open_copy(setting, path, command) for _ in range(min(setting.rounds, ROUNDS_MAX))
        ]
    opened, taken, grown = map(statistics.median, zip(*rounds, strict=True))
    return [
        Row(
            name,
            opened,
            "s",
            seconds,
            False,
            f"and {taken * 1000:.1f} ms for the first take",
            {"open_seconds": opened, "first_take_seconds": taken},
        ),
        Row(
            "  more memory, first take included",
            grown,
            "MB",
            megabytes,
            False,
            figures={"megabytes": grown},
        ),
    ]


def _open_copy(setting: Setting, path: Path, command: list[str]) -> tuple[float, float, float]:
    """Seconds to open, seconds for the first take, megabytes more, with a warm page cache.

    It opens a copy, because opening changes a store.
    """
    with setting.fresh("opened") as copy:
        copy_store(path, copy)
        done = subprocess.run([*command, str(copy)], stdout=subprocess.PIPE, text=True, check=True)
    opened, taken, grown = map(float, done.stdout.split())
    return opened, taken, grown


def copy_store(path: Path, copy: Path) -> None:
    """A copy that is synced: opening syncs what it finds, and the copying is not to be counted.

    Segments but the last are sealed, and nobody ever changes those: they are linked.
    """
    copy.mkdir(mode=0o700)
    sealed = sorted(path.glob("*.log"))[:-1]
    for file in path.iterdir():
        if file in sealed:
            os.link(file, copy / file.name)
        elif file.is_file():
            # Not the socket of an owner who was killed.
            shutil.copy2(file, copy / file.name)
            _sync_file(copy / file.name)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _child(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "fifoq.bench.child", *arguments], check=True)
