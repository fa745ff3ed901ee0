"""The shelf: when and which, and the copies that are worth keeping."""

from __future__ import annotations

import random
import sys

import pytest

from fifoq import shelf as shelf_module
from fifoq.runs import RECORD_OVERHEAD, Returned
from fifoq.shelf import Shelf


def test_records_come_out_in_the_order_of_their_times() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        shelf, waiting = Shelf(), {}
        for counter in range(1, 200):
            due = chance.randrange(1000)
            if counter % 3:
                shelf.add(due, [Returned(counter, 0, b"x")])
            else:
                shelf.fill([(due, counter)])
            waiting[counter] = due
            if chance.random() < 0.3:
                gone = chance.choice(list(waiting))
                assert gone in shelf
                shelf.remove(gone)
                del waiting[gone]
                assert gone not in shelf
            assert len(shelf) == len(waiting)
            assert sorted(shelf.counters()) == sorted(waiting)
        now = chance.randrange(1000)
        due_now = [
            c for c, due in sorted(waiting.items(), key=lambda e: (e[1], e[0])) if due <= now
        ]
        assert shelf.take_due(now, 7) == due_now[:7]
        assert shelf.take_due(now, 1000) == due_now[7:]
        assert len(shelf) == len(waiting) - len(due_now)


def test_a_record_that_waits_needs_few_bytes() -> None:
    """Within what the guarantees allow: 120 bytes each."""
    shelf = Shelf()
    due = 1 << 60
    shelf.fill((due + counter, counter) for counter in range(1, 10_001))
    entry = sys.getsizeof(shelf._heap[0])
    assert entry + sys.getsizeof(shelf._heap) / len(shelf) < 80


def test_copies_are_let_go_oldest_first_once_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf_module, "KEPT_BYTES_MAX", 3 * (100 + RECORD_OVERHEAD))
    shelf = Shelf()
    for counter in range(1, 11):
        shelf.keep(Returned(counter, 0, bytes(100)))
        shelf.trim()
    assert list(shelf.kept) == list(range(1, 11))
    shelf.written = 5
    shelf.trim()
    assert list(shelf.kept) == list(range(6, 11))
    shelf.written = 10
    shelf.trim()
    assert list(shelf.kept) == [8, 9, 10]
    assert shelf.unkeep(9) == Returned(9, 0, bytes(100))
    assert shelf.unkeep(9) is None


def test_a_record_that_comes_again_has_its_new_time() -> None:
    record = Returned(7, 0, b"x")
    shelf = Shelf()
    shelf.add(1000, [record])
    shelf.remove(7)
    shelf.add(10, [record])
    assert (shelf.take_due(10, 9), len(shelf), shelf.take_due(5000, 9)) == ([7], 0, [])
    shelf.add(1000, [record])
    shelf.remove(7)
    shelf.fill([(10, 7)])
    assert (shelf.take_due(10, 9), len(shelf), shelf.take_due(5000, 9)) == ([7], 0, [])


def test_what_waits_no_more_takes_no_room_until_its_time() -> None:
    """Whoever cancels most of what was put with long delays must not fill the memory."""
    shelf = Shelf()
    shelf.fill((1, counter) for counter in range(1, 101))
    for counter in range(101, 10_001):
        shelf.add(1 << 60, [Returned(counter, 0, b"")])
        shelf.remove(counter)
    assert len(shelf) == 100
    assert len(shelf._heap) + len(shelf._removed) < 600
    assert sorted(shelf.take_due(1, 1000)) == list(range(1, 101))
