"""The batch source reads what the queue holds, by real Spark from real files."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from tests.spark.support import SMALL_SEGMENTS, counters, error_of, fill, numbered, read
from tests.support.figures import record

ROOT = Path(__file__).parents[2]
RECORDS = 3000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of several segments; nobody changes it."""
    path = tmp_path_factory.mktemp("filled") / "store"
    fill(path, numbered(RECORDS))
    assert len(list(path.glob("*.log"))) >= 3
    return path


def damage(path: Path) -> None:
    """Overwrite the inside of a segment."""
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(bytes(3000))


def test_a_scan_gives_every_record_with_its_key(spark: SparkSession, tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"first")
        keys = list(queue.put_many([b"second", b"", b"fourth"]))
    rows = read(spark, tmp_path / "store").collect()
    assert [row.counter for row in rows] == [1, 2, 3, 4]
    assert [bytes(row.data) for row in rows] == [b"first", b"second", b"", b"fourth"]
    assert [bytes(row.key) for row in rows[1:]] == [bytes(key) for key in keys]
    stamps = [row.timestamp.replace(tzinfo=datetime.UTC) for row in rows[1:]]
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    microseconds = [(stamp - epoch) // datetime.timedelta(microseconds=1) for stamp in stamps]
    assert microseconds == [key.timestamp // 1000 for key in keys]


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [({}, 1, 1), ({"partitionBytes": "20k"}, 10, 40), ({"numPartitions": 4}, 3, 4)],
)
def test_however_it_is_partitioned_each_record_comes_once_and_in_order(
    spark: SparkSession, filled: Path, options: dict[str, object], least: int, most: int
) -> None:
    frame = read(spark, filled, **options)
    rows = frame.select("counter", "data").collect()
    assert [bytes(row.data) for row in rows] == numbered(RECORDS)
    assert [row.counter for row in rows] == list(range(1, RECORDS + 1))
    assert least <= frame.rdd.getNumPartitions() <= most
    record("spark scan", records=RECORDS)


def test_counters_and_times_bound_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, **SMALL_SEGMENTS) as queue:
        keys = [queue.put(payload) for payload in numbered(30)]
    assert counters(read(spark, path, startingCounter=5, endingCounter=9)) == [5, 6, 7, 8, 9]
    assert counters(read(spark, path, startingCounter=31)) == []

    def moment(index: int) -> str:
        seconds = datetime.timedelta(microseconds=keys[index].timestamp // 1000)
        return (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + seconds).isoformat()

    # A moment of microseconds is at or before the record of that microsecond.
    found = counters(read(spark, path, startingTimestamp=moment(10), endingTimestamp=moment(20)))
    assert found == list(range(11, 21))
    assert counters(read(spark, path, startingTimestamp="2999-01-01")) == []
    assert counters(read(spark, path, endingTimestamp="1999-01-01T00:00:00+02:00")) == []


def test_filters_of_counter_and_time_are_pushed_down_and_mean_the_same(
    spark: SparkSession, filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(spark, filled)
    times = {row.counter: row.timestamp for row in frame.select("counter", "timestamp").collect()}
    middle = times[1500]
    cases: list[tuple[str, str, Callable[[int], bool]]] = [
        ("counter = 7", "EqualTo(counter,7)", lambda n: n == 7),
        (
            "counter > 2990 AND counter <> 2995",
            "GreaterThan(counter,2990)",
            lambda n: n > 2990 and n != 2995,
        ),
        (
            "counter <= 12 AND counter IN (1, 12, 90)",
            "LessThanOrEqual(counter,12)",
            lambda n: n in (1, 12),
        ),
        (f"timestamp > '{middle}'", "GreaterThan(timestamp,", lambda n: times[n] > middle),
        (
            f"timestamp >= '{middle}' AND counter < 1700",
            "GreaterThanOrEqual(timestamp,",
            lambda n: times[n] >= middle and n < 1700,
        ),
        (f"timestamp = '{middle}'", "EqualTo(timestamp,", lambda n: times[n] == middle),
        (f"timestamp < '{middle}'", "LessThan(timestamp,", lambda n: times[n] < middle),
        (
            f"timestamp <= '{middle}' AND length(data) % 2 = 0",
            "LessThanOrEqual(timestamp,",
            lambda n: times[n] <= middle and len(numbered(1, n)[0]) % 2 == 0,
        ),
        ("counter >= 5000", "GreaterThanOrEqual(counter,5000)", lambda n: False),
    ]
    for condition, pushed, meant in cases:
        found = frame.where(condition)
        capsys.readouterr()
        found.explain("formatted")
        plan = capsys.readouterr().out
        assert pushed in plan.partition("PushedFilters:")[2].partition("\n")[0], condition
        assert counters(found) == [n for n in times if meant(n)], condition


def test_segments_outside_the_bounds_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path, numbered(RECORDS))
    segments = sorted(path.glob("*.log"))
    damage(segments[1])
    segments[0].rename(tmp_path / "aside")
    newest = read(spark, path).where("counter > 2900")
    assert counters(newest) == list(range(2901, RECORDS + 1))
    told = error_of(read(spark, path).where("counter < 100").collect)
    assert f"CorruptionError: {segments[0]}: damaged at byte 0: the segment is missing" in told


def test_damage_is_the_exact_error_of_the_job(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path, numbered(RECORDS))
    hit = sorted(path.glob("*.log"))[1]
    damage(hit)
    told = error_of(read(spark, path).collect)
    assert f"CorruptionError: {hit}: damaged at byte " in told
    assert "of queue 'main': checksum of frame" in told
    assert f"`python -m store check {path}` lists what is intact" in told


def test_records_that_wait_are_those_that_were_neither_taken_nor_acked(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, segment_bytes=64 << 10) as queue:
        queue.put_many(numbered(20))
        queue.take_many(5)
        deliveries = [queue.lease() for _ in range(6)]
        for index in (1, 2, 4):
            deliveries[index].ack()
        queue.flush()
        # Leased records wait too: nobody has acked them.
        expected = [6, 9, 11, *range(12, 21)]
        assert counters(read(spark, path, records="pending")) == expected
        assert counters(read(spark, path)) == list(range(1, 21))
        found = read(spark, path, records="pending", startingCounter=7, endingCounter=12)
        assert counters(found) == [9, 11, 12]


def test_headers_are_a_column_where_they_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path) as queue:
        queue.put(b"plain")
        queue.put(b"traced", headers={"trace": "abc", "hop": "2"})
    assert read(spark, path).columns == ["counter", "timestamp", "key", "data"]
    rows = read(spark, path, includeHeaders="true").select("headers").collect()
    assert [row.headers for row in rows] == [{}, {"trace": "abc", "hop": "2"}]


def test_a_schema_of_some_columns_leaves_the_others_out(spark: SparkSession, filled: Path) -> None:
    reader = spark.read.format("fifoq")
    found = reader.schema("data BINARY, counter LONG").load(str(filled))
    assert found.columns == ["data", "counter"]
    rows = found.where("counter BETWEEN 3 AND 4").collect()
    assert [(bytes(row.data), row.counter) for row in rows] == [
        (payload, n) for n, payload in enumerate(numbered(2, 3), 3)
    ]
    told = error_of(reader.schema("counter INT").load(str(filled)).count)
    assert "schema: column 'counter' is bigint, not int." in told
    told = error_of(reader.schema("number LONG").load(str(filled)).count)
    assert "schema: there is no column 'number'; there are counter, timestamp, key, data." in told


OWNER = """
import sys
import fifoq.sync
with fifoq.sync.open(sys.argv[1]) as queue:
    for line in sys.stdin:
        queue.put(line.strip().encode())
        print("put", flush=True)
"""


def test_a_store_that_lives_in_another_process_is_read_as_it_grows(
    spark: SparkSession, tmp_path: Path
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "store")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    seen: list[str] = []
    try:
        for round_number in range(3):
            seen.append(f"record {round_number}")
            print(seen[-1], file=owner.stdin, flush=True)
            assert owner.stdout.readline() == "put\n"
            rows = read(spark, tmp_path / "store").collect()
            assert [row.data.decode() for row in rows] == seen
    finally:
        owner.stdin.close()
        assert owner.wait(60) == 0
        owner.stdout.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingCountr": 1}, "option startingcountr: there is no such option; there are path,"),
        ({"startingPosition": "latest"}, "option startingPosition: it is for spark.readStream"),
        ({"startingCounter": "one"}, "option startingCounter: 'one' is not a whole number from 1"),
        ({"startingCounter": 9, "endingCounter": 8}, "option endingCounter: 8 is below starting"),
        ({"startingCounter": 3002}, "option startingCounter: 3002 is behind the end of queue"),
        ({"endingCounter": 3001}, "option endingCounter: 3001 is behind the end of queue 'main'"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp: 'soon' is not a time such as"),
        ({"records": "some"}, "option records: 'some' is not all or pending."),
        ({"partitionBytes": "0"}, "option partitionBytes: '0' is not a number of bytes such as"),
        ({"includeHeaders": "2"}, "option includeHeaders: '2' is not true or false."),
        ({"queue": "Main"}, "option queue: queue name 'Main' is not allowed"),
        ({"queue": "nope"}, "option queue: 'nope' is not in this store; there are main."),
        ({"typed": "true"}, "option typed: queue 'main' has no type. Read it without the option."),
        (
            {"numPartitions": 2, "partitionBytes": "1m"},
            "option numPartitions: give it or partitionBytes, not both.",
        ),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, filled: Path, options: dict[str, object], told: str
) -> None:
    assert told in error_of(lambda: read(spark, filled, **options).count())


def test_a_path_without_a_store_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/letter.txt").write_text("hello")
    told = error_of(lambda: read(spark, tmp_path / "missing"))
    assert f"AccessError: {tmp_path}/missing: No such file or directory." in told
    told = error_of(lambda: read(spark, tmp_path / "foreign"))
    assert f"FormatError: {tmp_path}/foreign: there is no store here. Nothing was changed." in told
    told = error_of(lambda: spark.read.format("fifoq").load())
    assert "option path: it is missing." in told


def test_a_start_that_was_reclaimed_is_told_with_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, **SMALL_SEGMENTS) as queue:
        queue.put_many(numbered(RECORDS // 2))
        queue.put_many(numbered(RECORDS // 2))
        queue.take_many(RECORDS - 10)
        queue.put_many(numbered(RECORDS))
    there = counters(read(spark, path))
    assert there[0] > 1
    told = error_of(read(spark, path, startingCounter=2).collect)
    assert "option startingCounter: queue 'main': counter 2 was reclaimed by the owner" in told
    assert f"the next one that is still there is {there[0]}." in told
    assert counters(read(spark, path, startingCounter=there[0])) == there
