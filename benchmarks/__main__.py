"""`python -m benchmarks`: the rows of the store, then those of the queue, in one report."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.store import store_rows
from fifoq.bench.command import queue_rows, run
from fifoq.bench.measure import Group


def all_rows() -> Sequence[Group]:
    """Every row there is."""
    return (*store_rows(), *queue_rows())


if __name__ == "__main__":
    run(all_rows)
