"""Delays, rates and depths by Spark are those that a plain walk over the same events gives."""

from __future__ import annotations

import io
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from fifoq.spark import pipelines
from fifoq.spark.pipelines.report import Cell, Table, bar, show, text
from fifoq.spark.pipelines.segments import GAP_MAX, put_times
from store import InvalidName, LogOptions, Reader, open_log
from tests.support.clock import ManualClock

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


class Life:
    """A store whose queues were used for some minutes, and what happened in them."""

    def __init__(self, path: Path, *, retained: bool = True) -> None:
        self.path = str(path)
        chance = random.Random(7)
        clock = ManualClock()
        self.delays: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.events: list[tuple[str, int, int, int, int]] = []
        """Queue, time, puts, bytes, takes."""
        waiting: dict[str, list[int]] = {"orders": [], "bills": []}
        options = LogOptions(segment_bytes=64 << 10)
        with open_log(self.path, clock=clock, options=options) as log:
            for name in waiting:
                log.queue(name)
                log.retain(name, retained=retained)
            for step in range(240):
                clock.advance(seconds=chance.choice((0.2, 1.5)))
                name = "orders" if step % 4 else "bills"
                now = clock.wall()
                payloads = [bytes(chance.randrange(200)) for _ in range(chance.randrange(1, 9))]
                log.put(name, payloads)
                waiting[name] += [now] * len(payloads)
                self.events.append((name, now, len(payloads), sum(map(len, payloads)), 0))
                clock.advance(seconds=0.01)
                now = clock.wall()
                count = min(len(waiting[name]), chance.randrange(9))
                if count:
                    log.take(name, count)
                    taken, waiting[name] = waiting[name][:count], waiting[name][count:]
                    minute = now // MINUTE * 60
                    self.delays[name, minute] += [now - put for put in taken]
                    self.events.append((name, now, 0, 0, count))

    def wanted_rates(self, seconds: int) -> dict[tuple[str, int], list[int]]:
        depth: defaultdict[str, int] = defaultdict(int)
        found: dict[tuple[str, int], list[int]] = {}
        for name, time, put, size, taken in self.events:
            start = time // (seconds * SECOND) * seconds
            row = found.setdefault((name, start), [0, 0, 0, 0, 0])
            depth[name] += put - taken
            row[0] += put
            row[1] += size
            row[2] += taken
            row[3] = depth[name]
            row[4] = max(row[4], depth[name])
        return found


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("life") / "store")


def test_delays_are_those_of_the_events(spark: SparkSession, life: Life) -> None:
    report = pipelines.delays(spark, life.path)
    assert {(row.queue, row.minute) for row in report.rows} == set(life.delays)
    assert report.unknown == 0
    for row in report.rows:
        wanted = np.sort(life.delays[row.queue, row.minute])
        assert row.count == len(wanted)
        assert row.longest == wanted[-1] / SECOND
        for share, found in ((0.5, row.p50), (0.95, row.p95), (0.99, row.p99)):
            # The smallest delay that at least that share of all does not exceed.
            assert found == wanted[int(np.ceil(share * len(wanted))) - 1] / SECOND
    assert len({queue for queue, _ in life.delays}) == 2
    bills = pipelines.delays(spark, life.path, queue="bills")
    assert bills.rows == [row for row in report.rows if row.queue == "bills"]


def test_rates_and_depths_are_those_of_the_events(spark: SparkSession, life: Life) -> None:
    for seconds in (60, 7):
        report = pipelines.rates(spark, life.path, seconds=seconds)
        found = {
            (row.queue, row.start): [
                *(row.put_count, row.put_bytes, row.removed_count, row.depth, row.deepest)
            ]
            for row in report.rows
        }
        assert found == life.wanted_rates(seconds)


def test_what_was_reclaimed_is_counted_as_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """The records are gone with their segment; that they were taken stands in a later one."""
    clock = ManualClock()
    options = LogOptions(segment_bytes=64 << 10)
    with open_log(str(tmp_path), clock=clock, options=options) as log:
        log.put("main", [bytes(1000)] * 60)
        log.put("main", [bytes(1000)] * 60)
        clock.advance(seconds=3)
        log.take("main", 61)
        log.put("main", [bytes(1000)])
    with Reader(str(tmp_path)) as reader:
        gone = next(reader.blocks("main")).first - 1
    assert gone > 0
    report = pipelines.delays(spark, str(tmp_path))
    assert report.unknown == gone
    assert sum(row.count for row in report.rows) == 61 - gone
    assert {row.p50 for row in report.rows} == {3.0}
    assert f"({gone} more are no longer retained)" in str(report)


def test_put_times_are_found_across_gaps(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_log(str(tmp_path), clock=clock) as log:
        wanted = []
        for _ in range(5):
            clock.advance(seconds=1)
            log.put("main", [b""] * GAP_MAX, sync=False)
            wanted += [clock.wall()] * GAP_MAX
        log.flush()
    picked = np.array([1, 2, 9_999, 10_000, 10_001, 25_000, 49_999, 50_000, 60_000])
    with Reader(str(tmp_path)) as reader:
        found = put_times(reader, "main", picked)
        assert found.tolist() == [*(wanted[counter - 1] for counter in picked[:-1]), 0]
        assert put_times(reader, "main", picked[:0]).tolist() == []


def test_put_times_are_found_behind_what_was_reclaimed(tmp_path: Path) -> None:
    with open_log(str(tmp_path), options=LogOptions(segment_bytes=64 << 10)) as log:
        for _ in range(2):
            log.put("main", [bytes(1000)] * 60)
        log.take("main", 61)
        log.put("main", [bytes(1000)])
    with Reader(str(tmp_path)) as reader:
        kept = next(reader.blocks("main")).first
        found = put_times(reader, "main", np.arange(2, 122))
    assert 2 < kept <= 61
    assert [int(counter) for counter in np.flatnonzero(found) + 2] == list(range(kept, 122))


def test_wrong_arguments_are_named(spark: SparkSession, life: Life) -> None:
    with pytest.raises(ValueError, match="seconds=0 is below 1"):
        pipelines.rates(spark, life.path, seconds=0)
    with pytest.raises(InvalidName):
        pipelines.delays(spark, life.path, queue="../x")
    with pytest.raises(ValueError, match="needs the store's directory"):
        pipelines.rates(spark, "fifoq://127.0.0.1:1/main")


# What people see.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reports_are_plain_text_unless_it_is_a_terminal(spark: SparkSession, life: Life) -> None:
    report = pipelines.rates(spark, life.path, queue="bills")
    plain, drawn = io.StringIO(), Terminal()
    report.show(plain)
    report.show(drawn)
    assert plain.getvalue() == f"{report}\n"
    assert "\x1b" not in plain.getvalue()
    assert "┃" in drawn.getvalue()
    assert plain.getvalue().splitlines()[0] == "Rates and depth, every 60 s"
    assert len(plain.getvalue().splitlines()) == 2 + len(report.rows)


def test_tables_are_aligned() -> None:
    rows: list[list[Cell]] = [["a", 1000, 0.5], ["bcdef", 1, None]]
    assert text(Table("Title", ("name", "count", "s"), rows)) == (
        "Title\nname   count      s\na      1,000  0.500\nbcdef      1      -"
    )
    assert text(Table("Nothing", ("name",), [])) == "Nothing\nname"
    assert [bar(value, 8, 2) for value in (0, 4, 6, 8, 9)] == ["", "█", "█▌", "██", "██"]
    assert bar(3, 0) == ""
    show(Table("Empty", ("name",), []), io.StringIO())
