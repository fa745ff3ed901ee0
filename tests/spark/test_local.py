"""Pieces of a store: they cover exactly what was asked for, and are read wherever it went."""

from __future__ import annotations

from pathlib import Path

import pytest

from fifoq.spark.access import Piece, open_access
from fifoq.spark.local import LocalAccess
from fifoq.spark.loss import LossFinder
from fifoq.spark.offsets import Offset
from store import CorruptionError, Log, LogOptions, RangeGone, open_log
from store.blocks import ACKED, records_weight

SMALL = LogOptions(segment_bytes=64 << 10, fill_bytes=0, reserve_bytes=0)
RECORD = bytes(500)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Twelve hundred records in commits of ten, over several segments; another queue between."""
    log = open_log(str(tmp_path / "store"), options=SMALL)
    for n in range(120):
        log.put("main", [RECORD] * 10)
        log.put("other", [b"%d" % n] * 3)
    return log


def ack(log: Log, first: int, last: int) -> None:
    draft = log.draft()
    weight = records_weight(len(RECORD) * (last - first + 1), last - first + 1)
    draft.remove(log.queue("main"), [(first, last, weight)], reason=ACKED)
    log.commit(draft)


def counters(access: LocalAccess, pieces: list[Piece]) -> list[int]:
    blocks = [block for piece in pieces for block in access.read("main", piece)]
    return [counter for block in blocks for counter in block.counters()]


def opened(log: Log) -> LocalAccess:
    log.seal()
    return LocalAccess(log.path)


@pytest.mark.parametrize("piece_bytes", [1, 5000, 30_000, 1 << 30])
@pytest.mark.parametrize(("first", "last"), [(1, 1200), (7, 1111), (600, 600)])
def test_pieces_cover_what_was_asked_for_and_name_where_it_lies(
    log: Log, piece_bytes: int, first: int, last: int
) -> None:
    with log:
        access = opened(log)
        pieces = access.pieces("main", first, last, piece_bytes=piece_bytes)
        assert counters(access, pieces) == list(range(first, last + 1))
        assert all(piece.segment for piece in pieces)
        if piece_bytes >= 5000:
            # A commit of ten takes 5 kB and more, and a piece is one commit at least.
            assert all(piece.bytes <= max(piece_bytes, 9000) for piece in pieces)
        assert access.pieces("main", 1201, 5000, piece_bytes=piece_bytes) == []
        assert access.pieces("nobody", 1, 5000, piece_bytes=piece_bytes) == []
        access.close()


def test_a_limit_for_all_pieces_is_kept_but_for_the_first(log: Log) -> None:
    with log:
        access = opened(log)
        for limit in (1, 20_000, 100_000, 200_000):
            pieces = access.pieces("main", 5, 1200, piece_bytes=limit, total_bytes=limit)
            assert pieces[0].first == 5
            assert len(pieces) == 1 or sum(piece.bytes for piece in pieces) <= limit
            read = sum(piece.last - piece.first + 1 for piece in pieces)
            assert read * len(RECORD) >= min(limit, 200_000) * 0.6 - 9000
        everything = access.pieces("main", 1, 1200, piece_bytes=1 << 20, total_bytes=1 << 30)
        assert counters(access, everything) == list(range(1, 1201))
        access.close()


def test_a_task_opens_the_segment_of_its_piece_and_nothing_else(log: Log) -> None:
    with log:
        access = opened(log)
        pieces = access.pieces("main", 1, 1200, piece_bytes=20_000)
        task = open_access(log.path, {}, access.store_id)
        assert isinstance(task, LocalAccess)
        assert counters(task, pieces[3:5]) == list(range(pieces[3].first, pieces[4].last + 1))
        # No state was loaded for that.
        assert task._loaded is None
        access.close()
        task.close()


def test_what_was_compacted_meanwhile_is_read_where_it_went(log: Log) -> None:
    with log:
        access = opened(log)
        pieces = access.pieces("main", 1, 1200, piece_bytes=20_000)
        for first in range(1, 1000, 20):
            ack(log, first, first + 17)
        while log.compact():
            pass
        log.checkpoint()
        task = LocalAccess(log.path, access.store_id)
        live = [n for n in range(1, 1201) if n > 1000 or (n - 1) % 20 >= 18]
        # Planned by one that does not know yet: nobody can say where they are.
        assert not access.pieces("main", 19, 20, piece_bytes=1)[0].segment
        found: list[int] = []
        for piece in pieces:
            try:
                found += counters(task, [piece])
            except RangeGone as gone:
                found += counters(task, [Piece(gone.oldest, piece.last, 1)])
        assert set(found) >= set(live)
        assert found == sorted(set(found))
        task.close()
        access.close()


def test_what_was_reclaimed_meanwhile_is_gone_and_told(log: Log) -> None:
    with log:
        access = opened(log)
        (piece, *_) = access.pieces("main", 5, 1200, piece_bytes=20_000)
        log.take("other", 360)
        ack(log, 1, 1100)
        log.checkpoint()
        task = LocalAccess(log.path, access.store_id)
        with pytest.raises(RangeGone) as told:
            counters(task, [piece])
        assert told.value.wanted == 5
        assert 5 < told.value.oldest <= 1101
        task.close()
        access.close()


def test_another_store_in_the_same_place_is_noticed(log: Log, tmp_path: Path) -> None:
    with log:
        access = opened(log)
        (piece, *_) = access.pieces("main", 1, 1200, piece_bytes=20_000)
        access.close()
    (tmp_path / "store").rename(tmp_path / "aside")
    with open_log(str(tmp_path / "store"), options=SMALL) as other:
        other.put("main", [RECORD] * 10)
        other.seal()
        task = LocalAccess(other.path, access.store_id)
        with pytest.raises(CorruptionError, match=r"lies where store .* was when the query was"):
            counters(task, [piece])
        task.close()


def test_holes_between_compacted_records_are_found_as_a_loss(log: Log) -> None:
    with log:
        access = opened(log)
        view = access.queue("main")
        finder = LossFinder()
        begin = Offset(1, access.store_id, "main", finder.puts(access, view, 1))
        assert begin.puts == 0
        assert finder.find(access, view, begin, 1201) is None
        following = finder.following(access, view, begin, 1001, None)
        assert (following.counter, following.puts) == (1001, 1000)
        for first in range(1, 1000, 20):
            ack(log, first, first + 17)
        while log.compact():
            pass
        log.checkpoint()
        later = opened(log)
        view = later.queue("main")
        loss = finder.find(later, view, begin, 1201)
        assert loss is not None
        there = set(counters(later, later.pieces("main", 1, 1200, piece_bytes=1 << 30)))
        gone = {n for first, last in loss.ranges for n in range(first, last + 1)}
        assert gone
        assert gone == set(range(1, 1201)) - there
        # Behind it nothing is missing, and the count goes on from there.
        last = max(gone)
        begin = finder.following(later, view, begin, last + 1, loss)
        assert begin.puts == last
        assert finder.find(later, view, begin, 1201) is None
        later.close()
        access.close()
