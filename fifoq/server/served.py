"""A store that is read for others: one reader on one thread, and answers cut into pages.

Every connection shares the reader, whose thread does one page at a time, so a disk that hangs holds
up answers but never the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import msgspec

from fifoq.consumers import (
    CONSUMERS,
    check_consumer_name,
    id_text,
    is_possible,
    read_position,
    write_position,
)
from fifoq.description import QueueDescription, attempts_within, describe
from fifoq.server.protocol import (
    BLOCK_COUNT_MAX,
    RANGE_COUNT_MAX,
    AdvanceRequest,
    AttemptsRequest,
    BlocksRequest,
    Found,
    Leased,
    Names,
    PositionRequest,
    ProtocolError,
    QueueRequest,
    QueuesRequest,
    Ranges,
    RemovedRequest,
    SeekRequest,
    Standing,
)
from store import FifoqError, Reader, RecordBlock
from store.checksum import Buffer
from store.directory import access_error
from store.encoding import encode_block
from store.genesis import check_name

CLOSE_SECONDS: Final = 5.0

P = ParamSpec("P")
R = TypeVar("R")


class Page(msgspec.Struct, frozen=True):
    """Some whole blocks of an answer, encoded as in the log."""

    parts: list[Buffer]
    bytes: int
    block_count: int
    record_count: int
    last: int
    """Counter of the last record in it."""


class Served:
    """The store at `path`, for a server. Methods that do not wait run on its own thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store_id = b""
        self._reader: Reader
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fifoq server")
        self._closed = False

    async def open(self) -> None:
        """FormatError or AccessError if there is no store."""
        try:
            self._reader = await self.run(Reader, self.path)
        except BaseException:
            self._executor.shutdown(wait=False)
            raise
        self.store_id = self._reader.store_id

    async def close(self) -> None:
        """Give every handle back. Twice is fine. A disk that hangs is not waited for."""
        if not self._closed:
            self._closed = True
            closing = self._executor.submit(self._reader.close)
            self._executor.shutdown(wait=False)
            await asyncio.wait([asyncio.wrap_future(closing)], timeout=CLOSE_SECONDS)

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it on the reader's thread. Cancelled, the call may go on; it changes nothing."""
        return await asyncio.wrap_future(self._executor.submit(function, *args, **kwargs))

    # On the thread.

    def look(self) -> Reader:
        """The reader, moved on to what is committed by now."""
        self._reader.refresh()
        return self._reader

    def queues(self, request: QueuesRequest) -> Names:
        return Names(sorted(self.look().state.queues))

    def describe(self, request: QueueRequest) -> QueueDescription:
        return describe(self.look(), request.queue)

    def waits(self) -> bool:
        """Whether something was committed that cannot be believed yet."""
        return self.look().waiting

    def removed(self, request: RemovedRequest) -> Ranges:
        queue = self.look().state.queues.get(check_name(request.queue))
        if queue is None:
            return Ranges([], True)
        found = queue.not_live(request.first, request.last, RANGE_COUNT_MAX + 1)
        return Ranges(found[:RANGE_COUNT_MAX], len(found) <= RANGE_COUNT_MAX)

    def attempts(self, request: AttemptsRequest) -> Leased:
        found = attempts_within(self.look(), request.queue, request.first, request.last)
        return Leased(found[:RANGE_COUNT_MAX], len(found) <= RANGE_COUNT_MAX)

    def position(self, request: PositionRequest) -> Standing:
        name = check_consumer_name(request.consumer)
        try:
            return Standing(read_position(self.path, name))
        except OSError as error:
            raise access_error(f"{self.path}/{CONSUMERS}", error) from error

    def advance(self, request: AdvanceRequest) -> Standing:
        """Durable on return. ProtocolError for the position of another store."""
        if request.position.store != id_text(self.store_id):
            raise ProtocolError(
                f"a position in store {request.position.store!r:.40} is none in this one, "
                f"{id_text(self.store_id)}"
            )
        check_name(request.position.queue)
        if not is_possible(request.position):
            raise ProtocolError(
                f"no consumer is at counter {request.position.counter}, or its checkpoint is not "
                f"a path"
            )
        try:
            write_position(self.path, request.consumer, request.position)
        except OSError as error:
            raise access_error(f"{self.path}/{CONSUMERS}", error) from error
        return Standing(request.position)

    def seek(self, request: SeekRequest) -> Found:
        return Found(self.look().seek(request.queue, max(0, request.time)))

    def answer(self, request: BlocksRequest, page_bytes: int) -> Answer:
        """What a request asks for, as of now."""
        blocks = self.look().blocks(
            request.queue, request.first, request.last, removed=request.removed
        )
        return Answer(blocks, page_bytes)


class Answer:
    """Records that were asked for, page by page; no more than one page is read ahead."""

    def __init__(self, blocks: Iterator[RecordBlock], page_bytes: int) -> None:
        self._blocks = blocks
        self._page_bytes = page_bytes
        self._held: RecordBlock | None = None
        self._error: FifoqError | None = None

    def next_page(self) -> Page | None:
        """The next blocks, or None behind the last.

        Raises what the reading raised, but only after the pages before it were handed out.
        """
        parts: list[Buffer] = []
        size = block_count = record_count = last = 0
        while block_count < BLOCK_COUNT_MAX:
            block = self._next_block()
            if block is None:
                break
            encoded = encode_block(block, queue=0)
            block_bytes = sum(map(len, encoded))
            if block_count and size + block_bytes > self._page_bytes:
                self._held = block
                break
            parts += encoded
            size += block_bytes
            block_count += 1
            record_count += block.count
            last = block.last
        if block_count:
            return Page(parts, size, block_count, record_count, last)
        if self._error is not None:
            raise self._error
        return None

    def _next_block(self) -> RecordBlock | None:
        block, self._held = self._held, None
        if block is not None or self._error is not None:
            return block
        try:
            return next(self._blocks, None)
        except FifoqError as error:
            self._error = error
            return None
