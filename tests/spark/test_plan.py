"""How a range of counters is cut into partitions where nobody says how."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fifoq.spark.options import PARTITION_BYTES, PARTITION_BYTES_MIN
from fifoq.spark.plan import PiecesPartition, default_count
from fifoq.spark.source import FifoqSource
from tests.spark.support import fill

MIB = 1 << 20


@pytest.mark.parametrize(
    ("mebibytes", "cores", "count"),
    [
        *((0, 8, 1), (3, 8, 1), (8, 8, 2), (31, 8, 7), (100, 8, 8), (100, 2, 2), (100, 1, 1)),
        *((500, 2, 4), (520, 2, 4), (700, 2, 6), (1535, 8, 8), (1537, 8, 16), (10_000, 8, 80)),
    ],
)
def test_there_are_few_partitions_and_as_many_for_each_core(
    mebibytes: int, cores: int, count: int
) -> None:
    assert (PARTITION_BYTES, PARTITION_BYTES_MIN) == (128 * MIB, 4 * MIB)
    assert default_count(mebibytes * MIB, cores) == count


def test_partitions_are_of_about_the_same_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of 64 MiB and a smaller one made a task that was twice as long as the other."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    fill(tmp_path / "store", [bytes(10_000)] * 1600, batch=20, segment_bytes=10 * MIB)
    source = FifoqSource({"path": str(tmp_path / "store")})
    parts = source.reader(source.schema()).partitions()
    sizes = [
        sum(piece.bytes for piece in part.pieces)
        for part in parts
        if isinstance(part, PiecesPartition)
    ]
    assert len(sizes) == 2
    assert max(sizes) < 1.1 * min(sizes)
