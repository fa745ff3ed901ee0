"""A run: every chosen row, every peer if asked, in a scratch directory that is then deleted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from fifoq.bench.machine import place
from fifoq.bench.measure import ROUNDS, Absent, Group, Row, Setting
from fifoq.bench.peers import PEERS, PeerResult, measure_peer
from fifoq.bench.progress import steps
from fifoq.bench.report import Report


def measure(groups: Sequence[Group], directory: Path, *, peers: bool, quick: bool) -> Report:
    """Run them all. Progress goes to stderr, and only to a terminal."""
    rows: list[Row | Absent] = []
    results: list[PeerResult | Absent] = []
    # Beside the current directory, not in /tmp: that one is often memory, which syncs nothing.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=directory) as scratch:
        setting = Setting(Path(scratch).resolve(), rounds=1 if quick else ROUNDS, quick=quick)
        # First: a disk that still writes what the rows left answers many times slower.
        where = place(setting)
        for group in steps(groups, lambda group: group.name):
            # What the row before it left to be written would be in this one's way.
            os.sync()
            rows += [_named(row, group) for row in group.run(setting)]
        for peer in steps(PEERS if peers else (), lambda peer: peer.name):
            results.append(measure_peer(peer, setting))
    return Report(
        where,
        [row for row in rows if isinstance(row, Row)],
        [absent for absent in (*rows, *results) if isinstance(absent, Absent)],
        [result for result in results if isinstance(result, PeerResult)],
    )


def _named(row: Row | Absent, group: Group) -> Row | Absent:
    return replace(row, group=group.name) if isinstance(row, Row) else row
