"""The staging buffer: a durable queue in front of Spark, on the driver.

An asyncio service puts records, which are durable at once; when there are enough of them, or the
oldest has waited long enough, one drain runs over all there is. What the drain's checkpoint proves
is removed from the queue, and its space is freed. Whatever is killed in between, every record gets
to its table once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

import fifoq
from fifoq import Keys, Queue, QueueClosed, QueueStats
from fifoq.consumers import check_consumer_name
from fifoq.loopthread import LoopThread
from fifoq.options import STORE_OPTION_NAMES, QueueOptions
from fifoq.spark.drain import (
    Drain,
    Drained,
    DrainError,
    DrainPlan,
    Pipeline,
    Session,
    Transform,
    names_of,
)
from store import Key

logger = logging.getLogger("fifoq")

LOOK_SECONDS: Final = 0.1
"""How often a buffer that holds something looks whether a drain is due."""
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
"""After a drain that failed: the first wait, doubled with each failure, and the longest."""


_OTHERS: Final = ("recover", "files", "clock", "runner")
"""What `fifoq.open` takes beside the options of queue and store."""
_SET_BY_OPEN: Final = ("put", "put_many", "put_nowait", "_queue", "_drain")


class StagingStats(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides at one moment: what waits, and what Spark has done."""

    queue: QueueStats
    waiting: int
    """Records that are not known to be in the table."""
    waiting_seconds: float
    """For how long there have been some."""
    drained_upto: int
    """Every counter up to here is in the table."""
    removed_records: int
    drains: int
    batches: int
    drained_records: int
    last_drain_seconds: float | None
    failures: int
    last_error: str | None
    """Of the last drain, if it failed."""
    draining: bool


class StagingBuffer:
    """Stages records for Spark. Use it with `async with`; `blocking` gives one for threads.

    `spark` is a session, or a function that gives one: it is called in a thread for the first
    drain, so that records are taken while Spark starts.

    `to` is a directory, for a Parquet table, or a function of the batch's number and its DataFrame,
    which must add nothing when a batch comes again. `transform` makes the table's columns of the
    queue's. A drain begins when `drain_records` or `drain_bytes` wait or the oldest has waited
    `drain_seconds`; one runs at a time. A file holds about `file_bytes`, a batch at most about
    `batch_bytes`. While Spark falls behind, `put` waits as soon as `pressure_high` records do.
    Other options are the queue's and the store's.
    """

    put: Callable[..., Awaitable[Key]]
    """As `fifoq.Queue.put`, at its speed: it is that very method."""
    put_many: Callable[..., Awaitable[Keys]]
    """As `fifoq.Queue.put_many`."""
    put_nowait: Callable[..., Key]
    """As `fifoq.Queue.put_nowait`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        spark: Session,
        *,
        to: str | os.PathLike[str] | Pipeline,
        transform: Transform | None = None,
        queue: str = "main",
        consumer: str = "staging",
        checkpoint: str | os.PathLike[str] | None = None,
        drain_records: int = 100_000,
        drain_bytes: int = 64 << 20,
        drain_seconds: float = 10.0,
        file_bytes: int = 128 << 20,
        batch_bytes: int = 1 << 30,
        partition_by: str | Sequence[str] = (),
        **options: Any,
    ) -> None:
        for name, value in (
            ("drain_records", drain_records),
            ("drain_bytes", drain_bytes),
            ("drain_seconds", drain_seconds),
            ("file_bytes", file_bytes),
            ("batch_bytes", batch_bytes),
        ):
            if not value > 0:
                raise ValueError(f"{name}={value!r} is not above 0. Nothing was opened.")
        check_consumer_name(consumer)
        _check_options(options)
        self.path = os.path.abspath(os.fspath(path))
        self._spark = spark
        self._limits = (drain_records, drain_bytes, drain_seconds)
        options.setdefault("pressure_high", max(1_000_000, 10 * drain_records))
        self._options = {"queue": queue, **options}
        self._plan = DrainPlan(
            path=self.path,
            queue=queue,
            store="",
            consumer=consumer,
            # Beside the store: inside it only the store's own files are safe from its upkeep.
            checkpoint=os.path.abspath(os.fspath(checkpoint or f"{self.path}.checkpoint")),
            to=to if callable(to) else _absolute(os.fspath(to)),
            transform=transform,
            partition_by=names_of(partition_by),
            file_bytes=file_bytes,
            batch_bytes=batch_bytes,
        )
        self._queue: Queue[bytes]
        self._drain: Drain
        self._watching: asyncio.Task[None] | None = None
        self._busy: asyncio.Task[Drained] | None = None
        self._proved = 0
        self._since: float | None = None
        self._removed = self._drains = self._batches = self._records = self._failures = 0
        self._seconds: float | None = None
        self._error: str | None = None
        self._retry_seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        # Reached only for what `open` sets.
        if name in _SET_BY_OPEN:
            raise QueueClosed(
                f"{self.path}: the staging buffer is not open. Use `async with`, or await open()."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "closed" if self._watching is None else "open"
        return f"<StagingBuffer {self.path!r} {state}>"

    @classmethod
    def blocking(
        cls, path: str | os.PathLike[str], spark: Session, **options: Any
    ) -> BlockingStagingBuffer:
        """The same buffer, open, for blocking code and any number of threads."""
        return BlockingStagingBuffer(cls(path, spark, **options))

    # Life.

    async def open(self) -> StagingBuffer:
        """Open the queue and go on where the last run was left. What `fifoq.open` raises."""
        self._queue = queue = await fifoq.open(self.path, **self._options)
        try:
            self._plan = msgspec.structs.replace(self._plan, store=queue.store_id)
            self._drain = Drain(self._spark, self._plan)
            await asyncio.to_thread(self._drain.check)
            self._proved = queue.removed_upto + 1
            # A run that ended between a drain and the removal of what it proved.
            await self._remove_proved()
        except BaseException:
            await queue.close()
            raise
        self.put, self.put_many, self.put_nowait = queue.put, queue.put_many, queue.put_nowait
        self._watching = asyncio.ensure_future(self._watch())
        return self

    async def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more records, drain what is there, let the store go. Twice is fine.

        Without `drain`, or when `timeout` seconds are over (TimeoutError), what is staged stays
        for the next run. If the last drain fails, its error is raised once all is closed.
        """
        if self._watching is None:
            return
        watching, self._watching = self._watching, None
        self._queue.shutdown()
        watching.cancel()
        try:
            await asyncio.gather(watching, return_exceptions=True)
            async with asyncio.timeout(timeout):
                while drain and len(self._queue):
                    await self._drain_more()
        finally:
            await self._end_drain()
            await self._queue.close()

    async def _end_drain(self) -> None:
        """A drain that is still under way is told to end: nobody else may begin one before."""
        if self._busy is not None and not self._busy.done():
            self._drain.stop()
            await asyncio.gather(self._busy, return_exceptions=True)

    async def __aenter__(self) -> StagingBuffer:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.close(drain=kind is None)

    # Draining.

    async def drain(self) -> Drained:
        """Drain now, or wait for the drain that is under way; returns what it did.

        Whoever leaves while it runs does not end it.
        """
        if self._busy is None or self._busy.done():
            self._busy = asyncio.ensure_future(self._drain_once())
        return await asyncio.shield(self._busy)

    async def _drain_more(self) -> None:
        """Drain; DrainError if that brought nothing forward, or closing would go on for ever."""
        before = self._proved
        await self.drain()
        if self._proved == before:
            raise DrainError(
                f"{self.path}: a drain ended well and drained nothing of {len(self._queue)} "
                f"records. They stay for the next run. Is the checkpoint {self._plan.checkpoint} "
                f"that of another query?"
            )

    async def _drain_once(self) -> Drained:
        began = time.monotonic()
        try:
            await self._queue.show_readers()
            drained = await asyncio.to_thread(self._drain.run, self._queue.removed_upto + 1)
            self._error = None
            await self._remove_proved()
        except Exception as error:
            self._failures += 1
            self._error = f"{type(error).__name__}: {error}"
            raise
        self._since = None
        self._drains += 1
        self._batches += drained.batches
        self._records += drained.records
        self._seconds = time.monotonic() - began
        return drained

    async def _remove_proved(self) -> None:
        proved = await asyncio.to_thread(self._drain.proved, self._proved)
        if proved is not None and proved > self._queue.next:
            raise DrainError(
                f"{self.path}: the checkpoint {self._plan.checkpoint} says that every record below "
                f"{proved} is drained, and the queue's next one is {self._queue.next}. Nothing was "
                f"removed. The store is an older copy than the checkpoint; bring the two together, "
                f"or drain into a new table with a new checkpoint."
            )
        if proved is not None:
            self._removed += await self._queue.remove_upto(proved - 1)
            self._proved = proved

    async def _watch(self) -> None:
        """Begin a drain whenever one is due."""
        while True:
            if not len(self._queue):
                self._since = None
                await self._queue.wait_to_take()
            elif self._is_due():
                await self._try_to_drain()
            else:
                await asyncio.sleep(min(LOOK_SECONDS, self._limits[2] / 4))

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self._since is None:
            self._since = now
        records, size, seconds = self._limits
        queue = self._queue
        return len(queue) >= records or queue.byte_count() >= size or now - self._since >= seconds

    async def _try_to_drain(self) -> None:
        try:
            await self.drain()
            self._retry_seconds = 0.0
        except Exception as error:
            logger.warning("a drain of %s failed: %s: %s", self.path, type(error).__name__, error)
            self._retry_seconds = min(
                max(RETRY_SECONDS, 2 * self._retry_seconds), RETRY_SECONDS_MAX
            )
            await asyncio.sleep(self._retry_seconds)

    # Looking.

    def __len__(self) -> int:
        """Records that are not known to be in the table."""
        return len(self._queue)

    async def below_pressure(self) -> None:
        """Return once there is room: while Spark falls behind, puts wait for it."""
        await self._queue.below_pressure()

    def stats(self) -> StagingStats:
        """A snapshot of both sides."""
        return StagingStats(
            queue=self._queue.stats(),
            waiting=len(self._queue),
            waiting_seconds=0.0 if self._since is None else time.monotonic() - self._since,
            drained_upto=self._proved - 1,
            removed_records=self._removed,
            drains=self._drains,
            batches=self._batches,
            drained_records=self._records,
            last_drain_seconds=self._seconds,
            failures=self._failures,
            last_error=self._error,
            draining=self._busy is not None and not self._busy.done(),
        )


def _check_options(options: dict[str, Any]) -> None:
    """TypeError for a name that is none, with all there are."""
    of_store, of_queue = sorted(STORE_OPTION_NAMES), QueueOptions.__struct_fields__
    unknown = [name for name in options if name not in (*of_store, *of_queue, *_OTHERS)]
    if unknown:
        own = [name for name in inspect.signature(StagingBuffer).parameters if name != "options"]
        raise TypeError(
            f"unknown option {', '.join(map(repr, unknown))}; a staging buffer has "
            f"{', '.join(own)}; its queue has {', '.join(of_queue)}; and its store "
            f"{', '.join(of_store)}. Nothing was opened."
        )


def _absolute(path: str) -> str:
    """A local path from wherever Spark runs; anything with a scheme stays."""
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


class BlockingStagingBuffer:
    """A staging buffer for blocking code and any number of threads, open until `close`."""

    def __init__(self, buffer: StagingBuffer) -> None:
        self._buffer = buffer
        self._thread = LoopThread(buffer.path)
        try:
            self._thread.run(buffer.open)
        except BaseException:
            self._thread.stop()
            raise

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._buffer)[1:]}"

    def put(self, item: bytes, **options: Any) -> Key:
        """Put one record; returns its key once it is committed at the queue's durability."""
        return self._thread.run(lambda: self._put(item, options))

    async def _put(self, item: bytes, options: dict[str, Any]) -> Key:
        return await self._buffer.put(item, **options)

    def put_many(self, items: Iterable[bytes], **options: Any) -> Keys:
        """Put records in one commit, all or nothing; returns their keys, a lazy sequence."""
        listed = list(items)

        async def put() -> Keys:
            return await self._buffer.put_many(listed, **options)

        return self._thread.run(put)

    def drain(self) -> Drained:
        """Drain now, or wait for the drain that is under way; returns what it did."""
        return self._thread.run(self._buffer.drain)

    def below_pressure(self) -> None:
        """Return once there is room."""
        self._thread.run(self._buffer.below_pressure)

    def stats(self) -> StagingStats:
        """A snapshot of both sides."""
        return self._thread.call(self._buffer.stats)

    def __len__(self) -> int:
        return self._thread.call(self._buffer.__len__)

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """As `StagingBuffer.close`, and the thread ends."""
        if self._thread.stopping:
            return
        try:
            self._thread.run(lambda: self._buffer.close(drain=drain, timeout=timeout))
        finally:
            self._thread.stop()

    def __enter__(self) -> BlockingStagingBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(drain=kind is None)
