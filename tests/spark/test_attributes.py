"""What a put may say of a record is in its columns, and compressed blocks are read like others."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

import fifoq.sync
from fifoq.spark.source import FifoqSource

DUE = datetime(2100, 1, 1, tzinfo=UTC)
FIELDS = ("priority", "deliver_at", "expires_at", "ordering_key", "dedup_id", "attempts")


class Task(msgspec.Struct):
    name: str
    priority: str


def table(path: Path, **options: str) -> pa.Table:
    """All records, as tasks give them to Spark: the reader travels to them."""
    source = FifoqSource({"path": str(path), **options})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    parts = reader.partitions()
    return pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])


def schema(path: Path, **options: str) -> StructType:
    return FifoqSource({"path": str(path), **options}).schema()


def test_attributes_are_columns_where_they_are_asked_for(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, priorities=True) as q:
        q.put_many([b"a", b"b"])
        q.put(b"c", priority=2)
        q.put(b"d", deliver_at=DUE, ttl=60)
        q.put(b"e", ordering_key="ü", headers={"k": "v"})
    found = table(tmp_path, includeAttributes="true", includeHeaders="true")
    assert found["data"].to_pylist() == [b"a", b"b", b"c", b"d", b"e"]
    assert found["priority"].to_pylist() == [5, 5, 2, 5, 5]
    assert found["deliver_at"].to_pylist() == [None, None, None, DUE, None]
    until = DUE + timedelta(seconds=60)
    assert found["expires_at"].to_pylist() == [None, None, None, until, None]
    assert found["ordering_key"].to_pylist() == [None, None, None, None, "ü"]
    assert found["dedup_id"].to_pylist() == [None] * 5
    assert found["headers"].to_pylist()[-1] == [("k", "v")]
    assert schema(tmp_path, includeAttributes="true").fieldNames()[-6:] == list(FIELDS)
    assert schema(tmp_path).fieldNames() == ["counter", "timestamp", "key", "data"]


def test_attempts_are_those_of_when_the_query_was_planned(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, retry_backoff=0) as q:
        q.put_many([b"%d" % n for n in range(6)])
        for _ in range(2):
            q.lease().nack()
        q.ack_many(q.lease_many(1))
        second, third = q.lease(), q.lease()
        second.nack()
        assert third.item == b"2"
    found = table(tmp_path, includeAttributes="true")
    assert found["attempts"].to_pylist() == [0, 1, 1, 0, 0, 0], "the first one is gone"
    found = table(tmp_path, includeAttributes="true", records="pending", numPartitions="3")
    assert found["attempts"].to_pylist() == [1, 1, 0, 0, 0]


def test_a_field_of_a_type_makes_room_for_an_attribute(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, type=Task) as q:
        q.put(Task("wash", "high"))
    plain = table(tmp_path, typed="true")
    assert plain["priority"].to_pylist() == ["high"]
    both = table(tmp_path, typed="true", includeAttributes="true")
    assert (both["priority"].to_pylist(), both["priority_"].to_pylist()) == ([5], ["high"])


def test_compressed_blocks_are_read_like_others(tmp_path: Path) -> None:
    payloads = [b"%d " % n * 50 for n in range(500)]
    with fifoq.sync.open(tmp_path, compression="zlib") as q:
        for at in range(0, len(payloads), 50):
            q.put_many(payloads[at : at + 50])
    assert not any(payloads[123] in file.read_bytes() for file in tmp_path.glob("*.log"))
    assert table(tmp_path)["data"].to_pylist() == payloads
    few = table(tmp_path, startingCounter="77", endingCounter="80")
    assert few["data"].to_pylist() == payloads[76:80]
