"""A store behind a frame server is the same table and the same stream as its directory."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fifoq.sync
from fifoq.consumers import Position, read_position
from fifoq.server import FrameServer
from fifoq.server.client import FrameClient
from fifoq.server.link import ServerError
from fifoq.spark.access import Access, Piece, opened
from fifoq.spark.options import OptionError
from fifoq.spark.remote import Address, open_remote, parse_address
from store import RangeGone, RecordBlock
from store.blocks import RECORDS
from store.keys import COUNTER_MAX
from tests.fifoq.server.support import TOKEN, fill, serving


class Order(msgspec.Struct):
    number: int
    name: str


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several segments, two queues, headers, a type, records removed at the head and between."""
    path = tmp_path_factory.mktemp("remote") / "store"
    with fifoq.sync.open_store(path, segment_bytes=64 << 10) as store:
        orders = store.queue("orders", type=Order, retention="all")
        other = store.queue("other")
        for at in range(0, 600, 20):
            orders.put_many([Order(i, "x" * (i % 300)) for i in range(at, at + 20)])
            other.put(b"%d" % at, headers={"at": str(at)})
        orders.take_many(55)
        held = [orders.lease() for _ in range(50)]
        for delivery in held[::2]:
            delivery.ack()
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[FrameServer]:
    with serving(path) as found:
        yield found


@pytest.fixture
def both(path: Path, server: FrameServer) -> Iterator[tuple[Access, Access]]:
    with opened(str(path), {}) as here, opened(server.url(), {"token": TOKEN}) as there:
        yield here, there


# The seam.


def test_views_are_the_same_on_both_sides(both: tuple[Access, Access]) -> None:
    here, there = both
    assert there.store_id == here.store_id
    assert there.queues() == here.queues() == ["orders", "other"]
    for name in ("orders", "other", "none"):
        assert there.queue(name) == here.queue(name)
        for first, last in ((1, COUNTER_MAX), (30, 70), (99, 99)):
            assert there.removed(name, first, last) == here.removed(name, first, last)
            assert there.attempts(name, first, last) == here.attempts(name, first, last)
    assert len(here.queue("orders").spans) > 1
    assert here.queue("orders").shape is not None
    for time in (-5, 0, here.queue("orders").spans[1].until, 2**62):
        assert there.seek("orders", time) == here.seek("orders", time)


@pytest.mark.parametrize(("first", "last"), [(1, 600), (77, 444), (600, 900)])
def test_pieces_are_the_range_once_and_keep_to_their_sizes(
    both: tuple[Access, Access], first: int, last: int
) -> None:
    _, there = both
    whole = [
        c for piece in there.pieces("orders", first, last, piece_bytes=2000) for c in span(piece)
    ]
    assert whole == list(range(first, min(last, 600) + 1))
    for limit in (1, 5000):
        part = there.pieces("orders", first, last, piece_bytes=2000, total_bytes=limit)
        counters = [c for piece in part for c in span(piece)]
        assert counters == whole[: len(counters)] != []
        assert sum(piece.bytes for piece in part) <= limit or len(counters) == 1
    records = [
        counter
        for piece in there.pieces("orders", first, last, piece_bytes=9000)
        for block in there.read("orders", piece)
        for counter in block.counters()
    ]
    assert records == whole


def span(piece: Piece) -> range:
    return range(piece.first, piece.last + 1)


def test_a_view_holds_until_the_next_refresh(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path) as q, serving(tmp_path) as server:
        q.put(b"one")
        with opened(server.url(), {"token": TOKEN}) as access:
            # Confirmed before the access was made, so it is there at once.
            assert access.queue("main").next == 2
            q.put(b"two")
            q.put(b"three")
            assert access.queue("main").next == 2
            access.refresh()
            assert access.queue("main").next >= 3


def test_positions_go_over_the_wire(path: Path, both: tuple[Access, Access]) -> None:
    here, there = both
    position = Position(queue="other", counter=3, store=here.store_id, checkpoint="/c")
    there.set_position("nightly", position)
    assert there.position("nightly") == here.position("nightly") == position
    assert there.position("none") is None
    (path / "consumers/nightly.json").unlink()


def test_a_task_refuses_another_store_than_the_one_that_was_planned(server: FrameServer) -> None:
    with pytest.raises(ServerError, match="the query was planned for 00ff"):
        open_remote(server.url(), {"token": TOKEN}, "00ff")


def test_end_offsets_that_go_back_are_not_believed(
    server: FrameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow would read beyond the payloads: whoever answers may be mistaken or worse."""
    offsets = memoryview(array("i", [0, 5, 3, 6]))
    block = RecordBlock("other", RECORDS, 1, 3, 7, offsets, memoryview(b"abcdef"), None, {})
    monkeypatch.setattr(FrameClient, "blocks", lambda *_, **__: iter([block]))
    with (
        opened(server.url(), {"token": TOKEN}) as access,
        pytest.raises(ServerError, match="end offsets of records 1 to 3 go back"),
    ):
        list(access.blocks("other", 1, 3))


def test_addresses_are_checked() -> None:
    assert parse_address("fifoq://host:7040/orders") == Address("host", 7040, "orders")
    assert parse_address("fifoq://[::1]:7040") == Address("::1", 7040, "")
    for wrong in ("fifoq://host/orders", "fifoq://:70/a", "fifoq://host:x/a", "fifoq://h:1/a?b=c"):
        with pytest.raises(OptionError, match=r"option path: .* is not fifoq://host:port/queue"):
            parse_address(wrong)
    with pytest.raises(OptionError, match="the token is an option") as error:
        parse_address(f"fifoq://user:{TOKEN}@host:1/a")
    assert TOKEN not in str(error.value)


def test_a_token_is_needed_and_may_come_from_the_environment(
    server: FrameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OptionError, match="option token: it is missing"):
        open_remote(server.url(), {})
    with pytest.raises(OptionError, match="option token: the token has 4 bytes"):
        open_remote(server.url(), {"token": "tiny"})
    monkeypatch.setenv("FIFOQ_TOKEN", TOKEN)
    open_remote(server.url(), {}).close()


# By Spark.


def table(spark: SparkSession, address: str, **options: str) -> DataFrame:
    return spark.read.format("fifoq").options(token=TOKEN, **options).load(address)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "orders", "records": "pending", "partitionBytes": "20k"},
        {"queue": "orders", "startingCounter": "40", "endingCounter": "333", "numPartitions": "3"},
        {"queue": "orders", "typed": "true"},
        {"queue": "other", "includeHeaders": "true"},
    ],
    ids=["pending", "range", "typed", "headers"],
)
def test_a_table_is_the_same_by_address_and_by_path(
    spark: SparkSession, path: Path, server: FrameServer, options: dict[str, str]
) -> None:
    here = spark.read.format("fifoq").options(**options).load(str(path))
    there = table(spark, server.url(), **options)
    assert there.schema == here.schema
    wanted = here.orderBy("counter").collect()
    assert there.orderBy("counter").collect() == wanted
    assert len(wanted) > 20


def test_the_address_names_the_queue_and_filters_are_pushed_down(
    spark: SparkSession, server: FrameServer
) -> None:
    before = server.stats().records
    assert table(spark, server.url("orders")).where("counter > 590").count() == 10
    assert server.stats().records - before == 10


def test_no_plan_and_no_error_shows_the_token(spark: SparkSession, server: FrameServer) -> None:
    shown = io.StringIO()
    with redirect_stdout(shown):
        table(spark, server.url("orders")).where("counter > 3").explain("extended")
    assert "fifoq" in shown.getvalue()
    assert TOKEN not in shown.getvalue()
    wrong = "this is not the token"
    with pytest.raises(PySparkException) as error:
        spark.read.format("fifoq").option("token", wrong).load(server.url("orders")).collect()
    assert "the token is not the one of this server" in str(error.value)
    assert "option `token`, or FIFOQ_TOKEN" in str(error.value)
    assert wrong not in str(error.value)


def test_nobody_there_is_told_by_the_job(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    with serving(tmp_path) as server:
        address = server.url()
        found = table(spark, address)
    with pytest.raises(PySparkException, match="Connection refused"):
        found.collect()


def test_damage_on_the_server_fails_the_job_with_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, frames=40)
    segment = min(tmp_path.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 1
    segment.write_bytes(data)
    with serving(tmp_path) as server, pytest.raises(PySparkException) as error:
        table(spark, server.url()).collect()
    assert "CorruptionError" in str(error.value)
    assert f"{segment}: damaged at byte" in str(error.value)


def test_a_stream_reads_by_address_and_keeps_its_position(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, checkpoint = tmp_path / "store", str(tmp_path / "checkpoint")
    with fifoq.sync.open(store, retention="all") as q, serving(store) as server:
        for part in range(2):
            q.put_many([b"%d.%d" % (part, i) for i in range(50)])
            query = (
                spark.readStream.format("fifoq")
                .options(token=TOKEN, consumer="etl", checkpoint=checkpoint)
                .option("maxRecordsPerTrigger", "30")
                .load(server.url())
                .writeStream.format("parquet")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start(str(tmp_path / "out"))
            )
            assert query.awaitTermination(120)
            assert query.exception() is None
            rows = spark.read.parquet(str(tmp_path / "out")).orderBy("counter").collect()
            assert [row.counter for row in rows] == list(range(1, 50 * (part + 1) + 1))
            assert bytes(rows[-1].data) == b"%d.49" % part
        position = read_position(str(store), "etl")
        assert position is not None
        assert position.queue == "main"
        assert position.counter >= 51


def test_a_range_that_is_gone_is_told_by_the_job(spark: SparkSession, tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, segment_bytes=64 << 10) as q:
        for i in range(60):
            q.put(bytes(5000))
            if i >= 10:
                q.take()
    with serving(tmp_path) as server:
        with opened(server.url(), {"token": TOKEN}) as access, pytest.raises(RangeGone) as gone:
            list(access.blocks("main", 3, 20))
        with pytest.raises(PySparkException, match=f"{gone.value.oldest}"):
            table(spark, server.url(), startingCounter="3").collect()
