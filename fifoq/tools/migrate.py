"""Migrate: what other libraries queued, into a queue of a store, in order and each once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, Literal, get_args

import msgspec

from fifoq.store import DEFAULT_QUEUE
from fifoq.tools.peers import (
    Peer,
    Table,
    identity,
    open_persist_queue,
    open_persist_queue_sqlite,
    open_queuelib,
    open_queuelib_sqlite,
    open_table,
    tables_of,
)
from fifoq.tools.pouring import commits_of, pouring_into, skipped
from fifoq.tools.rows import Row
from fifoq.tools.threads import on_thread
from store import AccessError, FormatError
from store.genesis import check_name

Kind = Literal["persist-queue", "persist-queue-sqlite", "queuelib", "queuelib-sqlite", "sqlite"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Progress = Callable[[int, int], None]
"""Called with how many records are done, and how many there are."""


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration did: `records` are in the queue, `resumed` of them from runs before.

    `expected` is how many the source says it has.
    """

    path: str
    kind: str
    queue: str
    records: int
    resumed: int
    expected: int


def find_kind(path: str) -> Kind:
    """What kind of queue lies there. FormatError if that is not to be told."""
    if os.path.isfile(f"{path}/info.json"):
        return "queuelib"
    if os.path.isfile(f"{path}/info"):
        return "persist-queue"
    if os.path.isfile(f"{path}/data.db"):
        return "persist-queue-sqlite"
    if os.path.isfile(path):
        tables = tables_of(path)
        if tables.get("queue") == ["id", "item"]:
            return "queuelib-sqlite"
        if any(name.startswith(("queue_", "ack_queue_", "unique_queue_")) for name in tables):
            return "persist-queue-sqlite"
    raise FormatError(
        f"{path}: it is no queue of persist-queue or queuelib. Nothing was changed. For a table of "
        f"SQLite name the table and the column."
    )


def open_peer(
    path: str, kind: str | None = None, *, name: str = "default", table: Table | None = None
) -> Peer:
    """The queue that lies there. FormatError, AccessError, ValueError for an unknown kind."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}. Nothing was changed.")
    if not os.path.lexists(path):
        raise AccessError(
            f"{path}: there is no such file or directory. Nothing was changed. Name what the other "
            f"library wrote: its directory, or its database."
        )
    chosen = "sqlite" if table is not None else kind or find_kind(path)
    try:
        match chosen:
            case "persist-queue":
                return open_persist_queue(path)
            case "persist-queue-sqlite":
                return open_persist_queue_sqlite(path, name)
            case "queuelib":
                return open_queuelib(path)
            case "queuelib-sqlite":
                return open_queuelib_sqlite(path)
            case "sqlite" if table is not None:
                return open_table(path, table)
    except OSError as error:
        raise AccessError(
            f"{error.filename or path}: {error.strerror or error}. Nothing was changed. Check that "
            f"this is a queue of {chosen}, and that this user may read it."
        ) from error
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: {error}. Nothing was changed.") from None
    raise ValueError("for a table of SQLite name the table and the column. Nothing was changed.")


async def migrate(
    peer: Peer,
    path: str | os.PathLike[str],
    *,
    queue: str = DEFAULT_QUEUE,
    again: bool = False,
    progress: Progress | None = None,
) -> Migrated:
    """Put every record of a queue of another library into the store at `path`, durable on return.

    The source is only read, and must not be used meanwhile. Payloads are the bytes that lie there.
    Interrupted, the next call goes on; what was moved whole is moved once more only if `again`.
    AlreadyOpen, FormatError: what was put before the error stays.
    """
    check_name(queue)
    expected = await on_thread(peer.count)
    async with pouring_into(path, identity(peer)) as pouring:
        mark = await pouring.begin([], keep_keys=False, as_new=True, again=again)
        if not mark.done:
            rows = _rows(peer, queue)
            commits = commits_of(await on_thread(skipped, rows, mark.records))
            while (batch := await on_thread(next, commits, None)) is not None:
                await pouring.put(batch)
                if progress is not None:
                    progress(pouring.mark.records, expected)
            await pouring.end()
    return Migrated(
        path=peer.path,
        kind=peer.kind,
        queue=queue,
        records=pouring.mark.records,
        resumed=mark.records,
        expected=expected,
    )


def _rows(peer: Peer, queue: str) -> Iterator[Row]:
    try:
        for payload in peer.payloads():
            yield Row(queue=queue, data=payload)
    except OSError as error:
        raise AccessError(f"{peer.path}: {error.strerror or error}.") from error
