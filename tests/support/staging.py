"""Staged files as a sink leaves them, made without Spark."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from fifoq.attributes import NONE, Attributes, columns_of
from fifoq.staged import (
    FORMAT_VERSION,
    PART_HEADER,
    Manifest,
    Part,
    encode_manifest,
    encode_part_block,
    manifest_name,
    part_name,
)
from store import RecordBlock
from store.blocks import HEADERS, PRIORITY, RECORDS, U64_COLUMNS


def block_of(
    payloads: Sequence[bytes],
    headers: Sequence[bytes] | None = None,
    attributes: Sequence[Attributes] | None = None,
) -> RecordBlock:
    columns: dict[int, Any] = {HEADERS: list(headers)} if headers else {}
    said: dict[int, Any] = {**columns_of(attributes)} if attributes else {}
    for bit, column in said.items():
        code = "Q" if bit in U64_COLUMNS else "B" if bit == PRIORITY else None
        columns[bit] = list(column) if code is None else memoryview(array(code, column))
    ends = array("i", accumulate(map(len, payloads), initial=0))
    return RecordBlock(
        "",
        RECORDS,
        1,
        len(payloads),
        0,
        memoryview(ends),
        memoryview(b"".join(payloads)),
        None,
        columns,
    )


def staged_batch(
    store_id: bytes,
    partitions: Sequence[Sequence[bytes]],
    *,
    queue: str = "main",
    writer: str = "spark",
    batch: int = 0,
    query: str = "",
    once: bool = False,
    block_records: int = 2,
    headers: dict[bytes, bytes] | None = None,
    attributes: dict[bytes, Attributes] | None = None,
) -> dict[str, bytes]:
    """The files of one batch: a part for each partition, then the manifest."""
    files: dict[str, bytes] = {}
    parts: list[Part] = []
    for number, payloads in enumerate(partitions):
        content = [PART_HEADER]
        starts = range(0, len(payloads), block_records)
        for start in starts:
            some = payloads[start : start + block_records]
            named = [headers.get(payload, b"") for payload in some] if headers else None
            said = [attributes.get(payload, NONE) for payload in some] if attributes else None
            content += map(bytes, encode_part_block(block_of(some, named, said)))
        name = part_name(writer, batch, query or "run", number, "7")
        files[name] = b"".join(content)
        parts.append(Part(name, len(files[name]), len(starts), len(payloads)))
    manifest = Manifest(
        FORMAT_VERSION, store_id.hex(), queue, writer, batch, parts, query=query, once=once
    )
    files[manifest_name(queue, writer, batch)] = encode_manifest(manifest)
    return files
