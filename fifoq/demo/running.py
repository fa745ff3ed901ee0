"""The run: start the service, let Spark drain beside it, kill, start again, stop, compare."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import fifoq
from fifoq.demo.books import Books, Row
from fifoq.demo.service import Balance, Entry, open_accounts
from store import AccessError, CorruptionError, FormatError
from store.check import check_store

LOOK_SECONDS: Final = 0.1
DRAIN_SECONDS: Final = 1.0
"""Spark drains again so long after a drain has ended."""
PATIENCE_SECONDS: Final = 15.0
"""The first life goes on for at most so long until Spark has drained once."""
READ_BYTES: Final = 1 << 16
_ERROR: Final = re.compile(r"[\w.]+(?:Error|Exception)\b.*: ")


class Sample(NamedTuple):
    """What was to be seen at one moment."""

    second: float
    confirmed: int
    handled: int
    waiting: int
    """Orders in the queue."""
    rows: int
    """Entries in the Parquet table."""


class Outcome(NamedTuple):
    """What is there in the end, and whether it is what was promised."""

    promises: list[tuple[str, int]]
    """Each with the number of times it was broken."""
    rows: int
    parquet_bytes: int | None
    """None without Spark."""
    segments: int
    commits: int
    log_bytes: int

    @property
    def kept(self) -> bool:
        return not any(broken for _, broken in self.promises)


class ProcessEnded(Exception):
    """A process of the demonstration ended before its time, so that there is no outcome."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        """All that the process said."""
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        # What is behind the error, if anything, is of no use to a reader in a hurry.
        last = ([line for line in lines if _ERROR.match(line)] or lines or ["it said nothing"])[-1]
        super().__init__(f"the process of {name} ended by itself: {last.strip()}")


class Run:
    """One demonstration. `look` is called whenever there is something new to see."""

    def __init__(
        self, directory: str, *, seconds: float, lives: int, spark: bool, look: Callable[[], None]
    ) -> None:
        self.path = f"{directory}/store"
        self.directory = directory
        self.seconds, self.lives, self.with_spark = seconds, lives, spark
        self.look = look
        self.books = Books()
        self.samples: list[Sample] = []
        self.life = 0
        self.events: list[tuple[float, str]] = []
        self.spark = "starts" if spark else "left out"
        self.rows = 0
        self.drains = 0
        self.outcome: Outcome | None = None
        self._waiting = 0
        self._served = asyncio.Event()
        self._drained = asyncio.Event()
        self._began = time.monotonic_ns()

    @property
    def second(self) -> float:
        """Since the beginning."""
        return (time.monotonic_ns() - self._began) / 1e9

    def second_of(self, moment: int) -> float:
        return (moment - self._began) / 1e9

    def tell(self, text: str) -> None:
        self.events.append((self.second, text))
        self.look()

    async def go(self) -> Outcome:
        """All of it. Whatever ends this ends every process that it started."""
        try:
            rows, parquet_bytes = await self._live()
        except ExceptionGroup as group:
            # The groups of tasks are of no interest to whoever asked.
            ended: Exception | None = group.subgroup(ProcessEnded)
            while isinstance(ended, ExceptionGroup):
                ended = ended.exceptions[0]
            if ended is None:
                raise
            raise ended from None
        self.tell("comparing")
        self.outcome = await self._compare(rows, parquet_bytes)
        self.look()
        return self.outcome

    async def _live(self) -> tuple[list[Row], int | None]:
        """Every life of the service, and Spark beside them: what has come out."""
        async with self._spark() as spark, _beside(self._watch()):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._drain_until_served(spark))
                for life in range(1, self.lives + 1):
                    await self._serve(life)
                self._served.set()
            return await self._all_rows(spark)

    # The service.

    async def _serve(self, life: int) -> None:
        """One life: ended by SIGTERM if it is the last, otherwise by SIGKILL."""
        self.life = life
        command = (sys.executable, "-m", "fifoq.demo.service", self.path, str(self.life))
        log = self._logged("service")
        async with _process(*command, stdout=asyncio.subprocess.PIPE, stderr=log) as service:
            opened = len(self.books.opened)
            reader = asyncio.create_task(self._read(service))
            while len(self.books.opened) == opened and not reader.done():
                await asyncio.sleep(LOOK_SECONDS / 10)
            if reader.done():
                raise self._ended("service")
            took = self.books.opened[-1]
            self.tell(f"service {self.life} has opened the store in {took * 1000:.0f} ms")
            await asyncio.wait([reader], timeout=self.seconds)
            if life == self.lives:
                service.send_signal(signal.SIGTERM)
                self.tell("SIGTERM: no more orders, the rest is handled")
                await reader
                if await service.wait():
                    raise self._ended("service")
                return
            # A kill is worth more when everything is in motion.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), PATIENCE_SECONDS)
            while not self.books.under_way and not reader.done():
                await asyncio.sleep(0)
            service.kill()
            moment = time.monotonic_ns()
            await reader
            self.books.note_kill(moment)
            cut = self.books.kills[-1].under_way
            self.tell(f"kill -9, with {cut} puts under way")

    async def _read(self, service: asyncio.subprocess.Process) -> None:
        assert service.stdout is not None
        while data := await service.stdout.read(READ_BYTES):
            self.books.note(data)

    # Beside it.

    async def _watch(self) -> None:
        """Look at the store from outside, as any process may, and remember what was seen."""
        while True:
            with contextlib.suppress(FormatError, AccessError, CorruptionError):
                async with fifoq.open_store(self.path, read_only=True) as store:
                    queue = await store.queue("orders")
                    while True:
                        self._waiting = (await queue.stats()).current_size
                        self._sample()
                        await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)  # there is no store yet

    def _sample(self) -> None:
        confirmed, handled = len(self.books.confirmed), self.books.handled
        self.samples.append(Sample(self.second, confirmed, handled, self._waiting, self.rows))
        self.look()

    @contextlib.asynccontextmanager
    async def _spark(self) -> AsyncIterator[asyncio.subprocess.Process | None]:
        if not self.with_spark:
            yield None
            return
        command = (sys.executable, "-m", "fifoq.demo.spark", self.path, self.directory)
        pipe = asyncio.subprocess.PIPE
        log = self._logged("spark")
        async with _process(*command, stdin=pipe, stdout=pipe, stderr=log) as process:
            yield process

    async def _drain_until_served(self, spark: asyncio.subprocess.Process | None) -> None:
        """Drain now and then while the service lives, and once more when it has ended."""
        if spark is None:
            self._drained.set()
            return
        self.spark = await self._answer(spark)
        self.tell("Spark is ready")
        while not self._served.is_set():
            await self._drain(spark)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._served.wait(), DRAIN_SECONDS)
        self.tell("Spark drains what is left")
        await self._drain(spark)

    async def _drain(self, spark: asyncio.subprocess.Process) -> None:
        assert spark.stdin is not None
        self.spark = "drains"
        spark.stdin.write(b"\n")
        self.rows = int(await self._answer(spark))
        self.drains += 1
        self._drained.set()
        self.spark = "waits"

    async def _answer(self, spark: asyncio.subprocess.Process) -> str:
        assert spark.stdout is not None
        line = await spark.stdout.readline()
        if not line:
            raise self._ended("spark")
        return line.decode().strip()

    def _logged(self, name: str) -> BinaryIO:
        """Where a process says what is not for the terminal, unless it ends too early."""
        return open(f"{self.directory}/{name}.log", "ab")

    def _ended(self, name: str) -> ProcessEnded:
        return ProcessEnded(name, Path(self.directory, f"{name}.log"))

    # The end.

    async def _all_rows(
        self, spark: asyncio.subprocess.Process | None
    ) -> tuple[list[Row], int | None]:
        """What has come out at the end of everything."""
        if spark is None:
            async with fifoq.open_store(self.path, read_only=True) as store:
                ledger = await store.queue("ledger", type=Entry)
                return [_row(record.item) async for record in ledger.browse()], None
        assert spark.stdin is not None
        spark.stdin.close()
        await self._answer(spark)
        found = json.loads(Path(self.directory, "rows.json").read_text())
        rows = [Row((*name,), *rest) for name, *rest in found["rows"]]
        return rows, found["bytes"]

    async def _compare(self, rows: list[Row], parquet_bytes: int | None) -> Outcome:
        async with fifoq.ActorSystem(self.path) as system:
            accounts = await open_accounts(system, None)
            balances = {
                number: await account.ask(Balance(), returns=int, timeout=30.0)
                for number, account in enumerate(accounts)
            }
            left = len(await system.store.queue("orders"))
        report = check_store(self.path)
        promises = self.books.promises(rows, balances)
        promises += [("no order waits any more", left), ("the log is sound", int(not report.sound))]
        size = sum(path.stat().st_size for path in Path(self.path).glob("*.log"))
        frames = sum(segment.frames for segment in report.segments)
        return Outcome(promises, len(rows), parquet_bytes, len(report.segments), frames, size)


def _row(entry: Entry) -> Row:
    name = (entry.life, entry.client, entry.number)
    return Row(name, entry.account, entry.cents, entry.balance)


@contextlib.asynccontextmanager
async def _process(
    *command: str, stderr: BinaryIO, **pipes: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that does not outlive the block."""
    with stderr:
        # In a session of its own: Spark is two processes.
        process = await asyncio.create_subprocess_exec(
            *command, stderr=stderr, **pipes, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine beside the block; what it raises ends the block."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()
