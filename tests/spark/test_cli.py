"""The verbs `fifoq spark ...`, over the session that all of these tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from tests.cli.support import here


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """Ten orders, three of them taken, one dead letter."""
    path = tmp_path / "store"
    with fifoq.sync.open_store(path) as store:
        orders = store.queue("orders", retention="all")
        orders.put_many([f"order {number}".encode() for number in range(10)])
        orders.take_many(3)
        orders.lease().reject("too late")
    return path


def test_archive_delays_and_dead_letters(spark: SparkSession, used: Path, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    first = here("spark", "archive", used, target, "-q", "orders", "--tail", "--json").json
    assert sum(unit["last"] - unit["first"] + 1 for unit in first["units"]) == 10
    assert (
        here("spark", "archive", used, target, "-q", "orders", "--tail", "--json").json["units"]
        == []
    )
    (row,) = here("spark", "delays", used, "-q", "orders", "--json").json["rows"]
    assert (row["queue"], row["count"]) == ("orders", 3)
    (row,) = here("spark", "rates", used, "-q", "orders", "--seconds", "3600", "--json").json[
        "rows"
    ]
    assert (row["put_count"], row["removed_count"], row["deepest"]) == (10, 4, 10)
    (group,) = here("spark", "dlq", used, "-q", "orders", "--json").json["rows"]
    assert (group["cause"], group["reason"], group["count"]) == ("rejected", "too late", 1)
    assert "too late" in here("spark", "dlq", used, "-q", "orders").out.decode()


def test_an_archive_is_put_back_once_by_name(
    spark: SparkSession, used: Path, tmp_path: Path
) -> None:
    target, other = tmp_path / "archive", tmp_path / "other"
    here("spark", "archive", used, target, "-q", "orders", "--tail", "--json")
    again: list[str | Path] = ["spark", "replay", target, other, "-q", "orders", "--into", "again"]
    again += ["--name", "one"]
    since = "2020-01-01"
    assert here(*again, "--since", since, "--json").json["records"] == 10
    assert here(*again, "--since", since, "--json").json["records"] == 0
    assert here(*again[:-2], "--until", since, "--json").json["records"] == 0
    with fifoq.sync.open(other, queue="again") as queue:
        assert [queue.take() for _ in range(len(queue))] == [
            f"order {number}".encode() for number in range(10)
        ]
    wrong = here(*again, "--since", "yesterday", status=2)
    assert "'yesterday' is no time such as" in wrong.err


def test_drain_moves_each_record_once_and_removes_what_is_proved(
    spark: SparkSession, used: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    kept = here("spark", "drain", used, table, "-q", "orders", "--keep", "--json").json
    assert (kept["drained"], kept["removed"]) == (6, 0)
    with fifoq.sync.open(used, queue="orders") as orders:
        orders.put(b"one more")
        # A live owner removes what is proved.
        done = here("spark", "drain", used, table, "-q", "orders", "--json").json
        assert (done["drained"], done["removed"]) == (1, 7)
        assert orders.empty()
    found = sorted(bytes(row.data) for row in spark.read.parquet(str(table)).collect())
    assert found == sorted([b"one more", *(f"order {n}".encode() for n in range(4, 10))])
