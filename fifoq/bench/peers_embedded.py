"""Peers that live in the process: libraries over files or SQLite."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from fifoq.bench.measure import Setting
from fifoq.bench.peer import Blocking, Peer, measure_blocking


def _persist_queue_file(path: Path, setting: Setting) -> dict[str, float]:
    persistqueue: Any = importlib.import_module("persistqueue")
    # Its scratch files must lie on the queue's file system, or each put copies one across.
    queue = persistqueue.Queue(str(path / "queue"), tempdir=str(path))

    def take() -> None:
        queue.get()
        queue.task_done()

    # It has no close: its files go with the object.
    return measure_blocking(Blocking(queue.put, take), setting)


def _persist_queue_sqlite(path: Path, setting: Setting) -> dict[str, float]:
    persistqueue: Any = importlib.import_module("persistqueue")
    queue = persistqueue.SQLiteQueue(str(path / "queue"), auto_commit=True)
    found = measure_blocking(Blocking(queue.put, queue.get, synced=True), setting)
    queue.close()
    return found


def _queuelib(path: Path, setting: Setting) -> dict[str, float]:
    queuelib: Any = importlib.import_module("queuelib")
    queue = queuelib.FifoDiskQueue(str(path / "queue"))
    found = measure_blocking(Blocking(queue.push, queue.pop), setting)
    queue.close()
    return found


def _diskcache(path: Path, setting: Setting) -> dict[str, float]:
    diskcache: Any = importlib.import_module("diskcache")
    queue = diskcache.Deque(directory=str(path / "queue"))
    # `extend` adds one by one; in a transaction it is the batch that it can be.
    found = measure_blocking(
        Blocking(queue.append, queue.popleft, lambda batch: _extend(queue, batch)), setting
    )
    queue.cache.close()
    return found


def _extend(queue: Any, batch: object) -> None:
    with queue.transact():
        queue.extend(batch)


def _litequeue(path: Path, setting: Setting) -> dict[str, float]:
    litequeue: Any = importlib.import_module("litequeue")
    queue = litequeue.LiteQueue(str(path / "queue.db"))

    def take() -> None:
        queue.done(queue.pop().message_id)

    found = measure_blocking(Blocking(queue.put, take), setting)
    queue.close()
    return found


EMBEDDED = (
    Peer(
        "persist-queue, files",
        _persist_queue_file,
        "nothing",
        "all since the kernel wrote last (seconds); its position file may be empty",
        modules=("persistqueue",),
        install="pip install persist-queue",
    ),
    Peer(
        "persist-queue, SQLite",
        _persist_queue_sqlite,
        "nothing",
        "nothing (WAL, synchronous=FULL)",
        modules=("persistqueue",),
        install="pip install persist-queue",
    ),
    Peer(
        "queuelib, FifoDiskQueue",
        _queuelib,
        "all since it was opened: positions are written by close",
        "all since it was opened",
        modules=("queuelib",),
        install="pip install queuelib",
    ),
    Peer(
        "diskcache, Deque",
        _diskcache,
        "nothing",
        "all since the last WAL checkpoint (synchronous=NORMAL)",
        modules=("diskcache",),
        install="pip install diskcache",
    ),
    Peer(
        "litequeue",
        _litequeue,
        "nothing",
        "all since the last WAL checkpoint (synchronous=NORMAL)",
        modules=("litequeue",),
        install="pip install litequeue",
    ),
)
