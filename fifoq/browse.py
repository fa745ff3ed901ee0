"""Browsing: records in order, without taking them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fifoq.codec import Codec, decode_headers
from fifoq.jobs import Waiter
from fifoq.options import OS
from store import Key, Log
from store.blocks import HEADERS

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

T = TypeVar("T")

PAGE_BYTES: Final = 1 << 20
PAGE_RECORDS: Final = 4096


class Record(msgspec.Struct, Generic[T], frozen=True):
    """A record that is in a queue."""

    key: Key
    item: T
    headers: dict[str, str]


async def browse(
    queue: Queue[Any], committer: Committer, codec: Codec[T], start: int
) -> AsyncIterator[Record[T]]:
    """See Queue.browse."""
    committer.require_usable()
    if queue.dirty:
        # For the newest record: a frame without it, as a full disk allows, is not enough.
        waiter = Waiter(committer.loop.create_future(), queue, queue.next - 1)
        committer.touch(queue, None)
        committer.wait(waiter, OS)
        await waiter.future
    last = queue.next - 1
    while start <= last:
        page, start = await read(committer, queue.name, start, last)
        for key, payload, headers in page:
            yield Record(key, codec.decode(payload), decode_headers(headers))


async def read(
    committer: Committer, name: str, start: int, last: int
) -> tuple[list[tuple[Key, bytes, bytes | None]], int]:
    """Some live records of a queue from `start` on, and where the next page starts."""

    def page(log: Log) -> tuple[list[tuple[Key, bytes, bytes | None]], int]:
        return read_page(log, name, start, last)

    return await committer.call(page)  # type: ignore[return-value]


def read_page(
    log: Any, name: str, start: int, last: int
) -> tuple[list[tuple[Key, bytes, bytes | None]], int]:
    """Some live records from `start` on, and where the next page starts."""
    page: list[tuple[Key, bytes, bytes | None]] = []
    size = 0
    for block in log.read(name, start, last):
        headers = block.columns.get(HEADERS) or [None] * block.count
        page += zip(block.keys(), block.payloads(), headers, strict=True)
        size += int(block.offsets[-1] - block.offsets[0])
        if size >= PAGE_BYTES or len(page) >= PAGE_RECORDS:
            return page, block.last + 1
    return page, last + 1
