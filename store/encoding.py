"""Blocks as bytes, made by a handful of C calls for each batch.

An encoded block is a list of parts that are joined once, when the frame is made. The first part
is the header, which holds the block's whole size. The layout is told in `store.blocks`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

from store.blocks import (
    BLOCK_HEADER_BYTES,
    COMPRESSED,
    HEADER,
    LEASES,
    NO_QUEUE,
    PRIORITY,
    RECORDS,
    REMOVED,
    STATE,
    U64_COLUMNS,
    Column,
    RecordBlock,
)
from store.checksum import Buffer
from store.compression import Compression, compress
from store.errors import ItemTooLarge
from store.frames import BODY_BYTES_MAX

_I32_MAX: Final = 2**31 - 1
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_COMPRESSION = struct.Struct("<II")
_PADS: Final = tuple(bytes(-n % 8) for n in range(8))


def encode_records(
    payloads: Sequence[Buffer],
    *,
    queue: int,
    first: int,
    time: int,
    times: Sequence[int] | None = None,
    time_runs: Sequence[tuple[int, int]] | None = None,
    columns: dict[int, Column] | None = None,
    kind: int = RECORDS,
    item_bytes: int | None = None,
) -> tuple[list[Buffer], int]:
    """Encode records with counters from `first` on; returns the block's parts and payload bytes.

    The first part is the header, which holds the block's whole size.

    `times` (not below `time`, one for each record), or `time_runs` (how many records share which
    time), are given only when they differ, `item_bytes` only if that is the length of every
    payload. The caller has checked sizes: the block must fit into a frame.
    """
    count = len(payloads)
    if item_bytes is None:
        lengths = list(map(len, payloads))
        payloads = [b"".join(payloads)]
        payload_bytes = len(payloads[0])
    else:
        payload_bytes = item_bytes * count
    if payload_bytes > BODY_BYTES_MAX:
        raise ItemTooLarge(
            f"a commit of {payload_bytes} bytes is over the limit of {BODY_BYTES_MAX}, columns and "
            f"metadata included. Nothing was stored. Put fewer or smaller records at once."
        )
    if item_bytes is None:
        offsets = _end_offsets(lengths, payload_bytes)
    else:
        offsets = _even_offsets(item_bytes, count)
    parts: list[Buffer] = [b"", offsets, _PADS[len(offsets) % 8]]
    if time_runs is not None:
        width = _add_time_runs(parts, time, time_runs)
    else:
        width = _add_times(parts, time, times)
    detail = 0
    if columns:
        for bit in sorted(columns):
            detail |= bit
            _add_column(parts, bit, columns[bit])
    size = BLOCK_HEADER_BYTES + sum(map(len, parts)) + payload_bytes + -payload_bytes % 8
    parts += payloads
    parts.append(_PADS[payload_bytes % 8])
    parts[0] = HEADER.pack(kind, width, queue, detail, count, size, first, time)
    return parts, payload_bytes


def encode_block(block: RecordBlock, *, queue: int) -> list[Buffer]:
    """A decoded block, or a slice of one, as parts again; payloads and columns are not copied.

    A whole block gives the bytes that it was decoded from, but for its queue index, unless these
    were compressed. The payloads are the last part but one.
    """
    assert not block.algorithm, "decompress it first"
    offsets = block.offsets
    start, end = offsets[0], offsets[-1]
    if start:
        offsets = memoryview(array("i", [offset - start for offset in offsets]))
    parts: list[Buffer] = [b""]
    _add_view(parts, offsets)
    width = 0
    if block.time_differences is not None:
        width = block.time_differences.itemsize
        _add_view(parts, block.time_differences)
    detail = 0
    for bit in sorted(block.columns):
        detail |= bit
        column = block.columns[bit]
        if isinstance(column, list):
            _add_bytes(parts, column)
        else:
            _add_view(parts, column)
    _add_view(parts, block.payload[start:end])
    size = BLOCK_HEADER_BYTES + sum(map(len, parts))
    parts[0] = HEADER.pack(
        block.kind, width, queue, detail, block.count, size, block.first, block.time
    )
    return parts


def compressed(
    parts: list[Buffer], payload_parts: int, compression: Compression
) -> list[Buffer] | None:
    """An encoded block of records with its payloads compressed; None if that is not worth it.

    `payload_parts` of its parts are payloads; behind them is only what fills up the last bytes.
    """
    columns, payloads = parts[1 : -payload_parts - 1], parts[-payload_parts - 1 : -1]
    data = compress(payloads[0] if payload_parts == 1 else b"".join(payloads), compression)
    if data is None:
        return None
    columns += [_COMPRESSION.pack(compression.algorithm, len(data)), data, _PADS[len(data) % 8]]
    size = BLOCK_HEADER_BYTES + sum(map(len, columns))
    kind, width, queue, detail, count, _, first, time = HEADER.unpack(parts[0])
    header = HEADER.pack(kind, width, queue, detail | COMPRESSED, count, size, first, time)
    return [header, *columns]


def _add_view(parts: list[Buffer], column: memoryview) -> None:
    parts += [column.cast("B"), _PADS[column.nbytes % 8]]


def block_bytes(parts: Sequence[Buffer]) -> int:
    """Size of an encoded block, as its header says it."""
    return int(HEADER.unpack(parts[0])[5])


def encode_removed(
    ranges: Sequence[tuple[int, int, int]], *, queue: int, time: int, reason: int
) -> list[Buffer]:
    """Encode the removal of inclusive counter ranges, each (first, last, weight)."""
    firsts, lasts, weights = zip(*ranges, strict=True)
    body = array("Q", firsts + lasts + weights).tobytes()
    size = BLOCK_HEADER_BYTES + len(body)
    return [HEADER.pack(REMOVED, 0, queue, reason, len(ranges), size, firsts[0], time), body]


def encode_leases(
    counters: Sequence[int], attempts: Sequence[int], *, queue: int, deadline: int
) -> list[Buffer]:
    """Encode that records were handed out, each for the given attempt, until `deadline`."""
    count = len(counters)
    body = [array("Q", counters).tobytes(), array("I", attempts).tobytes(), _PADS[count * 4 % 8]]
    size = BLOCK_HEADER_BYTES + sum(map(len, body))
    return [HEADER.pack(LEASES, 0, queue, 0, count, size, counters[0], deadline), *body]


def encode_state(entries: Sequence[tuple[str, bytes | None]], *, time: int) -> list[Buffer]:
    """Encode newest values by name; None deletes the name."""
    parts: list[Buffer] = [b""]
    present = bytes(value is not None for _, value in entries)
    parts += [present, _PADS[len(present) % 8]]
    _add_bytes(parts, [name.encode() for name, _ in entries])
    _add_bytes(parts, [value or b"" for _, value in entries])
    size = BLOCK_HEADER_BYTES + sum(map(len, parts))
    parts[0] = HEADER.pack(STATE, 0, NO_QUEUE, 0, len(entries), size, 0, time)
    return parts


def _end_offsets(lengths: list[int], total: int) -> bytes:
    """0 and the end of each payload, packed. Batches of one length, which are common, are kept."""
    count, first = len(lengths), lengths[0]
    even = lengths.count(first) == count
    if total != (count * first if even else sum(lengths)):
        raise TypeError("a payload is a view of items larger than a byte; cast it to bytes")
    if even:
        return _even_offsets(first, count)
    return struct.pack(f"<{count + 1}i", 0, *accumulate(lengths))


def _even_offsets(length: int, count: int) -> bytes:
    return _offsets_of(length, count.bit_length())[: 4 * (count + 1)]


@lru_cache(maxsize=64)
def _offsets_of(length: int, bits: int) -> bytes:
    """Multiples of a length, enough for counts of that many bits, as far as they fit."""
    most = min(length << bits, _I32_MAX) + 1
    return array("i", range(0, most, length)).tobytes() if length else bytes(4 << bits)


def _add_times(parts: list[Buffer], time: int, times: Sequence[int] | None) -> int:
    if times is None or times[0] == times[-1] == time:
        return 0
    differences = [moment - time for moment in times]
    column = array("I" if differences[-1] < 2**32 else "Q", differences)
    parts += [column.tobytes(), _PADS[len(column) * column.itemsize % 8]]
    return column.itemsize


def _add_time_runs(parts: list[Buffer], time: int, runs: Sequence[tuple[int, int]]) -> int:
    longest = runs[-1][1] - time
    if not longest:
        return 0
    difference = _U32 if longest < 2**32 else _U64
    column = b"".join([difference.pack(moment - time) * count for count, moment in runs])
    parts += [column, _PADS[len(column) % 8]]
    return difference.size


def _add_column(parts: list[Buffer], bit: int, values: Column) -> None:
    if bit in U64_COLUMNS:
        parts.append(array("Q", values).tobytes())  # type: ignore[type-var]
    elif bit == PRIORITY:
        parts += [bytes(values), _PADS[len(values) % 8]]  # type: ignore[arg-type]
    else:
        _add_bytes(parts, values)  # type: ignore[arg-type]


def _add_bytes(parts: list[Buffer], values: Sequence[bytes]) -> None:
    offsets = array("i", accumulate(map(len, values), initial=0))
    parts += [offsets.tobytes(), _PADS[len(offsets) * 4 % 8], *values, _PADS[offsets[-1] % 8]]
