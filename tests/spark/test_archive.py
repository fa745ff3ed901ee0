"""The archive holds each record once, however often it is run or killed, and gives it back."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from fifoq.consumers import read_position
from fifoq.description import QueueDescription, SpanDescription
from fifoq.spark.pipelines import ArchiveError, archive, archived, archiving, replay
from fifoq.spark.pipelines.archiving import without
from fifoq.spark.pipelines.shelf import NOTES, Shelf, Unit
from store import LogOptions, open_log
from tests.fifoq.server.support import TOKEN, serving
from tests.support.clock import ManualClock

ROOT = Path(__file__).parents[2]
DAY = 24 * 3600
DEEP = pytest.mark.deep


def contents(
    spark: SparkSession, target: Path, queue: str | None = None
) -> list[tuple[int, bytes]]:
    rows = archived(spark, str(target), queue=queue).orderBy("queue", "counter").collect()
    return [(row.counter, bytes(row.data)) for row in rows]


def put(path: Path, payloads: list[bytes], *, taken: int = 0) -> None:
    with fifoq.sync.open(path, segment_bytes=64 << 10, retention="all") as q:
        for at in range(0, len(payloads), 50):
            q.put(payloads[at], headers={"at": str(at)})
            q.put_many(payloads[at + 1 : at + 50])
        if taken:
            q.take_many(taken)


def test_each_record_is_archived_once_by_date_and_segment(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    first = [b"%d " % i * 100 for i in range(400)]
    put(store, first, taken=120)
    one = archive(spark, str(store), str(target))
    sealed = one.records
    assert 0 < sealed < 400
    assert one.units[-1].last == sealed
    assert contents(spark, target) == list(enumerate(first, 1))[:sealed]
    nothing = archive(spark, str(store), str(target))
    assert (nothing.units, nothing.records) == ([], 0)
    two = archive(spark, str(store), str(target), tail=True, consumer="archive")
    assert two.records == 400 - sealed
    position = read_position(str(store), "archive")
    assert position is not None
    assert position.counter == 401
    more = [b"more %d " % i * 100 for i in range(300)]
    put(store, more)
    three = archive(spark, str(store), str(target), tail=True)
    assert three.records == 300
    assert contents(spark, target) == list(enumerate([*first, *more], 1))
    assert one.missing == three.missing == []
    headers = archived(spark, str(target)).where("counter = 51").collect()[0].headers
    assert headers == {"at": "50"}
    out = io.StringIO()
    one.show(out)
    assert out.getvalue().startswith(f"Archived {sealed} records\nqueue  segment  first  last")
    # Any reader of Parquet finds the same.
    assert spark.read.parquet(str(target)).count() == 700
    dates = {part.name for part in (target / "queue=main").iterdir()}
    assert len(dates) in (1, 2)
    assert all(name.startswith("date=20") for name in dates)


def test_a_record_that_was_compacted_is_not_archived_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    with fifoq.sync.open(store, segment_bytes=64 << 10) as q:
        for i in range(300):
            q.put(b"%d " % i * 100, durability="memory")
        q.flush()
        archive(spark, str(store), str(target), tail=True)
        held = [q.lease() for _ in range(300)]
        for delivery in held:
            if delivery.key.counter % 40:
                delivery.ack()
        q.flush()
        for i in range(300, 400):
            q.put(b"%d " % i * 100, durability="memory")
        q.flush()
        again = archive(spark, str(store), str(target), tail=True)
        assert again.records == 100
        for delivery in held:
            if not delivery.key.counter % 40:
                delivery.nack(delay=0)
    assert [counter for counter, _ in contents(spark, target)] == list(range(1, 401))


def killed_in_this_process(spark: SparkSession, store: Path, target: Path) -> None:
    """As if it were killed: what is on disk is the same."""

    class Killed(BaseException):
        pass

    class Dying(Shelf):
        def write(self, units: Iterable[Unit]) -> None:
            if any(unit.state == "done" for unit in units):
                raise Killed
            super().write(units)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fifoq.spark.pipelines.archiving.Shelf", Dying)
        with pytest.raises(Killed):
            archive(spark, str(store), str(target), tail=True)


def killed(spark: SparkSession, store: Path, target: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.archiver", str(store), str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr


@pytest.mark.parametrize("kill", [killed_in_this_process, pytest.param(killed, marks=DEEP)])
def test_a_killed_run_leaves_nothing_twice(
    spark: SparkSession, tmp_path: Path, kill: Callable[[SparkSession, Path, Path], None]
) -> None:
    """Killed after its Parquet files are there: the next run takes them away and begins anew."""
    store, target = tmp_path / "store", tmp_path / "archive"
    payloads = [b"%d " % i * 100 for i in range(200)]
    put(store, payloads)
    kill(spark, store, target)
    assert spark.read.parquet(str(target)).count() == 200
    with pytest.raises(ArchiveError, match="nothing is archived there"):
        archived(spark, str(target))
    # Meanwhile the queue went on, so that the units are not the same ones.
    put(store, [b"last"])
    report = archive(spark, str(store), str(target), tail=True)
    assert report.dropped > 0
    assert contents(spark, target) == list(enumerate([*payloads, b"last"], 1))
    assert spark.read.parquet(str(target)).count() == 201


def test_what_was_reclaimed_before_is_listed_as_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    clock = ManualClock()
    with open_log(str(store), clock=clock, options=LogOptions(segment_bytes=64 << 10)) as log:
        for day in range(3):
            clock.set_wall(clock.wall() + DAY * 1_000_000_000)
            log.put("main", [b"%d" % day + bytes(1000)] * 60)
        log.take("main", 61)
    report = archive(spark, str(store), str(target), tail=True)
    (gap,) = report.missing
    assert gap[0] == 1
    assert gap[1] >= 60
    assert f"not there any more, or never: 1 to {gap[1]}" in str(report)
    assert contents(spark, target)[0][0] == gap[1] + 1
    dates = sorted(part.name for part in (target / "queue=main").iterdir())
    assert dates == ["date=2023-11-16", "date=2023-11-17"]


def test_an_archive_comes_from_an_address_too(spark: SparkSession, tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    put(store, [b"a", b"b"])
    with serving(store) as server:
        archive(
            *(spark, server.url(), str(target)),
            tail=True,
            consumer="archive",
            options={"token": TOKEN},
        )
    assert contents(spark, target) == [(1, b"a"), (2, b"b")]
    position = read_position(str(store), "archive")
    assert position is not None
    assert position.counter == 3
    assert TOKEN not in "".join(path.read_text() for path in (target / NOTES).glob("*"))


def test_replay_puts_records_back_in_order_and_once_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, target, again = tmp_path / "store", tmp_path / "archive", tmp_path / "again"
    payloads = [b"%d " % i * 100 for i in range(150)]
    put(store, payloads, taken=80)
    archive(spark, str(store), str(target), tail=True)
    report = replay(spark, str(target), str(again), name="first")
    assert str(report) == f"Replayed 150 records into queue 'main' of {again}"
    # Another one of that name adds nothing, and says so.
    assert replay(spark, str(target), str(again), name="first").records == 0
    with fifoq.sync.open(again) as q:
        assert len(q) == 150
        assert next(iter(q.browse())).headers == {"at": "0"}
        assert q.take_many(150) == payloads
    with fifoq.sync.open(store) as live:
        # Into another queue of the same store, which this process owns.
        late = datetime.now(UTC) + timedelta(hours=1)
        with pytest.raises(ValueError, match=r"since=.* has no time zone"):
            replay(spark, str(target), str(store), since=datetime(2026, 1, 1))
        assert replay(spark, str(target), str(store), since=late, into="copy").records == 0
        replay(spark, str(target), str(store), until=late, into="copy")
        assert len(live) == 70
    with fifoq.sync.open(store, queue="copy") as copied:
        assert copied.take_many(200) == payloads


def test_an_archive_is_of_one_store_and_one_run_at_a_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "one", [b"a"])
    put(tmp_path / "two", [b"b"])
    target = str(tmp_path / "archive")
    archive(spark, str(tmp_path / "one"), target, tail=True)
    with pytest.raises(ArchiveError, match=r"queue 'main' of store \w+, and this is store"):
        archive(spark, str(tmp_path / "two"), target, tail=True)
    with Shelf(target).in_use(), pytest.raises(ArchiveError, match="another run is adding"):
        archive(spark, str(tmp_path / "one"), target)
    with pytest.raises(ArchiveError, match="not to s3://"):
        archive(spark, str(tmp_path / "one"), "s3://bucket/archive")
    with pytest.raises(ArchiveError, match="nothing is archived there"):
        replay(spark, str(tmp_path / "none"), str(tmp_path / "two"))


def test_a_shelf_is_of_one_store_and_for_one_run_at_a_time(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path))
    with shelf.in_use():
        shelf.write([Unit(queue="a", store="00", segment=1, first=1, last=5)])
        with (
            pytest.raises(ArchiveError, match="another run is adding"),
            Shelf(str(tmp_path)).in_use(),
        ):
            pass
    with shelf.in_use():
        shelf.check_store("a", "00")
        shelf.check_store("b", "11")
        with pytest.raises(ArchiveError, match="queue 'a' of store 00, and this is store 11"):
            shelf.check_store("a", "11")


def test_a_position_is_the_first_counter_that_the_archive_lacks() -> None:
    spans = [SpanDescription(3, 40, 1, 9, 0, 0, False), SpanDescription(41, 90, 2, 9, 0, 0, False)]
    view = QueueDescription("a", spans, 91, 0, 90, 0, True)

    def unit(first: int, last: int) -> Unit:
        return Unit(queue="a", store="00", segment=1, first=first, last=last, state="done")

    for units, counter in (
        ([], 3),
        ([unit(3, 40)], 41),
        ([unit(3, 30), unit(41, 90)], 31),
        ([unit(1, 40), unit(41, 90)], 91),
    ):
        assert archiving._position(units, view, "00").counter == counter


def test_ranges_are_taken_from_a_range() -> None:
    assert without(1, 9, []) == [(1, 9)]
    assert without(1, 9, [(1, 9)]) == without(3, 4, [(1, 9)]) == []
    assert without(1, 9, [(3, 4), (9, 20)]) == [(1, 2), (5, 8)]
    assert without(5, 9, [(1, 2), (4, 6), (5, 5), (30, 40)]) == [(7, 9)]


def test_units_of_one_queue_are_told_from_those_of_another(tmp_path: Path) -> None:
    shelf = Shelf(f"file://{tmp_path}/archive")
    shared: dict[str, Any] = {"store": "00", "segment": 1, "first": 1, "last": 5}
    units = [
        Unit(queue="a", state="planned", **shared),
        Unit(queue="a-1", state="done", **shared),
        Unit(queue="x/b", state="done", **shared),
    ]
    with shelf.in_use():
        shelf.write(units)
    assert shelf.units() == units
    assert shelf.units("a") == units[:1]
    for unit in units:
        part = shelf.path / f"queue={unit.queue.replace('/', '%2F')}/date=2026-01-01/unit={unit.id}"
        part.mkdir(parents=True)
        (part / "x.parquet").touch()
    assert shelf.drop_planned("a") == 1
    assert shelf.units() == units[1:]
    assert len(list(shelf.path.glob("queue=*/date=*/unit=*"))) == 2
