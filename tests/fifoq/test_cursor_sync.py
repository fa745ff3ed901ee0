"""Cursors for blocking code: the same promises, for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fifoq
import fifoq.sync

ITEMS = [b"%d" % number for number in range(1, 11)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[fifoq.sync.Queue[bytes]]:
    with fifoq.sync.open(tmp_path / "store", durability="os", retry_backoff=0.0) as opened:
        yield opened


def test_take_commit_seek_and_lag(queue: fifoq.sync.Queue[bytes]) -> None:
    start = datetime.now(UTC)
    queue.put_many(ITEMS)
    cursor = queue.cursor("reader")
    assert queue.cursors() == ["reader"]
    assert cursor.take() == b"1"
    assert cursor.take_many(3, max_bytes=100) == ITEMS[1:4]
    assert cursor.lag().records == 6
    cursor.commit()
    assert (cursor.position, cursor.committed) == (5, 5)
    assert [record.item for record in cursor.records(wait=False)] == ITEMS[4:]
    with pytest.raises(TimeoutError):
        cursor.take(timeout=0.01)
    assert cursor.seek(counter=9) == 9
    assert next(iter(cursor)) == b"9"
    assert cursor.seek(timestamp=start) == 1
    with pytest.raises(ValueError, match="beyond the end"):
        cursor.seek(counter=12)
    assert repr(cursor) == "<sync.Cursor 'reader' of 'main' at 1 open>"
    cursor.delete()
    assert queue.cursors() == []


def test_threads_share_a_cursor_and_its_position_outlives_the_store(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def work(cursor: fifoq.sync.Cursor[bytes]) -> None:
        while True:
            try:
                delivery = cursor.lease(timeout=0.2)
            except TimeoutError:
                return
            with delivery:
                seen.append(delivery.item)

    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many(ITEMS)
        cursor = queue.cursor("workers")
        threads = [threading.Thread(target=work, args=(cursor,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen, key=int) == ITEMS
        assert cursor.committed == 11
    with fifoq.sync.open(tmp_path / "store") as queue:
        assert queue.cursor("workers").position == 11


def test_a_delivery_that_fails_comes_back(queue: fifoq.sync.Queue[bytes]) -> None:
    queue.put_many(ITEMS)
    cursor = queue.cursor("workers")
    with pytest.raises(KeyError), cursor.lease() as delivery:
        raise KeyError(delivery.item)
    again = cursor.lease()
    assert (again.item, again.attempt) == (b"1", 2)
    assert again.ack() is True
    stale = cursor.lease()
    cursor.seek(counter=1)
    with pytest.raises(fifoq.StaleLease):
        stale.ack()


def test_records_end_when_another_thread_closes_the_store(tmp_path: Path) -> None:
    queue = fifoq.sync.open(tmp_path / "store")
    queue.put_many(ITEMS)
    cursor = queue.cursor("reader")
    seen: list[bytes] = []
    last = threading.Event()

    def read() -> None:
        for item in cursor:
            seen.append(item)
            if item == ITEMS[-1]:
                last.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert last.wait(60)
    queue.close()
    thread.join(60)
    assert seen == ITEMS


def test_what_an_interrupted_take_had_is_at_its_place_again(tmp_path: Path) -> None:
    """As `LoopThread` undoes a call whose caller left after it had succeeded."""
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many(ITEMS)
        cursor = queue.cursor("reader")
        inner = cursor._cursor
        taken = queue._thread.run(lambda: inner.take_records(3))
        queue._thread.run(lambda: inner.take_back(taken))
        assert cursor.take_many(4) == ITEMS[:4]
        taken = queue._thread.run(lambda: inner.take_records(1))
        cursor.commit()
        # It counts by now: nothing is doubled.
        queue._thread.run(lambda: inner.take_back(taken))
        assert cursor.take() == b"6"
