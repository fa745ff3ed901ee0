"""A process that uses all of delivery at once is killed again and again: nothing is lost or twice.

Orders go from queue to queue in transactions, with ids, delays, keys, lanes, a topic, a cursor and
a schedule beside them. What it confirmed it says on a pipe; what is there is looked at between
lives.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fifoq.sync
from fifoq.recurring import DUE_HEADER
from tests.rigs.delivery_process import KEYS, PARTITIONS
from tests.rigs.driver import ROOT, SILENCE_SECONDS_MAX
from tests.support.figures import record

SECONDS_MIN, SECONDS_MAX = 0.0, 0.25
SEED = 20261117


class Heard:
    """What a process said before it was killed, over all its lives."""

    def __init__(self) -> None:
        self.put = -1
        self.moved: set[int] = set()
        self.emptied: set[int] = set()
        self.read = -1
        """The last order that the cursor has done for sure."""
        self.reading = -1
        """The last order that it handed out."""

    def hear(self, output: str) -> None:
        for line in output.splitlines():
            word, *numbers = line.split()
            values = list(map(int, numbers))
            if word == "put":
                assert values == [self.put + 1]
                self.put += 1
            elif word == "moved":
                assert values[0] not in self.moved, "moved twice"
                self.moved.update(values)
            elif word == "emptied":
                self.emptied.update(values)
            elif word == "read":
                assert values == [self.reading + 1], "none is left out, and none comes again"
                self.reading += 1
            elif word == "committed":
                self.read = self.reading


def live_and_die(path: Path, heard: Heard, seed: int, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.rigs.delivery_process"]
    level = "sync" if seed % 4 < 2 else "os"
    process = subprocess.Popen(
        [*command, str(path), str(heard.put + 1), str(seed), level],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a buffer read along with the first line would be lost.
        bufsize=0,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    if first == b"ready\n":
        # At a moment that nobody chose: that is what is tried.
        time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    output, errors = process.communicate(timeout=SILENCE_SECONDS_MAX)
    assert (first, errors) == (b"ready\n", b"")
    heard.hear(output.decode())


def items(store: fifoq.sync.Store, name: str, **options: Any) -> list[int]:
    queue = store.queue(name, **options)
    return [int(record.item) for record in queue.browse()]


def look(path: Path, heard: Heard) -> None:
    """Everything is where it belongs, once."""
    with fifoq.sync.open_store(path) as store:
        orders, done = items(store, "orders"), items(store, "done")
        rejected = items(store, "orders.dlq")
        there = Counter([*orders, *done, *rejected])
        assert not [number for number, count in there.items() if count > 1]
        # One that was under way may be there as well.
        assert set(range(heard.put + 1)) <= there.keys() <= set(range(heard.put + 2))
        assert heard.moved <= {*done, *rejected}
        assert {number for number in rejected if number % 11 != 7} == set()
        lanes = items(store, "lanes", priorities=True)
        assert len(set(lanes)) == len(lanes)
        assert not heard.emptied & set(lanes), "acked, and there again"
        assert set(lanes) <= set(done)
        events = [items(store, f"events-{index}") for index in range(PARTITIONS)]
        together = sorted(number for partition in events for number in partition)
        assert together[: heard.put // 3 + 1] == list(range(0, heard.put + 1, 3))
        assert len(together) <= heard.put // 3 + 2
        for partition in events:
            for key in range(len(KEYS)):
                mine = [number for number in partition if number % len(KEYS) == key]
                assert mine == sorted(mine)
        firings = [record.headers[DUE_HEADER] for record in store.queue("ticks").browse()]
        assert len(set(firings)) == len(firings)
        cursor = store.queue("orders").cursor("audit")
        unread = [int(record.item) for record in cursor.records(wait=False)]
        if unread:
            assert heard.read < unread[0] <= heard.reading + 1
            heard.read = heard.reading = unread[0] - 1
        assert unread == list(range(heard.read + 1, heard.read + 1 + len(unread)))
        assert heard.read + len(unread) >= heard.put


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(6, id="suite"),
        pytest.param(500, id="deep", marks=[pytest.mark.deep, pytest.mark.timeout(3600)]),
    ],
)
def test_a_process_that_is_killed_amid_all_of_delivery_loses_and_doubles_nothing(
    tmp_path: Path, kills: int
) -> None:
    random, heard = Random(SEED), Heard()
    for life in range(kills):
        seconds = random.uniform(SECONDS_MIN, SECONDS_MAX)
        try:
            live_and_die(tmp_path / "store", heard, life, seconds)
            look(tmp_path / "store", heard)
        except AssertionError as error:
            error.add_note(f"life {life}, after {seconds:.3f} seconds")
            raise
    record("kills amid delivery", kills=kills, puts=heard.put + 1, moved=len(heard.moved))
    assert heard.put > kills
    assert heard.moved
    assert heard.read > 0
