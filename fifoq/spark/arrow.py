"""From blocks to Arrow: the columns of many blocks joined, with no Python object per record.

A block's end offsets and payloads are an Arrow binary column already; its counters and times are
implied or a column of differences. So a batch is a few joins and a few numpy calls, whatever the
number of records. Headers and typed columns, where they are asked for, are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fifoq.attributes import PRIORITY_DEFAULT as DEFAULT
from fifoq.codec import decode_headers
from fifoq.spark.typed import TypedColumns
from store.blocks import (
    COUNTERS,
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    RecordBlock,
)

BATCH_ROWS: Final = 16 << 10
BATCH_BYTES: Final = 2 << 20
"""A batch closes with the block that brings it to so many rows or payload bytes."""

ATTEMPTS: Final = "attempts"
"""The one column that is not in the blocks of records: whoever plans has to look for it."""

_NS_PER_US: Final = 1000
_KEY_BYTES: Final = 16
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

Numbers = npt.NDArray[np.int64]
Ranges = Sequence[tuple[int, int]]


class Batches:
    """Makes record batches of one schema."""

    def __init__(
        self, schema: pa.Schema, typed: TypedColumns | None = None, attempts: Ranges = ()
    ) -> None:
        """Its fields are known ones, each of the type that it has here."""
        self._schema = schema
        self._typed = typed
        leased = np.array(attempts, np.int64).reshape(-1, 2)
        self._leased, self._attempts = leased[:, 0], leased[:, 1].astype(np.int32)
        self._make: dict[str, Callable[[_Joined], pa.Array]] = {
            "counter": lambda joined: pa.array(joined.counters),
            "timestamp": _timestamps,
            "key": _keys,
            "data": _payloads,
            "headers": self._headers,
            "priority": lambda joined: pa.array(_numbers(joined, PRIORITY, np.int32, DEFAULT)),
            "deliver_at": lambda joined: _times_or_null(joined, DELIVER_AT),
            "expires_at": lambda joined: _times_or_null(joined, EXPIRES_AT),
            "ordering_key": lambda joined: _texts_or_null(joined, ORDERING_KEY),
            "dedup_id": lambda joined: _texts_or_null(joined, DEDUP_ID),
            ATTEMPTS: self._attempts_of,
        }

    def of(self, blocks: Iterable[RecordBlock], without: Ranges = ()) -> Iterator[pa.RecordBatch]:
        """The blocks as batches of a good size; counters in the ranges of `without` are left out.

        The ranges rise and do not overlap.
        """
        gathered: list[RecordBlock] = []
        rows = size = 0
        for block in blocks:
            gathered.append(block)
            rows += block.count
            size += len(block.payload)
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from self._batch(gathered, without)
                gathered, rows, size = [], 0, 0
        if gathered:
            yield from self._batch(gathered, without)

    def _batch(self, blocks: list[RecordBlock], without: Ranges) -> Iterator[pa.RecordBatch]:
        joined = _Joined(blocks)
        made: dict[str, pa.Array] = {}
        if self._typed is not None:
            made = self._typed.arrays(_split(joined), blocks[0].first, blocks[-1].last)
        arrays = [
            made[name] if name in made else self._make[name](joined) for name in self._schema.names
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if without:
            batch = batch.filter(pa.array(_outside(joined.counters, without)))
        if batch.num_rows:
            yield batch

    def _attempts_of(self, joined: _Joined) -> pa.Array:
        attempts = np.zeros(joined.count, np.int32)
        if len(self._leased):
            at = np.searchsorted(self._leased, joined.counters)
            at[at == len(self._leased)] = 0
            there = self._leased[at] == joined.counters
            attempts[there] = self._attempts[at][there]
        return pa.array(attempts)

    def _headers(self, joined: _Joined) -> pa.Array:
        found: list[list[tuple[str, str]]] = []
        for block in joined.blocks:
            column = block.columns.get(HEADERS)
            if column is None:
                found += [[]] * block.count
            else:
                found += [list(decode_headers(bytes(each)).items()) for each in column]
        return pa.array(found, self._schema.field("headers").type)


class _Joined:
    """Blocks with their counters and put times (ns), record by record, where they are asked for."""

    def __init__(self, blocks: list[RecordBlock]) -> None:
        self.blocks = blocks
        self.counts = np.array([block.count for block in blocks])
        self.starts = np.cumsum(self.counts) - self.counts
        self.count = int(self.counts.sum())

    @cached_property
    def counters(self) -> Numbers:
        firsts = np.array([block.first for block in self.blocks], np.int64)
        counters = np.arange(self.count, dtype=np.int64)
        counters += np.repeat(firsts - self.starts, self.counts)
        for block, start in zip(self.blocks, self.starts, strict=True):
            column = block.columns.get(COUNTERS)
            if column is not None:
                counters[start : start + block.count] = np.asarray(column)
        return counters

    @cached_property
    def times(self) -> Numbers:
        times = np.repeat(np.array([block.time for block in self.blocks], np.int64), self.counts)
        for block, start in zip(self.blocks, self.starts, strict=True):
            if block.time_differences is not None:
                times[start : start + block.count] += np.asarray(block.time_differences).astype(
                    np.int64
                )
        return times


def _timestamps(joined: _Joined) -> pa.Array:
    times = joined.times // _NS_PER_US
    return pa.Array.from_buffers(_TIMESTAMP, joined.count, [None, pa.py_buffer(times)])


def _numbers(joined: _Joined, bit: int, kind: type[np.generic], default: int) -> npt.NDArray[Any]:
    """An optional column of numbers, with the default where a block has none."""
    found = np.full(joined.count, default, kind)
    for block, start in zip(joined.blocks, joined.starts, strict=True):
        column = block.columns.get(bit)
        if column is not None:
            found[start : start + block.count] = np.asarray(column)
    return found


def _times_or_null(joined: _Joined, bit: int) -> pa.Array:
    """An optional column of times (ns); 0 means that there is none."""
    times = _numbers(joined, bit, np.int64, 0)
    return pa.array(times // _NS_PER_US, _TIMESTAMP, mask=times == 0)


def _texts_or_null(joined: _Joined, bit: int) -> pa.Array:
    found: list[str | None] = []
    for block in joined.blocks:
        column = block.columns.get(bit)
        if column is None:
            found += [None] * block.count
        else:
            found += [bytes(each).decode(errors="replace") or None for each in column]
    return pa.array(found, pa.string())


def _keys(joined: _Joined) -> pa.Array:
    keys = np.empty((joined.count, 2), ">u8")
    keys[:, 0] = joined.counters
    keys[:, 1] = joined.times
    offsets = np.arange(0, (joined.count + 1) * _KEY_BYTES, _KEY_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), joined.count, [None, pa.py_buffer(offsets), pa.py_buffer(keys)]
    )


def _payloads(joined: _Joined) -> pa.Array:
    offsets, payload = _joined_payloads(joined)
    return pa.Array.from_buffers(
        pa.binary(), joined.count, [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    )


def _joined_payloads(joined: _Joined) -> tuple[npt.NDArray[np.int32], bytes | memoryview]:
    """End offsets, the first of them 0, and all payloads back to back."""
    blocks = joined.blocks
    if len(blocks) == 1 and not blocks[0].offsets[0]:
        return np.asarray(blocks[0].offsets), blocks[0].payload[: blocks[0].offsets[-1]]
    begins = [block.offsets[0] for block in blocks]
    ends = [block.offsets[-1] for block in blocks]
    payload = b"".join(
        [block.payload[begin:end] for block, begin, end in zip(blocks, begins, ends, strict=True)]
    )
    sizes = np.array(ends, np.int64) - np.array(begins, np.int64)
    bases = np.cumsum(sizes) - sizes - np.array(begins, np.int64)
    offsets = np.zeros(joined.count + 1, np.int32)
    offsets[1:] = np.frombuffer(b"".join([block.offsets[1:] for block in blocks]), np.int32)
    offsets[1:] += np.repeat(bases.astype(np.int32), joined.counts)
    return offsets, payload


def _split(joined: _Joined) -> list[bytes]:
    return [payload for block in joined.blocks for payload in block.payloads()]


def _outside(counters: Numbers, ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Which of the counters are in none of the ranges."""
    firsts, lasts = np.array(ranges, np.int64).T
    at = np.searchsorted(firsts, counters, "right") - 1
    found: npt.NDArray[np.bool_] = (at < 0) | (counters > lasts[at])
    return found
