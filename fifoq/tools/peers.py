"""Queues of other libraries, read as files: persist-queue, queuelib, and tables of SQLite.

Their code is not needed and not run. Payloads are the bytes that lie there, oldest first: what
persist-queue has pickled stays a pickle, and nobody loads it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import quote

import msgspec

from fifoq.tools.pickles import plain_value, skip_pickle
from store import FormatError

RECORD_BYTES_MAX: Final = 1 << 30


class Peer(Protocol):
    """A queue of another library."""

    kind: str
    path: str

    def count(self) -> int:
        """How many records it says it has."""

    def payloads(self) -> Iterator[bytes]:
        """The bytes of each, oldest first. FormatError where they make no sense."""


def identity(peer: Peer) -> str:
    """A name by which a migration from there is known again."""
    told = f"{peer.kind}\0{os.path.realpath(peer.path)}\0{getattr(peer, 'query', '')}"
    return f"migrate-{hashlib.sha256(told.encode(errors='surrogateescape')).hexdigest()[:24]}"


# Directories of chunks: q00000, q00001, ...


class _Info(msgspec.Struct):
    """Which records of the chunks are in the queue: [chunk, records before, byte] at the tail."""

    chunksize: int
    size: int
    tail: list[int]
    head: list[int]


class _Chunks:
    """A queue in chunk files, each record read by `read_one`."""

    def __init__(
        self, kind: str, path: str, info: _Info, read_one: Callable[[BinaryIO], bytes]
    ) -> None:
        self.kind = kind
        self.path = path
        self._info = info
        self._read_one = read_one

    def count(self) -> int:
        return self._info.size

    def payloads(self) -> Iterator[bytes]:
        number, done, offset = self._info.tail
        last, last_count = self._info.head[:2]
        while number <= last:
            count = (last_count if number == last else self._info.chunksize) - done
            if count > 0:
                with open(f"{self.path}/q{number:05d}", "rb") as file:
                    file.seek(offset)
                    for _ in range(count):
                        yield self._read_one(file)
            number, done, offset = number + 1, 0, 0


def open_persist_queue(path: str) -> Peer:
    """A `persistqueue.Queue`, whatever its serializer but cbor2."""
    with open(f"{path}/info", "rb") as file:
        data = file.read()
    if data[:1] == b"\x80":
        told, read_one = plain_value(data), _read_pickle
    elif data[:1] == b"{":
        told, read_one = msgspec.json.decode(data), _read_line
    else:
        told, read_one = msgspec.msgpack.decode(data[4:]), _read_prefixed_little
    return _Chunks("persist-queue", path, _checked(told, path, 3), read_one)


def open_queuelib(path: str) -> Peer:
    """A `queuelib.FifoDiskQueue` that was closed: only then it says what is in it."""
    with open(f"{path}/info.json", "rb") as file:
        told = msgspec.json.decode(file.read())
    return _Chunks("queuelib", path, _checked(told, path, 2), _read_prefixed_big)


def _checked(told: object, path: str, head_length: int) -> _Info:
    try:
        info = msgspec.convert(told, _Info)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: its info is not of that library: {error}") from None
    if len(info.tail) != 3 or len(info.head) != head_length or info.chunksize < 1:
        raise FormatError(f"{path}: its info makes no sense")
    return info


def _read_pickle(file: BinaryIO) -> bytes:
    start = file.tell()
    skip_pickle(file)
    end = file.tell()
    file.seek(start)
    return file.read(end - start)


def _read_line(file: BinaryIO) -> bytes:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise FormatError(f"a chunk ends within a record at byte {file.tell()}")
    return line[:-1]


def _read_prefixed_little(file: BinaryIO) -> bytes:
    return _read_prefixed(file, "<L")


def _read_prefixed_big(file: BinaryIO) -> bytes:
    return _read_prefixed(file, ">L")


def _read_prefixed(file: BinaryIO, layout: str) -> bytes:
    at = file.tell()
    prefix = file.read(4)
    size = struct.unpack(layout, prefix)[0] if len(prefix) == 4 else -1
    if not 0 <= size <= RECORD_BYTES_MAX:
        raise FormatError(f"no record begins at byte {at} of a chunk")
    data = file.read(size)
    if len(data) < size:
        raise FormatError(f"a chunk ends within the record at byte {at}")
    return data


# Tables of SQLite.


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Which table, which column holds the payload, in what order, and which rows are meant."""

    table: str
    column: str
    order: str = "rowid"
    where: str = ""

    @property
    def text(self) -> str:
        condition = f" WHERE {self.where}" if self.where else ""
        return f"FROM {quoted(self.table)}{condition}"


def quoted(name: str) -> str:
    """A name in SQL, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


class _Rows:
    """A queue in a table."""

    def __init__(self, kind: str, path: str, table: Table) -> None:
        self.kind = kind
        self.path = path
        self._table = table
        self.query = f"SELECT {quoted(table.column)} {table.text} ORDER BY {quoted(table.order)}"

    def count(self) -> int:
        with _asking(self.path), closing(connect(self.path)) as database:
            (count,) = database.execute(f"SELECT count(*) {self._table.text}").fetchone()
            # Not run, but every name in it is looked up: a mistake is told before anything is put.
            database.execute(f"EXPLAIN {self.query}")
            return int(count)

    def payloads(self) -> Iterator[bytes]:
        with _asking(self.path), closing(connect(self.path)) as database:
            for number, (value,) in enumerate(database.execute(self.query), 1):
                yield _as_bytes(value, number)


def connect(path: str) -> sqlite3.Connection:
    """Read a database and change nothing; text comes as its bytes. FormatError if it is none."""
    try:
        # In any thread: one after the other they are used, never two at once.
        database = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, check_same_thread=False
        )
        database.text_factory = bytes
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise FormatError(
            f"{path}: SQLite cannot read it: {error}. Nothing was changed. Check that it is a "
            f"database, and that this user may read it."
        ) from None
    return database


@contextmanager
def _asking(path: str) -> Iterator[None]:
    """FormatError for what SQLite says of a query. What was put before it stays."""
    try:
        yield
    except sqlite3.Error as error:
        raise FormatError(
            f"{path}: SQLite refuses: {error}. The database was not changed. Check the names of "
            f"its columns, and the condition."
        ) from None


def tables_of(path: str) -> dict[str, list[str]]:
    """Tables and their columns."""
    with closing(connect(path)) as database:
        database.text_factory = str
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: [row[1] for row in database.execute(f"PRAGMA table_info({quoted(name)})")]
            for (name,) in names
        }


def _as_bytes(value: Any, number: int) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None:
        raise FormatError(f"row {number} has no payload: it is NULL")
    return str(value).encode()


def open_table(path: str, table: Table) -> Peer:
    """Any table of a database. FormatError if there is no such table or column."""
    known = tables_of(path)
    for name, there in ((table.table, known), (table.column, known.get(table.table, []))):
        if name not in there:
            raise FormatError(
                f"{path}: there is no {name!r}; there are: {', '.join(there)}. Nothing was changed."
            )
    return _Rows("sqlite", path, table)


def open_persist_queue_sqlite(path: str, name: str = "default") -> Peer:
    """A `persistqueue.SQLiteQueue`, `UniqueQ` or `SQLiteAckQueue` (what is not acked)."""
    file = f"{path}/data.db" if os.path.isdir(path) else path
    tables = tables_of(file)
    if f"queue_{name}" in tables:
        table = Table(table=f"queue_{name}", column="data", order="_id")
    elif f"unique_queue_{name}" in tables:
        table = Table(table=f"unique_queue_{name}", column="data", order="_id")
    elif f"ack_queue_{name}" in tables:
        table = Table(table=f"ack_queue_{name}", column="data", order="_id", where="status < 5")
    else:
        raise FormatError(
            f"{file}: there is no queue {name!r} of persist-queue in it. Nothing was changed."
        )
    return _Rows("persist-queue-sqlite", file, table)


def open_queuelib_sqlite(path: str) -> Peer:
    """A `queuelib.FifoSQLiteQueue`."""
    if tables_of(path).get("queue") != ["id", "item"]:
        raise FormatError(f"{path}: there is no queue of queuelib in it. Nothing was changed.")
    return _Rows("queuelib-sqlite", path, Table(table="queue", column="item", order="id"))
