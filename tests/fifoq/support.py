"""A store on a simulated disk whose jobs run when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import fifoq
from actors.testing import settle
from fifoq import Queue, Store
from fifoq.testing.crashes import after_process_crash, power_images
from fifoq.testing.simfiles import SimFiles
from store.files import Files
from tests.support.clock import ManualClock
from tests.support.runners import BeginningRunner, ManualRunner

PATH = "/data"
T = TypeVar("T")


class Bench:
    """Opens stores on one disk; `runner` is the one of the store opened last.

    In turns commits are run in one step, and begun and written as by a ring; `begins` says how the
    first store does it.
    """

    def __init__(self, files: Files | None = None, *, begins: bool = False) -> None:
        self.files: Any = SimFiles() if files is None else files
        self.clock = ManualClock()
        self.runner: ManualRunner
        self._begins = begins

    def _make_runner(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> ManualRunner:
        kind = BeginningRunner if self._begins else ManualRunner
        self._begins = not self._begins
        self.runner = kind(loop, on_end, name)
        return self.runner

    def open(self, **options: Any) -> fifoq.Opening[Queue[Any]]:
        return fifoq.open(PATH, **self._given(options))

    def open_store(self, **options: Any) -> fifoq.Opening[Store]:
        return fifoq.open_store(PATH, **self._given(options))

    def _given(self, options: dict[str, Any]) -> dict[str, Any]:
        seams = {"files": self.files, "clock": self.clock, "runner": self._make_runner}
        return {**seams, **options}

    def crash(self) -> None:
        """End the process: what the kernel has stays."""
        self.files.process_crash()

    def after_crash(self) -> Bench:
        """Another one, with what the end of the process now would leave; this one goes on."""
        twin = self.files.copy()
        twin.process_crash()
        return Bench(twin)

    async def step(self) -> bool:
        """Run the one job that waits and what follows from it."""
        stepped = self.runner.step()
        await settle()
        return stepped


class SmallDisk(Bench):
    """A disk that somebody else can fill up and empty again."""

    def __init__(self) -> None:
        super().__init__(SimFiles(capacity=16 << 20))

    def fill(self) -> None:
        directory = self.files.open_dir("/")
        handle = self.files.create(directory, "stuff")
        offset = 0
        for size in (1 << 20, 1 << 12, 512):
            while True:
                try:
                    offset += self.files.pwrite(handle, b"x" * size, offset)
                except OSError:
                    break
        self.files.close(handle)
        self.files.close(directory)

    def empty(self) -> None:
        directory = self.files.open_dir("/")
        self.files.unlink(directory, "stuff")
        self.files.close(directory)


class Cuts:
    """While entered: the disks that a cut before each change may leave, of power or process."""

    def __init__(self, files: SimFiles, *, limit: int = 64, samples: int = 12) -> None:
        self._files = files
        self._limit, self._samples = limit, samples
        self.disks: list[SimFiles] = []

    def __enter__(self) -> Cuts:
        self._files.disk.before_change = self.note
        return self

    def __exit__(self, *error: object) -> None:
        self._files.disk.before_change = None

    def note(self) -> None:
        """Keep what a cut at this moment may leave."""
        self.disks.append(after_process_crash(self._files))
        for image in power_images(self._files, limit=self._limit, samples=self._samples):
            self.disks.append(SimFiles.from_image(image))


async def started(work: Awaitable[T]) -> asyncio.Task[T]:
    """A task that has gone as far as it can without time passing."""
    task = asyncio.ensure_future(_wait_for(work))
    await settle()
    return task


async def _wait_for(work: Awaitable[T]) -> T:
    return await work


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it; it must end so, and at once."""
    task.cancel()
    await settle()
    assert task.cancelled()


async def drained(queue: Queue[T]) -> list[T]:
    """Take everything that is there."""
    found: list[T] = []
    while len(queue):
        found.append(await queue.take(timeout=60))
    return found


def fake_time(monkeypatch: pytest.MonkeyPatch, start: int = 2 * 10**18) -> list[int]:
    """The wall clock that queues see; the test changes its only entry."""
    now = [start]
    set_time(monkeypatch, lambda: now[0])
    return now


def set_time(monkeypatch: pytest.MonkeyPatch, read: Callable[[], int]) -> None:
    """Queues see the wall clock that `read` tells."""

    class Time:
        time_ns = staticmethod(read)

    for module in (
        "admitting",
        "cursor",
        "holding",
        "joint",
        "jobs",
        "lane_queue",
        "lease",
        "member",
        "putting",
        "queue",
        "reading",
        "removing",
        "retained",
        "shelving",
        "stats",
        "taking",
        "waiting",
    ):
        monkeypatch.setattr(f"fifoq.{module}.time", Time)
