"""What we measure ourselves against, written as a user would write it.

Bare file calls for the durable rows, `asyncio.Queue` for those in memory, and SQLite with a group
commit: the best that the standard library gives to many tasks that each wait for the disk.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path


def bare_append(path: Path, data: bytes, count: int, *, sync: bool) -> list[float]:
    """Append `data` so many times to a growing file; the seconds of each append.

    With `sync`, an append is done when `fdatasync` has returned.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
    each = []
    end = 0
    try:
        for _ in range(count):
            start = time.perf_counter()
            end += os.pwrite(descriptor, data, end)
            if sync:
                os.fdatasync(descriptor)
            each.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
    return each


# Each side of a row has a loop of its own, though they look alike: the interpreter adapts a loop
# to the types it meets, and one that met both in turn would slow both.


async def asyncio_put_all(target: asyncio.Queue[bytes], payloads: Sequence[bytes]) -> None:
    """Put everything."""
    for payload in payloads:
        await target.put(payload)


def asyncio_put_all_nowait(target: asyncio.Queue[bytes], payloads: Sequence[bytes]) -> None:
    """Put everything without waiting."""
    for payload in payloads:
        target.put_nowait(payload)


async def asyncio_get_all(source: asyncio.Queue[bytes], count: int) -> None:
    """Get so many."""
    for _ in range(count):
        await source.get()


async def asyncio_work_off(source: asyncio.Queue[bytes], count: int) -> None:
    """Get so many and say of each that it is done."""
    for _ in range(count):
        await source.get()
        source.task_done()


class SqliteQueue:
    """A durable queue on SQLite for many tasks: WAL, `synchronous=FULL`, group commit.

    One thread owns the connection. All that the tasks of one turn of the loop put goes to it
    together, and it commits whatever waits by then as one transaction; one call into the loop
    then resolves all of them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._turn: list[_Waiting] = []
        self._jobs: queue.SimpleQueue[list[_Waiting] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit_all, name="sqlite")
        self._thread.start()

    async def put(self, payload: bytes) -> None:
        """Returns when the record is committed and synced. Raises what SQLite raises."""
        await self.put_many((payload,))

    async def put_many(self, payloads: Sequence[bytes]) -> None:
        """The same for several, in one transaction."""
        done: asyncio.Future[None] = self._loop.create_future()
        if not self._turn:
            # At the end of this turn: every task that is ready to put has done so by then.
            self._loop.call_soon(self._hand_over)
        self._turn.append((payloads, done))
        await done

    async def close(self) -> None:
        """Commit what waits and end the thread."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _hand_over(self) -> None:
        self._jobs.put(self._turn)
        self._turn = []

    def _commit_all(self) -> None:
        connection = open_sqlite(self._path)
        waiting = self._jobs.get()
        while waiting is not None:
            following: list[_Waiting] | None = []
            while following is not None and not self._jobs.empty():
                following = self._jobs.get()
                waiting += following or []
            error = None
            try:
                insert_all(connection, [payload for payloads, _ in waiting for payload in payloads])
            except sqlite3.Error as failure:
                error = failure
            self._loop.call_soon_threadsafe(_resolve, [done for _, done in waiting], error)
            waiting = None if following is None else self._jobs.get()
        connection.close()


_Waiting = tuple[Sequence[bytes], "asyncio.Future[None]"]


def open_sqlite(path: Path) -> sqlite3.Connection:
    """A table of records whose commits survive a power cut."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS records (counter INTEGER PRIMARY KEY, payload BLOB NOT NULL)"
    )
    return connection


def insert_all(connection: sqlite3.Connection, payloads: Sequence[bytes]) -> None:
    """Put the payloads in one transaction."""
    with connection:  # Commits at its end, or rolls back.
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO records (payload) VALUES (?)", [(payload,) for payload in payloads]
        )


def take_first(connection: sqlite3.Connection) -> bytes | None:
    """Remove the oldest record and return its payload; None if there is none."""
    row = connection.execute(
        "DELETE FROM records WHERE counter = (SELECT min(counter) FROM records) RETURNING payload"
    ).fetchone()
    return None if row is None else bytes(row[0])


def _resolve(waiting: list[asyncio.Future[None]], error: sqlite3.Error | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
