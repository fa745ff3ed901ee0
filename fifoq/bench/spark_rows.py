"""What the rows of Spark are measured against beside Parquet: two sources with the same plan.

One gives Spark row after row. The other reads one batch and gives it again and again: what it takes
is what Spark itself takes for batches from Python, and no source of this kind can be faster.

`python -m fifoq.bench.spark_rows PATH` reads a whole store as a task of the real source does, and
prints the peak of resident memory in megabytes.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fifoq.bench.machine import peak_megabytes
from fifoq.spark.access import opened
from fifoq.spark.plan import PiecesPartition
from fifoq.spark.source import FifoqSource

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class RowsReader(DataSourceReader):
    """Plans as the real one does; reads record by record."""

    def __init__(self, real: Any, path: str) -> None:
        self._real, self._path = real, path

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = self._real.partitions()
        return found

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, PiecesPartition)
        with opened(self._path, {}, partition.store_id) as access:
            for piece in partition.pieces:
                for block in access.read("main", piece):
                    for key, data in zip(block.keys(), block.payloads(), strict=True):
                        moment = datetime.timedelta(microseconds=key.timestamp // 1000)
                        yield key.counter, _EPOCH + moment, bytes(key), data


class RowsSource(FifoqSource):
    """The same queue, row after row."""

    @classmethod
    def name(cls) -> str:
        return "fifoq-rows"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader(super().reader(schema), self.options["path"])


class ReadyReader(DataSourceReader):
    """Plans as the real one does; gives the first batch of a partition until it has enough."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = self._real.partitions()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PiecesPartition)
        left = sum(piece.last - piece.first + 1 for piece in partition.pieces)
        batch = next(self._real.read(partition))
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class ReadySource(FifoqSource):
    """The same number of records, of which only the first are read."""

    @classmethod
    def name(cls) -> str:
        return "fifoq-ready"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(super().reader(schema))


def main(path: str) -> None:
    """Read everything in one task and drop it."""
    source = FifoqSource({"path": path, "numPartitions": "1"})
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        for _ in reader.read(partition):
            pass
    print(peak_megabytes())


if __name__ == "__main__":
    main(sys.argv[1])
