"""Starting writers, listening to them and killing them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.rigs.events import Channel, Event, Exited, Failed, Job, Started
from tests.rigs.oracle import Oracle

ROOT = Path(__file__).parents[2]
SILENCE_SECONDS_MAX = 60.0
"""A writer that says nothing for so long hangs, and that is a failure."""


class Writers:
    """A process that forks a writer for each job. Use it in a `with`."""

    def __init__(self) -> None:
        self._channel, theirs = Channel.pair()
        descriptor = theirs.end.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.writer", str(descriptor)],
            pass_fds=[descriptor],
            cwd=ROOT,
        )
        theirs.close()
        self._pid = 0

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()
        self._process.wait(SILENCE_SECONDS_MAX)

    def start(self, job: Job, oracle: Oracle) -> None:
        """Start a writer; on return it is about to open the store."""
        self._channel.send(job)
        started = self._channel.event(SILENCE_SECONDS_MAX)
        assert isinstance(started, Started), started
        oracle.hear(started)
        self._pid = started.pid

    def listen(self, oracle: Oracle, seconds: float, *, after: type[Event] = Started) -> None:
        """Listen for `seconds`, counted from the first event of type `after`.

        Stops early where the writer fails or ends.
        """
        deadline = time.monotonic() + seconds if after is Started else None
        while True:
            if deadline is None:
                left = SILENCE_SECONDS_MAX
            else:
                left = max(0.0, deadline - time.monotonic())
            try:
                event = self._hear(oracle, left)
            except TimeoutError:
                assert deadline is not None, "the writer hangs"
                return
            if left == 0.0 or isinstance(event, Failed | Exited):
                return
            if deadline is None and isinstance(event, after):
                deadline = time.monotonic() + seconds

    def hear_all(self, oracle: Oracle) -> None:
        """Hear what the writer has said up to now, without waiting for more."""
        with suppress(TimeoutError):
            while self._pid:
                self._hear(oracle, 0.0)

    def _hear(self, oracle: Oracle, timeout_seconds: float) -> Event:
        event = self._channel.event(timeout_seconds)
        assert event is not None, "the process that starts writers is gone"
        if isinstance(event, Exited):
            self._pid = 0
        oracle.hear(event)
        return event

    def kill(self, oracle: Oracle) -> bool:
        """Kill the writer and hear the rest; whether it was still alive."""
        alive = bool(self._pid)
        if alive:
            os.kill(self._pid, signal.SIGKILL)
            while self._pid:
                self._hear(oracle, SILENCE_SECONDS_MAX)
        oracle.crashed()
        return alive


def kill_at_call(job: Job, oracle: Oracle, call: str, number: int) -> bool:
    """Run a writer that strace kills as it enters its `number`-th `call`; whether it got there."""
    strace = shutil.which("strace")
    assert strace is not None
    ours, theirs = Channel.pair()
    descriptor = theirs.end.fileno()
    process = subprocess.Popen(
        [
            *(strace, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"),
            *("-e", f"inject={call}:signal=SIGKILL:when={number}"),
            *(sys.executable, "-m", "tests.rigs.writer", str(descriptor)),
            msgspec.json.encode(job).decode(),
        ],
        pass_fds=[descriptor],
        cwd=ROOT,
    )
    theirs.close()
    for event in _events(ours):
        oracle.hear(event)
    ours.close()
    status = process.wait(SILENCE_SECONDS_MAX)
    oracle.crashed()
    return status in (-signal.SIGKILL, 128 + signal.SIGKILL)


def _events(channel: Channel) -> Iterator[Event]:
    while (event := channel.event(SILENCE_SECONDS_MAX)) is not None:
        yield event
