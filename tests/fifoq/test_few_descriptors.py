"""A process that has hardly any descriptors left: it is told so, and goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fifoq.sync

SECONDS_MAX = 60
"""Nothing here takes so long; what does hangs."""


def test_a_loop_is_not_even_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library does not tell anybody, but ends the process."""
    plain = os.open

    def refuse(path: str, *arguments: Any, **keywords: Any) -> int:
        if path == os.devnull:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return plain(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(fifoq.AccessError, match="Too many open files"):
        fifoq.sync.open(tmp_path / "store")


PROGRAM = """
import asyncio, os, resource, sys, fifoq, fifoq.sync
how, path, spare = sys.argv[1], sys.argv[2], int(sys.argv[3])
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
blocking = lambda: fifoq.sync.open(path).close()

async def open_and_close():
    async with fifoq.open(path) as queue:
        pass

async def awaited():
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
    try:
        await open_and_close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

def threaded():
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, limits[1]))
    try:
        blocking()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

try:
    threaded() if how == "sync" else asyncio.run(awaited())
except fifoq.AccessError as error:
    print("refused")
blocking()
asyncio.run(open_and_close())
print("goes on")
"""


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize("spare", [0, 1, 3, 5, 6, 8, 12])
def test_an_opening_without_descriptors_is_refused(tmp_path: Path, how: str, spare: int) -> None:
    """It hung where the first task was to start; blocking, the loop's library ended the process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(tmp_path / "store"), str(spare)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.split("\n")[-2] == "goes on"
    assert spare > 3 or done.stdout.startswith("refused")
