"""Migrate: queues that the other libraries themselves wrote, moved byte for byte and counted."""

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import persistqueue
import pytest
import queuelib
from hypothesis import given, settings
from hypothesis import strategies as st
from persistqueue.serializers import json as json_serializer
from queuelib.queue import FifoSQLiteQueue

from fifoq.tools import pouring
from fifoq.tools.migrate import find_kind, migrate, open_peer
from fifoq.tools.peers import Table
from fifoq.tools.pickles import plain_value
from store import FormatError
from tests.cli.support import fifoq as run
from tests.support.figures import record
from tests.tools.support import rows_in, scratch

TAKEN = 7
"""How many are taken again before the queue is closed."""


class Trap:
    """An object whose pickle runs something when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (66,)


def items(count: int) -> list[bytes]:
    return [b"%d" % number + bytes([number % 256, 0, 10]) for number in range(count)]


def persist_queue(path: Path, count: int) -> list[bytes]:
    queue = persistqueue.Queue(str(path), chunksize=50 if count < 1000 else 10_000, autosave=True)
    for item in items(count):
        queue.put(item)
    queue.put(Trap())
    for _ in range(TAKEN):
        queue.get()
    queue.task_done()
    del queue
    return [pickle.dumps(item, 4) for item in [*items(count)[TAKEN:], Trap()]]


def persist_queue_json(path: Path, count: int) -> list[bytes]:
    queue = persistqueue.Queue(str(path), chunksize=50, serializer=json_serializer, autosave=True)
    for number in range(count):
        queue.put({"n": number})
    for _ in range(TAKEN):
        queue.get()
    del queue
    return [b'{"n": %d}' % number for number in range(TAKEN, count)]


def persist_queue_sqlite(path: Path, count: int) -> list[bytes]:
    queue = persistqueue.SQLiteQueue(str(path), auto_commit=count < 1000)
    if count < 1000:
        for item in items(count):
            queue.put(item)
    else:
        # A commit for each of them would take hours.
        putter: Any = queue._putter
        with putter as database:
            rows = [(pickle.dumps(item, 4), 0.0) for item in items(count)]
            database.executemany(queue._sql_insert, rows)
        queue.total = count
    queue.put(Trap())
    for _ in range(TAKEN):
        queue.get()
    queue.task_done()
    queue.close()
    return [pickle.dumps(item, 4) for item in [*items(count)[TAKEN:], Trap()]]


def persist_queue_ack(path: Path, count: int) -> list[bytes]:
    queue = persistqueue.SQLiteAckQueue(str(path))
    for item in items(count):
        queue.put(item)
    for _ in range(TAKEN):
        queue.ack(queue.get())
    queue.get()
    queue.close()
    return [pickle.dumps(item, 4) for item in items(count)[TAKEN:]]


def queuelib_disk(path: Path, count: int) -> list[bytes]:
    queue = queuelib.FifoDiskQueue(str(path), chunksize=50 if count < 1000 else 10_000)
    for item in [*items(count), b""]:
        queue.push(item)
    for _ in range(TAKEN):
        queue.pop()
    queue.close()
    return [*items(count)[TAKEN:], b""]


def queuelib_sqlite(path: Path, count: int) -> list[bytes]:
    queue = FifoSQLiteQueue(str(path))
    if count < 1000:
        for item in items(count):
            queue.push(item)
    else:
        # A commit for each of them would take hours.
        with queue._db as database:
            database.executemany(queue._sql_push, [(item,) for item in items(count)])
    for _ in range(TAKEN):
        queue.pop()
    queue.close()
    return items(count)[TAKEN:]


def sqlite_table(path: Path, count: int) -> list[bytes]:
    """A queue as people make one by hand: rows that are marked when they are done."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, body BLOB, done INTEGER)")
        rows = [(item, number < TAKEN) for number, item in enumerate(items(count))]
        database.executemany("INSERT INTO jobs (body, done) VALUES (?, ?)", rows)
    database.close()
    return items(count)[TAKEN:]


JOBS = Table(table="jobs", column="body", order="id", where="done = 0")


KINDS: dict[str, Callable[[Path, int], list[bytes]]] = {
    "persist-queue": persist_queue,
    "persist-queue-sqlite": persist_queue_sqlite,
    "queuelib": queuelib_disk,
    "queuelib-sqlite": queuelib_sqlite,
}


def moved(path: Path) -> list[bytes]:
    return [row.data for row in rows_in(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_library_wrote_is_moved_byte_for_byte(tmp_path: Path, kind: str) -> None:
    """The pickle that would end the process if it were loaded is moved like any other."""
    wanted = KINDS[kind](tmp_path / "old", 120)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert find_kind(str(tmp_path / "old")) == kind
    told = asyncio.run(migrate(open_peer(str(tmp_path / "old")), tmp_path / "new"))
    assert (told.kind, told.records, told.expected) == (kind, len(wanted), len(wanted))
    assert moved(tmp_path / "new") == wanted
    assert all(path.read_bytes() == data for path, data in before.items())
    # Once more: it is known that it was done.
    told = asyncio.run(migrate(open_peer(str(tmp_path / "old")), tmp_path / "new"))
    assert told.resumed == len(wanted)
    assert moved(tmp_path / "new") == wanted


@pytest.mark.parametrize("make", [persist_queue_json, persist_queue_ack])
def test_other_faces_of_persist_queue(
    tmp_path: Path, make: Callable[[Path, int], list[bytes]]
) -> None:
    wanted = make(tmp_path / "old", 60)
    asyncio.run(migrate(open_peer(str(tmp_path / "old")), tmp_path / "new", queue="orders"))
    assert moved(tmp_path / "new") == wanted


@pytest.mark.deep
@pytest.mark.parametrize("kind", [*KINDS, "sqlite"])
def test_a_hundred_thousand_records_are_moved_and_counted(kind: str) -> None:
    """By the verb, which says how many of how many there are."""
    with scratch() as directory:
        wanted = KINDS.get(kind, sqlite_table)(directory / "old", 100_010)
        assert len(wanted) >= 100_000
        of_table = ("--table", "jobs", "--column", "body", "--order", "id", "--where", "done = 0")
        more = of_table if kind == "sqlite" else ()
        told = run("migrate", directory / "new", directory / "old", *more).stdout
        assert (
            told.decode() == f"{len(wanted):,} records of {len(wanted):,} from {kind}, into main\n"
        )
        assert moved(directory / "new") == wanted
        told = run("migrate", directory / "new", directory / "old", *more, "--json").stdout
        assert msgspec.json.decode(told)["resumed"] == len(wanted)
        record(f"records moved from {kind}", count=len(wanted))


def test_a_queue_in_a_table_of_sqlite_is_moved(tmp_path: Path) -> None:
    wanted = sqlite_table(tmp_path / "jobs.db", 120)
    peer = open_peer(str(tmp_path / "jobs.db"), table=JOBS)
    told = asyncio.run(migrate(peer, tmp_path / "new"))
    assert told.records == told.expected == len(wanted)
    assert moved(tmp_path / "new") == wanted


def test_names_and_values_of_a_table_may_be_anything(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "jobs.db") as database:
        database.execute('CREATE TABLE "my jobs" (n INTEGER, "body ""text""" TEXT, done INTEGER)')
        rows = [(9 - n, f"job {n} é", n % 2) for n in range(10)]
        database.executemany('INSERT INTO "my jobs" VALUES (?, ?, ?)', rows)
    database.close()
    table = Table(table="my jobs", column='body "text"', order="n", where="done = 0")
    peer = open_peer(str(tmp_path / "jobs.db"), table=table)
    told = asyncio.run(migrate(peer, tmp_path / "new"))
    assert told.records == 5
    assert moved(tmp_path / "new") == [f"job {n} é".encode() for n in (8, 6, 4, 2, 0)]
    with pytest.raises(FormatError, match="there are: my jobs"):
        open_peer(str(tmp_path / "jobs.db"), table=Table(table="jobs", column="body"))
    with pytest.raises(FormatError, match="name the table"):
        open_peer(str(tmp_path / "jobs.db"))


class Interrupted(BaseException):
    """As a Ctrl-C comes."""


def test_a_migration_that_was_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pouring, "COMMIT_RECORDS", 10)
    wanted = queuelib_disk(tmp_path / "old", 120)

    def progress(done: int, total: int) -> None:
        assert total == len(wanted)
        if done % 40 == 0:
            raise Interrupted

    for _ in range(2):
        peer = open_peer(str(tmp_path / "old"))
        with pytest.raises(Interrupted):
            asyncio.run(migrate(peer, tmp_path / "new", progress=progress))
        found = moved(tmp_path / "new")
        assert found == wanted[: len(found)]
    told = asyncio.run(migrate(open_peer(str(tmp_path / "old")), tmp_path / "new"))
    assert told.resumed == 80
    assert moved(tmp_path / "new") == wanted


def test_what_is_cut_short_is_moved_up_to_there(tmp_path: Path) -> None:
    wanted = queuelib_disk(tmp_path / "old", 20)
    chunk = tmp_path / "old/q00000"
    chunk.write_bytes(chunk.read_bytes()[:-5])
    with pytest.raises(FormatError, match="ends within"):
        asyncio.run(migrate(open_peer(str(tmp_path / "old")), tmp_path / "new"))
    assert moved(tmp_path / "new") == wanted[: len(moved(tmp_path / "new"))] != []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("info", pickle.dumps(Trap(), 4)),
        ("info", pickle.dumps({"size": Trap()}, 4)),
        ("info", b"\x80\x04nothing"),
        ("info", b"{}"),
        ("info.json", b'{"chunksize": 1, "size": 1, "tail": [0], "head": [0, 0]}'),
        ("info.json", b"no"),
        ("data.db", b"no database, no database, no database"),
    ],
)
def test_an_info_that_makes_no_sense_is_refused_and_never_run(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FormatError):
        open_peer(str(tmp_path))


PLAIN = st.recursive(
    st.integers(0, 2**40) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(value=PLAIN, protocol=st.sampled_from([3, 4, 5]))
def test_plain_values_are_read_as_they_were_written(value: Any, protocol: int) -> None:
    assert plain_value(pickle.dumps(value, protocol)) == value
